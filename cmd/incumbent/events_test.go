package main

import (
	"slices"
	"testing"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Timelines of several members come out as one, by time; what comes later comes as
// it comes.
func TestMerger(t *testing.T) {
	var got []string
	m := merger{print: func(events []*apiv1.Event) error {
		for _, e := range events {
			got = append(got, e.Member+" "+e.What)
		}
		return nil
	}}
	say := func(member string, at int64, what ...string) {
		t.Helper()
		for _, w := range what {
			if err := m.take([]*apiv1.Event{{Member: member, AtUnixMs: at, What: w}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	say("n2", 20, "b", "a")
	say("n1", 20, "c")
	say("n1", 30, "d")
	say("n2", 10, "e")
	m.inOrder()
	say("n3", 5, "late")
	m.inOrder()
	if want := []string{"n2 e", "n1 c", "n2 b", "n2 a", "n1 d", "n3 late"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Of a member that is asked again, only what was not told is: also where several
// happened at once, and what its clock says is earlier than what it said before.
func TestTail(t *testing.T) {
	at := func(ms int64, what string) *apiv1.Event { return &apiv1.Event{AtUnixMs: ms, What: what} }
	var told tail
	if told.has(at(1, "a")) {
		t.Error("has what was never told")
	}
	told.add([]*apiv1.Event{at(1, "a"), at(2, "b"), at(2, "c")})
	for _, e := range []*apiv1.Event{at(1, "a"), at(2, "b"), at(2, "c")} {
		if !told.has(e) {
			t.Errorf("%v would be told twice", e)
		}
	}
	for _, e := range []*apiv1.Event{at(2, "d"), at(3, "a")} {
		if told.has(e) {
			t.Errorf("%v would not be told", e)
		}
	}
	told.add([]*apiv1.Event{at(1, "e")})
	if told.has(at(2, "f")) {
		t.Error("what happens after a clock was set back is not told")
	}
}
