package juju

import (
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// method is one thing a client may call. The order is that of metrics.
type method uint8

// The methods.
const (
	ping method = iota
	claimLeadership
	blockUntilReleased
	pinLeaders
	unpinLeaders
	pinnedLeadership
	singularClaim
	singularWait
	numMethods
)

// facade is a group of methods with a version.
type facade struct {
	name    string
	version int
	needs   auth.Grant // 0: every agent has it
	number  int        // among what errors are counted by
}

var (
	leadershipFacade = &facade{name: "LeadershipService", version: 2, number: 0}
	pinnerFacade     = &facade{name: "LeadershipPinner", version: 1, number: 1}
	pingerFacade     = &facade{name: "Pinger", version: 1, number: 2}
	singularFacade   = &facade{name: "Singular", version: 2, needs: auth.Controller, number: 3}
	// The rest is for metrics only.
	loginFacade = &facade{name: adminFacade, version: adminVersion, number: 4} // what is asked before the login
	otherFacade = &facade{name: "other", number: 5}                            // any that there is not
)

const numFacades = 6

// facades are those of an agent that has logged in, in the order in which it is
// told.
func facades() []*facade {
	return []*facade{leadershipFacade, pinnerFacade, pingerFacade, singularFacade}
}

// facadeNamed is the facade of a name.
func facadeNamed(name string) *facade {
	for _, f := range append(facades(), loginFacade) {
		if f.name == name {
			return f
		}
	}
	return otherFacade
}

// facadesFor are those that an agent may use.
func facadesFor(who *agent) []*facade {
	var out []*facade
	for _, f := range facades() {
		if f.needs == 0 || who.grants.Has(f.needs) {
			out = append(out, f)
		}
	}
	return out
}

// methods says what each method is called, who serves it, and its row in the table of
// calls: what that needs, and its lane.
var methods = [numMethods]struct {
	facade *facade
	name   string
	serve  func(*call, *request) (asked int) // returns what conn.serve does
	row    calls.Call                        // in the table of all doors' calls
}{
	ping:               {pingerFacade, "Ping", (*call).ping, calls.JujuPing},
	claimLeadership:    {leadershipFacade, "ClaimLeadership", (*call).claimLeadership, calls.JujuClaim},
	blockUntilReleased: {leadershipFacade, "BlockUntilLeadershipReleased", (*call).blockUntilReleased, calls.JujuBlock},
	pinLeaders:         {pinnerFacade, "PinApplicationLeaders", (*call).pin, calls.JujuPin},
	unpinLeaders:       {pinnerFacade, "UnpinApplicationLeaders", (*call).pin, calls.JujuPin},
	pinnedLeadership:   {pinnerFacade, "PinnedLeadership", (*call).pinned, calls.JujuPinned},
	singularClaim:      {singularFacade, "Claim", (*call).singularClaim, calls.JujuSingular},
	singularWait:       {singularFacade, "Wait", (*call).singularWait, calls.JujuSingularWait},
}

// find returns what a request calls, or why there is no such thing.
func find(r *request) (method, *failure) {
	known := false
	for m := range numMethods {
		f := methods[m].facade
		if f.name != r.Facade {
			continue
		}
		known = true
		if r.Version != 0 && r.Version != f.version {
			return 0, unknownVersion(r.Facade, r.Version)
		}
		if methods[m].name == r.Method {
			return m, nil
		}
	}
	if r.Facade == adminFacade && r.Method == loginMethod {
		return 0, errTwice
	}
	if !known {
		return 0, &failure{notImplemented, "unknown facade type " + strconv.Quote(r.Facade)}
	}
	return 0, &failure{notImplemented, "no such request - method " + r.Facade + "." + r.Method + " is not implemented"}
}

func unknownVersion(facade string, version int) *failure {
	return &failure{notImplemented, "unknown version " + strconv.Itoa(version) + " of facade type " + strconv.Quote(facade)}
}

// call is a request under way.
type call struct {
	c        *conn
	id       uint64
	method   method
	facade   *facade         // the method's
	row      calls.Call      // the method's
	seats    int32           // places it takes among the connection's unanswered requests
	began    int64           // monotonic nanoseconds
	judgedBy incumbent.Index // says by which policies it was allowed as it began: see [core.Meta]
	kept     int64           // bytes of the door's room for what waits that it has taken
}

// serve serves a request, and returns for how many things it has asked that the load may be a
// reason to refuse.
func (c *conn) serve(r *request) (asked int) {
	m, f := find(r)
	if f == nil {
		if needs := methods[m].facade.needs; needs != 0 && !c.who.grants.Has(needs) {
			f = errPermission
		}
	}
	k := &call{c: c, id: r.ID, method: m, facade: methods[m].facade, row: methods[m].row, seats: 1, began: c.door.monotonic(), judgedBy: policy.JudgedBy(c.door.view())}
	if f == nil && !k.sit(1) {
		f = errTooMany
	}
	if f != nil {
		c.door.counts.tell(facadeNamed(r.Facade), f)
		c.denied(m, f)
		c.send(replyError(r.ID, f))
		return 0
	}
	return methods[m].serve(k, r)
}

// sit takes n places among the connection's unanswered requests.
func (k *call) sit(n int32) bool {
	if k.c.open.Add(n) > int32(k.c.door.limits.Load().MaxOutstanding) {
		k.c.open.Add(-n)
		return false
	}
	return true
}

// keep takes room for the call, which is about to wait for n things, unless it has taken some. false:
// there is none left, or only for others, as a part is for present holders, and the call is to be refused.
func (k *call) keep(n int, holder bool) bool {
	if k.kept > 0 {
		return true
	}
	most := k.c.door.lanes.Bound(MaxWaitingBytes)
	if !holder {
		most -= most / extendingPart
	}
	bytes := callBytes + int64(n)*waitingItemBytes
	if !k.c.door.waiting.Take(k.c.who.work(), bytes, most) {
		return false
	}
	k.kept = bytes
	return true
}

// reply answers the call. It is called once, unless drop is.
func (k *call) reply(b []byte) {
	k.drop()
	d := k.c.door
	d.counts.methods[k.method].Observe(time.Duration(d.monotonic() - k.began))
	k.c.send(b)
}

// refuse answers the call with an error as a whole: nothing was asked, unless the load was why.
func (k *call) refuse(f *failure) (asked int) {
	k.count(f)
	k.reply(replyError(k.id, f))
	return 0
}

// refuseFor is refuse because of the load, of a call that asks for n things.
func (k *call) refuseFor(n int, f *failure) (asked int) {
	k.refuse(f)
	return n
}

// count counts an error that the client is told.
func (k *call) count(f *failure) {
	k.c.door.counts.tell(k.facade, f)
	k.c.denied(k.method, f)
}

// drop ends a call without an answer: its connection has ended.
func (k *call) drop() {
	k.c.open.Add(-k.seats)
	if k.kept > 0 {
		k.c.door.waiting.Give(k.c.who.work(), k.kept)
	}
}

func (k *call) ping(*request) (asked int) {
	k.reply(replyEmpty(k.id))
	return 0
}
