package ovsdb

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// guests is a guard that takes who connects for whom it is told to.
type guests struct {
	mu   sync.Mutex
	who  auth.Principal
	gone bool   // nobody is known any more
	met  func() // somebody has been identified
}

func (g *guests) Identify(auth.Peer) (auth.Principal, error) {
	g.mu.Lock()
	who, met := g.who, g.met
	g.mu.Unlock()
	if met != nil {
		met()
	}
	return who, nil
}

func (g *guests) Knows() func(auth.Principal) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := g.gone
	return func(auth.Principal) bool { return !gone }
}

// records are what a door has noted.
type records struct {
	mu   sync.Mutex
	list []audit.Record
}

func (r *records) note(x audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, x)
}

// denied are the subjects of what was denied, with what it was.
func (r *records) denied() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.list {
		if x.Outcome == audit.Denied {
			out = append(out, x.Action+" "+x.Subject)
		}
	}
	return out
}

// guarded is a member whose clients are whom a test says.
type guarded struct {
	*member
	guests  *guests
	records *records
}

func startGuarded(t *testing.T) *guarded { return startGuardedWith(t, nil) }

// startGuardedWith is startGuarded with lanes.
func startGuardedWith(t *testing.T, lanes *admit.Controller) *guarded {
	t.Helper()
	g := &guarded{guests: &guests{who: operatorO()}, records: &records{}}
	g.member = startMember(t, func(c *Config) {
		c.Schemas, c.Guard, c.Audit, c.Admission = [][]byte{[]byte(testSchema)}, g.guests, g.records.note, lanes
	})
	return g
}

func operatorO() auth.Principal {
	return auth.Principal{Name: "o", Kind: auth.Operator, Via: auth.Credential}
}

func agentOf(name string) auth.Principal {
	return auth.Principal{Name: name, Kind: auth.Agent, Via: auth.Credential}
}

// as is a connection of somebody.
func (g *guarded) as(p auth.Principal) *client {
	g.tb.Helper()
	g.guests.mu.Lock()
	g.guests.who = p
	g.guests.mu.Unlock()
	c := g.dial()
	want(g.tb, "an echo", c.call("echo", `[]`), `[]`)
	return c
}

func set(rules ...auth.Rule) *policy.Command {
	return &policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "p", For: []string{"agent:*"}, Rules: rules}}
}

// let sets the one policy of a test.
func (m *member) let(rules ...auth.Rule) {
	m.tb.Helper()
	if r := m.group.Do(set(rules...)); r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

func tableRule(v auth.Verbs) auth.Rule {
	return auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "T", Verbs: v}
}

func lockRule(v auth.Verbs) auth.Rule {
	return auth.Rule{State: auth.Leases, Namespace: "default", Model: lockModel, Verbs: v}
}

const permission = `"error":"permission error"`

// refused fails unless an answer is that something is not permitted: of a transaction it says
// that of the first operation.
func refused(tb testing.TB, what, got string) {
	tb.Helper()
	if !strings.HasPrefix(got, "error ") && !strings.HasPrefix(got, `[{"details":`) || !strings.Contains(got, permission) {
		tb.Errorf("%s: %s", what, got)
	}
}

const monitorT = `["T","m",{"P":{"columns":["name"]}}]`

// A monitor ends with the right to it, though nothing else happens: clients that are
// aware are told so, the others are sent away; and who asks again is refused.
func TestG12_MonitorsFollowThePolicies(t *testing.T) {
	g := startGuarded(t)
	w := g.as(operatorO())
	g.let(tableRule(auth.See | auth.Follow))
	aware, unaware := g.as(agentOf("a")), g.as(agentOf("b"))
	want(t, "aware", aware.call("set_db_change_aware", `[true]`), `{}`)
	for _, c := range []*client{aware, unaware} {
		want(t, "the monitor", c.call("monitor_cond", monitorT), `{}`)
	}
	want(t, "an operator's", w.call("monitor_cond", monitorT), `{}`)
	g.let(tableRule(auth.See | auth.Write))
	want(t, "who is aware", aware.read(), `{"id":null,"method":"monitor_canceled","params":["m"]}`)
	unaware.ended()
	aware.write(ask("7", "transact", insertA))
	wantIDs(t, "nothing is told of what comes after", aware.answer(), `[{"uuid":["uuid","ID"]}]`)
	wantIDs(t, "but an operator", w.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"insert":{"name":"a"}}}}]}`)
	refused(t, "the monitor again", aware.call("monitor_cond", monitorT))
	if got := aware.call("monitor_cond_change", `["m","n",{}]`); !strings.HasPrefix(got, "error ") {
		t.Errorf("a change of what has ended: %s", got)
	}
	if st := g.records.denied(); len(st) != 3 || st[0] != "table_watch default:T" {
		t.Errorf("denied and recorded: %v", st)
	}
}

// A monitor that was asked for before a policy changed, and begins after it, is judged
// by the new one.
func TestG12_MonitorsAreJudgedWhenTheyBegin(t *testing.T) {
	g := startGuarded(t)
	g.let(tableRule(auth.See | auth.Follow))
	c := g.as(agentOf("a"))
	g.group.Hold()
	c.write(ask("7", "monitor_cond", monitorT) + ask("8", "echo", `[]`))
	want(t, "it is under way", c.read(), `{"error":null,"id":8,"result":[]}`)
	g.let(tableRule(auth.See))
	g.group.Release()
	refused(t, "the monitor", c.answer())
}

// A change of a monitor's conditions is judged by the policies of then, whether or not
// the monitor has been looked at since they changed.
func TestG12_ChangesOfConditionsAreJudged(t *testing.T) {
	g := startGuarded(t)
	g.let(tableRule(auth.Follow))
	want(t, "the monitor", g.as(agentOf("a")).call("monitor_cond", monitorT), `{}`)
	c, f := g.door.conns.All()[0], g.door.feeds.of("T")
	params, err := ovs.ParseJSON(`["m","n",{"P":[{"where":[["name","==","secret"]]}]}]`)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *ovs.Error, 1)
	c.do(func() {
		m := c.session.monitors.get(`"m"`)
		f.do(func() { // in one turn of the feed, which does not hear of the policy in it
			g.let(tableRule(auth.See))
			got <- m.change(&request{conn: c, params: params.Elements()}, m.id, g.door.contentsOf(g.door.view(), "T"))
		})
	})
	if bad := <-got; bad == nil || bad.Name != ovs.PermissionError {
		t.Errorf("it is answered %v", bad)
	}
}

// What a client looks at is judged by the policies of the state that it is shown, and a
// transaction that waits is answered when it may not look any more.
func TestG12_LooksFollowThePolicies(t *testing.T) {
	g := startGuarded(t)
	g.let(tableRule(auth.See))
	a, b := g.as(agentOf("a")), g.as(agentOf("b"))
	a.write(ask("7", "transact", `["T",{"op":"wait","table":"Q","where":[],"columns":["n"],"until":"==","rows":[{"n":5}]}]`))
	a.write(ask("8", "transact", `["T",{"op":"select","table":"P","where":[]}]`))
	want(t, "what is behind the one that waits", a.read(), `{"error":null,"id":8,"result":[{"rows":[]}]}`)
	g.group.Hold()
	b.write(ask("7", "transact", `["T",{"op":"select","table":"P","where":[]}]`) + ask("8", "echo", `[]`))
	want(t, "it is under way", b.read(), `{"error":null,"id":8,"result":[]}`)
	g.let(tableRule(auth.Follow))
	g.group.Release()
	refused(t, "a look that is under way", b.answer())
	refused(t, "a wait", a.answer())
}

// What a policy allowed when it was asked for, and forbids before it comes to its place
// in the log, is not executed.
func TestG12_LocksUnderWayAreBoundByANewPolicy(t *testing.T) {
	g := startGuarded(t)
	victim := g.as(operatorO())
	want(t, "another's lock", victim.call("lock", `["other"]`), `{"locked":true}`)
	for _, tt := range []struct {
		method, lock string
		left         auth.Verbs
	}{{"lock", "l", auth.See}, {"steal", "other", auth.See}, {"steal", "other", auth.Write}} {
		g.let(lockRule(auth.Write | auth.ReleaseOthers))
		c := g.as(agentOf("a"))
		want(t, "a lock before", c.call("lock", `["mine"]`), `{"locked":true}`)
		before := g.group.Proposed()
		g.group.Hold()
		c.write(ask("7", tt.method, `["`+tt.lock+`"]`))
		for g.group.Proposed() == before {
			continue
		}
		g.let(lockRule(tt.left))
		g.group.Release()
		if tt.left&auth.Write == 0 {
			c.refusedOrGone(tt.method)
		} else {
			refused(t, tt.method+" of others", c.answer())
			want(t, "its own is left", c.call("unlock", `["mine"]`), `{}`)
		}
		c.conn.Close()
		victim.until("the others' sessions have ended", func() bool { return g.door.view().SessionCount() == 1 })
		l := leases.Of(g.group.View()).Lease(g.door.lockName(tt.lock))
		if tt.lock == "l" && l != nil && l.LastToken != 0 || tt.lock == "other" && !strings.HasPrefix(l.Holder, "o/") { // not for a moment
			t.Errorf("%s of %s: held by %q, under %v at last", tt.method, tt.lock, l.Holder, l.LastToken)
		}
	}
	want(t, "who has it still", victim.call("echo", `[]`), `[]`)
}

// refusedOrGone fails unless a client is refused what it asked for, or is sent away
// before, as its other locks may be looked at first.
func (c *client) refusedOrGone(what string) {
	c.tb.Helper()
	var m map[string]any
	if err := c.in.Decode(&m); err == nil && m["error"] == nil {
		c.tb.Errorf("%s: %v", what, m)
	}
}

// Locks end with the right to them, and so do places in queues: whoever may have them is
// next, and nothing keeps the sessions of the others.
func TestG12_LocksFollowThePolicies(t *testing.T) {
	g := startGuarded(t)
	g.let(lockRule(auth.Write))
	holds, waits, next := g.as(agentOf("a")), g.as(agentOf("b")), g.as(operatorO())
	want(t, "who holds it", holds.call("lock", `["l"]`), `{"locked":true}`)
	want(t, "who waits", waits.call("lock", `["l"]`), `{"locked":false}`)
	want(t, "who waits behind", next.call("lock", `["l"]`), `{"locked":false}`)
	g.let(lockRule(auth.See))
	holds.ended()
	waits.ended()
	want(t, "who is next", next.read(), `{"id":null,"method":"locked","params":["l"]}`)
	next.until("one session is left", func() bool { return g.door.view().SessionCount() == 1 })
	refused(t, "a lock", g.as(agentOf("a")).call("lock", `["l"]`))
}

// A lock that is denied is recorded under the name of its lease.
func TestDeniedLocksAreRecordedByTheirNames(t *testing.T) {
	g := startGuarded(t)
	g.let(lockRule(auth.See))
	c := g.as(agentOf("a"))
	refused(t, "a lock", c.call("lock", `["l"]`))
	refused(t, "a database", c.call("get_schema", `["T"]`))
	if got := g.records.denied(); len(got) != 2 || got[0] != "claim default:ovsdb:l" || got[1] != "table_read default:T" {
		t.Errorf("recorded: %q", got)
	}
}

// A stealer waits for who holds the lock, and then has it handed over. What a policy
// forbids between these two is not done.
func TestG12_AHandOverUnderWayIsBoundByANewPolicy(t *testing.T) {
	g := startGuarded(t)
	victim := g.as(operatorO())
	want(t, "another's lock", victim.call("lock", `["l"]`), `{"locked":true}`)
	held := *leases.Of(g.group.View()).Lease(g.door.lockName("l"))
	for name, left := range map[string]auth.Verbs{"may not steal": auth.Write, "may not have it": auth.ReleaseOthers} {
		g.let(lockRule(auth.Write | auth.ReleaseOthers))
		thief := g.as(agentOf("a"))
		var x *conn
		for _, c := range g.door.conns.All() {
			if c.who.principal.Name == "a" {
				x = c
			}
		}
		// Whoever waits asks nothing of the door, whose worker may stand still.
		until := func(ok func() bool) {
			t.Helper()
			for end := time.Now().Add(patience); !ok(); runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatalf("%s: it goes on for too long", name)
				}
			}
		}
		// propose waits for what the thief's connection asks of the log, and lets nothing
		// pass.
		propose := func(step func()) {
			t.Helper()
			before, asked := g.group.Proposed(), false
			g.group.Hold()
			defer func() {
				if !asked {
					g.group.Release() // else nothing ends
				}
			}()
			step()
			until(func() bool { return g.group.Proposed() > before })
			asked = true
		}
		want(t, "a session", thief.call("lock", `["mine"]`), `{"locked":true}`)
		propose(func() { thief.write(ask("7", "steal", `["l"]`)) })
		queued := make(chan struct{})
		x.do(func() { <-queued })
		g.group.Release()
		until(func() bool { return leases.Of(g.group.View()).Lease(held.Name).Waiting > 0 })
		propose(func() { close(queued) })
		g.let(lockRule(left))
		g.group.Release()
		if left&auth.Write == 0 {
			thief.refusedOrGone("steal") // its own locks may be looked at first
		} else {
			refused(t, name, thief.answer())
		}
		thief.conn.Close()
		victim.until("the thief has gone", func() bool { return g.door.view().SessionCount() == 1 && len(g.door.conns.All()) == 1 })
		if l := leases.Of(g.group.View()).Lease(held.Name); l.Token != held.Token || l.LastToken != held.Token || l.Session != held.Session {
			t.Errorf("%s: held by %q under %v, before by %q under %v", name, l.Holder, l.LastToken, held.Holder, held.Token)
		}
	}
	want(t, "who has it still", victim.call("echo", `[]`), `[]`)
}

// A conversion that meets other policies than it was judged by is judged anew: who may
// not is told so, and who may has it done.
func TestG12_AConversionIsJudgedAnew(t *testing.T) {
	schema := strings.Replace(testSchema, `"n":{"type":"integer"}`, `"n":{"type":"integer"},"o":{"type":"string"}`, 1)
	for name, tt := range map[string]struct {
		left auth.Verbs
		may  bool
	}{"may not any more": {auth.See, false}, "may still": {auth.See | auth.Administer, true}} {
		t.Run(name, func(t *testing.T) {
			g := startGuarded(t)
			g.let(tableRule(auth.AllVerbs))
			c := g.as(agentOf("a"))
			before := g.group.Proposed()
			g.group.Hold()
			c.write(ask("7", "convert", `["T",`+schema+`]`))
			c.until("it is under way", func() bool { return g.group.Proposed() > before })
			g.let(tableRule(tt.left))
			g.group.Release()
			got := c.answer()
			if tt.may {
				want(t, "convert", got, `{}`)
			} else {
				refused(t, "convert", got)
			}
			if got := g.as(operatorO()).call("get_schema", `["T"]`); strings.Contains(got, `"o"`) != tt.may {
				t.Errorf("the schema: %s", got)
			}
		})
	}
}

// A conversion is bound by the policies that it was judged by, whenever they change
// between a look at them and its way into the log.
func TestG12_AConversionNamesThePoliciesItWasJudgedBy(t *testing.T) {
	const looks = 3 // before it is asked for
	schema := strings.Replace(testSchema, `"n":{"type":"integer"}`, `"n":{"type":"integer"},"o":{"type":"string"}`, 1)
	for n := range looks {
		g := startGuarded(t)
		g.let(tableRule(auth.AllVerbs))
		c := g.as(agentOf("a"))
		set := make(chan struct{})
		x := g.door.conns.All()[0]
		x.do(func() {
			view, looked := g.door.view, atomic.Int64{}
			g.door.view = func() *core.View {
				v := view()
				if looked.Add(1) == int64(n)+1 {
					g.let(tableRule(auth.See))
				}
				return v
			}
			close(set)
		})
		<-set
		refused(t, "convert", c.call("convert", `["T",`+schema+`]`))
		if got := c.call("get_schema", `["T"]`); strings.Contains(got, `"o"`) {
			t.Errorf("it was converted, where the policies changed behind look %d", n)
		}
	}
}

// Who is revoked between being identified and being known to the door is sent away.
func TestG12_WhoIsRevokedOnTheWayInIsSentAway(t *testing.T) {
	g := startGuarded(t)
	before := g.as(operatorO())
	g.guests.mu.Lock()
	g.guests.met = func() {
		g.guests.mu.Lock()
		g.guests.gone = true
		g.guests.mu.Unlock()
		g.door.Recheck()
	}
	g.guests.mu.Unlock()
	c := g.dial()
	c.ended()
	before.ended()
}

// Who brings nothing is not let in, unless it is said who that is.
func TestG12_NobodyIsNotLetIn(t *testing.T) {
	g := startGuarded(t)
	g.guests.mu.Lock()
	g.guests.who = auth.Principal{}
	g.guests.mu.Unlock()
	g.dial().ended()
	if got := g.records.denied(); len(got) != 1 || got[0] != audit.Login+" " {
		t.Errorf("recorded: %q", got)
	}
	if n := g.door.Stats().Unknown; n != 1 {
		t.Errorf("%d are counted", n)
	}
}
