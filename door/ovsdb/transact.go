package ovsdb

import (
	"maps"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/tally"
)

// txn is a transaction that is not answered. It belongs to its connection's tasks.
type txn struct {
	conn    *conn
	request *request
	name    string // its id as compact JSON
	db      string
	feed    *feed
	place   admit.Place
	counted tally.Place // among what its principal has open; once it has waited

	command  *table.Transact
	schema   *ovs.Schema // that it was parsed by
	looks    bool        // it changes nothing, whatever the state is
	judged   incumbent.Index
	rules    *auth.Rules // of then, or older ones
	came     time.Time   // waits count from then
	began    time.Time   // when it came, or what it waits for changed: patience counts from then
	timer    *time.Timer // ends the wait; of the feed
	until    time.Time   // what its waits have time to; once it has waited
	left     bool        // it does not wait any more, and never will; of the feed
	waited   bool        // it has waited for a change
	stage    stage
	admitted bool // it has had a place in its lane
	tried    bool // it has asked for one
	held     bool // it waits for those that came before it
	over     bool // it was answered, or nobody wants to know
}

func transactRequest(c *conn, r *request) {
	db, ok := r.text(0)
	if !ok {
		r.syntax("a transaction is of a database")
		return
	}
	if db == serverName {
		c.door.feeds.server.transact(r)
		return
	}
	if !c.mayKnow(r, db) || !c.has(r, db) {
		return
	}
	if c.twice(r) { // another came while that was found out
		return
	}
	t := &txn{conn: c, request: r, name: string(r.id), db: db, feed: c.door.feeds.of(db), came: c.door.now(), stage: due}
	t.began = t.came
	if !t.parse() {
		return
	}
	s := &c.session
	if s.txns == nil {
		s.txns = map[string]*txn{}
	}
	s.txns[t.name] = t
	s.order = append(s.order, t)
	t.admit()
}

// twice reports whether a transaction has the id of another one that is not answered, of which
// that of the database about the server counts only while it waits for a place. Then it has been
// refused: its answer would look like the other's, which could not be canceled any more.
func (c *conn) twice(r *request) bool {
	s := &c.session
	other := s.putOff[string(r.id)]
	if s.txns[string(r.id)] == nil && (other == nil || other == r) {
		return false
	}
	r.syntax("duplicate request ID")
	return true
}

// parse reads the operations by the schema of now, and judges them; false: it has been
// answered.
func (t *txn) parse() bool {
	c, r := t.conn, t.request
	database := table.Of(c.door.view()).Database(c.door.namespace, t.db)
	if database == nil {
		r.unknownDatabase(t.db)
		return false
	}
	ops, err := ovs.ParseTransaction(database.Schema, r.params[1:], newUUID)
	if err != nil {
		r.refuse(err)
		return false
	}
	t.looks = !slices.ContainsFunc(ops, changes)
	t.rules = rulesIn(c.door.view())
	roles, denied := t.judge(ops)
	if denied != nil {
		r.refuse(faultOf(denied))
		return false
	}
	o := c.who.remote.get()
	if o.ReadOnly {
		forbid(ops)
	}
	t.schema = database.Schema
	t.command = &table.Transact{
		Namespace: c.door.namespace, Database: t.db, Schema: database.SchemaIndex, Operations: ops, Role: o.Role, Client: c.who.name, Roles: roles,
	}
	return true
}

// judge returns nil if the client may ask for the operations, by the policies of judged,
// and within which roles it may change rows, none: within all.
func (t *txn) judge(ops []ovs.Operation) (roles []string, denied error) {
	who := t.conn.who
	t.judged = 0
	if !t.looks {
		if roles, t.judged, denied = who.mayWrite(t.db); denied != nil {
			return nil, denied
		}
	}
	if t.looks || slices.ContainsFunc(ops, shows) {
		at, denied := who.may(auth.TableRead, t.conn.door.named(t.db))
		if denied != nil {
			return nil, denied
		}
		if t.judged == 0 {
			t.judged = at // else the older: what changes in between is noticed
		}
	}
	return roles, nil
}

// mayKnow reports whether the caller may know of the database that a transaction is for;
// else it has been answered, in the same way whether or not it is there.
func (c *conn) mayKnow(r *request, db string) bool {
	if rights, _ := c.who.rights(); knowsOf(rights, c.door.named(db).Name) {
		return true
	}
	_, err := c.who.may(asked(r.params[1:]), c.door.named(db))
	if err != nil {
		r.refuse(faultOf(err))
	}
	return err == nil // by policies of this moment
}

// asked is what a transaction asks for that has not been read by a schema.
func asked(ops []ovs.Value) auth.Action {
	for _, o := range ops {
		if op, there := o.Member("op"); there && slices.Contains(slices.Collect(maps.Values(changing)), op.Text()) {
			return auth.TableWrite
		}
	}
	return auth.TableRead
}

// changes reports whether an operation may change something.
func changes(o ovs.Operation) bool {
	return o.Op == ovs.OpInsert || o.Op == ovs.OpUpdate || o.Op == ovs.OpMutate || o.Op == ovs.OpDelete
}

// shows reports whether what an operation answers says something of the rows that are
// there: what they have, or how many meet a condition.
func shows(o ovs.Operation) bool {
	return o.Op == ovs.OpSelect || o.Op == ovs.OpWait || o.Op == ovs.OpUpdate || o.Op == ovs.OpMutate || o.Op == ovs.OpDelete
}

// changing are the operations that may change something.
var changing = map[ovs.Op]string{ovs.OpInsert: "insert", ovs.OpUpdate: "update", ovs.OpMutate: "mutate", ovs.OpDelete: "delete"}

// forbid has the operations fail that may change something.
func forbid(ops []ovs.Operation) {
	for i := range ops {
		if changes(ops[i]) {
			ops[i] = ovs.Operation{Op: ovs.OpFail, Err: ovs.Errorf(ovs.NotAllowed, "%s operation not allowed when database server is in read only mode", changing[ops[i].Op])}
		}
	}
}

// look looks again at what a transaction has waited for, in the lane of what waits: if
// there is no place it goes on waiting, up to its time.
func (t *txn) look() {
	if t.over {
		return
	}
	d := t.conn.door
	t.began = d.now()
	p, err := t.conn.placeIn(t.db, laneOfWaits, 1, true)
	switch {
	case err == nil:
		t.place = p
	case t.began.Before(t.until):
		t.again((*txn).look)
		return
	default: // its time is over; what it waited for may hold by now, and changes something then
		t.tried, t.admitted = false, false // its place was given back when it began to wait
		t.admit()
		return
	}
	if t.rules != rulesIn(t.conn.door.view()) {
		t.reparse()
		return
	}
	t.start()
}

// admit gives the transaction a place in its lane: if there is none it waits for one.
func (t *txn) admit() {
	if t.over {
		return
	}
	if t.before() == due { // whose place it might take
		t.hold()
		return
	}
	d := t.conn.door
	waits := d.now().Before(t.began.Add(d.limits.Load().Patience))
	p, err := t.conn.placeIn(t.db, t.request.method.call.Lane(), len(t.command.Operations), t.tried && waits)
	t.tried = true
	switch {
	case err == nil:
		t.admitted = true
		t.place = p
		t.start()
	case waits:
		t.again((*txn).admit)
	default:
		t.fail(failed, err)
	}
}

// again has the transaction go on after a while.
func (t *txn) again(step func(*txn)) {
	t.conn.door.putOff(func() { t.conn.do(func() { step(t) }) })
}

// start executes the transaction. What would change nothing is answered by a confirmed
// state, at no cost for the log, unless transactions of the same client are on their way
// that it comes behind.
func (t *txn) start() {
	if t.over {
		return
	}
	t.command.Locks = t.conn.heldLocks(t.command.Operations)
	before := t.before()
	switch {
	case before == due || before == flying && t.looks:
		t.hold()
	case before == flying:
		t.propose()
	case t.idles():
		t.stage = confirming
		t.conn.door.confirm(func(err error) { t.conn.do(func() { t.confirmed(err) }) })
		t.letFollow()
	case before == confirming:
		t.hold()
	default:
		t.propose()
	}
}

func (t *txn) idles() bool {
	_, idle := t.try(t.conn.door.view())
	return idle
}

func (t *txn) try(v *core.View) (core.Result, bool) {
	r, idle := table.Of(v).Idling(v, t.command)
	r.Index = v.Index()
	return r, idle
}

// confirmed answers by the state that has been confirmed, if nothing would change.
func (t *txn) confirmed(err error) {
	if t.over {
		return
	}
	if err != nil {
		t.fail(unsettled, err)
		return
	}
	v := t.conn.door.view()
	if t.rules != rulesIn(v) {
		t.reparse()
		return
	}
	if t.before() != past { // one changes something after all
		t.hold()
		return
	}
	r, idle := t.try(v)
	if !idle {
		t.propose()
		return
	}
	t.ended(r, idle)
}

// propose has the transaction executed in the order of the log. Those behind it may go on.
func (t *txn) propose() {
	d := t.conn.door
	t.stage = flying
	call := engine.Call{Meta: core.Meta{Origin: t.conn.who.origin(), Judged: t.judged}}
	// There is no deadline: what is on its way to the log is better told late, as what it came
	// to, than in time as an error after which it may yet take effect. Clients wait. Nor does the
	// place end before that, if nobody wants to know any more: the log has the work all the same.
	place := t.place
	t.place = admit.Place{}
	d.engine.Execute(call, t.command, func(r core.Result) {
		if !t.conn.do(func() { t.landed(place, r) }) {
			t.noted(&r)
			place.Leave()
		}
	})
	t.letFollow()
}

// landed takes what has come out of the log, and the place that it had there.
func (t *txn) landed(place admit.Place, r core.Result) {
	t.noted(&r)
	if t.over {
		place.Leave()
		t.conn.next()
		return
	}
	t.place = place
	t.ended(r, false)
}

// noted hands on what the log has made of the transaction, whoever still waits for it.
func (t *txn) noted(r *core.Result) {
	out, ok := r.Record.(*table.Outcome)
	t.conn.door.settled(t.conn.who, auth.TableWrite, subjectOf(t.conn.door.named(t.db).Name), "", r, ok && !out.TxnID.IsZero())
}

// ended takes what the execution has come to.
func (t *txn) ended(r core.Result, unchanged bool) {
	if r.Err != nil {
		t.refused(r.Err)
		return
	}
	t.stage = past
	out, ok := r.Record.(*table.Outcome)
	if !ok {
		t.fail(unsettled, errNoOutcome)
		return
	}
	if out.Waits {
		i := slices.IndexFunc(out.Results, func(r table.Result) bool { return r.Err != nil })
		if t.await(&t.command.Operations[i], r.Index, out.Tables) {
			t.conn.next()
			return
		}
		over := *out
		over.Results = slices.Clone(out.Results)
		over.Results[i].Err = ovs.TimedOutError(t.conn.door.now().Sub(t.came))
		out = &over
	}
	how := committed
	switch {
	case out.Failed:
		how = failed
	case unchanged:
		how = idle
	}
	t.tell(how, r.Index, out)
}

// tell answers, once the client has been told of what it monitors up to an index.
func (t *txn) tell(how outcome, at incumbent.Index, out *table.Outcome) {
	c := t.conn
	result := out.AppendJSON(nil, t.schema)
	answer := func() {
		if t.over {
			c.next()
			return
		}
		t.close(how)
		t.request.result(result)
		c.next()
	}
	if len(c.session.monitors) == 0 {
		answer()
		return
	}
	t.feed.do(func() { t.feed.when(at, func() { c.do(answer) }) })
}

// refused answers what was not executed, or tries it again: what certainly has had no
// effect because nobody led, because policies have changed meanwhile, or because the
// schema has.
func (t *txn) refused(err *incumbent.Error) {
	d := t.conn.door
	switch err.Kind {
	case incumbent.NotLeader, incumbent.Unavailable, incumbent.Overloaded:
		if d.now().Before(t.began.Add(d.limits.Load().Patience)) {
			t.postpone()
			t.again((*txn).reparse)
			t.conn.next()
			return
		}
	case incumbent.Conflict: // it was parsed by another schema
		t.reparse()
		return
	}
	t.fail(unsettled, err)
}

// reparse begins anew with the schema and the policies of now.
func (t *txn) reparse() {
	if t.over {
		return
	}
	if !t.conn.mayKnow(t.request, t.db) || !t.parse() {
		t.close(failed)
		t.conn.next()
		return
	}
	t.start()
}

// fail answers that the transaction was not executed, or ends the connection: see
// request.fail. Those behind it do not go on then.
func (t *txn) fail(how outcome, err error) {
	t.close(how)
	t.request.fail(err)
	if !t.request.drops(incumbent.KindOf(err)) {
		t.conn.next()
	}
}

var errNoOutcome = incumbent.Errorf(incumbent.Unknown, "the outcome of the transaction is not known")

// close says that the transaction is answered.
func (t *txn) close(how outcome) {
	s := &t.conn.session
	t.over = true
	t.place.Leave()
	t.counted.Give()
	d := t.conn.door
	d.counts.transacted(t, how, d.now())
	if t.waited {
		t.feed.do(func() { t.feed.drop(t) })
	}
	if s.txns[t.name] == t {
		delete(s.txns, t.name)
	}
	if i := slices.Index(s.order, t); i >= 0 {
		s.order = slices.Delete(s.order, i, i+1)
	}
}

// cancel ends a transaction that has not been answered. One that is on its way through
// the log may still take effect.
func (c *conn) cancel(id ovs.Value) {
	t := c.session.txns[compact(id)]
	if r := c.session.putOff[compact(id)]; r != nil && t == nil {
		delete(c.session.putOff, compact(id))
		r.failed("canceled")
		return
	}
	if t == nil {
		c.door.feeds.server.cancel(c, compact(id))
		return
	}
	t.close(given)
	t.request.failed("canceled")
	c.next()
}

// abandon is told that the connection is gone.
func (t *txn) abandon() {
	t.over = true
	t.place.Leave()
	t.counted.Give()
	d := t.conn.door
	d.counts.transacted(t, given, d.now())
	t.feed.do(func() { t.feed.drop(t) })
}
