package watch

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// Who has selected the same shares bytes that are made once and charged to the history; an
// event keeps those of so many selections only, and anybody gets his own.
func TestG21_EncodingsForSelections(t *testing.T) {
	h := New(Config{Manual: true}, 0)
	defer h.Close()
	e := event(1, "db")
	h.Publish(1, []*Event{e})
	before := h.Stats().HistoryBytes
	const bytes, readers = 100, 8
	var made [2 * maxSelections]atomic.Int64
	keys := 0 // bytes of what kept encodings are found by
	for i := range made {
		selection := fmt.Sprint("selection ", i)
		if i < maxSelections {
			keys += len(selection)
		}
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				b := e.EncodeFor(1, selection, func(*Event) []byte {
					made[i].Add(1)
					return append([]byte(selection), make([]byte, bytes-len(selection))...)
				})
				if len(b) != bytes || string(b[:len(selection)]) != selection {
					t.Errorf("%s got %q", selection, b)
				}
			})
		}
		all.Wait()
		want := int64(1)
		if i >= maxSelections {
			want = readers
		}
		if n := made[i].Load(); n != want {
			t.Errorf("%s was encoded %d times, want %d", selection, n, want)
		}
	}
	for _, k := range []Encoding{1, 2} {
		for range 2 {
			if b := e.Encode(k, func(*Event) []byte { return []byte{byte(k)} }); b[0] != byte(k) {
				t.Errorf("encoding %d: %q", k, b)
			}
		}
	}
	if cost := h.Stats().HistoryBytes - before; cost != int64(maxSelections*bytes+keys+2) {
		t.Errorf("they cost the history %d bytes, want %d", cost, maxSelections*bytes+keys+2)
	}
}
