package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// maxReleasesPerBeat bounds the frames of a beat: a member takes 1,024.
const maxReleasesPerBeat = 500

// DefaultSessionTTL is how long a session outlives its client.
const DefaultSessionTTL = 15 * time.Second

// Pauses between two attempts to reach a member: each attempt waits up to
// twice as long as the one before, spread out over the whole span.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// beatsPerTTL is how often a session beats: two beats may be lost.
const beatsPerTTL = 3

// SessionConfig says how a session lives. The zero value is usable.
type SessionConfig struct {
	TTL    time.Duration // 1 s to 24 h; DefaultSessionTTL
	Holder string        // for claims that name none; host and process id
	// Retrying is told why no member could be reached, before another attempt
	// follows: while opening and whenever the stream broke. It must not block.
	// nil: nobody is told.
	Retrying func(error)
}

// Session owns leases and keeps them alive over one stream, which it opens
// again, at another member if need be, whenever it breaks.
type Session struct {
	c      *Client
	id     incumbent.SessionID
	ttl    time.Duration
	holder string
	retry  func(error) // SessionConfig.Retrying, never nil
	clock  func() time.Duration
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	stop   context.Context // ends when the user closes it
	halt   context.CancelFunc
	ended  chan struct{} // closed when the goroutine has left

	mu      sync.Mutex    // protects the rest; never held across I/O
	link    *link         // nil while there is none
	member  int32         // where link leads, among the client's members
	changed chan struct{} // closed when link changes
	closing bool          // no lease begins any more
	leases  map[incumbent.Token]*Lease
	offers  map[incumbent.Name]chan incumbent.Token // claims under way
	back    map[incumbent.Token]incumbent.Name      // given back; the server has not said yet that it is released
	counter uint64
}

// Open opens a session and starts to keep it.
func (c *Client) Open(ctx context.Context, cfg SessionConfig) (*Session, error) {
	if cfg.TTL == 0 {
		cfg.TTL = DefaultSessionTTL
	}
	if err := incumbent.ValidateTTL(cfg.TTL); err != nil {
		return nil, err
	}
	if cfg.Holder == "" {
		cfg.Holder = processHolder()
	}
	if err := incumbent.ValidateHolder(cfg.Holder); err != nil {
		return nil, err
	}
	s := &Session{
		c: c, id: incumbent.NewSessionID(), ttl: cfg.TTL, holder: cfg.Holder, retry: cfg.Retrying, clock: c.clock,
		ended: make(chan struct{}), changed: make(chan struct{}),
		leases: make(map[incumbent.Token]*Lease), offers: make(map[incumbent.Name]chan incumbent.Token),
		back: make(map[incumbent.Token]incumbent.Name),
	}
	if s.retry == nil {
		s.retry = func(error) {}
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.stop, s.halt = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.halt()
		return nil, err
	}
	go s.run()
	return s, nil
}

func processHolder() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// ID identifies the session in every member.
func (s *Session) ID() incumbent.SessionID { return s.id }

// Context ends with the session; its cause says why.
func (s *Session) Context() context.Context { return s.ctx }

// open creates the session and attaches to it, trying until ctx ends. The id is
// ours, so that opening it twice is the same as once.
func (s *Session) open(ctx context.Context) error {
	for pause, patience := minPause, s.patience(0); ; pause, patience = min(2*pause, maxPause), s.patience(patience) {
		err := s.connect(ctx, true, patience)
		if err == nil {
			return nil
		}
		if !retryable(err) || ctx.Err() != nil {
			return err
		}
		s.retry(err)
		if err := sleep(ctx, jitter(pause, err)); err != nil {
			return err
		}
	}
}

// patience is how long the next attempt to connect may take, from what the last
// had. Where there is another member to try, the first are short; but members
// that are slow, not silent, are not given up forever.
func (s *Session) patience(last time.Duration) time.Duration {
	if len(s.c.members.urls) == 1 {
		return dialTimeout
	}
	return min(max(2*last, s.c.cfg.SilentTimeout), dialTimeout)
}

// connect dials a member, attaches the session there and takes over what the
// server says it holds.
func (s *Session) connect(ctx context.Context, create bool, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	i, _ := s.c.members.current()
	l, err := s.c.dial(ctx, s.event)
	if err != nil {
		s.c.members.leave(i)
		return err
	}
	if err := s.attach(ctx, l, create); err != nil {
		l.close()
		s.c.members.leave(i)
		return err
	}
	s.mu.Lock()
	s.member = i
	s.mu.Unlock()
	return nil
}

// leaveMember prefers another member: this one answers, but it cannot reach a
// leader, and perhaps is the only one that cannot.
func (s *Session) leaveMember() {
	s.mu.Lock()
	i := s.member
	s.mu.Unlock()
	s.c.members.leave(i)
}

func (s *Session) attach(ctx context.Context, l *link, create bool) error {
	if create {
		a, err := l.call(ctx, operation(&apiv1.Operation{Op: &apiv1.Operation_OpenSession{OpenSession: &apiv1.OpenSessionRequest{
			Id: s.id.String(), TtlMs: uint32(s.ttl.Milliseconds()),
		}}}))
		if err == nil {
			err = DetailError(a.GetOperation().GetError())
		}
		if err != nil {
			return err
		}
		s.c.saw(a.GetOperation().GetOpenSession().GetIndex())
	}
	s.mu.Lock()
	s.counter++
	counter := s.counter
	s.mu.Unlock()
	a, err := l.call(ctx, &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Attach{Attach: &apiv1.Attach{Session: s.id.String(), Counter: counter}}})
	if err != nil {
		return err
	}
	s.adopt(l, a.GetAttached())
	return nil
}

// adopt makes l the session's link. Offers that came while there was none are
// among the leases the server lists.
func (s *Session) adopt(l *link, a *apiv1.Attached) {
	s.c.saw(a.GetIndex())
	listed := make(map[incumbent.Token]bool)
	for _, held := range a.GetLeases() {
		listed[incumbent.Token(held.Token)] = true
		s.offered(nameOf(held.GetName()), incumbent.Token(held.Token))
	}
	s.giveBackUnknown(a.GetLeases(), incumbent.Name{})
	s.mu.Lock()
	s.link = l
	close(s.changed)
	s.changed = make(chan struct{})
	var lost []*Lease
	for token, lease := range s.leases {
		if !listed[token] && uint64(token) <= a.GetIndex() {
			lost = append(lost, lease)
		}
	}
	s.mu.Unlock()
	for _, lease := range lost {
		lease.end(incumbent.Errorf(incumbent.NotHolder, "%s is no longer held by this session", lease.name.Lease))
	}
}

// margin is how much of an acknowledged time counts here: less the drift.
func (s *Session) margin(heldMs uint32) time.Duration {
	return time.Duration(float64(heldMs) * (1 - s.c.cfg.Drift) * float64(time.Millisecond))
}

// event takes what the server says unasked.
func (s *Session) event(l *link, f *apiv1.ServerFrame) {
	switch e := f.Answer.(type) {
	case *apiv1.ServerFrame_Offer:
		s.offered(nameOf(e.Offer.GetLease().GetName()), incumbent.Token(e.Offer.GetLease().GetToken()))
	case *apiv1.ServerFrame_SessionLost:
		if e.SessionLost.Session == s.id.String() {
			s.finish(incumbent.Errorf(incumbent.Expired, "the session ended at the server: %s", e.SessionLost.Reason))
		}
	case *apiv1.ServerFrame_GoAway:
		l.close()
	}
}

// offered tells a claim that waits for name which token it was granted.
func (s *Session) offered(name incumbent.Name, token incumbent.Token) {
	s.mu.Lock()
	ch := s.offers[name]
	s.mu.Unlock()
	if ch == nil {
		return
	}
	select {
	case ch <- token:
	default: // the same offer, heard twice
	}
}

func (s *Session) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// run keeps the session until it ends.
func (s *Session) run() {
	defer close(s.ended)
	defer s.drop() // what a last attempt to connect brought
	interval := s.ttl / beatsPerTTL
	patience := s.patience(0)
	for pause := minPause; s.stop.Err() == nil && s.ctx.Err() == nil; patience = s.patience(patience) {
		if s.beat(interval) {
			pause, patience = minPause, 0
			continue
		}
		s.drop()
		if err := s.connect(s.stop, false, patience); err != nil {
			if gone(err) {
				s.finish(err)
				return
			}
			_ = sleep(s.stop, jitter(pause, err))
			pause = min(2*pause, maxPause)
		}
	}
}

// beat extends the session and what it holds, waits for the answers, and then
// until the next is due. False: the link is of no more use.
func (s *Session) beat(interval time.Duration) bool {
	l := s.current()
	if l == nil {
		return false
	}
	sent := s.clock()
	leases := s.held()
	frames := []*apiv1.ClientFrame{{Request: &apiv1.ClientFrame_Beat{Beat: &apiv1.Beat{}}}}
	if len(leases) > 0 {
		frames = append(frames, extendFrame(leases))
	}
	back := s.unsettled()
	for _, b := range back {
		frames = append(frames, operation(s.releaseOp(b.name, b.token)))
	}
	answers, err := l.post(frames...)
	if err != nil {
		return false
	}
	releases := len(frames) - len(back)
	silent := time.NewTimer(s.silence(interval))
	defer silent.Stop()
	for i, ch := range answers {
		select {
		case a := <-ch:
			switch {
			case i == 0 && cutOff(a.Error) && len(s.c.members.urls) > 1:
				s.leaveMember()
				return false
			case a.Error != nil: // the next beat asks again
			case i == 0:
				s.beaten(a.GetBeaten())
			case i >= releases:
				if a.GetOperation().GetError() == nil {
					s.settled(back[i-releases].token)
				}
			default:
				s.extended(sent, leases, a.GetTokensExtended())
			}
		case <-l.done:
			return false
		case <-silent.C:
			return false
		case <-s.stop.Done():
			return true
		}
	}
	select {
	case <-time.After(interval - (s.clock() - sent)):
	case <-l.done:
		return false
	case <-s.stop.Done():
	case <-s.ctx.Done():
	}
	return true
}

// cutOff reports whether a member says that it cannot confirm anything now.
func cutOff(e *apiv1.Error) bool {
	kind, ok := incumbent.ParseKind(e.GetKind())
	return e != nil && ok && (kind == incumbent.Unavailable || kind == incumbent.NotLeader)
}

// beaten hears which attached sessions are over, and which leases no beat keeps
// any longer.
func (s *Session) beaten(b *apiv1.Beaten) {
	for _, token := range b.GetRevoking() {
		s.mu.Lock()
		l := s.leases[incumbent.Token(token)]
		s.mu.Unlock()
		if l != nil {
			l.end(incumbent.Errorf(incumbent.NotHolder, "%s is being revoked", l.name.Lease))
		}
	}
	if slices.Contains(b.GetLost(), s.id.String()) {
		s.finish(incumbent.Errorf(incumbent.Expired, "the session ended at the server"))
	}
}

// holding is a lease's name with the token of one holding.
type holding struct {
	name  incumbent.Name
	token incumbent.Token
}

// unsettled are the holdings to release.
func (s *Session) unsettled() []holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]holding, 0, len(s.back))
	for token, name := range s.back {
		if len(out) == maxReleasesPerBeat {
			break // the rest with the next beats: a message has a limit of frames
		}
		out = append(out, holding{name, token})
	}
	return out
}

// silence is how long a member may leave a beat unanswered: where there is no
// other to go to, until the next beat is due.
func (s *Session) silence(interval time.Duration) time.Duration {
	if len(s.c.members.urls) == 1 {
		return interval
	}
	return min(max(s.c.cfg.SilentTimeout, time.Millisecond), interval)
}

func extendFrame(leases []*Lease) *apiv1.ClientFrame {
	tokens := make([]uint64, len(leases))
	for i, l := range leases {
		tokens[i] = uint64(l.token)
	}
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_ExtendTokens{ExtendTokens: &apiv1.ExtendTokens{Tokens: tokens}}}
}

// extended judges each lease by the server's answer.
func (s *Session) extended(sent time.Duration, leases []*Lease, a *apiv1.TokensExtended) {
	over, unsure := tokenSet(a.GetNotHeld()), tokenSet(a.GetUnavailable())
	for i, l := range leases {
		switch {
		case over[l.token]:
			l.end(incumbent.Errorf(incumbent.NotHolder, "%s is held by another or free", l.name.Lease))
		case unsure[l.token]: // the next beat asks again; the deadline stands
		default:
			held := a.GetHeldMs()
			if held == 0 && i < len(a.GetHeldEachMs()) {
				held = a.GetHeldEachMs()[i]
			}
			l.extend(sent + s.margin(held))
		}
	}
}

func tokenSet(tokens []uint64) map[incumbent.Token]bool {
	set := make(map[incumbent.Token]bool, len(tokens))
	for _, t := range tokens {
		set[incumbent.Token(t)] = true
	}
	return set
}

func (s *Session) held() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Lease, 0, len(s.leases))
	for _, l := range s.leases {
		out = append(out, l)
	}
	return out
}

func (s *Session) forget(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.token] == l {
		delete(s.leases, l.token)
	}
}

// drop lets the link go, if there is one.
func (s *Session) drop() {
	s.mu.Lock()
	l := s.link
	s.link = nil
	s.mu.Unlock()
	if l != nil {
		l.close()
	}
}

// shut sees to it that no claim under way makes a lease any more.
func (s *Session) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

// finish ends the session: nothing it held is held any more.
func (s *Session) finish(cause error) {
	s.shut()
	for _, l := range s.held() {
		l.end(cause)
	}
	s.cancel(cause)
	s.halt()
	s.drop()
}

// Close ends the session at the server, which frees what it holds and hands it
// to whoever waits, and then here. If the server cannot be told before ctx ends,
// or for a whole ttl, the session ends there when its ttl passes, and Close
// says so. Closing what is over is no error.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.ttl)
	defer cancel()
	s.shut()
	for _, l := range s.held() {
		l.end(incumbent.Errorf(incumbent.NotHolder, "the session was closed by its client"))
	}
	_, err := s.operate(ctx, func() *apiv1.Operation {
		return &apiv1.Operation{Op: &apiv1.Operation_CloseSession{CloseSession: &apiv1.CloseSessionRequest{Id: s.id.String(), Reason: "closed by its client"}}}
	})
	s.finish(incumbent.Errorf(incumbent.Expired, "the session was closed by its client"))
	<-s.ended
	if gone(err) {
		return nil
	}
	return err
}

// gone reports whether the session is certainly over.
func gone(err error) bool {
	k := incumbent.KindOf(err)
	return k == incumbent.Expired || k == incumbent.NotFound
}

// retryable reports whether another attempt may fare better.
func retryable(err error) bool {
	k := incumbent.KindOf(err)
	return k.Transient() || k == incumbent.Unknown || k == incumbent.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// jitter spreads a pause over (0, pause], and waits at least as long as the
// server asked for.
func jitter(pause time.Duration, err error) time.Duration {
	d := time.Duration(rand.Int64N(int64(pause)) + 1)
	var typed *incumbent.Error
	if errors.As(err, &typed) && typed.RetryAfter > d {
		return typed.RetryAfter
	}
	return d
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
