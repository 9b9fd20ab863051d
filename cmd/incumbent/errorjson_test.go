package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
)

func TestObjectOf(t *testing.T) {
	full := &incumbent.Error{Kind: incumbent.Overloaded, Message: "too many claims", Hint: "raise x", RetryAfter: 250 * time.Millisecond, Member: "n1", Leader: "n2"}
	const path = "incumbent lease get"
	for _, c := range []struct {
		err  error
		want errorObject
	}{
		{full, errorObject{"overloaded", 5, "too many claims", "raise x", true, 250, "n1", "n2"}},
		{fmt.Errorf("f.yaml: %w", incumbent.Errorf(incumbent.Invalid, "no")), errorObject{Kind: "invalid", ExitCode: 2, Message: "f.yaml: invalid: no", Hint: helpFor(path)}},
		{incumbent.Errorf(incumbent.Invalid, "no").WithHint("so"), errorObject{Kind: "invalid", ExitCode: 2, Message: "no", Hint: "so"}},
		{usageError{"what?"}, errorObject{Kind: "invalid", ExitCode: 2, Message: "what?", Hint: helpFor(path)}},
		{statusError{99, "a threshold failed"}, errorObject{ExitCode: 99, Message: "a threshold failed"}},
		{context.DeadlineExceeded, errorObject{Kind: "deadline_exceeded", ExitCode: 4, Message: "context deadline exceeded"}},
		{context.Canceled, errorObject{ExitCode: 1, Message: "interrupted"}},
		{incumbent.Errorf(incumbent.Unknown, "no answer: %w", context.Canceled).WithHint("look"), errorObject{Kind: "unknown", ExitCode: 1, Message: "no answer: context canceled", Hint: "look"}},
		{errors.New("disk"), errorObject{ExitCode: 1, Message: "disk"}},
	} {
		if d := cmp.Diff(c.want, objectOf(c.err, path)); d != "" {
			t.Errorf("%v: %s", c.err, d)
		}
	}
	for _, k := range incumbent.Kinds() {
		if o := objectOf(incumbent.Errorf(k, "x"), path); o.Kind != k.String() || o.ExitCode != exitByKind[k] {
			t.Errorf("%v: %+v", k, o)
		}
	}
}

// Who interrupts a change that is under way is told that it may have happened.
func TestG25_AnInterruptedChangeIsUnknown(t *testing.T) {
	at, err := url.Parse(openServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	member := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}
	between := memberOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/Put") && !strings.HasSuffix(r.URL.Path, "/Claim") {
			member.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // only then its end is noticed
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	}))
	for _, form := range []string{formTable, formJSON} {
		for _, args := range []string{"kv put a b", "lease claim a --holder me"} {
			got := soon(t, append(strings.Fields(args), "--server", between, "--timeout", "0s", "-o", form)...)
			if got.code != exitOther || !strings.Contains(got.stderr, "may or may not have taken effect") || !strings.Contains(got.stderr, "unknown") {
				t.Errorf("%s: exit code %d, %s", args, got.code, got.stderr)
			}
		}
	}
}

// Whoever asks for JSON gets errors as JSON too, wherever the mistake is, on standard
// error and with the same exit code.
func TestErrorsInTheFormOfTheOutput(t *testing.T) {
	server := openServer(t).URL()
	for _, c := range []struct {
		args string
		vars map[string]string
		code int
		kind string
	}{
		{"lease get nobody -o json", nil, 3, "not_found"},
		{"lease get nobody --output=jsonl", nil, 3, "not_found"},
		{"lease get nobody", map[string]string{"INCUMBENT_OUTPUT": "json"}, 3, "not_found"},
		{"lease claim a --holdr me -o json", nil, 2, "invalid"},
		{"lease claim a -ojson --ttl 0", nil, 2, "invalid"},
		{"lease claim a --ttl soon -o jsonl", nil, 2, "invalid"},
		{"lease claim -o=json", nil, 2, "invalid"},
		{"lease claim x x -o json", nil, 2, "invalid"},
		{"bench report /does/not/exist -o json", nil, 2, "invalid"},
	} {
		vars := map[string]string{"INCUMBENT_SERVER": server}
		for k, v := range c.vars {
			vars[k] = v
		}
		got := execute(t, vars, strings.Fields(c.args)...)
		var o errorObject
		if err := json.Unmarshal([]byte(got.stderr), &o); err != nil {
			t.Errorf("%s: %v: %s", c.args, err, got.stderr)
			continue
		}
		if got.code != c.code || o.ExitCode != c.code || o.Kind != c.kind || o.Message == "" || got.stdout != "" {
			t.Errorf("%s: exit code %d, %s%s", c.args, got.code, got.stdout, got.stderr)
		}
	}
	for _, args := range []string{"lease get nobody", "lease get nobody -o yaml", "run a -- incumbent -o json", "run a --ttl 0 -- x -o json"} {
		if got := execute(t, map[string]string{"INCUMBENT_SERVER": server}, strings.Fields(args)...); !strings.HasPrefix(got.stderr, "incumbent: ") {
			t.Errorf("%s: %s", args, got.stderr)
		}
	}
}
