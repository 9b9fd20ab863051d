package watch

import (
	"fmt"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// decoding are differences that note of which events parts were decoded; the payload of an
// event is the one part that it changes.
type decoding struct{ events []*Event }

func (*decoding) Changed(*Event) Fields                            { return 1 }
func (*decoding) Values(_ *Event, _ Field, list []string) []string { return list }
func (d *decoding) PartsChanged(e *Event) func(Parts) (changed bool) {
	d.events = append(d.events, e)
	return func(p Parts) bool { return p.Names == e.Payload }
}

// However many parts of a record are watched, a change of it is decoded once, and is told
// to those who watch what has changed.
func TestPartsOfAnEventAreDecodedOnce(t *testing.T) {
	d := &decoding{}
	h := New(Config{Manual: true, Differences: d}, 0)
	defer h.Close()
	const parts, changed = 1000, 17
	var readers []*Reader
	for i := range parts {
		r, err := h.Subscribe(0, func() {}, Exact(topic("db")).ChangingParts(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	e := &Event{Index: 1, Topics: []Topic{topic("db")}, Payload: fmt.Sprint(changed)}
	h.Publish(1, []*Event{e})
	if len(d.events) != 1 {
		t.Errorf("the event was decoded %d times", len(d.events))
	}
	for i, r := range readers {
		b, err := r.Pull(nil, 1, anySize)
		if err != nil || (len(b.Events) == 1) != (i == changed) {
			t.Errorf("who watches part %d got %v, %v", i, b.Events, err)
		}
	}
	h.Publish(2, []*Event{event(2, "other")})
	if len(d.events) != 1 {
		t.Error("an event was decoded that nobody watches")
	}
}

// Who resumes by a filter that is new has the history looked through. Of that a hold of the
// lock does what is bounded in events and in bytes.
func TestHistoryIsLookedThroughInSlices(t *testing.T) {
	for name, tt := range map[string]struct{ size, slice int }{
		"small events":      {1, walkSlice},
		"events of 16 KiB":  {16 << 10, walkBytes / (16 << 10)},
		"events of 1 MiB":   {1 << 20, 1},
		"events of no size": {0, walkSlice},
	} {
		t.Run(name, func(t *testing.T) {
			d := &decoding{}
			h := New(Config{Manual: true, Differences: d, Limits: Limits{HistoryBytes: 1 << 30}}, 0)
			defer h.Close()
			last := incumbent.Index(2*tt.slice + tt.slice/2 + 1)
			for i := range last {
				h.Publish(i+1, []*Event{{Index: i + 1, Topics: []Topic{topic("db")}, Payload: "a", Size: tt.size}})
			}
			n := h.reg.node(Exact(topic("db")).ChangingParts("a"))
			slices := 0
			for done := false; !done; slices++ {
				before := len(d.events)
				done = h.adopt(n, 0)
				if got := len(d.events) - before; got > tt.slice {
					t.Fatalf("%d events were decoded at a time, limit is %d", got, tt.slice)
				}
			}
			if int(n.kept) != int(last) || slices < int(last)/tt.slice {
				t.Errorf("%d of %d events are in the chain, after %d slices", n.kept, last, slices)
			}
		})
	}
}
