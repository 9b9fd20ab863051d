package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/watch"
)

// Times of a run with a flood: all is well, the flood, all is well again.
const (
	floodBegins    = 24 * time.Second
	floodLasts     = 12 * time.Second
	recoversWithin = 30 * time.Second // all is as it was before (guarantee 42)
	compared       = 8 * time.Second  // before the flood, and once that has passed
	floodRun       = floodBegins + floodLasts + recoversWithin + compared + 2*time.Second
)

// What comes in a flood.
const (
	floodOf     = "flood" // namespace of its keys and leases, and kind of its clients' principals
	floodKeys   = 8
	canServe    = 400                    // requests a second, of the mean cost, by one member
	rudePace    = 270 * time.Millisecond // of a client that comes back at once and is held back
	demandLasts = 5 * time.Second        // a client wants something for so long
	hastyMost   = time.Second            // and a hasty one, as it tells the member, at most
	floodThinks = 50 * time.Millisecond  // between two things that a client wants, at most
	floodTTL    = 2 * time.Second        // of what is claimed and opened
	ballastFor  = 3 * time.Second        // something else takes the memory
)

// Faults of a flood.
const (
	FloodKills      = "kill"      // the leader's process
	FloodPauses     = "pause"     // it stands still
	FloodPartitions = "partition" // the leader is cut off
	FloodSlows      = "slow"      // the disk of a follower, and its way to others
)

// Flood is a time in which more is asked than can be served.
type Flood struct {
	Times  int          // as much as those that are asked can serve
	Of     []admit.Lane // what is asked for: each as often as it is there
	One    bool         // one member is asked, and not all
	Leader bool         // and that is the leader, whose word the others are to pass on
	Fault  string       // what goes wrong meanwhile; "": nothing
	Memory bool         // memory is short for a part of the time
	// Reconnect: all clients log in at once, and the leader is killed just before, so that
	// those that hold leases are among them.
	Reconnect bool
}

// FloodResult is what floods did.
type FloodResult struct {
	Runs      int
	Asked     int // things that clients wanted
	Served    int // of them
	Refusals  int
	GivenUp   int // things that clients wanted no longer
	Late      int // requests whose deadline had passed
	Kept      int // extensions of what is held throughout that were answered
	Refused   int // and that were refused
	Streams   int // opened after one had ended
	Reasons   [admit.NumReasons]int
	Pressed   int           // decisions of members that were compared with the leader's pressure
	Before    int           // steady requests that were served, of those in the time before
	After     int           // and after
	Longest   time.Duration // that work waited for the processor
	HeldBack  int           // refusals at once
	MostBytes int64
	Beats     int // between which the time was looked at
}

// flood is the part of a run.
type flood struct {
	Flood
	w       *world
	on      bool
	at      *member // that is asked; nil: all
	keepers []*keeper
}

// floods plans the flood of a run, if it has one.
func (w *world) floods() {
	if w.cfg.Flood == nil {
		return
	}
	w.res.Floods.Runs = 1
	f := &flood{Flood: *w.cfg.Flood, w: w}
	w.check.load.flood = f
	f.beside()
	w.after(floodBegins, f.begin)
	w.after(floodBegins+floodLasts, f.end)
	w.after(floodBegins+floodLasts+recoversWithin+compared, w.check.load.recovered)
}

// manner is how a client takes a refusal.
type manner int

const (
	rude   manner = iota // asks again at once
	polite               // when it was told to
	hasty                // says until when it waits, and does not wait longer
	manners
)

func (f *flood) begin() {
	w := f.w
	w.note("a flood of %d times begins: %v", f.Times, f.Of)
	f.on = true
	asked := len(w.members)
	if f.One {
		f.at, asked = w.anyone(), 1
	}
	if m := w.leader(); f.Leader && m != nil {
		f.at = m
	}
	n := f.Times * canServe * asked * int(rudePace/time.Millisecond) / 1000
	for i := range n {
		x := &flooder{f: f, a: w.besides(w.nextID() + i), manner: manner(i % int(manners)), lane: f.Of[i%len(f.Of)]}
		w.after(w.upTo(floodThinks), x.ask)
	}
	w.after(w.upTo(floodLasts/4)+time.Second, f.breaks)
	if f.Reconnect {
		f.disconnect()
	}
	if f.Memory {
		w.after(w.upTo(floodLasts/3)+2*time.Second, f.fillMemory)
	}
}

func (f *flood) end() {
	f.w.note("the flood is over")
	f.on = false
}

// disconnect kills the leader, as in a failover, and ends all other connections.
func (f *flood) disconnect() {
	if m := f.w.leader(); m != nil {
		f.w.check.load.trouble(floodLasts)
		m.kill(f.w.upTo(bootTakes))
	}
	for _, k := range f.keepers {
		k.on = nil
	}
}

// fillMemory has something else take most of what is left of the memory, on the members
// that are asked.
func (f *flood) fillMemory() {
	for _, m := range f.w.members {
		if p := m.proc; p != nil && (f.at == nil || f.at == m) {
			share := 0.82 + 0.15*f.w.rng.Float64()
			p.door.ballast = max(0, int64(share*memoryLimit)-p.memory())
			f.w.note("memory of member %d is short: %.3f", m.at, share)
			f.w.after(ballastFor, func() { p.door.ballast = 0 })
		}
	}
}

// breaks lets the fault happen.
func (f *flood) breaks() {
	w := f.w
	m := w.leader()
	if m == nil || f.Fault == "" {
		return
	}
	w.note("fault %s in the flood", f.Fault)
	w.res.Faults["flood-"+f.Fault]++
	const lasts = 3 * time.Second
	d := w.upTo(lasts)
	w.check.load.trouble(d + lasts)
	switch f.Fault {
	case FloodKills:
		m.kill(w.upTo(bootTakes))
	case FloodPauses:
		m.proc.freeze(d)
	case FloodPartitions:
		w.cutOff([]*member{m}, true)
		w.lasting(d, func() { w.cutOff([]*member{m}, false) })
	case FloodSlows:
		w.check.load.trouble(floodLasts)
		for _, o := range w.members {
			if o != m {
				o.slow = w.upTo(200 * time.Millisecond)
				w.net.lag[[2]int{m.at, o.at}] = w.upTo(100 * time.Millisecond)
				w.lasting(floodLasts/2, func() { o.slow = 0; delete(w.net.lag, [2]int{m.at, o.at}) })
				return
			}
		}
	}
}

// flooder is a client of the flood: it wants one thing after another.
type flooder struct {
	f      *flood
	a      *agent
	manner manner
	lane   admit.Lane
	by     time.Duration // it wants it until then
	n      int           // of what it wants
}

// ask begins to want something.
func (x *flooder) ask() {
	w := x.f.w
	if !x.f.on {
		return
	}
	w.res.Floods.Asked++
	x.n++
	x.by = w.now + demandLasts
	if x.manner == hasty {
		x.by = w.now + w.upTo(hastyMost)
	}
	x.attempt()
}

func (x *flooder) attempt() {
	w := x.f.w
	switch {
	case !x.f.on:
		return
	case w.now >= x.by:
		w.res.Floods.GivenUp++
		x.thinks()
		return
	}
	if x.a.at = x.f.at; x.f.at == nil || x.f.at.proc == nil {
		x.a.at = w.anyone()
	}
	x.a.call(func(p *process, reply func(func())) {
		x.send(p, func(err *incumbent.Error) { reply(func() { x.answered(err) }) })
	}, func() { x.again(w.upTo(returns)) })
}

func (x *flooder) again(d time.Duration) { x.a.later(d, x.attempt) }
func (x *flooder) thinks()               { x.a.later(x.f.w.upTo(floodThinks), x.ask) }

// answered goes on with what it was told.
func (x *flooder) answered(err *incumbent.Error) {
	w := x.f.w
	switch {
	case err == nil || !err.Kind.Transient() && err.Kind != incumbent.Unknown && err.Kind != incumbent.DeadlineExceeded:
		w.res.Floods.Served++
		if !x.f.Reconnect { // who is back is back
			x.thinks()
		}
	case err.Kind == incumbent.Overloaded:
		w.res.Floods.Refusals++
		x.again(x.pause(err))
	case err.Kind == incumbent.DeadlineExceeded:
		w.res.Floods.Late++
		x.thinks()
	default:
		x.again(w.upTo(returns))
	}
}

// pause is when it asks again after a refusal.
func (x *flooder) pause(err *incumbent.Error) time.Duration {
	w := x.f.w
	if x.manner == rude {
		return w.upTo(time.Millisecond)
	}
	return w.hint(x.lane, err)
}

// hint is when a client comes back that obeys. What the lanes say follows from the seed;
// bounds behind them draw what they say by themselves: of that the seed draws its own.
func (w *world) hint(l admit.Lane, err *incumbent.Error) time.Duration {
	if admit.ReasonOf(l, err) == admit.NumReasons {
		return w.upTo(time.Second)
	}
	return err.RetryAfter
}

// send makes the request at a member, which calls done with what came of it.
func (x *flooder) send(p *process, done func(*incumbent.Error)) {
	w := x.f.w
	var deadline time.Time
	if x.manner == hasty {
		deadline = nodeClock{p.m}.Now().Add(x.by - w.now)
	}
	switch x.lane {
	case admit.Logins:
		p.login(x.a.principal(), deadline, done)
	case admit.Watches:
		p.watchOnce(x.a.principal(), deadline, done)
	case admit.Reads:
		p.look(x.a.principal(), admit.Reads, deadline, func(_ *core.View, err error) { done(asError(err)) })
	case admit.Extensions:
		name := lease.Named{Name: x.name(), Holder: x.a.holder()}
		p.extend(&lease.Batch{Items: []lease.Extension{{Named: &name}}, Done: func(b *lease.Batch) {
			if k := b.Items[0].Kind; k != incumbent.OK {
				done(&incumbent.Error{Kind: k, RetryAfter: b.RetryAfter})
				return
			}
			done(nil)
		}})
	default:
		x.submit(p, x.command(), deadline, done)
	}
}

func asError(err error) *incumbent.Error {
	if err == nil {
		return nil
	}
	return failed(err).Err
}

func (x *flooder) name() incumbent.Name {
	return incumbent.Name{Namespace: floodOf, Model: incumbent.DefaultModel, Lease: fmt.Sprint(x.a.id)}
}

// command is what it asks for where that is a command.
func (x *flooder) command() core.Command {
	w := x.f.w
	put := func() core.Command {
		return kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: floodOf, Name: fmt.Sprint(w.rng.IntN(floodKeys))}, Value: []byte("v")}
	}
	switch x.lane {
	case admit.Claims:
		switch n := w.rng.IntN(4); {
		case n == 0:
			return core.OpenSessionCommand{ID: w.someSession(), TTL: floodTTL}
		case n == 1:
			return leases.ClaimCommand{Name: x.name(), Holder: x.a.holder(), TTL: floodTTL}
		default: // of another, which is answered without the log
			return leases.ClaimCommand{Name: x.f.keepers[w.rng.IntN(len(x.f.keepers))].a.want, Holder: x.a.holder(), TTL: floodTTL}
		}
	case admit.Transactions:
		return core.TxnCommand{Then: []core.Command{put(), put()}}.Pack()
	case admit.Releases:
		return leases.ReleaseCommand{Name: x.name(), Holder: x.a.holder()}
	}
	return put()
}

func (w *world) someSession() (id incumbent.SessionID) {
	binary.BigEndian.PutUint64(id[:8], w.rng.Uint64())
	id[15] = 1
	return id
}

// submit hands a command to a member.
func (x *flooder) submit(p *process, cmd core.Command, deadline time.Time, done func(*incumbent.Error)) {
	w := x.f.w
	w.calls++
	s := &submission{number: w.calls, cmd: cmd}
	bound := w.check.acked
	w.check.load.until(s.number, deadline)
	p.submit(lease.Call{Origin: core.Origin{Address: s.mark(), Principal: x.a.principal()}, Deadline: deadline}, cmd, true, func(r core.Result) {
		w.check.answered(p, s, r, bound)
		done(r.Err)
	})
}

// openStream opens a stream of the native door, which takes a handshake and has no lane: see
// admit.Controller.Holds.
func (p *process) openStream(done func()) {
	if p.door == nil {
		done()
		return
	}
	p.door.cpu.add(workTakes[admit.Logins], done)
}

// login opens a connection through a door that can refuse it before its handshake.
func (p *process) login(principal string, deadline time.Time, done func(*incumbent.Error)) {
	p.admit(request{whoIs(principal), admit.Logins, deadline}, func(leave func()) {
		leave()
		done(nil)
	}, done)
}

// watchOnce begins to watch a lease that nobody claims, and ends that.
func (p *process) watchOnce(principal string, deadline time.Time, done func(*incumbent.Error)) {
	p.admit(request{whoIs(principal), admit.Watches, deadline}, func(leave func()) {
		leave() // what watches holds no place
		hub := p.group.Hub()
		r, err := hub.Subscribe(hub.Index(), func() {}, watch.Exact(keyTopic(kv.Key{Namespace: floodOf, Name: "watched"})))
		if err != nil {
			done(asError(err))
			return
		}
		r.Close()
		done(nil)
	}, done)
}
