package player

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// book keeps what all clients were answered. Answers bound one another: whoever
// asks after somebody was told of index i sees i or later, and what was answered
// before somebody asked is no later than what that one is told. Between these two
// bounds an answer must have been true at some index.
type book struct {
	fail func(format string, args ...any)
	keys *keyline

	mu      sync.Mutex // guards the rest; held for a change
	seen    uint64     // greatest index that anybody was told
	acks    []ack
	looks   []look
	until   map[uint64]time.Time // own deadline of the holding under each token
	calls   int
	looked  int            // answers that were compared
	blind   int            // and of them those at a time that the timelines do not know
	counted map[string]int // answers and changes, by what they are
}

// ack is that an answer to what was sent at a moment has shown an index.
type ack struct {
	sent  time.Time
	index uint64
}

// look is an answer that is compared with the timelines later.
type look struct {
	who   string
	floor uint64
	got   time.Time
	check func(w window) string
}

// drift is what a holder takes off what it was told: clocks differ.
const drift = 0.01

func newBook(fail func(string, ...any)) *book {
	return &book{fail: fail, keys: newKeyline(fail), until: map[uint64]time.Time{}, counted: map[string]int{}}
}

// call is one call under way.
type call struct {
	b     *book
	who   string
	sent  time.Time
	floor uint64
	err   error        // of the transport or of a server, once it has answered
	entry *pb.KeyValue // that came beside an error over a stream
}

// begin is called before a call is sent.
func (b *book) begin(who string) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return &call{b: b, who: who, sent: time.Now(), floor: b.seen}
}

// count counts one answer or change.
func (b *book) count(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counted[what]++
}

// tally says what was seen how often.
func (b *book) tally() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "%d calls up to index %d, %d answers compared (%d not known)", b.calls, b.seen, b.looked, b.blind)
	for _, what := range slices.Sorted(maps.Keys(b.counted)) {
		fmt.Fprintf(&out, "\n%8d %s", b.counted[what], what)
	}
	return out.String()
}

func (c *call) fail(format string, args ...any) { c.b.fail(c.who+": "+format, args...) }

// at notes the index that a current answer shows. It must not be older than what
// was known when the call was sent.
func (c *call) at(index uint64) {
	if index < c.floor {
		c.fail("index %d, though %d was known before it was sent", index, c.floor)
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.seen = max(c.b.seen, index)
	c.b.acks = append(c.b.acks, ack{c.sent, index})
}

// held notes for how long a holding was acknowledged.
func (c *call) held(token uint64, ms uint32) {
	own := c.sent.Add(time.Duration(float64(ms) * (1 - drift) * float64(time.Millisecond)))
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if own.After(c.b.until[token]) {
		c.b.until[token] = own
	}
}

// later has something compared with the timelines once they are complete. check
// returns what is wrong, "" if nothing is.
func (c *call) later(check func(w window) string) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.looks = append(c.b.looks, look{who: c.who, floor: c.floor, got: time.Now(), check: check})
}

// settle compares all answers since the last time with the timelines, which have
// told everything up to end.
func (b *book) settle(lines map[scope]*timeline, end uint64) {
	b.mu.Lock()
	acks, looks := b.acks, b.looks
	b.acks, b.looks = nil, nil
	until := b.until
	b.until = map[uint64]time.Time{}
	b.mu.Unlock()
	slices.SortFunc(acks, func(a, b ack) int { return a.sent.Compare(b.sent) })
	least := make([]uint64, len(acks)+1)
	least[len(acks)] = end
	for i := len(acks) - 1; i >= 0; i-- {
		least[i] = min(least[i+1], acks[i].index)
	}
	b.looked += len(looks)
	for _, l := range looks {
		if lines[native].since() > l.floor {
			b.blind++
		}
		i, _ := slices.BinarySearchFunc(acks, l.got, func(a ack, got time.Time) int { return a.sent.Compare(got) })
		if bad := l.check(window{lines: lines, keys: b.keys, floor: l.floor, ceil: max(l.floor, least[i])}); bad != "" {
			b.fail("%s: %s (between index %d and %d)", l.who, bad, l.floor, least[i])
		}
	}
	for _, t := range lines {
		b.checkDeadlines(t, until)
	}
}

// checkDeadlines fails if a watch told of an expiry before the holder's own
// deadline.
func (b *book) checkDeadlines(t *timeline, until map[uint64]time.Time) {
	for _, name := range t.names() {
		for _, m := range t.between(name, 0, math.MaxUint64) {
			if own := until[m.ended]; m.what == "expired" && m.ended != 0 && m.came.Before(own) {
				b.fail("lease %q: token %d was told to have expired at index %d, %v before its holder's own deadline", name, m.ended, m.index, own.Sub(m.came))
			}
		}
	}
}

// window is between which indexes an answer must have been true.
type window struct {
	lines       map[scope]*timeline
	keys        *keyline
	floor, ceil uint64
}

// once reports whether a lease was so at some index of the window, or may have
// been.
func (w window) once(p place, is func(*pb.Lease) bool) bool {
	t := w.lines[p.scope]
	if t == nil {
		return true
	}
	l, _, ok := t.at(p.name, w.floor)
	if !ok || is(l) {
		return true
	}
	return slices.ContainsFunc(t.between(p.name, w.floor, w.ceil), func(m moment) bool { return is(m.lease) })
}

// at is a lease at an index; false if it is not known.
func (w window) at(p place, index uint64) (*pb.Lease, bool) {
	t := w.lines[p.scope]
	if t == nil {
		return nil, false
	}
	l, m, ok := t.at(p.name, index)
	if ok && m == nil && t.unknownFree() {
		return nil, false
	}
	return l, ok
}

// unknownFree reports whether of a lease that is not listed more than that it is
// free may be unknown.
func (t *timeline) unknownFree() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.restarts > 0
}

// byToken finds the lease that a token belongs to.
func (w window) byToken(token uint64) (p place, known bool) {
	known = true
	for _, t := range w.lines {
		t.mu.Lock()
		name, ok := t.tokens[token]
		if token <= t.known {
			known = false
		}
		t.mu.Unlock()
		if ok {
			return place{t.scope, name}, true
		}
	}
	return place{}, known
}

// owned lists the leases of a session at an index; false if that is not known.
func (w window) owned(session string, index uint64) (out map[place]*pb.Lease, ok bool) {
	out = map[place]*pb.Lease{}
	for _, t := range w.lines {
		for _, name := range t.names() {
			l, _, ok := t.at(name, index)
			if !ok {
				return nil, false
			}
			if l.Session == session {
				out[place{t.scope, name}] = l
			}
		}
	}
	return out, true
}
