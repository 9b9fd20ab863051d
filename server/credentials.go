package server

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/credential"
	"github.com/incumbent-dev/incumbent/door/juju"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
)

// How credentials of the cluster are tended.
const (
	tendEvery       = time.Minute      // at least: wall clocks jump
	tendRetry       = time.Second      // what could not be done
	tendTimeout     = 10 * time.Second // of one command
	sessionsAtOnce  = 100              // closed together
	sessionsPerTurn = 10_000           // looked for before those are closed
)

// book is what the state says of credentials, for the guard and for passwords.
type book struct{ s *Server }

var _ auth.Book = book{}

func (b book) view() *credential.View { return credential.Of(b.s.engine.View()) }

// Token implements auth.Book.
func (b book) Token(sum [sha256.Size]byte) (auth.Principal, bool) {
	c := b.view().Token(sum[:])
	if c == nil {
		return auth.Principal{}, false
	}
	p, err := auth.ParsePrincipal(c.Principal)
	if err != nil { // of a kind that only newer members know
		return auth.Principal{}, false
	}
	p.Via, p.Proof = auth.Credential, auth.Proof{ID: string(sum[:]), Ends: int64(c.Ends)}
	return p, true
}

// Behind implements auth.Book.
func (b book) Behind() error { return b.s.ready() }

// Revoked implements auth.Book.
func (b book) Revoked(serial []byte) bool { return b.view().Certificate(serial) != nil }

// Passwords implements auth.Book.
func (b book) Passwords(scope, tag string) (list []auth.KeptPassword) {
	who := auth.Principal{Kind: auth.Agent, Name: tag}.String()
	for _, c := range b.view().Passwords(scope, who) {
		list = append(list, auth.KeptPassword{Secret: string(c.Secret), Grants: auth.Grant(c.Grants), Ends: int64(c.Ends)})
	}
	return list
}

// nativeCredentials is what the native door needs to keep credentials.
func (s *Server) nativeCredentials() native.Credentials {
	out := native.Credentials{Account: juju.ValidateAccount}
	if own := s.ownTLS; own != nil {
		out.Sign = func(request []byte, p auth.Principal, hosts []string, lifetime time.Duration) (cert, authority []byte, err error) {
			cert, authority, err = own.SignClient(request, ca.Client{Kind: p.Kind.String(), Name: p.Name, Hosts: hosts, Lifetime: lifetime})
			if incumbent.KindOf(err) == incumbent.NotFound {
				err = noKeyHere(s.cfg.Name, s.cluster.Signers())
			}
			return cert, authority, err
		}
	}
	return out
}

// noKeyHere refuses to sign, and says who can.
func noKeyHere(name string, signers []string) error {
	err := incumbent.Errorf(incumbent.NotFound, "%s does not have the key of the cluster's authority", name)
	if len(signers) == 0 {
		return err.WithHint("no member that runs has it: put it into tls/ca.key of this one while it is needed, or sign where it is kept: incumbent tls issue --data-dir")
	}
	return err.WithHint("ask one that has it with --server: " + strings.Join(signers, ", "))
}

// credentialsChanged takes note of a batch, on the apply goroutine: where something
// was taken back or has ended, those who came in by it are looked for, and where
// something has an end, the leader waits for that.
func (s *Server) credentialsChanged(changes []core.Change) {
	for i := range changes {
		if f := changes[i].Family; f != nil && f.Family == credential.Number {
			before, _ := f.Before.(*credential.Credential)
			after, _ := f.After.(*credential.Credential)
			s.events.credential(before, after, uint64(changes[i].Index))
			if after == nil || !after.Live() || after.Ends != 0 {
				s.tend()
			}
		}
	}
}

// credential notes that somebody is let in from now on, or no more.
func (t *timeline) credential(before, after *credential.Credential, index uint64) {
	switch {
	case after == nil:
	case after.Live():
		t.add(Event{What: "credential created", Subject: after.Principal, Detail: after.Method.String() + by(after.CreatedBy), Index: index})
	case before == nil || before.Live():
		what := "credential revoked"
		if after.Expired {
			what = "credential ended"
		}
		t.add(Event{What: what, Subject: after.Principal, Detail: after.Method.String() + by(after.EndedBy), Index: index})
	}
}

func by(whom string) string {
	if whom == "" {
		return ""
	}
	return " by " + whom
}

// tend has both goroutines look that credentials have: the one that cuts off, and the
// one that writes down. It never blocks.
func (s *Server) tend() {
	for _, look := range []chan struct{}{s.rechecking, s.tending} {
		select {
		case look <- struct{}{}:
		default:
		}
	}
}

// keepRechecking ends what was begun by credentials and certificates that are good no
// more, until ctx ends. It waits for no commit: who is revoked is cut off within a second,
// whatever the leader has to write down meanwhile.
func (s *Server) keepRechecking(ctx context.Context) {
	timer := time.NewTimer(tendEvery)
	defer timer.Stop()
	for {
		changed := false
		select {
		case <-s.rechecking:
			changed = true
		case <-s.horizon.Sooner():
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		if next := s.horizon.Next(); changed || !next.IsZero() && !now.Before(next) {
			s.recheck()
		}
		wait := tendEvery
		if next := s.horizon.Next(); !next.IsZero() {
			wait = min(wait, max(0, time.Until(next)))
		}
		timer.Reset(wait)
	}
}

// keepTending does what is the leader's to do about credentials, until ctx ends: it
// writes down that one has ended, closes the sessions that end with it, and forgets what
// nobody needs, one commit after the other.
func (s *Server) keepTending(ctx context.Context) {
	timer := time.NewTimer(tendEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.tending:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		s.tendCredentials(ctx, time.Now())
		timer.Reset(s.tendAgain(time.Now()))
	}
}

// tendAgain is how long there is nothing to write down.
func (s *Server) tendAgain(now time.Time) time.Duration {
	wait := tendEvery
	if !s.tendsCredentials() {
		return wait
	}
	s.book().Ending(func(c *credential.Credential) bool {
		if c.Live() {
			wait = min(wait, max(tendRetry, c.Ends.Time().Sub(now)))
		}
		return !c.Live()
	})
	s.book().Closing(func(*credential.Credential) bool {
		wait = min(wait, tendRetry)
		return false
	})
	return wait
}

// tendsCredentials reports whether this member is the one that writes down what time
// asks for: it leads.
func (s *Server) tendsCredentials() bool {
	return s.cluster.Leader() == s.cluster.ID() && s.ready() == nil
}

func (s *Server) book() *credential.View { return book{s}.view() }

// recheck ends connections and calls of those who would not be let in any more. It is
// the one way for files that were read again, and for the state.
func (s *Server) recheck() {
	s.horizon.Clear() // who stays is asked and counts again
	s.door.Recheck(s.guard.Knows())
	for _, o := range s.opened {
		o.serving.Recheck()
	}
}

// tendCredentials does what is the leader's to do.
func (s *Server) tendCredentials(ctx context.Context, now time.Time) {
	if !s.tendsCredentials() {
		return
	}
	for _, c := range dueCredentials(s.book(), credential.MomentOf(now)) {
		if err := s.executeCredential(ctx, c); err != nil {
			s.log.Info("credentials not tended", "cause", err)
			return
		}
	}
	var closing []*credential.Credential
	s.book().Closing(func(c *credential.Credential) bool {
		closing = append(closing, c)
		return true
	})
	for _, c := range closing {
		if err := s.closeSessionsOf(ctx, c); err != nil {
			s.log.Info("sessions of a revoked credential not closed", "principal", c.Principal, "cause", err)
			return
		}
	}
}

// dueCredentials are the commands that time asks for.
func dueCredentials(v *credential.View, now credential.Moment) (cmds []credential.Command) {
	const keep = credential.Moment(credential.KeepEnded / time.Millisecond)
	v.Ending(func(c *credential.Credential) bool {
		switch {
		case c.Ends > now:
			return false
		case c.Live():
			cmds = append(cmds, credential.Command{Verb: credential.End, ID: c.ID, Expired: true})
		case c.Ends+keep <= now && !c.Closing:
			cmds = append(cmds, credential.Command{Verb: credential.Forget, ID: c.ID})
		}
		return true
	})
	v.Ended(func(c *credential.Credential) bool {
		over := c.EndedAt+keep <= now
		if over {
			cmds = append(cmds, credential.Command{Verb: credential.Forget, ID: c.ID})
		}
		return over
	})
	return cmds
}

func (s *Server) executeCredential(ctx context.Context, c credential.Command) error {
	ctx, cancel := context.WithTimeout(ctx, tendTimeout)
	defer cancel()
	_, err := s.engine.Await(ctx, engine.Call{Meta: core.Meta{Origin: core.Origin{At: time.Now().UTC()}}, Reserve: true}, c)
	switch incumbent.KindOf(err) {
	case incumbent.NotFound, incumbent.Conflict: // somebody was faster
		return nil
	default:
		return err
	}
}

// closeSessionsOf closes the sessions that the principal of a credential opened before
// that ended, and writes down that this is done.
func (s *Server) closeSessionsOf(ctx context.Context, c *credential.Credential) error {
	var after incumbent.SessionID
	for {
		ids := sessionsOf(s.engine.View(), c, after)
		if len(ids) == 0 {
			err := s.executeCredential(ctx, credential.Command{Verb: credential.Settled, ID: c.ID})
			return err
		}
		if err := s.closeSessions(ctx, ids); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}

// sessionsOf are the next sessions of the principal behind an id.
func sessionsOf(v *core.View, c *credential.Credential, after incumbent.SessionID) (ids []incumbent.SessionID) {
	v.Sessions(after, func(s *core.Session) bool {
		if s.Origin.Principal == c.Principal && s.Opened <= c.Ended {
			ids = append(ids, s.ID)
		}
		return len(ids) < sessionsPerTurn
	})
	return ids
}

// closeSessions closes sessions, few at once. What is closed already is no error.
func (s *Server) closeSessions(ctx context.Context, ids []incumbent.SessionID) error {
	ctx, cancel := context.WithTimeout(ctx, tendTimeout+time.Duration(len(ids))*time.Millisecond)
	defer cancel()
	deadline, _ := ctx.Deadline()
	for len(ids) > 0 {
		n := min(len(ids), sessionsAtOnce)
		got := make(chan core.Result, n)
		for _, id := range ids[:n] {
			s.engine.Leases().CloseSession(lease.Call{Deadline: deadline, Origin: core.Origin{At: time.Now().UTC()}},
				core.CloseSessionCommand{ID: id, Reason: "the credential was revoked or has ended"}, func(r core.Result) { got <- r })
		}
		for range n {
			select {
			case r := <-got:
				if r.Err != nil && r.Err.Kind != incumbent.Expired && r.Err.Kind != incumbent.NotFound {
					return r.Err
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		ids = ids[n:]
	}
	return nil
}

// anyTokens reports whether the cluster keeps a bearer credential: then a client need
// not have a certificate.
func (s *Server) anyTokens() bool { return s.book().Tokens() }

// registerDenials shows how often somebody was not let in.
func (s *Server) registerDenials() {
	const help = "Logins and requests that were denied since what was brought is wrong, by door and reason."
	for _, d := range auth.Denials() {
		s.metrics.counter("incumbent_logins_denied_total", help, prometheus.Labels{"door": "native", "reason": d.String()},
			func() float64 { return float64(s.guard.Denied(d)) })
	}
	if s.juju == nil {
		return
	}
	for _, v := range []auth.Verdict{auth.Wrong, auth.Limited} {
		s.metrics.counter("incumbent_logins_denied_total", help, prometheus.Labels{"door": "juju", "reason": v.String()},
			func() float64 { return float64(s.juju.verifier.Counts(v)) })
	}
}
