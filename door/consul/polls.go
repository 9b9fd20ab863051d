package consul

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"
)

// Who watches by Consul's API asks again and again, each time with what the answer before
// said: the index, or the hash. Who comes back so has begun to watch before, and is refused
// later than who begins. That a request has an index does not show it: with one that nobody
// was told, it is a read that waits for nothing, however long the list is that it reads.
// Told the last one all who poll come back with it; whoever else does waits, as they do.

// Bounds of what is remembered of answers to polls.
const (
	toldFor = 20 * time.Second // at least: a client that was refused once may take some time
	maxTold = 32 << 10         // answers told in that time; where they are more, the oldest half is forgotten earlier
)

// pollsTold are the answers that polls were told lately, each known by a hash of what was
// asked and what was told. The same for all who ask the same: it is one more answer for each
// change, however many wait for it.
type pollsTold struct {
	seed maphash.Seed // nobody can choose questions that share a hash

	mu     sync.Mutex // protects what follows; held for a look-up
	turned int64      // when the answers told before were set apart
	recent map[uint64]struct{}
	before map[uint64]struct{}
}

func newPollsTold() *pollsTold {
	return &pollsTold{seed: maphash.MakeSeed(), recent: map[uint64]struct{}{}}
}

// add remembers an answer.
func (p *pollsTold) add(answer uint64, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	p.recent[answer] = struct{}{}
}

// has reports whether an answer was told lately.
func (p *pollsTold) has(answer uint64, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	_, recent := p.recent[answer]
	_, before := p.before[answer]
	return recent || before
}

// turn forgets what was told before the last turn, if that is long enough ago, or enough
// was told since.
func (p *pollsTold) turn(now int64) {
	ago := time.Duration(now - p.turned)
	if ago < toldFor && len(p.recent) < maxTold {
		return
	}
	p.before, p.recent, p.turned = p.recent, map[uint64]struct{}{}, now
	if ago >= 2*toldFor {
		p.before = nil
	}
}

// pollOf is the answer that says something to what the request asks, whoever asks and for
// however long it waits.
func (r *request) pollOf(said string) uint64 {
	q := maps.Clone(r.query)
	for _, name := range [...]string{"index", "hash", "wait", "token"} {
		delete(q, name)
	}
	return maphash.String(r.door.polls.seed, r.path+"?"+q.Encode()+"\x00"+said)
}

// returns reports whether the request is a poll that has what one before it was told.
func (r *request) returns() bool {
	if !r.opts.blocking() {
		return false
	}
	said := r.opts.hash
	if said == "" {
		said = formatIndex(r.opts.index)
	}
	return r.door.polls.has(r.pollOf(said), r.door.monotonic())
}
