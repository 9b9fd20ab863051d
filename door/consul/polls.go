package consul

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/watch"
)

// Who watches by Consul's API asks again and again, each time with what the answer before
// said: the index, or the hash. Who comes back so has begun to watch before, and is refused
// later than who begins. That a request has an index does not show it: with an old one, or
// one that nobody was told, it is a read that waits for nothing, however long the list is that
// it reads. Told the last one all who poll come back with it; whoever else does waits, as they
// do.

// Bounds of what is remembered of answers to polls.
const (
	toldFor  = 20 * time.Second // at least: a client that was refused once may take some time
	toldLate = 2 * time.Second  // what was told before the last answer: for who was on the way back then
	maxTold  = 32 << 10         // questions answered in that time; where they are more, the oldest half is forgotten earlier
)

// pollsTold are the answers that polls were told lately: the same for all who may see the same
// and ask the same. Questions and answers are known by hashes.
type pollsTold struct {
	seed maphash.Seed // nobody can choose questions that share a hash

	mu     sync.Mutex // protects what follows; held for a look-up
	turned int64      // when what is in before was set apart
	recent map[uint64]toldPoll
	before map[uint64]toldPoll
}

// toldPoll is what those who ask one thing were told, the last first. A busy list may change
// several times until somebody is back.
type toldPoll [4]struct {
	answer uint64
	at     int64 // when it was told first
}

func newPollsTold() *pollsTold {
	return &pollsTold{seed: maphash.MakeSeed(), recent: map[uint64]toldPoll{}}
}

// add remembers an answer. One that says what was asked with, and not how it is, takes no
// other's place: it may have been asked with anything.
func (p *pollsTold) add(question, answer uint64, real bool, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	t := p.of(question)
	if t[0].answer != answer {
		if !real {
			return
		}
		copy(t[1:], t[:])
		t[0].answer, t[0].at = answer, now
	}
	p.recent[question] = t
}

// has reports whether an answer is what was told last, or was until a moment ago.
func (p *pollsTold) has(question, answer uint64, now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	t := p.of(question)
	for i := range t {
		if t[i].answer == answer && t[i].at != 0 {
			return i == 0 || time.Duration(now-t[i-1].at) < toldLate
		}
	}
	return false
}

func (p *pollsTold) of(question uint64) toldPoll {
	if t, known := p.recent[question]; known {
		return t
	}
	return p.before[question]
}

// turn forgets what was told before the last turn, if that is long enough ago, or enough
// was told since.
func (p *pollsTold) turn(now int64) {
	ago := time.Duration(now - p.turned)
	if ago < toldFor && len(p.recent) < maxTold {
		return
	}
	p.before, p.recent, p.turned = p.recent, map[uint64]toldPoll{}, now
	if ago >= 2*toldFor {
		p.before = nil
	}
}

// toldIndex and toldHash are what an answer says to who asks again with it.
func (p *pollsTold) toldIndex(i incumbent.Index) uint64 {
	return maphash.String(p.seed, "index "+formatIndex(i))
}

func (p *pollsTold) toldHash(h watch.Hash) uint64 { return maphash.Bytes(p.seed, h[:]) }

// question is what the request asks, for however long it waits, of what who asks may see.
func (r *request) question() uint64 {
	q := maps.Clone(r.query)
	for _, name := range [...]string{"index", "hash", "wait", "token"} {
		delete(q, name)
	}
	return maphash.String(r.door.polls.seed, r.who.principal.Name+"\x00"+r.path+"?"+q.Encode())
}

// returns reports whether the request is a poll that has what one before it was told, and
// waits for something else.
func (r *request) returns() bool {
	w, p := r.opts.want(), r.door.polls
	var said uint64
	switch hashed := w.Not != (watch.Hash{}); {
	case w.For == 0 || hashed && w.After != 0:
		return false
	case hashed:
		said = p.toldHash(w.Not)
	default:
		said = p.toldIndex(w.After)
	}
	return p.has(r.question(), said, r.door.monotonic())
}

// noteTold remembers what the request, if it is a poll, is told: an index that may be a later
// one than that of the answer.
func (r *request) noteTold(res *result, changed incumbent.Index, a *watch.Answer) {
	if !r.opts.blocking() {
		return
	}
	p := r.door.polls
	if res.index == 0 {
		p.add(r.question(), p.toldHash(a.Hash), true, r.door.monotonic())
	} else {
		p.add(r.question(), p.toldIndex(changed), changed == a.Changed, r.door.monotonic())
	}
}
