package juju

import (
	"math"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/lease"
)

// bulk is a call that asks the lease service for several things at once, and
// again for those whose answer is not certain:
//
//	submit ─▶ admit.Line ─▶ lease.Service.Do ─▶ answers ─▶ answered ─┬─▶ reply
//	   ▲                                                     │ some are not certain
//	   └──────────── a little later ◀────────────────────────┘
//
// A lease that was granted to one param while others were asked on may be over
// when these are certain: it is asked for again before the reply.
//
// It has no goroutine while it waits. If the connection ends, it is dropped at
// its next step, or soon if it stands in line; if memory becomes short meanwhile, it is answered
// that it is to be tried again.
type bulk struct {
	*call
	lane    admit.Lane // of what is no extension
	held    *failure   // what a lease that another holds means
	form    func(id uint64, results []*failure) []byte
	results []*failure             // in the order of the params
	first   map[core.Command]int32 // which param asks for it, where there are several
	repeats []repeat

	asking // what is still asked
	tries  int
	place  admit.Place

	lined  bool   // it was refused a place, and waits for one in line
	handed int64  // when that was handed in, monotonic
	early  *early // granted to params before the last that was handed in; nil: none
	claims asking // asked when what extends has been answered; empty where all go by one lane
}

// asking is what is asked of the lease service.
type asking struct {
	ops    []lease.Op
	at     []int32         // whose result each is
	judged incumbent.Index // by which policies all of it is allowed: see [core.Meta]; 0: judged before it is handed in
}

// add asks for a command on behalf of param i.
func (a *asking) add(i int, cmd core.Command) {
	a.ops = append(a.ops, lease.Op{Command: cmd})
	a.at = append(a.at, int32(i))
}

// repeat is a param that says what an earlier one said, and has its result.
type repeat struct{ at, as int32 }

// ask asks for a command on behalf of param i: once for all params that say the
// same.
func (k *bulk) ask(i int, cmd core.Command) {
	if len(k.results) > 1 {
		if as, ok := k.first[cmd]; ok {
			k.repeats = append(k.repeats, repeat{int32(i), as})
			return
		}
		if k.first == nil {
			k.first = make(map[core.Command]int32)
		}
		k.first[cmd] = int32(i)
	}
	k.add(i, cmd)
}

// early is what was granted while other params were not certain yet. It was allowed at
// different times: it is judged again if it is asked again.
type early struct {
	asking
	until int64 // all of it holds for some time after it, monotonic
}

// newBulk returns a bulk for n params.
func (k *call) newBulk(n int, lane admit.Lane, held *failure, form func(uint64, []*failure) []byte) *bulk {
	return &bulk{call: k, lane: lane, held: held, form: form, results: make([]*failure, n), asking: asking{judged: k.judgedBy}}
}

// begin submits, unless there is nothing to ask, and returns how much there is.
func (k *bulk) begin() (asked int) {
	k.first = nil // is of no use any more
	if asked = len(k.ops); asked == 0 {
		k.finish()
		return 0
	}
	k.c.door.counts.bulks.Add(1)
	k.split()
	k.submit()
	return asked
}

// split puts off what claims where other params extend: those go by their own
// lane, and do not wait until a claim finds room in its.
func (k *bulk) split() {
	if k.lane != admit.Claims || len(k.ops) == 1 {
		return
	}
	view := k.c.door.view()
	extensions := asking{judged: k.judged}
	k.claims.judged = k.judged
	for i := range k.ops {
		to := &extensions
		if !extends(view, k.ops[i].Command) {
			to = &k.claims
		}
		to.add(int(k.at[i]), k.ops[i].Command)
	}
	if k.asking = extensions; len(k.ops) == 0 {
		k.next()
	}
}

// next goes on with what was put off; false if nothing was.
func (k *bulk) next() bool {
	k.asking, k.claims = k.claims, asking{}
	k.tries = 0
	return len(k.ops) > 0
}

// submit hands in what is still to be answered, or has it wait in line for that. None joins the
// line while memory is short for its lane.
func (k *bulk) submit() {
	d, l := k.c.door, k.laneNow()
	line := &d.lines[l]
	if line.Try(k) || d.over(l, k) {
		return
	}
	if !k.mayWait() {
		k.giveWay()
		return
	}
	d.counts.retries.Add(1)
	k.lined = true
	line.Join(k)
}

// mayWait reports whether there is room for the call to wait in. What is never refused needs none,
// and present holders have a part to themselves.
func (k *bulk) mayWait() bool {
	n := len(k.results)
	switch k.laneNow() {
	case admit.Critical:
		return true
	case admit.Extensions:
		return k.keep(n, true)
	default:
		return k.keep(n, false)
	}
}

// giveWay ends the call because there is no memory for what waits: what is not certain is answered with "try
// again", and so is what was granted to other params if that may be over by now.
func (k *bulk) giveWay() {
	refuse := func(a asking) {
		for _, at := range a.at {
			k.results[at] = errTryAgain
		}
	}
	refuse(k.asking)
	refuse(k.claims)
	if k.early != nil && k.c.door.monotonic() > k.early.until {
		refuse(k.early.asking)
	}
	k.asking, k.claims, k.early = asking{}, asking{}, nil
	k.c.door.counts.bulks.Add(-1)
	k.finish()
}

// abandon ends the call without an answer: its connection has ended.
func (k *bulk) abandon() {
	k.c.door.counts.bulks.Add(-1)
	k.drop()
}

// cost is what it takes of its lane, never more than the least that one lets in now:
// a bulk that other doors' work always leaves too little room for would wait for
// ever, and who stands in line behind it too.
func (k *bulk) cost() int {
	n := 1 + len(k.ops)/seatsPerBulk
	if lanes := k.c.door.lanes.Controller; lanes != nil {
		n = min(n, lanes.Limits().Min)
	}
	return n
}

// hand hands it in, in its place; not if its connection has ended meanwhile.
func (k *bulk) hand(p admit.Place) {
	k.lined = false
	if k.c.isGone() {
		p.Drop()
		k.abandon()
		return
	}
	if !k.judgeAgain() {
		p.Drop()
		k.advance()
		return
	}
	d := k.c.door
	k.place, k.handed = p, d.monotonic()
	origin := core.Origin{At: d.now(), Door: doorName, Address: k.c.who.address, Principal: k.c.who.principal.String()}
	d.leases.Do(lease.Call{Origin: origin, Judged: k.judged}, k.ops, func() { d.answers.Put(k) })
}

// laneNow is the lane by which the call goes now: claims of present holders are
// extensions.
func (k *bulk) laneNow() admit.Lane {
	if k.lane != admit.Claims {
		return k.lane
	}
	view := k.c.door.view()
	for i := range k.ops {
		if !extends(view, k.ops[i].Command) {
			return admit.Claims
		}
	}
	return admit.Extensions
}

// extends reports whether a command is the claim of a present holder.
func extends(view *core.View, cmd core.Command) bool {
	m, ok := cmd.(leases.ClaimCommand)
	l := leases.Of(view).Lease(m.Name)
	return ok && !l.Free() && l.Holder == m.Holder && l.Session.IsZero()
}

// answered takes what the lease service says. It runs on a goroutine of the door.
func (k *bulk) answered() {
	k.place.Leave()
	more := k.early != nil || len(k.claims.ops) > 0 || slices.ContainsFunc(k.ops, uncertain)
	rest := asking{judged: k.judged}
	var wait time.Duration
	for i := range k.ops {
		err := k.ops[i].Result.Err
		switch {
		case uncertain(k.ops[i]):
			wait = max(wait, err.RetryAfter)
			rest.add(int(k.at[i]), k.ops[i].Command)
		case err != nil:
			k.results[k.at[i]] = failureOf(err, k.held)
		default:
			k.c.done(k.method, &k.ops[i])
			if more {
				k.grant(i)
			}
		}
	}
	if k.asking = rest; len(k.ops) > 0 {
		k.later(wait)
		return
	}
	k.advance()
}

// advance goes on when all that was asked is answered.
func (k *bulk) advance() {
	if k.next() || k.again() {
		k.submit()
		return
	}
	k.c.door.counts.bulks.Add(-1)
	k.finish()
}

// judgeAgain looks again at whether the caller may ask for what is about to be handed in,
// if a policy has changed since it was looked at: a bulk may be tried for as long as there
// is no leader. What is asked later keeps its own judgement until then. It reports
// whether anything is left to ask.
func (k *bulk) judgeAgain() bool {
	v := k.c.door.view()
	if policy.Of(v).Changed() < k.judged {
		return true
	}
	rest := asking{judged: policy.JudgedBy(v)}
	for i := range k.ops {
		if k.may(k.ops[i].Command) {
			rest.add(int(k.at[i]), k.ops[i].Command)
		} else {
			k.results[k.at[i]] = errPermission
		}
	}
	k.asking = rest
	return len(k.ops) > 0
}

// may reports whether the caller may ask for what it asks for.
func (k *call) may(cmd core.Command) bool {
	switch m := cmd.(type) {
	case leases.ClaimCommand:
		if m.Name.Namespace == singularNamespace {
			return k.c.allowed(k.row, m.Name, m.Holder)
		}
		return k.c.mayClaim(m.Name.Lease, m.Holder)
	case leases.PinCommand:
		return k.c.mayFollow(k.row, m.Name.Lease)
	case leases.UnpinCommand:
		return k.c.mayFollow(k.row, m.Name.Lease)
	}
	return false
}

// uncertain reports whether something is to be asked again.
func uncertain(o lease.Op) bool { return o.Result.Err != nil && retried(o.Result.Err.Kind) }

// grant remembers a claim that was granted before the others are certain.
func (k *bulk) grant(i int) {
	m, ok := k.ops[i].Command.(leases.ClaimCommand)
	if !ok {
		return // what else there is does not run out
	}
	if k.early == nil {
		k.early = &early{until: math.MaxInt64}
	}
	k.early.add(int(k.at[i]), m)
	k.early.until = min(k.early.until, k.handed+int64(m.TTL/2))
}

// again asks again for all that was granted, if half of the time of one of them has
// passed while the others were asked; false if there is no need.
func (k *bulk) again() bool {
	g := k.early
	k.early = nil
	if g == nil || k.c.door.monotonic() <= g.until {
		return false
	}
	k.asking, k.tries = g.asking, 0
	k.split()
	return true
}

// later tries again after a while that grows, or longer if that is asked for.
func (k *bulk) later(asked time.Duration) {
	if !k.mayWait() {
		k.giveWay()
		return
	}
	k.c.door.counts.retries.Add(1)
	delay := max(asked, backoff(k.tries))
	k.tries++ // before the next attempt may begin
	k.c.door.after(delay, k.submit)
}

// backoff is how long to wait before the next attempt.
func backoff(tries int) time.Duration {
	return min(time.Duration(float64(firstRetry)*math.Pow(2, float64(min(tries, 16)))), maxRetry)
}

func (k *bulk) finish() {
	for _, r := range k.repeats {
		k.results[r.at] = k.results[r.as]
	}
	var denied *failure // of which one record is enough
	for _, f := range k.results {
		if f == nil {
			continue
		}
		k.c.door.counts.tell(k.facade, f)
		if f.code == unauthorized {
			denied = f
		}
	}
	if denied != nil {
		k.c.denied(k.method, denied)
	}
	k.reply(k.form(k.id, k.results))
}

// nameOf names the lease of an application's leadership.
func nameOf(model, application string) incumbent.Name {
	return incumbent.Name{Namespace: leadershipNamespace, Model: model, Lease: application}
}

// The namespaces, which never meet.
const (
	leadershipNamespace = "application-leadership"
	singularNamespace   = "singular-controller"
)
