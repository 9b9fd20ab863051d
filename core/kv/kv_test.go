package kv

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// smallFamily is the family with limits that a test can reach.
type smallFamily struct {
	Family
	limits limits
	terms  core.Terms
	tables *tables // the newest
}

// governed are tables that have settings of their own.
type governed struct {
	*tables
	terms *core.Terms
}

func (g governed) Terms() *core.Terms { return g.terms }

// New implements core.Family.
func (f *smallFamily) New() core.Tables {
	f.tables = newTables()
	f.tables.limits = f.limits
	return governed{f.tables, &f.terms}
}

func ample() *smallFamily { return &smallFamily{limits: newTables().limits} }

// fatal is what testing and rapid have in common.
type fatal interface{ Fatalf(string, ...any) }

// reload returns the state as a snapshot of it gives it, which must be the same.
func reload(t fatal, s *core.State, f core.Family) *core.State {
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatalf("writing a snapshot: %v", err)
	}
	n, err := core.Restore(&b, leases.Family{}, f)
	if err != nil {
		t.Fatalf("restoring a snapshot: %v", err)
	}
	if n.View().Hash() != s.View().Hash() {
		t.Fatalf("the restored state has another hash")
	}
	return n
}

// apply executes commands as one batch.
func apply(t fatal, s *core.State, cmds ...core.Command) ([]core.Result, []core.Change) {
	encoded := make([][]byte, len(cmds))
	for i, c := range cmds {
		encoded[i] = c.Encode(core.Meta{})
	}
	results := make([]core.Result, len(cmds))
	changes := s.Apply(encoded, results)
	for _, b := range encoded { // nothing of the log may stay in the tables
		for i := range b {
			b[i] = 0xff
		}
	}
	if err := s.Check(); err != nil {
		t.Fatalf("broken invariant: %v", err)
	}
	return results, changes
}

// do executes one command, which must succeed.
func do(t testing.TB, s *core.State, c core.Command) core.Result {
	t.Helper()
	results := make([]core.Result, 1)
	s.Apply([][]byte{c.Encode(core.Meta{})}, results)
	if results[0].Err != nil {
		t.Fatalf("%+v: %v", c, results[0].Err)
	}
	return results[0]
}

func key(name string) Key { return Key{Namespace: "n", Name: name} }

func session(s string) (id incumbent.SessionID) {
	copy(id[:], s)
	return id
}

func sessionText(id incumbent.SessionID) string { return strings.TrimRight(string(id[:]), "\x00") }

// listIndex is that of a list of a prefix.
func listIndex(v *View, prefix Key) incumbent.Index {
	at := v.Deleted(prefix, func(Key) bool { return true }, func() bool { return true })
	v.Ascend(prefix, Key{}, func(e *Entry) bool {
		at = max(at, e.Modified)
		return true
	})
	return at
}

// What counts against a quota is what entries cost, not their texts alone: a
// million empty ones are no small thing.
func TestBytesCountWhatAnEntryCosts(t *testing.T) {
	s := core.New(leases.Family{}, Family{})
	grown := int64(0)
	for _, c := range []Command{
		{Verb: Put, Key: key("a")},
		{Verb: Put, Key: key("b"), Value: []byte("value")},
		{Verb: Put, Key: key("b"), Value: []byte("v")},
	} {
		grown += c.Growth(Of(s.View()).Entry(c.Key))
		do(t, s, c)
	}
	want := int64(2*len("na") + len("v") + 2*EntryBytes)
	if got := Of(s.View()).Bytes(); got != want || grown != want {
		t.Errorf("%d bytes, by %d, want %d", got, grown, want)
	}
	do(t, s, Command{Verb: RemoveTree, Key: key("")})
	if got := Of(s.View()).Bytes(); got != 0 {
		t.Errorf("%d bytes of nothing", got)
	}
}

// Whoever asks for deletions below a prefix can stop looking.
func TestDeletedStopsWhenItIsToldTo(t *testing.T) {
	s := core.New(leases.Family{}, Family{})
	for i := range 10 {
		do(t, s, Command{Verb: Put, Key: key(fmt.Sprint("a", i))})
	}
	do(t, s, Command{Verb: RemoveTree, Key: key("a")})
	looked := 0
	Of(s.View()).Deleted(key("a"), func(Key) bool { return true }, func() bool { looked++; return looked < 3 })
	if looked != 3 {
		t.Errorf("it looked %d times", looked)
	}
}

// Whether something was deleted after an index is found out by no more looks than are
// allowed, at deletions after it alone; with fewer it may have been.
func TestDeletedAfterLooksAtAFew(t *testing.T) {
	s := core.New(leases.Family{}, Family{})
	for _, name := range []string{"a", "b0", "b1", "b2", "c"} {
		do(t, s, Command{Verb: Put, Key: key(name)})
	}
	first := do(t, s, Command{Verb: Remove, Key: key("a")}).Index
	others := do(t, s, Command{Verb: RemoveTree, Key: key("b")}).Index
	last := do(t, s, Command{Verb: Remove, Key: key("c")}).Index
	for _, tt := range []struct {
		prefix string
		after  incumbent.Index
		most   int
		want   bool
	}{
		{"a", first - 1, 1, true},
		{"a", first, 4, false},
		{"b", first, 1, true},
		{"b", others, 1, false},
		{"c", first, 4, true},
		{"d", first, 4, false},
		{"d", first, 3, true}, // it may have been the fourth
		{"", others, 1, true},
		{"", last, 1, false},
	} {
		if got := Of(s.View()).DeletedAfter(key(tt.prefix), tt.after, tt.most); got != tt.want {
			t.Errorf("below %q after %d, by %d looks: %v", tt.prefix, tt.after, tt.most, got)
		}
	}
	if Of(s.View()).DeletedAfter(Key{Namespace: "m"}, first-1, 5) {
		t.Error("in another namespace")
	}
}
