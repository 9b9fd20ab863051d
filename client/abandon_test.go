package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// scripted is the other end of a session's link: the test answers.
type scripted struct {
	t      *testing.T
	conn   net.Conn
	frames chan *apiv1.ClientFrame

	messages, largest atomic.Int64 // that came, and bytes
}

// scriptedSession is a session with a link and no beats, for a bubble of synctest.
func scriptedSession(t *testing.T) (*Session, *scripted) {
	t.Helper()
	began := time.Now()
	c := clientOf(t, "http://member")
	c.clock = func() time.Duration { return time.Since(began) }
	c.saw(1)
	s := c.newSession(SessionConfig{TTL: time.Hour, Holder: "a"})
	t.Cleanup(func() { s.finish(errors.New("the test is over")); synctest.Wait() })
	return s, s.scriptedLink(t)
}

// scriptedLink gives a session another link.
func (s *Session) scriptedLink(t *testing.T) *scripted {
	l, m := s.scriptedMember(t)
	s.adopt(l, &apiv1.Attached{})
	return m
}

// scriptedMember is a link at which the session has not begun.
func (s *Session) scriptedMember(t *testing.T) (*link, *scripted) {
	stream, r, m := scriptedStream(t)
	return newLink(stream, r, s.event), m
}

func scriptedStream(t *testing.T) (*Stream, *bufio.Reader, *scripted) {
	near, far := net.Pipe()
	m := &scripted{t: t, conn: far, frames: make(chan *apiv1.ClientFrame, 1000)}
	go m.read()
	return &Stream{conn: near, member: "member"}, bufio.NewReader(near), m
}

func (m *scripted) read() {
	for {
		h, err := ws.ReadHeader(m.conn)
		if err != nil {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(m.conn, payload); err != nil {
			return
		}
		ws.Cipher(payload, h.Mask, 0)
		m.messages.Add(1)
		m.largest.Store(max(m.largest.Load(), h.Length))
		var msg apiv1.ClientMessage
		if err := proto.Unmarshal(payload, &msg); err != nil {
			m.t.Error(err)
			return
		}
		for _, f := range msg.Frames {
			m.frames <- f
		}
	}
}

// next waits for a frame. In the bubble's time a session that sends none fails at
// once.
func (m *scripted) next() *apiv1.ClientFrame {
	m.t.Helper()
	select {
	case f := <-m.frames:
		return f
	case <-time.After(2 * maxLeaveTimeout):
		m.t.Fatal("nothing was sent")
		return nil
	}
}

// nothing fails the test if a frame was sent.
func (m *scripted) nothing() {
	m.t.Helper()
	synctest.Wait()
	if n := len(m.frames); n != 0 {
		m.t.Fatalf("%d frames were sent: %v", n, <-m.frames)
	}
}

func (m *scripted) answer(to *apiv1.ClientFrame, a *apiv1.ServerFrame) {
	m.t.Helper()
	a.Id = to.Id
	payload, err := proto.Marshal(&apiv1.ServerMessage{Frames: []*apiv1.ServerFrame{a}})
	if err == nil {
		err = ws.WriteFrame(m.conn, ws.NewBinaryFrame(payload))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func resultFrame(r *apiv1.OperationResult) *apiv1.ServerFrame {
	return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Operation{Operation: r}}
}

func left() *apiv1.ServerFrame {
	return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_LeaveQueue{LeaveQueue: &apiv1.LeaveQueueResponse{}}})
}

// claimed is the outcome of a claim that runs beside the test.
type claimed struct {
	err error
	at  time.Time
}

func (s *Session) claimBeside(ctx context.Context, name string) <-chan claimed {
	out := make(chan claimed, 1)
	go func() {
		_, err := s.Claim(ctx, named(name), ClaimOptions{})
		out <- claimed{err, time.Now()}
	}()
	return out
}

// abandoned has a claim sent, which is never answered, and its caller go.
func (m *scripted) abandoned(s *Session, name string) (key []byte) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	done := s.claimBeside(ctx, name)
	if f := m.next(); f.GetOperation().GetClaim() == nil {
		m.t.Fatalf("not a claim: %v", f)
	}
	gone := time.Now()
	cancel()
	if c := <-done; !errors.Is(c.err, context.Canceled) || c.at.Sub(gone) != leaveTimeout {
		m.t.Fatalf("the claim ended after %v with %v", c.at.Sub(gone), c.err)
	}
	f := m.next()
	if f.GetOperation().GetLeaveQueue() == nil {
		m.t.Fatalf("it did not leave: %v", f)
	}
	return f.GetOperation().GetLeaveQueue().GetIdempotency().GetKey()
}

// A server that is slow to answer on a link that stays up learns of an abandoned
// claim all the same, and the next claim on the name waits for that.
func TestAbandonedClaimIsGivenBackOnTheSameLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		key := m.abandoned(s, "db")
		next := s.claimBeside(t.Context(), "db")

		again := m.next()
		if again.GetOperation().GetLeaveQueue().GetName().GetName() != "db" {
			t.Fatalf("it did not leave again: %v", again)
		}
		// Else the first, where a member that stood still executes it late, would take the
		// place of the next claim.
		if k := again.GetOperation().GetLeaveQueue().GetIdempotency().GetKey(); len(key) == 0 || !bytes.Equal(k, key) {
			t.Fatalf("it leaves under the key %x, and again under %x", key, k)
		}
		m.answer(again, &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Unavailable.String()}})
		m.answer(m.next(), left())
		lookup := m.next()
		if lookup.GetGetSession() == nil {
			t.Fatalf("it did not look for a grant: %v", lookup)
		}
		m.nothing() // of the next claim
		m.answer(lookup, &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{
			Leases: []*apiv1.Lease{{Name: apiName(named("db")), Token: 5, Holder: "a"}},
		}}})
		back := m.next()
		if back.GetOperation().GetRelease().GetToken() != 5 || !s.givenBack(5) {
			t.Fatalf("given back %v, then sent %v", s.givenBack(5), back)
		}
		m.answer(back, resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Release{Release: &apiv1.ReleaseResponse{}}}))
		claim := m.next()
		if claim.GetOperation().GetClaim() == nil || s.givenBack(5) {
			t.Fatalf("given back %v, then sent %v", s.givenBack(5), claim)
		}
		m.answer(claim, resultFrame(&apiv1.OperationResult{Error: &apiv1.Error{Kind: incumbent.Held.String()}}))
		if c := <-next; incumbent.KindOf(c.err) != incumbent.Held {
			t.Errorf("the next claim: %v, want Held", c.err)
		}
		m.nothing()
	})
}

// What a claim was granted, and may not be extended, is given back: the session would keep it
// for nobody. What is held already stays held.
func TestWhatMayNotBeExtendedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		var released []uint64
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			if f.GetExtendTokens() != nil {
				return &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Denied.String()}}
			}
			if r := f.GetOperation().GetRelease(); r != nil {
				released = append(released, r.Token)
			}
			return (&beats{}).answer(f)
		})
		if l, err := s.Claim(t.Context(), named("db"), ClaimOptions{}); incumbent.KindOf(err) != incumbent.Denied {
			t.Errorf("claimed: %v, %v", l, err)
		}
		if _, ok := s.beat(10*time.Second, time.Second); !ok || !slices.Equal(released, []uint64{200}) || s.givenBack(200) {
			t.Errorf("released %v", released)
		}
		held := s.take(named("db"), 200, s.clock()+time.Minute)
		if l, err := s.Claim(t.Context(), named("db"), ClaimOptions{}); incumbent.KindOf(err) != incumbent.Denied || !held.Held() || s.givenBack(200) {
			t.Errorf("claimed again: %v, %v, held %v", l, err, held.Held())
		}
		s.drop()
	})
}

// A server that never answers is asked now and then for as long as the session
// lives, and no longer.
func TestAbandonedClaimOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		m.abandoned(s, "db")
		time.Sleep(time.Hour)
		synctest.Wait()
		asked := len(m.frames)
		if least, most := int(time.Hour/(maxLeaveTimeout+maxPause)), int(time.Hour/maxLeaveTimeout)+10; asked < least || asked > most {
			t.Errorf("asked %d times in an hour, want %d to %d", asked, least, most)
		}
		l := s.current()
		l.mu.Lock()
		pending := len(l.pending)
		l.mu.Unlock()
		if pending > 1 {
			t.Errorf("%d answers are still waited for", pending)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if c := <-s.claimBeside(ctx, "db"); !errors.Is(c.err, context.DeadlineExceeded) {
			t.Errorf("a claim that waits for it: %v", c.err)
		}
		next := s.claimBeside(t.Context(), "db")
		synctest.Wait()
		s.finish(incumbent.Errorf(incumbent.Expired, "the session ended at the server"))
		if c := <-next; incumbent.KindOf(c.err) != incumbent.Expired {
			t.Errorf("a claim when the session ends: %v, want Expired", c.err)
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.leaving) != 0 {
			t.Error("it goes on after the end of the session")
		}
	})
}
