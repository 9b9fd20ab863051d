package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/watch"
)

// unitsWatched is a hub of which readers watch one part each of a key that names as many
// units: each value is JSON of about 60 KiB.
type unitsWatched struct {
	hub     *watch.Hub
	readers []*watch.Reader
	last    *kv.Entry
	units   int
}

var unitsKey = kv.Key{Namespace: "n", Name: "app"}

func watchUnits(tb testing.TB, units, watched int) *unitsWatched {
	tb.Helper()
	u := &unitsWatched{hub: watch.New(watch.Config{Manual: true, Differences: newDifferences()}, 0), units: units}
	tb.Cleanup(u.hub.Close)
	for i := range watched {
		t := FamilyTopic(kv.Number, kv.TopicOf(unitsKey))
		s, err := Changing(watch.Exact(t), t.Kind, []string{fmt.Sprint("value/units/", i)})
		if err != nil {
			tb.Fatal(err)
		}
		r, err := u.hub.Subscribe(0, func() {}, s)
		if err != nil {
			tb.Fatal(err)
		}
		u.readers = append(u.readers, r)
	}
	u.last = u.entry(0)
	return u
}

// entry is the key's at an index, which changes unit 0.
func (u *unitsWatched) entry(i incumbent.Index) *kv.Entry {
	const bytes = 60 << 10
	var b strings.Builder
	fmt.Fprintf(&b, `{"units":["unit %d"`, i)
	for range u.units - 1 {
		fmt.Fprintf(&b, ",%q", strings.Repeat("x", bytes/u.units-3))
	}
	b.WriteString("]}")
	return &kv.Entry{Key: unitsKey, Value: []byte(b.String()), Modified: i}
}

// change is the event of the next put.
func (u *unitsWatched) change() *watch.Event {
	i := u.last.Modified + 1
	next := u.entry(i)
	c := core.Change{Index: i, Family: &core.FamilyChange{
		Family: kv.Number, Topic: kv.TopicOf(unitsKey), Before: u.last, After: next, Size: len(u.last.Value) + len(next.Value),
	}}
	u.last = next
	return eventsOf([]core.Change{c})[0]
}

func (u *unitsWatched) publish(e *watch.Event) {
	u.hub.Publish(e.Index, []*watch.Event{e})
	u.hub.Turn()
}

// A change of a value of which a thousand parts are watched is decoded no more often than
// one of a value of which one is: that takes two allocations for each unit, and those for
// looking at a thousand more are far fewer than for decoding them once more.
func TestPartsOfAChangeAreDecodedOnce(t *testing.T) {
	const units = 1000
	allocated := func(watched int) float64 {
		u := watchUnits(t, units, watched)
		u.publish(u.change())
		e := make(chan *watch.Event, 16)
		for range cap(e) {
			e <- u.change()
		}
		n := testing.AllocsPerRun(cap(e)-1, func() { u.publish(<-e) })
		for i, r := range u.readers {
			b, err := r.Pull(nil, 1, 1)
			if told := len(b.Events) > 0; err != nil || told != (i == 0) {
				t.Fatalf("who watches unit %d: %v, %v", i, b.Events, err)
			}
		}
		return n
	}
	one, all := allocated(1), allocated(units)
	if one < 2*units {
		t.Fatalf("%v allocations: it was not decoded", one)
	}
	if all > one+units {
		t.Errorf("%v allocations where all units are watched, %v where one is", all, one)
	}
}

// BenchmarkPublishParts publishes changes of a value of 60 KiB of which each reader
// watches a part of its own.
func BenchmarkPublishParts(b *testing.B) {
	for _, readers := range []int{1, 100, 5000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			u := watchUnits(b, 5000, readers)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				e := u.change()
				b.StartTimer()
				u.publish(e)
			}
		})
	}
}
