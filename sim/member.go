package sim

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Times of the simulated machine.
const (
	tick         = 50 * time.Millisecond
	turnTakes    = 200 * time.Microsecond // a step of a goroutine, at most
	flushTakes   = 5 * time.Millisecond   // an ordinary flush, at most
	slowFlush    = 800 * time.Millisecond // one in slowOneIn
	slowOneIn    = 300
	bootTakes    = 2 * time.Second // after a power failure, at most
	stallTakes   = 3 * maxTTL      // at most
	returnTime   = 2 * time.Second // the members' --return-time
	snapshotMean = 20 * time.Second
)

// errPower is what every call of a machine gets whose power has failed.
var errPower = errors.New("sim: the power has failed")

// member is one server process on one machine.
type member struct {
	w    *world
	disk *vfs.Mem // survives the process
	rate float64  // of its clock

	life   int // which process; messages to an earlier one are lost
	up     bool
	dead   bool          // power has failed within the call under way
	frozen time.Duration // stopped until then
	crash  int           // file operations until the power fails; 0: not planned

	node    *node.Manual
	leases  *lease.Manual
	machine *machine

	working, flushing, applying bool // an event for it is planned
}

func newMember(w *world) *member {
	return &member{w: w, disk: vfs.NewMem(), rate: 1 + (w.rng.Float64()*2-1)*drift}
}

// clock is the member's monotonic clock: it runs at its own rate.
func (m *member) clock() time.Duration { return time.Duration(float64(m.w.now) * m.rate) }

// nodeClock and leaseClock give the member's time to the code under test.
type nodeClock struct{ m *member }

func (c nodeClock) Now() time.Time { return time.Unix(0, 0).Add(c.m.clock()) }
func (c nodeClock) Ticker(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}
func (c nodeClock) Sleep(context.Context, time.Duration) {}

type leaseClock struct{ m *member }

func (c leaseClock) Now() int64                      { return int64(c.m.clock()) }
func (c leaseClock) Until(t time.Time) time.Duration { return t.Sub(nodeClock(c).Now()) }
func (c leaseClock) Ticker(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}

func (c leaseClock) AfterFunc(d time.Duration, fn func()) {
	life := c.m.life
	c.m.w.after(time.Duration(float64(d)/c.m.rate), func() {
		if c.m.life == life {
			fn()
			c.m.work()
		}
	})
}

// open starts a process on what the disk holds.
func (m *member) open() {
	m.life++
	m.dead = false
	m.up = true
	m.frozen = 0
	m.working, m.flushing, m.applying = false, false, false
	fs := vfs.Inject(m.disk, func(vfs.Call) vfs.Fault {
		if m.crash > 0 {
			if m.crash--; m.crash == 0 {
				m.dead = true
			}
		}
		if m.dead {
			return vfs.Fault{Err: errPower}
		}
		return vfs.Fault{}
	})
	m.machine = &machine{m: m, state: core.New()}
	var err error
	m.leases, err = lease.NewManual(lease.Options{Config: lease.Config{Return: returnTime}, Clock: leaseClock{m}, Wall: nodeClock{m}.Now}, proxy{m})
	if err == nil {
		m.node, err = node.OpenManual(node.Config{FS: fs, Dir: "data", Machine: m.machine, Schema: core.SchemaVersion, Clock: nodeClock{m}, SegmentBytes: node.MinSegmentBytes})
	}
	if m.powerGone() {
		return
	}
	if err != nil {
		m.w.failed = err
		return
	}
	m.w.note("member up, life %d, index %d, held %d", m.life, m.machine.state.Index(), m.machine.state.View().HeldCount())
	m.w.check.recovered(m.machine.state)
	m.work()
	m.watchDoors()
	m.every(tick, func() { m.node.Turn(true) })
	m.every(tick, func() { m.leases.Turn() })
	m.every(snapshotMean, m.snapshot)
}

// proxy breaks the circle of construction: the service is made before the node.
type proxy struct{ m *member }

func (p proxy) Propose(ps ...node.Proposal)      { p.m.node.Propose(ps...) }
func (p proxy) Confirm(done func(uint64, error)) { p.m.node.Confirm(done) }

// watchDoors checks, at the moment the doors open, what they will show.
func (m *member) watchDoors() {
	m.step(turnTakes, func() {
		if !m.ready() {
			m.watchDoors()
			return
		}
		m.w.check.ready(m.machine.state.View())
	})
}

// every does something at intervals for as long as this process lives.
func (m *member) every(d time.Duration, do func()) {
	life := m.life
	m.w.after(d, func() {
		m.while(life, func() {
			do()
			m.work()
			m.every(d, do)
		})
	})
}

// while does something unless the process is gone; a frozen one does it when it
// goes on.
func (m *member) while(life int, do func()) {
	switch {
	case m.life != life || !m.up:
	case m.w.now < m.frozen:
		m.w.after(m.frozen-m.w.now+m.w.upTo(turnTakes), func() { m.while(life, do) })
	default:
		do()
		m.powerGone()
	}
}

// step plans something that takes a little time.
func (m *member) step(takes time.Duration, do func()) {
	life := m.life
	m.w.after(m.w.upTo(takes), func() { m.while(life, do) })
}

// work plans a turn of whatever has something to do.
func (m *member) work() {
	if !m.up || m.node == nil {
		return
	}
	loop, appender, applier := m.node.Busy()
	if (loop || m.leases.Busy()) && !m.working {
		m.working = true
		m.step(turnTakes, func() {
			m.working = false
			m.leases.Turn()
			m.node.Turn(false)
			m.work()
		})
	}
	if appender && !m.flushing {
		m.flushing = true
		takes := flushTakes
		if m.w.chance(slowOneIn) {
			takes = slowFlush
		}
		m.step(takes, func() {
			m.flushing = false
			_, err := m.node.Append()
			m.must(err)
			m.work()
		})
	}
	if applier && !m.applying {
		m.applying = true
		m.step(turnTakes, func() {
			m.applying = false
			_, err := m.node.Apply()
			m.must(err)
			m.work()
		})
	}
}

func (m *member) snapshot() {
	m.w.res.Snapshots++
	m.must(m.node.TakeSnapshot())
}

// must stops the run on an error that is not the power's.
func (m *member) must(err error) {
	if err != nil && !m.dead {
		m.w.failed = err
	}
}

// powerFails makes the power fail after some more operations on files: in the
// middle of an append, of a snapshot, of anything.
func (m *member) powerFails() {
	if m.up && m.crash == 0 {
		m.crash = 1 + m.w.rng.IntN(40)
	}
}

// powerGone takes the consequences if the power has failed: what was not synced
// is lost as the disk pleases, and the machine boots later.
func (m *member) powerGone() bool {
	if !m.dead || !m.up {
		return m.dead
	}
	m.up = false
	m.w.res.Crashes++
	m.w.note("power fails, life %d", m.life)
	m.disk = m.disk.CrashClone(m.w.rng)
	m.w.after(m.w.upTo(bootTakes), m.open)
	return true
}

// stall stops the process for a while, as SIGSTOP does. Its sockets go on
// taking what clients send.
func (m *member) stall() {
	if !m.up || m.w.now < m.frozen {
		return
	}
	m.w.res.Stalls++
	m.frozen = m.w.now + m.w.upTo(stallTakes)
	m.w.note("member stands still until %v", m.frozen)
}

// machine is the replicated state as the member's node drives it.
type machine struct {
	m     *member
	state *core.State
}

// Apply implements node.Machine.
func (x *machine) Apply(cmds [][]byte, results []any) {
	rs := make([]core.Result, len(cmds))
	changes := x.state.Apply(cmds, rs)
	view := x.state.View()
	x.m.w.check.applied(view.Index())
	for i := range changes {
		x.m.w.check.changed(&changes[i])
		x.m.tellOffer(&changes[i])
	}
	x.m.leases.Applied(view, changes)
	for i := range rs {
		results[i] = &rs[i]
	}
}

// Snapshot implements node.Machine.
func (x *machine) Snapshot() func(io.Writer) error { return x.state.View().WriteSnapshot }

// Restore implements node.Machine.
func (x *machine) Restore(r io.Reader) error {
	s, err := core.Restore(r)
	if err != nil {
		return err
	}
	x.state = s
	x.m.leases.Applied(s.View(), nil)
	return nil
}

// Lead implements node.Machine.
func (x *machine) Lead(term uint64) { x.m.leases.Lead(term) }

// Follow implements node.Machine.
func (x *machine) Follow(leader, _ uint64) { x.m.leases.Follow(leader) }

// tellOffer sends an offer to the agent whose session it is for.
func (m *member) tellOffer(c *core.Change) {
	if c.What != core.Offered || c.Lease == nil {
		return
	}
	for _, a := range m.w.agents {
		if a.session == c.Lease.Session && !a.session.IsZero() {
			token, name := c.Lease.Token, c.Lease.Name
			m.reply(func() { a.offered(name, token) })
		}
	}
}

// receive takes a message from an agent into the socket; the process reads it
// when it runs. A message to a process that is gone is lost.
func (m *member) receive(life int, do func()) {
	m.w.after(m.w.upTo(networkTakes), func() {
		m.while(life, func() {
			do()
			m.work()
		})
	})
}

// reply sends something to an agent. It arrives even if the process dies after.
func (m *member) reply(do func()) { m.w.after(m.w.upTo(networkTakes), do) }

// ready reports whether the member takes calls (its doors are open).
func (m *member) ready() bool {
	if !m.up || m.node == nil {
		return false
	}
	select {
	case <-m.node.Ready():
		return true
	default:
		return false
	}
}
