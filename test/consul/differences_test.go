package consul

import (
	"slices"
	"strings"
	"testing"
)

// published is where the differences that are kept are listed for users, and read
// from by the tests: a heading with file and request, why, and the lines that differ.
// A file or request that ends in * stands for all that begin so.
const (
	published = "../../docs/protocols/consul-differences.md"
	notYet    = "notyet.txt"
)

// difference is one that is kept.
type difference struct {
	file, request string
	why           string
	lines         []string // with - what Consul answers, with + what we answer
	used          bool
}

type differences []*difference

func readDifferences(t *testing.T) differences {
	t.Helper()
	var all differences
	var d *difference
	inside := false
	for line := range strings.Lines(mustRead(t, published)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "### "):
			file, request, ok := strings.Cut(strings.TrimPrefix(line, "### "), ": ")
			if !ok {
				t.Fatalf("%s: a heading is FILE: `REQUEST`, not %q", published, line)
			}
			d = &difference{file: file, request: strings.Trim(request, "`")}
			all = append(all, d)
		case strings.HasPrefix(line, "## "):
			d = nil
		case strings.HasPrefix(line, "```"):
			inside = !inside && d != nil
		case inside:
			d.lines = append(d.lines, line)
		case d != nil && line != "":
			d.why += line + "\n"
		}
	}
	for _, d := range all {
		if d.why == "" || len(d.lines) == 0 {
			t.Errorf("%s: %s %s has no reason, or no lines", published, d.file, d.request)
		}
	}
	return all
}

// explain returns the lines of the difference between want and got that are not listed.
// What is listed together counts only where all of it occurs.
func (all differences) explain(file, request, want, got string) string {
	lines := diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
	listed := map[string]bool{}
	for _, d := range all {
		if !matches(d.file, file) || !matches(d.request, request) || !d.occursIn(lines) {
			continue
		}
		d.used = true
		for _, line := range d.lines {
			listed[line] = true
		}
	}
	var left strings.Builder
	for _, line := range lines {
		if !listed[line] {
			left.WriteString(line + "\n")
		}
	}
	return left.String()
}

func (d *difference) occursIn(lines []string) bool {
	for _, line := range d.lines {
		if !slices.Contains(lines, line) {
			return false
		}
	}
	return true
}

func matches(pattern, text string) bool {
	if before, star := strings.CutSuffix(pattern, "*"); star {
		return strings.HasPrefix(text, before)
	}
	return pattern == text
}

func (all differences) mustAllOccur(t *testing.T) {
	t.Helper()
	for _, d := range all {
		if !d.used {
			t.Errorf("%s lists a difference that does not occur: %s %s", published, d.file, d.request)
		}
	}
}

// diff returns the lines that differ, by the longest common subsequence.
func diff(want, got []string) []string {
	longest := make([][]int, len(want)+1)
	for i := range longest {
		longest[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var lines []string
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && longest[i+1][j] >= longest[i][j+1]:
			lines = append(lines, "-"+want[i])
			i++
		default:
			lines = append(lines, "+"+got[j])
			j++
		}
	}
	return lines
}

// pending are the steps that are not served yet: a line for a file, or for a file
// and a request.
type notYetList []*difference

func readNotYet(t *testing.T) notYetList {
	t.Helper()
	var all notYetList
	for line := range strings.Lines(mustRead(t, notYet)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		file, request, _ := strings.Cut(line, " ")
		all = append(all, &difference{file: file, request: request})
	}
	return all
}

func (all notYetList) file(name string) bool { return all.step(name, "") }

func (all notYetList) step(name, request string) bool {
	for _, d := range all {
		if d.file == name && (d.request == request || request != "" && d.request != "" && matches(d.request, request)) {
			d.used = true
			return true
		}
	}
	return false
}

func (all notYetList) mustAllOccur(t *testing.T) {
	t.Helper()
	for _, d := range all {
		if !d.used {
			t.Errorf("%s lists what is served: %s %s", notYet, d.file, d.request)
		}
	}
}
