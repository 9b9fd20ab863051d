package sim

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Times of the simulated machines.
const (
	tick         = 50 * time.Millisecond
	election     = 10 * tick
	turnTakes    = 200 * time.Microsecond // a step of a goroutine, at most
	flushTakes   = 5 * time.Millisecond   // an ordinary flush, at most
	slowFlush    = 800 * time.Millisecond // one in slowOneIn
	slowOneIn    = 300
	bootTakes    = 2 * time.Second // after a power failure, at most
	returnTime   = 2 * time.Second // the members' --return-time
	snapshotMean = 20 * time.Second
	saveTakes    = 250 * time.Millisecond // a write of a snapshot, at most, in a run with a flood
	tailEntries  = 16                     // kept for slow followers: those further behind need a snapshot
)

// member is one machine: its disk, its clocks, and the server process on it, if
// one runs.
type member struct {
	w       *world
	at      int      // place in world.members
	id      uint64   // of the member that lives here
	learner bool     // does not vote
	disk    *vfs.Mem // survives the process
	rate    float64  // of its monotonic clock
	wall    time.Duration

	proc  *process
	lives int
	// What is wrong with the disk.
	slow   time.Duration // each flush takes up to so much longer
	hung   time.Duration // no flush ends before
	broken bool          // the next flush fails
	// An earlier copy of it.
	backup     *vfs.Mem
	backedUp   time.Duration
	backupEnds uint64 // what its log has, at most: the last entry, or what is committed
	outcast    bool   // its peers know that it was put back: nobody starts it
}

func newMember(w *world, at int) *member {
	m := &member{w: w, at: at, disk: vfs.NewMem(), rate: 1 + (w.rng.Float64()*2-1)*drift}
	m.newID()
	return m
}

// newID gives the machine a member id that was never used.
func (m *member) newID() {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], m.w.rng.Uint64())
	m.id = binary.BigEndian.Uint64(b[:])>>8<<8 | uint64(m.at+1)
}

// clock is the member's monotonic clock: it runs at its own rate.
func (m *member) clock() time.Duration { return time.Duration(float64(m.w.now) * m.rate) }

// boot starts a process on what the disk holds.
func (m *member) boot() {
	if m.proc != nil || m.outcast || m.w.down {
		return
	}
	m.lives++
	p := &process{m: m, w: m.w, life: m.lives}
	m.proc = p
	if err := p.open(); err != nil {
		p.end()
		switch {
		case p.dead:
			m.powerFailed()
		case incumbent.KindOf(err).Fatal():
			m.w.must(err)
		default: // no space for what a start needs
			m.w.note("member %d cannot start: %v", m.at, err)
			m.w.after(time.Second, m.boot)
		}
	}
}

// powerFailed loses what was not synced as the disk pleases; the machine boots
// later.
func (m *member) powerFailed() {
	m.w.res.Crashes++
	m.w.note("power of member %d fails, life %d", m.at, m.lives)
	m.disk = m.disk.CrashClone(m.w.rng)
	m.w.after(m.w.upTo(bootTakes), m.boot)
}

// kill ends the process as SIGKILL does: the system keeps what was written, and
// closes the sockets.
func (m *member) kill(bootsAfter time.Duration) {
	p := m.proc
	if p == nil {
		return
	}
	m.w.res.Crashes++
	m.w.note("member %d killed, life %d", m.at, m.lives)
	p.end()
	m.w.net.closed(m)
	m.disk = m.disk.Clone()
	m.w.after(bootsAfter, m.boot)
}

// powerOff ends the machine at once.
func (m *member) powerOff() {
	if m.proc == nil {
		return
	}
	m.proc.end()
	m.powerFailed()
}

// flushes says how long the flush under way takes.
func (m *member) flushes() time.Duration {
	takes := m.w.upTo(flushTakes)
	if m.w.chance(slowOneIn) {
		takes = m.w.upTo(slowFlush)
	}
	if m.slow > 0 {
		takes += m.w.upTo(m.slow)
	}
	return max(takes, m.hung-m.w.now)
}

// ready reports whether the member takes calls (its doors are open).
func (m *member) ready() bool { return m.proc != nil && m.proc.ready() }

// nodeClock and leaseClock give the member's time to the code under test.
type nodeClock struct{ m *member }

// Now implements node.Clock.
func (c nodeClock) Now() time.Time { return time.Unix(0, 0).Add(c.m.clock()) }

// Ticker implements node.Clock: the driver counts the ticks.
func (c nodeClock) Ticker(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}

// Sleep implements node.Clock: only work on files sleeps.
func (c nodeClock) Sleep(_ context.Context, d time.Duration) {
	if p := c.m.proc; p != nil {
		p.wait(d)
	}
}

type leaseClock struct{ p *process }

// Now implements lease.Clock.
func (c leaseClock) Now() int64 { return int64(c.p.m.clock()) }

// Until implements lease.Clock.
func (c leaseClock) Until(t time.Time) time.Duration { return t.Sub(nodeClock{c.p.m}.Now()) }

// Ticker implements lease.Clock: the driver looks at the clock.
func (c leaseClock) Ticker(time.Duration) (<-chan time.Time, func()) {
	return nil, func() {}
}

// AfterFunc implements lease.Clock.
func (c leaseClock) AfterFunc(d time.Duration, fn func()) {
	c.p.w.after(time.Duration(float64(d)/c.p.m.rate), func() {
		c.p.while(func() {
			fn()
			c.p.work()
		})
	})
}
