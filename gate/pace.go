package gate

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// DefaultFailures is how many of those who prove nothing are served in a second, and four
// times as many without TLS. A handshake and a refusal take some half a millisecond of a
// processor.
const DefaultFailures = 100

// What is fixed of a [Pace].
const (
	paceBurst  = time.Second      // what it allows at once: so much of it
	paceClean  = 2 * time.Second  // what those are allowed beyond it whose address has not failed
	paceDebt   = 5 * time.Second  // the most that it is in debt: so soon after the end of a storm nobody waits
	failingFor = 10 * time.Second // an address, after its last failure
	mostFails  = 1 << 14          // addresses that are known to fail
	pruneEvery = time.Second      // when there are so many
	plainShare = 4                // so many without TLS count as one: there is no handshake
	promptly   = time.Second      // after being let in: who leaves so soon without having proven anything has failed
)

// Pace bounds what a member spends on those who prove nothing, at all of its listeners
// together. Who was served and has proven nothing counts as a failure: who brought what
// is nobody's, and who left again at once. For each address that has failed lately,
// another is let in only while fewer fail than [Pace.SetRate] says; the others wait
// before their handshake, which costs nothing, and are refused in time. Who proves who
// it is costs nothing of it, however many there are: a fleet that comes back has all
// processors, and so has who comes from an address of which nobody fails. Only where
// failures come from ever new addresses all wait.
//
// It is a bucket that refills at the rate, kept as the time at which it is full again
// (the generic cell rate algorithm, https://www.itu.int/rec/T-REC-I.371).
//
// Who does not leave at once is no failure: a client that gave up because the member was
// slow to answer must not make it slower still. It has one of the places meanwhile, of
// which there are few ([Config.Unproven]).
type Pace struct {
	begun time.Time

	mu      sync.Mutex    // guards the rest; held for a few additions, and once a second to go through failing
	each    time.Duration // until one more may fail
	full    time.Duration // since begun: when the bucket is full again
	failing map[netip.Addr]time.Duration
	pruned  time.Duration
	failed  uint64
}

// NewPace returns a pace of the default rate.
func NewPace() *Pace {
	p := &Pace{begun: time.Now(), failing: make(map[netip.Addr]time.Duration)}
	p.SetRate(DefaultFailures)
	return p
}

// SetRate changes how many may fail in a second; 0 means the default.
func (p *Pace) SetRate(failures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each = time.Second / time.Duration(cmp.Or(failures, DefaultFailures))
}

// PaceStats are numbers of the moment, but for Failed, which counts since the start.
type PaceStats struct {
	Failing int // addresses from which failures came lately
	Failed  uint64
}

// Stats returns the numbers of the moment.
func (p *Pace) Stats() PaceStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune(p.now(), 0)
	return PaceStats{Failing: len(p.failing), Failed: p.failed}
}

func (p *Pace) now() time.Duration { return time.Since(p.begun) }

// wait is how long nobody of an address is let in; none: at once. All others wait as long
// or longer if that is not for failures of its own.
func (p *Pace) wait(from netip.Addr) (d time.Duration, all bool) {
	d, all = p.ahead(from, 0)
	return max(0, d), all
}

// holds reports whether those of an address who wait do so for the pace, rather than for a
// place: behind n of them nobody would be let in now.
func (p *Pace) holds(from netip.Addr, n int) bool {
	d, _ := p.ahead(from, n)
	return d > 0
}

// ahead is how long somebody of an address waits behind n others that fail. Negative: not at
// all.
func (p *Pace) ahead(from netip.Addr, n int) (d time.Duration, all bool) {
	if p == nil || !from.IsValid() { // permissions guard a unix socket
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	allowed := paceBurst
	all = !p.fails(from, now)
	if all {
		allowed += paceClean
	}
	return p.full + time.Duration(n)*p.each - now - allowed, all
}

func (p *Pace) fails(from netip.Addr, now time.Duration) bool {
	until, has := p.failing[from]
	return has && now < until
}

// take takes out of the bucket what somebody costs.
func (p *Pace) take(cost, now time.Duration) {
	p.full = min(max(p.full, now)+cost, now+paceDebt)
}

// visit is told that somebody is served, who begins with a handshake or without one.
func (p *Pace) visit(from netip.Addr, secure bool) *Visit {
	if p == nil || !from.IsValid() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &Visit{pace: p, from: from, since: p.now(), cost: p.each}
	if !secure {
		v.cost /= plainShare
	}
	if p.fails(from, v.since) {
		v.taken = true
		p.take(v.cost, v.since)
	}
	return v
}

// mark remembers that an address fails. Where there are too many to remember, they
// count as not failing.
func (p *Pace) mark(from netip.Addr, now time.Duration) {
	if _, has := p.failing[from]; !has && len(p.failing) >= mostFails {
		if p.prune(now, pruneEvery); len(p.failing) >= mostFails {
			return
		}
	}
	p.failing[from] = now + failingFor
}

// prune forgets addresses that have not failed lately, unless it did so just now.
func (p *Pace) prune(now, every time.Duration) {
	if now-p.pruned < every {
		return
	}
	p.pruned = now
	for from, until := range p.failing {
		if until <= now {
			delete(p.failing, from)
		}
	}
}

// Visit is one stranger's, from being served to what it comes to. A nil Visit counts
// nothing. Its methods may be called from any goroutine; what was judged once stays.
type Visit struct {
	pace  *Pace
	from  netip.Addr
	since time.Duration // of the pace
	cost  time.Duration // what it takes out of the bucket

	// Under pace.mu.
	taken  bool // out of the bucket
	judged bool
}

// Failed says that what was brought is nobody's.
func (v *Visit) Failed() { v.judge(func(time.Duration) bool { return true }) }

// Proved says that who it is has been proven.
func (v *Visit) Proved() { v.judge(func(time.Duration) bool { return false }) }

// Refused says with which error the stranger is sent away: one of the kind Denied is for
// what it brought, or did not, any other for the member's own sake.
func (v *Visit) Refused(err error) {
	v.judge(func(time.Duration) bool { return incumbent.KindOf(err) == incumbent.Denied })
}

// Excused says that the member sends the stranger away for its own sake: it has no room,
// or refuses for the load.
func (v *Visit) Excused() { v.Proved() }

// Ended says that the stranger has left without having proven anything.
func (v *Visit) Ended() { v.judge(func(stayed time.Duration) bool { return stayed < promptly }) }

func (v *Visit) judge(failed func(stayed time.Duration) bool) {
	if v == nil {
		return
	}
	p := v.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.judged {
		return
	}
	v.judged = true
	now := p.now()
	switch bad := failed(now - v.since); {
	case !bad && v.taken:
		p.full -= v.cost
	case bad && !v.taken:
		p.take(v.cost, now)
		fallthrough
	case bad:
		p.failed++
		p.mark(v.from, now)
	}
}

// VisitOf returns the visit of a connection, which lasts beyond [Prove] and [Leave]; nil
// if nobody counts it.
func VisitOf(c net.Conn) *Visit {
	if found := Of(c); found != nil {
		return found.visit.Load()
	}
	return nil
}

// VisitOfRequest is [VisitOf] the connection of a request.
func VisitOfRequest(ctx context.Context) *Visit {
	if c := FromContext(ctx); c != nil {
		return c.visit.Load()
	}
	return nil
}
