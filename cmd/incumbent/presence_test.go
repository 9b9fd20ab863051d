package main

import (
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/client"
)

func TestPresenceFromTheCommandLine(t *testing.T) {
	s := openServer(t)
	c, err := client.New(client.Config{Servers: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Txn("").Expect("unit/0").Expect("unit/1").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	session, err := c.Open(t.Context(), client.SessionConfig{TTL: time.Hour, Presence: client.Presence{Name: "unit/0"}})
	if err != nil {
		t.Fatal(err)
	}
	for change, err := range c.KV("").WatchPresent(t.Context(), "unit/0", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if change.State == client.Alive {
			break
		}
	}
	id := session.ID().String()
	for _, step := range []struct {
		args []string
		code int
		out  string // lines that begin so
		err  string
	}{
		{args: []string{"ls"}, out: "NAME    STATE     SINCE  SESSION\nunit/0  alive     4      " + id + "\nunit/1  expected  2      -\n"},
		{args: []string{"ls", "unit/1", "-o", "jsonl"}, out: `{"name":"unit/1","state":"expected","session":"","since":"2","info":""}` + "\n"},
		{args: []string{"ls", "--state", "alive", "-o", "json"}, out: "[\n  {\n    \"name\": \"unit/0\",\n    \"state\": \"alive\",\n"},
		{args: []string{"ls", "--state", "down"}, out: "NAME  STATE  SINCE  SESSION\n"},
		{args: []string{"ls", "--state", "dead"}, code: exitUsage, err: "none of alive"},
		{args: []string{"watch", "--namespace", "not a namespace"}, code: exitUsage, err: "namespace"},
	} {
		got := execute(t, nil, append([]string{"presence", step.args[0], "--server", s.URL()}, step.args[1:]...)...)
		if got.code != step.code || !strings.HasPrefix(got.stdout, step.out) || !strings.Contains(got.stderr, step.err) {
			t.Errorf("%q: code %d, output %q, error %q", step.args, got.code, got.stdout, got.stderr)
		}
	}
	if err := session.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	change := client.PresenceChange{Index: 7, Was: client.Down, Present: client.Present{Name: "unit/0", State: client.Down}, Gone: true}
	if err := printPresenceChange(&out, formTable, change); err != nil || out.String() != "       7  down      gone      unit/0\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	for _, change := range []client.PresenceChange{
		{Index: 8, First: true},
		{Index: 9, First: true, Present: client.Present{Name: "unit/1", State: client.Alive}},
	} {
		if err := printPresenceChange(&out, formTable, change); err != nil {
			t.Fatal(err)
		}
	}
	if want := "       8  nobody is there\nthose who are there:\n       9  -         alive     unit/1\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if got := execute(t, nil, "presence", "ls", "--server", s.URL()); !strings.Contains(got.stdout, "unit/0  left") {
		t.Errorf("after a good-bye: %q", got.stdout)
	}
}
