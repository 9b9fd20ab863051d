package lease

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// tickEvery is how often an idle loop looks at the clock.
const tickEvery = Bucket / 2

// Raft is what the service needs of a [node.Node].
type Raft interface {
	Propose(ps ...node.Proposal)
	Confirm(done func(term uint64, err error))
	ConfirmAhead(ahead func(node.Ahead), done func(term uint64, err error))
	ConfirmFor(member, term uint64, ahead func(node.Ahead), done func(term uint64, err error))
	// Leader is asked when a frame for the leader leaves, after what it holds arrived.
	Leader() (leader, term uint64)
}

// Peers carries frames to other members. They may be lost, and they may come
// twice or in another order.
type Peers interface {
	// SendApps hands over frames that leave together; they, but not the slice, are
	// the callee's from then on. It never blocks, and returns how many of them, from
	// the first on, were taken. It is called on the lease loop.
	SendApps(to uint64, frames [][]byte) (taken int)
}

// Options is what a service is made of.
type Options struct {
	Config
	Clock  Clock        // nil: SystemClock
	Logger *slog.Logger // nil: nothing is logged
	// Barrier calls done once every frame and call received before it has been
	// handed to Extend. nil: extensions are handed in as they are received.
	Barrier func(done func())
	// Peers carries frames to other members. nil: there are none. Without them a
	// member that does not lead answers NotLeader.
	Peers Peers
	// Self is the id of this member; 0: not known yet, see SetSelf. Frames that
	// claim to come from it are dropped.
	Self uint64
	// Boot sets apart the lives of this member towards its peers. 0: random. For
	// simulation.
	Boot uint64
	// Wall dates what the leader decides by itself, for people only. nil: the
	// machine's clock.
	Wall func() time.Time
}

// Service is the lease loop and the calls that doors make.
type Service struct {
	clock   Clock
	log     *slog.Logger
	barrier func(done func())
	peers   Peers
	self    atomic.Uint64
	wall    func() time.Time
	in      inbox
	frames  sync.Pool     // of *frame
	dropped atomic.Uint64 // received frames

	// Of the loop.
	engine *Engine
	raft   Raft
	taken  []message
	batch  []node.Proposal
	bytes  [][]byte // of frames, reused
	woken  bool     // a wake-up has been ordered

	applyView *core.View // of the apply goroutine: the newest

	mu    sync.Mutex // held to copy stats
	stats Stats
}

// New returns a service. It does nothing before Run, but takes everything.
func New(o Options) (*Service, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Service{clock: o.Clock, log: o.Logger, barrier: o.Barrier, in: newInbox()}
	if s.clock == nil {
		s.clock = SystemClock()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.wall = o.Wall; s.wall == nil {
		s.wall = time.Now
	}
	if s.barrier == nil {
		s.barrier = func(done func()) { done() }
	}
	s.applyView = core.New(leases.Family{}).View()
	s.engine = NewEngine(o.Config, s.applyView)
	s.frames.New = func() any { return new(frame) }
	s.SetSelf(o.Self)
	if s.peers = o.Peers; s.peers != nil {
		if o.Boot == 0 {
			o.Boot = rand.Uint64()
		}
		s.engine.Join(o.Boot)
	}
	return s, nil
}

// Run is the lease loop. It ends with ctx; whoever waits then is answered.
// Close the doors before, and the node, which answers its proposals.
func (s *Service) Run(ctx context.Context, raft Raft) {
	s.raft = raft
	tick, stop := s.clock.Ticker(tickEvery)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			s.stop()
			return
		case <-s.in.wake:
		case <-tick:
			s.publish()
		}
		s.turn()
	}
}

// turn takes all that waits as one batch. The time is read after taking, so
// that nothing counts as read before it arrived.
func (s *Service) turn() {
	list, refused := s.in.take(s.taken)
	s.engine.Stamp(s.wall())
	s.engine.Begin(s.clock.Now())
	s.engine.stats.Refused = refused
	for i := range list {
		s.tell(&list[i])
	}
	clear(list)
	s.taken = list[:0]
	s.engine.Vouch(s.raft.Leader()) // after what waited was taken
	s.perform(s.engine.End())
}

func (s *Service) tell(m *message) {
	if m.batch != nil {
		s.engine.Extend(m.batch)
		return
	}
	if m.call != nil {
		s.engine.Submit(m.call)
		return
	}
	switch o := m.other.(type) {
	case *proposed:
		s.engine.Proposed(o.ticket, o.result, o.err)
	case applied:
		s.engine.Applied(o.view, o.changes)
	case *aheadOf:
		s.engine.Ahead(o.id, &o.Ahead)
	case confirmed:
		s.engine.Confirmed(o.id, o.term, o.err)
	case passed:
		s.engine.BarrierPassed(o.barrier)
	case lead:
		s.log.Info("leading", "term", o.term, "leases", leases.Of(o.view).HeldCount(), "sessions", o.view.SessionCount())
		s.engine.Lead(o.term, o.view)
	case follow:
		if s.engine.leading {
			s.log.Info("no longer leading", "term", s.engine.term)
		}
		s.engine.Follow(o.leader, o.term)
	case restored:
		s.engine.Restored(o.view)
	case received:
		s.engine.Received(o.from, o.frame)
		if o.frame.kind != askFrame {
			s.recycle(o.frame)
		}
	case *attach:
		s.engine.Attach(o)
	case detach:
		s.engine.Detach(o.session, o.counter)
	case *Inspection:
		s.engine.Inspect(o)
	case woken:
		s.woken = false
	}
}

// perform does what a turn has decided. What is answered makes room before whoever
// waits for it is told: he may come again at once.
func (s *Service) perform(eff *Effects) {
	s.in.answered(eff.answered())
	s.propose(eff.Proposals)
	if id := eff.Confirm; id != 0 {
		s.raft.ConfirmAhead(s.outcome(id))
	}
	for _, v := range eff.Vouched {
		early, done := s.outcome(v.ID)
		s.raft.ConfirmFor(v.Member, s.engine.term, early, done)
	}
	if id := eff.Barrier; id != 0 {
		s.barrier(func() { s.in.post(message{other: passed{id}}) })
	}
	for _, b := range eff.Extended {
		if b.RetryAfter > 0 {
			b.RetryAfter = spread(b.RetryAfter)
		}
		b.Done(b)
	}
	for i := range eff.Answered {
		eff.Answered[i].Done(eff.Answered[i].Result)
	}
	for _, l := range eff.Lost {
		l.Tell(l.Reason)
	}
	for _, q := range eff.Inspected {
		q.Done(q)
	}
	s.send(eff.Frames)
	for _, f := range s.engine.used() {
		s.recycle(f)
	}
	if eff.Wake > 0 && !s.woken {
		s.woken = true
		s.clock.AfterFunc(eff.Wake, func() { s.in.post(message{other: woken{}}) })
	}
	s.engine.Performed()
}

// outcome returns what takes the outcome of a confirmation.
func (s *Service) outcome(id uint64) (early func(node.Ahead), done func(uint64, error)) {
	return func(a node.Ahead) { s.in.post(message{other: &aheadOf{id, a}}) },
		func(term uint64, err error) { s.in.post(message{other: confirmed{id, term, err}}) }
}

// propose hands proposals to the node, in pieces of bounded size.
func (s *Service) propose(ps []Proposal) {
	bytes := 0
	for i := range ps {
		p := &ps[i]
		s.batch = append(s.batch, node.Proposal{
			Command: p.Command, Deadline: p.Deadline, Term: p.Term, Reserve: p.Reserve, Done: s.done(p.Ticket),
		})
		if bytes += len(p.Command); bytes >= MaxExpiryBytes {
			s.flush()
			bytes = 0
		}
	}
	s.flush()
}

func (s *Service) flush() {
	if len(s.batch) == 0 {
		return
	}
	s.raft.Propose(s.batch...)
	clear(s.batch)
	s.batch = s.batch[:0]
}

// done returns what takes the outcome of a proposal.
func (s *Service) done(t Ticket) func(any, error) {
	if t == (Ticket{}) {
		return nil
	}
	return func(result any, err error) {
		p := &proposed{ticket: t, err: err}
		switch r := result.(type) {
		case *core.Result:
			p.result = *r
		case core.Result:
			p.result = r
		}
		s.in.post(message{other: p})
	}
}

// stop answers everybody who waits.
func (s *Service) stop() {
	for _, m := range s.in.close() {
		s.refuse(&m)
	}
	s.engine.Stop()
	eff := s.engine.End()
	eff.Proposals, eff.Confirm, eff.Vouched, eff.Barrier, eff.Wake = nil, 0, nil, 0, 0
	s.perform(eff)
	s.publish()
}

// refuse answers what the loop will not do any more, and takes in the rest.
func (s *Service) refuse(m *message) {
	switch {
	case m.batch != nil:
		m.batch.refuse(incumbent.Unavailable)
	case m.call != nil:
		m.call.done(core.Result{Err: errStopped()})
	default:
		if a, ok := m.other.(*attach); ok {
			a.done(core.Result{Err: errStopped()})
			return
		}
		s.tell(m)
	}
}

func (s *Service) publish() {
	st := s.engine.Stats()
	st.FramesDropped = s.dropped.Load()
	s.mu.Lock()
	s.stats = st
	s.mu.Unlock()
}

// Stats returns the counts as they were at most a tick ago.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Applied is called by the apply goroutine after each batch of commands, with
// the view after it and what changed; the changes are the service's from here
// on.
func (s *Service) Applied(view *core.View, changes []core.Change) {
	s.applyView = view
	s.in.post(message{other: applied{view, changes}})
}

// Lead is called by the apply goroutine when the first entry of this member's
// own term has been applied.
func (s *Service) Lead(term uint64) { s.in.post(message{other: lead{term, s.applyView}}) }

// Follow is called by the apply goroutine when this member does not lead (any
// more). leader, in term, is 0 while nobody is known to.
func (s *Service) Follow(leader, term uint64) { s.in.post(message{other: follow{leader, term}}) }

// Restored is called by the apply goroutine in the place of Applied when the
// state was put in the place of the old one, at the start or by a snapshot that
// the leader sent.
func (s *Service) Restored(view *core.View) {
	s.applyView = view
	s.in.post(message{other: restored{view}})
}

// Extend hands in a batch of extensions. It never blocks. Done is called once:
// on the lease loop, or within Extend if the batch is refused at once.
func (s *Service) Extend(b *Batch) {
	kind := incumbent.TooLarge
	if len(b.Items) <= MaxBatchItems {
		kind = s.in.postBatch(b)
	}
	if kind != incumbent.OK {
		b.refuse(kind)
	}
}

// refuse answers a batch that the loop has not seen.
func (b *Batch) refuse(kind incumbent.Kind) {
	for i := range b.Items {
		b.Items[i].Kind, b.Items[i].Held = kind, 0
	}
	b.RetryAfter = 0
	if kind.Transient() {
		b.RetryAfter = spread(overloadRetry)
	}
	b.Done(b)
}

// Submit hands in a call: one of the commands that doors make (claim, release,
// revoke, transfer, pin, unpin, leave queue, open and close session). It never
// blocks. done is called once: on the lease loop, or within Submit if the call
// is refused at once.
func (s *Service) Submit(c Call, cmd core.Command, done func(core.Result)) {
	q, err := newCall(c, cmd, done)
	if err == nil {
		q.deadline = s.deadline(c.Deadline)
		if refused := s.in.postCalls([]message{{call: q}}, reserve(cmd)); refused != nil {
			err = refused
		}
	}
	if err != nil {
		done(core.Result{Err: errorOf(err)})
	}
}

func (s *Service) deadline(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if at := s.clock.Now() + int64(s.clock.Until(t)); at != 0 {
		return at
	}
	return -1 // 0 means none
}

// Do hands in operations that take effect in their order. Each is answered in
// its Op; one that fails does not touch the others. done is called once, as in
// Submit.
func (s *Service) Do(c Call, ops []Op, done func()) {
	if len(ops) > MaxBulkOps {
		for i := range ops {
			ops[i].refuse(incumbent.Errorf(incumbent.TooLarge, "%d operations, limit is %d", len(ops), MaxBulkOps))
		}
		done()
		return
	}
	left := 0
	one := func() {
		if left--; left == 0 {
			done()
		}
	}
	deadline := s.deadline(c.Deadline)
	if len(ops) > 1 {
		c.Sequence = new(Sequence)
	}
	ms, taken := make([]message, 0, len(ops)), make([]*Op, 0, len(ops))
	release := true
	for i := range ops {
		op := &ops[i]
		m, err := op.message(c, deadline, one)
		if err != nil {
			op.refuse(err)
			continue
		}
		taken = append(taken, op)
		release = release && (op.Command == nil || reserve(op.Command))
		ms = append(ms, m)
	}
	if left = len(ms); left == 0 {
		done()
		return
	}
	if err := s.in.postCalls(ms, release); err != nil {
		for _, op := range taken { // the others have been refused for what they say
			op.refuse(err)
		}
		done()
	}
}

func (o *Op) refuse(err error) {
	o.Result = core.Result{Err: errorOf(err)}
	o.Extend.Kind = o.Result.Err.Kind
}

// message makes what the loop is told of an operation; then one is called.
func (o *Op) message(c Call, deadline int64, one func()) (message, error) {
	if o.Command == nil {
		b := &Batch{Items: []Extension{o.Extend}}
		b.Done = func(b *Batch) {
			o.Extend = b.Items[0]
			if o.Extend.Kind != incumbent.OK {
				o.Result.Err = b.Err()
			}
			one()
		}
		return message{batch: b}, nil
	}
	c.KeyID, c.KeyBase = o.KeyID, o.KeyBase
	q, err := newCall(c, o.Command, func(r core.Result) {
		o.Result = r
		one()
	})
	if err != nil {
		return message{}, err
	}
	q.deadline = deadline
	return message{call: q}, nil
}

// Attach binds a session to a connection and extends it. done is called once,
// with the session, or an error: Conflict if a higher counter is attached,
// Expired if the session is not open, NotLeader, Unavailable or Overloaded.
func (s *Service) Attach(a Attachment, done func(core.Result)) {
	if err := s.in.postAttach(&attach{Attachment: a, done: done}); err != nil {
		done(core.Result{Err: err})
	}
}

// Detach says that the connection of an attachment is gone.
func (s *Service) Detach(session incumbent.SessionID, counter uint64) {
	s.in.post(message{other: detach{session, counter}})
}

// Inspect asks for what only the leader's memory knows: how long leases and
// sessions have left, and how often they were extended. It never blocks. Done is
// called once: on the lease loop, or within Inspect if it is refused at once.
func (s *Service) Inspect(q *Inspection) {
	q.forget()
	if err := s.in.postLooks(q); err != nil { // else it is the loop's by now
		q.Err = err
		q.Done(q)
	}
}
