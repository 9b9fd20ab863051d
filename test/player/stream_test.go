package player

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// stream is one WebSocket of the native door.
type stream struct {
	*play
	m    *member
	life int
	conn net.Conn

	mu      sync.Mutex // guards the rest; held for a change
	last    uint64     // frame id
	waiting map[uint64]*asked
	watches map[uint64]*asked // and their answers so far
	over    bool
}

// asked is a frame under way.
type asked struct {
	c     *call
	frame *pb.ClientFrame
	want  expectation
	run   watched
	then  []*asked // what hangs on a start
	hangs bool     // on a start: refused with it
}

func (p *play) openStream(m *member) *stream {
	d := ws.Dialer{Timeout: patience, TLSConfig: m.c.tls.Clone()}
	life := m.life()
	conn, buffered, _, err := d.Dial(context.Background(), "ws"+strings.TrimPrefix(m.URL, "http")+"/v1/stream")
	if err != nil {
		return nil // killed, or refusing
	}
	if buffered != nil {
		ws.PutReader(buffered) // nothing comes before anything was asked
	}
	return &stream{play: p, m: m, life: life, conn: conn, waiting: map[uint64]*asked{}, watches: map[uint64]*asked{}}
}

// send sends frames in one message.
func (s *stream) send(list []*asked) bool {
	m := &pb.ClientMessage{}
	s.mu.Lock()
	for _, a := range list {
		s.last++
		a.frame.Id = s.last
		s.waiting[a.frame.Id] = a
		if a.frame.GetWatch() != nil {
			s.watches[a.frame.Id] = a
			delete(s.waiting, a.frame.Id)
		}
		for _, then := range a.then {
			s.last++
			then.frame.Id = s.last
			s.waiting[then.frame.Id] = then
		}
		m.Frames = append(m.Frames, a.frame)
	}
	s.mu.Unlock()
	b, err := proto.Marshal(m)
	if err != nil {
		s.fail("%v", err)
		return false
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(patience))
	return wsutil.WriteClientBinary(s.conn, b) == nil
}

// read takes answers until the connection ends.
func (s *stream) read() {
	for {
		b, op, err := wsutil.ReadServerData(s.conn)
		if err != nil {
			break
		}
		m := &pb.ServerMessage{}
		if err := proto.Unmarshal(b, m); err != nil || op != ws.OpBinary {
			s.fail("%s sends a message that is none: %v", s.m.Name, err)
			break
		}
		for _, f := range m.Frames {
			s.answer(f)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, a := range s.watches {
		s.endWatch(a)
	}
}

// late fails the run if a frame has been without an answer for too long.
func (s *stream) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.waiting {
		if time.Since(a.c.sent) > patience && !s.over && s.m.life() == s.life {
			a.c.fail("no answer to %v in %v", a.frame, patience)
		}
	}
}

// answer judges a frame of the server.
func (s *stream) answer(f *pb.ServerFrame) {
	s.mu.Lock()
	a := s.waiting[f.Id]
	waits := f.GetWaiting() != nil && a != nil && a.frame.GetStart() != nil && a.frame.TimeoutMs > 0 // its answer follows
	if !waits {
		delete(s.waiting, f.Id)
	}
	if w := s.watches[f.Id]; w != nil {
		s.watching(w, f)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	switch {
	case f.Id == 0:
		s.event(f)
	case waits:
		s.book.count("waiting")
	case a == nil:
		s.fail("%s answers frame %d, which was not sent or was answered: %v", s.m.Name, f.Id, f)
	default:
		s.judge(a, f)
	}
}

// watching takes what a watch tells. s.mu is held.
func (s *stream) watching(a *asked, f *pb.ServerFrame) {
	if f.Error != nil {
		a.c.refused("watch", f.Error, valid, incumbent.Compacted, incumbent.TooLarge)
		s.endWatch(a)
		return
	}
	a.run.add(a.c, f.GetWatch())
}

func (s *stream) endWatch(a *asked) {
	w := a.frame.GetWatch().Watch
	a.run.end(a.c, placeOf(w.Name).scope, w.AfterIndex)
	delete(s.watches, a.frame.Id)
}

// event takes what the server says unasked.
func (s *stream) event(f *pb.ServerFrame) {
	switch e := f.Answer.(type) {
	case *pb.ServerFrame_Offer:
		l := e.Offer.Lease
		if l.GetToken() == 0 || l.Session == "" || !l.Offered {
			s.fail("%s offers %v", s.m.Name, l)
		}
		s.table.saw(l)
	case *pb.ServerFrame_SessionLost, *pb.ServerFrame_GoAway:
	default:
		s.fail("%s sends an event that is none: %v", s.m.Name, f)
	}
}

func (s *stream) judge(a *asked, f *pb.ServerFrame) {
	c := a.c
	what := strings.TrimPrefix(fmt.Sprintf("%T", a.frame.Request), "*incumbentv1.Client")
	s.book.count(what + kindOf(f.Error))
	if kind, _ := incumbent.ParseKind(f.Error.GetKind()); a.hangs && slices.Contains(startMayBe, kind) {
		return
	}
	switch r := a.frame.Request.(type) {
	case *pb.ClientFrame_Operation:
		out := f.GetOperation()
		if f.Error != nil {
			out = &pb.OperationResult{Error: f.Error}
		}
		c.operation(s.table, r.Operation, out, a.want)
		s.lost(r.Operation, out)
	case *pb.ClientFrame_ExtendTokens:
		s.tokens(a, r.ExtendTokens.Tokens, f)
	case *pb.ClientFrame_Beat:
		if f.Error != nil {
			c.refused(what, f.Error, valid, incumbent.Conflict) // where another has attached one of its sessions
		}
	case *pb.ClientFrame_Attach:
		if f.Error != nil {
			c.refused(what, f.Error, a.want, incumbent.Expired, incumbent.Conflict, incumbent.TooLarge)
			return
		}
		out := f.GetAttached()
		c.at(out.GetIndex())
		c.sawSession(r.Attach.Session, &page{nil, out.GetNext(), out.GetSession().GetLeases(), out.GetLeases(), out.GetIndex()})
	case *pb.ClientFrame_Start:
		if f.Error != nil {
			c.refused(what, f.Error, a.want, startMayBe...)
			return
		}
		out := f.GetStarted().GetAttached()
		c.at(out.GetIndex())
		c.sawSession(r.Start.Session, &page{nil, out.GetNext(), out.GetSession().GetLeases(), out.GetLeases(), out.GetIndex()})
	case *pb.ClientFrame_Get:
		s.got(c, placeOf(r.Get.Name), r.Get.Stale, f.GetGet(), f.Error)
	case *pb.ClientFrame_GetSession:
		s.gotSession(c, r.GetSession, f.GetGetSession(), f.Error)
	case *pb.ClientFrame_WaitReleased:
		if f.GetDone() == nil { // it was cancelled otherwise
			s.waited(c, r.WaitReleased, f.GetWaitReleased(), f.Error)
		}
	default: // keys; detach, unwatch, cancel, and what is none
		if !c.keyAnswer(a.frame, f) && f.Error != nil {
			c.refused(what, f.Error, oddEnough, incumbent.NotFound)
		}
	}
}

// startMayBe is what a start may be refused for, with what hangs on it: also for a session that
// another has opened in the same moment, with another ttl.
var startMayBe = []incumbent.Kind{incumbent.Expired, incumbent.Conflict, incumbent.TooLarge, incumbent.Exists}

// tokens judges the answer for many tokens: those not listed are held.
func (s *stream) tokens(a *asked, tokens []uint64, f *pb.ServerFrame) {
	if f.Error != nil {
		a.c.refused("extend_tokens", f.Error, valid)
		return
	}
	out := f.GetTokensExtended()
	each := out.GetHeldEachMs()
	lost, unknown := setOf(out.GetNotHeld()), setOf(out.GetUnavailable())
	for i, token := range tokens {
		switch {
		case unknown[token]:
		case lost[token]:
			a.c.tokenLost("extend_tokens", token)
		default:
			held := out.GetHeldMs()
			if len(each) == len(tokens) {
				held = each[i]
			}
			a.c.held(token, held)
			a.c.tokenHeld("extend_tokens", token)
		}
	}
}

func setOf(list []uint64) map[uint64]bool {
	out := map[uint64]bool{}
	for _, x := range list {
		out[x] = true
	}
	return out
}

// close ends the connection, at times in the midst of everything.
func (s *stream) close() { _ = s.conn.Close() }

// followByStream keeps a second watch of the native scope open.
func (p *play) followByStream(ctx context.Context, t *timeline) {
	for i := len(p.c.Members) - 1; ctx.Err() == nil; i++ {
		m := p.c.Members[i%len(p.c.Members)]
		s := p.openStream(m)
		if s == nil {
			pause(ctx, lookEvery)
			continue
		}
		stop := context.AfterFunc(ctx, s.close)
		t.broken(s.watchAll(t))
		stop()
		s.close()
		pause(ctx, lookEvery)
	}
}

// watchAll follows a scope until the connection or the watch ends.
func (s *stream) watchAll(t *timeline) *pb.Error {
	in := &pb.WatchRequest{Name: (&place{t.scope, ""}).pb(), Prefix: true, AfterIndex: t.resume()}
	b, err := proto.Marshal(&pb.ClientMessage{Frames: []*pb.ClientFrame{{Id: 1, Request: &pb.ClientFrame_Watch{Watch: &pb.StreamWatch{Watch: in}}}}})
	if err != nil || wsutil.WriteClientBinary(s.conn, b) != nil {
		return nil
	}
	for whole := (client.Whole{}); ; {
		b, _, err := wsutil.ReadServerData(s.conn)
		if err != nil {
			return nil
		}
		m := &pb.ServerMessage{}
		if err := proto.Unmarshal(b, m); err != nil {
			s.fail("%s sends a message that is none: %v", s.m.Name, err)
			return nil
		}
		for _, f := range m.Frames {
			if f.Error != nil {
				return f.Error
			}
			if f.GetWatch() == nil {
				continue
			}
			if m := whole.Add(f.GetWatch()); m != nil {
				t.add(m)
			}
		}
	}
}
