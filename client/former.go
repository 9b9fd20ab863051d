package client

import (
	"cmp"
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// former is what the session holds at the server by no claim of this run, but of another
// run of its client: one before it (SessionConfig.ID), or one that had the session while
// this one had no link. Beats keep it, for it lives by the session. It is claimed by this
// run, or given back, but not before the other run, which may live and only be cut off, has
// stopped believing that it holds it: its deadline is at most a ttl behind what was last
// acknowledged, of which nothing is that was sent [maxApart] after this run had begun.
type former struct {
	token    incumbent.Token
	holder   string
	critical bool
	wanted   bool          // a claim is about to take it over
	over     chan struct{} // closed when it is claimed or given back, or the server does not list it any more
}

// resumed takes up what the server lists when the session begins, again or for the first
// time. What a claim may have been granted that was sent, and is under way or being undone, is
// that claim's. Where another run had the session meanwhile, and claimed the same for the same
// holder, the lease is that run's, and nothing says so.
func (s *Session) resumed(a *apiv1.Attached, listed map[incumbent.Token]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has = time.Duration(a.GetHeldMs()) * time.Millisecond
	for name, f := range s.former {
		if !listed[f.token] && uint64(f.token) <= a.GetIndex() {
			s.formerIsOver(name)
		}
	}
	for _, l := range a.GetLeases() {
		name, token := nameOf(l.GetName()), incumbent.Token(l.GetToken())
		_, back := s.back[token]
		if back || s.leases[token] != nil || s.former[name] != nil || s.mayHaveClaimed(name, l) {
			continue
		}
		s.former[name] = &former{token: token, holder: l.GetHolder(), critical: l.GetCritical(), over: make(chan struct{})}
	}
	if len(s.former) > 0 {
		most := cmp.Or(s.has, s.ttl) + maxApart
		s.formersEnd = s.clock() + most + time.Duration(float64(most)*s.c.cfg.Drift)
	}
}

// mayHaveClaimed reports whether a claim of this run, of which it does not know the end yet, may
// have been granted a lease. Under mu.
func (s *Session) mayHaveClaimed(name incumbent.Name, l *apiv1.Lease) bool {
	e, u := s.offers[name], s.leaving[name]
	return e != nil && e.asked && grants(e.holder, l) || u != nil && grants(u.holder, l)
}

// grants reports whether a lease has the holder for whom it was claimed. Of a claim that names
// none, the server knows it alone.
func grants(holder string, l *apiv1.Lease) bool { return holder == "" || holder == l.GetHolder() }

// formerIsOver forgets what another run held. Under mu.
func (s *Session) formerIsOver(name incumbent.Name) {
	if f := s.former[name]; f != nil {
		close(f.over)
		delete(s.former, name)
	}
}

// isFormer reports whether a holding is a former run's. Under mu.
func (s *Session) isFormer(name incumbent.Name, token incumbent.Token) bool {
	f := s.former[name]
	return f != nil && f.token == token
}

// outliveFormers gives back what former runs held and no claim has taken over. Under mu.
func (s *Session) outliveFormers() {
	if len(s.former) == 0 || s.clock() < s.formersEnd {
		return
	}
	for name, f := range s.former {
		if !f.wanted {
			s.back[f.token] = name
			s.formerIsOver(name)
		}
	}
}

// formerOf is what a former run held of name, and how long such a run may believe so still.
// nil: nothing. It is kept for the claim that asks, until that ends.
func (s *Session) formerOf(name incumbent.Name) (f *former, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.former[name]; f != nil {
		f.wanted = true
	}
	return f, s.believed()
}

// believed is how long a former run may believe that it holds something. Under mu.
func (s *Session) believed() time.Duration {
	if s.alone || len(s.former) == 0 {
		return 0
	}
	return max(0, s.formersEnd-s.clock())
}

// inherit takes over what a former run held of name, under its token, once no such run can
// believe that it holds it; where another holder is asked for it is released then. No lease
// and no error: the claim is to be made. enough: and need not be made beside.
func (s *Session) inherit(ctx context.Context, name incumbent.Name, opts ClaimOptions) (lease *Lease, enough bool, err error) {
	for {
		if _, err := s.waitLink(ctx); err != nil { // what begins over the next one says what there is
			return nil, false, err
		}
		f, left := s.formerOf(name)
		switch {
		case f == nil:
			return nil, false, nil
		case left > 0 && !opts.Wait:
			held := incumbent.Errorf(incumbent.Held, "a former run of this session's client may hold %s still", name.Lease)
			held.RetryAfter = left
			return nil, false, held
		case left > 0:
			err = s.awaitOver(ctx, left, f.over)
		case opts.Holder != "" && opts.Holder != f.holder:
			if s.disown(name, f, true) {
				err = s.release(ctx, name, f.token)
			}
		default:
			if lease, err = s.accept(ctx, name, f.token); lease != nil {
				return lease, opts.Critical == f.critical, nil
			}
			if err == nil {
				s.disown(name, f, false) // it was lost meanwhile
			}
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// disown forgets what a former run held, to give it back or because it is lost: not if by
// now such a run may believe again that it holds it.
func (s *Session) disown(name incumbent.Name, f *former, giveBack bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.former[name] != f || s.believed() > 0 {
		return false
	}
	if giveBack {
		s.back[f.token] = name
	}
	s.formerIsOver(name)
	return true
}

// awaitOver waits for that long at most, or until what it waits for is over.
func (s *Session) awaitOver(ctx context.Context, most time.Duration, over <-chan struct{}) error {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-t.C:
	case <-over:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// inherits notes that a lease is a former run's, taken over. Under mu.
func (s *Session) inherits(name incumbent.Name, token incumbent.Token) {
	if s.isFormer(name, token) {
		s.inherited[name] = s.former[name]
		s.formerIsOver(name)
	}
}

// closeBehindFormers waits until no former run can believe that it holds what is to be
// freed with the session. What this run held is released meanwhile.
func (s *Session) closeBehindFormers(ctx context.Context, held []*Lease) {
	for _, l := range held {
		s.giveBack(l.name, l.token)
	}
	for _, l := range held {
		_ = s.release(ctx, l.name, l.token) // else the beats do, or the end of the session
	}
	for left := s.formersLeft(); left > 0; left = s.formersLeft() {
		if s.awaitOver(ctx, left, nil) != nil {
			return
		}
	}
}

func (s *Session) formersLeft() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.believed()
}

// holderOf is for whom to claim where nobody is named: for whom the session has it already,
// if that was a former run's claim.
func (s *Session) holderOf(name incumbent.Name) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.inherited[name]
	if f == nil {
		return s.holder
	}
	if _, back := s.back[f.token]; !back && s.leases[f.token] == nil {
		delete(s.inherited, name)
		return s.holder
	}
	return f.holder
}
