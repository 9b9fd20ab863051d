package main

import (
	"strconv"
	"strings"
	"testing"
)

// Who has a credential and names no holder claims for itself: the server would refuse
// an agent anybody else.
func TestDefaultHolderIsThePrincipal(t *testing.T) {
	_, own := openWithCredential(t, "unit-1", "agent")
	for _, c := range []struct{ args, want string }{
		{"lease claim a -o json", `"holder": "unit-1"`},
		{"lease claim b --holder unit-1/part -o json", `"holder": "unit-1/part"`},
		{"run c -- printenv INCUMBENT_HOLDER", "unit-1\n"},
		{"run d --holder unit-1/part -- printenv INCUMBENT_HOLDER", "unit-1/part\n"},
	} {
		got := execute(t, nil, withFlags(c.args, own)...)
		if got.code != exitOK || !strings.Contains(got.stdout, c.want) {
			t.Errorf("%s: exit code %d, %s%s", c.args, got.code, got.stdout, got.stderr)
		}
	}
	if got := execute(t, nil, append([]string{"lease", "claim", "e", "--holder", "unit-2"}, own...)...); got.code != exitDenied {
		t.Errorf("as another: exit code %d, %s", got.code, got.stderr)
	}
}

// Whatever code a command ends with, run ends with it.
func TestRunPassesEveryExitCodeOn(t *testing.T) {
	url := openServer(t).URL()
	for code := range 8 {
		got := execute(t, nil, "run", "a", "--server", url, "--", "/bin/sh", "-c", "exit "+strconv.Itoa(code))
		if got.code != code || got.stderr != "" {
			t.Errorf("the command ended with %d: exit code %d, %s", code, got.code, got.stderr)
		}
	}
}

// withFlags puts flags in front of a command to run, if there is one.
func withFlags(line string, flags []string) []string {
	before, command, runs := strings.Cut(line, " -- ")
	args := append(strings.Fields(before), flags...)
	if runs {
		args = append(append(args, "--"), strings.Fields(command)...)
	}
	return args
}

// Help and man pages are the same on every machine.
func TestHelpNamesNoMachine(t *testing.T) {
	for _, args := range []string{"run --help", "lease claim --help", "lease revoke --help"} {
		if got := execute(t, nil, strings.Fields(args)...); strings.Contains(got.stdout, processName()) {
			t.Errorf("%s names this process: %s", args, got.stdout)
		}
	}
}
