package native

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/websocket"
)

// stream is one WebSocket. While it is idle, this struct and the parked
// connection are all there is: no goroutine, buffer, timer or map.
type stream struct {
	door    *Door
	who     *caller
	counted tally.Place // among its principal's streams
	give    func()      // gives back what its connection holds; nil: nothing
	conn    atomic.Pointer[park.Conn]

	park.Link[*stream] // in door.streams

	// Of the worker alone.
	turn uint32 // bench.turn when a frame of this stream was last gathered

	spent atomic.Int32 // bytes that are to be taken out of the pace
	pace  admit.Pace   // of the worker alone

	underWay  atomic.Int32 // operations and reads without an answer
	extending atomic.Int32 // beats and extend_tokens without one, by their weight

	mu       sync.Mutex // guards the rest; held for a look-up or a change of it
	gone     bool       // it ends, or has ended: nothing begins any more
	sessions sessionList
	open     *opened // watches, waits, and what waits in line; nil while there was none
}

// opened is what only streams with watches or waits have.
type opened struct {
	watches map[uint64]*streamWatch
	waits   map[uint64]*waiting
	inLine  []*waitingFrame // nil while none is
}

// others makes what only some streams have. s.mu is held.
func (s *stream) others() *opened {
	if s.open == nil {
		s.open = &opened{watches: map[uint64]*streamWatch{}, waits: map[uint64]*waiting{}}
	}
	return s.open
}

var _ park.Handler = (*stream)(nil)

// Readable reads whatever messages are complete.
func (s *stream) Readable(c *park.Conn, data []byte) (int, error) {
	if s.conn.Load() == nil {
		s.conn.Store(c)
	}
	w := s.door.benches[c.Worker()]
	read := websocket.Reader{Op: ws.OpBinary, Limit: s.door.limits.Load().MaxMessageBytes}
	n := 0
	for n < len(data) {
		m, bad := read.Next(data[n:])
		if bad == nil && m.Size == 0 {
			break
		}
		n += m.Size
		if bad == nil {
			bad = s.message(c, w, &m)
		}
		if bad != nil {
			w.refused.send() // the close frame is the last
			s.end(c, websocket.Close(bad.Code, bad.Reason), bad)
			return len(data), nil
		}
		if m.Op == ws.OpClose {
			w.refused.send()
			s.end(c, websocket.CloseReply(m.Payload), nil)
			return len(data), nil
		}
		if rest := s.door.lanes.Slow(&s.pace, int(s.spent.Swap(0))); rest > 0 {
			time.AfterFunc(rest, c.Wake)
			return n, park.Hold
		}
	}
	return n, nil
}

// refused counts the answer to a frame for the pace, if it was refused for what it asks: see
// [admit.Pace].
func (s *stream) refused(kind string) {
	if kind == deniedKind || kind == invalidKind {
		s.spent.Add(admit.MessageBytes)
	}
}

var deniedKind, invalidKind = incumbent.Denied.String(), incumbent.Invalid.String()

// end says good-bye and closes once that was sent.
func (s *stream) end(c *park.Conn, frame []byte, err error) {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	if c.Send(frame) == nil {
		c.Finish(err)
	}
}

// message serves one message or control frame.
func (s *stream) message(c *park.Conn, w *bench, m *websocket.Message) *websocket.Error {
	for i := range m.Controls {
		s.control(c, &m.Controls[i])
	}
	if m.Op != ws.OpBinary {
		s.control(c, m)
		return nil
	}
	if bad := w.decoder.decode(m.Payload); bad != nil {
		return bad
	}
	if len(w.decoder.frames) == 0 {
		s.spent.Add(int32(m.Size) + admit.MessageBytes)
	}
	var now time.Time // of the message, read once
	for i := range w.decoder.frames {
		f := &w.decoder.frames[i]
		if f.timeoutMS != 0 && now.IsZero() {
			now = s.door.now()
		}
		s.frame(w, f, now)
	}
	return nil
}

func (s *stream) control(c *park.Conn, m *websocket.Message) {
	if m.Op == ws.OpPing {
		_ = c.Send(websocket.Frame(ws.OpPong, m.Payload)) // if it has ended, Closed follows
	}
	s.spent.Add(int32(len(m.Payload)) + admit.MessageBytes)
}

// frame serves one frame of a client.
func (s *stream) frame(w *bench, f *clientFrame, now time.Time) {
	if f.kind == generalFrame {
		s.general(w, f, now)
		return
	}
	if s.extending.Load() >= MaxExtendsPerStream {
		s.refuseNow(w, f.id, tooManyUnderWay("extensions", MaxExtendsPerStream))
		return
	}
	if f.kind == beatFrame {
		if err := s.door.allowBeat(s.who); err != nil {
			s.refuseNow(w, f.id, err)
			return
		}
		s.addBeat(w, f)
		return
	}
	if f.count > MaxTokens {
		s.refuseNow(w, f.id, invalid("extend_tokens.tokens", "are %d, limit is %d", f.count, MaxTokens))
		return
	}
	s.addTokens(w, f)
}

// write sends bytes that will be used again. What cannot be sent is lost with
// the connection.
func (s *stream) write(b []byte) {
	if c := s.conn.Load(); c != nil {
		_, _ = c.Write(b)
	}
}

// reply answers one frame. It runs on a goroutine of the door. What has to wait for its
// reader counts as memory of the connection.
func (s *stream) reply(f *pb.ServerFrame) {
	s.refused(f.GetError().GetKind())
	b := appendFrame(websocket.Start(make([]byte, 0, websocket.MaxHeader+sizeBytesField(proto.Size(f)))), f)
	if c := s.conn.Load(); c != nil {
		_, _ = c.Write(b[websocket.Finish(b, ws.OpBinary):]) // if it has ended, Closed follows
	}
}

// refuse answers a frame with an error, unless no answer is wanted.
func (s *stream) refuse(id uint64, err error) {
	if id == 0 {
		s.refused(incumbent.KindOf(err).String())
		return
	}
	s.reply(&pb.ServerFrame{Id: id, Error: errorPB(err, s.door.standing(), nil)})
}

// refuseNow is refuse for the worker, which refuses much at once when there is
// too much: answers of one wake-up go out together.
func (s *stream) refuseNow(w *bench, id uint64, err error) {
	if id == 0 {
		s.refused(incumbent.KindOf(err).String())
		return
	}
	w.refused.add(s, &pb.ServerFrame{Id: id, Error: errorPB(err, s.door.standing(), nil)})
}

// Closed lets everything go that hung on the connection. Its sessions live on
// until their ttl ends.
func (s *stream) Closed(_ *park.Conn, _ park.Reason, _ error) {
	s.mu.Lock()
	s.gone = true
	sessions, open := s.sessions, s.open
	s.sessions, s.open = sessionList{}, nil
	s.mu.Unlock()
	sessions.each(func(a *attached) { s.door.detach(s, a) })
	if open != nil {
		for _, w := range open.watches {
			w.close()
		}
		for _, w := range open.waits {
			w.cancel()
		}
	}
	s.door.streams.Remove(s)
	s.counted.Give()
	if s.give != nil {
		s.give()
	}
}

// appendError appends a frame of a ServerMessage that refuses a request.
func (d *Door) appendError(b []byte, id uint64, err error) []byte {
	return appendFrame(b, &pb.ServerFrame{Id: id, Error: errorPB(err, d.standing(), nil)})
}
