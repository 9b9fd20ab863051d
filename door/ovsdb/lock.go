package ovsdb

import (
	"slices"
	"strings"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/watch"
)

// A lock is a lease of the session of the connection that asked for it, so that it holds
// across the cluster. Who waits for one stands in the lease's queue.
//
// What goes through the log for a lock that is asked for takes a place in its lane: to open
// the session, to claim the lease and to have it handed over. If there is none it is tried
// again after a while, for as long as the lock is asked for: clients ask once, and take a
// refusal for a lock that they never get. What lets go takes no place. So that whoever asks
// for locks and gives them up at once does not fill the log, one that was given up counts
// among those of its connection until everything is over that was under way for it.

// laneOfLocks is the lane of `lock` and of `steal`, which is a claim besides.
var laneOfLocks = calls.OvsdbLock.Lane()

// lockModel is the model of the leases that are locks, in the door's namespace.
const lockModel = "ovsdb"

// locks are those of a connection.
type locks struct {
	session incumbent.SessionID // zero: it has asked for none
	open    bool                // the session is open, as far as is known
	waiting []*lock             // that are claimed once it is
	byName  map[string]*lock
	leaving map[*lock]struct{} // that were given up, and for which something is under way
	says    []*saying          // what is to be told of them, in order
}

// saying is what is to be told of a lock once the client has been told of what whoever had the
// lock before has changed.
type saying struct {
	say   func()
	ready bool
}

// lock is one that a client has asked for and not given up.
type lock struct {
	conn    *conn
	name    string
	token   incumbent.Token // that it is held under; 0: it is not
	queued  bool            // it is to be held as soon as it can be
	stealer bool            // it was asked for by `steal`: who loses it then stands in line no more
	taking  bool            // the command that takes it from another is on its way
	request *request        // that is not answered; nil: it was
	wait    *watch.Waiter
	asked   bool // the lease was claimed, or is about to be
	over    bool // it was given up
	steps   int  // that are under way, or to be taken later
}

func (d *Door) lockName(name string) incumbent.Name {
	return incumbent.Name{Namespace: d.namespace, Model: lockModel, Lease: name}
}

func lockRequest(c *conn, r *request)  { c.lock(r, false) }
func stealRequest(c *conn, r *request) { c.lock(r, true) }

func (c *conn) lock(r *request, steal bool) {
	name, ok := c.lockOf(r)
	if !ok {
		return
	}
	s := &c.session.locks
	name = strings.Clone(name) // else the lock keeps the whole message
	l := &lock{conn: c, name: name, queued: true, stealer: steal, request: r}
	if _, err := l.judge(); err != nil {
		r.refuse(faultOf(err))
		return
	}
	switch {
	case s.byName[name] != nil:
		r.syntax("the lock is asked for already: it must be unlocked before")
		return
	case len(s.byName)+len(s.leaving) >= c.door.limits.Load().MaxLocks:
		r.idle = true
		r.refuse(ovs.Errorf(ovs.ResourcesExhausted, "too many locks on one connection"))
		return
	}
	if s.byName == nil {
		s.byName = map[string]*lock{}
	}
	s.byName[name] = l
	c.claimLater(l)
}

// lockOf is the name of the lock that a request is about; false: it has been answered.
func (c *conn) lockOf(r *request) (string, bool) {
	if c.who.remote.get().ReadOnly { // a lock from before ends with the connection
		r.idle = true
		r.failed("lock and unlock methods not allowed, DB server is read only.")
		return "", false
	}
	name, ok := r.text(0)
	if !ok || len(r.params) != 1 || !ovs.IsID(name) || len(name) > maxLockName {
		r.syntax("the name of a lock is to be an <id>")
		return "", false
	}
	return name, true
}

// judge returns by which policies of now the client may have the lock, and take it away
// from others if it is to; or why it may not.
func (l *lock) judge() (judged incumbent.Index, err error) {
	who := l.conn.who
	what := auth.Resource{Name: l.conn.door.lockName(l.name), Holder: who.principal.Name}
	judged, err = who.may(calls.OvsdbLock.Action(), what)
	if err == nil && l.steals() {
		_, err = who.may(calls.OvsdbSteal.Action(), what)
	}
	return judged, err
}

// steals reports whether the lock is to be taken away from whoever has it: once.
func (l *lock) steals() bool { return l.stealer && l.queued }

// denied takes the lock away from a client that may not have it any more. Who was told
// that it has it, or waits for it, is sent away, and all its locks end.
func (l *lock) denied(err error) {
	c := l.conn
	if r := l.request; r != nil {
		l.request = nil
		delete(c.session.locks.byName, l.name)
		l.giveUp() // an earlier claim may have come through
		r.refuse(faultOf(err))
		return
	}
	c.endLocks() // now: the client need not close its side
	c.goAway()
}

func unlockRequest(c *conn, r *request) {
	name, ok := c.lockOf(r)
	if !ok {
		return
	}
	l := c.session.locks.byName[name]
	if l == nil {
		r.syntax("the lock was not asked for")
		return
	}
	delete(c.session.locks.byName, name)
	l.answer(false) // who gives it up before knowing whether it was to be had
	l.giveUp()
	r.result(nothing)
}

// placeForLock gives what is asked of the log for a lock a place in its lane, to be given
// back once that is answered; false: there is none, and the step is to be taken later. A lock
// waits for that as for its holder, and is not refused.
func (c *conn) placeForLock() (admit.Place, bool) {
	p, err := c.placeIn(lockModel, laneOfLocks, 1, true)
	return p, err == nil
}

// later counts a step as under way, and returns what takes it: once, from anywhere.
func (l *lock) later(step func()) func() {
	l.steps++
	return func() {
		l.conn.do(func() {
			step()
			if l.steps--; l.over && l.steps == 0 {
				delete(l.conn.session.locks.leaving, l)
			}
		})
	}
}

// heard counts a step as under way until what is asked of the log for it has an outcome,
// which gives the place back. note hands it on, also if the connection is gone.
func (l *lock) heard(place admit.Place, note func(*core.Result), then func(core.Result)) func(core.Result) {
	var r core.Result
	step := l.later(func() { then(r) })
	return func(got core.Result) {
		place.Leave()
		note(&got)
		r = got
		step()
	}
}

// changed hands on what became of something that was asked for, for a lock.
func (c *conn) changed(a auth.Action, name incumbent.Name, detail string, r *core.Result, changed bool) {
	c.door.settled(c.who, a, name.String(), detail, r, changed)
}

// begin judges what is to be asked of the log for the lock, and has a place for it; false: the
// lock is denied, or there is no place and the step is taken again later.
func (l *lock) begin(again func()) (judged incumbent.Index, place admit.Place, ok bool) {
	judged, err := l.judge()
	if err != nil {
		l.denied(err)
		return 0, admit.Place{}, false
	}
	if place, ok = l.conn.placeForLock(); !ok {
		l.conn.door.putOff(l.later(again))
	}
	return judged, place, ok
}

// claim claims the lease, or takes a place in its queue.
func (l *lock) claim() {
	if l.over {
		return
	}
	judged, place, ok := l.begin(l.claim)
	if !ok {
		return
	}
	c := l.conn
	l.asked = true
	cmd := leases.ClaimCommand{Name: c.door.lockName(l.name), Holder: c.holder(), Session: c.session.locks.session, Wait: true}
	note := func(r *core.Result) {
		a := leases.AnswerOf(*r)
		c.changed(calls.OvsdbLock.Action(), cmd.Name, "for "+cmd.Holder, r, a.Granted || a.Queued)
	}
	c.door.engine.Leases().Claim(lease.Call{Origin: c.who.origin(), Judged: judged}, cmd, l.heard(place, note, l.claimed))
}

func (l *lock) claimed(r core.Result) {
	c := l.conn
	switch {
	case l.over:
		if r.Err == nil { // it was given up meanwhile, perhaps before this was in the log
			l.release()
		}
		return
	case r.Err != nil:
		l.refused(r.Err)
		return
	case leases.AnswerOf(r).Lease.Session == c.session.locks.session:
		l.got(leases.AnswerOf(r).Lease.Token)
	case l.taking: // it says itself what came of it
	case l.steals():
		l.steal(leases.AnswerOf(r).Lease)
	default:
		l.answer(false)
	}
	if !l.over {
		l.follow(r.Index)
	}
}

// refused answers what can not be had, and tries again what there is no leader for.
func (l *lock) refused(err *incumbent.Error) {
	c := l.conn
	switch kind := err.Kind; {
	case kind == incumbent.Expired:
		c.cut(errLocksLost) // the session is over, and with it all other locks
	case comesLater(kind):
		c.door.putOffAfter(err, l.later(l.claim))
	case l.request != nil:
		delete(c.session.locks.byName, l.name)
		l.over = true
		l.request.refuse(faultOf(err))
		l.request = nil
	default: // who was answered waits for room, as it was told
		c.door.after(roomRetry, l.later(l.look))
	}
}

// steal has the lease handed over by who holds it, past the queue. The door has judged
// whether its caller may, so the command is on the member's own account: for nobody else the
// log uses a session that is another's. Who it was says the audit log.
func (l *lock) steal(held *leases.Lease) {
	judged, place, ok := l.begin(l.stealAgain)
	if !ok {
		return
	}
	c := l.conn
	l.taking = true
	origin := c.who.origin()
	origin.Principal = ""
	cmd := leases.TransferCommand{
		Name: held.Name, Holder: held.Holder, Session: held.Session, Token: held.Token, ToSession: c.session.locks.session, ToHolder: c.holder(),
	}
	note := func(r *core.Result) {
		c.changed(calls.OvsdbSteal.Action(), cmd.Name, "for "+cmd.ToHolder+", from "+cmd.Holder, r, true)
	}
	c.door.engine.Leases().Transfer(lease.Call{Origin: origin, Judged: judged}, cmd, l.heard(place, note, func(r core.Result) {
		l.taking = false
		if r.Err != nil { // somebody else has it by now, or nothing is known
			c.door.putOffAfter(r.Err, l.later(l.stealAgain))
		}
	}))
}

func (l *lock) stealAgain() {
	if l.steals() && !l.over {
		l.claim()
	}
}

// answer answers the request for the lock, if that has not been done.
func (l *lock) answer(held bool) bool {
	r := l.request
	if r == nil {
		return false
	}
	l.request = nil
	if held {
		r.result([]byte(`{"locked":true}`))
	} else {
		r.result([]byte(`{"locked":false}`))
	}
	return true
}

// got takes note that the lease is the session's, under a token.
func (l *lock) got(token incumbent.Token) {
	if l.token == token {
		return // it was told already, by a claim and by a look
	}
	l.token, l.queued = token, false
	l.say(false, func() {
		if !l.answer(true) {
			l.conn.notify("locked", l.name)
		}
	})
}

// lost takes note that the lease is another's, or nobody's. Who asked by `lock` waits for it
// again, as of ovsdb-server: clients that are told `stolen` do not ask again.
func (l *lock) lost() {
	l.token, l.queued = 0, !l.stealer
	l.say(true, func() { l.conn.notify("stolen", l.name) })
}

// say tells something of the lock, unless it is given up meanwhile, behind what the client
// monitors of all that has been changed by now: who gets a lock acts on what it knows. Who has
// lost one is told at once, behind what was said of locks before.
func (l *lock) say(atOnce bool, what func()) {
	c, at := l.conn, l.conn.door.view().Index()
	s := &saying{say: func() {
		if !l.over {
			what()
		}
	}}
	c.session.locks.says = append(c.session.locks.says, s)
	feeds := c.session.monitors.feeds()
	if atOnce || len(feeds) == 0 {
		s.ready = true
		c.said()
		return
	}
	var left atomic.Int32
	left.Store(int32(len(feeds))) //nolint:gosec // a connection has few monitors
	for _, f := range feeds {
		f.do(func() {
			f.when(at, func() {
				if left.Add(-1) == 0 {
					c.do(func() { s.ready = true; c.said() })
				}
			})
		})
	}
}

// said tells what is ready, up to the first that is not.
func (c *conn) said() {
	s := &c.session.locks
	for len(s.says) > 0 && s.says[0].ready {
		first := s.says[0]
		s.says = s.says[1:]
		first.say()
	}
}

// notify tells the client what it has not asked for now.
func (c *conn) notify(method, param string) {
	b := append([]byte(`{"id":null,"method":"`), method...)
	b = append(append(append(b, `","params":[`...), quoted(param)...), `]}`...)
	c.answer(b)
}

// follow waits for the next change of the lease after an index that concerns its
// session.
func (l *lock) follow(after incumbent.Index) {
	c, session, token := l.conn, l.conn.session.locks.session, l.token
	d := c.door
	if l.wait != nil {
		l.wait.Cancel() // a claim that was made again has come here before
		l.wait = nil
	}
	w, err := d.engine.Hub().Wait(watch.Exact(engine.FamilyTopic(leases.Number, leases.TopicOf(d.lockName(l.name)))), after, func(e *watch.Event) bool {
		change, _ := e.Payload.(*core.Change)
		if change == nil {
			return true
		}
		held, _ := leases.ChangeOf(change)
		if held.Lease == nil {
			return true
		}
		mine := held.Lease.Session == session && held.Lease.Token != 0
		return mine != (token != 0) || mine && held.Lease.Token != token
	}, func(watch.Fired) { c.do(l.look) })
	if err != nil { // no place for another wait, or the hub is closed
		d.after(maxRetry, l.later(l.look))
		return
	}
	l.wait = w
}

// look finds out what has become of the lease, and goes on following it.
func (l *lock) look() {
	c := l.conn
	if l.over {
		return
	}
	v := c.door.view()
	held := leases.Of(v).Lease(c.door.lockName(l.name))
	mine := held != nil && held.Token != 0 && held.Session == c.session.locks.session
	if l.token != 0 && (!mine || held.Token != l.token) {
		l.lost()
	}
	switch {
	case mine && l.token == 0 && held.Offered:
		l.accept(held.Token)
		return
	case mine && l.token == 0:
		l.got(held.Token)
	case !mine && l.queued && !c.queuedFor(v, held):
		l.claim() // it was lost, or an offer has lapsed, and the place with it
		return
	}
	l.follow(v.Index())
}

// queuedFor reports whether the session stands in the queue of a lease.
func (c *conn) queuedFor(v *core.View, held *leases.Lease) bool {
	if held == nil || held.Waiting == 0 {
		return false
	}
	for w := range leases.Of(v).Queue(held.Name) {
		if w.Session == c.session.locks.session {
			return true
		}
	}
	return false
}

// accept makes an offer a holding: the first extension of its token does.
func (l *lock) accept(token incumbent.Token) {
	if _, err := l.judge(); err != nil {
		l.denied(err)
		return
	}
	c := l.conn
	b := &lease.Batch{Items: []lease.Extension{{Token: token, Session: c.session.locks.session}}}
	var kind incumbent.Kind
	answered := l.later(func() { l.accepted(token, kind) })
	b.Done = func(b *lease.Batch) {
		kind = b.Items[0].Kind
		answered()
	}
	c.door.engine.Leases().Extend(b)
}

func (l *lock) accepted(token incumbent.Token, kind incumbent.Kind) {
	switch {
	case l.over:
	case kind == incumbent.OK:
		l.got(token)
		l.look() // it may be over by now
	default: // it is another's by now, or there is no leader
		l.conn.door.after(firstRetry, l.later(l.look))
	}
}

// giveUp gives the lease back, or the place in its queue.
func (l *lock) giveUp() {
	l.over = true
	if l.wait != nil {
		l.wait.Cancel()
	}
	s := &l.conn.session.locks
	s.waiting = slices.DeleteFunc(s.waiting, func(o *lock) bool { return o == l })
	l.release()
	if l.steps > 0 {
		if s.leaving == nil {
			s.leaving = map[*lock]struct{}{}
		}
		s.leaving[l] = struct{}{}
	}
}

// release has the lease released, or the queue left, until that is in the log.
func (l *lock) release() {
	c := l.conn
	if c.session.over || !c.session.locks.open {
		return // the session ends, and everything with it
	}
	if again := c.session.locks.byName[l.name]; again != nil { // it is wanted again, and what was asked for is had by that
		again.asked = again.asked || l.asked
		return
	}
	if !l.asked {
		return // nothing was claimed
	}
	name, session := c.door.lockName(l.name), c.session.locks.session
	call := lease.Call{Origin: c.who.origin(), Sequence: new(lease.Sequence)}
	holder := c.holder()
	ops := []lease.Op{
		{Command: leases.LeaveQueueCommand{Name: name, Session: session, Holder: holder}},
		{Command: leases.ReleaseCommand{Name: name, Session: session, Holder: holder}},
	}
	step := l.later(func() { l.released(ops) })
	c.door.engine.Leases().Do(call, ops, func() {
		for i := range ops {
			r := &ops[i].Result
			is := leases.AnswerOf(*r).Lease
			c.changed(auth.Release, name, "for "+holder, r, is != nil && is.Modified == r.Index)
		}
		step()
	})
}

// released has the release tried again if one of its operations did not come through: both
// together, and once, for as long as the connection lives. Else they would become more with
// each refusal.
func (l *lock) released(ops []lease.Op) {
	var refused *incumbent.Error
	for i := range ops {
		if err := ops[i].Result.Err; err != nil && comesLater(err.Kind) && (refused == nil || err.RetryAfter > refused.RetryAfter) {
			refused = err
		}
	}
	if refused != nil {
		l.conn.door.putOffAfter(refused, l.later(l.release))
	}
}

// comesLater reports whether what was answered by an error of a kind is to be asked for
// again: it may come through then, or may have done so.
func comesLater(kind incumbent.Kind) bool {
	return kind.Transient() || kind == incumbent.Unknown
}

func errorIn(r core.Result) error {
	if r.Err == nil {
		return nil
	}
	return r.Err
}
