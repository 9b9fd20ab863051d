package sim

import (
	"errors"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/watch"
)

// historyBytes is what a member keeps for watchers: some hundreds of changes.
const historyBytes = 300_000

// errPower is what every call of a machine gets whose power has failed.
var errPower = errors.New("sim: the power has failed")

// process is one life of a server.
type process struct {
	m     *member
	w     *world
	life  int
	began incumbent.Index // what had been acknowledged to anybody when it began

	gone   bool      // it has ended
	dead   bool      // it ends: its power has failed or it was killed
	frozen bool      // stopped by a signal
	missed []func()  // what it would have done meanwhile, in order
	muted  bool      // it has fallen silent by itself
	alarm  time.Time // when the node wants a turn, as planned
	crash  int       // file operations until the power fails; 0: not planned

	group  *engine.Manual
	node   *node.Manual  // the group's
	leases *lease.Manual // the group's

	opened        time.Duration
	door          *entrance       // nil: in a run without a flood everything is let in
	subscriptions []*subscription // of agents, oldest first

	working, applying, reading, telling bool // an event for it is planned
	saving                              bool // the work under way on files is a snapshot
	disk                                *job // work on files under way
	socket                              []frame
}

// frame is something that has arrived at a socket and was not read yet.
type frame struct {
	from int // which connection: frames of one stay in order
	do   func()
}

// open reads the disk and begins.
func (p *process) open() error {
	fs := vfs.Inject(p.m.disk, p.fileCall)
	p.began, p.opened = p.w.check.acked, p.w.now
	if p.w.cfg.Flood != nil {
		p.enters()
	}
	group, err := engine.OpenManual(engine.Config{
		Lease: p.leaseOptions(), Watch: p.watchConfig(), Applied: p.applied, Restored: func(v *core.View) { p.w.check.restored(p, v) },
		Leading: func(uint64) { p.w.aimLead(p) },
		Between: func(r lease.Raft) lease.Raft { return proxy{r, p} },
	}, p.nodeConfig(fs))
	if err != nil {
		return err
	}
	p.group, p.node, p.leases = group, group.Replica, group.Clock
	p.m.id = p.node.Status().Member
	p.w.note("member %d up, life %d, index %d, held %d", p.m.at, p.life, p.group.View().Index(), leases.Of(p.group.View()).HeldCount())
	p.w.check.recovered(p)
	p.w.net.opened(p.m)
	p.work()
	p.watchDoors()
	p.every(tick, func() { p.node.Turn(true) })
	p.every(tick, func() { p.leases.Turn() })
	p.every(snapshotMean, p.snapshot)
	p.watchMemory()
	return nil
}

func (p *process) leaseOptions() lease.Options {
	o := lease.Options{
		Config: lease.Config{Return: returnTime}, Clock: leaseClock{p}, Barrier: p.barrier,
		Wall: func() time.Time { return nodeClock{p.m}.Now().Add(p.m.wall) },
	}
	if d := p.door; d != nil {
		o.Config.Pressure, o.Config.Press, o.Config.Busy = d.lanes.Pressure, d.lanes.Press, d.lanes.Busy
	}
	if len(p.w.members) > 1 {
		o.Peers, o.Self, o.Boot = transport{p}, p.m.id, p.m.id<<16|uint64(p.life)
	}
	return o
}

func (p *process) nodeConfig(fs vfs.FS) node.Config {
	cfg := node.Config{
		FS: fs, Dir: "data", Schema: core.SchemaVersion, Clock: nodeClock{p.m},
		SegmentBytes: node.MinSegmentBytes, DiskReserve: -1,
		TailEntries: tailEntries,
		Events: node.Events{
			RoleChanged: func(r node.Role) {
				p.w.check.role(p.m, r)
				p.w.check.load.restBeats(p)
			},
			Applied: func(a node.AppliedEntries) {
				if p.door != nil {
					p.door.lanes.Applied(a.Waited)
				}
			},
			Mute: func(muted bool) { p.w.net.mute(p, muted) },
		},
	}
	if len(p.w.members) > 1 {
		cfg.Transport = transport{p}
		cfg.Join = &node.Identity{Cluster: p.w.cluster, Member: p.m.id}
	}
	return cfg
}

// fileCall is asked before every call on the disk.
func (p *process) fileCall(c vfs.Call) vfs.Fault {
	if p.crash > 0 {
		if p.crash--; p.crash == 0 {
			p.dead = true
		}
	}
	switch {
	case p.dead:
	case c.Op == vfs.OpSync:
		p.wait(p.m.flushes())
	case c.Op == vfs.OpWrite && p.saving:
		p.wait(p.w.upTo(saveTakes))
	}
	switch {
	case p.dead:
		return vfs.Fault{Err: errPower}
	case c.Op == vfs.OpSync && p.m.broken && p.node != nil:
		p.m.broken = false
		return vfs.Fault{Err: syscall.EIO}
	}
	return vfs.Fault{}
}

// watchConfig keeps a history so short that slow watchers are cut off.
func (p *process) watchConfig() watch.Config {
	return watch.Config{
		Limits: watch.Limits{HistoryBytes: historyBytes},
		Now:    nodeClock{p.m}.Now,
		Random: p.w.rng.Int64N,
		AfterFunc: func(d time.Duration, f func()) func() bool {
			stopped := false
			leaseClock{p}.AfterFunc(d, func() {
				if !stopped {
					stopped = true
					f()
				}
			})
			return func() bool { was := stopped; stopped = true; return !was }
		},
	}
}

// proxy sees what the leader's clock hands to the node.
type proxy struct {
	lease.Raft
	p *process
}

// Propose implements lease.Raft.
func (x proxy) Propose(ps ...node.Proposal) {
	x.p.w.aim(x.p, ps)
	x.p.w.check.raised(ps)
	x.p.w.check.load.proposed(x.p, ps)
	x.Raft.Propose(ps...)
}

// transport hands the node's messages to the network.
type transport struct{ p *process }

// Send implements node.Transport.
func (t transport) Send(ms []node.Message) {
	for i := range ms {
		t.p.w.check.spoken(t.p, ms[i].Raft)
		t.p.w.check.load.sent(t.p, &ms[i])
		t.p.w.net.send(t.p, &ms[i])
	}
}

// SendApps implements lease.Peers.
func (t transport) SendApps(to uint64, frames [][]byte) (taken int) {
	for taken < len(frames) && t.sendApp(to, frames[taken]) {
		taken++
	}
	return taken
}

func (t transport) sendApp(to uint64, frame []byte) bool {
	m := t.p.w.member(to)
	if m == nil || m == t.p.m || t.p.gone {
		return false
	}
	from := t.p.m.id
	t.p.w.check.vouched(t.p, to, frame)
	return t.p.w.net.carry(t.p, m, node.Control, func(q *process) {
		if q.m.id == to {
			q.leases.Receive(from, frame)
		}
	})
}

// watchDoors checks, at the moment the doors open, what they will show.
func (p *process) watchDoors() {
	p.step(func() {
		if !p.ready() {
			p.w.after(tick, func() { p.while(p.watchDoors) })
			return
		}
		p.w.check.ready(p)
	})
}

// every does something at intervals for as long as this process lives.
func (p *process) every(d time.Duration, do func()) {
	p.w.after(time.Duration(float64(d)/p.m.rate), func() {
		p.while(func() {
			if !p.crowded() {
				do()
				p.work()
			} else {
				p.step(func() {
					do()
					p.work()
				})
			}
			p.every(d, do)
		})
	})
}

// crowded reports whether goroutines have to wait for the processor.
func (p *process) crowded() bool { return p.door != nil && p.door.cpu.busy() }

// while does something unless the process is gone; a frozen one does it when it
// goes on.
func (p *process) while(do func()) {
	switch {
	case p.gone:
	case p.frozen:
		p.missed = append(p.missed, do)
	default:
		do()
		if p.dead && !p.gone {
			p.end()
			p.m.powerFailed()
		}
	}
}

// freeze stops the process, as SIGSTOP does.
func (p *process) freeze(d time.Duration) {
	if p.frozen {
		return
	}
	p.frozen = true
	p.w.check.load.restBeats(p)
	p.w.note("member %d stands still for %v", p.m.at, d)
	p.w.after(d, p.thaw)
}

// thaw lets it go on, with what it would have done in any order: its goroutines
// wake as the system pleases.
func (p *process) thaw() {
	if !p.frozen {
		return
	}
	p.frozen = false
	p.w.check.load.restBeats(p)
	p.w.note("member %d goes on", p.m.at)
	missed := p.missed
	p.missed = nil
	for _, do := range missed {
		p.step(do)
	}
}

// end ends the process. Whoever waits hears nothing.
func (p *process) end() {
	p.gone, p.dead = true, true
	if p.disk != nil {
		p.disk.abandon()
	}
	p.m.proc = nil
}

// step plans something that a goroutine does next.
func (p *process) step(do func()) {
	takes := p.w.upTo(turnTakes)
	if p.crowded() {
		takes += p.w.upTo(sliceMost)
	}
	p.w.after(takes, func() { p.while(do) })
}

// work plans a turn of whatever has something to do.
func (p *process) work() {
	if p.gone || p.node == nil {
		return
	}
	p.setAlarm()
	loop, appender, applier := p.node.Busy()
	if (loop || p.leases.Busy()) && !p.working {
		p.working = true
		p.step(func() {
			p.working = false
			p.leases.Turn()
			p.node.Turn(false)
			p.work()
		})
	}
	if p.group.Hub().Busy() && !p.telling {
		p.telling = true
		p.step(func() {
			p.telling = false
			p.group.Hub().Turn()
			p.tellWatchers()
			p.work()
		})
	}
	if appender && p.disk == nil {
		p.onDisk(func() error {
			_, err := p.node.Append()
			return err
		})
	}
	if applier && !p.applying {
		p.applying = true
		p.step(func() {
			p.applying = false
			_, err := p.node.Apply()
			p.must(err)
			p.work()
		})
	}
}

// setAlarm plans the turn that the node wants between two ticks.
func (p *process) setAlarm() {
	at, wanted := p.node.Wake()
	if !wanted || at.Equal(p.alarm) {
		return
	}
	p.alarm = at
	d := max(0, at.Sub(nodeClock{p.m}.Now()))
	p.w.after(time.Duration(float64(d)/p.m.rate)+1, func() {
		p.while(func() {
			p.node.Turn(false)
			p.work()
		})
	})
}

func (p *process) snapshot() {
	if p.disk != nil {
		return // another time
	}
	p.w.res.Snapshots++
	p.onDisk(func() error {
		p.saving = p.door != nil
		defer func() { p.saving = false }()
		if err := p.node.TakeSnapshot(); !vfs.IsNoSpace(err) {
			return err
		}
		return nil
	})
}

// must ends the process on an error that the disk was made to give, and the run
// on any other.
func (p *process) must(err error) {
	switch {
	case err == nil || p.dead:
	case errors.Is(err, syscall.EIO):
		p.w.note("member %d stops: %v", p.m.at, err)
		p.end()
		p.w.net.closed(p.m)
		p.m.disk = p.m.disk.CrashClone(p.w.rng) // what a failed flush left is anybody's guess
		p.w.after(p.w.upTo(bootTakes), p.m.boot)
	default:
		p.w.must(err)
	}
}

// arrive takes a frame into the socket; the process reads it when it runs. A
// frame to a process that is gone is lost.
func (p *process) arrive(f frame) {
	if p.gone {
		return
	}
	if p.door != nil && f.from >= firstAgent {
		p.door.cpu.arrive(f)
		return
	}
	p.socket = append(p.socket, f)
	p.read()
}

// barrierFrom marks a frame that is a barrier.
const barrierFrom = -1

// barrier calls done once every frame that has arrived until now has been read.
func (p *process) barrier(done func()) {
	if d := p.door; d != nil {
		all := done
		done = func() { d.cpu.arrive(frame{barrierFrom, all}) } // behind what clients have sent
	}
	p.socket = append(p.socket, frame{barrierFrom, done})
	p.read()
}

// read plans the reading of all sockets. What comes from one is read in order,
// one socket before or after another.
func (p *process) read() {
	if p.reading {
		return
	}
	p.reading = true
	p.step(func() {
		p.reading = false
		fs := p.socket
		p.socket = nil
		for len(fs) > 0 {
			n := 0
			for n < len(fs) && fs[n].from != barrierFrom {
				n++
			}
			p.readSome(fs[:n])
			if n < len(fs) {
				fs[n].do()
				n++
			}
			fs = fs[n:]
		}
		p.work()
	})
}

// readSome reads what has arrived between two barriers, socket by socket.
func (p *process) readSome(fs []frame) {
	for len(fs) > 0 {
		from := fs[p.w.rng.IntN(len(fs))].from
		rest := fs[:0:0]
		for _, f := range fs {
			if f.from == from {
				f.do()
				continue
			}
			rest = append(rest, f)
		}
		fs = rest
	}
}

// reply sends something to an agent. It arrives even if the process dies after.
func (p *process) reply(do func()) {
	if !p.gone && !p.w.lose() {
		p.w.after(p.w.upTo(networkTakes), do)
	}
}

// ready reports whether the doors are open.
func (p *process) ready() bool {
	if p.gone || p.node == nil {
		return false
	}
	select {
	case <-p.node.Ready():
		return true
	default:
		return false
	}
}
