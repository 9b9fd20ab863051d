package watch

import (
	"fmt"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// A node goes with the last event of its topic and is the next topic's, unless somebody has
// listened to it: then it may be on its way to be gone through.
func TestG16_NodesAreUsedAgain(t *testing.T) {
	h := New(Config{Manual: true, Limits: Limits{HistoryBytes: 1}}, 0) // only the newest index is kept
	defer h.Close()
	r, err := h.Subscribe(0, func() {}, Exact(topic("a")))
	if err != nil {
		t.Fatal(err)
	}
	listened := h.reg.topic(topic("a"))
	h.Publish(1, []*Event{event(1, "a")})
	r.Close()
	const last = 5
	for i := incumbent.Index(2); i <= last; i++ {
		h.Publish(i, []*Event{event(i, fmt.Sprint(i))})
		if h.reg.topic(topic(fmt.Sprint(i))) == listened {
			t.Fatalf("%d has the node that is still to be gone through", i)
		}
	}
	h.Turn()
	if n := len(h.reg.spare); n != 1 {
		t.Errorf("%d nodes are spare, want that of the topic before the last", n)
	}
}
