package watch

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// BenchmarkPublish shows that a publish costs the same whoever watches: the
// fan-out is behind it.
func BenchmarkPublish(b *testing.B) {
	for _, readers := range []int{0, 1, 2000} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			h := New(Config{}, 0)
			defer h.Close()
			var delivered atomic.Int64
			for range readers {
				var r *Reader
				pull := func() {
					if x, err := r.Pull(nil, 1000, anySize); err == nil {
						delivered.Add(int64(len(x.Events)))
					}
				}
				r, _ = h.Subscribe(0, pull, Exact(topic("db")))
				r.Pull(nil, 1, anySize)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				h.Publish(incumbent.Index(i+1), []*Event{event(incumbent.Index(i+1), "db")})
			}
			b.StopTimer()
			b.ReportMetric(float64(delivered.Load())/float64(b.N), "delivered/op")
		})
	}
}

// BenchmarkDistinct has 100,000 readers of a topic each and says what one
// costs.
func BenchmarkDistinct(b *testing.B) {
	const readers = 100_000
	before := heapBytes()
	h := New(Config{Limits: Limits{}}, 0)
	defer h.Close()
	var woken atomic.Int64
	names := make([]string, readers)
	all := make([]*Reader, readers)
	wake := func() { woken.Add(1) }
	for i := range all {
		names[i] = fmt.Sprint("unit-", i)
		all[i], _ = h.Subscribe(0, wake, Exact(topic(names[i])))
		all[i].Pull(nil, 1, anySize)
	}
	each := float64(heapBytes()-before) / readers
	b.ResetTimer()
	for i := range b.N {
		h.Publish(incumbent.Index(i+1), []*Event{event(incumbent.Index(i+1), names[i%readers])})
	}
	b.ReportMetric(each, "B/reader")
	runtime.KeepAlive(all)
}

// BenchmarkResume is what everybody who reconnects does: subscribe not far
// behind on one hot topic of a full history.
func BenchmarkResume(b *testing.B) {
	h := New(Config{}, 0)
	defer h.Close()
	const last = 60_000
	for i := incumbent.Index(1); i <= last; i++ {
		h.Publish(i, []*Event{event(i, "db")})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		r, err := h.Subscribe(last-10, func() {}, Exact(topic("db")))
		if err != nil {
			b.Fatal(err)
		}
		if x, err := r.Pull(nil, 100, anySize); err != nil || len(x.Events) != 10 {
			b.Fatal(len(x.Events), err)
		}
		r.Close()
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHistoryBytesAreHonest compares what the history says it costs with what
// the heap grew by, for events of one topic and of a topic each, and for some that share
// many.
func TestHistoryBytesAreHonest(t *testing.T) {
	for name, events := range map[string]func(int) []*Event{
		"one":      func(int) []*Event { return []*Event{{Topics: []Topic{topic("db")}}} },
		"distinct": func(i int) []*Event { return []*Event{{Topics: []Topic{topic(fmt.Sprint("unit-", i))}}} },
		"shared": func(i int) (list []*Event) {
			if i%10 > 0 { // once for ten events
				return nil
			}
			topics := make([]Topic, 100)
			for j := range topics {
				topics[j] = topic(fmt.Sprint("unit-", j))
			}
			s := NewShared(topics, len(topics)*16) // their names
			for range 10 {
				list = append(list, &Event{Topics: []Topic{topic("db")}, Shared: s})
			}
			return list
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := heapBytes()
			h := New(Config{Limits: Limits{HistoryBytes: 8 << 20}}, 0)
			defer h.Close()
			for i := range 50_000 {
				index := incumbent.Index(i + 1)
				list := events(i)
				for _, e := range list {
					e.Index, e.Payload, e.Size = index, make([]byte, 100), 100
				}
				h.Publish(index, list)
			}
			said, grown := h.Stats().HistoryBytes, heapBytes()-before
			t.Logf("%d events cost %d by our count, %d by the heap", h.Stats().Kept, said, grown)
			if grown > said*5/4 {
				t.Errorf("the heap grew by %d, the history says %d", grown, said)
			}
		})
	}
}

// BenchmarkTopics publishes events of many topics, the same ones each time,
// and says what a topic of them costs.
func BenchmarkTopics(b *testing.B) {
	for _, n := range []int{10, 100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("topics=%d", n), func(b *testing.B) {
			h := New(Config{}, 0)
			defer h.Close()
			topics := make([]Topic, n)
			for i := range topics {
				topics[i] = topic(fmt.Sprint("unit-", i))
			}
			b.ResetTimer()
			for i := range b.N {
				index := incumbent.Index(i + 1)
				h.Publish(index, []*Event{{Index: index, Topics: topics}})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/topic")
		})
	}
}

// BenchmarkSharedTopics publishes events that share topics, the same ones each time, and
// says what a topic of them costs, and what an event.
func BenchmarkSharedTopics(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		for _, events := range []int{1, 256} {
			b.Run(fmt.Sprintf("topics=%d/events=%d", n, events), func(b *testing.B) {
				h := New(Config{}, 0)
				defer h.Close()
				topics := make([]Topic, n)
				for i := range topics {
					topics[i] = topic(fmt.Sprint("unit-", i))
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					s, list := NewShared(topics, 0), make([]*Event, events)
					for k := range list {
						list[k] = &Event{Index: incumbent.Index(i + 1), Shared: s}
					}
					h.Publish(incumbent.Index(i+1), list)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/topic")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
			})
		}
	}
}

// BenchmarkTopicBytes publishes 200,000 topics once each, with a history that has room
// for all, and says what one costs besides its event.
func BenchmarkTopicBytes(b *testing.B) {
	const topics = 200_000
	for range b.N {
		cost := func(name func(int) string) int64 {
			names := make([]string, topics)
			for i := range names {
				names[i] = name(i)
			}
			before := heapBytes()
			h := New(Config{Limits: Limits{HistoryBytes: 1 << 40}}, 0)
			defer h.Close()
			for i := range incumbent.Index(topics) {
				h.Publish(i+1, []*Event{event(i+1, names[i])})
			}
			grown := heapBytes() - before
			runtime.KeepAlive(names)
			return grown
		}
		one := cost(func(int) string { return "db" })
		each := cost(func(i int) string { return fmt.Sprint("unit-", i) })
		b.ReportMetric(float64(each-one)/topics, "B/topic")
		b.ReportMetric(float64(one)/topics, "B/event")
	}
}
