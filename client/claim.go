package client

import (
	"cmp"
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// ClaimOptions refine a claim. The zero value waits for nothing.
type ClaimOptions struct {
	Holder   string // the session's if empty; of what a former run held, the one that it held it for
	Wait     bool   // take a place in the queue and wait for the turn
	Critical bool   // its extensions are refused last
}

// Claim claims a lease for the session, of the default namespace and model where
// the name has none. Without Wait, a lease that another
// holds is an error of kind Held. With Wait it blocks until the lease is handed
// over or ctx ends. A session has one claim at a time on one name; one whose ctx
// ended counts until the server has been told, which the next waits for.
//
// What the session held when it was resumed (SessionConfig.ID) is taken over under the
// token that it has: with SessionConfig.Alone at once, else once the session's ttl and half a
// minute have passed since then, for until then a former run may believe that it holds it.
// With Wait Claim waits for that; without, the error is of kind Held and says when to come back.
//
// A claim that is refused because the members have too much to do is an error of kind
// Overloaded, with the time to come back after, whether it is to wait or not: it is
// repeated by the caller, as [Session.Campaign] does, or not at all. If the kind is Unknown, it is undone.
func (s *Session) Claim(ctx context.Context, name incumbent.Name, opts ClaimOptions) (*Lease, error) {
	name = name.WithDefaults()
	if err := name.Validate(); err != nil {
		return nil, err
	}
	if opts.Holder != "" { // before anything is done for it: what a former run held is released for another holder
		if err := incumbent.ValidateHolder(opts.Holder); err != nil {
			return nil, err
		}
	}
	e, err := s.expect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer s.expectNoMore(name)
	var lease, inherited *Lease
	for enough := false; err == nil && lease == nil; {
		// The session may begin again at any time, and then have what another run claimed meanwhile.
		if lease, enough, err = s.inherit(ctx, name, opts); err != nil || enough {
			break
		}
		inherited = cmp.Or(lease, inherited)
		named := opts // in each turn: what another run held since the last may have another holder
		if opts.Holder == "" {
			named.Holder = s.holderOf(name)
		}
		lease, err = s.claim(ctx, name, named, e)
	}
	if err != nil && inherited != nil { // what was taken over is not what was asked for: nobody would have it
		inherited.end(err)
		s.giveBack(name, inherited.token)
	}
	if err != nil && e.asked && (ctx.Err() != nil || incumbent.KindOf(err) == incumbent.Unknown) {
		s.abandon(name, e.holder)
	}
	return lease, err
}

// claim claims once, and waits for its turn. No lease and no error: it is to be claimed again.
func (s *Session) claim(ctx context.Context, name incumbent.Name, opts ClaimOptions, e *expected) (*Lease, error) {
	lease, queued, err := s.claimOnce(ctx, name, opts, e)
	switch {
	case err != nil || lease != nil:
		return lease, err
	case queued:
		return s.awaitOffer(ctx, name, e.offer)
	case s.isClosing():
		return nil, incumbent.Errorf(incumbent.Expired, "the session is being closed by its client")
	}
	return nil, nil // an offer that was over before it could be accepted
}

// expect begins a claim. What undoes one before would undo this one too, so that
// comes first.
func (s *Session) expect(ctx context.Context, name incumbent.Name) (*expected, error) {
	for {
		offer, undone, err := s.tryExpect(name)
		if undone == nil {
			return offer, err
		}
		select {
		case <-undone:
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryExpect returns what to wait for instead if a claim is still being undone.
func (s *Session) tryExpect(name incumbent.Name) (offer *expected, undone <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offers[name] != nil {
		return nil, nil, incumbent.Errorf(incumbent.Exists, "this session already claims %s", name.Lease)
	}
	if u := s.leaving[name]; u != nil {
		return nil, u.undone, nil
	}
	offer = &expected{offer: make(chan incumbent.Token, 1)}
	s.offers[name] = offer
	return offer, nil, nil
}

func (s *Session) expectNoMore(name incumbent.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.offers, name)
	if f := s.former[name]; f != nil {
		f.wanted = false
	}
}

// asking notes that a claim is handed to a link: a later one may find that its place is gone.
func (s *Session) asking(e *expected, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.asked, e.holder = true, holder
}

func (s *Session) claimOnce(ctx context.Context, name incumbent.Name, opts ClaimOptions, e *expected) (lease *Lease, queued bool, err error) {
	key, err := s.key(ctx)
	if err != nil {
		return nil, false, err
	}
	res, err := s.operateIf(ctx, rebased(key, s.claimsAgain), func() *apiv1.Operation {
		s.asking(e, opts.Holder)
		return &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
			Name: apiName(name), Holder: opts.Holder, Session: s.id.String(), Wait: opts.Wait, Critical: opts.Critical, Idempotency: key,
		}}}
	})
	if err != nil {
		return nil, false, err
	}
	c := res.GetClaim()
	if c.GetQueued() {
		return nil, true, nil
	}
	token := incumbent.Token(c.GetLease().GetToken())
	if s.givenBack(token) {
		// Its release is under way and may come later than this claim's answer.
		return nil, false, s.release(ctx, name, token)
	}
	lease, err = s.accept(ctx, name, token)
	return lease, false, err
}

// take makes a Lease of a holding, or returns the one there is. It is in the map
// before its timer can end it, which takes it out again. nil: the holding has
// been given back meanwhile, or another run of the client may believe that it has it.
func (s *Session) take(name incumbent.Name, token incumbent.Token, deadline time.Duration) *Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, back := s.back[token]; back || s.closing || s.isFormer(name, token) && s.believed() > 0 {
		return nil
	}
	if l := s.leases[token]; l != nil {
		if l.extend(deadline) {
			return l
		}
		if l.beingRevoked() {
			return nil // it has the time until its deadline, whoever claims it
		}
		// It has lapsed, and whoever held it may have been told: it is given back,
		// never taken up again under the token it had.
		s.back[token] = name
		return nil
	}
	l := newLease(s, name, token, deadline)
	s.leases[token] = l
	s.inherits(name, token)
	return l
}

// awaitOffer waits for the hand-over and accepts it. A nil lease without an
// error: the offer was over already, or the place in line is gone.
func (s *Session) awaitOffer(ctx context.Context, name incumbent.Name, offer <-chan incumbent.Token) (*Lease, error) {
	select {
	case token := <-offer:
		if token == 0 {
			return nil, nil
		}
		return s.accept(ctx, name, token)
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// accept turns a grant or an offer into a holding by its first extension: no claim of a session
// is answered with a time.
func (s *Session) accept(ctx context.Context, name incumbent.Name, token incumbent.Token) (*Lease, error) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		lease, again, err := s.acceptOnce(ctx, name, token)
		if err != nil && ctx.Err() == nil {
			s.giveBackGrant(name, token) // refused for good: beats would keep it for nobody
		}
		if err != nil || again == nil {
			return lease, err
		}
		if err := sleep(ctx, jitter(pause, again)); err != nil {
			return nil, err
		}
	}
}

// acceptOnce is accept; again says that nothing could be confirmed yet. An extension needs no
// attachment: it counts only with the beat beside it, for another run may have the session.
func (s *Session) acceptOnce(ctx context.Context, name incumbent.Name, token incumbent.Token) (l *Lease, again, err error) {
	var sent time.Duration
	a, _, err := s.attemptBy(ctx, always, func(l *link) (*apiv1.ServerFrame, error) {
		sent = s.clock()
		beat, extension := beatFrame(), tokensFrame(uint64(token))
		answers, err := l.post(beat, extension)
		if err != nil {
			return nil, err
		}
		a, err := l.await(ctx, beat, answers[0])
		if a == nil {
			return nil, err
		}
		if !s.beatAnswered(sent, a) {
			if err := DetailError(a.Error); retryable(err) {
				return a, err // when the member asks for it
			}
			// If it is another run's, this one is about to be told.
			return a, incumbent.Errorf(incumbent.Unavailable, "the session is not known to be attached")
		}
		return l.await(ctx, extension, answers[1])
	})
	if err != nil {
		return nil, nil, err
	}
	ext := a.GetTokensExtended()
	if len(ext.GetNotHeld()) > 0 {
		return nil, nil, nil
	}
	if len(ext.GetUnavailable()) > 0 {
		return nil, &incumbent.Error{Kind: incumbent.Unavailable, RetryAfter: time.Duration(ext.GetRetryAfterMs()) * time.Millisecond}, nil
	}
	held := ext.GetHeldMs()
	if held == 0 && len(ext.GetHeldEachMs()) > 0 {
		held = ext.GetHeldEachMs()[0]
	}
	return s.take(name, token, sent+s.margin(held)), nil, nil
}

// key returns a key for a new operation.
func (s *Session) key(ctx context.Context) (*apiv1.Idempotency, error) {
	key := s.c.NewKey()
	return key, s.c.complete(ctx, key, s.learn)
}

// learn is [Client.learn] over the session's stream. A session that is over has nothing to
// show there, and what it is asked for says so itself.
func (s *Session) learn(ctx context.Context) error {
	asked := s.clock()
	a, err := s.request(ctx, func() *apiv1.ClientFrame { return s.lookup(nil, 1) })
	if gone(err) {
		return s.c.learn(ctx)
	}
	if err != nil {
		return err
	}
	s.c.learned(asked, a.GetGetSession().GetIndex())
	return nil
}

// lookup asks for a page of what the session holds: behind a name, and up to
// limit; 0 is the server's own.
func (s *Session) lookup(after *apiv1.LeaseName, limit uint32) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_GetSession{GetSession: &apiv1.GetSessionRequest{
		Id: s.id.String(), After: after, Limit: limit,
	}}}
}

// giveBack notes that a holding is no longer wanted. From then on no claim is
// answered with it, and the next beat releases it.
func (s *Session) giveBack(name incumbent.Name, token incumbent.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back[token] = name
}

// giveBackGrant is giveBack for what could not be accepted, unless it is held here already, or
// is what a former run held.
func (s *Session) giveBackGrant(name incumbent.Name, token incumbent.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[token] == nil && !s.isFormer(name, token) {
		s.back[token] = name
	}
}

func (s *Session) givenBack(token incumbent.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, back := s.back[token]
	return back
}

// release tells the server that a holding was given back. It needs no key: the
// token names the holding, and releasing it twice is the same as once.
func (s *Session) release(ctx context.Context, name incumbent.Name, token incumbent.Token) error {
	_, err := s.operate(ctx, func() *apiv1.Operation { return s.releaseOp(name, token) })
	if err == nil {
		s.settled(token)
	}
	return err
}

func (s *Session) releaseOp(name incumbent.Name, token incumbent.Token) *apiv1.Operation {
	return &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{
		Name: apiName(name), Session: s.id.String(), Token: uint64(token),
	}}}
}

// settled forgets a token that the server has released.
func (s *Session) settled(token incumbent.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.back, token)
}

// operate sends one operation, again over the next link when a link breaks:
// operations carry a key, or are idempotent by themselves.
func (s *Session) operate(ctx context.Context, op func() *apiv1.Operation) (*apiv1.OperationResult, error) {
	return s.operateIf(ctx, s.again, op)
}

// operateIf is operate for what is repeated only if again says so, as for attempt.
func (s *Session) operateIf(ctx context.Context, again func(error, bool) bool, op func() *apiv1.Operation) (*apiv1.OperationResult, error) {
	a, unsure, err := s.attempt(ctx, again, func() *apiv1.ClientFrame { return operation(op()) })
	if err != nil && unsure && retryable(err) && ctx.Err() == nil {
		// A later attempt that was refused says nothing of the first.
		return nil, incumbent.Errorf(incumbent.Unknown, "it may or may not have taken effect: %w", err)
	}
	if err != nil {
		return nil, err
	}
	res := a.GetOperation()
	return res, DetailError(res.GetError())
}

func operation(op *apiv1.Operation) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Operation{Operation: op}}
}

// request sends a frame that reads, or of which nobody asks what became, until it is answered, or
// was refused as often as the session's budget has room for. The frame
// is made anew for each attempt, since a holder's time counts from the send. That there was no
// answer is of kind Unavailable: no outcome is unknown.
func (s *Session) request(ctx context.Context, frame func() *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	a, _, err := s.attempt(ctx, s.again, frame)
	if a == nil && incumbent.KindOf(err) == incumbent.Unknown {
		err = incumbent.Errorf(incumbent.Unavailable, "no answer: %w", err)
	}
	return a, err
}

// again reports whether what a member refused for now is repeated.
func (s *Session) again(error, bool) bool { return s.budget.repeat(s.clock()) }

// claimsAgain is again for claims. One that was refused for want of room is the caller's
// to repeat: a library that does so makes more claims of each that was refused. If an
// attempt before that has not been answered, it is that attempt's outcome which is asked for.
func (s *Session) claimsAgain(err error, unsure bool) bool {
	return (unsure || incumbent.KindOf(err) != incumbent.Overloaded) && s.again(err, unsure)
}

// rebased is again for what carries a key. Refused for its base, it gets another; if an attempt
// before that may have been executed, nobody knows any more, and it is not repeated. What became
// of an earlier request with the same key it does not ask: of requests that are sent more than
// once under one key, as those that leave a queue, twice has to be the same as once.
func rebased(key *apiv1.Idempotency, again func(error, bool) bool) func(error, bool) bool {
	return func(err error, unsure bool) bool {
		base := newBase(err)
		if base != 0 && !unsure {
			key.BaseIndex = base
		}
		return (base == 0 || !unsure) && again(err, unsure)
	}
}

// always is again for extensions, which go on until the deadline of what they extend.
func always(error, bool) bool { return true }

// attempt is request. With an error, unsure says that an attempt was sent which nobody
// has answered. Whether what was refused for now is repeated, again says; what no
// member has answered is asked for over the next link.
func (s *Session) attempt(ctx context.Context, again func(err error, unsure bool) bool, frame func() *apiv1.ClientFrame) (a *apiv1.ServerFrame, unsure bool, err error) {
	return s.attemptBy(ctx, again, func(l *link) (*apiv1.ServerFrame, error) { return l.call(ctx, frame()) })
}

// attemptBy is attempt for what is asked over a link by call.
func (s *Session) attemptBy(ctx context.Context, again func(err error, unsure bool) bool, call func(*link) (*apiv1.ServerFrame, error)) (a *apiv1.ServerFrame, unsure bool, err error) {
	s.budget.first(1)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		l, err := s.waitLink(ctx)
		if err != nil {
			return nil, unsure, err
		}
		a, err := call(l)
		if err == nil {
			err = DetailError(a.GetOperation().GetError())
		}
		s.c.saw(max(indexOf(a), newBase(err)))
		if !unsure && newBase(err) != 0 {
			err = notExecuted(err)
		}
		kind := incumbent.KindOf(err) // Invalid without an answer: it was not sent
		unsure = unsure || a == nil && kind != incumbent.Invalid || kind == incumbent.Unknown
		if err == nil || !retryable(err) || ctx.Err() != nil || a != nil && !again(err, unsure) {
			return a, unsure, err
		}
		if err := sleep(ctx, jitter(pause, err)); err != nil {
			return nil, unsure, err
		}
	}
}

// indexOf is the index that a frame shows; 0: none.
func indexOf(a *apiv1.ServerFrame) uint64 {
	op := a.GetOperation()
	return max(
		op.GetClaim().GetIndex(), op.GetRelease().GetIndex(), op.GetCloseSession().GetIndex(),
		a.GetPut().GetIndex(), a.GetDelete().GetIndex(), a.GetLock().GetIndex(), a.GetUnlock().GetIndex(), a.GetTxn().GetIndex(),
		a.GetGetKey().GetIndex(), a.GetGetSession().GetIndex(),
		a.GetWatchKeys().GetProgressIndex(), a.GetWatchService().GetProgressIndex(), a.GetWatchTables().GetProgressIndex(),
	)
}

// waitLink returns the session's link, when it has one.
func (s *Session) waitLink(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		l, changed := s.link, s.changed
		s.mu.Unlock()
		if l != nil {
			select {
			case <-l.done:
			default:
				return l, nil
			}
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
