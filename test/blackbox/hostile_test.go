package blackbox

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	bigendian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// memory is the most that the server's process ever had resident, in MiB.
func (m *member) memory(t *testing.T) int {
	t.Helper()
	status := readFile(t, fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatalf("no VmHWM in %s", status)
	return 0
}

// bomb is a megabyte that becomes nearly a gigabyte: a message with one field that its
// reader does not know, or white space in front of an object. It is one part many
// times over, for the inflated parts of a file of gzip are read as one.
func bomb(t *testing.T, json bool) []byte {
	t.Helper()
	const parts, partBytes = 900, 1 << 20 // packed just below what a request may be
	pack := func(p []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(p); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if json {
		return append(bytes.Repeat(pack(bytes.Repeat([]byte{' '}, partBytes)), parts), pack([]byte("{}"))...)
	}
	return append(pack(bigendian.AppendUvarint([]byte{15<<3 | 2}, parts*partBytes)), bytes.Repeat(pack(make([]byte, partBytes)), parts)...)
}

// What a server may grow by under what strangers send, in MiB.
const (
	mostGrowth = 150 // its garbage collector lets it have as much again as it uses
	// One that has much to do, as those have it do who may send bombs, may hold 384 of garbage,
	// and 90 to 190 are seen. A single bomb that was inflated would be 900.
	mostUnderBombs = 450
)

// A megabyte that becomes a gigabyte is refused by who sends it before it is read,
// and stopped at the limit for whoever may send it: by each protocol.
func TestG47_ABombIsNotInflated(t *testing.T) {
	g := startGuarded(t)
	packed, text := bomb(t, false), bomb(t, true)
	envelope := func(b []byte) []byte {
		return append(bigendian.BigEndian.AppendUint32([]byte{1}, uint32(len(b))), b...)
	}
	before := g.memory(t)
	for _, token := range []string{"", g.operator} {
		for name, tt := range map[string]struct {
			path, kind, encoding string
			body                 []byte
			version              int
		}{
			"connect":              {"LeaseService/Claim", "application/proto", "Content-Encoding", packed, 1},
			"connect, json":        {"LeaseService/Claim", "application/json", "Content-Encoding", text, 1},
			"connect over HTTP/2":  {"KeyValueService/Put", "application/proto", "Content-Encoding", packed, 2},
			"a transaction":        {"TransactionService/Txn", "application/proto", "Content-Encoding", packed, 2},
			"a stream of connect":  {"LeaseService/Watch", "application/connect+proto", "Connect-Content-Encoding", envelope(packed), 2},
			"gRPC":                 {"LeaseService/Claim", "application/grpc+proto", "Grpc-Encoding", envelope(packed), 2},
			"gRPC-Web":             {"LeaseService/Claim", "application/grpc-web+proto", "Grpc-Encoding", envelope(packed), 1},
			"Join, for everybody":  {"ClusterService/Join", "application/proto", "Content-Encoding", packed, 1},
			"a watch over gRPC":    {"KeyValueService/Watch", "application/grpc+proto", "Grpc-Encoding", envelope(packed), 2},
			"events of the member": {"ClusterService/Events", "application/grpc+proto", "Grpc-Encoding", envelope(packed), 2},
		} {
			var protocols http.Protocols
			protocols.SetHTTP1(tt.version == 1)
			protocols.SetHTTP2(tt.version == 2)
			transport := &http.Transport{TLSClientConfig: anyTLS(), Protocols: &protocols, DisableCompression: true}
			for range 5 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/incumbent.v1."+tt.path, bytes.NewReader(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", tt.kind)
				req.Header.Set(tt.encoding, "gzip")
				req.Header.Set("Connect-Protocol-Version", "1")
				if token != "" {
					req.Header.Set("Authorization", "Bearer "+token)
				}
				res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
				if err != nil {
					if token == "" && !errors.Is(err, context.DeadlineExceeded) {
						continue // it was closed while the body was still sent
					}
					t.Errorf("%s: %v", name, err)
					continue
				}
				answer, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if strings.HasPrefix(name, "a stream") && len(answer) > 5 && answer[0]&1 != 0 {
					z, err := gzip.NewReader(bytes.NewReader(answer[5:]))
					if err != nil {
						t.Fatal(err)
					}
					answer, _ = io.ReadAll(z)
				}
				said := fmt.Sprint(res.StatusCode, res.Header, res.Trailer, string(answer))
				switch {
				case token != "" || strings.HasPrefix(name, "Join"):
					if !strings.Contains(said, "is over") {
						t.Errorf("%s: %.300q, want that it is too large", name, said)
					}
				case !strings.Contains(said, "anonymous"):
					t.Errorf("%s: a stranger is told %.300q", name, said)
				}
			}
			transport.CloseIdleConnections()
		}
	}
	if after := g.memory(t); after > before+mostUnderBombs {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
}

// Frames whose payload is compressed are refused by every door with WebSockets, which
// agree on no extension: there is nothing to inflate.
func TestG47_WebSocketsInflateNothing(t *testing.T) {
	g := startGuarded(t)
	for _, url := range []string{"wss://" + g.address + "/v1/stream", "wss://" + g.juju + "/model/" + jujuModel + "/api"} {
		d := ws.Dialer{
			TLSConfig: anyTLS(), Timeout: patience,
			Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + g.operator}, "Sec-WebSocket-Extensions": {"permessage-deflate; client_max_window_bits"}},
		}
		conn, _, hs, err := d.Dial(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if len(hs.Extensions) > 0 {
			t.Errorf("%s: %v were agreed on", url, hs.Extensions)
		}
		f := ws.MaskFrame(ws.NewFrame(ws.OpText, true, bytes.Repeat([]byte{1}, 100)))
		f.Header.Rsv = ws.Rsv(true, false, false)
		if err := ws.WriteFrame(conn, f); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		got, err := frameOf(conn)
		if err != nil || got.OpCode != ws.OpClose {
			t.Errorf("%s: %v, %v, want the end", url, got, err)
		}
	}
}

// frameOf reads a frame and throws its payload away.
func frameOf(from io.Reader) (ws.Header, error) {
	h, err := ws.ReadHeader(from)
	if err == nil {
		_, err = io.CopyN(io.Discard, from, h.Length)
	}
	return h, err
}

// h2 is a connection of HTTP/2 whose frames are written by hand.
type h2 struct {
	t    *testing.T
	conn net.Conn
}

const (
	h2Data         = 0x0
	h2Headers      = 0x1
	h2Reset        = 0x3
	h2Settings     = 0x4
	h2Ping         = 0x6
	h2GoAway       = 0x7
	h2Continuation = 0x9

	h2EndStream  = 0x1
	h2EndHeaders = 0x4
)

func dialH2(t *testing.T, address string) *h2 {
	t.Helper()
	cfg := anyTLS()
	cfg.NextProtos = []string{"h2"}
	d := tls.Dialer{Config: cfg}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	h := &h2{t, conn}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := h.write(h2Settings, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *h2) write(kind, flags byte, stream uint32, payload []byte) error {
	_, err := h.conn.Write(h2Frame(kind, flags, stream, payload))
	return err
}

func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(bigendian.BigEndian.AppendUint32(b, stream), payload...)
}

// request is the header block of a GET, by HPACK without a table.
func h2Request(path string) []byte {
	b := []byte{0x82, 0x87, 0x04, byte(len(path))} // GET, https, the path literally
	b = append(b, path...)
	return append(b, 0x01, 4, 't', 'e', 's', 't') // the authority
}

// Floods of HTTP/2 end with the end of their connection, or are answered at the
// pace at which the answers are read; the server's memory stays where it is, and
// others are served meanwhile. The bounds are those of Go's library.
func TestG47_FloodsOfHTTP2AreBounded(t *testing.T) {
	g := startGuarded(t)
	code, _ := g.asOperator(t, "/")
	if code != http.StatusOK {
		t.Fatal(code)
	}
	before := g.memory(t)
	const frames = 200_000
	junk := bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 800) // literal fields
	for name, flood := range map[string]func(i uint32) []byte{
		"resets": func(i uint32) []byte {
			return append(h2Frame(h2Headers, h2EndHeaders|h2EndStream, 2*i+1, h2Request("/livez")), h2Frame(h2Reset, 0, 2*i+1, []byte{0, 0, 0, 8})...)
		},
		"settings": func(uint32) []byte { return h2Frame(h2Settings, 0, 0, nil) },
		"pings":    func(uint32) []byte { return h2Frame(h2Ping, 0, 0, make([]byte, 8)) },
		"continuations": func(i uint32) []byte {
			if i == 0 {
				return h2Frame(h2Headers, 0, 1, h2Request("/livez"))
			}
			return h2Frame(h2Continuation, 0, 1, junk)
		},
		"streams": func(i uint32) []byte { return h2Frame(h2Headers, h2EndHeaders, 2*i+1, h2Request("/readyz")) },
		"empty frames": func(i uint32) []byte {
			if i == 0 {
				return h2Frame(h2Headers, h2EndHeaders, 1, h2Request("/readyz"))
			}
			return h2Frame(h2Data, 0, 1, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := dialH2(t, g.address)
			// Nothing is read: what the server would answer has nowhere to go.
			_ = h.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
			sent := uint32(0)
			var err error
			for batch := []byte{}; sent < frames && err == nil; sent++ {
				batch = append(batch, flood(sent)...)
				if len(batch) > 64<<10 {
					_, err = h.conn.Write(batch)
					batch = batch[:0]
				}
			}
			t.Logf("%d frames, then %v", sent, err)
			if code, _ := g.asOperator(t, "/"); code != http.StatusOK {
				t.Errorf("meanwhile: %d", code)
			}
		})
	}
	if after := g.memory(t); after > before+mostGrowth {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
}

// h2Call is a POST with a body, over one stream.
func h2Call(stream uint32, path, token string, body []byte) []byte {
	b := []byte{0x83, 0x86} // POST, http
	for _, f := range [][2]string{{":path", path}, {":authority", "127.0.0.1"}, {"content-type", "application/proto"}, {"authorization", "Bearer " + token}} {
		b = append(b, 0x00, byte(len(f[0])))
		b = append(append(append(b, f[0]...), byte(len(f[1]))), f[1]...)
	}
	return append(h2Frame(h2Headers, h2EndHeaders, stream, b), h2Frame(h2Data, h2EndStream, stream, body)...)
}

// A client that lets nothing be sent over its streams has the answers kept over each of
// them: four megabytes over some hundred streams were as much memory as that for half a
// minute, for each of its connections. Others are served meanwhile, and keep what they hold.
func TestG39_AnswersThatNobodyReadsAreBounded(t *testing.T) {
	const connections, streams, values = 2, 200, 8
	p := startPeople(t)
	alice, bob := p.as(t, "alice"), p.as(t, "bob")
	txn := &apiv1.TxnRequest{}
	for i := range values {
		key := fmt.Sprintf("large/%d", i)
		_, err := alice.Keys().Put(t.Context(), connect.NewRequest(&apiv1.PutRequest{Key: key, Value: bytes.Repeat([]byte{1}, 500<<10)}))
		mustDo(t, "store "+key, err)
		txn.Then = append(txn.Then, &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Get{Get: &apiv1.GetKeyRequest{Key: key}}})
	}
	body, err := proto.Marshal(txn)
	mustDo(t, "encode", err)
	held := mustClaim(t, bob, "held", "bob", time.Minute)
	before := p.memory(t)
	for range connections {
		c := dialPlain(t, strings.TrimPrefix(p.url, "http://"))
		_ = c.SetDeadline(time.Now().Add(patience))
		batch := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		batch = append(batch, h2Frame(h2Settings, 0, 0, []byte{0, 4, 0, 0, 0, 0})...) // the window of each stream: nothing
		for i := range uint32(streams) {
			batch = append(batch, h2Call(2*i+1, "/incumbent.v1.TransactionService/Txn", p.tokens["alice"], body)...)
		}
		if _, err := c.Write(batch); err != nil {
			t.Fatal(err)
		}
		// Each stream is answered: by the beginning of an answer that goes no further.
		answered := 0
		for answered < streams {
			var head [9]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				t.Fatalf("after %d answers: %v", answered, err)
			}
			if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
				t.Fatal(err)
			}
			if head[3] == h2Headers {
				answered++
			}
		}
	}
	if after := p.memory(t); after > before+mostUnread {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
	mustClaim(t, bob, "another", "bob", time.Minute)
	if over := extendAll(t, bob, []*apiv1.Extension{{Token: held.Token}}); len(over) > 0 {
		t.Errorf("what is held is lost: %v", over)
	}
}

// mostUnread is what a server may grow by for answers that nobody reads, in MiB: what the
// door keeps of one principal's, and as much again for its garbage collector.
const mostUnread = 600

// Handshakes that never end, in either protocol, and a client that wants the
// handshake anew.
func TestG47_DribbledHandshakesEnd(t *testing.T) {
	g := startGuarded(t)
	for _, address := range []string{g.address, g.juju} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// A byte now and then does not prolong it.
		ended := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, c); close(ended) }()
		tick := time.NewTicker(500 * time.Millisecond)
		end := time.After(patience)
		for i, over := 0, false; !over; i++ {
			select {
			case <-tick.C:
				_, _ = c.Write([]byte{halfHello[i%len(halfHello)]}) // the end is told by the read
			case <-ended:
				over = true
			case <-end:
				t.Fatalf("%s: it goes on", address)
			}
		}
		tick.Stop()
	}
}

// What is behind a body of which a proxy may see the end elsewhere is not taken for a
// request, at either door that speaks HTTP: the connection ends first. So it does for whoever
// speaks HTTP/2 where nobody does, and for trailers without end.
func TestG12_NothingIsSmuggledBehindABody(t *testing.T) {
	p := startPeople(t)
	native := strings.TrimPrefix(p.url, "http://")
	const next = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	ends := func(name, address, request string) {
		t.Helper()
		c := dialPlain(t, address)
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, request); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s, %s: it goes on: %v", address, name, err)
		}
		if n := bytes.Count(answer, []byte("HTTP/1.1 ")) + bytes.Count(answer, []byte("HTTP/1.0 ")); n > 1 {
			t.Errorf("%s, %s: %d answers: %q", address, name, n, answer)
		}
	}
	for _, address := range []string{native, p.consul} {
		path := map[string]string{native: "/incumbent.v1.LeaseService/Get", p.consul: "/v1/kv/x"}[address]
		head := "POST " + path + " HTTP/1.%d\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + p.tokens["alice"] + "\r\n%s\r\n"
		for name, h := range map[string]struct {
			minor  int
			header string
			body   string
		}{
			"a length beside chunks":  {1, fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", 5+len(next)), "0\r\n\r\n"},
			"chunks before a length":  {1, fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n", 5+len(next)), "0\r\n\r\n"},
			"chunks of HTTP/1.0":      {0, "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(next), next)},
			"two lengths":             {1, fmt.Sprintf("Content-Length: 2\r\nContent-Length: %d\r\n", 2+len(next)), "{}"},
			"a space behind the name": {1, fmt.Sprintf("Content-Length : 2\r\nContent-Length: %d\r\n", 2+len(next)), "{}"},
			"two encodings":           {1, "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"},
			"trailers without end":    {1, "Transfer-Encoding: chunked\r\n", "0\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 4000)},
		} {
			ends(name, address, fmt.Sprintf(head, h.minor, h.header)+h.body+next)
		}
	}
	ends("HTTP/2", p.consul, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+string(bytes.Repeat(h2Frame(h2Settings, 0, 0, nil), 1000)))
	ends("HTTP/2 by an upgrade", native, "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
}

// Who sends nothing but pings, and reads nothing, is not read any more for a while, or ends; and
// whoever only ends their side is not kept.
func TestG47_PingsWaitAndHalvesOfConnectionsEnd(t *testing.T) {
	const sending, most = 5 * time.Second, 40 << 20 // what the kernel takes for a socket at the most, and some
	g := startGuarded(t)
	before := g.memory(t)
	dial := func(url string) (net.Conn, error) {
		d := ws.Dialer{TLSConfig: anyTLS(), Timeout: patience, Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + g.operator}}}
		c, _, _, err := d.Dial(t.Context(), url)
		return c, err
	}
	for name, open := range map[string]func() net.Conn{
		"native": func() net.Conn {
			c, err := dial("wss://" + g.address + "/v1/stream")
			mustDo(t, "a stream", err)
			return c
		},
		"juju": func() net.Conn { return newUnit(t, g.juju, "unit-app-0", g.password).conn },
	} {
		c := open()
		_ = c.SetWriteDeadline(time.Now().Add(sending))
		pings := bytes.Repeat(ws.MustCompileFrame(ws.MaskFrame(ws.NewPingFrame(make([]byte, 125)))), 1000)
		var err error
		sent := 0
		for ; err == nil && sent < most; sent += len(pings) {
			_, err = c.Write(pings)
		}
		if err == nil {
			t.Errorf("%s: %d bytes of pings are taken", name, sent)
		}
		c.Close()
		half := open()
		if err := half.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_ = half.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, half); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: half a connection is kept", name)
		}
		half.Close()
	}
	if after := g.memory(t); after > before+mostGrowth {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
}

// A WebSocket's message in more fragments than anybody needs, and one without end.
func TestG47_FragmentsAreBounded(t *testing.T) {
	g := startGuarded(t)
	before := g.memory(t)
	for _, size := range []int{0, 1 << 10} {
		d := ws.Dialer{TLSConfig: anyTLS(), Timeout: patience, Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + g.operator}}}
		conn, _, _, err := d.Dial(t.Context(), "wss://"+g.address+"/v1/stream")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		u := newUnit(t, g.juju, "unit-app-0", g.password)
		for _, c := range []struct {
			conn io.ReadWriter
			op   ws.OpCode
		}{{conn, ws.OpBinary}, {u.conn, ws.OpText}} {
			for i := 0; i < 100_000; i++ {
				op := ws.OpContinuation
				if i == 0 {
					op = c.op
				}
				if err := ws.WriteFrame(c.conn, ws.MaskFrame(ws.NewFrame(op, false, make([]byte, size)))); err != nil {
					break
				}
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			_ = u.conn.SetReadDeadline(time.Now().Add(patience))
			for {
				f, err := frameOf(c.conn)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("fragments of %d bytes are taken without end", size)
				}
				if err != nil || f.OpCode == ws.OpClose {
					break
				}
			}
		}
	}
	if after := g.memory(t); after > before+mostGrowth {
		t.Errorf("%d MiB at most, were %d", after, before)
	}
}

// Texts that a terminal would obey are refused where they come in.
func TestG47_TextsThatATerminalObeysAreRefused(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	c := m.client()
	l := mustClaim(t, c, "db", "me", time.Hour)
	post := func(path string, msg proto.Message) (int, string) {
		t.Helper()
		body, err := proto.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+"/incumbent.v1."+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/proto")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	code, text := post("SessionService/OpenSession", &apiv1.OpenSessionRequest{TtlMs: 60_000})
	var opened apiv1.OpenSessionResponse
	if code != http.StatusOK || proto.Unmarshal([]byte(text), &opened) != nil {
		t.Fatalf("open a session: %d %s", code, text)
	}
	for _, bad := range []string{"a\nb", "a\x1b[2J", "a\u202eb", "a\u009b31m", "a\x7f", "a\tb", "a\u200bb", "a\rb"} {
		for path, msg := range map[string]proto.Message{
			"LeaseService/Claim":          &apiv1.ClaimRequest{Name: &apiv1.LeaseName{Name: "x"}, Holder: bad, TtlMs: 60_000},
			"LeaseService/Get":            &apiv1.GetRequest{Name: &apiv1.LeaseName{Name: bad}},
			"LeaseService/Revoke":         &apiv1.RevokeRequest{Name: l.Name, By: bad, Force: true},
			"LeaseService/Pin":            &apiv1.PinRequest{Name: l.Name, Entity: bad},
			"SessionService/CloseSession": &apiv1.CloseSessionRequest{Id: opened.GetSession().GetId(), Reason: bad},
		} {
			code, text := post(path, msg)
			if code != http.StatusBadRequest {
				t.Errorf("%s with %q: %d %s", path, bad, code, text)
			}
			if strings.ContainsAny(text, "\x1b\x7f\n\r") || strings.Contains(text, "\u202e") {
				t.Errorf("%s with %q: the error shows it: %q", path, bad, text)
			}
		}
	}
	if code, text := post("LeaseService/Revoke", &apiv1.RevokeRequest{Name: l.Name, By: "the disk of host-3 is full (Größe)", Force: true}); code != http.StatusOK {
		t.Errorf("a reason with spaces: %d %s", code, text)
	}
}
