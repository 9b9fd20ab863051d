package bench

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Operations besides those of a fan-out.
const (
	wakeOp    = "wake-up"       // one answer to one watcher, from when its newest change was due
	blockedOp = "blocked again" // from when the leader was killed, of the watchers that this touched
)

// Times of watchers.
const (
	pollWait   = 5 * time.Minute        // Consul's own
	pollAgain  = 50 * time.Millisecond  // after an answer that is an error, or a member that is gone
	retryEvery = 100 * time.Millisecond // of a change that failed
)

// consulChangers is how many changes are under way at most: those of one instance do
// not overtake one another where there are more instances.
const consulChangers = 32

// consulWatch is a service whose instances change before watchers with a connection
// each, by blocking queries.
type consulWatch struct {
	*registry
	wakes *opRecord
	away  *opRecord // queries that were turned away
	spots []int     // members where watchers are

	queries []*versions // one for each filter
	woken   atomic.Uint64
	bytes   atomic.Uint64
	idle    atomic.Uint64 // answers with nothing new before the wait was over
	missed  atomic.Int64  // changes made while a watcher that is late did not listen, but one
	killed  atomic.Int64  // when the leader was, in ns since the run began; 0: it was not

	mu     sync.Mutex // protects sample
	sample []byte     // a body as it was sent
}

// playConsulWatch plays the steps, each with watchers of its own, and the bare loop.
func playConsulWatch(ctx context.Context, r *run) error {
	servers, err := r.consulDoors(ctx)
	if err != nil {
		return err
	}
	w := &consulWatch{
		registry: &registry{run: r, how: r.sc.Catalog, service: "web-" + newTag(), servers: servers, home: -1},
		wakes:    r.rec.op(wakeOp), away: r.rec.op(turnedAway),
	}
	if err := w.place(ctx); err != nil {
		return err
	}
	if w.how.Change == changeTTL {
		w.home = 0 // a check is updated where it was registered
	}
	missing := 0.0
	for _, n := range w.how.Instances {
		if err := w.grow(ctx, n); err != nil {
			return err
		}
		if err := w.step(ctx); err != nil {
			return err
		}
		missing += r.noted("undelivered")
	}
	r.fact("undelivered", missing)
	r.notePeak()
	if r.sc.Bare == nil {
		return nil
	}
	return r.besideBareLoop(ctx, r.sc.Closed.Workers, w.sample, r.noted("wakeups_per_second"), r.noted("cpu_us_per_wakeup"))
}

// place says where watchers and changes are.
func (w *consulWatch) place(ctx context.Context) error {
	for i := range w.servers {
		w.spots = append(w.spots, i)
	}
	if !w.how.Away || len(w.servers) == 1 {
		return nil
	}
	lead, err := w.leads(ctx)
	if err != nil {
		return err
	}
	w.home, w.spots = lead, append(w.spots[:lead], w.spots[lead+1:]...)
	return nil
}

// step watches the instances that there are while they change.
func (w *consulWatch) step(ctx context.Context) error {
	w.queries = nil
	for range max(1, w.how.Filters) {
		w.queries = append(w.queries, &versions{known: map[uint64]*version{}})
	}
	w.missed.Store(0)
	conns, err := w.dialAll(ctx, consulChangers)
	defer func() { closeAll(conns) }() // some are others by then
	if err != nil {
		return err
	}
	system := FanOut{
		Put: func(ctx context.Context, changer int, value []byte) error {
			return w.put(ctx, &conns[changer], changer, numberOf(value))
		},
		Poll: w.poll, Changers: consulChangers, Measure: func() func() { return w.measureStep(ctx) },
	}
	if w.how.Filters > 0 {
		system.Concerns, system.Audience = w.concerns, w.sc.Closed.Workers/w.how.Filters
	}
	err = w.fanOut(ctx, system)
	w.base += int(w.sc.Closed.changes())
	w.run.step(w.have, "")
	return err
}

// put makes a change. Where the leader is killed it is made again until it is there.
func (w *consulWatch) put(ctx context.Context, conn **httpConn, i, n int) error {
	for {
		stop := context.AfterFunc(ctx, (*conn).close)
		err := w.change(*conn, n)
		stop()
		if err == nil || w.how.Kill == 0 || ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, retryEvery); err != nil {
			return err
		}
		(*conn).close()
		for try := i; ctx.Err() == nil; try++ {
			c, err := w.dial(ctx, try)
			if err == nil {
				*conn = c
				break
			}
			_ = sleep(ctx, pollAgain) // the loop's condition says whether it is over
		}
	}
}

// measureStep notes what a step costs.
func (w *consulWatch) measureStep(ctx context.Context) func() {
	killed := func() {}
	if after := time.Duration(w.how.Kill); after > 0 {
		killed = w.killAfter(ctx, after, func() { w.killed.Store(int64(w.now())) })
	}
	before, each, own, began := w.meter.cpu(), w.meter.read(), selfCPU(), w.now()
	woken, bytes, idle, missed := w.woken.Load(), w.bytes.Load(), w.idle.Load(), w.missed.Load()
	return func() {
		killed()
		took, used := (w.now() - began).Seconds(), w.meter.cpu()-before
		wakes, sent := float64(w.woken.Load()-woken), float64(w.bytes.Load()-bytes)
		offered := took*w.sc.Closed.Rate*float64(w.sc.Closed.Workers/len(w.queries)) - float64(w.missed.Load()-missed)
		changes := took * w.sc.Closed.Rate
		goroutines := w.goroutines(ctx)
		for name, v := range map[string]float64{
			"wakeups_per_second": wakes / took, "offered_wakeups_per_second": offered / took, "wakeup_share": wakes / offered,
			"cpu_us_per_wakeup": float64(used.Microseconds()) / max(1, wakes), "client_cpu_us_per_wakeup": float64((selfCPU() - own).Microseconds()) / max(1, wakes),
			"cpu_us_per_change": float64(used.Microseconds()) / changes, "cpu_us_per_megabyte": float64(used.Microseconds()) / max(1, sent) * (1 << 20),
			"megabytes_per_second": sent / took / (1 << 20), "answer_bytes": sent / max(1, wakes), "server_cores": used.Seconds() / took,
			"answers_with_nothing_new": float64(w.idle.Load() - idle), "servers_rss_bytes": float64(w.rss()), "goroutines": goroutines,
		} {
			w.fact(name, v)
			if len(w.how.Instances) > 1 {
				w.fact(strconv.Itoa(w.have)+" instances: "+name, v)
			}
		}
		for i, p := range w.meter.read() {
			if len(each) > 1 && i < len(each) {
				w.fact("cores_of_server_"+strconv.Itoa(i+1), (p.CPU-each[i].CPU).Seconds()/took)
			}
		}
		if w.home >= 0 && len(each) > 1 {
			w.fact("cores_of_leader", (w.meter.read()[w.home].CPU-each[w.home].CPU).Seconds()/took)
		}
	}
}

// poller is one watcher.
type poller struct {
	*consulWatch
	i     int
	query *versions
	knows Knows
	began func()

	conn  *httpConn
	at    int // place in spots
	index uint64
	body  []byte
	zip   unzipper
	asked time.Duration
	// touched: its connection or its query ended with the leader, and it has not had a
	// good answer since; again is when it asked for that.
	touched bool
}

// poll is one watcher's life.
func (w *consulWatch) poll(ctx context.Context, i int, began func(), knows Knows) error {
	p := &poller{consulWatch: w, i: i, query: w.queries[i%len(w.queries)], knows: knows, began: began, at: i % len(w.spots)}
	defer func() {
		if p.conn != nil {
			p.conn.close()
		}
	}()
	path := w.path(i)
	wait := "&wait=" + strconv.FormatInt(w.wait().Milliseconds(), 10) + "ms"
	for {
		err := p.once(ctx, path+"index="+strconv.FormatUint(p.index, 10)+wait)
		switch {
		case err == nil:
		case incumbent.KindOf(err) == incumbent.Overloaded:
			w.away.failed(w.now(), 1)
			if err := sleep(ctx, pollAgain+time.Duration(rand.Int64N(int64(pollAgain)))); err != nil {
				return err
			}
		case ctx.Err() != nil || w.killed.Load() == 0:
			return err
		default:
			p.touched = true
			if !isRefusal(err) && p.conn != nil {
				p.conn.close()
				p.conn = nil
				p.at = (p.at + 1) % len(w.spots)
			}
			if err := sleep(ctx, pollAgain); err != nil {
				return err
			}
		}
	}
}

func (w *consulWatch) wait() time.Duration {
	if w.how.Wait > 0 {
		return time.Duration(w.how.Wait)
	}
	return pollWait
}

// once asks once, over a new connection if there is none.
func (p *poller) once(ctx context.Context, path string) error {
	if p.conn == nil {
		conn, err := p.servers[p.spots[p.at]].dial(ctx, p.source(p.i), p.how.Gzip)
		if err != nil {
			p.at = (p.at + 1) % len(p.spots)
			return err
		}
		p.conn = conn
	}
	defer context.AfterFunc(ctx, p.conn.close)()
	p.asked = p.now()
	if err := p.conn.send("GET", path, nil); err != nil {
		return err
	}
	a, err := p.conn.answer()
	if err != nil {
		return err
	}
	if a.status != 200 {
		said, err := p.conn.body(a, nil)
		if err == nil {
			err = a.refusal(path, said)
		}
		return err
	}
	return p.take(ctx, a)
}

// take judges an answer.
func (p *poller) take(ctx context.Context, a httpAnswer) error {
	if a.index == 0 {
		return incumbent.Errorf(incumbent.Corrupt, "an answer names no index")
	}
	if a.index < p.index {
		p.check.Violate("watch %d was told index %d after index %d", p.i, a.index, p.index)
	}
	reads := p.query.first(a.index)
	size, err := int64(0), error(nil)
	if reads {
		p.body, err = p.conn.body(a, p.body[:0])
		size = int64(len(p.body))
	} else {
		size, err = p.conn.skip(a)
	}
	if err != nil {
		return err
	}
	now := p.now()
	if p.touched {
		p.touched = false
		p.rec.op(blockedOp).done(now, p.asked-time.Duration(p.killed.Load()), 1)
	}
	first := p.index == 0
	switch {
	case first:
	case a.index > p.index:
		p.woken.Add(1)
		p.bytes.Add(uint64(size))
	default:
		p.repeated(now)
	}
	p.query.saw(a.index, sight{now, func(upTo int, at time.Duration) {
		if late, measured := p.knows(upTo, at); measured && !first {
			p.wakes.done(at, late, 1)
		}
	}})
	if reads {
		if err := p.read(a); err != nil {
			return err
		}
	}
	p.index = max(p.index, a.index)
	if first {
		p.began()
		return nil
	}
	return p.linger(ctx)
}

// repeated takes note of an answer with nothing new.
func (p *poller) repeated(now time.Duration) {
	if now-p.asked >= p.wait() {
		return
	}
	p.idle.Add(1)
	if p.opts.Peer == "" {
		p.check.Violate("watch %d was told index %d again, %v after it asked", p.i, p.index, now-p.asked)
	}
}

// read looks for the newest change in a body that was read.
func (p *poller) read(a httpAnswer) error {
	p.mu.Lock()
	p.sample = append(p.sample[:0], p.body...)
	p.mu.Unlock()
	plain, err := p.zip.plain(a, p.body)
	if err != nil {
		return incumbent.Errorf(incumbent.Corrupt, "an answer: %w", err)
	}
	newest, count, err := marks(plain)
	if err != nil {
		return err
	}
	if want := p.visible(p.i); p.how.Change == changeRegister && count != want {
		p.check.Violate("watch %d, index %d: %d instances of %d", p.i, a.index, count, want)
	}
	newest -= p.base + 1
	if !p.query.learn(a.index, max(newest, -1)) {
		p.check.Violate("watch %d, index %d: change %d is the newest, after a later one", p.i, a.index, newest)
	}
	return nil
}

// linger has one of the late watchers come back when its index is old already.
func (p *poller) linger(ctx context.Context) error {
	if p.how.Late == 0 || rand.Float64() >= p.how.Late {
		return nil
	}
	pause := time.Duration((0.5 + rand.Float64()) * float64(p.how.Pause))
	p.missed.Add(int64(max(0, pause.Seconds()*p.sc.Closed.Rate-1)))
	return sleep(ctx, pause)
}
