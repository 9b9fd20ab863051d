package bench

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// What a unit of Juju's does next follows from the answer it gets: this file.

// jujuRetries are the pauses after a login that was told to try again.
var jujuRetries = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// jujuBounce is when an agent that has failed is started again, as Juju does. Its
// load tool gives it up instead.
const jujuBounce = 3 * time.Second

// dialAll opens connections that are due, one after the other, until none is.
func (f *jujuFleet) dialAll() {
	for {
		f.mu.Lock()
		if len(f.toDial) == 0 || f.ended {
			f.dialers--
			f.mu.Unlock()
			return
		}
		u := f.toDial[0].unit
		if f.toDial = f.toDial[1:]; len(f.toDial) == 0 {
			f.toDial = nil
		}
		host := f.hosts[u.host(len(f.hosts))]
		f.mu.Unlock()
		conn, err := f.dial(u, host)
		if err != nil {
			f.refused(u, err)
		} else {
			f.entered(u, conn)
		}
	}
}

// entered parks a unit's connection and has it claim.
func (f *jujuFleet) entered(u *unit, conn *tls.Conn) {
	c := &jujuConn{f: f, u: u}
	f.mu.Lock()
	defer f.mu.Unlock()
	parked, err := f.park.Park(conn, nil, c)
	if err != nil { // the connection has been closed
		f.connectAt(u, f.now()+jujuRedial)
		return
	}
	c.parked, u.conn, u.request, u.tries = parked, c, jujuLoginID, 0
	f.tally.Open++
	now := f.now()
	f.opConnect.done(now, now-u.connects, 1)
	u.gen++ // an extension that is planned is sent now
	f.enqueue(planned{at: now + jujuPingEvery, what: stepPing, unit: u, conn: c})
	switch {
	case !u.leads:
		f.send(u, stepClaim, now)
	case u.owed != 0:
		f.send(u, stepExtend, u.owed)
	default:
		f.send(u, stepExtend, now)
	}
}

// refused: a unit could not connect.
func (f *jujuFleet) refused(u *unit, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	f.opConnect.failed(now, 1)
	var login *loginError
	switch {
	case transientDial(err):
		u.moves = rand.IntN(len(f.hosts)) // as Juju's agents take the addresses they know
		f.plan(now+jujuRedial, stepConnect, u)
	case errors.As(err, &login) && login.code == jujuTryAgain && u.tries < len(jujuRetries):
		f.plan(now+jujuRetries[u.tries], stepConnect, u)
		u.tries++
	case errors.As(err, &login) && login.code == jujuTryAgain:
		f.tally.Ended++
		u.tries = 0
		f.connectAt(u, now+jujuBounce)
	default:
		f.fail(err) // nothing that time changes
	}
}

func (f *jujuFleet) fail(err error) {
	if f.failure == nil && !f.ended {
		f.failure = err
	}
}

// connectAt has a unit connect anew. Held: f.mu, as by all below.
func (f *jujuFleet) connectAt(u *unit, at time.Duration) {
	u.connects = at
	f.plan(at, stepConnect, u)
}

// hangUp ends a unit's connection and what is under way on it.
func (f *jujuFleet) hangUp(u *unit) {
	c := u.conn
	u.conn = nil
	f.tally.Open--
	now := f.now()
	switch u.call.what {
	case stepBlock:
		f.tally.Blocked--
	case stepClaim:
		f.opClaim.failed(now, 1)
	case stepExtend:
		f.opExtend.failed(now, 1)
		u.owe(u.call.intended)
	}
	u.call, u.ping = jujuCall{}, jujuCall{}
	c.parked.Close(nil)
}

// owe notes an extension that has no good answer.
func (u *unit) owe(intended time.Duration) {
	if u.leads && (u.owed == 0 || intended < u.owed) {
		u.owed = intended
	}
}

// closed: the server ended a connection.
func (f *jujuFleet) closed(c *jujuConn, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.u.conn != c || f.ended {
		return // we did
	}
	if errors.Is(err, errWire) {
		f.fail(err)
		return
	}
	f.tally.Closed++
	if f.struckAt == 0 {
		f.tally.Ended++ // Juju's load tool does not come back
	}
	f.hangUp(c.u)
	f.connectAt(c.u, f.now()+rand.N(jujuRedial))
}

// take handles one reply.
func (f *jujuFleet) take(c *jujuConn, r *jujuReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, now := c.u, f.now()
	if u.conn != c || f.ended {
		return // we hung up meanwhile
	}
	switch r.ID {
	case u.ping.id:
		call := u.ping
		u.ping = jujuCall{}
		if r.Error != "" {
			f.failedCall(u, f.opPing, now)
			return
		}
		f.opPing.done(now, now-call.intended, 1)
	case u.call.id:
		call := u.call
		u.call = jujuCall{}
		f.answered(u, call, r, now)
	default:
		f.check.Violate("%s: answer %d was not asked for or came twice", u.name(), r.ID)
	}
}

// answered handles the answer to a claim, an extension or a wait.
func (f *jujuFleet) answered(u *unit, call jujuCall, r *jujuReply, now time.Duration) {
	switch {
	case call.what == stepBlock:
		f.tally.Blocked--
		if r.Error != "" {
			f.failedCall(u, f.opClaim, now)
			return
		}
		f.tally.Wakes++
		f.send(u, stepClaim, now)
	case r.Error == "" && call.what == stepExtend && u.leads:
		f.opExtend.done(now, now-call.intended, 1)
		f.recovered(u, call, now)
		f.granted(u, call, now)
		f.say("extended %s held for %v in %v", u.name(), (now - u.since).Round(time.Second), (now - call.sent).Round(time.Millisecond))
	case r.Error == "":
		f.opClaim.done(now, now-call.intended, 1)
		f.granted(u, call, now)
		f.say("claimed  %s in %v", u.name(), (now - call.sent).Round(time.Millisecond))
	case r.Code == jujuDenied:
		f.denied(u, call, now)
	case call.what == stepExtend:
		if u.leads {
			f.tally.Unsure++
		}
		u.owe(call.intended)
		f.failedCall(u, f.opExtend, now)
	default:
		f.failedCall(u, f.opClaim, now)
	}
}

// failedCall: an error other than a denial ends the unit's agent, which is started
// again a little later.
func (f *jujuFleet) failedCall(u *unit, op *opRecord, now time.Duration) {
	op.failed(now, 1)
	f.tally.Ended++
	f.hangUp(u)
	f.connectAt(u, now+jujuBounce)
}

// granted: the unit leads for the time it claimed, counted from when it sent.
func (f *jujuFleet) granted(u *unit, call jujuCall, now time.Duration) {
	f.noteLapse(u, now)
	l := &f.leases[u.lease]
	if l.unit != u {
		if before := l.unit; before != nil {
			f.tally.Moved++
			f.opHandOver.done(now, max(0, now-before.due), 1)
		}
		l.unit = u
		l.token++
	}
	counted := u.leads && !u.lapsed
	if !u.leads {
		u.leads, u.since = true, now
	}
	u.until, u.due = call.sent+holdFor(f.ttl), now+dueAfter(f.ttl)
	u.lapsed, u.owed = u.lapsed && u.until < now, 0
	if !counted && !u.lapsed {
		f.tally.Leading++
	}
	u.gen++
	u.token = l.token
	f.check.Granted(u.application(), u.id, l.token, now, u.until)
	next := now + f.every
	if at := call.intended + f.every; call.what == stepExtend && at > now {
		next = at
	}
	f.plan(next, stepExtend, u)
}

// denied: another unit leads. Who counted on the lease has lost it.
func (f *jujuFleet) denied(u *unit, call jujuCall, now time.Duration) {
	if u.leads {
		f.opExtend.failed(now, 1)
		f.noteLapse(u, now)
		f.check.NotHolder(u.application(), u.token, call.sent, u.until)
		f.say("lost     %s after %v in %v", u.name(), (now - u.since).Round(time.Second), (now - call.sent).Round(time.Millisecond))
		f.noLongerLeads(u)
	} else {
		f.opDenied.done(now, now-call.intended, 1)
	}
	f.send(u, stepBlock, now)
}

// noteLapse counts that a leader's own deadline has passed: once, until it is ahead again.
// Until then it is not counted as leading.
func (f *jujuFleet) noteLapse(u *unit, now time.Duration) {
	if u.leads && u.until < now && !u.lapsed {
		u.lapsed = true
		f.tally.Leading--
		f.check.Lapsed()
	}
}

func (f *jujuFleet) noLongerLeads(u *unit) {
	if !u.lapsed {
		f.tally.Leading--
	}
	u.leads, u.lapsed, u.owed = false, false, 0
	u.gen++
	if u.struck {
		u.struck = false
		f.tally.Waiting--
		f.tally.Replaced++
	}
}

// disconnect implements victims: units come back as if the server had ended their connections.
func (f *jujuFleet) disconnect(who []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.units {
		if u.conn != nil && slices.Contains(who, u.host(len(f.hosts))) {
			f.hangUp(u)
			f.connectAt(u, f.now()+rand.N(jujuRedial))
		}
	}
}

// strike implements victims.
func (f *jujuFleet) strike() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.struckAt = f.now()
	f.tally.Struck, f.tally.Waiting, f.tally.Replaced, f.tally.Renewed = 0, 0, 0, 0
	for _, u := range f.units {
		if u.struck = u.leads; u.leads {
			f.tally.Struck++
			f.tally.Waiting++
		}
	}
}

// faultOver: what a fault came to has been judged, and all lead or are blocked again. From
// now on a connection that ends is the end of a holder, as it was before.
func (f *jujuFleet) faultOver() {
	f.struckAt = 0
	for _, u := range f.units {
		u.struck = false
	}
}

// recovered notes a leader's first good extension since the fault.
func (f *jujuFleet) recovered(u *unit, call jujuCall, now time.Duration) {
	if u.struck && call.sent >= f.struckAt {
		u.struck = false
		f.tally.Waiting--
		f.tally.Renewed = now - f.struckAt
		f.opRecovery.done(now, now-max(f.struckAt, call.intended), 1)
	}
}
