package player

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// scope is a namespace and a model: what one watch follows.
type scope struct{ namespace, model string }

// place is a lease's full name.
type place struct {
	scope
	name string
}

func placeOf(n *pb.LeaseName) place {
	p := place{scope{n.GetNamespace(), n.GetModel()}, n.GetName()}
	if p.namespace == "" {
		p.namespace = "default"
	}
	if p.model == "" {
		p.model = "default"
	}
	return p
}

func (p place) pb() *pb.LeaseName {
	return &pb.LeaseName{Namespace: p.namespace, Model: p.model, Name: p.name}
}

// moment is a change of a lease, and the lease from then on.
type moment struct {
	index uint64
	what  string
	lease *pb.Lease
	came  time.Time // when the watch told of it
	ended uint64    // the token that ended with it; 0: none
}

// timeline is what a watch of one scope has told: every change of every lease in
// it, in order. It is what all other answers are compared with, and is itself
// checked against the rules of a lease as it grows.
type timeline struct {
	scope scope
	fail  func(format string, args ...any)
	count func(what string)

	mu       sync.Mutex // guards the rest; held for a change or a look
	known    uint64     // nothing is known of what was before this index
	told     uint64     // everything up to here was told
	last     uint64     // index of the last event
	moments  map[string][]moment
	tokens   map[uint64]string // whose token it is
	restarts int
}

func newTimeline(s scope, fail func(string, ...any)) *timeline {
	return &timeline{scope: s, fail: fail, count: func(string) {}, moments: map[string][]moment{}, tokens: map[uint64]string{}}
}

// resume is the index behind which the watch goes on.
func (t *timeline) resume() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// since is the index before which nothing is known.
func (t *timeline) since() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// broken is called when the watch has ended, and is resumed: what was told of a
// change that was not told whole is told again.
func (t *timeline) broken(e *pb.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, list := range t.moments {
		for len(list) > 0 && list[len(list)-1].index > t.told {
			list = list[:len(list)-1]
		}
		if t.moments[name] = list; len(list) == 0 {
			delete(t.moments, name)
		}
	}
	if t.last = t.told; e.GetKind() == incumbent.Compacted.String() {
		t.told = 0 // it begins with a snapshot
	}
}

// add takes what a watch says.
func (t *timeline) add(m *pb.WatchResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Snapshot {
		t.begin(m)
		return
	}
	for _, e := range m.Events {
		switch {
		case e.Index <= t.told:
			t.fail("watch of %v: an event of index %d, after everything up to %d was told", t.scope, e.Index, t.told)
		case e.Index < t.last:
			t.fail("watch of %v: an event of index %d after one of %d", t.scope, e.Index, t.last)
		case e.Lease == nil || placeOf(e.Lease.Name).scope != t.scope:
			t.fail("watch of %v: an event of %v", t.scope, e.Lease.GetName())
			return
		}
		t.last = e.Index
		t.change(e)
	}
	if m.ProgressIndex == 0 {
		return
	}
	if m.ProgressIndex < max(t.told, t.last) {
		t.fail("watch of %v: progress %d after %d and an event of %d", t.scope, m.ProgressIndex, t.told, t.last)
	}
	t.told = m.ProgressIndex
}

// begin takes a part of the state that a watch begins with. The first of several
// parts makes the time before unknown.
func (t *timeline) begin(m *pb.WatchResponse) {
	if t.told != 0 || t.last != 0 {
		t.told, t.last = 0, 0
		t.moments, t.tokens = map[string][]moment{}, map[uint64]string{}
		t.known = ^uint64(0) // until the last part
		t.restarts++
	}
	for _, e := range m.Events {
		if e.What != "present" {
			t.fail("watch of %v: a snapshot with what happened: %s", t.scope, e.What)
		}
		t.moments[e.Lease.GetName().GetName()] = []moment{{index: e.Index, what: e.What, lease: e.Lease, came: time.Now()}}
		t.tokens[e.Lease.GetToken()] = e.Lease.GetName().GetName()
	}
	if m.ProgressIndex != 0 {
		t.known, t.told, t.last = m.ProgressIndex, m.ProgressIndex, m.ProgressIndex
	}
}

// change appends a change of a lease.
func (t *timeline) change(e *pb.LeaseEvent) {
	name := e.Lease.Name.Name
	t.count("change " + e.What)
	list := t.moments[name]
	now := moment{index: e.Index, what: e.What, lease: e.Lease, came: time.Now()}
	before := free
	if len(list) > 0 {
		before = list[len(list)-1].lease
	}
	if len(list) > 0 || t.restarts == 0 {
		if bad := breaks(before, e); bad != "" {
			t.fail("lease %q at index %d, %s: %s\nbefore: %v\nafter: %v", name, e.Index, e.What, bad, before, e.Lease)
		}
	}
	if before.Token != e.Lease.Token {
		now.ended = before.Token
	}
	if e.Lease.Token != 0 {
		if of, ok := t.tokens[e.Lease.Token]; ok && of != name {
			t.fail("token %d was granted for %q and for %q", e.Lease.Token, of, name)
		}
		t.tokens[e.Lease.Token] = name
	}
	t.moments[name] = append(list, now)
}

var free = &pb.Lease{}

// breaks says which rule of a lease a change breaks, "" if none.
func breaks(before *pb.Lease, e *pb.LeaseEvent) string {
	l := e.Lease
	same := l.Token == before.Token && l.Holder == before.Holder && l.Session == before.Session
	switch {
	case e.PreviousToken != before.Token || e.PreviousHolder != before.Holder:
		return "it says that another held it before"
	case l.ModifiedIndex != e.Index:
		return fmt.Sprintf("the lease was modified at %d", l.ModifiedIndex)
	case l.LastToken < before.LastToken:
		return "the last token falls"
	case l.Token > l.LastToken || l.LastToken > e.Index:
		return "a token from the future"
	case (l.Token == 0) != (l.Holder == ""):
		return "a holder without a token, or a token without a holder"
	}
	switch e.What {
	case "granted", "offered":
		switch {
		case before.Token != 0:
			return "granted while it is held"
		case l.Token != e.Index:
			return "the token is not the index of the grant"
		case l.Token <= before.LastToken:
			return "the token does not rise"
		case l.Offered != (e.What == "offered"):
			return "offered and granted are mixed up"
		}
	case "accepted":
		if !same || !before.Offered || l.Offered {
			return "accepted what was not offered"
		}
	case "extended", "queued", "dequeued", "pinned", "unpinned", "revoking":
		if !same || l.Token == 0 && (e.What == "extended" || e.What == "revoking") {
			return "another holds it, or nobody"
		}
	case "released", "expired", "revoked", "session_gone", "transferred", "declined":
		switch {
		case before.Token == 0:
			return "nobody held it"
		case l.Token != 0 || l.Session != "" || l.Offered || l.Revoking:
			return "it is not free"
		case e.What == "expired" && len(before.Pins) > 0 && !before.Revoking:
			return "it was pinned"
		}
	default:
		return "there is no such change"
	}
	return ""
}

// at is the lease after a command; false if that is not known. A lease that was
// free when the watch began is known to be free, and no more.
func (t *timeline) at(name string, index uint64) (l *pb.Lease, m *moment, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index < t.known || index > t.told {
		return nil, nil, false
	}
	list := t.moments[name]
	i := len(list)
	for i > 0 && list[i-1].index > index {
		i--
	}
	if i == 0 {
		return free, nil, true
	}
	return list[i-1].lease, &list[i-1], true
}

// between lists what happened to a lease behind an index, up to another.
func (t *timeline) between(name string, after, upTo uint64) []moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []moment
	for _, m := range t.moments[name] {
		if m.index > after && m.index <= upTo {
			out = append(out, m)
		}
	}
	return out
}

// names lists the leases of which anything is known.
func (t *timeline) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]string, 0, len(t.moments))
	for name := range t.moments {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// forget drops what is older than the present, so that hours cost no memory.
func (t *timeline) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == ^uint64(0) {
		return
	}
	t.tokens = map[uint64]string{}
	for name, list := range t.moments {
		last := list[len(list)-1]
		t.moments[name] = []moment{last}
		t.tokens[last.lease.Token] = name
	}
	delete(t.tokens, 0)
	t.known = t.told
}
