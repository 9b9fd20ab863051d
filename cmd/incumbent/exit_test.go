package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func TestExitCodes(t *testing.T) {
	want := map[incumbent.Kind]int{
		incumbent.Invalid: 2, incumbent.NotFound: 3, incumbent.Exists: 6, incumbent.Held: 3, incumbent.NotHolder: 3, incumbent.Expired: 6,
		incumbent.Conflict: 6, incumbent.Denied: 7, incumbent.TooLarge: 2, incumbent.Overloaded: 5, incumbent.DeadlineExceeded: 4,
		incumbent.NotLeader: 5, incumbent.Unavailable: 5, incumbent.Unknown: 1, incumbent.Compacted: 6, incumbent.Corrupt: 1, incumbent.Internal: 1,
	}
	for _, k := range incumbent.Kinds() {
		code, ok := want[k]
		if !ok {
			t.Errorf("kind %v has no exit code here", k)
		}
		if _, ok := exitByKind[k]; !ok {
			t.Errorf("kind %v has no exit code", k)
		}
		if got := exitCode(fmt.Errorf("wrapped: %w", incumbent.Errorf(k, "message"))); got != code {
			t.Errorf("kind %v: exit code %d, want %d", k, got, code)
		}
		if k.Transient() != (code == exitUnavailable) {
			t.Errorf("kind %v: exit code 5 says that trying again may help, and only it", k)
		}
	}
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{usageError{"x"}, 2},
		{statusError{99, "x"}, 99},
		{context.DeadlineExceeded, 4},
		{errors.New("anything"), 1},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
	}
}

// The page of the native API shows the exit code of each kind.
func TestThePageShowsExitCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocols/native.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range incumbent.Kinds() {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%v` \\| `[a-z_]+` \\([0-9]+\\) \\| [0-9]+ \\| %d \\|", k, exitByKind[k]))
		if !row.Match(page) {
			t.Errorf("the page does not say that %v is exit code %d", k, exitByKind[k])
		}
	}
}

func TestErrorText(t *testing.T) {
	full := &incumbent.Error{Kind: incumbent.Overloaded, Message: "too many claims", Hint: "raise x", RetryAfter: 250 * time.Millisecond, Member: "n1", Leader: "n2"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{full, "overloaded: too many claims\n  retry: after 250ms\n  answered by: n1\n  leader: n2\n  hint: raise x"},
		{fmt.Errorf("f.yaml: %w", incumbent.Errorf(incumbent.Invalid, "no")), "f.yaml: invalid: no"},
		{incumbent.Errorf(incumbent.NotLeader, "not here"), "not_leader: not here\n  retry: yes"},
		{incumbent.Errorf(incumbent.Unknown, "cut off"), "unknown: cut off\n  retry: look first, it may have happened"},
		{&incumbent.Error{Kind: incumbent.Held, Message: "another", Member: "n1", Leader: "n1"}, "held: another\n  answered by: n1 (leader)"},
		{context.Canceled, "interrupted"},
		{fmt.Errorf("put: %w", context.Canceled), "interrupted"},
		{incumbent.Errorf(incumbent.Unavailable, "no answer: %w", context.Canceled), "interrupted"},
		{incumbent.Errorf(incumbent.Unknown, "no answer: %w", context.Canceled), "unknown: no answer: context canceled\n  retry: look first, it may have happened"},
		{statusError{7, ""}, ""},
	} {
		if got := errorText(c.err); got != c.want {
			t.Errorf("%v:\ngot  %q\nwant %q", c.err, got, c.want)
		}
	}
}

func TestOutOfTimeNamesTheSetting(t *testing.T) {
	for _, err := range []error{context.DeadlineExceeded, incumbent.Errorf(incumbent.DeadlineExceeded, "context deadline exceeded")} {
		got := errorText(outOfTime(err, 3*time.Second))
		if strings.Contains(got, "context deadline") || !strings.Contains(got, "no answer within 3s") || !strings.Contains(got, "--timeout") {
			t.Errorf("%v became %q", err, got)
		}
	}
	// What a server says itself stays, and so does everything else.
	for _, err := range []error{
		&incumbent.Error{Kind: incumbent.DeadlineExceeded, Message: "waited in the queue", Member: "n1"},
		incumbent.Errorf(incumbent.Held, "another"), errors.New("x"),
	} {
		if got := outOfTime(err, time.Second); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	if outOfTime(nil, time.Second) != nil {
		t.Error("nil became an error")
	}
}
