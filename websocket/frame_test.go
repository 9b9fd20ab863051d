package websocket

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gobwas/ws"
)

// clientFrameBytes is a masked frame as a client sends it.
func clientFrameBytes(op ws.OpCode, fin bool, payload []byte) []byte {
	f := ws.MaskFrameWith(ws.NewFrame(op, fin, append([]byte(nil), payload...)), [4]byte{1, 2, 3, 4})
	return ws.MustCompileFrame(f)
}

func TestNext(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300)
	frames := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	frame := clientFrameBytes
	tests := []struct {
		name  string
		in    []byte
		want  string // payload
		op    ws.OpCode
		inner string // control frames between fragments
		code  ws.StatusCode
	}{
		{name: "short", in: frame(ws.OpBinary, true, []byte("hello")), want: "hello", op: ws.OpBinary},
		{name: "empty", in: frame(ws.OpBinary, true, nil), want: "", op: ws.OpBinary},
		{name: "16-bit length", in: frame(ws.OpBinary, true, long), want: string(long), op: ws.OpBinary},
		{name: "ping", in: frame(ws.OpPing, true, []byte("p")), want: "p", op: ws.OpPing},
		{name: "close", in: frame(ws.OpClose, true, nil), want: "", op: ws.OpClose},
		{
			name: "fragments", op: ws.OpBinary, want: "abcd",
			in: frames(frame(ws.OpBinary, false, []byte("ab")), frame(ws.OpContinuation, false, nil), frame(ws.OpContinuation, true, []byte("cd"))),
		},
		{
			name: "ping between fragments", op: ws.OpBinary, want: "abcd", inner: "pq",
			in: frames(frame(ws.OpBinary, false, []byte("ab")), frame(ws.OpPing, true, []byte("pq")), frame(ws.OpContinuation, true, []byte("cd"))),
		},
		{
			name: "close between fragments", op: ws.OpClose, want: "",
			in: frames(frame(ws.OpBinary, false, []byte("ab")), frame(ws.OpClose, true, nil)),
		},
		{name: "text", in: frame(ws.OpText, true, []byte("{}")), code: ws.StatusUnsupportedData},
		{name: "not masked", in: ws.MustCompileFrame(ws.NewBinaryFrame([]byte("x"))), code: ws.StatusProtocolError},
		{name: "reserved bits", in: []byte{0xc2, 0x80, 0, 0, 0, 0}, code: ws.StatusProtocolError},
		{name: "reserved opcode", in: []byte{0x83, 0x80, 0, 0, 0, 0}, code: ws.StatusProtocolError},
		{name: "continuation of nothing", in: frame(ws.OpContinuation, true, nil), code: ws.StatusProtocolError},
		{name: "fragmented ping", in: frame(ws.OpPing, false, nil), code: ws.StatusProtocolError},
		{name: "long ping", in: frame(ws.OpPing, true, long), code: ws.StatusProtocolError},
		{
			name: "message within a message", code: ws.StatusProtocolError,
			in: frames(frame(ws.OpBinary, false, []byte("ab")), frame(ws.OpBinary, true, []byte("cd"))),
		},
		{name: "16-bit length below 126", in: []byte{0x82, 0xfe, 0, 5}, code: ws.StatusProtocolError},
		{name: "64-bit length below 65536", in: []byte{0x82, 0xff, 0, 0, 0, 0, 0, 0, 1, 0}, code: ws.StatusProtocolError},
		{name: "negative length", in: []byte{0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0}, code: ws.StatusProtocolError},
		{name: "too large, said at once", in: []byte{0x82, 0xff, 0, 0, 0, 0, 1, 0, 0, 0}, code: ws.StatusMessageTooBig},
		{
			name: "too large together", code: ws.StatusMessageTooBig,
			in: frames(frame(ws.OpBinary, false, make([]byte, 900)), frame(ws.OpContinuation, true, make([]byte, 900))),
		},
		{
			name: "too many fragments", code: ws.StatusMessageTooBig,
			in: frames(frame(ws.OpBinary, false, nil), bytes.Repeat(frame(ws.OpContinuation, false, nil), MaxFragments)),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := append([]byte(nil), tt.in...)
			m, bad := Reader{ws.OpBinary, 1024}.Next(in)
			if tt.code != 0 {
				if bad == nil || bad.Code != tt.code {
					t.Fatalf("error %+v, want code %d", bad, tt.code)
				}
				return
			}
			if bad != nil {
				t.Fatal(bad)
			}
			if m.Op != tt.op || string(m.Payload) != tt.want || m.Size != len(in) {
				t.Fatalf("got op %v, payload %q, size %d of %d", m.Op, m.Payload, m.Size, len(in))
			}
			var inner string
			for _, c := range m.Controls {
				inner += string(c.Payload)
			}
			if inner != tt.inner {
				t.Fatalf("control frames %q, want %q", inner, tt.inner)
			}
		})
	}
}

// Every prefix of a good message is incomplete, and stays as it is.
func TestNextIncomplete(t *testing.T) {
	whole := bytes.Join([][]byte{
		clientFrameBytes(ws.OpBinary, false, []byte("ab")),
		clientFrameBytes(ws.OpPing, true, []byte("p")),
		clientFrameBytes(ws.OpContinuation, true, bytes.Repeat([]byte("c"), 200)),
	}, nil)
	for n := range whole {
		in := append([]byte(nil), whole[:n]...)
		m, bad := Reader{ws.OpBinary, 1024}.Next(in)
		if bad != nil || m.Size != 0 || !bytes.Equal(in, whole[:n]) {
			t.Fatalf("%d bytes: %+v, %v", n, m, bad)
		}
	}
}

func TestFrame(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 0xffff, 0x10000} {
		payload := bytes.Repeat([]byte{7}, n)
		got := Frame(ws.OpBinary, payload)
		if want := ws.MustCompileFrame(ws.NewBinaryFrame(payload)); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: header % x, want % x", n, got[:min(len(got), 12)], want[:min(len(want), 12)])
		}
	}
	if n := len(Close(ws.StatusGoingAway, strings.Repeat("r", 500))); n != 2+maxControl {
		t.Errorf("a long reason makes a close frame of %d bytes", n)
	}
}

func TestCloseReply(t *testing.T) {
	tests := []struct {
		payload []byte
		want    string
	}{
		{nil, "8800"},
		{[]byte{0x03}, "1002"},
		{ws.NewCloseFrameBody(1000, "bye"), "1000"},
		{ws.NewCloseFrameBody(4001, ""), "4001"},
		{ws.NewCloseFrameBody(1005, ""), "1002"},
		{append(ws.NewCloseFrameBody(1000, ""), 0xff), "1002"},
	}
	for _, tt := range tests {
		b := CloseReply(tt.payload)
		got := fmt.Sprintf("%x", b)
		if len(b) > 2 {
			got = fmt.Sprint(int(b[2])<<8 | int(b[3]))
		}
		if got != tt.want {
			t.Errorf("reply to % x has %s, want %s", tt.payload, got, tt.want)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add(clientFrameBytes(ws.OpBinary, true, []byte("hello")))
	f.Add(append(clientFrameBytes(ws.OpBinary, false, []byte("a")), clientFrameBytes(ws.OpContinuation, true, []byte("b"))...))
	f.Add([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 512
		split := append([]byte(nil), in...)
		whole, bad := Reader{ws.OpBinary, limit}.Next(in)
		if bad == nil && whole.Size > len(in) || len(whole.Payload) > limit {
			t.Fatalf("size %d of %d, payload %d", whole.Size, len(in), len(whole.Payload))
		}
		if bad != nil || whole.Size == 0 {
			return
		}
		// However the bytes arrive, the first complete reading is the same.
		for n := 1; n <= len(split); n++ {
			m, bad := Reader{ws.OpBinary, limit}.Next(split[:n])
			if bad != nil {
				t.Fatalf("whole is accepted, its first %d bytes are not: %v", n, bad)
			}
			if m.Size == 0 {
				continue
			}
			if m.Op != whole.Op || !bytes.Equal(m.Payload, whole.Payload) {
				t.Fatalf("after %d bytes: %v %q, whole: %v %q", n, m.Op, m.Payload, whole.Op, whole.Payload)
			}
			return
		}
	})
}
