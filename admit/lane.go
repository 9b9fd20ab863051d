package admit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// lane is one lane's work under way and the window in which it is observed.
type lane struct {
	refused  [NumReasons]atomic.Uint64
	deferred atomic.Uint64

	usual int64 // of cost under way: the limit at first, and again some time after nothing was refused any more

	mu       sync.Mutex // protects what follows, for a few additions
	limit    int64      // of cost under way
	inflight int64
	admitted uint64
	idle     int64   // ns that work takes when nothing waits; 0: not known
	best     float64 // cost completed in a ns, in the best of the windows so far, the older the less
	asked    float64 // cost that asked to enter in the windows before, the older the less
	granted  float64 // cost admitted in them
	account  account
	least    int64 // ns that work took in the best window so far, the older the more
	wait     int64 // ns beyond that which work took in the window before, on average
	lag      int64 // ns for which committed commands waited for their turn to be applied then, on average; of the lane of extensions
	calm     int64 // when work last waited for no more than the target
	after    *lane // whose work is not to wait for this lane's: that of extensions; nil for what is not refused before them

	// The window since start.
	start    int64
	came     int64   // cost that asked to enter
	let      int64   // cost admitted
	finished int64   // cost completed
	quickest int64   // shortest stay of what completed
	stays    float64 // of what completed, each as often as its cost, ns
	most     int64   // cost under way at once
	limited  bool    // the limit was met
	lags     int64   // for which committed commands waited, ns
	applies  int64   // and how many times some were applied
}

// How a lane remembers what it can do.
const (
	bestFades = 1 - 1.0/1024           // in a window: by half in some 70 s
	askFades  = 0.9                    // in a window: by two thirds in a second
	idleFades = 1 << 13                // windows: by two thirds in a quarter of an hour,
	farLimit  = 8                      // while there may be no more under way than so many times the least,
	mostIdle  = int64(time.Second / 2) // until so much
	waitsOut  = 4                      // targets, for which a lane may wait where it is not to blame

	feels    = 2    // extensions may wait for a part of the first target, one in so many,
	feelsFar = 2    // and so many times what they take at best: members far from each other
	giveWay  = 0.7  // of what was under way is left in a window at least, and
	takeUp   = 1.25 // so many times the limit at most,
	asEver   = 2.0  // unless they wait for less than a quarter of that

	blameless = 4 // times the least a lane may have under way: whom extensions do not wait for

	// So many extensions may be under way until they have waited for so long: they take a few
	// milliseconds of a processor, and where a lane has had little to do, what completes while
	// the machine is busy with others does not say what it can take.
	leastExtensions = 256
	patience        = int64(2 * time.Second)
)

func (l *lane) init(usual int, limits *Limits) {
	l.usual = int64(usual)
	l.limit = int64(min(max(usual, limits.Min), limits.Max))
}

// must says which limits a lane has to ignore: those before it are to give way first.
type must struct{ room, share bool }

// enter admits work if the lane is below its limit, or if it must; otherwise why says what
// it is refused for (NumReasons: nothing). full says that the limit has been met, and not by
// somebody's excess alone: lanes before this one should give way. It is refused only some
// way beyond (the least a lane may have under way once more), so that they can. An empty
// lane takes any work, so that one request larger than the limit is possible. Whoever has
// more than their share meets the limit earlier, alone: see account.
func (l *lane) enter(w Who, cost, now int64, how entering, limits *Limits, rank int, must must) (why Reason, full bool, above overShare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now, limits, rank)
	extra := int64(0)
	switch how {
	case once:
		l.came += cost
	case again: // and what is large would never find so much room
		extra = max(int64(limits.Min), cost)
	}
	full, beyond, above := l.room(w, cost, extra, limits, rank)
	if full || above.any() {
		l.limited = true
	}
	if why = refusal(beyond, above, must); why != NumReasons {
		return why, why == Delay, above
	}
	if how == again { // it came when it was let in: then it is not told when to come back
		l.came += cost
	}
	l.take(w, cost)
	return NumReasons, full, above
}

// letIn gives work a place for which enter had none: it has come already.
func (l *lane) letIn(w Who, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(w, cost)
}

// take gives work a place. mu is held.
func (l *lane) take(w Who, cost int64) {
	l.inflight += cost
	l.most = max(l.most, l.inflight)
	l.account.add(w, cost)
	l.let += cost
	l.admitted++
}

func refusal(beyond bool, above overShare, must must) Reason {
	switch {
	case beyond && !must.room:
		return Delay
	case above.any() && !must.share:
		return Share
	}
	return NumReasons
}

// room says whether the lane has met its limit, whether by so much that work is refused, or
// by extra more than that, and who has more than their share.
func (l *lane) room(w Who, cost, extra int64, limits *Limits, rank int) (full, beyond bool, above overShare) {
	full = l.inflight > 0 && l.inflight+cost > l.limit
	return full, full && l.inflight+cost > l.limit+slack(rank, limits)+extra, l.account.above(w, cost, l.limit+extra-l.inflight)
}

// refuses says for what enter would not admit work; NumReasons: it would.
func (l *lane) refuses(w Who, cost, now int64, limits *Limits, rank int, must must) (Reason, overShare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now, limits, rank)
	_, beyond, above := l.room(w, cost, 0, limits, rank)
	return refusal(beyond, above, must), above
}

// turnedAway counts work that was refused without the lane's being asked to take it: when
// to come back follows from how much came. limited: the lane had met its limit.
func (l *lane) turnedAway(cost, now int64, limits *Limits, rank int, limited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now, limits, rank)
	l.came += cost
	l.limited = l.limited || limited
}

// floor is what may be under way whatever work waits for.
func (l *lane) floor(now int64, limits *Limits, rank int) int64 {
	if rank == rankOf[Extensions] && now-l.calm < patience {
		return max(leastExtensions, int64(limits.Min))
	}
	return int64(limits.Min)
}

// slack is none for the first lanes, which have nobody to give way.
func slack(rank int, limits *Limits) int64 {
	if rank == 0 {
		return 0
	}
	return int64(limits.Min)
}

func (l *lane) done(w Who, cost, stayed, now int64, limits *Limits, rank int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight -= cost
	l.account.add(w, -cost)
	if stayed = max(stayed, 1); l.finished == 0 || stayed < l.quickest {
		l.quickest = stayed
	}
	l.finished += cost
	l.stays += float64(cost) * float64(stayed)
	l.roll(now, limits, rank)
}

// drop gives back a place in which nothing was done.
func (l *lane) drop(w Who, cost int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight -= cost
	l.account.add(w, -cost)
}

// roll ends the window if it has lasted long enough, and draws the conclusion.
func (l *lane) roll(now int64, limits *Limits, rank int) {
	lasted := now - l.start
	if lasted < int64(limits.Interval) {
		return
	}
	before, calm := l.limit, l.inflight == 0
	if l.finished > 0 {
		calm = !l.adapt(lasted, limits, rank)
	}
	if calm && !l.limited {
		// Slowly, too: a lane with little to do would keep what an overload has left of its limit,
		// and refuse when the disk stands still for a moment.
		l.limit += max(0, l.usual-l.limit) / 16
	}
	if calm {
		l.calm = now
	}
	if l.after != nil {
		l.yield(before, l.after.spare(now, limits), limits)
	}
	l.limit = min(max(l.limit, l.floor(now, limits, rank)), int64(limits.Max))
	l.observe(lasted, limits)
	fade := math.Pow(askFades, float64(lasted)/float64(limits.Interval))
	l.asked, l.granted = fade*(l.asked+float64(l.came)), fade*(l.granted+float64(l.let))
	l.start, l.came, l.let, l.finished, l.limited = now, 0, 0, 0, false
	l.stays, l.most = 0, l.inflight
	l.lags, l.applies = 0, 0
}

// applied is [Controller.Applied].
func (l *lane) applied(waited, now int64, limits *Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lags += waited
	l.applies++
	l.roll(now, limits, rankOf[Extensions])
}

// observe remembers how long work of the window waited. If none completed, what is under
// way has waited since it began.
func (l *lane) observe(lasted int64, limits *Limits) {
	l.lag >>= min(lasted/int64(limits.Interval), 63) // while one takes long none is counted
	if l.applies > 0 {
		l.lag = l.lags / l.applies
	}
	switch {
	case l.finished > 0:
		// Not idle, which follows a queue that stands: within the target that is fine
		// for the lane itself, and no reason not to see it here.
		if l.least == 0 {
			l.least = l.quickest
		}
		l.least = min(l.quickest, l.least+int64((1-bestFades)*float64(l.quickest-l.least)))
		l.wait = int64(l.stays/float64(l.finished)) - l.least
	case l.inflight > 0 && l.least > 0:
		l.wait = max(l.wait, lasted-l.least)
	default:
		l.wait = 0
	}
}

// spare says of the lane of extensions by how much the lanes before it may grow (above 1)
// or have to shrink, by the worse of how long they wait and how long what is committed
// waits to be applied. Their mean wait counts and not the shortest stay, as
// in adapt: requests in bulk leave gaps, in which a few extensions wait for nothing. The
// root, since lanes and members that see the same wait all move: with the ratio itself they
// swing between nothing and too much.
func (l *lane) spare(now int64, limits *Limits) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now, limits, rankOf[Extensions])
	may := float64(int64(limits.Target)/feels + feelsFar*l.least)
	spare := math.Sqrt(1 / max(float64(l.wait)/may, float64(l.lag)/float64(limits.Target), 1/may))
	if spare >= asEver {
		return asEver
	}
	return min(max(spare, giveWay), takeUp)
}

// yield moves the limit, which was another before this window, no faster than extensions
// can spare. A lane with little under way is not to blame.
func (l *lane) yield(before int64, spare float64, limits *Limits) {
	if spare >= 1 {
		l.limit = min(l.limit, int64(spare*float64(before)))
		return
	}
	l.limit = min(l.limit, max(int64(spare*float64(min(before, l.most))), blameless*int64(limits.Min)))
}

// adapt moves the limit. The quickest of a window stayed at least as long as
// the queue that stood all along; beyond what an idle system takes, that is
// waiting. It reports whether that was more than the target.
func (l *lane) adapt(lasted int64, limits *Limits, rank int) (waits bool) {
	target, patient := limits.target(rank), rank == rankOf[Extensions]
	if l.idle == 0 || l.quickest < l.idle {
		l.idle = l.quickest
	}
	l.best = max(l.best*bestFades, float64(l.finished)/float64(lasted))
	waited := l.quickest - l.idle
	switch carried := l.best * float64(lasted); {
	case patient && waited > target && float64(l.came) <= carried+2*math.Sqrt(carried):
		// No more came than the lane has carried before: what makes it wait is not its
		// own work but what takes the processor from it, and to refuse would help nobody.
		// It may take what waits meanwhile. Not so where a lane's work is long: were it
		// the disk that has become slow, what waits would be longer than anybody does.
		if l.limited {
			l.limit = max(l.limit, min(2*l.limit, int64(l.best*float64(l.idle+waitsOut*target))))
		}
	case waited > target:
		// What completes in the time that is allowed. Unlike a factor, it does
		// not depend on how long the present queue is. The root leaves room for
		// work that comes at random, at a rate the lane can stand.
		n := float64(l.finished) * float64(target+l.idle) / float64(lasted)
		l.limit = int64(n + 2*math.Sqrt(n))
	case l.limited:
		grown := l.limit * (target + l.idle) / l.quickest
		l.limit = min(grown, 2*l.limit)
	default:
		// Nothing waits long and nothing is refused: if work takes longer than
		// it used to, the system has changed. Slowly, since a queue that is
		// just building looks the same for a moment.
		l.idle += waited / 16
		return false
	}
	// Where the leader is farther away now, or the disk is another, no window shows the system
	// idle any more, however little is under way: what it took then is forgotten, slowly, and no
	// queue of much is taken for that.
	if l.limit <= farLimit*int64(limits.Min) && l.idle < mostIdle {
		l.idle += waited / idleFades
	}
	return waited > target
}

// excess is how many times as much came as was let in lately, at least 1. In a second, and
// not in a window: a lane that is shut now and then lets nothing in meanwhile.
func (l *lane) excess() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max((l.asked+float64(l.came))/max(l.granted+float64(l.let), 1), 1)
}

func (l *lane) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inflight >= l.limit
}

func (l *lane) isEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inflight == 0
}

func (l *lane) stats() LaneStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LaneStats{Limit: l.limit, Inflight: l.inflight, Admitted: l.admitted, Deferred: l.deferred.Load()}
	for i := range s.Refused {
		s.Refused[i] = l.refused[i].Load()
	}
	return s
}
