package client

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// DefaultSessionTTL is how long a session outlives its client.
const DefaultSessionTTL = 15 * time.Second

// SessionConfig says how a session lives. The zero value is usable.
type SessionConfig struct {
	TTL    time.Duration // 1 s to 24 h; DefaultSessionTTL. Of a session that is opened: see [Session.TTL]
	Holder string        // for claims that name none; host and process id, or with a credential its principal
	// Retrying is told why no member could be reached, or why it did not let the session
	// begin, before another attempt follows: while opening and whenever the stream broke.
	// It must not block, nor close or detach the session, which wait for it. nil: nobody is told.
	Retrying func(error)
	// Attached is told each time that the session has begun, or begun again, at a
	// member, and whether it was opened by that. It must not block, nor close or detach the
	// session. nil: nobody is told.
	Attached func(member string, opened bool)
	// ID is that of a session of a former run, which is resumed if it is still open, with
	// the ttl that it has, and opened under the same id if not. A run that still has it
	// loses it: see [Taken]. What it holds is claimed by name: see [Session.Claim]. What has
	// not been claimed once the ttl and half a minute have passed is given back. The zero value:
	// a new one.
	ID incumbent.SessionID
	// Alone says that no former run with this ID lives any more: each has ended or called
	// [Session.Detach], as a lock on the file that has the ID ensures. Then what they held
	// can be claimed at once. If one does live, both may believe that they hold it.
	Alone bool
	// Presence is what the session is said to be alive as.
	Presence Presence
	// Follow are followed from the beginning, over the session's stream: see
	// [Session.Follow].
	Follow []Following
}

// Session owns leases and keeps them alive over one stream, which it opens
// again, at another member if need be, whenever it breaks.
type Session struct {
	c      *Client
	id     incumbent.SessionID
	ttl    time.Duration // SessionConfig.TTL
	holder string
	retry  func(error)                      // SessionConfig.Retrying, never nil
	began  func(member string, opened bool) // SessionConfig.Attached, never nil
	clock  func() time.Duration
	spread *spread         // of the session's goroutine; nil: it stays where it is
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	stop   context.Context // ends when the user closes it
	halt   context.CancelFunc
	ended  chan struct{} // closed when the goroutine has left

	alone bool // SessionConfig.Alone

	refused time.Duration // when the first refusal came since the session began last; 0: none did. Of the goroutine that connects

	mu      sync.Mutex    // protects the rest; never held across I/O
	link    *link         // nil while there is none
	old     *link         // that was given up last
	links   []*link       // all that were dialed, but for those that were over when another was
	member  int32         // where link leads, among the client's members
	changed chan struct{} // closed when link changes
	closing bool          // no lease begins any more
	has     time.Duration // the ttl that it has at the server; 0: not known, or none
	present Presence
	leases  map[incumbent.Token]*Lease
	offers  map[incumbent.Name]*expected       // claims under way
	leaving map[incumbent.Name]*undoing        // claims being undone after their callers have gone
	back    map[incumbent.Token]incumbent.Name // given back; the server has not said yet that it is released

	former     map[incumbent.Name]*former // what other runs held, and this one has not claimed
	inherited  map[incumbent.Name]*former // what was claimed of that
	formersEnd time.Duration              // on clock: no other run believes any more that it holds what is in former

	counter uint64
	follows []*followed

	attached time.Duration // on clock: when that was sent, a start or a beat, whose answer showed last that this run has it

	announcing atomic.Pointer[apiv1.ClientFrame] // the newest that says who is present

	budget budget // of what is repeated
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
		cfg.Holder = c.DefaultHolder()
	} else if err := incumbent.ValidateHolder(cfg.Holder); err != nil {
		return nil, err
	}
	if err := cfg.Presence.validate(); err != nil {
		return nil, err
	}
	s := c.newSession(cfg)
	if err := s.open(ctx); err != nil {
		s.finish(err)
		return nil, err
	}
	go s.run()
	return s, nil
}

// newSession makes a session of which nobody knows yet. cfg is complete.
func (c *Client) newSession(cfg SessionConfig) *Session {
	s := &Session{
		c: c, id: cfg.ID, present: cfg.Presence, ttl: cfg.TTL, holder: cfg.Holder, retry: cfg.Retrying, clock: c.clock,
		ended: make(chan struct{}), changed: make(chan struct{}),
		leases: make(map[incumbent.Token]*Lease), offers: make(map[incumbent.Name]*expected),
		leaving: make(map[incumbent.Name]*undoing), back: make(map[incumbent.Token]incumbent.Name),
		former: make(map[incumbent.Name]*former), inherited: make(map[incumbent.Name]*former),
		alone: cfg.Alone,
	}
	if s.retry == nil {
		s.retry = func(error) {}
	}
	if s.began = cfg.Attached; s.began == nil {
		s.began = func(string, bool) {}
	}
	if s.id.IsZero() {
		s.id = incumbent.NewSessionID()
	} else {
		// The highest counter wins, and that of a run before may not be known to be over.
		// The wall clock says which of both is later, and decides nothing else: if it was
		// set back, see outbid.
		s.counter = uint64(time.Now().UnixMicro())
	}
	for _, f := range cfg.Follow {
		s.follows = append(s.follows, s.followedOf(f))
	}
	s.spread = c.newSpread()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.stop, s.halt = context.WithCancel(context.Background())
	return s
}

// DefaultHolder is for whom to claim where nobody is named: this process, by host
// and process id; or "", which the server takes for the principal, if the client has
// a credential or a certificate. An agent may claim for nobody else.
func (c *Client) DefaultHolder() string {
	if c.cfg.Credential != "" || len(c.tls.Certificates) > 0 || c.tls.GetClientCertificate != nil {
		return ""
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// ID identifies the session in every member.
func (s *Session) ID() incumbent.SessionID { return s.id }

// TTL is how long the session outlives its client at the server. A session that was
// resumed (SessionConfig.ID) has the ttl that it was opened with, whatever that of its
// configuration now.
func (s *Session) TTL() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.has, s.ttl)
}

// Context ends with the session; its cause, of kind Expired where the session is not this
// run's any more, says why. [Taken] of it: another run has the session. While no member can
// be reached it does not end, and the session goes on if it is open at the server when one
// can. Where what refuses it is not over by itself, as Denied for a credential that was revoked,
// it ends once the ttl has passed, with the refusal as what the cause wraps.
func (s *Session) Context() context.Context { return s.ctx }

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

// shut sees to it that no claim under way makes a lease any more.
func (s *Session) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

// isClosing reports whether the session is about to end: it is not said to be alive any more.
func (s *Session) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
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

// awaitEnd waits until nothing is done for the session any more, which is finished: by its
// goroutine, nor by those that read its streams and tell what it follows.
func (s *Session) awaitEnd() {
	<-s.ended
	s.mu.Lock()
	links := s.links
	s.mu.Unlock()
	for _, l := range links {
		<-l.done
	}
}

// Detach ends what this process does for the session, which stays open at the server
// until its ttl has passed: another run may go on with it (SessionConfig.ID) and finds
// it holding what it held, which is that run's at once with SessionConfig.Alone. Here nothing
// is held any more. Once it has returned neither Retrying nor Attached nor the Notify of a cache
// is called for the session: none of them may call Detach or Close.
func (s *Session) Detach() {
	s.finish(incumbent.Errorf(incumbent.Expired, "the session was left to another run of its client"))
	s.awaitEnd()
}

// Close ends the session at the server, which frees what it holds and hands it
// to whoever waits, and then here. If the server cannot be told before ctx ends,
// or for a whole ttl, the session ends there when its ttl passes, and Close
// says so. Closing what is over is no error. A session that was resumed, and has what a
// former run may believe that it holds, is closed once such a run does so no longer (see
// [Session.Claim]): Close waits for that. Once it has returned nothing is called for the session
// any more, as behind [Session.Detach].
func (s *Session) Close(ctx context.Context) error {
	left := s.formersLeft()
	ctx, cancel := context.WithTimeout(ctx, s.TTL()+left)
	defer cancel()
	s.shut()
	held := s.held()
	for _, l := range held {
		l.end(incumbent.Errorf(incumbent.NotHolder, "the session was closed by its client"))
	}
	s.sayLeft(ctx)
	if left > 0 {
		s.closeBehindFormers(ctx, held)
	}
	_, err := s.operate(ctx, func() *apiv1.Operation {
		return &apiv1.Operation{Op: &apiv1.Operation_CloseSession{CloseSession: &apiv1.CloseSessionRequest{Id: s.id.String(), Reason: "closed by its client"}}}
	})
	s.finish(incumbent.Errorf(incumbent.Expired, "the session was closed by its client"))
	s.awaitEnd()
	if gone(err) {
		return nil
	}
	return err
}
