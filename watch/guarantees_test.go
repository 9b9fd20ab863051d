package watch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/incumbent-dev/incumbent"
)

const anySize = math.MaxInt // of what one pull gives

func topic(name string) Topic { return Topic{1, [2]string{"ns", "m"}, name} }

func event(i incumbent.Index, name string) *Event {
	return &Event{Index: i, Topics: []Topic{topic(name)}, Payload: name}
}

// TestG10_NoReleaseIsMissedBetweenCheckAndBlock has callers look at a state
// and wait for its next change, while the changes come as fast as they can.
func TestG10_NoReleaseIsMissedBetweenCheckAndBlock(t *testing.T) {
	h := New(Config{}, 0)
	defer h.Close()
	const changes, callers = 2000, 8
	var callersDone sync.WaitGroup
	for range callers {
		callersDone.Go(func() {
			for {
				index := h.Index()
				if index == changes {
					return
				}
				fired := make(chan Fired, 1)
				if _, err := h.Wait(Exact(topic("db")), index, nil, func(f Fired) { fired <- f }); err != nil {
					t.Error(err)
					return
				}
				if f := <-fired; f.Err != nil {
					t.Error(f.Err)
					return
				}
			}
		})
	}
	for i := range incumbent.Index(changes) {
		h.Publish(i+1, []*Event{event(i+1, "db")})
	}
	callersDone.Wait() // a missed change would leave a caller here for ever
}

// TestG10_EveryBlockedCallerWakesOnceAtItsRelease blocks 2,000 callers.
func TestG10_EveryBlockedCallerWakesOnceAtItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, 0)
		defer h.Close()
		var fired atomic.Int64
		for range 2000 {
			_, err := h.Wait(Exact(topic("db")), 0, nil, func(f Fired) {
				if f.Index == 2 {
					fired.Add(1)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		h.Publish(1, []*Event{event(1, "web")})
		synctest.Wait()
		if n := fired.Load(); n != 0 {
			t.Fatalf("%d woke for another lease", n)
		}
		h.Publish(2, []*Event{event(2, "db")})
		h.Publish(3, []*Event{event(3, "db")})
		synctest.Wait()
		if n := fired.Load(); n != 2000 {
			t.Errorf("%d of 2,000 fired", n)
		}
		if s := h.Stats(); s.Waiters != 0 || s.Listeners != 0 || s.Wakes != 2000 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestG14_AnIndexFromTheFutureWaits asks a lagging hub for what it has not
// applied.
func TestG14_AnIndexFromTheFutureWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, 5)
		defer h.Close()
		var at atomic.Uint64
		if _, err := h.await(9, func(Fired) { at.Store(uint64(h.Index())) }); err != nil {
			t.Fatal(err)
		}
		h.Publish(8, nil)
		synctest.Wait()
		if i := at.Load(); i != 0 {
			t.Fatalf("fired at index %d", i)
		}
		h.Publish(9, nil)
		synctest.Wait()
		if i := at.Load(); i != 9 {
			t.Errorf("fired at index %d", i)
		}
	})
}

// TestG15_ConcurrentReadersSeeEveryEventOnce has readers follow by wake-ups
// alone while events are published; a lost wake-up would leave one waiting.
func TestG15_ConcurrentReadersSeeEveryEventOnce(t *testing.T) {
	h := New(Config{Limits: Limits{HistoryBytes: 1 << 30}}, 0)
	defer h.Close()
	const last = 3000
	sels := []Selector{Exact(topic("db0")), Prefix(1, [2]string{"ns", "m"}, "db"), Scope(1, [2]string{"ns", "m"}), All(1)}
	want := []int{last / 2, last, last, last}
	var done sync.WaitGroup
	for i := range 16 {
		done.Go(func() {
			wake := make(chan struct{}, 1)
			r, err := h.Subscribe(0, func() { wake <- struct{}{} }, sels[i%4])
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			var seen incumbent.Index
			n := 0
			for {
				b, err := r.Pull(nil, 7, anySize)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range b.Events {
					if n++; e.Index <= seen {
						t.Errorf("%d after %d", e.Index, seen)
					}
					seen = e.Index
				}
				if n == want[i%4] {
					return
				}
				if !b.More {
					<-wake
				}
			}
		})
	}
	for i := 1; i <= last; i++ {
		h.Publish(incumbent.Index(i), []*Event{event(incumbent.Index(i), fmt.Sprint("db", i%2))})
	}
	done.Wait()
}

// TestG18_ASlowReaderIsCutOffAndNobodyNotices lets one reader sleep while
// history moves on many times.
func TestG18_ASlowReaderIsCutOffAndNobodyNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100_000
		h := New(Config{Limits: Limits{HistoryBytes: limit}}, 0)
		defer h.Close()
		slow, _ := h.Subscribe(0, func() {}, Exact(topic("db")))
		quick, _ := h.Subscribe(0, func() {}, Exact(topic("db")))
		for i := incumbent.Index(1); i <= 10_000; i++ {
			h.Publish(i, []*Event{event(i, "db")})
			if b, err := quick.Pull(nil, 10, anySize); err != nil || len(b.Events) != 1 || b.Progress != i {
				t.Fatalf("at %d the quick reader got %v, %v", i, b, err)
			}
			if n := h.Stats().HistoryBytes; n > limit {
				t.Fatalf("history costs %d", n)
			}
		}
		_, err := slow.Pull(nil, 10, anySize)
		var gone *CompactedError
		if incumbent.KindOf(err) != incumbent.Compacted || !errors.As(err, &gone) {
			t.Fatalf("the slow reader got %v", err)
		}
		if gone.Delivered != 0 || gone.Floor != h.Stats().Floor {
			t.Errorf("got %+v, history begins after %d", gone, h.Stats().Floor)
		}
		resumed, err := h.Subscribe(gone.Floor, func() {}, Exact(topic("db")))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := resumed.Pull(nil, 1, anySize); err != nil || b.Events[0].Index != gone.Floor+1 {
			t.Errorf("resumed with %v, %v", b, err)
		}
	})
}

func TestEncodingsAreMadeOnceAndCharged(t *testing.T) {
	h := New(Config{}, 0)
	defer h.Close()
	r, _ := h.Subscribe(0, func() {}, Exact(topic("db")))
	h.Publish(1, []*Event{event(1, "db")})
	b, _ := r.Pull(nil, 1, anySize)
	before := h.Stats().HistoryBytes
	var made atomic.Int64
	var done sync.WaitGroup
	for range 8 {
		done.Go(func() {
			for kind := range Encoding(3) {
				got := b.Events[0].Encode(kind, func(*Event) []byte { made.Add(1); return make([]byte, 1000) })
				if len(got) != 1000 {
					t.Errorf("got %d bytes", len(got))
				}
			}
		})
	}
	done.Wait()
	if made.Load() != 3 || h.Stats().HistoryBytes != before+3000 {
		t.Errorf("made %d times, cost %d more", made.Load(), h.Stats().HistoryBytes-before)
	}
	h.SetLimits(Limits{HistoryBytes: 1})
	h.Publish(2, []*Event{event(2, "web")})
	b.Events[0].Encode(9, func(*Event) []byte { return make([]byte, 5000) })
	if s := h.Stats(); s.Kept != 1 || s.HistoryBytes > 1000 {
		t.Errorf("a dropped event is still charged: %+v", s)
	}
}

func TestPublishRefusesBrokenOrder(t *testing.T) {
	for name, publish := range map[string]func(*Hub){
		"index back":         func(h *Hub) { h.Publish(4, nil) },
		"event back":         func(h *Hub) { h.Publish(7, []*Event{event(7, "a"), event(6, "a")}) },
		"event of an old":    func(h *Hub) { h.Publish(6, []*Event{event(5, "a")}) },
		"event of the index": func(h *Hub) { h.Publish(6, []*Event{event(7, "a")}) },
		"reset back":         func(h *Hub) { h.Reset(4) },
	} {
		t.Run(name, func(t *testing.T) {
			h := New(Config{}, 5)
			defer h.Close()
			defer func() {
				if err, _ := recover().(error); incumbent.KindOf(err) != incumbent.Internal || err == nil {
					t.Errorf("recovered %v", err)
				}
			}()
			publish(h)
		})
	}
}

func TestLimitsValidate(t *testing.T) {
	if err := (Limits{}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Limits{MaxListeners: -1}).Validate(); incumbent.KindOf(err) != incumbent.Invalid {
		t.Error(err)
	}
}

// TestG15_WhoWasWokenInAFanOutIsWokenAgainByIt publishes again while the
// fan-out of the first event is still under way: readers that it has passed
// already must hear of the second one too.
func TestG15_WhoWasWokenInAFanOutIsWokenAgainByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{}, 0)
		defer h.Close()
		const readers = 5 * wakeSlice
		var got [readers]atomic.Int64
		halfway, published := make(chan struct{}), make(chan struct{})
		again := sync.OnceFunc(func() { close(halfway); <-published })
		for i := range readers {
			var r *Reader
			var err error
			r, err = h.Subscribe(0, func() {
				if b, err := r.Pull(nil, 10, anySize); err == nil {
					got[i].Add(int64(len(b.Events)))
				}
				if i == readers/2 {
					again()
				}
			}, Exact(topic("db")))
			if err != nil {
				t.Fatal(err)
			}
			r.Pull(nil, 1, anySize)
		}
		h.Publish(1, []*Event{event(1, "db")})
		<-halfway
		h.Publish(2, []*Event{event(2, "db")})
		close(published)
		synctest.Wait()
		for i := range got {
			if n := got[i].Load(); n != 2 {
				t.Fatalf("reader %d got %d of 2 events", i, n)
			}
		}
	})
}

// What one index changed arrives in as many pulls as it takes, and progress
// stays before it until the last.
func TestG15_AnIndexLargerThanAPull(t *testing.T) {
	const changes, limit = 1000, 64
	h := New(Config{}, 0)
	defer h.Close()
	batch := []*Event{event(1, "before")}
	for range changes {
		batch = append(batch, event(2, "db"))
	}
	h.Publish(3, append(batch, event(3, "after")))
	r, err := h.Subscribe(0, func() {}, All(1))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := 0
	for more := true; more; {
		b, err := r.Pull(nil, limit, anySize)
		if err != nil || len(b.Events) == 0 || len(b.Events) > limit {
			t.Fatalf("%d events, %v", len(b.Events), err)
		}
		if got += len(b.Events); got < changes+1 && b.Progress != 1 || got > changes+1 && b.Progress != 3 {
			t.Fatalf("progress %d with %d events delivered", b.Progress, got)
		}
		more = b.More
	}
	if got != len(batch)+1 {
		t.Errorf("got %d events of %d", got, len(batch)+1)
	}
}

// A reader that is in the middle of an index when that leaves the history is
// told what it had whole.
func TestG16_CompactedInTheMiddleOfAnIndex(t *testing.T) {
	h := New(Config{Limits: Limits{HistoryBytes: 1}}, 0)
	defer h.Close()
	h.Publish(2, []*Event{event(1, "db"), event(2, "db"), event(2, "db"), event(2, "db")})
	r, err := h.Subscribe(1, func() {}, Exact(topic("db")))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := r.Pull(nil, 2, anySize); err != nil || len(b.Events) != 2 || b.Progress != 1 || !b.More {
		t.Fatalf("got %+v, %v", b, err)
	}
	h.Publish(3, []*Event{event(3, "db")})
	_, err = r.Pull(nil, 2, anySize)
	var gone *CompactedError
	if !errors.As(err, &gone) || gone.Delivered != 1 || gone.Floor != 2 {
		t.Fatalf("got %v", err)
	}
}

// An event of many topics costs in proportion to them: each of its links is
// found by a search, not by looking at all.
func TestLinksOfAnEventAreSorted(t *testing.T) {
	h := New(Config{}, 0)
	defer h.Close()
	var topics []Topic
	for i := range 100 {
		topics = append(topics, topic(fmt.Sprint("t", i*37%100)))
	}
	for i := range incumbent.Index(3) {
		h.Publish(i+1, []*Event{{Index: i + 1, Topics: topics[i:]}})
	}
	r, err := h.Subscribe(0, func() {}, Prefix(1, topic("").Scope, "t1"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for pos := h.hist.tail; pos <= h.hist.head; pos++ {
		links := h.hist.at(pos).links
		if !slices.IsSortedFunc(links, func(a, b link) int { return a.compare(b.node.id) }) {
			t.Errorf("the links of event %d are in no order", pos)
		}
		for i := range links {
			if h.hist.at(pos).link(links[i].node) != &links[i] {
				t.Errorf("link %d of event %d is not found", i, pos)
			}
		}
	}
}
