package lease

import (
	"bytes"
	"cmp"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
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
	waiting       []*Batch
	vouchers      []*voucher
	again         []waiter // asked before, in another round or another role
	kept          []*Batch // their round has failed; they go into one that begins from retryFrom on
	reading       []*call
	round         round
	ahead         ahead
	behind        []behind
	lastRound     int64 // when the last one ended
	silent        bool  // nothing has been confirmed since a round was asked for at silentSince
	silentSince   int64
	silentShift   time.Duration
	nextRound     uint64
	retryFrom     int64 // no round for expiries and kept batches alone before this
	held          map[key][]waiter
	heldNames     map[incumbent.Name][]waiter
	heldDeadlines map[deadlineKey][]waiter // of a leader alone
	names         map[incumbent.Name]*guard
	freeGuards    []*guard
	submitted     uint64
	unnamed       []*call     // commands on sessions on their way through the log
	undecided     undecided   // commands that may be: they stand in names and unnamed too
	revoking      revocations // of sessions that were extended
	marks         map[key]int // of a member that does not lead: its unapplied commands that may end these
	attachments   map[incumbent.SessionID]*attach
	expiry        pipeline
	trim          trimmer
	stats         Stats
	heldWaiting   int

	// Between members: as one that asks, and as the one that is asked.
	courier   courier
	early     []received
	serving   map[servedKey]*served
	answering []*served
	served    []*frame
	serves    load // frames of this term that are not served to the end
}

// revocations are the leases of sessions that are being revoked, as of a view.
type revocations struct {
	view   *core.View
	tokens map[incumbent.SessionID][]incumbent.Token
}

// round is the confirmation under way.
type round struct {
	active  bool
	id      uint64
	batches []*Batch
	again   []waiter
	reads   []*call
	due     bool // it is the confirmation of what is due, too
}

// Effects is what is to be done now: in the order of the fields, and within a
// field in order.
type Effects struct {
	Proposals []Proposal
	Confirm   uint64        // ask for a confirmation and tell Confirmed with this number; 0: none
	Vouched   []Vouch       // the same of what each of these members vouches for
	Barrier   uint64        // ask for a barrier and tell BarrierPassed with this number; 0: none
	Extended  []*Batch      // call Done
	Answered  []Answer      // call Done
	Lost      []Lost        // call Lost
	Inspected []*Inspection // call Done
	Frames    []Frame       // send them, and tell Unsent of those that are not taken
	Wake      time.Duration // call Begin and End again after this; 0: with the next tick

	ended load // frames of other members that are done with
}

// answered counts what waits no longer once the effects are performed.
func (eff *Effects) answered() load {
	l := eff.ended
	l.batches += len(eff.Extended)
	for _, b := range eff.Extended {
		l.extensions += len(b.Items)
	}
	for i := range eff.Answered {
		if eff.Answered[i].attach {
			l.attaches++
		} else {
			l.calls++
		}
	}
	for _, q := range eff.Inspected {
		l.looks += len(q.Items)
	}
	return l
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
	call     *call
	expiry   *proposedExpiry
	logged   *waiter         // raises a logged ttl
	accepted incumbent.Token // of an offer
	probe    bool
}

// Answer is the outcome of a call.
type Answer struct {
	Done   func(core.Result)
	Result core.Result

	attach bool // it is of an attachment
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
		held:          make(map[key][]waiter),
		names:         make(map[incumbent.Name]*guard),
		attachments:   make(map[incumbent.SessionID]*attach),
		heldNames:     make(map[incumbent.Name][]waiter),
		heldDeadlines: make(map[deadlineKey][]waiter),
		revoking:      revocations{tokens: make(map[incumbent.SessionID][]incumbent.Token)},
		marks:         make(map[key]int),
		serving:       make(map[servedKey]*served),
		ahead:         newAhead(),
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
	if moved := e.book.Advance(now); e.leading {
		e.stalled(moved)
	}
}

// End finishes the turn and returns what is to be done. The effects are valid
// until the next Begin.
func (e *Engine) End() *Effects {
	if e.leading {
		e.findDue()
		e.proposeExpiries()
		e.logAcceptances()
		e.trimKeys()
	}
	e.probe()
	e.forward()
	e.courier.vouches = false // it holds for what left in this turn
	e.sendAnswers()
	e.startVouched()
	e.startRound()
	return &e.out
}

// Performed forgets the effects of the last turn.
func (e *Engine) Performed() {
	clear(e.out.Proposals)
	clear(e.out.Extended)
	clear(e.out.Answered)
	clear(e.out.Frames)
	e.out = Effects{
		Proposals: e.out.Proposals[:0], Vouched: e.out.Vouched[:0], Extended: e.out.Extended[:0], Answered: e.out.Answered[:0], Frames: e.out.Frames[:0],
	}
}

// Applied tells of an applied batch of commands and the view after it.
func (e *Engine) Applied(view *core.View, changes []core.Change) {
	e.view = view
	e.courier.worked = true
	if e.leading {
		e.book.Applied(changes)
	}
	for i := range changes {
		e.changed(&changes[i])
	}
	e.catchUp()
}

// Restored tells of a state that was put in the place of the old one. This
// member does not lead.
func (e *Engine) Restored(view *core.View) {
	e.view = view
	e.endedUnseen()
	ws := e.takeHeld()
	e.retouch()
	for _, w := range ws {
		e.ask(w)
	}
	e.catchUp()
}

// changed looks again at what waited for a change.
func (e *Engine) changed(c *core.Change) {
	if c.SessionBefore != nil {
		if c.Session == nil {
			e.sessionOver(c.SessionBefore.ID, c.What)
		}
		e.release(key{session: c.SessionBefore.ID})
	}
	if c.Family != nil && c.Family.Deadline != nil {
		e.releaseDeadline(keyOf(c.Family.Deadline))
	}
	if l, ok := leases.ChangeOf(c); ok {
		e.leaseChanged(&l)
	}
}

func (e *Engine) leaseChanged(c *leases.Change) {
	if l, before := c.Lease, c.LeaseBefore; l != nil && l.Token != 0 && (before == nil || before.Token != l.Token) {
		e.remark(l.Name)
	}
	if c.LeaseBefore == nil || c.LeaseBefore.Token == 0 {
		return
	}
	e.release(key{token: c.LeaseBefore.Token})
	if c.What == leases.Expired {
		e.stats.Expired++
	}
}

// startRound asks for a confirmation if anything waits for one. Extensions may
// wait a little for company, reads and expiries need not.
func (e *Engine) startRound() {
	if e.round.active {
		return
	}
	due := e.leading && (e.expiry.waits() || len(e.kept)+len(e.again) > 0) && e.now >= e.retryFrom
	if len(e.waiting) == 0 && len(e.reading) == 0 && !due {
		return
	}
	if gap := e.lastRound + int64(e.cfg.RoundGap) - e.now; gap > 0 && len(e.reading) == 0 && !due {
		e.out.Wake = time.Duration(gap)
		return
	}
	e.nextRound++
	r := &e.round
	r.active, r.id = true, e.nextRound
	r.batches, e.waiting = append(e.waiting, e.kept...), r.batches[:0]
	e.kept = nil
	r.again, e.again = e.again, r.again[:0]
	r.reads, e.reading = e.reading, r.reads[:0]
	if r.due = false; e.leading {
		e.out.Barrier = e.expiry.confirm()
		r.due = e.out.Barrier != 0
	}
	e.quorumAsked()
	e.out.Confirm = r.id
}

// Confirmed tells the outcome of a confirmation: the term it was confirmed in. All up to
// its read index is applied. See also Ahead.
func (e *Engine) Confirmed(id, term uint64, err error) {
	if e.caughtUp(id, term, err) || e.confirmedFor(id, term, err) {
		return
	}
	r := &e.round
	if !r.active || r.id != id {
		panic("lease: a confirmation that nobody asked for")
	}
	e.roundEnded()
	batches, again, reads := r.batches, r.again, r.reads
	e.roundOver(batches, again, term, err)
	r.due = false
	for _, c := range reads {
		e.judgeRead(c, term, err)
	}
	clear(batches)
	clear(again)
	clear(reads)
	r.batches, r.again, r.reads = batches[:0], again[:0], reads[:0]
}

func (e *Engine) roundEnded() {
	e.round.active = false
	e.lastRound = e.now
	e.stats.Rounds++
}

// roundOver judges the extensions of a round and sends its expiries on.
func (e *Engine) roundOver(batches []*Batch, again []waiter, term uint64, err error) {
	if !e.leading {
		return // their end was that of the term
	}
	if err != nil || term != e.term {
		e.retryFrom = e.now + int64(retryRoundAfter)
		if e.round.due {
			e.expiry.back()
		}
		e.roundFailed(batches, again, err)
		return
	}
	e.quorumHeard()
	if e.round.due {
		e.expiry.heard()
	}
	for _, b := range batches {
		e.judge(b)
	}
	for _, w := range again {
		e.judgeItem(w.batch, w.item)
	}
}

// roundFailed lets extensions wait for the next round, for another leader may be
// on its way; alone there is none to wait for.
func (e *Engine) roundFailed(batches []*Batch, again []waiter, err error) {
	kind := incumbent.Unavailable
	if incumbent.KindOf(err) == incumbent.Overloaded {
		kind = incumbent.Overloaded
	}
	for _, b := range batches {
		if kind == incumbent.Unavailable && (e.patient(b) || b.served != nil) {
			e.kept = append(e.kept, b)
			continue
		}
		e.fail(b, kind)
	}
	for _, w := range again {
		if kind == incumbent.Unavailable && e.patient(w.batch) {
			e.again = append(e.again, w)
			continue
		}
		e.answer(w.batch, w.item, kind, 0)
	}
}

// quorumAsked notes since when the quorum may be silent.
func (e *Engine) quorumAsked() {
	if !e.silent {
		e.silent, e.silentSince, e.silentShift = true, e.now, e.book.Shift()
	}
}

// quorumHeard moves the deadlines by the time for which the quorum was silent,
// save for what the loop's own silence has moved them already. A round that is under
// way may fail yet: from now on it is waited for.
func (e *Engine) quorumHeard() {
	if !e.silent {
		return
	}
	e.silent = false
	already := e.book.Shift() - e.silentShift
	e.stalled(e.book.Stall(time.Duration(e.now-e.silentSince) - already))
	if e.round.active {
		e.quorumAsked()
	}
}

// stalled counts a silence that moved the deadlines.
func (e *Engine) stalled(moved time.Duration) {
	if moved > 0 {
		e.stats.Stalls++
		e.stats.StalledFor += moved
	}
}
