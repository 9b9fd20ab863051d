package lease

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Engine takes the decisions of the lease loop. Its driver calls Begin with the
// time, then any of the methods that tell it what happened, then End, and then
// performs the effects. What happened must be told in the order in which it
// happened: an extension that was read before a barrier passed, before that.
type Engine struct {
	cfg  Config
	book *Book
	view *core.View // the newest that was told of
	now  int64      // monotonic, of this turn
	wall time.Time  // of this turn, for people only: it goes into the history of leases
	out  Effects

	leading bool
	term    uint64
	leader  uint64 // known other leader, or 0

	// Extensions and reads that wait for a confirmation, and those in the round.
	waiting     []*Batch
	reading     []*call
	round       round
	lastRound   int64 // when the last one ended
	silent      bool  // no round has succeeded since the one that began at silentSince
	silentSince int64
	silentShift time.Duration
	nextRound   uint64
	parked      []*Batch // for a leader to be known
	retryFrom   int64    // no round for expiries alone before this
	held        map[key][]waiter
	offers      map[incumbent.Token]*logged // first extensions under way
	names       map[incumbent.Name]*guard
	unnamed     []*call // commands on sessions on their way through the log
	attachments map[incumbent.SessionID]*attach
	expiry      pipeline
	trim        trimmer
	stats       Stats
	heldWaiting int
}

// round is the confirmation under way.
type round struct {
	active  bool
	id      uint64
	began   int64
	batches []*Batch
	reads   []*call
}

// Effects is what is to be done now: in the order of the fields, and within a
// field in order.
type Effects struct {
	Proposals []Proposal
	Confirm   uint64        // ask for a confirmation and tell Confirmed with this number; 0: none
	Barrier   uint64        // ask for a barrier and tell BarrierPassed with this number; 0: none
	Extended  []*Batch      // call Done
	Answered  []Answer      // call Done
	Lost      []Lost        // call Lost
	Inspected []*Inspection // call Done
	Wake      time.Duration // call Begin and End again after this; 0: with the next tick
}

// Proposal is a command for the log. Proposed is to be told of its outcome.
type Proposal struct {
	Command  []byte
	Deadline time.Time
	Term     uint64 // of ours; 0: of whoever leads
	Reserve  bool
	Ticket   Ticket
}

// Ticket says what a proposal was for. Exactly one field is set, or none.
type Ticket struct {
	call   *call
	expiry *proposedExpiry
	logged *logged
}

// Answer is the outcome of a call.
type Answer struct {
	Done   func(core.Result)
	Result core.Result
}

// Lost tells the connection of a session that it is no longer attached.
type Lost struct {
	Tell   func(reason string)
	Reason string
}

// key names what an answer waits for: a lease by token, or a session.
type key struct {
	token   incumbent.Token
	session incumbent.SessionID
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.token, o.token), bytes.Compare(k.session[:], o.session[:]))
}

// waiter is an extension of a batch.
type waiter struct {
	batch *Batch
	item  int
}

// NewEngine returns an engine that does not lead.
func NewEngine(cfg Config, view *core.View) *Engine {
	cfg = cfg.withDefaults()
	return &Engine{
		cfg: cfg, book: NewBook(cfg), view: view,
		held:        make(map[key][]waiter),
		offers:      make(map[incumbent.Token]*logged),
		names:       make(map[incumbent.Name]*guard),
		attachments: make(map[incumbent.SessionID]*attach),
	}
}

// Stamp tells the wall clock of the turn that begins: what the leader decides by
// itself is dated so in the history of leases. It decides nothing.
func (e *Engine) Stamp(wall time.Time) { e.wall = wall }

// own is the origin of what the leader decides by itself.
func (e *Engine) own() core.Meta {
	return core.Meta{Origin: core.Origin{At: e.wall, Door: ownDoor}}
}

// Begin starts a turn at a monotonic time in nanoseconds.
func (e *Engine) Begin(now int64) {
	e.now = now
	if moved := e.book.Advance(now); moved > 0 && e.leading {
		e.stats.Stalls++
		e.stats.StalledFor += moved
	}
}

// End finishes the turn and returns what is to be done. The effects are valid
// until the next Begin.
func (e *Engine) End() *Effects {
	if e.leading {
		e.findDue()
		e.proposeExpiries()
		e.trimKeys()
	}
	e.expireParked()
	e.startRound()
	e.startBarrier()
	return &e.out
}

// Performed forgets the effects of the last turn.
func (e *Engine) Performed() {
	clear(e.out.Proposals)
	clear(e.out.Extended)
	clear(e.out.Answered)
	e.out = Effects{
		Proposals: e.out.Proposals[:0], Extended: e.out.Extended[:0], Answered: e.out.Answered[:0],
	}
}

// Applied tells of an applied batch of commands and the view after it.
func (e *Engine) Applied(view *core.View, changes []core.Change) {
	e.view = view
	if e.leading {
		e.book.Applied(changes)
	}
	for i := range changes {
		e.changed(&changes[i])
	}
}

// changed looks again at what waited for a change.
func (e *Engine) changed(c *core.Change) {
	if c.SessionBefore != nil {
		if c.Session == nil {
			e.sessionOver(c.SessionBefore.ID, c.What)
		}
		e.release(key{session: c.SessionBefore.ID})
	}
	if c.LeaseBefore != nil && c.LeaseBefore.Token != 0 {
		e.release(key{token: c.LeaseBefore.Token})
		e.count(c)
	}
}

func (e *Engine) count(c *core.Change) {
	switch c.What {
	case core.Expired:
		e.stats.Expired++
	case core.Declined:
		e.stats.Declined++
	}
}

// Lead tells that the first entry of our own term has been applied. view is the
// state then.
func (e *Engine) Lead(term uint64, view *core.View) {
	e.view = view
	e.endTerm(0)
	e.leading, e.term, e.leader, e.silent = true, term, 0, false
	e.book.Lead(view)
	e.trim = trimmer{}
	e.endedWhileFollowing()
	for _, g := range e.names {
		for _, c := range g.logged {
			e.touch(c)
		}
	}
	for _, c := range e.unnamed {
		e.touch(c)
	}
	parked := e.parked
	e.parked = nil
	for _, b := range parked {
		e.extend(b)
	}
}

// Follow tells that this member does not lead. leader is 0 while nobody is
// known to.
func (e *Engine) Follow(leader uint64) {
	e.endTerm(leader)
	parked := e.parked
	e.parked = nil
	for _, b := range parked {
		e.park(b)
	}
}

// endTerm fails what only the leader of the old term could have answered.
func (e *Engine) endTerm(leader uint64) {
	e.leader = leader
	if !e.leading {
		return
	}
	e.leading = false
	e.book.Follow()
	e.expiry.reset()
	e.silent = false
	kind := incumbent.Unavailable
	if leader != 0 {
		kind = incumbent.NotLeader
	}
	for _, b := range e.waiting {
		e.fail(b, kind)
	}
	for _, b := range e.round.batches {
		e.fail(b, kind)
	}
	e.waiting, e.round.batches = nil, nil
	e.failHeld(kind)
}

func (e *Engine) failHeld(kind incumbent.Kind) {
	held := e.held
	e.held, e.heldWaiting = make(map[key][]waiter), 0
	for _, k := range slices.SortedFunc(maps.Keys(held), key.compare) {
		for _, w := range held[k] {
			e.answer(w.batch, w.item, kind, 0)
		}
	}
	for _, token := range slices.Sorted(maps.Keys(e.offers)) {
		e.refuse(e.offers[token], kind)
	}
	clear(e.offers)
}

// startRound asks for a confirmation if anything waits for one. Extensions may
// wait a little for company, reads and expiries need not.
func (e *Engine) startRound() {
	if e.round.active {
		return
	}
	due := e.leading && len(e.expiry.due) > 0 && e.now >= e.retryFrom
	if len(e.waiting) == 0 && len(e.reading) == 0 && !due {
		return
	}
	if gap := e.lastRound + int64(e.cfg.RoundGap) - e.now; gap > 0 && len(e.reading) == 0 && !due {
		e.out.Wake = time.Duration(gap)
		return
	}
	e.nextRound++
	r := &e.round
	r.active, r.id, r.began = true, e.nextRound, e.now
	r.batches, e.waiting = e.waiting, r.batches[:0]
	r.reads, e.reading = e.reading, r.reads[:0]
	if e.leading {
		e.expiry.confirm()
	}
	if !e.silent {
		e.silent, e.silentSince, e.silentShift = true, e.now, e.book.Shift()
	}
	e.out.Confirm = r.id
}

// Confirmed tells the outcome of a confirmation: the term it was confirmed in.
func (e *Engine) Confirmed(id, term uint64, err error) {
	r := &e.round
	if !r.active || r.id != id {
		panic("lease: a confirmation that nobody asked for")
	}
	r.active = false
	e.lastRound = e.now
	e.stats.Rounds++
	batches, reads := r.batches, r.reads
	if err != nil {
		e.stats.RoundsFailed++
	}
	e.roundOver(batches, term, err)
	for _, c := range reads {
		e.judgeRead(c, term, err)
	}
	clear(batches)
	clear(reads)
	r.batches, r.reads = batches[:0], reads[:0]
}

// roundOver judges the extensions of a round and sends its expiries on.
func (e *Engine) roundOver(batches []*Batch, term uint64, err error) {
	if !e.leading {
		return // their end was that of the term
	}
	if err != nil || term != e.term {
		e.retryFrom = e.now + int64(retryRoundAfter)
		e.expiry.back()
		kind := incumbent.Unavailable
		if incumbent.KindOf(err) == incumbent.Overloaded {
			kind = incumbent.Overloaded
		}
		for _, b := range batches {
			e.fail(b, kind)
		}
		return
	}
	e.quorumHeard()
	e.expiry.confirmed()
	for _, b := range batches {
		e.judge(b)
	}
}

// quorumHeard moves the deadlines by the time for which the quorum was silent,
// save for what the loop's own silence has moved them already.
func (e *Engine) quorumHeard() {
	if !e.silent {
		return
	}
	e.silent = false
	moved := e.book.Shift() - e.silentShift
	gap := time.Duration(e.now-e.silentSince) - moved - Bucket
	if gap > 0 {
		e.book.Stall(gap)
		e.stats.Stalls++
		e.stats.StalledFor += gap
	}
}

// Stop answers everybody who waits: this member is going away. Nothing but End
// may be called afterwards.
func (e *Engine) Stop() {
	e.endTerm(0)
	for _, b := range e.parked {
		e.fail(b, incumbent.Unavailable)
	}
	for _, b := range e.waiting {
		e.fail(b, incumbent.Unavailable)
	}
	e.parked, e.waiting = nil, nil
	for _, c := range append(slices.Clone(e.round.reads), e.reading...) {
		if c != nil && c.read {
			e.unread(c)
			e.finish(c, core.Result{Err: errStopped()})
		}
	}
	e.round, e.reading = round{active: true}, nil
	e.stopCalls()
}
