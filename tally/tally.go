// Package tally counts what each principal, and each address that clients connect
// from, has open on one member: streams, watches and waits, connections. None of it is
// part of the replicated state, so that its quotas, which are settings of the cluster
// like all others, are for each member by itself.
//
// Whoever opens something takes a place before, and gives it back when it has ended.
// Operators are not counted: no limit may lock them out.
//
// # Concurrency
//
// All methods may be called from any goroutine, and none waits.
package tally

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// Tally is what is open on one member.
type Tally struct {
	values func() *settings.Values
	over   [settings.NumOpen]atomic.Uint64

	mu   sync.Mutex // guards what follows; held for one look-up, and for a walk of one map by those who show it
	open [settings.NumOpen]map[Who]int64
}

// Who has something open.
type Who struct {
	Name  string // what a quota is given for: of a principal, or an address
	Scope string // tells apart those who have the same name; "": the name says all
}

// New returns a tally with nothing in it, whose quotas are those of the settings at
// the moment that something is taken.
func New(values func() *settings.Values) *Tally {
	t := &Tally{values: values}
	for k := range t.open {
		t.open[k] = map[Who]int64{}
	}
	return t
}

// ipv6Network is how many bits of an IPv6 address tell one client's network from
// another's.
const ipv6Network = 64

// sourceOf is who an address counts as: of IPv6 all of one network.
func sourceOf(a netip.Addr) Who {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(ipv6Network); err == nil {
			return Who{Name: p.Addr().String()}
		}
	}
	return Who{Name: a.String()}
}

// take counts one more of a kind, unless somebody has as many as he may.
func (t *Tally) take(k settings.Open, who Who) (Place, error) {
	v := t.values()
	most, mode := v.Open(k).Of(who.Name), v.Mode(settings.QuotaMode)
	t.mu.Lock()
	defer t.mu.Unlock()
	has := t.open[k][who]
	if most > 0 && has >= most && mode != core.Off {
		t.over[k].Add(1)
		if mode == core.Enforce {
			return Place{}, refusal(k, who, has, most)
		}
	}
	t.open[k][who]++
	return Place{t, k, who}, nil
}

func refusal(k settings.Open, who Who, has, most int64) error {
	setting := k.Setting()
	return incumbent.Errorf(incumbent.TooLarge, "%s %s has %d of the %d %s to one member that %s allows", k.Scope(), who, has, most, k.Words(), setting).
		WithHint("close some, or an operator raises it: incumbent config set '" + setting + "@" + who.Name + "' NUMBER")
}

// Place is that of one thing which is open. The zero value is of somebody who is not
// counted.
type Place struct {
	t   *Tally
	k   settings.Open
	who Who
}

// Take counts one more of a kind for a principal, who is told apart from others of its
// name by scope ("": there are none). It is called before that is opened. The error is
// TooLarge: it has as many as it may, and nothing is counted. A nil tally counts nobody.
func (t *Tally) Take(k settings.Open, p auth.Principal, scope string) (Place, error) {
	if t == nil || p.Kind == auth.Operator {
		return Place{}, nil
	}
	return t.take(k, Who{p.String(), scope})
}

// TakeFrom is Take for an address; what has none is not counted.
func (t *Tally) TakeFrom(k settings.Open, from netip.Addr) (Place, error) {
	if t == nil || !from.IsValid() {
		return Place{}, nil
	}
	return t.take(k, sourceOf(from))
}

// Connection is one that belongs to whoever first shows on it who they are. It holds one
// thing, which is given back when it ends: false if it holds something, or has ended.
type Connection interface {
	Holds() bool
	Hold(give func()) bool
}

// Count takes a place for a connection to a listener among its principal's, if it holds
// none. The error is TooLarge. All listeners are counted by themselves: each has so many
// places, and one principal is not to have all of them.
func (t *Tally) Count(c Connection, p auth.Principal, listener string) error {
	if t == nil || c.Holds() {
		return nil
	}
	place, err := t.Take(settings.OpenConnections, p, listener)
	if err != nil {
		return err
	}
	if !c.Hold(func() { place.Give() }) {
		place.Give() // another request was first, or the connection has ended
	}
	return nil
}

// Give gives the place back: what was opened has ended. The second time does nothing,
// but is not for another goroutine.
func (p *Place) Give() {
	t := p.t
	if t == nil {
		return
	}
	p.t = nil
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[p.k][p.who]--; t.open[p.k][p.who] == 0 {
		delete(t.open[p.k], p.who)
	}
}

// Over is how often a quota has refused something, or (observed) would have.
func (t *Tally) Over(k settings.Open) uint64 { return t.over[k].Load() }

// Fullest returns whoever comes nearest to a quota, and how near; false: nobody who has
// anything has one.
func (t *Tally) Fullest(k settings.Open) (who Who, has, most int64, found bool) {
	q, share := t.values().Open(k), 0.0
	t.mu.Lock()
	defer t.mu.Unlock()
	for w, n := range t.open[k] {
		bound := q.Of(w.Name)
		if bound == 0 {
			continue
		}
		if now := float64(n) / float64(bound); now > share || now == share && found && w.less(who) {
			share, who, has, most, found = now, w, n, bound, true
		}
	}
	return who, has, most, found
}

func (w Who) less(than Who) bool {
	if c := strings.Compare(w.Name, than.Name); c != 0 {
		return c < 0
	}
	return w.Scope < than.Scope
}

// String is the name, and what it is told apart by.
func (w Who) String() string {
	if w.Scope == "" {
		return w.Name
	}
	return w.Name + " (" + w.Scope + ")"
}
