// Package consul plays a corpus of requests to the door for Consul's clients and
// compares what is answered with what Consul 1.22.3 answered to the same requests.
//
// The corpus is testdata/*.txt: each step is a request and, below "----", the answer
// of a real Consul: facts that were observed, with indexes, ids and times normalised
// (normal_test.go), or, where a comment says so, what its sources say. Each file is played
// from an empty catalog.
//
//	go test ./test/consul                              ours against what was recorded
//	go test ./test/consul -peer /path/to/consul        a real Consul against it first, then ours
//	go test ./test/consul -peer /path/to/consul -rewrite -run TestPeer     records anew
//
// docs/protocols/consul-differences.md is the published list of the differences that
// are kept: one that is not listed fails, and one that is listed and does not occur
// fails too. A step that no server need answer yet stands in notyet.txt.
//
// Steps, each `directive options`, the request and its body below it:
//
//	http                 sends the request and shows the answer
//	start NAME           sends it and goes on
//	pending NAME         whether the answer of a started one is still to come
//	finish NAME          waits for it and shows it
//	until contains=(T)   sends it again and again until the answer contains T
//
// The first line of a request is its method and path. Lines that begin with @ are
// headers, the rest is the body; "!bytes N" stands for a body of so many bytes.
// Options: index=N, hash=N, id=N and modify=N save X-Consul-Index, X-Consul-ContentHash, the ID
// and the first ModifyIndex of the answer for later requests, where $N stands for it;
// vs=N shows whether the index, or the hash, of the answer is that of N; fields=(A,B)
// shows only these members of the body; keys shows only their names; count only their
// number; raw the body as it is; sorted puts lists that are ordered by ids, or by nothing, into the order of what they say; anyindex does
// not show how the index stands to those in the body; atleast=D whether the answer took so long.
package consul

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

const (
	transcripts = "testdata"
	// patience is how long a step may take, on a machine that does other things too.
	patience = time.Minute
	// pause is how long a started request that must stay unanswered is given to be
	// answered after all. A sound server never answers it, however slow the machine.
	pause = 150 * time.Millisecond
)

var (
	peer  = flag.String("peer", "", "a real Consul to play the corpus to as well, and with -rewrite to record")
	own   = flag.String("server", "", "a program named consul to test instead of ours")
	other = flag.String("other", "", "files to play instead of the whole corpus, those of notyet.txt included")
)

// TestPeer plays the corpus to a real Consul: what is recorded is what it answers.
func TestPeer(t *testing.T) {
	if *peer == "" {
		t.Skip("needs -peer")
	}
	target := startTarget(t, *peer)
	for _, file := range files(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := newPlayer(t, target, file)
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string { return p.step(t, d) })
		})
	}
}

// TestTranscripts plays the corpus to us.
func TestTranscripts(t *testing.T) {
	if rewriting() {
		t.Skip("what is recorded is a real Consul's")
	}
	known := readDifferences(t)
	skipped := readNotYet(t)
	list := slices.DeleteFunc(files(t), func(file string) bool { return *other == "" && skipped.file(filepath.Base(file)) })
	if len(list) == 0 {
		t.Skip("not yet")
	}
	target := startTarget(t, ours(t))
	for _, file := range list {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			p := newPlayer(t, target, file)
			var unlisted []string // told at the end: a failed step would end the file
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				got := p.step(t, d)
				if got == d.Expected {
					return got
				}
				request, _, _ := strings.Cut(d.Input, "\n")
				if skipped.step(name, request) {
					return d.Expected
				}
				if left := known.explain(name, request, d.Expected, got); left != "" {
					unlisted = append(unlisted, fmt.Sprintf("%s: %s\nConsul's answer is -, ours +:\n%s", d.Pos, request, left))
				}
				return d.Expected
			})
			for _, text := range unlisted {
				t.Error(text)
			}
		})
	}
	if *other == "" && !t.Failed() {
		known.mustAllOccur(t)
		skipped.mustAllOccur(t)
	}
}

func rewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

// files are the corpus, or what of it was asked for.
func files(t *testing.T) []string {
	t.Helper()
	pattern := "*.txt"
	if *other != "" {
		pattern = *other
	}
	list, err := filepath.Glob(filepath.Join(transcripts, pattern))
	if err != nil || len(list) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	return list
}

// TestWhatIsListed checks the tests' own parts: what they would not see, nobody sees.
func TestWhatIsListed(t *testing.T) {
	known := differences{{file: "a.txt", request: "GET /x", lines: []string{"-one", "+two"}}}
	if left := known.explain("a.txt", "GET /x", "200\none\n", "200\ntwo\n"); left != "" || !known[0].used {
		t.Errorf("a listed difference is told: %q", left)
	}
	for _, c := range []struct{ file, request, want, got, left string }{
		{"a.txt", "GET /x", "200\none\n", "200\nthree\n", "-one\n+three\n"},
		{"a.txt", "GET /y", "200\none\n", "200\ntwo\n", "-one\n+two\n"},
		{"b.txt", "GET /x", "200\none\n", "200\ntwo\n", "-one\n+two\n"},
		{"a.txt", "GET /x", "200\none\n", "500\ntwo\n", "-200\n+500\n"},
	} {
		if left := known.explain(c.file, c.request, c.want, c.got); left != c.left {
			t.Error(cmp.Diff(c.left, left))
		}
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}
