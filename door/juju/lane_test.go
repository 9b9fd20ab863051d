package juju

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// claimsText claims for each of these units, of the application before the dash.
func claimsText(id int, units ...string) string {
	var params []string
	for _, unit := range units {
		application := unit[:strings.LastIndexByte(unit, '-')]
		params = append(params, fmt.Sprintf(`{"application-tag":"application-%s","unit-tag":"unit-%s","duration":60}`, application, unit))
	}
	return fmt.Sprintf(`{"request-id":%d,"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":{"params":[%s]}}`, id, strings.Join(params, ","))
}

const singularClaimText = `{"request-id":2,"type":"Singular","version":2,"request":"Claim","params":{"claims":[{"entity-tag":"model-` + testModel +
	`","claimant-tag":"machine-0","duration":60000000000}]}}`

// While claims find no room, extensions do, and so does what controllers claim: it
// is never refused, whatever is short.
func TestG40_ExtensionsAndControllersGoByTheirOwnLanes(t *testing.T) {
	m, clock, lanes := crowded(t)
	a, load, controller := m.login("unit-app-0"), m.login("unit-load-0"), m.login("machine-0")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	held := fill(t, lanes, clock)
	if got := a.ask(claimText(3, "app", "app-0", "60")); got != granted(3) {
		t.Errorf("extension: %s", got)
	}
	before := leases.Of(m.group.View()).Lease(nameOf(testModel, "app")).Modified
	// What extends is extended at once also where another param claims.
	doubled := strings.Replace(claimsText(2, "other-0", "app-0"), `"unit-app-0","duration":60`, `"unit-app-0","duration":120`, 1)
	load.send(doubled)
	eventually(t, "it is extended", func() bool { return leases.Of(m.group.View()).Lease(nameOf(testModel, "app")).Modified > before })
	eventually(t, "the claim waits", func() bool { return m.door.Stats().Retries == 1 })
	lanes.SetMemory(2, 1) // beyond all bounds
	want := `{"request-id":2,"response":{"results":[` + tryAgainResult + `,{}]}}`
	if got := load.read(); got != want {
		t.Errorf("the claim: %s", got)
	}
	if got := controller.ask(singularClaimText); got != granted(2) {
		t.Errorf("a controller's claim: %s", got)
	}
	name := incumbent.Name{Namespace: singularNamespace, Model: testModel, Lease: testModel}
	if l := leases.Of(m.group.View()).Lease(name); l.Free() || l.Holder != "machine-0" || !l.Critical {
		t.Errorf("the controller's lease is %+v", l)
	}
	if n := lanes.Stats()[admit.Critical].Admitted; n != 1 {
		t.Errorf("%d admitted by the lane of controllers, one was", n)
	}
	lanes.SetMemory(0, 1)
	for _, place := range held {
		place.Done(clock.Load())
	}
	clock.Add(int64(shutFor) + 1)
	if got, want := load.ask(doubled), `{"request-id":2,"response":{"results":[{},{}]}}`; got != want {
		t.Errorf("the claim afterwards: %s", got)
	}
}

// tryAgainResult is that of a param that is to be asked for again.
const tryAgainResult = `{"error":{"message":"try again","code":"try again"}}`

// Once memory has become short for their lane, calls that wait in line are answered, and so is
// who comes then. Those of a lane that is refused later wait on.
func TestG39_LinesGiveWay(t *testing.T) {
	m, clock, lanes := crowded(t)
	claims, pins, late := m.login("unit-app-0"), m.login("unit-other-0"), m.login("unit-load-0")
	held := fill(t, lanes, clock)
	pin := func(id int) string {
		return fmt.Sprintf(`{"request-id":%d,"type":"LeadershipPinner","version":1,"request":"PinApplicationLeaders","params":{}}`, id)
	}
	claims.send(claimText(2, "app", "app-0", "60"))
	eventually(t, "the claim waits", func() bool { return m.door.lines[admit.Claims].Len() == 1 })
	small := fillLane(t, lanes, clock, admit.Small)
	pins.send(pin(2))
	eventually(t, "the pin waits", func() bool { return m.door.lines[admit.Small].Len() == 1 })
	lanes.SetMemory(84, 100) // short for claims
	if got, want := claims.read(), `{"request-id":2,"response":{"results":[`+tryAgainResult+`]}}`; got != want {
		t.Errorf("the claim that waits: %s", got)
	}
	if got, want := late.ask(claimsText(2, "load-0")), `{"request-id":2,"response":{"results":[`+tryAgainResult+`]}}`; got != want {
		t.Errorf("a claim that comes: %s", got)
	}
	if n := m.door.lines[admit.Small].Len(); n != 1 {
		t.Errorf("%d pins wait, one does", n)
	}
	lanes.SetMemory(0, 1)
	for _, place := range append(held, small...) {
		place.Done(clock.Load())
	}
	clock.Add(int64(shutFor) + 1)
	if got, want := pins.read(), `{"request-id":2,"response":{"results":[{"application-name":"other"}]}}`; got != want {
		t.Errorf("the pin: %s", got)
	}
	if got := claims.ask(claimText(3, "app", "app-0", "60")); got != granted(3) {
		t.Errorf("the claim afterwards: %s", got)
	}
	if n := m.door.Stats().Claims; n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// What waits takes memory of the door up to a bound: beyond, calls that would wait are to be tried
// again. Claims of present holders have a part of it to themselves, and controllers' need none.
func TestG39_WhatWaitsIsBounded(t *testing.T) {
	m, clock, lanes := crowded(t)
	a, other, controller, load := m.login("unit-app-0"), m.login("unit-other-0"), m.login("machine-0"), m.login("unit-load-0")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	held := fill(t, lanes, clock)
	other.send(claimText(2, "other", "other-0", "60"))
	a.send(blockText(3, "app"))
	const one = callBytes + waitingItemBytes
	eventually(t, "a claim and a wait are counted", func() bool { return m.door.WaitingBytes() == 2*one })
	lanes.SetMemory(0, 256<<20)
	const most = 32 << 20 // of so much memory
	const others = most - most/extendingPart - 2*one
	if !m.door.waiting.Take(admit.Who{}, others, most) {
		t.Fatal("there is no room")
	}
	const tooMany = `"error":"too many requests are unanswered","error-code":"try again"}`
	if got := a.ask(blockText(4, "app")); got != `{"request-id":4,`+tooMany {
		t.Errorf("a wait: %s", got)
	}
	if got := controller.ask(`{"request-id":2,"type":"Singular","version":2,"request":"Wait","params":{"entities":[{"tag":"model-` + testModel + `"}]}}`); got != `{"request-id":2,`+tooMany {
		t.Errorf("a controller's wait: %s", got)
	}
	if got, want := a.ask(claimText(5, "app", "app-7", "60")), `{"request-id":5,"response":{"results":[{"error":{"message":"permission denied","code":"unauthorized access"}}]}}`; got != want {
		t.Errorf("what does not wait: %s", got)
	}
	if got, want := load.ask(claimsText(2, "load-0")), `{"request-id":2,"response":{"results":[`+tryAgainResult+`]}}`; got != want {
		t.Errorf("a claim: %s", got)
	}
	m.group.Refuse(true) // as while there is no leader
	controller.send(singularClaimText)
	a.send(claimText(6, "app", "app-0", "60"))
	eventually(t, "an extension waits to be tried again", func() bool { return m.door.WaitingBytes() == others+3*one })
	m.group.Refuse(false)
	if got := a.read(); got != granted(6) {
		t.Errorf("the extension: %s", got)
	}
	if got := controller.read(); got != granted(2) {
		t.Errorf("a controller's claim: %s", got)
	}
	m.door.waiting.Give(admit.Who{}, others)
	for _, place := range held {
		place.Done(clock.Load())
	}
	clock.Add(int64(shutFor) + 1)
	if got := other.read(); got != granted(2) {
		t.Errorf("the claim that waited: %s", got)
	}
	a.conn.Close()
	eventually(t, "nothing waits", func() bool { return m.door.WaitingBytes() == 0 })
}

// One agent that has many calls wait leaves room for others.
func TestG39_WhatWaitsIsSharedFairly(t *testing.T) {
	m := newMember(t, nil)
	flood, other := m.login("unit-app-0"), m.login("unit-other-0")
	if got := flood.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	if got := other.ask(claimText(2, "other", "other-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	flood.send(blockText(3, "app"))
	eventually(t, "it waits", func() bool { return m.door.WaitingBytes() > 0 })
	const left = 4 << 20
	who := admit.Who{Client: admit.KeyOf("unit-app-0" + testModel)}
	if !m.door.waiting.Take(admit.Who{}, MaxWaitingBytes-MaxWaitingBytes/extendingPart-left, MaxWaitingBytes) || !m.door.waiting.Take(who, left*4/5, MaxWaitingBytes) {
		t.Fatal("there is no room")
	}
	if got := flood.ask(blockText(4, "app")); !strings.Contains(got, "try again") {
		t.Errorf("who has most of it: %s", got)
	}
	before := m.door.WaitingBytes()
	other.send(blockText(3, "other"))
	eventually(t, "the other waits", func() bool { return m.door.WaitingBytes() > before })
}

// What was granted to one param is not told as granted, where another param's wait was so long
// that it may be over when memory becomes short.
func TestG40_WhatMayBeOverIsNotToldWhenMemoryIsShort(t *testing.T) {
	m, clock, lanes := crowded(t)
	a, load := m.login("unit-app-0"), m.login("unit-load-0")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	fill(t, lanes, clock)
	load.send(claimsText(2, "other-0", "app-0"))
	eventually(t, "the claim waits", func() bool { return m.door.lines[admit.Claims].Len() == 1 })
	clock.Add(int64(30*time.Second) + 1)
	lanes.SetMemory(84, 100)
	if got, want := load.read(), `{"request-id":2,"response":{"results":[`+tryAgainResult+`,`+tryAgainResult+`]}}`; got != want {
		t.Error(got)
	}
}

// asks are the holders for whom each call to the lease service claimed.
type asks struct {
	mu  sync.Mutex
	all [][]string
}

// note appends a call, and returns how many came before it.
func (a *asks) note(ops []lease.Op) int {
	var holders []string
	for i := range ops {
		holders = append(holders, ops[i].Command.(leases.ClaimCommand).Holder)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, holders)
	return len(a.all) - 1
}

// are reports an error if the calls since the first so many are not these.
func (a *asks) are(t *testing.T, since int, want [][]string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if diff := cmp.Diff(want, a.all[since:]); diff != "" {
		t.Error(diff)
	}
}

const denialResult = `{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}`

// choosy answers the params of a bulk call one by one: each time it is asked, all but the
// first of them find no leader.
type choosy struct {
	Leases
	asked asks
}

func (c *choosy) Do(call lease.Call, ops []lease.Op, done func()) {
	c.asked.note(ops)
	c.Leases.Do(call, ops[:1], func() {
		for i := range ops[1:] {
			ops[1+i].Result = core.Result{Err: errNoLeader}
		}
		done()
	})
}

// What has been answered is not asked again, and each param gets its own result.
func TestOnlyUncertainParamsAreAskedAgain(t *testing.T) {
	some := new(choosy)
	m := newMember(t, nil, func(c *Config) {
		some.Leases, c.Leases = c.Leases, some
		c.Monotonic = func() int64 { return 0 } // no time passes, so that nothing granted runs out
	})
	if got := m.login("unit-app-0").ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	c := m.login("unit-load-0")
	want := `{"request-id":3,"response":{"results":[{},` + denialResult + `,{},` + denialResult + `,{}]}}`
	if got := c.ask(claimsText(3, "a-0", "app-1", "b-0", "app-2", "app-0")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	some.asked.are(t, 0, [][]string{
		{"app/0"}, // for itself
		{"app/0"}, // extends, before anything is claimed
		{"a/0", "app/1", "b/0", "app/2"},
		{"app/1", "b/0", "app/2"},
		{"b/0", "app/2"},
		{"app/2"},
	})
	if st := m.door.Stats(); st.Claims != 0 {
		t.Errorf("%d claims are without an answer", st.Claims)
	}
}

// delayed has something happen before what is asked for the nth time is handed on.
type delayed struct {
	Leases
	asked asks
	what  map[int]func()
}

func (d *delayed) Do(call lease.Call, ops []lease.Op, done func()) {
	if happens := d.what[d.asked.note(ops)]; happens != nil {
		happens()
	}
	d.Leases.Do(call, ops, done)
}

// What was granted while other params waited is asked for again before the reply,
// if it may be over: it is told as it is then.
func TestG40_WhatMayBeOverIsAskedAgain(t *testing.T) {
	var clock atomic.Int64
	const before = 2 // calls that claim what is extended then
	var m *member
	some := &delayed{what: map[int]func(){
		before + 1: func() { clock.Add(int64(30 * time.Second)) }, // half of the time: all hold
		before + 3: func() {
			clock.Add(int64(30*time.Second) + 1)
			m.free(nameOf(testModel, "app"))
			m.group.Do(leases.ClaimCommand{Name: nameOf(testModel, "app"), Holder: "app/1", TTL: time.Minute})
		},
		before + 5: func() { clock.Add(int64(time.Hour)) },
	}}
	m = newMember(t, nil, func(c *Config) { some.Leases, c.Leases, c.Monotonic = c.Leases, some, clock.Load })
	for i, tag := range []string{"unit-app-0", "unit-other-0"} {
		application := []string{"app", "other"}[i]
		if got := m.login(tag).ask(claimText(2, application, application+"-0", "60")); got != granted(2) {
			t.Fatal(got)
		}
	}
	c := m.login("unit-load-0")
	if got, want := c.ask(claimsText(2, "a-0", "app-0", "other-0")), `{"request-id":2,"response":{"results":[{},{},{}]}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want := `{"request-id":3,"response":{"results":[{},` + denialResult + `,{}]}}`
	if got := c.ask(claimsText(3, "b-0", "app-0", "other-0")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	some.asked.are(t, before, [][]string{
		{"app/0", "other/0"},
		{"a/0"},
		{"app/0", "other/0"},
		{"b/0"},
		{"other/0", "b/0"}, // by the lane of extensions, all that hold
		{"app/0"},          // claims what is lost; in an hour for the others
		{"other/0", "b/0"},
	})
}

// While claims find no room, a wait for a lease that may be free waits as well, for
// that has to be asked; one for a lease that is held does not.
func TestG40_WaitsGiveWayToClaims(t *testing.T) {
	m, clock, lanes := crowded(t)
	a, b := m.login("unit-app-0"), m.login("unit-other-0")
	if got := a.ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	held := fill(t, lanes, clock)
	a.send(blockText(3, "app"))
	eventually(t, "it waits for the holder", func() bool { return m.group.Hub().Stats().Waiters == 1 })
	b.send(blockText(2, "other"))
	eventually(t, "it is tried again", func() bool { return m.door.Stats().Retries > 2 })
	if st := m.door.Stats(); st.Blocked != 2 {
		t.Errorf("%d wait", st.Blocked)
	}
	for _, place := range held {
		place.Done(clock.Load())
	}
	clock.Add(int64(shutFor) + 1)
	if got := b.read(); got != empty(2) {
		t.Error(got)
	}
}

// TestCostOfABulk: the largest still fits into the smallest lane, however small that is now.
func TestCostOfABulk(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := &bulk{call: &call{c: &conn{door: &Door{lanes: admit.Clocked{Controller: lanes}}}}}
	check := func(least int, costs map[int]int) {
		t.Helper()
		if err := lanes.SetLimits(admit.Limits{Min: least}); err != nil {
			t.Fatal(err)
		}
		for n, want := range costs {
			k.asking = asking{ops: make([]lease.Op, n)}
			if got := k.cost(); got != want {
				t.Errorf("where %d is the least: a bulk of %d costs %d, want %d", least, n, got, want)
			}
		}
	}
	check(admit.DefaultMin, map[int]int{1: 1, seatsPerBulk: 2, MaxParams: admit.DefaultMin})
	check(1, map[int]int{1: 1, seatsPerBulk: 1, MaxParams: 1})
	check(64, map[int]int{seatsPerBulk: 2, MaxParams: 1 + MaxParams/seatsPerBulk})
}

// TestALargeBulkFindsRoomBesideOthers: where the least that a lane lets in has been set to one,
// the largest call does not wait until the lane is empty.
func TestALargeBulkFindsRoomBesideOthers(t *testing.T) {
	const most, free = 128, 8
	lanes, err := admit.New(admit.Limits{Min: 1, Max: most, Interval: shutFor}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, nil, func(c *Config) {
		c.Admission = lanes
		c.Monotonic = func() int64 { return 1 } // so that what is refused is refused until there is room
	})
	load := m.login("unit-load-0")
	var held []admit.Ticket
	for {
		place, err := lanes.Enter(admit.Claims, 1, 1)
		if err != nil {
			break
		}
		held = append(held, place)
	}
	for _, place := range held[:free+1] {
		place.Done(1)
	}
	var units, results []string
	for i := range 16 * seatsPerBulk {
		units, results = append(units, fmt.Sprintf("app%d-0", i)), append(results, "{}")
	}
	if got, want := load.ask(claimsText(2, units...)), `{"request-id":2,"response":{"results":[`+strings.Join(results, ",")+`]}}`; got != want {
		t.Error(got)
	}
}

// Params of one call that say the same are asked for once, and each has the result.
func TestRepeatedParamsAreAskedForOnce(t *testing.T) {
	noted := new(delayed)
	m := newMember(t, nil, func(c *Config) { noted.Leases, c.Leases = c.Leases, noted })
	if got := m.login("unit-app-0").ask(claimText(2, "app", "app-0", "60")); got != granted(2) {
		t.Fatal(got)
	}
	want := `{"request-id":3,"response":{"results":[{},` + denialResult + `,{},` + denialResult + `,{}]}}`
	if got := m.login("unit-load-0").ask(claimsText(3, "a-0", "app-1", "a-0", "app-1", "a-0")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	noted.asked.are(t, 0, [][]string{{"app/0"}, {"a/0", "app/1"}})
}
