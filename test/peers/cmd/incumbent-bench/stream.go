//go:build linux

package main

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// How a stream leaves a member: as Incumbent's agents do.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second
	lookEvery    = 100 * time.Millisecond // for silence, and for what is due
)

var errSilent = errors.New("the member is silent")

// etcdStream is one stream of keepalives for the holders that share it. When its
// member is silent or gone, it goes on at another.
type etcdStream struct {
	f      *etcdFleet
	member int

	mu      sync.Mutex // protects the rest, held for a few field accesses
	holders byDue
	flying  []beat    // in the order of sending, in which etcd answers
	quiet   time.Time // since when nothing was heard although an answer is due
}

// beat is a keepalive under way.
type beat struct {
	h        *holder
	intended time.Time
	sent     time.Time
}

// byDue is a heap of holders.
type byDue []*holder

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }
func (b byDue) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byDue) Push(x any)        { *b = append(*b, x.(*holder)) } //nolint:forcetypeassert // only holders are pushed
func (b *byDue) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

func (s *etcdStream) add(h *holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.due = time.Now().Add(rand.N(s.f.every))
	heap.Push(&s.holders, h)
}

// strike marks all holders, and returns how many there are.
func (s *etcdStream) strike() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holders {
		h.struck = true
	}
	return len(s.holders)
}

func (s *etcdStream) stillStruck() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holders {
		if h.struck {
			n++
		}
	}
	return n
}

// keep keeps the holders alive until ctx ends, at one member after the other.
func (s *etcdStream) keep(ctx context.Context) {
	for wait := firstPause; ; {
		if s.serve(ctx) {
			wait = firstPause // it was heard there
		}
		if ctx.Err() != nil {
			return
		}
		s.interrupted()
		s.f.moved.Add(1)
		if pause(ctx, rand.N(wait)) != nil {
			return
		}
		wait = min(2*wait, longestPause)
		if n := len(s.f.members.Endpoints); n > 1 {
			s.member = (s.member + 1 + rand.IntN(n-1)) % n
		}
	}
}

// interrupted: nobody will answer what is under way.
func (s *etcdStream) interrupted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.flying {
		s.f.opExtend.Failed()
		if b.h.owed.IsZero() || b.intended.Before(b.h.owed) {
			b.h.owed = b.intended
		}
	}
	s.flying = nil
	for _, h := range s.holders {
		if !h.owed.IsZero() {
			h.due = time.Now() // at once, at the next member
		}
	}
	heap.Init(&s.holders)
}

// serve keeps the holders alive at the stream's member until that is silent or
// gone, and reports whether anything was heard.
func (s *etcdStream) serve(ctx context.Context) (heard bool) {
	c, err := etcdload.Open(s.f.members, s.member)
	if err != nil {
		return false
	}
	defer etcdload.Disconnect([]*clientv3.Client{c}) //nolint:errcheck // it is given up
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	silent := time.AfterFunc(s.f.silent, stop)
	stream, err := etcdload.OpenStream(ctx, c)
	if err != nil || !silent.Stop() {
		return false
	}
	s.f.open.Add(1)
	defer s.f.open.Add(-1)
	var receiver sync.WaitGroup
	receiver.Go(func() {
		defer stop()
		for {
			lease, ttl, err := stream.Next()
			if err != nil || !s.take(lease, ttl) {
				return
			}
			heard = true
		}
	})
	s.send(ctx, stream)
	stop()
	receiver.Wait()
	return heard
}

// send sends what is due until ctx ends or the member is silent.
func (s *etcdStream) send(ctx context.Context, stream etcdload.Stream) {
	for {
		lease, wait, err := s.next()
		if err != nil {
			return
		}
		if wait == 0 {
			if stream.Send(lease) != nil {
				return
			}
			continue
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// next is the lease whose keepalive is to be sent now, or how long to wait.
func (s *etcdStream) next() (lease clientv3.LeaseID, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.flying) > 0 && now.Sub(s.quiet) > s.f.silent {
		return 0, 0, errSilent
	}
	if len(s.holders) == 0 {
		return 0, lookEvery, nil
	}
	h := s.holders[0]
	if early := h.due.Sub(now); early > 0 {
		return 0, min(early, lookEvery), nil
	}
	b := beat{h: h, intended: h.due, sent: now}
	if !h.owed.IsZero() {
		b.intended = h.owed
	}
	if now.After(h.until) && !h.lapsed {
		h.lapsed = true
		s.f.run.Lapsed()
	}
	for h.due = h.due.Add(s.f.every); h.due.Before(now); h.due = h.due.Add(s.f.every) {
		s.f.opExtend.Failed() // it was due while there was no stream
	}
	heap.Fix(&s.holders, 0)
	if len(s.flying) == 0 {
		s.quiet = now
	}
	s.flying = append(s.flying, b)
	return h.lease, 0, nil
}

// take handles an answer; false: it is not the one that was due.
func (s *etcdStream) take(lease clientv3.LeaseID, ttl int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.quiet = now
	if len(s.flying) == 0 || s.flying[0].h.lease != lease {
		return false
	}
	b := s.flying[0]
	s.flying = s.flying[1:]
	h := b.h
	if ttl <= 0 {
		s.gone(b)
		return true
	}
	s.f.opExtend.Done(b.intended)
	h.until, h.owed, h.lapsed = b.sent.Add(s.f.run.HoldFor(time.Duration(ttl)*time.Second)), time.Time{}, false
	if at := s.f.struck.Load(); h.struck && at != nil && !b.sent.Before(*at) {
		h.struck = false
		from := b.intended
		if from.Before(*at) {
			from = *at
		}
		s.f.opRecovery.Done(from)
	}
	return true
}

// gone: etcd says that the lease is over.
func (s *etcdStream) gone(b beat) {
	for i, h := range s.holders {
		if h != b.h {
			continue
		}
		heap.Remove(&s.holders, i)
		s.f.holding.Add(-1)
		s.f.opExtend.Failed()
		if b.sent.Before(h.until) {
			s.f.run.Lost("lease %x was over %v before its holder's own deadline", h.lease, h.until.Sub(b.sent))
		}
		return
	}
}
