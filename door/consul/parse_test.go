package consul

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// parseAll reads requests from bytes that come in pieces.
func parseAll(data []byte, piece int) (all []string, bad bool) {
	limits := Limits{MaxBodyBytes: 1 << 16}.withDefaults()
	var in *incoming
	held, looked := []byte(nil), 0
	for len(data) > 0 || len(held) > 0 {
		n := min(piece, len(data))
		held, data = append(held, data[:n]...), data[n:]
		for {
			if in == nil {
				held = held[blankLines(held):]
				end := endOfHead(held, looked)
				if end == 0 {
					looked = len(held)
					break
				}
				looked = 0
				var refused *refusal
				if in, refused = newIncoming(held[:end], &limits); refused != nil {
					return all, true
				}
				held = held[end:]
			}
			used, refused := in.feed(held)
			if refused != nil {
				return all, true
			}
			if held = held[used:]; !in.whole() {
				break
			}
			all = append(all, in.head.Method+" "+in.head.URL.String()+" "+string(in.body))
			in = nil
		}
		if n == 0 {
			return all, false
		}
	}
	return all, false
}

// Whatever comes, in whichever pieces, is read the same, without a panic; and what
// net/http reads of it is read so.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a\r\nabc\r\n0\r\nA: b\r\n\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n :\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA:\x7f\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 700) + "\r\n",
		"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0;" + strings.Repeat("a", 4092) + "\r\n\r\n",
		"GET / HTTP/1.0\n\nGET / HTTP/1.0\n\n",
		"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
	} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		whole, bad := parseAll(bytes.Clone(data), len(data)+1)
		parts, partsBad := parseAll(bytes.Clone(data), int(piece)+1)
		if len(whole) != len(parts) || bad != partsBad {
			t.Fatalf("at once %q %v, in pieces %q %v", whole, bad, parts, partsBad)
		}
		in := bufio.NewReader(bytes.NewReader(data))
		for i := range whole {
			if whole[i] != parts[i] {
				t.Fatalf("at once %q, in pieces %q", whole[i], parts[i])
			}
			for b, err := in.Peek(1); err == nil && (b[0] == '\r' || b[0] == '\n'); b, err = in.Peek(1) {
				_, _ = in.ReadByte()
			}
			r, err := http.ReadRequest(in)
			if err != nil {
				t.Fatalf("net/http refuses %q: %v", whole[i], err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatalf("net/http refuses the body of %q: %v", whole[i], err)
			}
			if got := r.Method + " " + r.URL.String() + " " + string(body); got != whole[i] {
				t.Fatalf("net/http reads %q, we %q", got, whole[i])
			}
		}
	})
}

// Where the body of a request ends is not left to be guessed: a proxy that guesses
// otherwise would pass on somebody's request as part of another's.
func TestG47_BodiesWithTwoEndsAreRefused(t *testing.T) {
	m := startMember(t, nil)
	const hidden = "GET /v1/status/leader HTTP/1.1\r\nHost: a\r\n\r\n"
	for what, head := range map[string]string{
		"a length and chunks":             "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks and a length":             "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 0\n\r\n0\r\n\r\n",
		"chunks before there were any":    "PUT /v1/kv/a HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
		"another encoding as well":        "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"two lengths":                     "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 43\r\n\r\n",
		"a length that is a list":         "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 0\r\n\r\n",
		"a length with a sign":            "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: +0\r\n\r\n",
		"a space before the colon":        "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nContent-Length : 0\r\n\r\n",
		"a chunk's line that ends bare":   "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
		"a chunk's length with a sign":    "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
		"a trailer that goes on a line":   "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c: d\r\n\r\n",
		"more than a chunk's length says": "PUT /v1/kv/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
	} {
		c := m.dial()
		c.write(head + hidden)
		res, err := http.ReadResponse(c.in, nil)
		if err != nil || res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v", what, res, err)
			continue
		}
		if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != badRequest.text {
			t.Errorf("%s: then %q, %v", what, rest, err)
		}
	}
}
