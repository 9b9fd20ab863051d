package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// beatRefuser is a member with streams that refuses the first beats of a session.
type beatRefuser struct {
	kind    incumbent.Kind
	refuses int
	kept    chan struct{}                               // closed with the first beat that is not refused
	more    func(*apiv1.ClientFrame) *apiv1.ServerFrame // answers what else there is; may be nil
}

func (b *beatRefuser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	serveFrames(conn, b.answer)
}

// serveFrames answers what comes over a stream until that ends. nil: not at all.
func serveFrames(conn net.Conn, answer func(*apiv1.ClientFrame) *apiv1.ServerFrame) {
	defer conn.Close()
	for {
		data, err := wsutil.ReadClientBinary(conn)
		var in apiv1.ClientMessage
		if err != nil || proto.Unmarshal(data, &in) != nil {
			return
		}
		out := &apiv1.ServerMessage{}
		for _, f := range in.Frames {
			if a := answer(f); a != nil {
				out.Frames = append(out.Frames, a)
			}
		}
		if len(out.Frames) == 0 {
			continue
		}
		if data, err = proto.Marshal(out); err != nil || wsutil.WriteServerBinary(conn, data) != nil {
			return
		}
	}
}

func (b *beatRefuser) answer(f *apiv1.ClientFrame) *apiv1.ServerFrame {
	if b.more != nil {
		if out := b.more(f); out != nil {
			return out
		}
	}
	out := &apiv1.ServerFrame{Id: f.Id}
	switch f.Request.(type) {
	case *apiv1.ClientFrame_Operation:
		out.Answer = &apiv1.ServerFrame_Operation{Operation: &apiv1.OperationResult{Result: &apiv1.OperationResult_OpenSession{OpenSession: &apiv1.OpenSessionResponse{}}}}
	case *apiv1.ClientFrame_Attach:
		out.Answer = &apiv1.ServerFrame_Attached{Attached: &apiv1.Attached{}}
	case *apiv1.ClientFrame_Beat:
		if b.refuses--; b.refuses >= 0 {
			out.Error = &apiv1.Error{Kind: b.kind.String(), RetryAfterMs: 1}
			break
		}
		if b.refuses == -1 {
			close(b.kept)
		}
		out.Answer = &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{}}
	}
	return out
}

// A beat that was refused comes again when the member asked for, not when the
// next one is due: here in twenty minutes.
func TestARefusedBeatComesAgainSoon(t *testing.T) {
	for _, kind := range []incumbent.Kind{incumbent.Overloaded, incumbent.Unavailable, incumbent.NotLeader} {
		b := &beatRefuser{kind: kind, refuses: 3, kept: make(chan struct{})}
		web := httptest.NewServer(b)
		t.Cleanup(web.Close)
		openSession(t, clientOf(t, web.URL), SessionConfig{TTL: time.Hour})
		select {
		case <-b.kept:
		case <-testContext(t).Done():
			t.Fatalf("%v: no beat followed", kind)
		}
	}
}

// A session that was resumed beats by the ttl that it has at the server, not by a longer one
// that its client has for it now, and says so.
func TestAResumedSessionBeatsByItsOwnTTL(t *testing.T) {
	const ttl = 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		last, longest := time.Now(), time.Duration(0)
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			if f.GetStart() != nil {
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{HeldMs: uint32(ttl.Milliseconds())}}}}
			}
			last, longest = time.Now(), max(longest, time.Since(last))
			return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{}}}
		})
		if s.TTL() <= ttl {
			t.Fatalf("before it begins its ttl is %v", s.TTL())
		}
		if err := s.attach(t.Context(), l, true, time.Second); err != nil {
			t.Fatal(err)
		}
		go s.run()
		time.Sleep(10 * ttl)
		synctest.Wait() // whoever answers has noted it
		if longest != ttl/beatsPerTTL || s.TTL() != ttl {
			t.Errorf("up to %v between two beats, its ttl is %v", longest, s.TTL())
		}
	})
	server := startServer(t, serverConfig(t))
	c := clientOf(t, server.URL())
	a := openSession(t, c, SessionConfig{TTL: time.Hour})
	a.Detach()
	if b := openSession(t, c, SessionConfig{TTL: 2 * time.Hour, ID: a.ID()}); b.TTL() != time.Hour {
		t.Errorf("resumed with a ttl of %v", b.TTL())
	}
}

func TestRefusedPause(t *testing.T) {
	for range 100 {
		if got := refusedPause(&apiv1.Error{}); got < minPause || got > 2*minPause {
			t.Fatalf("without a hint after %v", got)
		}
	}
	least, most := time.Hour, time.Duration(0)
	for range 100 {
		got := refusedPause(&apiv1.Error{RetryAfterMs: 1500})
		least, most = min(least, got), max(most, got)
	}
	if least < 1500*time.Millisecond || most > 2250*time.Millisecond || most-least < 100*time.Millisecond {
		t.Errorf("with a hint of 1500 ms after %v to %v", least, most)
	}
}

// A beat that may fare better is repeated soon; one that is denied is not, however often it is.
func TestG41_ADeniedBeatIsNotHurried(t *testing.T) {
	const interval = 10 * time.Second
	for kind, soon := range map[incumbent.Kind]bool{incumbent.Overloaded: true, incumbent.Unavailable: true, incumbent.Denied: false, incumbent.Invalid: false} {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			m.answerAll(func(*apiv1.ClientFrame) *apiv1.ServerFrame {
				return &apiv1.ServerFrame{Error: &apiv1.Error{Kind: kind.String()}}
			})
			began := s.clock()
			next, kept := s.beat(interval, time.Second)
			if !kept {
				t.Errorf("%s: the link is given up", kind)
			}
			if after := next - began; soon != (after < time.Second) || after > interval {
				t.Errorf("%s: the next beat is due after %v", kind, after)
			}
			s.drop()
		})
	}
}

// A grant whose first extension is refused comes again when the member asks for it, also once
// the session has not been confirmed for so long that no extension counts.
func TestG41_AGrantIsConfirmedWhenTheMemberAsks(t *testing.T) {
	const every = 20 * time.Second
	for _, since := range []time.Duration{0, maxApart + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			s.isAttached(s.clock())
			time.Sleep(since)
			sent := 0
			m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
				switch {
				case f.GetBeat() != nil:
					sent++
					return refused(every)
				case f.GetExtendTokens() != nil:
					return refused(every)
				}
				return (&beats{}).answer(f)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*every)
			defer cancel()
			if l, err := s.Claim(ctx, named("db"), ClaimOptions{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("claimed %v, %v", l, err)
			}
			synctest.Wait()
			if sent < 3 || sent > 5 {
				t.Errorf("%v after it was confirmed: sent %d times in %v", since, sent, 5*every)
			}
			s.drop()
		})
	}
}

// TestG43_ABeatHasThePatienceOfConnecting: who connects in vain while all others do as well is
// patient with the answer to its first beat, too; from a good one on it leaves a member
// that is silent as soon as ever.
func TestG43_ABeatHasThePatienceOfConnecting(t *testing.T) {
	const interval = 10 * time.Second
	for _, c := range []struct {
		patience, answers time.Duration
		several           bool
		left              time.Duration // 0: it is not
	}{
		{DefaultSilentTimeout, DefaultSilentTimeout / 2, true, 0},
		{DefaultSilentTimeout, 3 * time.Second, true, DefaultSilentTimeout},
		{0, 3 * time.Second, true, DefaultSilentTimeout},
		{4 * time.Second, 3 * time.Second, true, 0},
		{4 * time.Second, 5 * time.Second, true, 4 * time.Second},
		{maxPatience, 15 * time.Second, true, interval}, // another member is tried while there is time
		{DefaultSilentTimeout, 3 * time.Second, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			if c.several {
				urls := append(s.c.members.urls(), s.c.members.urls()...)
				s.c.members.list.Store(&urls)
			}
			m.answerAll(func(*apiv1.ClientFrame) *apiv1.ServerFrame {
				if c.left > 0 {
					return nil // it would come too late
				}
				time.Sleep(c.answers)
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{}}}
			})
			began := time.Now()
			_, kept := s.beat(interval, c.patience)
			if took := time.Since(began); kept != (c.left == 0) || !kept && took != c.left {
				t.Errorf("%+v: kept %v after %v", c, kept, took)
			}
			s.drop()
		})
	}
}

// standingStill is a link of a session to a member that takes nothing, of which there are two.
func (s *Session) standingStill(t *testing.T) (l *link, member net.Conn) {
	t.Helper()
	urls := append(s.c.members.urls(), s.c.members.urls()...)
	s.c.members.list.Store(&urls)
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	return newLink(&Stream{conn: near, member: "member"}, bufio.NewReader(near), s.event), far
}

// A member that takes nothing is as silent as one that does not answer, and is left as soon: not
// when somebody else has waited in vain for it to take what is large.
func TestWhoTakesNothingIsLeft(t *testing.T) {
	c := newClient(t, Config{Servers: []string{deadServer}, SilentTimeout: 10 * time.Millisecond})
	c.saw(1)
	s := c.newSession(SessionConfig{TTL: time.Hour})
	l, member := s.standingStill(t)
	s.adopt(l, &apiv1.Attached{})
	failed := make(chan error, 1)
	go func() {
		_, err := s.KV("").Put(testContext(t), "x", make([]byte, 100<<10))
		failed <- err
	}()
	if _, err := member.Read(make([]byte, 1)); err != nil { // it is being sent
		t.Fatal(err)
	}
	if _, kept := s.beat(time.Minute, 0); kept {
		t.Error("the beat was sent")
	}
	if i, _ := c.members.current(); i != 1 {
		t.Error("the next attempt goes to the member that takes nothing")
	}
	s.finish(errTaken())
	if err := <-failed; incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("what it may have taken is said to be %v", err)
	}
}

// Nor does a beat or a session that begins wait for longer.
func TestWhoTakesNothingIsWaitedForAsWhoIsSilent(t *testing.T) {
	for name, send := range map[string]func(s *Session, l *link) bool{
		"a beat": func(s *Session, l *link) bool {
			s.adopt(l, &apiv1.Attached{})
			_, kept := s.beat(time.Minute, DefaultSilentTimeout)
			return kept
		},
		"a start": func(s *Session, l *link) bool { return s.attach(s.ctx, l, false, DefaultSilentTimeout) == nil },
		"a page": func(s *Session, l *link) bool {
			return s.complete(s.ctx, l, &apiv1.Attached{Next: apiName(named("db"))}, DefaultSilentTimeout) == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l, _ := unbegunSession(t)
				l.close()
				l, _ = s.standingStill(t)
				began := time.Now()
				if kept := send(s, l); kept || time.Since(began) != DefaultSilentTimeout {
					t.Errorf("kept %v after %v", kept, time.Since(began))
				}
				l.close()
			})
		})
	}
}
