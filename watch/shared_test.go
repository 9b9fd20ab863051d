package watch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// Topics that events share cost once, in bytes and in nodes, wherever those events stand;
// whoever listens to one of them is told of all the events, also who comes later.
func TestG15_G16_SharedTopicsCostOnce(t *testing.T) {
	const topics, events, each = 1000, 100, 512 // bytes of an event
	var list []Topic
	for i := range topics {
		list = append(list, topic(fmt.Sprint("shared", i)))
	}
	batch := func(shared, other *Shared, events int) (batch []*Event) {
		for i := range events {
			index := incumbent.Index(i + 1)
			batch = append(batch,
				&Event{Index: index, Topics: []Topic{topic(fmt.Sprint("own", i))}, Shared: shared, Payload: i},
				&Event{Index: index, Topics: []Topic{topic("shared7")}, Payload: i},
				&Event{Index: index, Topics: []Topic{topic("other")}, Shared: other, Payload: i},
			)
		}
		return batch
	}
	published := func(events int) *Hub {
		h := New(Config{Manual: true, Limits: Limits{HistoryBytes: 1 << 30}}, 0)
		t.Cleanup(h.Close)
		h.Publish(incumbent.Index(events), batch(NewShared(slices.Clone(list), 0), NewShared(slices.Clone(list), 0), events))
		return h
	}
	one, h := published(1), published(events)
	if cost := one.Stats().HistoryBytes; h.Stats().HistoryBytes > cost+3*each*events || cost > topics*2*64+3*each {
		t.Errorf("%d events of %d topics cost %d bytes, one %d", 3*events, topics, h.Stats().HistoryBytes, cost)
	}
	if h.reg.count > events+10 {
		t.Errorf("%d nodes", h.reg.count)
	}
	for name, want := range map[string]int{"shared6": 2, "shared7": 3, "none": 0, "other": 1} {
		for _, from := range []incumbent.Index{0, events / 2, events} {
			r, err := h.Subscribe(from, func() {}, Exact(topic(name)))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := r.Pull(nil, 10*events, anySize); err != nil || len(b.Events) != want*(events-int(from)) {
				t.Errorf("who watches %s from %d on is told of %d events, %v", name, from, len(b.Events), err)
			}
			defer r.Close()
		}
	}
}

// A topic's own chain has the events that share it since somebody listens; who resumes from
// before them, or after all had left, misses none.
func TestG16_ResumingAcrossSharedTopics(t *testing.T) {
	h := New(Config{Manual: true}, 0)
	defer h.Close()
	index := incumbent.Index(0)
	publish := func(shared bool) {
		index++
		e := event(index, "db")
		if shared {
			e.Topics, e.Shared = []Topic{topic("own")}, NewShared([]Topic{topic("db"), topic("x")}, 0)
		}
		h.Publish(index, []*Event{e})
		h.Turn()
	}
	told := func(r *Reader) (n int) {
		b, err := r.Pull(nil, 100, anySize)
		if err != nil || b.Progress != index {
			t.Fatalf("progress is %d at %d, %v", b.Progress, index, err)
		}
		return len(b.Events)
	}
	woken := 0
	subscribe := func(from incumbent.Index) *Reader {
		r, err := h.Subscribe(from, func() { woken++ }, Exact(topic("db")))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	publish(false)
	publish(true)
	early := subscribe(0)
	if n := told(early); n != 2 {
		t.Errorf("told of %d events of 2", n)
	}
	now := subscribe(index)
	told(now)
	publish(true)
	publish(false)
	if woken != 2 {
		t.Errorf("%d were woken of 2", woken)
	}
	if n, k := told(early), told(now); n != 2 || k != 2 {
		t.Errorf("told of %d and %d events of 2", n, k)
	}
	early.Close()
	now.Close()
	publish(true)
	publish(false)
	for from, want := range []int{6, 5, 4, 3, 2, 1, 0} {
		r := subscribe(incumbent.Index(from))
		if n := told(r); n != want {
			t.Errorf("from %d: told of %d events of %d", from, n, want)
		}
		defer r.Close()
	}
	fired := 0
	if _, err := h.Wait(Exact(topic("x")), 4, nil, func(f Fired) { fired = int(f.Index) }); err != nil {
		t.Fatal(err)
	}
	if h.Turn(); fired != 5 {
		t.Errorf("a wait for what index 5 changed ended with %d", fired)
	}
}
