// Package again tests the script that runs go test for CI: what it forgives and
// what it never forgives.
package again

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// once fails the first time it is called with a file that does not exist yet.
const once = `
func once(t *testing.T, marker string) {
	if _, err := os.Stat(marker); err != nil {
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Error("the first time")
	}
}
`

func TestScript(t *testing.T) {
	for _, c := range []struct {
		name, tests string
		passes      bool
		says        []string // what the output holds
		never       []string // what it does not
	}{
		{name: "all pass", passes: true, says: []string{"ok "}, never: []string{"FLAKY"}, tests: `
func TestFine(t *testing.T) {}
`},
		{name: "one fails once", passes: true, says: []string{"FLAKY TestA", "passed 3 times", "the first time"}, never: []string{"\n--- FAIL"}, tests: `
func TestA(t *testing.T) { once(t, "a") }
func TestFine(t *testing.T) {}
`},
		{name: "a part of one fails once", passes: true, says: []string{"FLAKY TestA"}, tests: `
func TestA(t *testing.T) { t.Run("part", func(t *testing.T) { once(t, "a") }) }
`},
		{name: "always", says: []string{"TestA of", "failed again", "\n--- FAIL: TestA"}, never: []string{"FLAKY"}, tests: `
func TestA(t *testing.T) { t.Error("each time") }
`},
		{name: "one of two always", says: []string{"TestB of", "failed again"}, tests: `
func TestA(t *testing.T) { once(t, "a") }
func TestB(t *testing.T) { t.Error("each time") }
`},
		{name: "too many", says: []string{"3 failures: not run again"}, tests: `
func TestA(t *testing.T) { once(t, "a") }
func TestB(t *testing.T) { once(t, "b") }
func TestC(t *testing.T) { once(t, "c") }
`},
		{name: "a panic", says: []string{"not run again"}, tests: `
func TestA(t *testing.T) {
	if _, err := os.Stat("a"); err != nil {
		once(t, "a")
		panic("the first time")
	}
}
`},
		{name: "does not build", says: []string{"not run again"}, tests: `
func TestA(t *testing.T) { undefined() }
`},
		{name: "ends the process", says: []string{"not run again"}, tests: `
func TestA(t *testing.T) { os.Exit(1) }
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := module(t, "package tried\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Stat\n"+once+c.tests)
			out, err := run(t, dir)
			if passed := err == nil; passed != c.passes {
				t.Errorf("passed %v (%v), want %v", passed, err, c.passes)
			}
			for _, s := range c.says {
				if !strings.Contains(out, s) {
					t.Errorf("it does not say %q", s)
				}
			}
			for _, s := range c.never {
				if strings.Contains("\n"+out, s) {
					t.Errorf("it says %q", s)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// module returns a folder with a module of one package, which holds these tests.
func module(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module tried\n\ngo 1.26\n", "tried_test.go": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, dir string) (string, error) {
	t.Helper()
	script, err := filepath.Abs("again.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script, "-count=1", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AGAIN_COUNT=3", "AGAIN_MOST=2", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
