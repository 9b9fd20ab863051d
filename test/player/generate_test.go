package player

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

const (
	model        = "deadbeef-0bad-400d-8000-4b1d0d06f00d" // of Juju's agents
	sessionSlots = 7
	keptTokens   = 4 // of each lease, for calls that name one that is over
	crowd        = 300
)

// The scopes that are played in: one for each door, and what it shares.
var (
	native   = scope{"default", "default"}
	leaders  = scope{"application-leadership", model}
	singular = scope{"singular-controller", model}
	scopes   = []scope{native, leaders, singular}
)

// nativeNames are few, so that calls meet; some are odd and nevertheless valid.
var nativeNames = []string{
	"a", "b", "c", "d", "a", "b", "c",
	"a:b", "ünï/cødé-λ", `q"\uote`, "%41%00", "../..", strings.Repeat("n", 256), "日本語",
}

var (
	applications = []string{"app", "app", "app2", "app3"}
	holders      = []string{"h0", "h1", "h2", "app/0", "app/1", strings.Repeat("h", 256)}
	pins         = []string{"p0", "p1", "machine-0"}
)

// table is what the players know of what is going on, shared by all.
type table struct {
	mu       sync.Mutex // guards the rest; held for a look or a change
	seed     uint64
	tokens   map[place][]uint64
	owners   map[place]owner
	sessions [sessionSlots]uint64 // generation

	keys *keyline
}

// owner is who holds a lease, as far as anybody was told.
type owner struct{ holder, session string }

func newTable(seed uint64) *table {
	return &table{seed: seed, tokens: map[place][]uint64{}, owners: map[place]owner{}}
}

// saw notes how a lease was seen.
func (t *table) saw(l *pb.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, token := placeOf(l.GetName()), l.GetToken()
	list := t.tokens[p]
	if token == 0 || len(list) > 0 && list[len(list)-1] >= token {
		return
	}
	t.tokens[p] = append(list, token)[max(0, len(list)+1-keptTokens):]
	t.owners[p] = owner{l.Holder, l.Session}
}

// owner is who held the lease when it was last seen.
func (t *table) owner(p place) owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owners[p]
}

// token is one that the lease has or had: back 0 is the last, and so on; some
// number if it never had so many.
func (t *table) token(p place, back int) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if list := t.tokens[p]; back < len(list) {
		return list[len(list)-1-back]
	}
	return uint64(back) * 1_000_000_007
}

// session is the id in a slot. It depends on nothing but the seed and on how many
// there were before.
func (t *table) session(slot int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var id incumbent.SessionID
	rng := rand.New(rand.NewPCG(t.seed, uint64(slot)<<32|t.sessions[slot]))
	binary.BigEndian.PutUint64(id[:8], rng.Uint64())
	binary.BigEndian.PutUint64(id[8:], rng.Uint64())
	return id.String()
}

// all is the ids of the present sessions.
func (t *table) all() []string {
	out := make([]string, sessionSlots)
	for i := range out {
		out[i] = t.session(i)
	}
	return out
}

// renew puts another session into the slot.
func (t *table) renew(slot int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions[slot]++
}

// dice decides one step of one player. A step has dice of its own, so that what it
// does depends on the seed, the player and its number, but not on how many draws
// earlier steps took.
type dice struct {
	*rand.Rand
	table *table
}

func (t *table) dice(player, step int) dice {
	return dice{rand.New(rand.NewPCG(t.seed, uint64(player+1)<<40|uint64(step))), t}
}

// oneIn is true once in n times.
func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d dice, list []T) T { return list[d.IntN(len(list))] }

// place picks a lease.
func (d dice) place() place {
	if d.oneIn(6) {
		return place{leaders, pick(d, applications)}
	}
	if d.oneIn(30) {
		return place{singular, model}
	}
	return place{native, pick(d, nativeNames)}
}

// token picks a token of the lease, mostly the last.
func (d dice) token(p place) uint64 {
	back := 0
	if d.oneIn(4) {
		back = 1 + d.IntN(keptTokens+1)
	}
	return d.table.token(p, back)
}

// owner picks a holder: mostly the one that the lease has, as far as is known.
func (d dice) owner(p place) owner {
	known, other := !d.oneIn(4), owner{pick(d, holders), d.session()}
	if o := d.table.owner(p); known && o.holder != "" {
		return o
	}
	if d.oneIn(2) {
		other.session = ""
	}
	return other
}

func (d dice) session() string { return d.table.session(d.IntN(sessionSlots)) }

// ttl is short, so that leases and sessions expire.
func (d dice) ttl() uint32 { return uint32(1000 + 500*d.IntN(6)) }

// operation makes a valid operation.
func (d dice) operation() *pb.Operation {
	switch n := d.IntN(100); {
	case n < 34:
		return claimed(d.claim())
	case n < 46:
		return &pb.Operation{Op: &pb.Operation_Release{Release: d.release()}}
	case n < 51:
		return &pb.Operation{Op: &pb.Operation_Revoke{Revoke: d.revoke()}}
	case n < 56:
		return &pb.Operation{Op: &pb.Operation_Transfer{Transfer: d.transfer()}}
	case n < 59:
		return &pb.Operation{Op: &pb.Operation_Pin{Pin: &pb.PinRequest{Name: d.place().pb(), Entity: pick(d, pins)}}}
	case n < 66:
		return &pb.Operation{Op: &pb.Operation_Unpin{Unpin: &pb.UnpinRequest{Name: d.place().pb(), Entity: pick(d, pins)}}}
	case n < 70:
		leave := &pb.LeaveQueueRequest{Name: d.place().pb(), Session: d.session()}
		if d.oneIn(2) {
			leave.Holder = pick(d, holders)
		}
		return &pb.Operation{Op: &pb.Operation_LeaveQueue{LeaveQueue: leave}}
	case n < 80:
		open := &pb.OpenSessionRequest{Id: d.session(), TtlMs: d.ttl()}
		if d.oneIn(10) {
			open.TtlMs, open.NoTtl = 0, true
		}
		return &pb.Operation{Op: &pb.Operation_OpenSession{OpenSession: open}}
	case n < 86:
		return &pb.Operation{Op: &pb.Operation_CloseSession{CloseSession: &pb.CloseSessionRequest{Id: d.session(), Reason: "played"}}}
	}
	return &pb.Operation{Op: &pb.Operation_Extend{Extend: d.extension()}}
}

func claimed(c *pb.ClaimRequest) *pb.Operation {
	return &pb.Operation{Op: &pb.Operation_Claim{Claim: c}}
}

func (d dice) claim() *pb.ClaimRequest {
	p := d.place()
	c := &pb.ClaimRequest{Name: p.pb(), Holder: pick(d, holders), Critical: d.oneIn(8)}
	if p.namespace == native.namespace && d.oneIn(2) {
		c.Name.Namespace, c.Name.Model = "", ""
	}
	if d.oneIn(3) {
		c.TtlMs = d.ttl()
		return c
	}
	c.Session, c.Wait = d.session(), !d.oneIn(3)
	return c
}

func (d dice) release() *pb.ReleaseRequest {
	p := d.place()
	r := &pb.ReleaseRequest{Name: p.pb()}
	if d.oneIn(3) {
		o := d.owner(p)
		r.Holder, r.Session = o.holder, o.session
		return r
	}
	if r.Token = d.token(p); r.Token == 0 {
		r.Holder = pick(d, holders)
	}
	return r
}

func (d dice) revoke() *pb.RevokeRequest {
	p := d.place()
	r := &pb.RevokeRequest{Name: p.pb(), Force: d.oneIn(2), By: "player"}
	if d.oneIn(2) {
		r.Token = d.token(p)
	}
	return r
}

func (d dice) transfer() *pb.TransferRequest {
	p := d.place()
	o := d.owner(p)
	r := &pb.TransferRequest{Name: p.pb(), Holder: o.holder, Session: o.session, ToSession: d.session()}
	if d.oneIn(2) {
		r.ToHolder = pick(d, holders)
	}
	if d.oneIn(3) {
		r.Token = d.token(p)
	}
	return r
}

func (d dice) extension() *pb.Extension {
	p := d.place()
	e := &pb.Extension{}
	switch d.IntN(4) {
	case 0:
		e.Session = d.session()
	case 1:
		o := d.owner(p)
		e.Name, e.Holder, e.Session = p.pb(), o.holder, o.session
	default:
		if e.Token = d.token(p); e.Token == 0 {
			e.Session = d.session()
		}
	}
	if d.oneIn(5) {
		e.TtlMs = d.ttl()
	}
	return e
}

// getSession reads all that a session has, or a page of it.
func (d dice) getSession() *pb.GetSessionRequest {
	r := &pb.GetSessionRequest{Id: d.session(), Stale: d.oneIn(4)}
	if d.oneIn(3) {
		r.Limit = uint32(1 + d.IntN(4))
	}
	if d.oneIn(4) {
		r.After = d.place().pb()
	}
	return r
}

// operations makes the steps of one batch: mostly different ones, at times the
// same over and over, or a session that takes many places in one queue.
func (d dice) operations() []*pb.Operation {
	n := 1 + d.IntN(12)
	ops := make([]*pb.Operation, 0, n)
	switch {
	case d.oneIn(25):
		p, session := d.place(), d.session()
		for i := range crowd {
			ops = append(ops, claimed(&pb.ClaimRequest{Name: p.pb(), Holder: holders[0] + strings.Repeat("x", i%200), Session: session, Wait: true}))
		}
	case d.oneIn(8):
		op := d.operation()
		for range n {
			ops = append(ops, op)
		}
	case d.oneIn(7): // what a session holds and what another waits for, and then its end
		first, second := d.session(), d.session()
		for _, session := range []string{first, second} {
			ops = append(ops, &pb.Operation{Op: &pb.Operation_OpenSession{OpenSession: &pb.OpenSessionRequest{Id: session, TtlMs: d.ttl()}}})
			for range 2 + d.IntN(5) {
				ops = append(ops, claimed(&pb.ClaimRequest{Name: d.place().pb(), Holder: pick(d, holders), Session: session, Wait: true}))
			}
		}
		ops = append(ops, &pb.Operation{Op: &pb.Operation_CloseSession{CloseSession: &pb.CloseSessionRequest{Id: first}}})
	default:
		for range n {
			ops = append(ops, d.operation())
		}
	}
	return ops
}
