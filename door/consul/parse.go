package consul

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent/admit"
)

// A request is read from bytes as they come: its head when that is there whole, by
// net/http's own parser, then its body. Nothing here waits.

// refusal is a request that is not served, and after which the connection ends: where
// the next one begins is not known.
type refusal struct {
	status int
	text   string
}

var (
	badRequest   = &refusal{http.StatusBadRequest, "400 Bad Request"}
	noHost       = &refusal{http.StatusBadRequest, "400 Bad Request: missing required Host header"}
	badHost      = &refusal{http.StatusBadRequest, "400 Bad Request: malformed Host header"}
	badEncoding  = &refusal{http.StatusNotImplemented, "501 Not Implemented: Unsupported transfer encoding"}
	badVersion   = &refusal{http.StatusHTTPVersionNotSupported, "505 HTTP Version Not Supported: unsupported protocol version"}
	headTooLarge = &refusal{http.StatusRequestHeaderFieldsTooLarge, "431 Request Header Fields Too Large"}
	bodiesFull   = &refusal{http.StatusServiceUnavailable, "503 Service Unavailable: too many requests are arriving at once"}
	// bodyOfStranger answers whoever has not shown who it is and sends much.
	bodyOfStranger = &refusal{http.StatusForbidden, "Permission denied: a request of this size is taken from those who show who they are"}
	badExpect      = &refusal{http.StatusExpectationFailed, "417 Expectation Failed"}
	headEnd        = []byte("\r\n\r\n")
	continueReply  = []byte("HTTP/1.1 100 Continue\r\n\r\n")
)

// bodyTooLarge refuses a body in the words of the limits that are tighter: clients look for
// them, as Terraform does, which then sends its state in parts. of is what is known of the
// body's size.
func bodyTooLarge(of string, most int64) *refusal {
	return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("Request body%s too large, max size: %d bytes", of, most)}
}

// endOfHead returns how many bytes the head takes with the empty line behind it; 0: it
// is not there whole. looked is how many bytes are known not to have it. A bare LF ends
// a line as well, as net/http takes it.
func endOfHead(data []byte, looked int) int {
	from := max(0, looked-len(headEnd))
	for i := from; i < len(data); {
		k := bytes.IndexByte(data[i:], '\n')
		if k < 0 {
			return 0
		}
		i += k + 1
		switch rest := data[i:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 2
		}
	}
	return 0
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// readHead parses a whole head.
func readHead(head []byte) (*http.Request, *refusal) {
	in := readers.Get().(*bufio.Reader) //nolint:forcetypeassert // nothing else is put in
	in.Reset(bytes.NewReader(head))
	r, err := http.ReadRequest(in)
	in.Reset(nil)
	readers.Put(in)
	switch {
	case err != nil && strings.Contains(err.Error(), "unsupported transfer encoding"):
		return nil, badEncoding
	case err != nil:
		return nil, badRequest
	case r.ProtoMajor != 1:
		return nil, badVersion
	}
	if hosts := len(r.Header["Host"]); r.Host == "" && hosts == 0 && r.ProtoAtLeast(1, 1) && !hasHeader(head, "host") {
		return nil, noHost
	}
	// Where such a body ends a proxy before us may see differently (RFC 9112, section 6.1).
	if len(r.TransferEncoding) > 0 && hasHeader(head, "content-length") || !r.ProtoAtLeast(1, 1) && hasHeader(head, "transfer-encoding") {
		return nil, badRequest
	}
	if !isText(r.Host) {
		return nil, badHost
	}
	for name, values := range r.Header {
		if !isToken(name) {
			return nil, badRequest
		}
		for _, v := range values {
			if !isText(v) {
				return nil, badRequest
			}
		}
	}
	return r, nil
}

// isToken reports whether a text is one (RFC 9110, section 5.6.2), as names of headers
// must be: what stands before a colon behind a space, two servers read differently.
func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// isText reports whether a value has no control characters but tabs.
func isText(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// hasHeader reports whether a head has one that net/http takes out: an empty one is one.
func hasHeader(head []byte, name string) bool {
	for line := range bytes.Lines(head) {
		is, _, ok := bytes.Cut(line, []byte(":"))
		if ok && strings.EqualFold(string(is), name) {
			return true
		}
	}
	return false
}

// incoming is a request of which the head is there.
type incoming struct {
	head    *http.Request
	lines   int // bytes of it
	body    []byte
	left    int64    // of a body whose length is known
	chunks  *dechunk // of one that comes in chunks; nil: it does not
	max     int64
	waiting bool // the client waits to be told that it may go on
	unread  bool // it has been answered: what comes of the body is forgotten
	known   bool // it is known that the request is somebody's
	who     admit.Who
	counted int64 // bytes of the body that count for MaxBodies, as that one's
}

// newIncoming begins with a head.
func newIncoming(head []byte, limits *Limits) (*incoming, *refusal) {
	r, bad := readHead(head)
	if bad != nil {
		return nil, bad
	}
	in := &incoming{head: r, lines: len(head), left: max(0, r.ContentLength), max: limits.MaxBodyBytes}
	if in.left > in.max {
		return nil, bodyTooLarge(fmt.Sprintf("(%d bytes)", in.left), in.max)
	}
	if r.ContentLength < 0 {
		in.chunks = &dechunk{}
	}
	if expect := r.Header.Get("Expect"); expect != "" {
		if !strings.EqualFold(expect, "100-continue") {
			return nil, badExpect
		}
		in.waiting = r.ProtoAtLeast(1, 1) && !in.whole()
	}
	return in, nil
}

// whole reports whether the body is there.
func (in *incoming) whole() bool {
	if in.chunks != nil {
		return in.chunks.over()
	}
	return in.left == 0
}

// arrives reports whether the body is there with so many bytes behind the head.
func (in *incoming) arrives(behind int) bool { return in.chunks == nil && in.left <= int64(behind) }

// feed takes what belongs to the request, and returns how much that was.
func (in *incoming) feed(data []byte) (n int, bad *refusal) {
	if in.chunks == nil {
		n = int(min(in.left, int64(len(data))))
		if in.unread {
			in.left -= int64(n)
			return n, nil
		}
		if in.body == nil && n > 0 {
			in.body = make([]byte, 0, min(in.left, max(int64(n), 64<<10)))
		}
		in.body = append(in.body, data[:n]...)
		in.left -= int64(n)
		return n, nil
	}
	for n < len(data) && !in.chunks.over() {
		used, part, ok := in.chunks.next(data[n:])
		if !ok {
			return n, badRequest
		}
		if int64(len(in.body)+len(part)) > in.max {
			return n, bodyTooLarge("", in.max) // of which more may come
		}
		in.body = append(in.body, part...)
		if n += used; used == 0 {
			break
		}
	}
	return n, nil
}
