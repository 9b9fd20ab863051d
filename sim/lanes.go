package sim

import (
	"errors"
	"hash/fnv"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/lease"
)

// What a member has in a run with a flood, in virtual bytes. What is counted of each
// request is what it takes until it is answered.
const (
	memoryLimit  = 1 << 30
	memoryIdle   = 64 << 20
	requestBytes = 16 << 10
	memoryLooked = time.Second // how often the lanes are told of the memory, as by the server
)

// entrance is the door of a member as far as it admits: its lanes, which the simulated
// doors enter by the rows of the table of calls, as the real ones do.
type entrance struct {
	p      *process
	lanes  admit.Clocked
	record admit.Record
	cpu    cpu

	underWay [admit.NumLanes]int   // requests that were let in and are not answered
	beyond   [admit.NumLanes]int64 // when a lane last let in more than it may have under way
	heldBack int                   // refusals that are not told yet
	ballast  int64                 // what else takes memory
}

// request is what admission knows of one before any work is done for it.
type request struct {
	who      admit.Who
	lane     admit.Lane
	deadline time.Time // the request is dropped unserved afterwards; zero: none
}

// enters gives a process its lanes.
func (p *process) enters() {
	c, err := admit.New(admit.Limits{}, p.w.rng.Float64)
	p.w.must(err)
	p.door = &entrance{p: p, lanes: admit.Clocked{Controller: c, Now: leaseClock{p}.Now}}
	p.door.cpu.p = p
}

// watchMemory tells the lanes of the memory from time to time, and checks what waits.
func (p *process) watchMemory() {
	if p.door == nil {
		return
	}
	p.every(memoryLooked, func() { p.door.lanes.SetMemory(p.memory(), memoryLimit) })
	p.every(tick, func() { p.w.check.load.looked(p) })
}

// memory is what the process takes.
func (p *process) memory() int64 {
	d, st := p.door, p.node.Status()
	return memoryIdle + d.ballast + p.group.Hub().Stats().HistoryBytes + st.EntryBytes + int64(st.WaitingBytes) +
		requestBytes*int64(d.allUnderWay()+d.heldBack+d.cpu.unread())
}

func (d *entrance) allUnderWay() (n int) {
	for _, of := range d.underWay {
		n += of
	}
	return n
}

// admit lets a request in, which calls leave when it has been answered, or refuses it.
// Work that was let in takes the processor for a while before it begins.
func (p *process) admit(r request, do func(leave func()), refused func(*incumbent.Error)) {
	d := p.door
	if d == nil || r.lane == calls.NoLane {
		do(func() {})
		return
	}
	if now := (nodeClock{p.m}).Now(); !r.deadline.IsZero() && !now.Before(r.deadline) {
		refused(incumbent.Errorf(incumbent.DeadlineExceeded, "deadline passed before the request was served"))
		return
	}
	place, err := d.lanes.Enter(r.who, r.lane, 1)
	d.decided(r.lane, err)
	if err != nil {
		d.holdBack(r, refusal(err), refused)
		return
	}
	leave := d.takeIn(r.lane, place)
	d.cpu.add(workTakes[r.lane], func() { do(leave) })
}

// takeIn counts a request that was let in, until it leaves.
func (d *entrance) takeIn(l admit.Lane, place admit.Place) (leave func()) {
	d.underWay[l]++
	d.p.w.check.load.tookIn(d.p, l)
	return func() {
		d.underWay[l]--
		place.Leave()
	}
}

// holdBack tells a refusal after a part of its hint, as doors do.
func (d *entrance) holdBack(r request, err *incumbent.Error, refused func(*incumbent.Error)) {
	left := time.Duration(-1)
	if !r.deadline.IsZero() {
		left = leaseClock{d.p}.Until(r.deadline)
	}
	pause, told := admit.HoldBack(err, left)
	if pause == 0 || d.heldBack >= admit.MaxHeldBack {
		refused(err)
		return
	}
	d.heldBack++
	leaseClock{d.p}.AfterFunc(pause, func() {
		d.heldBack--
		refused(told)
	})
}

// extend hands extensions on, or refuses them: those of critical leases never.
func (p *process) extend(b *lease.Batch) {
	d := p.door
	if d == nil {
		p.leases.Extend(b)
		return
	}
	asked, lane := false, admit.Extensions
	place, _, err := d.lanes.EnterExtensions(1, func(int) bool {
		asked = true
		return lease.KeepsCritical(p.group.View(), &b.Items[0])
	})
	switch {
	case asked && err == nil: // its own lane has refused it, the last one not
		lane = admit.Critical
		p.w.check.load.ordered(p, admit.Decision{At: d.lanes.Now(), Lane: lane, Why: admit.NumReasons})
	default:
		d.decided(lane, err)
	}
	if err != nil {
		for i := range b.Items {
			b.Items[i].Kind = incumbent.Overloaded
		}
		b.RetryAfter = refusal(err).RetryAfter
		b.Done(b)
		return
	}
	leave, done := d.takeIn(lane, place), b.Done
	b.Done = func(b *lease.Batch) { leave(); done(b) }
	p.leases.Extend(b)
}

// decided takes note of a decision.
func (d *entrance) decided(l admit.Lane, err error) {
	c := d.p.w.check.load
	if err != nil {
		c.refused(d.p, l, refusal(err))
	}
	c.ordered(d.p, admit.Decision{At: d.lanes.Now(), Lane: l, Why: admit.ReasonOf(l, err)})
}

// whoIs is for whom work is done, of whom this principal asks for it. The keys of
// admit have a seed of the process, which would make no two runs alike.
func whoIs(principal string) admit.Who {
	h := fnv.New32a()
	_, _ = h.Write([]byte(principal)) // a hash takes everything
	return admit.Who{Client: admit.Key(h.Sum32()) | 1<<31}
}

// callOf is the row of a command in the table of calls.
func callOf(cmd core.Command) calls.Call {
	switch c := cmd.(type) {
	case leases.ClaimCommand:
		return calls.Claim
	case leases.ReleaseCommand:
		return calls.Release
	case leases.LeaveQueueCommand:
		return calls.LeaveQueue
	case leases.RevokeCommand:
		return calls.Revoke
	case leases.TransferCommand:
		return calls.Transfer
	case leases.PinCommand:
		return calls.Pin
	case leases.UnpinCommand:
		return calls.Unpin
	case core.OpenSessionCommand:
		return calls.OpenSession
	case core.CloseSessionCommand:
		return calls.CloseSession
	case kv.Command:
		return callOfKey(c)
	case catalog.Command:
		if c.Verb == catalog.Deregister {
			return calls.Deregister
		}
		return calls.Register
	case policy.Command:
		return calls.Policies
	case settings.Command:
		return calls.Settings
	case tableCall:
		return calls.TransactTables
	case core.Txn:
		return calls.Txn
	}
	return calls.DefineSchema
}

func callOfKey(c kv.Command) calls.Call {
	switch c.Verb {
	case kv.Acquire:
		return calls.LockKey
	case kv.Release:
		return calls.UnlockKey
	case kv.Remove, kv.RemoveTree:
		return calls.DeleteKey
	}
	return calls.PutKey
}

// refusal is what a lane has refused with.
func refusal(err error) *incumbent.Error {
	e, _ := errors.AsType[*incumbent.Error](err)
	return e
}
