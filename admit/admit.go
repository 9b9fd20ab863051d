// Package admit decides, before any work is done, whether a member takes a
// request on or refuses it with a hint when to come back.
//
// Every request belongs to a [Lane]. Lanes are refused in a fixed order: under
// overload logins, new watches and expensive reads go first, extensions last,
// and what peers and critical leases need never (guarantee 40). How much a
// lane may have under way is not a number chosen by hand: it follows from how
// long work stays. A [Ticket] is taken when work arrives and given back when
// it has been answered; if even the quickest of an interval stayed longer than
// the target above what it takes on an idle system, a queue stands, and the
// lane's limit becomes what the lane completes in the time allowed (Little's
// law). If work is refused although it would not have to wait, the limit
// grows.
//
// Order is kept by one rule: a lane at its limit first shuts all lanes before
// it in the order, for an interval, and refuses only if that does not help and
// it goes on a little beyond. Later lanes also have a longer target, so that
// what is worth less gives way before what is worth more feels anything.
//
// Lanes that each keep their own target make extensions wait for the sum of what they
// have under way. So the mean wait of extensions is observed too: above half of the
// first lanes' target every lane before theirs has to shrink, as long as it has much under way.
// So it has where committed commands wait longer than that target to be applied here: behind
// them waits whatever else goes through the log, though no extension may.
//
// Within a lane whoever has much under way is refused before who has little: by
// client, and by model, namespace, service or database (see [Who]).
//
// Memory is the second reason to refuse. As the use that [Controller.SetMemory]
// is told of nears the limit, lane after lane is shut, in the same order.
//
// # Invariants
//
// No request is refused while a lane before its own in the order admits. The
// last lane is never refused. Refusing allocates one error and takes no lock
// but lanes'.
//
// # Concurrency
//
// All methods may be called from anywhere. Each lane has a mutex, held for a
// few additions; who holds one may take that of the lane of extensions, once an interval. Times are monotonic nanoseconds and come from the caller.
package admit

import (
	"cmp"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Lane is a class of work. The order is that of refusal, first refused first.
type Lane uint8

// The lanes. Logins, Watches and Reads are refused together.
const (
	Logins       Lane = iota
	Watches           // new watches, not their events
	Reads             // expensive ones: lists, histories, explanations
	Claims            // of leases, and sessions opened for them
	Transactions      // several operations at once
	Small             // reads and writes of one thing
	Releases          // of leases and sessions
	Extensions        // of leases and sessions, single or in a batch
	Critical          // peers, and critical leases: never refused
	NumLanes
)

var laneNames = [NumLanes]string{
	"logins", "watches", "reads", "claims", "transactions", "small", "releases", "extensions", "critical",
}

// String returns the lane's name, as used in metrics.
func (l Lane) String() string {
	if l < NumLanes {
		return laneNames[l]
	}
	return "unknown"
}

// ranks: lanes of one rank are refused alike; the highest never.
const numRanks = 7

var rankOf = [NumLanes]int{0, 0, 0, 1, 2, 3, 4, 5, 6}

// Defaults of [Limits].
const (
	DefaultTarget   = 50 * time.Millisecond
	DefaultInterval = 100 * time.Millisecond
	DefaultMin      = 16
	DefaultMax      = 1 << 16
	DefaultStart    = 1024 // of a lane's limit: it doubles each interval if that is too little
	TransactionsAt  = 4096 // in place of DefaultStart, of Transactions: several of hundreds of operations
	DefaultRetry    = 250 * time.Millisecond
	DefaultMaxRetry = 2 * time.Second
)

// Shares of the memory limit at which ranks are shut, first rank first. What
// is left above the last is for answers and for what is never refused.
var memoryShut = [numRanks - 1]float64{0.80, 0.84, 0.88, 0.91, 0.94, 0.97}

// What one consumer of memory may have: a part of the memory limit, so that several of them
// fit beside the state and the garbage. All of them full would be more than there is; but what
// they have is resident, and ranks are shut before. And at least as much as a few of the largest
// requests of Consul's API need.
const (
	memoryPart = 8
	leastBound = 16 << 20 // bytes
)

// Limits say how a controller behaves. Zero means the default. All can be
// changed while running.
type Limits struct {
	Target   time.Duration // wait that is fine for the first lanes, and on average until the turn of what is committed has come; 3.5 times that for extensions
	Interval time.Duration // how often a limit moves, and how long lanes stay shut
	Min, Max int           // bounds of a lane's limit, in cost
	Retry    time.Duration // when to come back, times how many times as much came as was let in, before it is spread
	MaxRetry time.Duration // when to come back at most, before it is spread
}

func (l Limits) withDefaults() Limits {
	l.Target = cmp.Or(l.Target, DefaultTarget)
	l.Interval = cmp.Or(l.Interval, DefaultInterval)
	l.Min = cmp.Or(l.Min, DefaultMin)
	l.Max = cmp.Or(l.Max, DefaultMax)
	l.Retry = cmp.Or(l.Retry, DefaultRetry)
	l.MaxRetry = cmp.Or(l.MaxRetry, DefaultMaxRetry)
	return l
}

// Validate returns an Invalid error if the limits make no sense.
func (l Limits) Validate() error {
	l = l.withDefaults()
	if l.Target < 0 || l.Interval < 0 || l.Retry < 0 || l.MaxRetry < l.Retry || l.Min < 1 || l.Max < l.Min {
		return incumbent.Errorf(incumbent.Invalid, "limits of admission are negative or crossed: %+v", l)
	}
	return nil
}

// target of a rank: half of the first one's more for each. Less, and a lane
// takes the queue of the one before it for its own.
func (l *Limits) target(rank int) int64 {
	return int64(l.Target) + int64(l.Target)*int64(rank)/2
}

// Controller admits or refuses.
type Controller struct {
	limits atomic.Pointer[Limits]
	jitter func() float64
	lanes  [NumLanes]lane

	messages [NumLanes][NumReasons]string
	shut     [numRanks]atomic.Int64 // the rank was at its limit: those before it are shut until then
	shares   shutShares             // the same, for those who had more than their share of it
	order    observedOrder
	slowed   atomic.Uint64
	memory   atomic.Int32 // ranks below this one are shut for want of memory
	ceiling  atomic.Int64 // the memory limit, in bytes; 0: none
	mode     atomic.Uint32
}

// New returns a controller. jitter gives numbers in [0, 1) that spread when
// refused requests come back; nil is math/rand.
func New(l Limits, jitter func() float64) (*Controller, error) {
	if jitter == nil {
		jitter = rand.Float64
	}
	c := &Controller{jitter: jitter}
	c.initMessages()
	if err := c.SetLimits(l); err != nil {
		return nil, err
	}
	for i := range c.lanes {
		usual := DefaultStart
		if Lane(i) == Transactions {
			usual = TransactionsAt
		}
		c.lanes[i].init(usual, c.limits.Load())
		if rankOf[i] < rankOf[Extensions] {
			c.lanes[i].after = &c.lanes[Extensions]
		}
	}
	return c, nil
}

// Limits returns the limits as they are.
func (c *Controller) Limits() Limits { return *c.limits.Load() }

// SetLimits changes the limits, or returns an Invalid error and changes
// nothing.
func (c *Controller) SetLimits(l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	l = l.withDefaults()
	c.limits.Store(&l)
	return nil
}

// SetMemory says how much memory is used and how much may be, in bytes. A
// limit of 0 is none.
func (c *Controller) SetMemory(used, limit int64) {
	rank := 0
	for limit > 0 && rank < len(memoryShut) && float64(used) >= memoryShut[rank]*float64(limit) {
		rank++
	}
	c.memory.Store(int32(rank))
	c.ceiling.Store(limit)
}

// Bound is how many bytes something may have that takes memory beside the state, such as a
// [Room], where most is enough on a large machine: no more than an eighth of the memory limit
// that [Controller.SetMemory] said last, or 16 MiB.
func (c *Controller) Bound(most int64) int64 {
	if limit := c.ceiling.Load(); limit > 0 {
		return min(most, max(limit/memoryPart, leastBound))
	}
	return most
}

// Applied says that committed commands were applied on this member, for whose turn they
// waited so many ns: see [Limits].Target.
func (c *Controller) Applied(waited, now int64) {
	c.lanes[Extensions].applied(waited, now, c.limits.Load())
}

// largest is which part of the most that a lane may have under way one request counts as, if
// it is larger: else a few would keep everybody from what is refused before them.
const largest = 8

// Ticket is the place of admitted work. Give it back with Done or Drop, once.
type Ticket struct {
	c       *Controller
	entered int64
	who     Who
	cost    int32
	lane    Lane
}

// Enter admits work of the given cost (1 for what a single small request
// needs; a bulk call more, up to an eighth of [Limits].Max) or returns an
// Overloaded error that says when to come back.
func (c *Controller) Enter(l Lane, cost int, now int64) (Ticket, error) {
	return c.EnterFor(Who{}, l, cost, now)
}

// EnterFor is Enter for someone: who has much under way is refused before others.
func (c *Controller) EnterFor(w Who, l Lane, cost int, now int64) (Ticket, error) {
	cost = c.costOf(cost)
	why, mode := c.enter(w, l, int64(cost), now, once), Mode(c.mode.Load())
	switch {
	case why == NumReasons:
	case mode == Enforce:
		return Ticket{}, c.refuse(l, why)
	default:
		if mode == Observe {
			c.lanes[l].refused[why].Add(1)
		}
		c.lanes[l].letIn(w, int64(cost))
	}
	return Ticket{c, now, w, int32(cost), l}, nil
}

// EnterNext admits work that waits until there is room for it, in line (see
// [Line]) or to be tried again, or says why there is none yet (NumReasons: it is
// admitted). That counts as no refusal, and the work as one that came once it is admitted. There is
// room for it some way beyond where others are refused, by [Limits].Min or its cost: these ask at any moment
// and would take every place that becomes free.
func (c *Controller) EnterNext(w Who, l Lane, cost int, now int64) (Ticket, Reason) {
	cost, how := c.costOf(cost), again
	if Mode(c.mode.Load()) != Enforce {
		how = always
	}
	if why := c.enter(w, l, int64(cost), now, how); why != NumReasons {
		c.lanes[l].deferred.Add(1)
		return Ticket{}, why
	}
	return Ticket{c, now, w, int32(cost), l}, NumReasons
}

// costOf is as how much work counts.
func (c *Controller) costOf(cost int) int {
	return min(max(cost, 1), max(c.limits.Load().Max/largest, 1))
}

// Holds admits what is kept and takes no work worth a place in a lane, such as a connection that
// says nothing, or returns an Overloaded error: memory is short, for the lane and those before it.
func (c *Controller) Holds(l Lane) error {
	mode := Mode(c.mode.Load())
	if mode == Off || int32(rankOf[l]) >= c.memory.Load() {
		return nil
	}
	if mode == Observe {
		c.lanes[l].refused[Memory].Add(1)
		return nil
	}
	return c.refuse(l, Memory)
}

// Passes admits work that is done at once or only waits, and keeps no place in its lane, or
// returns the Overloaded error of [Controller.EnterFor].
func (c *Controller) Passes(w Who, l Lane, now int64) error {
	t, err := c.EnterFor(w, l, 1, now)
	if err == nil {
		t.Drop()
	}
	return err
}

// Refuses says of a request, before more is known than who sends it and which lanes it
// may turn out to be of, that each of them would refuse it: the error is that of EnterFor
// for the first, and is counted as that is. nil says nothing, and nothing was counted:
// the request has to enter once its lane is known, and may be refused then. It is asked
// for the least that a request costs.
func (c *Controller) Refuses(w Who, lanes []Lane, now int64) error {
	if len(lanes) == 0 || Mode(c.mode.Load()) != Enforce {
		return nil
	}
	first, above := NumReasons, overShare{}
	for i, l := range lanes {
		why, e := c.refuses(w, l, now)
		if why == NumReasons {
			return nil
		}
		if i == 0 {
			first, above = why, e
		}
	}
	l, limits := lanes[0], c.limits.Load()
	c.lanes[l].turnedAway(1, now, limits, rankOf[l], first == Delay || above.any())
	c.met(w, rankOf[l], now, limits, first == Delay, above)
	if first == Delay {
		c.order.refused(rankOf[l], now, limits)
	}
	return c.refuse(l, first)
}

// refuses says why enter would give the least work no place, and changes nothing;
// NumReasons: it would.
func (c *Controller) refuses(w Who, l Lane, now int64) (Reason, overShare) {
	rank, limits := rankOf[l], c.limits.Load()
	if why := c.shutTo(w, rank, now); why != NumReasons {
		return why, overShare{}
	}
	return c.lanes[l].refuses(w, 1, now, limits, rank, c.must(w, rank, now))
}

// entering is how work asks for a place.
type entering uint8

const (
	once   entering = iota
	again           // it waits, and has asked before
	always          // it has to have one
)

// enter gives work a place, or says why it has none; NumReasons: it has one.
func (c *Controller) enter(w Who, l Lane, cost, now int64, how entering) Reason {
	rank, limits := rankOf[l], c.limits.Load()
	needs := must{true, true}
	if how != always {
		if why := c.shutTo(w, rank, now); why != NumReasons {
			if how == once {
				c.lanes[l].turnedAway(cost, now, limits, rank, false)
			}
			return why
		}
		needs = c.must(w, rank, now)
	}
	why, full, above := c.lanes[l].enter(w, cost, now, how, limits, rank, needs)
	c.met(w, rank, now, limits, full, above)
	switch {
	case why == Delay:
		c.order.refused(rank, now, limits)
	case why == NumReasons && how != always:
		c.order.letIn(rank, now, limits)
	}
	return why
}

// Disorder is how much was let in although a lane behind its own refused: none, or the
// order of refusal was broken. What is let in because of the mode does not count.
func (c *Controller) Disorder() uint64 { return c.order.broken.Load() }

// shutTo says why a rank is shut to someone, whatever room its lanes have; NumReasons: it is not.
func (c *Controller) shutTo(w Who, rank int, now int64) Reason {
	if int32(rank) < c.memory.Load() {
		return Memory
	}
	for r := rank + 1; r < numRanks; r++ {
		if c.shut[r].Load() > now {
			return Order
		}
	}
	if c.shares.behind(rank, w, now) {
		return Share
	}
	return NumReasons
}

// Mode says what becomes of work for which a lane has no room.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // it is refused
	Observe             // it is counted as refused, and let in
	Off                 // it is let in
)

// Mode returns the mode.
func (c *Controller) Mode() Mode { return Mode(c.mode.Load()) }

// SetMode changes the mode.
func (c *Controller) SetMode(m Mode) { c.mode.Store(uint32(m)) }

// must says which limits a lane of the rank has to ignore: the last one both, others while
// those before them are open, to all or to whoever asks.
func (c *Controller) must(w Who, rank int, now int64) must {
	open := rank == numRanks-1 || rank > 0 && c.shut[rank].Load() <= now
	return must{open, open && !c.shares.itself(rank, w, now)}
}

// met shuts the ranks before one that is at its limit, and, to whoever has more than their
// share of it, before one that is not. What is never refused shuts nothing: others feel its
// load in their own delay. Extensions are refused to nobody while anybody's claim is let in.
func (c *Controller) met(w Who, rank int, now int64, limits *Limits, full bool, above overShare) {
	until := now + int64(limits.Interval)
	switch {
	case rank == 0 || rank == numRanks-1:
	case full || above.any() && rank == rankOf[Extensions]:
		raise(&c.shut[rank], until)
	case above.any():
		c.shares.shut(rank, w, above, until)
	}
}

// Drop gives the ticket back of work that was not done after all, or that goes on without it:
// how long it stayed says nothing of the lane.
func (t Ticket) Drop() { t.c.lanes[t.lane].drop(t.who, int64(t.cost)) }

// Done gives the ticket back: the work has been answered, or given up.
func (t Ticket) Done(now int64) {
	t.c.lanes[t.lane].done(t.who, int64(t.cost), now-t.entered, now, t.c.limits.Load(), rankOf[t.lane])
}

// Pressure is what this member, if it leads, tells others by [Controller.Press]: up
// to which rank it refuses. 0: it refuses nothing.
func (c *Controller) Pressure(now int64) uint8 {
	if Mode(c.mode.Load()) != Enforce {
		return 0
	}
	rank := int(c.memory.Load())
	for r := range c.shut {
		if c.shut[r].Load() > now {
			rank = max(rank, r)
		}
	}
	return uint8(rank)
}

// Press passes on the pressure of the leader, by whom most work of this member is
// done in the end: what the leader refuses is refused here, for two intervals, so that
// nothing is let in between one word of the leader and the next. What is refused last and
// never is not concerned.
func (c *Controller) Press(rank uint8, now int64) {
	if r := min(int(rank), numRanks-2); r > 0 {
		raise(&c.shut[r], now+pressedFor*int64(c.limits.Load().Interval))
	}
}

// raise sets a time to a later one: who has read the clock before others does not take back
// what they have said.
func raise(at *atomic.Int64, to int64) {
	for old := at.Load(); old < to && !at.CompareAndSwap(old, to); {
		old = at.Load()
	}
}

// pressedFor is for how many intervals the leader's word holds. Members ask for it twice in
// an interval, and their loops look at the clock as often: with the way there and back, one
// would be over just before the next word comes.
const pressedFor = 2
