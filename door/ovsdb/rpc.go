package ovsdb

import (
	"time"
	"unsafe"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// request is one that is to be answered.
type request struct {
	conn   *conn
	method *method
	id     []byte // JSON
	params []ovs.Value
	size   int             // bytes that it counts as
	judged incumbent.Index // says by which policies its caller may ask for it: see [core.Meta]
	done   bool            // it was answered
	idle   bool            // it asks for nothing, or is refused for what it asks
	place  admit.Place     // of all but locks and transactions of the cluster's databases, which have their own
	since  time.Time       // that it waits for a place; zero: it does not

	confirmed bool // the state of now has been confirmed since it came
}

// serve serves a message, which counts as so many bytes. It is refused if there is no room for its
// values.
func (c *conn) serve(message []byte, size int, fits bool) {
	c.looked()
	v, err := ovs.ParseMessage(unsafe.String(&message[0], len(message))) // nobody changes it any more
	if err != nil {
		c.door.counts.malformed.Add(1)
		c.finished(size, true)
		c.cut(incumbent.Errorf(incumbent.Invalid, "a message that is none: %w", err))
		return
	}
	name, asks := v.Member("method")
	id, _ := v.Member("id")
	params, _ := v.Member("params")
	switch {
	case !asks || name.Kind() == ovs.Null: // the answer to an echo: that something came is what it is for
		c.finished(size, true)
	case id.Kind() == ovs.Null:
		c.notified(name.Text(), params.Elements())
		c.finished(size, true)
	default:
		r := &request{conn: c, size: size, id: id.AppendSorted(nil), params: params.Elements(), method: methods[name.Text()]}
		c.door.counts.asked(r.method)
		if !fits {
			r.refuse(ovs.Errorf(ovs.ResourcesExhausted, "what is not answered, %d bytes for each of its values at least, has more than %d bytes, or more of them than its share are of this one's client", valueBytes, c.door.limitsNow().MaxPartialBytes))
			return
		}
		if r.method == nil {
			unknownRequest(c, r)
			return
		}
		if !r.waits() {
			r.admit()
		}
	}
}

// admit serves the request once it has a place in its lane, which it keeps until it is
// answered. If there is none it waits for one: clients take a refusal for that of a
// server which cannot do what they ask for. Locks and transactions but those that look at the
// server itself do so themselves, see txn.admit and conn.placeForLock: what comes behind them
// has to find them.
func (r *request) admit() {
	c, d, call := r.conn, r.conn.door, r.method.call
	if r.done || r.transacts() && c.twice(r) { // or it was canceled meanwhile
		return
	}
	delete(c.session.putOff, string(r.id))
	lane, cost := call.Lane(), 1
	db, _ := r.text(0)
	if call == calls.OvsdbTransact && db == serverName {
		cost = max(1, len(r.params)-1)
	} else if lane == calls.NoLane || call == calls.OvsdbTransact || call == calls.OvsdbLock || call == calls.OvsdbSteal {
		r.method.serve(c, r)
		return
	}
	now := d.now()
	first := r.since.IsZero()
	if first {
		r.since = now
	}
	waits := now.Before(r.since.Add(d.limits.Load().Patience / 2)) // not as long as transactions, which are of a later lane
	p, err := c.placeIn(db, lane, cost, !first && waits)
	if err == nil {
		r.place = p
		r.method.serve(c, r)
		return
	}
	if !waits {
		r.fail(err)
		return
	}
	if call == calls.OvsdbTransact {
		if c.session.putOff == nil {
			c.session.putOff = map[string]*request{}
		}
		c.session.putOff[string(r.id)] = r
	}
	d.putOff(func() { c.do(r.admit) })
}

// placeIn gives work a place in its lane, or refuses it. again: it waits in any case, and is not
// refused.
func (c *conn) placeIn(db string, l admit.Lane, cost int, again bool) (admit.Place, error) {
	if !again {
		return c.door.lanes.Enter(c.who.work(db), l, cost)
	}
	p, why := c.door.lanes.EnterNext(c.who.work(db), l, cost)
	if why != admit.NumReasons {
		return p, errStillWaits
	}
	return p, nil
}

// errStillWaits is told to nobody.
var errStillWaits = incumbent.Errorf(incumbent.Overloaded, "there is no place yet")

// resume goes on with a request that has a place, on the connection's tasks. If that is gone
// nobody will answer it: the place is given back.
func (r *request) resume(task func()) {
	if !r.conn.do(task) {
		r.place.Leave()
	}
}

// notified takes a notification. Whatever is not known is ignored.
func (c *conn) notified(name string, params []ovs.Value) {
	if name == "cancel" && len(params) == 1 {
		c.cancel(params[0])
	}
}

// result answers a request. The bytes may be shared, and are never changed.
func (r *request) result(result ...[]byte) {
	bufs := make([][]byte, 0, len(result)+2)
	head := make([]byte, 0, 40+len(r.id))
	head = append(append(append(head, `{"id":`...), r.id...), `,"result":`...)
	bufs = append(append(bufs, head), result...)
	r.send(append(bufs, replyEnd))
}

var (
	replyEnd = []byte(`,"error":null}`)
	nothing  = []byte(`{}`)
	null     = []byte(`null`)
)

// failed answers a request with an error that is a text.
func (r *request) failed(text string) { r.error(quoted(text)) }

// refuse answers a request with an error that is an object: a transaction with one of its
// first operation, as clients expect it of whatever is wrong but syntax and unknown databases.
// Of another error some of them end the connection.
func (r *request) refuse(err *ovs.Error) {
	switch err.Name {
	case ovs.SyntaxError, ovs.UnknownDatabase, ovs.PermissionError, ovs.NotAllowed:
		r.idle = true
	}
	if r.transacts() && err.Name != ovs.SyntaxError && err.Name != ovs.UnknownDatabase {
		b := err.AppendJSON([]byte{'['})
		for range max(1, len(r.params)-1) - 1 {
			b = append(append(b, ','), null...)
		}
		r.result(append(b, ']'))
		return
	}
	r.error(err.AppendJSON(nil))
}

func (r *request) transacts() bool { return r.method != nil && r.method.call == calls.OvsdbTransact }

// fail answers a request that cannot be served. What clients begin with is not answered if it
// could be served another time: they would take that for a server which does not know the
// method, and go on with one that costs it more, or wait for ever. Nor is a transaction for
// which no leader was found, or of which it is not known what came of it: as an error of any
// kind it is given up by its client (of the errors that an operation may have but "timed
// out", which says that a wait did not hold), while one that was not answered when the
// connection ends is tried again by the C and Python clients, by what the database has then,
// and those of libovsdb, of which an error that is an object ends the connection too, learn
// that it has ended. They connect anew, and resume.
func (r *request) fail(err error) {
	if !r.drops(incumbent.KindOf(err)) {
		r.refuse(faultOf(err))
		return
	}
	r.done = true
	r.leave()
	r.conn.cut(err)
	r.conn.finished(r.size, r.idle)
}

// full ends the connection of a client that asks for a new monitor which its quota, or the room
// for conditions, does not allow: of an error Python's clients wait for ever, and those in C go
// on with a method that costs more.
func (r *request) full(err error) {
	r.done = true
	r.place.Leave()
	r.conn.cutLater(err)
	r.conn.finished(r.size, r.idle)
}

// drops reports whether the connection ends with an error of a kind: see fail.
func (r *request) drops(k incumbent.Kind) bool {
	switch k {
	case incumbent.NotLeader, incumbent.Unavailable, incumbent.DeadlineExceeded, incumbent.Unknown:
		return r.method.first || r.transacts()
	case incumbent.Overloaded:
		return r.method.first
	}
	return false
}

// syntax answers a request that says what it may not.
func (r *request) syntax(details string) { r.refuse(ovs.Errorf(ovs.SyntaxError, "%s", details)) }

func (r *request) error(value []byte) {
	r.send([][]byte{append(append(append(append([]byte(`{"id":`), r.id...), `,"result":null,"error":`...), value...), '}')})
}

// leave gives the request's place back. What was denied, and what this member knows of itself,
// waits for nothing, and says nothing of the lane.
func (r *request) leave() {
	if db, _ := r.text(0); r.idle || db == serverName {
		r.place.Drop()
		return
	}
	r.place.Leave()
}

func (r *request) send(bufs [][]byte) {
	if r.done {
		panic("ovsdb: a request is answered twice")
	}
	r.done = true
	r.leave()
	r.conn.send(true, false, bufs)
	r.conn.finished(r.size, r.idle)
}

// quoted is a text as JSON.
func quoted(text string) []byte { return ovs.AppendString(nil, text) }

// compact is a value as what it is known by.
func compact(v ovs.Value) string { return string(v.AppendSorted(nil)) }

// text is a parameter that is a text; false: it is none.
func (r *request) text(i int) (string, bool) {
	if i >= len(r.params) || r.params[i].Kind() != ovs.Text {
		return "", false
	}
	return r.params[i].Text(), true
}

// faultOf is how a client is told of an error of ours.
func faultOf(err error) *ovs.Error {
	name := "I/O error" // no leader, or an outcome that is not known: nothing that the request could say better
	switch incumbent.KindOf(err) {
	case incumbent.Denied:
		name = ovs.PermissionError
	case incumbent.TooLarge, incumbent.Overloaded:
		name = ovs.ResourcesExhausted
	case incumbent.Invalid:
		name = ovs.SyntaxError
	case incumbent.NotFound:
		name = ovs.UnknownDatabase
	case incumbent.Held, incumbent.NotHolder:
		name = ovs.NotOwner
	case incumbent.DeadlineExceeded:
		name = ovs.TimedOut
	}
	return ovs.Errorf(name, "%s", err.Error())
}
