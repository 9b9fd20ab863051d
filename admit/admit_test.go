package admit

import (
	"container/heap"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

const ms = int64(time.Millisecond)

func newController(t testing.TB, l Limits) *Controller {
	t.Helper()
	c, err := New(l, func() float64 { return 0.5 })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// model is a single server with one queue, first in first out, in virtual
// time. Clients give up on answers after a second.
type model struct {
	*Controller
	t       testing.TB
	rng     *rand.Rand
	now     int64
	service float64       // ns each, on average
	free    int64         // when the server has done all that waits
	behind  int64         // ns for which others' work stands before everything that comes
	bulk    [NumLanes]int // operations in a request, if not one
	running finishes

	came, refused, useful [NumLanes]int
	waited                [NumLanes]int64 // longest stay
	stayed                [NumLanes]int64 // all stays
}

type finish struct {
	at     int64
	ticket Ticket
}

type finishes []finish

func (f finishes) Len() int           { return len(f) }
func (f finishes) Less(i, j int) bool { return f[i].at < f[j].at }
func (f finishes) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *finishes) Push(x any)        { *f = append(*f, x.(finish)) }
func (f *finishes) Pop() any {
	x := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return x
}

func newModel(t testing.TB, perSecond float64) *model {
	return &model{Controller: newController(t, Limits{}), t: t, rng: rand.New(rand.NewPCG(1, 2)), service: 1e9 / perSecond}
}

// run lets work come at the given rates per second, at random, for a while.
func (m *model) run(d time.Duration, rates map[Lane]float64) {
	m.came, m.refused, m.useful, m.waited, m.stayed = [NumLanes]int{}, [NumLanes]int{}, [NumLanes]int{}, [NumLanes]int64{}, [NumLanes]int64{}
	total := 0.0
	for _, r := range rates {
		total += r
	}
	for end := m.now + int64(d); ; {
		next := m.now + int64(m.rng.ExpFloat64()*1e9/total)
		m.finishUntil(min(next, end))
		if m.now = min(next, end); next >= end {
			return
		}
		pick := m.rng.Float64() * total
		for l := range NumLanes {
			if pick -= rates[l]; pick < 0 && rates[l] > 0 {
				m.arrive(l)
				break
			}
		}
	}
}

func (m *model) arrive(l Lane) {
	m.came[l]++
	n := max(m.bulk[l], 1)
	ticket, err := m.Enter(l, n, m.now)
	if err != nil {
		if m.refused[l]++; m.refused[l]%8 == 1 {
			m.mustBeInOrder(l)
		}
		return
	}
	m.free = max(m.free, m.now+m.behind) + int64(float64(n)*m.rng.ExpFloat64()*m.service)
	heap.Push(&m.running, finish{m.free, ticket})
}

// mustBeInOrder checks, at the very moment lane l was refused, that no lane
// before it would be admitted. A probe that got in would spoil the model, so
// it fails the test.
func (m *model) mustBeInOrder(l Lane) {
	for before := range l {
		if rankOf[before] >= rankOf[l] {
			continue
		}
		if _, err := m.Enter(before, 1, m.now); incumbent.KindOf(err) != incumbent.Overloaded {
			m.t.Fatalf("%s is admitted while %s is refused", before, l)
		}
	}
}

func (m *model) finishUntil(t int64) {
	for len(m.running) > 0 && m.running[0].at <= t {
		f := heap.Pop(&m.running).(finish)
		f.ticket.Done(f.at)
		stayed := f.at - f.ticket.entered
		m.waited[f.ticket.lane] = max(m.waited[f.ticket.lane], stayed)
		m.stayed[f.ticket.lane] += stayed
		if stayed <= int64(time.Second) {
			m.useful[f.ticket.lane] += int(f.ticket.cost)
		}
	}
}

func (m *model) goodput() int {
	n := 0
	for _, u := range m.useful {
		n += u
	}
	return n
}

func TestG41_GoodputUnderFiveTimesTheLoad(t *testing.T) {
	for _, capacity := range []float64{100, 1_000} {
		for _, l := range []Lane{Logins, Claims, Extensions} {
			m := newModel(t, capacity)
			m.run(5*time.Second, map[Lane]float64{l: capacity / 2})
			if m.refused[l] != 0 {
				t.Errorf("%s, capacity %v: %d refused at half load", l, capacity, m.refused[l])
			}
			m.run(5*time.Second, map[Lane]float64{l: 5 * capacity}) // finds its limit
			m.run(20*time.Second, map[Lane]float64{l: 5 * capacity})
			if g := float64(m.goodput()) / 20; g < 0.95*capacity {
				t.Errorf("%s, capacity %v: goodput %v/s", l, capacity, g)
			}
			if capacity >= 1000 && m.waited[l] > 600*ms {
				t.Errorf("%s, capacity %v: waited %v", l, capacity, time.Duration(m.waited[l]))
			}
		}
	}
}

func TestG40_LanesAreRefusedInOrder(t *testing.T) {
	const capacity = 2000
	m := newModel(t, capacity)
	normal := map[Lane]float64{Logins: 100, Claims: 200, Transactions: 200, Small: 200, Releases: 200, Extensions: 500, Critical: 100}
	m.run(5*time.Second, normal)
	for l, n := range m.refused {
		if n != 0 {
			t.Errorf("%d %s refused at three quarters of the load", n, Lane(l))
		}
	}
	// A flood of claims takes logins with it and leaves all others alone.
	flood := func(l Lane) map[Lane]float64 {
		rates := map[Lane]float64{}
		for k, v := range normal {
			rates[k] = v
		}
		rates[l] = 5 * capacity
		return rates
	}
	m.run(3*time.Second, flood(Claims))
	m.run(10*time.Second, flood(Claims))
	for _, l := range []Lane{Transactions, Small, Releases, Extensions, Critical} {
		// A lane may meet its limit by chance and shut the ones before it.
		if m.refused[l] > m.came[l]/20 {
			t.Errorf("a flood of claims: %d of %d %s refused", m.refused[l], m.came[l], l)
		}
	}
	if m.refused[Extensions] != 0 {
		t.Errorf("a flood of claims: %d extensions refused", m.refused[Extensions])
	}
	if m.useful[Logins] > m.came[Logins]/20 {
		t.Errorf("a flood of claims: %d of %d logins admitted", m.useful[Logins], m.came[Logins])
	}
	if g := m.goodput() / 10; g < capacity*95/100 {
		t.Errorf("a flood of claims: goodput %d/s", g)
	}
	// A flood of extensions takes everything but critical leases.
	m.run(3*time.Second, flood(Extensions))
	m.run(10*time.Second, flood(Extensions))
	if m.refused[Critical] != 0 {
		t.Errorf("%d critical requests refused", m.refused[Critical])
	}
	if m.useful[Claims] > m.came[Claims]/20 {
		t.Errorf("a flood of extensions: %d of %d claims admitted", m.useful[Claims], m.came[Claims])
	}
	if g := m.goodput() / 10; g < capacity*95/100 {
		t.Errorf("a flood of extensions: goodput %d/s", g)
	}
}

// A lane that gets no more than it has carried is not refused because others take the
// processor from it: to refuse extensions would help nobody.
func TestG40_WhoIsNotToBlameIsNotRefused(t *testing.T) {
	m := newModel(t, 2000)
	normal := map[Lane]float64{Claims: 200, Extensions: 300}
	m.run(10*time.Second, normal)
	m.behind = 500 * ms
	m.run(20*time.Second, normal)
	if m.refused[Extensions] != 0 {
		t.Errorf("%d extensions are refused", m.refused[Extensions])
	}
	// With them five times as much: then it is.
	m.run(3*time.Second, map[Lane]float64{Claims: 200, Extensions: 3000})
	m.run(10*time.Second, map[Lane]float64{Claims: 200, Extensions: 3000})
	if m.refused[Extensions] < m.came[Extensions]/4 {
		t.Errorf("%d of %d extensions are refused in a flood of them", m.refused[Extensions], m.came[Extensions])
	}
	m.behind = 0
	m.run(2*time.Second, normal)
	m.run(5*time.Second, normal)
	if m.refused[Extensions] != 0 || m.refused[Claims] != 0 {
		t.Errorf("afterwards %d extensions and %d claims are refused", m.refused[Extensions], m.refused[Claims])
	}
}

// Where few extend, those who come all at once after the machine stood still, and after
// next to nothing of the lane completed, are not refused: it has never shown how many it can
// take, and what so few cost nobody waits for.
func TestG40_FewWhoExtendAreNotRefused(t *testing.T) {
	c := newController(t, Limits{})
	var held []Ticket
	come := func(n int, now int64) {
		for range n {
			ticket, err := c.Enter(Extensions, 1, now)
			if err != nil {
				t.Fatalf("after %v, with %d under way: %v", time.Duration(now), len(held), err)
			}
			held = append(held, ticket)
		}
	}
	answer := func(n int, now int64) {
		for ; n > 0; n-- {
			held[0].Done(now)
			held = held[1:]
		}
	}
	now := int64(0)
	for ; now < 1000*ms; now += 20 * ms {
		come(1, now)
		answer(1, now+ms)
	}
	for ; now < 2000*ms; now += 200 * ms { // others have the processors
		come(40, now)
		answer(4, now+199*ms)
	}
}

// In a flood of requests in bulk, which come between extensions with gaps, extensions wait a
// few hundredths of a second on average, and most of what can be done is done all the same.
func TestG40_ExtensionsHardlyWaitForBulk(t *testing.T) {
	const capacity, each = 10_000, 50
	for _, flooded := range [][]Lane{{Reads}, {Claims}, {Releases}, {Claims, Releases}} {
		m := newModel(t, capacity)
		flood := map[Lane]float64{Extensions: 500}
		m.run(5*time.Second, flood)
		for _, l := range flooded {
			m.bulk[l] = each
			flood[l] = 5 * capacity / each / float64(len(flooded))
		}
		m.run(3*time.Second, flood)
		m.run(20*time.Second, flood)
		if m.refused[Extensions] != 0 {
			t.Errorf("%v: %d extensions refused", flooded, m.refused[Extensions])
		}
		if mean := m.stayed[Extensions] / int64(max(m.useful[Extensions], 1)); mean > 35*ms {
			t.Errorf("%v: an extension takes %v on average", flooded, time.Duration(mean))
		}
		if g := m.goodput() / 20; g < capacity*85/100 {
			t.Errorf("%v: goodput %d/s", flooded, g)
		}
	}
}

// Members far from each other take long for an extension without its waiting for anybody:
// nothing gives way to them.
func TestG40_FarIsNotWaiting(t *testing.T) {
	c := newController(t, Limits{})
	var running finishes
	for now := int64(0); now < int64(20*time.Second); now += ms {
		for len(running) > 0 && running[0].at <= now {
			f := heap.Pop(&running).(finish)
			f.ticket.Done(f.at)
		}
		for l, takes := range map[Lane]int64{Claims: 200, Extensions: 100 + now/ms%100} { // the next round takes it along
			ticket, err := c.Enter(l, 1, now)
			if err != nil {
				t.Fatalf("%s refused at %v: %v", l, time.Duration(now), err)
			}
			heap.Push(&running, finish{now + takes*ms, ticket})
		}
	}
}

// The lane of extensions has waited for as long as nothing of it completes.
func TestG40_ExtensionsThatStandStillWait(t *testing.T) {
	c := newController(t, Limits{})
	for i := range int64(50) {
		for _, l := range []Lane{Claims, Extensions} {
			ticket, err := c.Enter(l, 1, i*ms)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				ticket.Done(i + ms)
			}
		}
	}
	before := c.Stats()[Claims].Limit
	for now := 200 * ms; now <= 1000*ms; now += 100 * ms {
		c.Enter(Claims, 1, now)
	}
	if limit := c.Stats()[Claims].Limit; limit > before/16 {
		t.Errorf("claims may have %d under way, %d before", limit, before)
	}
}

// What is committed waits to be applied behind what comes in bulk, and what waits for that
// may be no extension: an expiry, an operator's call. Bulk gives way until that is short,
// whatever its own answers say, and takes up again.
func TestG40_WhatIsCommittedHardlyWaits(t *testing.T) {
	c := newController(t, Limits{})
	now := int64(0)
	var held []Ticket
	run := func(lag time.Duration) {
		for i := range 5000 {
			now += ms
			for _, ticket := range held { // answered quickly
				ticket.Done(now)
			}
			held = held[:0]
			for range 200 {
				if ticket, err := c.Enter(Transactions, 500, now); err == nil {
					held = append(held, ticket)
				}
			}
			if i%10 == 0 {
				c.Applied(int64(lag), now)
			}
		}
	}
	limit := func() int64 { return c.Stats()[Transactions].Limit }
	run(0)
	before := limit()
	for _, x := range []struct {
		lag  time.Duration
		most int64
	}{{40 * time.Millisecond, 1 << 16}, {200 * time.Millisecond, 64}} {
		run(x.lag)
		if got := limit(); got > x.most || x.most > before && got < before {
			t.Errorf("with %v until it is applied: %d may be under way, %d before", x.lag, got, before)
		}
	}
	run(0)
	if got := limit(); got < before {
		t.Errorf("afterwards %d may be under way, %d before", got, before)
	}
}

func TestG41_RecoversAtOnce(t *testing.T) {
	const capacity = 2000
	m := newModel(t, capacity)
	normal := map[Lane]float64{Logins: 200, Claims: 700, Extensions: 700}
	m.run(5*time.Second, normal)
	m.run(20*time.Second, map[Lane]float64{Logins: 2000, Claims: 5000, Extensions: 3000})
	m.run(time.Second, normal) // what waited is done
	m.run(5*time.Second, normal)
	for l, n := range m.refused {
		if n != 0 {
			t.Errorf("a second after the overload %d of %d %s are refused", n, m.came[l], Lane(l))
		}
	}
	if m.goodput() < (m.came[Logins]+m.came[Claims]+m.came[Extensions])*95/100 {
		t.Errorf("goodput %d", m.goodput())
	}
}

// TestG42_AFloodLeavesNothingOfItsLimit: half a minute after it, what comes while the disk
// stands still for a second waits as it would have before.
func TestG42_AFloodLeavesNothingOfItsLimit(t *testing.T) {
	m := newModel(t, 200)
	normal := map[Lane]float64{Claims: 50}
	m.run(5*time.Second, normal)
	m.run(20*time.Second, map[Lane]float64{Claims: 2000})
	if limit := m.Stats()[Claims].Limit; limit > 64 {
		t.Fatalf("the flood left a limit of %d: nothing is tested", limit)
	}
	m.run(30*time.Second, normal)
	for i := range 50 {
		if _, err := m.Enter(Claims, 1, m.now); err != nil {
			t.Fatalf("claim %d of a second is refused: %v", i, err)
		}
	}
	if ls := m.Refusing(m.now); len(ls) > 0 {
		t.Errorf("%v are refused", ls)
	}
}

// TestSlowButIdleSystemIsNotThrottled: each piece takes longer than the
// target, but nothing waits for anything.
func TestSlowButIdleSystemIsNotThrottled(t *testing.T) {
	c := newController(t, Limits{})
	var running finishes
	for now := int64(0); now < int64(20*time.Second); now += ms {
		for len(running) > 0 && running[0].at <= now {
			f := heap.Pop(&running).(finish)
			f.ticket.Done(f.at)
		}
		ticket, err := c.Enter(Claims, 1, now)
		if err != nil {
			t.Fatalf("refused at %v: %v", time.Duration(now), err)
		}
		heap.Push(&running, finish{now + 200*ms, ticket})
	}
}

// What the system takes when nothing waits is learnt anew where that has changed for good, as with a
// leader that is farther away, though it is more than the lane's target.
func TestAnotherDistanceIsLearnt(t *testing.T) {
	c := newController(t, Limits{})
	var running finishes
	refused := 0
	const second = int64(time.Second)
	for now := int64(0); now < 1800*second; now += ms {
		for len(running) > 0 && running[0].at <= now {
			f := heap.Pop(&running).(finish)
			f.ticket.Done(f.at)
		}
		stays := ms
		if now >= 10*second {
			stays = 200 * ms
		}
		for range 4 {
			ticket, err := c.Enter(Claims, 1, now)
			if err != nil {
				refused++
				continue
			}
			heap.Push(&running, finish{now + stays, ticket})
		}
		switch now {
		case 60 * second:
			if refused == 0 {
				t.Fatal("nobody was refused: the test shows nothing")
			}
		case 1740 * second:
			refused = 0
		}
	}
	if refused > 0 {
		t.Errorf("%d are refused in the last minute, though nothing waits", refused)
	}
}

// A queue that stands for long is not taken for a distance.
func TestG41_AQueueIsNoDistance(t *testing.T) {
	const capacity = 2500
	m := newModel(t, capacity)
	m.run(5*time.Second, map[Lane]float64{Claims: capacity / 2})
	before := m.lanes[Claims].idle
	m.run(3*time.Minute, map[Lane]float64{Claims: 5 * capacity})
	if after := m.lanes[Claims].idle; after > before+ms {
		t.Errorf("work is taken to have %v of its own after minutes of overload, and %v before", time.Duration(after), time.Duration(before))
	}
}

// A queue is seen behind work that is not done and leaves at once, such as what is denied.
func TestG41_WhatIsNotDoneHidesNoQueue(t *testing.T) {
	const capacity = 1000
	m := newModel(t, capacity)
	m.run(5*time.Second, map[Lane]float64{Claims: 5 * capacity}) // finds its limit
	for range 20 * 20 {
		m.run(50*time.Millisecond, map[Lane]float64{Claims: 5 * capacity})
		if m.waited[Claims] > 600*ms {
			t.Fatalf("claims waited for %v", time.Duration(m.waited[Claims]))
		}
		if ticket, err := m.Enter(Claims, 1, m.now); err == nil {
			ticket.Drop()
		}
		if err := m.Passes(Who{}, Claims, m.now); err != nil && incumbent.KindOf(err) != incumbent.Overloaded {
			t.Fatal(err)
		}
	}
	m.finishUntil(m.now + int64(time.Hour))
	if n := m.Stats()[Claims].Inflight; n != 0 {
		t.Errorf("%d are under way at the end", n)
	}
	// Nor does it keep a limit low, once nothing waits.
	for now := m.now; m.lanes[Claims].limit < DefaultStart/2; now += int64(DefaultInterval) {
		if now > m.now+int64(time.Minute) {
			t.Fatalf("the limit is %d a minute later", m.lanes[Claims].limit)
		}
		if err := m.Passes(Who{}, Claims, now); err != nil {
			t.Fatal(err)
		}
	}
}

// Who waits and asks again is neither refused once more nor another that came.
func TestG41_WhoAsksAgainCountsOnce(t *testing.T) {
	c := newController(t, Limits{Min: 1, Max: 1})
	first, err := c.Enter(Claims, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = c.Enter(Claims, 1, 0)
	}
	for why := NumReasons; why == NumReasons; {
		_, why = c.EnterNext(Who{}, Claims, 1, 0) // what is kept for them
	}
	lane, before := &c.lanes[Claims], c.Stats()[Claims]
	came := lane.came
	if c.lanes[Claims].excess() > 8 {
		t.Errorf("%v times as much came as was let in", c.lanes[Claims].excess())
	}
	for range 100 {
		if _, why := c.EnterNext(Who{}, Claims, 1, 0); why != Delay {
			t.Fatalf("refused for %v", why)
		}
	}
	before.Deferred += 100
	if after := c.Stats()[Claims]; after != before || lane.came != came {
		t.Errorf("%+v, %d came; before %+v, %d", after, lane.came, before, came)
	}
	first.Done(1)
	c.SetMode(Observe)
	if _, why := c.EnterNext(Who{}, Claims, 7, 1); why != NumReasons {
		t.Errorf("refused for %v although nothing is to be", why)
	}
}

func TestG39_MemoryShedsInOrder(t *testing.T) {
	c := newController(t, Limits{})
	refusedAt := func(used int64) string {
		c.SetMemory(used, 1000)
		var ls []string
		for l := range NumLanes {
			ticket, err := c.Enter(l, 1, 0)
			if err != nil {
				ls = append(ls, l.String())
				continue
			}
			ticket.Done(0)
		}
		return strings.Join(ls, " ")
	}
	for _, tt := range []struct {
		used int64
		want string
	}{
		{799, ""},
		{800, "logins watches reads"},
		{840, "logins watches reads claims"},
		{880, "logins watches reads claims transactions"},
		{910, "logins watches reads claims transactions small"},
		{940, "logins watches reads claims transactions small releases"},
		{970, "logins watches reads claims transactions small releases extensions"},
		{5000, "logins watches reads claims transactions small releases extensions"},
		{700, ""},
	} {
		if got := refusedAt(tt.used); got != tt.want {
			t.Errorf("at %d of 1000: refused %q, want %q", tt.used, got, tt.want)
		}
	}
	c.SetMemory(5000, 0)
	if got := c.Refusing(0); len(got) != 0 {
		t.Errorf("without a limit %v are refused", got)
	}
	if n := c.Stats()[Logins].Refused[Memory]; n != 7 {
		t.Errorf("%d logins counted", n)
	}
}

func TestG41_RefusalSaysWhenToComeBack(t *testing.T) {
	jitter := 0.0
	c, _ := New(Limits{Min: 1, Max: 1}, func() float64 { return jitter })
	if _, err := c.Enter(Claims, 1, 0); err != nil {
		t.Fatal(err)
	}
	c.Enter(Claims, 1, 0) // shuts those before
	var last time.Duration
	for i := range 40 {
		jitter = float64(i%2) * 0.999
		_, err := c.Enter(Claims, 1, 1)
		e, ok := err.(*incumbent.Error)
		if !ok || e.Kind != incumbent.Overloaded || e.Hint == "" || e.RetryAfter < DefaultRetry/2 || e.RetryAfter > DefaultMaxRetry*3/2 {
			t.Fatalf("got %#v", err)
		}
		if i%2 == 1 && e.RetryAfter < 2*last {
			t.Errorf("spread from %v to %v only", last, e.RetryAfter)
		}
		last = e.RetryAfter
	}
	if last < 4*DefaultRetry {
		t.Errorf("%v to wait when 20 times as much comes as is let in", last)
	}
}

// A lane that is shut for what comes after it says when to come back by how much comes,
// too.
func TestG41_AShutLaneSaysWhenToComeBack(t *testing.T) {
	c, _ := New(Limits{Min: 1, Max: 1}, func() float64 { return 0.5 })
	if _, err := c.Enter(Small, 1, 0); err != nil {
		t.Fatal(err)
	}
	c.Enter(Small, 1, 0) // shuts those before
	wait := func(l Lane, times int) (last time.Duration) {
		for range times {
			_, err := c.Enter(l, 1, 1)
			e, ok := err.(*incumbent.Error)
			if !ok || c.Stats()[l].Refused[Order] == 0 {
				t.Fatalf("%v: got %#v", l, err)
			}
			last = e.RetryAfter
		}
		return last
	}
	if few, many := wait(Claims, 2), wait(Claims, 100); few > 2*DefaultRetry || many != DefaultMaxRetry {
		t.Errorf("claims are to wait %v, then %v", few, many)
	}
}

func TestLimitsChangeWhileRunning(t *testing.T) {
	c := newController(t, Limits{})
	for range 10 {
		if _, err := c.Enter(Logins, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetLimits(Limits{Min: 5, Max: 4}); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("crossed limits: %v", err)
	}
	if err := c.SetLimits(Limits{Min: 1, Max: 10}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enter(Logins, 1, int64(time.Second)); incumbent.KindOf(err) != incumbent.Overloaded {
		t.Errorf("the new limit is not in force: %v", err)
	}
}

// TestG40_OrderHoldsWhateverHappens enters, finishes and lets time pass at
// random: at any moment the lanes that would be refused are the first ones.
func TestG40_OrderHoldsWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := New(Limits{Min: 1, Max: 4}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var now int64
		var open []Ticket
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				l := Lane(rapid.IntRange(0, int(NumLanes)-1).Draw(t, "lane"))
				ticket, err := c.Enter(l, rapid.IntRange(1, 3).Draw(t, "cost"), now)
				if err == nil {
					open = append(open, ticket)
					return
				}
				if l == Critical {
					t.Fatal("critical work refused")
				}
				for before := range l {
					if rankOf[before] >= rankOf[l] {
						continue
					}
					if _, err := c.Enter(before, 1, now); err == nil {
						t.Fatalf("%s admitted while %s is refused", before, l)
					}
					if _, why := c.EnterNext(Who{}, before, 1, now); why == NumReasons {
						t.Fatalf("the next in line for %s admitted while %s is refused", before, l)
					}
				}
			},
			"next": func(t *rapid.T) {
				l := Lane(rapid.IntRange(0, int(NumLanes)-1).Draw(t, "lane"))
				ticket, why := c.EnterNext(Who{}, l, 1, now)
				if why == NumReasons {
					open = append(open, ticket)
				} else if _, err := c.Enter(l, 1, now); err == nil {
					t.Fatalf("%s is full for who waits in line, and has room for who does not", l)
				}
			},
			"done": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing is under way")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "ticket")
				open[i].Done(now)
				open = append(open[:i], open[i+1:]...)
			},
			"time": func(t *rapid.T) { now += int64(rapid.IntRange(1, 300).Draw(t, "ms")) * ms },
			"memory": func(t *rapid.T) {
				c.SetMemory(int64(rapid.IntRange(0, 120).Draw(t, "percent")), 100)
			},
			"": func(t *rapid.T) {
				var under int64
				for _, s := range c.Stats() {
					if under += s.Inflight; s.Inflight < 0 || s.Limit < 1 || s.Limit > DefaultStart {
						t.Fatalf("stats %+v", s)
					}
				}
				if (under == 0) != (len(open) == 0) {
					t.Fatalf("%d under way by %d tickets", under, len(open))
				}
			},
		})
	})
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for l := range NumLanes {
		seen[l.String()] = true
	}
	for r := range NumReasons {
		seen[r.String()] = true
	}
	if len(seen) != int(NumLanes)+int(NumReasons) || seen["unknown"] || seen[""] {
		t.Errorf("names %v", seen)
	}
}

func BenchmarkEnterDone(b *testing.B) {
	c := newController(b, Limits{})
	b.ReportAllocs()
	for i := range b.N {
		now := int64(i) * 1000
		ticket, err := c.Enter(Extensions, 1, now)
		if err != nil {
			b.Fatal(err)
		}
		ticket.Done(now + 500)
	}
}

func BenchmarkRefuse(b *testing.B) {
	c := newController(b, Limits{})
	c.SetMemory(1, 1)
	b.ReportAllocs()
	for range b.N {
		if _, err := c.Enter(Claims, 1, 0); err == nil {
			b.Fatal("admitted")
		}
	}
}

// What only observes lets in what it counts as refused, and what is off does not even
// count.
func TestModesOfAdmission(t *testing.T) {
	for mode, want := range map[Mode]struct{ admitted, refused uint64 }{Enforce: {0, 1}, Observe: {1, 1}, Off: {1, 0}} {
		c, err := New(Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.SetMode(mode)
		c.SetMemory(100, 100)
		ticket, err := c.Enter(Claims, 1, 1)
		if (err == nil) != (want.admitted == 1) {
			t.Errorf("mode %d: %v", mode, err)
		}
		if err == nil {
			ticket.Done(2)
		}
		if n := len(c.Refusing(1)); (n > 0) != (mode == Enforce) {
			t.Errorf("mode %d: %d lanes are shown as refusing", mode, n)
		}
		s := c.Stats()[Claims]
		if s.Admitted != want.admitted || s.Refused[Memory] != want.refused || s.Inflight != 0 {
			t.Errorf("mode %d: %+v", mode, s)
		}
		if l := &c.lanes[Claims]; l.came != 1 || l.let != int64(want.admitted) {
			t.Errorf("mode %d: %d came and %d were let in, of one", mode, l.came, l.let)
		}
		if err := c.Passes(Who{}, Claims, 2); (err == nil) != (want.admitted == 1) {
			t.Errorf("mode %d: what takes no place: %v", mode, err)
		}
		if s := c.Stats()[Claims]; s.Admitted != 2*want.admitted || s.Refused[Memory] != 2*want.refused || s.Inflight != 0 {
			t.Errorf("mode %d: with what takes no place: %+v", mode, s)
		}
	}
}

// TestG40_WhatIsKeptIsRefusedForMemoryOnly: what takes no work worth a place is not refused since others
// wait, and in the order of its lane where memory is short.
func TestG40_WhatIsKeptIsRefusedForMemoryOnly(t *testing.T) {
	c, err := New(Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(time.Hour)
	c.Press(numRanks-2, now)
	if _, err := c.Enter(Logins, 1, now); ReasonOf(Logins, err) != Order {
		t.Fatalf("logins are let in while extensions are short: %v", err)
	}
	for l := range NumLanes {
		if err := c.Holds(l); err != nil {
			t.Errorf("%s, while extensions are short: %v", l, err)
		}
	}
	for rank := range numRanks {
		used := int64(0)
		if rank > 0 {
			used = int64(1000 * memoryShut[rank-1])
		}
		c.SetMemory(used, 1000)
		for l := range NumLanes {
			err := c.Holds(l)
			if refused := err != nil; refused != (rankOf[l] < rank) || refused && ReasonOf(l, err) != Memory {
				t.Errorf("%s, with %d of 1000 used: %v", l, used, err)
			}
		}
	}
	refused := c.Stats()[Logins].Refused[Memory]
	for mode, counts := range map[Mode]uint64{Off: 0, Observe: 1} {
		c.SetMode(mode)
		if err := c.Holds(Logins); err != nil {
			t.Errorf("mode %d refuses: %v", mode, err)
		}
		if n := c.Stats()[Logins].Refused[Memory] - refused; n != counts {
			t.Errorf("mode %d counts %d", mode, n)
		}
		refused = c.Stats()[Logins].Refused[Memory]
	}
	if err := (Clocked{}).Holds(Logins); err != nil {
		t.Errorf("without a controller: %v", err)
	}
}

// What takes memory beside the state has no more than a part of the memory limit of the
// moment, and a little in any case.
func TestG39_BoundsFollowTheMemoryLimit(t *testing.T) {
	c := newController(t, Limits{})
	for _, tt := range []struct{ limit, most, want int64 }{
		{0, 1 << 40, 1 << 40}, // before anybody has said one
		{1 << 30, 256 << 20, 128 << 20},
		{1 << 30, 64 << 20, 64 << 20},
		{64 << 20, 256 << 20, 16 << 20},
		{1 << 20, 256 << 20, 16 << 20},
		{1 << 20, 100, 100},
		{8 << 30, 256 << 20, 256 << 20},
	} {
		c.SetMemory(0, tt.limit)
		if got := c.Bound(tt.most); got != tt.want {
			t.Errorf("%d bytes at most, of %d: %d, want %d", tt.most, tt.limit, got, tt.want)
		}
	}
	if got := (Clocked{}).Bound(7); got != 7 {
		t.Errorf("without a controller: %d", got)
	}
}
