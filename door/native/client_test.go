package native

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// patience bounds how long a test waits for what must come.
const patience = time.Minute

// wire is a client's end of a stream.
type wire struct {
	tb     testing.TB
	conn   net.Conn
	r      *bufio.Reader
	frames []*pb.ServerFrame // received, not looked at
}

func (m *member) dial() *wire {
	m.tb.Helper()
	conn, br, _, err := ws.Dialer{Timeout: patience}.Dial(context.Background(), strings.Replace(m.url, "http", "ws", 1)+StreamPath)
	if err != nil {
		m.tb.Fatal(err)
	}
	if br == nil {
		br = bufio.NewReader(conn)
	}
	w := &wire{tb: m.tb, conn: conn, r: br}
	m.tb.Cleanup(func() { conn.Close() })
	return w
}

func (w *wire) write(b []byte) {
	w.tb.Helper()
	if _, err := w.conn.Write(b); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *wire) send(frames ...*pb.ClientFrame) {
	w.tb.Helper()
	w.write(clientFrameBytes(ws.OpBinary, true, marshal(w.tb, &pb.ClientMessage{Frames: frames})))
}

// read returns the next WebSocket frame.
func (w *wire) read() (ws.OpCode, []byte) {
	w.tb.Helper()
	if err := w.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		w.tb.Fatal(err)
	}
	h, err := ws.ReadHeader(w.r)
	if err != nil {
		w.tb.Fatalf("read: %v", err)
	}
	if h.Masked || !h.Fin {
		w.tb.Fatalf("a server's frame must not be masked, and ours are whole: %+v", h)
	}
	p := make([]byte, h.Length)
	if _, err := io.ReadFull(w.r, p); err != nil {
		w.tb.Fatalf("read: %v", err)
	}
	return h.OpCode, p
}

// settle returns when the server has received all that was sent.
func (w *wire) settle() {
	w.tb.Helper()
	w.write(clientFrameBytes(ws.OpPing, true, []byte("settled")))
	for {
		op, p := w.read()
		if op == ws.OpPong {
			return
		}
		var m pb.ServerMessage
		if err := proto.Unmarshal(p, &m); err != nil {
			w.tb.Fatal(err)
		}
		w.frames = append(w.frames, m.Frames...)
	}
}

// next returns the next frame of the stream.
func (w *wire) next() *pb.ServerFrame {
	w.tb.Helper()
	for len(w.frames) == 0 {
		op, p := w.read()
		if op != ws.OpBinary {
			w.tb.Fatalf("got %v %q", op, p)
		}
		var m pb.ServerMessage
		if err := proto.Unmarshal(p, &m); err != nil {
			w.tb.Fatal(err)
		}
		w.frames = m.Frames
	}
	f := w.frames[0]
	w.frames = w.frames[1:]
	return f
}

// ask sends one frame and returns its answer, which must be the next one.
func (w *wire) ask(f *pb.ClientFrame) *pb.ServerFrame {
	w.tb.Helper()
	w.send(f)
	got := w.next()
	if got.Id != f.Id {
		w.tb.Fatalf("answer to %d: %v", f.Id, got)
	}
	return got
}

// ok is ask, without an error.
func (w *wire) ok(f *pb.ClientFrame) *pb.ServerFrame {
	w.tb.Helper()
	got := w.ask(f)
	if got.Error != nil {
		w.tb.Fatalf("%v: %v", f, got.Error)
	}
	return got
}

// closed reads until the close frame, and returns its code.
func (w *wire) closed() ws.StatusCode {
	w.tb.Helper()
	for {
		if op, p := w.read(); op == ws.OpClose {
			code, _ := ws.ParseCloseFrameData(p)
			return code
		}
	}
}

// ended reads until the connection ends.
func (w *wire) ended() {
	w.tb.Helper()
	if err := w.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		w.tb.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, w.r); err != nil {
		w.tb.Fatalf("the connection was not closed: %v", err)
	}
}

func opFrame(id uint64, o *pb.Operation) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Operation{Operation: o}}
}

func nameOf(lease string) *pb.LeaseName { return &pb.LeaseName{Name: lease} }

func claimFrame(id uint64, lease, holder, session string, wait bool) *pb.ClientFrame {
	c := &pb.ClaimRequest{Name: nameOf(lease), Holder: holder, Session: session, Wait: wait}
	if session == "" {
		c.TtlMs = 15000
	}
	return opFrame(id, &pb.Operation{Op: &pb.Operation_Claim{Claim: c}})
}

func releaseFrame(id uint64, lease, holder, session string) *pb.ClientFrame {
	return opFrame(id, &pb.Operation{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{Name: nameOf(lease), Holder: holder, Session: session}}})
}

func openFrame(id uint64, session string, ttl uint32) *pb.ClientFrame {
	return opFrame(id, &pb.Operation{Op: &pb.Operation_OpenSession{OpenSession: &pb.OpenSessionRequest{Id: session, TtlMs: ttl}}})
}

func closeSessionFrame(id uint64, session string) *pb.ClientFrame {
	return opFrame(id, &pb.Operation{Op: &pb.Operation_CloseSession{CloseSession: &pb.CloseSessionRequest{Id: session}}})
}

func attachFrame(id uint64, session string, counter uint64) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Attach{Attach: &pb.Attach{Session: session, Counter: counter}}}
}

func watchFrameOf(id uint64, prefix string, after uint64) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Watch{Watch: &pb.StreamWatch{
		Watch: &pb.WatchRequest{Name: nameOf(prefix), Prefix: true, AfterIndex: after},
	}}}
}

func waitFrame(id uint64, lease string, token uint64) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_WaitReleased{WaitReleased: &pb.WaitReleasedRequest{Name: nameOf(lease), AfterToken: token}}}
}

// clientFrameBytes is a masked frame as a client sends it.
func clientFrameBytes(op ws.OpCode, fin bool, payload []byte) []byte {
	f := ws.MaskFrameWith(ws.NewFrame(op, fin, append([]byte(nil), payload...)), [4]byte{1, 2, 3, 4})
	return ws.MustCompileFrame(f)
}
