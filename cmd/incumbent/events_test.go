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
