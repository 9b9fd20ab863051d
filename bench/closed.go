package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// closedTTL outlives any closed loop, where the scenario says nothing else:
// nothing expires while it runs.
const closedTTL = time.Hour

// readBuffer is each connection's, on the load tool's side.
const readBuffer = 2048

// closedOp is what the workers of a closed loop do.
type closedOp struct {
	// ops names what is recorded; a worker does them in turn.
	ops []string
	// setup makes what the workers need. May be nil.
	setup func(ctx context.Context, l *closedLoop) error
	// message builds the next request of a worker into its buffer.
	message func(l *closedLoop, w *worker) ([]byte, error)
	// expect is the kind of error an answer shall have; OK for none.
	expect incumbent.Kind
	// again: claims come back to the same names, so that their tokens must rise.
	again bool
	// turns: workers are candidates for the same leases, see turn.go.
	turns bool
	// echo: the other side is a bare echo.
	echo bool
	// callers makes workers that have a connection, and wait for the answer to each of
	// their calls, instead of messages on streams.
	callers func(ctx context.Context, r *run) (*callers, error)
	// door is whose protocol they speak; "": calls of the native API.
	door string
	// batches: a call has as many operations as closed.batch says.
	batches bool
}

var closedOps = map[string]*closedOp{
	"extend":  {ops: []string{"extend"}, setup: claimForWorkers, message: extendMessage},
	"claim":   {ops: []string{"claim", "release"}, message: turnMessage, again: true},
	"create":  {ops: []string{"create"}, message: createMessage},
	"session": {ops: []string{"session"}, message: sessionMessage},
	"refuse":  {ops: []string{"refuse"}, setup: claimForAnother, message: refuseMessage, expect: incumbent.Held},
	"turn":    {ops: []string{"claim", "release", "refused", turnedAway}, message: candidateMessage, turns: true},
	"echo":    {ops: []string{"echo"}, message: echoMessage, echo: true},

	"kv-put":       {ops: []string{"put"}, callers: keyCallers((*keyWorker).change, false)},
	"kv-get":       {ops: []string{"get"}, callers: keyCallers(func(w *keyWorker) error { return w.get(false) }, true)},
	"kv-get-stale": {ops: []string{"get"}, callers: keyCallers(func(w *keyWorker) error { return w.get(true) }, true)},
	"kv-create":    {ops: []string{"create"}, callers: keyCallers((*keyWorker).create, false)},
	"txn":          {ops: []string{"txn"}, callers: keyCallers(func(w *keyWorker) error { return w.txn(max(1, w.sc.Closed.Batch), false) }, false), batches: true},
	"txn-guarded":  {ops: []string{"txn"}, callers: keyCallers(func(w *keyWorker) error { return w.txn(max(1, w.sc.Closed.Batch), true) }, false), batches: true},

	"consul-put":            overConsul("put", nil, (*consulCaller).put),
	"consul-get":            overConsul("get", (*consulCaller).put, getAs("")),
	"consul-get-stale":      overConsul("get", (*consulCaller).put, getAs("?stale")),
	"consul-get-consistent": overConsul("get", (*consulCaller).put, getAs("?consistent")),
	"consul-session":        overConsul("session", nil, (*consulCaller).open),
	"consul-renew":          overConsul("renew", (*consulCaller).open, (*consulCaller).renew),
	"consul-lock":           overConsul("acquire release", (*consulCaller).open, (*consulCaller).acquire, (*consulCaller).release),
	"consul-contended":      overConsul("refused", (*consulCaller).holdFirst, (*consulCaller).contend),
	"consul-register":       overConsul("register", nil, (*consulCaller).register),
	"consul-ttl-pass":       overConsul("pass", (*consulCaller).registerTTL, (*consulCaller).pass),

	"ovn-bind":  {ops: []string{"bind"}, door: doorOVSDB, callers: ovnCallers((*ovnCaller).bind, false)},
	"ovn-count": {ops: []string{"commit"}, door: doorOVSDB, callers: ovnCallers((*ovnCaller).count, true)},
}

// callers are the workers of a closed loop that wait for their answers.
type callers struct {
	all   []caller
	conns int
	// retries: who is turned away calls again when the server says, which is not counted
	// as an answer to the call.
	retries bool
	// after is what comes after the measurement. May be nil.
	after func(ctx context.Context) error
}

// caller is one of them. It is used by one goroutine at a time; close may be called from any.
type caller interface {
	// call makes the caller's next call, which is the i-th in turn of the operation's.
	call(ctx context.Context, i int) error
	close()
}

// playCallers has callers go on through warm-up and measurement.
func playCallers(ctx context.Context, r *run, op *closedOp) error {
	r.setPhase("connecting")
	set, err := op.callers(ctx, r)
	defer closeAll(set.all)
	if err != nil {
		return err
	}
	r.connected(set.conns)
	var records []*opRecord
	for _, name := range op.ops {
		records = append(records, r.rec.op(name))
	}
	var loops []func(context.Context) error
	for _, c := range set.all {
		loops = append(loops, func(ctx context.Context) error {
			defer context.AfterFunc(ctx, c.close)()
			return r.callOn(ctx, c, records, set.retries)
		})
	}
	if err := r.closed(ctx, loops); err != nil || set.after == nil {
		return err
	}
	return set.after(ctx)
}

// callOn has one of them call until its context or its connection ends.
func (r *run) callOn(ctx context.Context, c caller, records []*opRecord, retries bool) error {
	for i := 0; ctx.Err() == nil; i++ {
		began, n := r.now(), i%len(records)
		err := c.call(ctx, n)
		for retries && ctx.Err() == nil { // what it takes counts from the first try
			wait, overloaded := overloadOf(err)
			if !overloaded {
				break
			}
			r.outcome(ctx, r.rec.op(turnedAway), began, nil)
			_ = sleep(ctx, wait)
			err = c.call(ctx, n)
		}
		r.outcome(ctx, records[n], began, err)
		if err != nil && !isRefusal(err) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// worker has one request under way.
type worker struct {
	id       int
	link     *closedLink
	slot     uint64 // on its link, see frameID
	step     int    // which of the ops comes next
	n        uint64 // requests sent
	tokens   []uint64
	granted  []uint64 // newest token granted on each of its names
	buf      []byte
	intended time.Duration
	seen     []bool // frames of the request under way: which are answered
	missing  int    // answers not yet there
	failed   int
	rival    rival
	// underWay is the request, counted from 1, whose answers may come; 0: none.
	// It hands the fields above from who sends to who reads, and back.
	underWay atomic.Uint64
}

// expect makes room for the answers to a request of so many frames.
func (w *worker) expect(frames int) {
	if len(w.seen) != frames {
		w.seen = make([]bool, frames)
	}
	clear(w.seen)
	w.missing = frames
}

// answered takes note of the answer to frame i of request n, and reports
// whether it was asked for and came for the first time.
func (w *worker) answered(n, i uint64) bool {
	if w.underWay.Load() != n+1 || i >= uint64(len(w.seen)) || w.seen[i] {
		return false
	}
	w.seen[i] = true
	w.missing--
	return true
}

// closedLink is one stream and the workers that share it.
type closedLink struct {
	stream  *client.Stream
	reader  *bufio.Reader
	workers []*worker
}

// closedLoop is a run of workers.
type closedLoop struct {
	*run
	op      *closedOp
	records []*opRecord
	links   []*closedLink
	workers []*worker
	batch   int
	ttl     uint32 // of what is claimed, in ms
	stop    atomic.Bool
	tag     string // makes names of this run its own
}

func playClosed(ctx context.Context, r *run) error {
	cfg := r.sc.Closed
	op := closedOps[cfg.Op]
	if op.callers != nil {
		return playCallers(ctx, r, op)
	}
	l := &closedLoop{run: r, op: op, batch: max(1, cfg.Batch), tag: newTag()}
	if l.ttl = uint32(closedTTL.Milliseconds()); cfg.TTL > 0 {
		l.ttl = uint32(time.Duration(cfg.TTL).Milliseconds())
	}
	for _, name := range l.op.ops {
		l.records = append(l.records, r.rec.op(name))
	}
	r.setPhase("connecting")
	if err := l.dial(ctx); err != nil {
		return err
	}
	defer l.close()
	r.setAgents(func() (int, int, int) { return len(l.workers), 0, len(l.links) })
	if l.op.setup != nil {
		r.setPhase("preparing")
		if err := l.op.setup(ctx, l); err != nil {
			return err
		}
	}
	if l.sc.Closed.Stock != nil {
		if err := l.fill(ctx, l.sc.Closed.Stock, l.tag); err != nil {
			return err
		}
	}
	// What servers of others store is theirs: a cluster is made of it only here.
	if err := l.drive(ctx); err != nil || cfg.Beside == nil || !cfg.Beside.Restore || l.opts.Restore == nil {
		return err
	}
	stock := cmp.Or(cfg.Stock, &Stock{})
	return l.restoreAndCompare(ctx, func(ctx context.Context, c *client.Client) (stored, error) { return digest(ctx, c, l.tag) },
		func(s stored) bool { return s.keys == stock.Keys && s.leases == stock.Leases })
}

// drive starts the workers and measures them.
func (l *closedLoop) drive(ctx context.Context) error {
	cfg := l.sc.Closed
	var running sync.WaitGroup
	defer func() {
		l.stop.Store(true)
		l.close()
		running.Wait()
	}()
	errs := make(chan error, len(l.links)+1)
	for _, link := range l.links {
		running.Go(func() {
			if err := link.stream.ServeRaw(link.reader, func(msg []byte) error { return l.take(link, msg) }); !errors.Is(err, errStopped) {
				errs <- err
			}
		})
	}
	if cfg.Rate > 0 {
		running.Go(func() { l.pace(cfg.Rate) })
	} else {
		for _, w := range l.workers {
			if err := l.next(w, l.now()); err != nil {
				return err
			}
		}
	}
	beside, end := context.WithCancel(ctx)
	defer end()
	running.Go(func() {
		if err := l.beside(beside, cfg.Beside); err != nil && beside.Err() == nil {
			errs <- err
		}
	})
	return l.run.measure(ctx, cfg, errs)
}

// measure lets a load that runs go through warm-up and measurement in one go,
// so that nothing stops between.
func (r *run) measure(ctx context.Context, cfg *Closed, errs <-chan error) error {
	r.setPhase("warm-up")
	if err := sleepOr(ctx, time.Duration(cfg.Warmup), errs); err != nil {
		return err
	}
	r.rec.reset()
	before, own, began := r.meter.cpu(), selfCPU(), r.now()
	r.setPhase("measuring")
	if err := sleepOr(ctx, time.Duration(cfg.Duration), errs); err != nil {
		return err
	}
	for patience := r.now() + jujuDialTimeout; r.rec.answered() < r.least && r.now() < patience; {
		if err := sleepOr(ctx, time.Millisecond, errs); err != nil {
			return err
		}
	}
	r.account(before, own, r.now()-began)
	r.judgeErrors()
	r.judgeSilence(began)
	return nil
}

// Of a closed loop whose servers stop to answer: each client waits for its answer, and none of
// what they wait for is in a percentile.
const (
	silenceAllowed = time.Second
	silenceTimes   = 20 // of what is usual between two answers
)

// judgeSilence sees whether what was answered since a time has not been answered lately.
func (r *run) judgeSilence(began time.Duration) {
	now := r.now()
	records := r.rec.all()
	for _, name := range sortedKeys(records) {
		o := records[name]
		o.mu.Lock()
		count, last, early := o.count+o.errors, o.last, o.early
		o.mu.Unlock()
		if name == turnedAway || early || count < silenceTimes { // of fewer nothing is usual
			continue
		}
		if usual := (last - began) / time.Duration(count); now-last > max(silenceAllowed, silenceTimes*usual) {
			r.check.Violate("no %s was answered in the last %v, where one was every %v before", name, (now - last).Round(time.Millisecond), usual)
		}
	}
}

// errorsAllowed is the part of a closed loop's answers that may be errors:
// figures of a load that is mostly refused say nothing about the work.
const errorsAllowed = 0.01

func (r *run) judgeErrors() {
	var all uint64
	records := r.rec.all()
	for _, name := range sortedKeys(records) {
		o := records[name]
		o.mu.Lock()
		count, failed, early := o.count, o.errors, o.early
		o.mu.Unlock()
		if name == turnedAway || early {
			continue
		}
		all += count + failed
		if float64(failed) > errorsAllowed*float64(count+failed) {
			r.check.Violate("%d of %d answers to %s are errors, limit is %v %%", failed, count+failed, name, 100*errorsAllowed)
		}
	}
	if all == 0 {
		r.check.Violate("nothing was answered while it was measured")
	}
}

// account notes CPU time for the measured part, while the load still runs.
func (r *run) account(before, own, took time.Duration) {
	ops := r.rec.answered()
	if ops == 0 {
		return
	}
	used := r.meter.cpu() - before
	r.fact("cpu_us_per_op", float64(used.Microseconds())/float64(ops))
	r.fact("client_cpu_us_per_op", float64((selfCPU()-own).Microseconds())/float64(ops))
	r.fact("ops_per_second", float64(ops)/took.Seconds())
	r.fact("server_cores", used.Seconds()/took.Seconds())
}

var errStopped = errors.New("the loop is over")

// take handles one message from the server.
func (l *closedLoop) take(link *closedLink, msg []byte) error {
	if l.op.echo {
		w := link.workers[0]
		if w.underWay.Load() == 0 {
			l.check.Violate("worker %d: an echo was not asked for or came twice", w.id)
			return nil
		}
		return l.finish(w)
	}
	return eachAnswer(msg, func(a *answer) error {
		if a.id == 0 {
			return nil // an event
		}
		frame, i := (a.id-1)/uint64(l.batch), (a.id-1)%uint64(l.batch)
		w := link.workers[frame%uint64(len(link.workers))]
		if !w.answered(frame/uint64(len(link.workers)), i) {
			l.check.Violate("worker %d: answer %d was not asked for or came twice", w.id, a.id)
			return nil
		}
		if l.op.turns {
			op, right := l.judgeTurn(w, a)
			return l.finishTurn(w, op, right)
		}
		if !l.right(w, int(i), a) {
			w.failed++
		}
		if w.missing > 0 {
			return nil
		}
		return l.finish(w)
	})
}

// frameID numbers the frames of a link: no two of a run are alike, so that an
// answer which comes twice is not taken for the next one's.
func (l *closedLoop) frameID(w *worker, i int) uint64 {
	return (w.n*uint64(len(w.link.workers))+w.slot)*uint64(l.batch) + uint64(i) + 1
}

// right judges the answer to frame i and keeps what is needed to judge later ones.
func (l *closedLoop) right(w *worker, i int, a *answer) bool {
	if a.extended {
		for range a.notHeld {
			l.check.Violate("worker %d was told that it does not hold what it holds", w.id)
		}
		return a.notHeld == 0 && a.unavailable == 0 && !a.failed
	}
	f, err := a.full()
	if err != nil {
		return false
	}
	failure := f.GetError()
	if failure == nil {
		failure = f.GetOperation().GetError()
	}
	if failure != nil || l.op.expect != incumbent.OK {
		return failure.GetKind() == l.op.expect.String()
	}
	if l.op.ops[w.step%len(l.op.ops)] == "claim" || l.op.ops[0] == "create" {
		return l.rightGrant(w, i, f.GetOperation().GetClaim())
	}
	return true
}

// rightGrant judges a grant: its token exceeds that of the grant before.
func (l *closedLoop) rightGrant(w *worker, i int, c *apiv1.ClaimResponse) bool {
	token := c.GetLease().GetToken()
	if token == 0 {
		return false
	}
	if !l.op.again {
		return true
	}
	if w.granted == nil {
		w.granted = make([]uint64, l.batch)
	}
	// A claim of what is held already, after a release that failed, has its token.
	if last := w.granted[i]; token < last || token == last && c.GetGranted() {
		l.check.Violate("worker %d, name %d: granted token %d after token %d", w.id, i, token, last)
	}
	w.granted[i] = max(w.granted[i], token)
	return true
}

// finish records the worker's request and starts its next.
func (l *closedLoop) finish(w *worker) error {
	now := l.now()
	o := l.records[w.step%len(l.records)]
	n := l.batch
	if l.op.ops[0] == "extend" {
		n = len(w.tokens)
	}
	if w.failed > 0 {
		o.failed(now, n)
	} else {
		o.done(now, now-w.intended, n)
	}
	w.step++
	if l.stop.Load() {
		return errStopped
	}
	if l.sc.Closed.Rate > 0 {
		w.underWay.Store(0)
		return nil
	}
	return l.next(w, now)
}

// next sends the worker's next request.
func (l *closedLoop) next(w *worker, intended time.Duration) error {
	msg, err := l.op.message(l, w)
	if err != nil {
		return err
	}
	w.intended, w.failed = intended, 0
	w.n++
	w.underWay.Store(w.n)
	if err := w.link.stream.SendEncoded(msg); err != nil {
		if l.stop.Load() {
			return errStopped
		}
		return err
	}
	return nil
}

// pace sends open loop: worker i's k-th request is due at (k·workers+i)/rate. A
// worker whose answer is late sends late, and is charged for it.
func (l *closedLoop) pace(rate float64) {
	const turn = 500 * time.Microsecond
	began := l.now()
	tick := time.NewTicker(turn)
	defer tick.Stop()
	due := func(k int) time.Duration { return began + time.Duration(float64(k)/rate*float64(time.Second)) }
	var backlog []int
	for k := 0; !l.stop.Load(); <-tick.C {
		now := l.now()
		left := backlog[:0]
		for _, k := range backlog {
			if !l.start(k, due(k)) {
				left = append(left, k)
			}
		}
		for backlog = left; due(k) <= now; k++ {
			if !l.start(k, due(k)) {
				backlog = append(backlog, k)
			}
		}
	}
}

// start sends request k unless its worker still waits.
func (l *closedLoop) start(k int, intended time.Duration) bool {
	w := l.workers[k%len(l.workers)]
	if w.underWay.Load() != 0 {
		return false
	}
	_ = l.next(w, intended) // a broken stream ends its reader, which says so
	return true
}

func (l *closedLoop) dial(ctx context.Context) error {
	cfg := l.sc.Closed
	streams := cfg.Streams
	if streams == 0 {
		streams = cfg.Workers
	}
	l.links = make([]*closedLink, streams)
	err := inParallel(ctx, streams, func(i int) (err error) {
		link := &closedLink{}
		link.stream, link.reader, err = l.clients[i%len(l.clients)].DialStream(ctx, client.StreamOptions{Local: l.source(i), ReadBuffer: readBuffer})
		if err == nil {
			l.links[i] = link
		}
		return err
	})
	if err != nil {
		l.close()
		return err
	}
	for i := range cfg.Workers {
		link := l.links[i%streams]
		w := &worker{id: i, link: link, slot: uint64(len(link.workers))}
		link.workers = append(link.workers, w)
		l.workers = append(l.workers, w)
	}
	return nil
}

func (l *closedLoop) close() {
	for _, link := range l.links {
		if link != nil {
			link.stream.Close()
		}
	}
}

// inParallel calls do for 0 … n-1, a few at a time, and returns the first error.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	return inParallelOf(ctx, 16, n, do)
}

// inParallelOf is inParallel with so many callers at most.
func inParallelOf(ctx context.Context, most, n int, do func(i int) error) error {
	var next atomic.Int64
	var once sync.Once
	var first error
	var wg sync.WaitGroup
	for range min(n, most) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	if first == nil {
		return ctx.Err()
	}
	return first
}

// ramp calls do for 0 … n-1 at so many a second, of which some dozens may be under way.
func (r *run) ramp(ctx context.Context, n int, perSecond float64, do func(i int) error) error {
	began := r.now()
	return inParallelOf(ctx, 64, n, func(i int) error {
		if err := sleep(ctx, began+time.Duration(float64(i)/perSecond*float64(time.Second))-r.now()); err != nil {
			return err
		}
		return do(i)
	})
}

// sleepOr waits, unless a connection fails first.
func sleepOr(ctx context.Context, d time.Duration, errs <-chan error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case err := <-errs:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
