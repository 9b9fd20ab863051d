package player

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// noisePlayer sends what is no call at all. What it does is judged little: that
// nothing is answered as an internal error, that everything has an end, and, by all
// others, that nothing else is disturbed.
type noisePlayer struct {
	*play
	number int
}

func (p *noisePlayer) run(ctx context.Context) {
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		m := pick(d, p.c.Members)
		c := p.book.begin(fmt.Sprintf("player %d, step %d, noise at %s", p.number, step, m.Name))
		switch d.IntN(8) {
		case 0, 1, 2:
			p.post(ctx, d, m, c)
		case 3:
			p.raw(ctx, m.address(), d.bytes(d.IntN(3000)), d)
		case 4:
			p.frames(ctx, d, m)
		case 5:
			p.juju(ctx, d, m)
		case 6:
			p.raw(ctx, m.Juju, d.bytes(d.IntN(3000)), d)
		default:
			p.dribble(ctx, d, m)
		}
		p.rest(ctx, d)
		p.rest(ctx, d)
		p.rest(ctx, d)
	}
}

func (d dice) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.Uint32())
	}
	return b
}

// mangle changes some bytes, or cuts some off, or repeats some.
func (d dice) mangle(b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + d.IntN(3) {
		if len(b) == 0 {
			return b
		}
		at := d.IntN(len(b))
		switch d.IntN(4) {
		case 0:
			b[at] ^= byte(1 << d.IntN(8))
		case 1:
			b = b[:at]
		case 2:
			b = append(b[:at:at], b[d.IntN(at+1):]...)
		default:
			b[at] = byte(d.Uint32())
		}
	}
	return b
}

var procedures = []string{
	"LeaseService/Claim", "LeaseService/Release", "LeaseService/Extend", "LeaseService/Batch", "LeaseService/List", "LeaseService/Transfer",
	"LeaseService/Pin", "LeaseService/Nothing", "SessionService/OpenSession", "SessionService/CloseSession", "ClusterService/Join",
	"ClusterService/Members", "LeaseService/Watch", "NoService/Call", "LeaseService/WaitReleased",
}

// Bodies of JSON that are no message, or none that is wanted.
var wrongJSON = []string{
	``, `{`, `[]`, `null`, `5`, `"x"`, `{"name":5}`, `{"name":{"name":["a"]}}`, `{"ttl_ms":-1}`, `{"ttl_ms":"x"}`, `{"ttl_ms":1e99}`,
	`{"nothing":1}`, `{"name":{"name":"a"},"name":{"name":"b"}}`, `{"operations":[{}]}`, `{"operations":[null]}`, `{"operations":{}}`,
	`{"extensions":[{"token":"-1"}]}`, `{"extensions":[{"token":"99999999999999999999999"}]}`, `{"holder":"` + "\xff\xfe" + `"}`, `{"holder":"\ud800"}`,
	`{"name":{"name":"a","holder":"h"}} trailing`, "\xef\xbb\xbf{}", strings.Repeat("[", 20_000), strings.Repeat(`{"name":`, 20_000),
}

// post sends a body that is mostly wrong.
func (p *noisePlayer) post(ctx context.Context, d dice, m *member, c *call) {
	kind, body := "application/json", []byte(pick(d, wrongJSON))
	switch d.IntN(6) {
	case 0:
		text, _ := protojson.Marshal(harmless(d)) // of a message that was just made
		body = d.mangle(text)
	case 1:
		b, _ := proto.Marshal(harmless(d)) // likewise
		kind, body = "application/proto", d.mangle(b)
	case 2:
		kind, body = pick(d, []string{"application/proto", "application/grpc", "application/grpc-web", "application/connect+proto", "text/plain", ""}), d.bytes(d.IntN(200))
	case 3:
		if d.oneIn(4) {
			body = []byte(`{"holder":"` + strings.Repeat("x", 1<<20+d.IntN(1<<20)) + `"}`)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	procedure := pick(d, procedures)
	req, err := http.NewRequestWithContext(ctx, pick(d, []string{http.MethodPost, http.MethodPost, http.MethodPost, http.MethodGet, http.MethodPut}),
		m.URL+"/incumbent.v1."+procedure, bytes.NewReader(body))
	if err != nil {
		p.fail("%v", err)
		return
	}
	req.Header.Set("Content-Type", kind)
	if d.oneIn(4) {
		req.Header.Set(pick(d, []string{"Content-Encoding", "Connect-Timeout-Ms", "Grpc-Timeout", "Idempotency-Base-Index", "Authorization"}), pick(d, []string{"gzip", "0", "-1", "99999999999999999999", "x"}))
	}
	life := m.life()
	res, err := m.c.web.Do(req)
	if err != nil {
		if ctx.Err() != nil && time.Since(c.sent) >= patience && m.life() == life {
			c.fail("no answer to %s in %v", procedure, patience)
		}
		return
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<16)) // it may be cut off
	if res.StatusCode == http.StatusInternalServerError && !bytes.Contains(text, []byte(`"kind":"unknown"`)) || bytes.Contains(text, []byte(`"kind":"internal"`)) {
		c.fail("%s of %q (%s): %d %s", procedure, body[:min(len(body), 200)], kind, res.StatusCode, text)
	}
}

// harmless makes a request in a scope that nobody watches: mangled, it may still be
// one.
func harmless(d dice) *pb.ClaimRequest {
	return &pb.ClaimRequest{Name: &pb.LeaseName{Namespace: "noise", Model: "noise", Name: pick(d, nativeNames)}, Holder: pick(d, holders), TtlMs: d.ttl()}
}

// raw sends bytes to a listener, waits a moment, and goes.
func (p *noisePlayer) raw(ctx context.Context, address string, b []byte, d dice) {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Duration(d.IntN(50)) * time.Millisecond))
	_, _ = conn.Write(b)
	_, _ = io.Copy(io.Discard, conn)
}

// frames opens a stream and sends frames that are broken in some way.
func (p *noisePlayer) frames(ctx context.Context, d dice, m *member) {
	s := p.openStream(m)
	if s == nil {
		return
	}
	defer s.close()
	p.garble(d, s.conn, harmlessFrames(d), ws.OpBinary)
	drain(s.conn, d)
}

func harmlessFrames(d dice) []byte {
	m := &pb.ClientMessage{}
	for range 1 + d.IntN(4) {
		m.Frames = append(m.Frames, &pb.ClientFrame{Id: d.Uint64(), Request: &pb.ClientFrame_Operation{Operation: claimed(harmless(d))}})
	}
	b, _ := proto.Marshal(m) // of a message that was just made
	return b
}

// garble sends one message as a frame that is wrong in some way.
func (p *noisePlayer) garble(d dice, conn net.Conn, message []byte, op ws.OpCode) {
	frame := ws.MaskFrameInPlace(ws.NewFrame(op, true, bytes.Clone(message)))
	switch d.IntN(7) {
	case 0:
		frame = ws.MaskFrameInPlace(ws.NewFrame(op, true, d.mangle(message)))
	case 1:
		frame = ws.NewFrame(op, true, message) // not masked
	case 2:
		frame.Header.Rsv = byte(1 + d.IntN(7))
	case 3:
		frame.Header.OpCode = ws.OpCode(d.IntN(16))
	case 4:
		frame.Header.Length = 1<<62 + d.Int64N(1<<61)
	case 5:
		frame.Header.Fin = false
	}
	var out bytes.Buffer
	if ws.WriteFrame(&out, frame) != nil {
		return
	}
	b := out.Bytes()
	if d.oneIn(3) {
		b = b[:d.IntN(len(b))] // cut off
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(b)
}

// drain reads for a moment.
func drain(conn net.Conn, d dice) {
	_ = conn.SetDeadline(time.Now().Add(time.Duration(d.IntN(50)) * time.Millisecond))
	_, _ = io.Copy(io.Discard, conn)
}

// juju sends garbage over TLS, before the login or after it.
func (p *noisePlayer) juju(ctx context.Context, d dice, m *member) {
	switch d.IntN(3) {
	case 0:
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", m.Juju) //nolint:gosec // the member's certificate is its own
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write(d.bytes(d.IntN(2000)))
		drain(conn, d)
	case 1:
		if conn := dialJuju(ctx, m); conn != nil {
			defer conn.Close()
			p.garble(d, conn, pick(d, jujuNoise), ws.OpText)
			drain(conn, d)
		}
	default:
		if a := p.login(ctx, m, "unit-noise-0"); a != nil {
			defer a.conn.Close()
			p.garble(d, a.conn, pick(d, jujuNoise), ws.OpText)
			drain(a.conn, d)
		}
	}
}

var jujuNoise = [][]byte{
	[]byte(`{"request-id":2,"type":"Pinger","version":1,"request":"Ping","params":{}}`),
	[]byte(`{"request-id":0,"type":"Pinger"}`), []byte(`{"request-id":-1}`), []byte(`{"request-id":"x"}`), []byte(`[]`), []byte(`null`), []byte(`{`),
	{},
	[]byte(`{"request-id":2,"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":` + strings.Repeat("[", 5000)),
	[]byte(`{"request-id":2,"type":"LeadershipService","version":1e99,"request":"ClaimLeadership"}`),
	[]byte(`{"request-id":2,"type":"\ud800","version":2,"request":"` + strings.Repeat("x", 70_000) + `"}`),
}

// dribble sends the beginning of a request byte by byte and goes.
func (p *noisePlayer) dribble(ctx context.Context, d dice, m *member) {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", m.address())
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	text := "POST /incumbent.v1.LeaseService/Claim HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{\"name\":"
	for i := range d.IntN(len(text)) {
		if _, err := conn.Write([]byte{text[i]}); err != nil {
			return
		}
	}
	drain(conn, d)
}
