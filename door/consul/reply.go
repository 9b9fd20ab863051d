package consul

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
)

// retryAfter is the Retry-After of who is to stay away for some time at least: whole seconds, as the
// header has them, and up to two more. Most hints are a part of a second, so that without these who
// is refused at the same time would come back at the same time.
func (d *Door) retryAfter(least time.Duration) string {
	return strconv.Itoa(int((least+time.Second-1)/time.Second) + int(3*d.jitter()))
}

// refusalReply is the answer to what is no request.
func (d *Door) refusalReply(bad *refusal) []byte {
	more := ""
	if bad == bodiesFull {
		more = "\r\nRetry-After: " + d.retryAfter(time.Second)
	}
	return []byte("HTTP/1.1 " + strconv.Itoa(bad.status) + " " + http.StatusText(bad.status) +
		"\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close" + more + "\r\n\r\n" + bad.text)
}

// takesGzip reports whether an Accept-Encoding header takes gzip.
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name = strings.TrimSpace(name); name != "gzip" && name != "*" {
			continue
		}
		value, weighs := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		q, err := strconv.ParseFloat(value, 64)
		return !weighs || err == nil && q > 0
	}
	return false
}

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // of a known level there is no error
	return w
}}

// gzipped compresses bytes.
func gzipped(b []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(b)/4 + 64)
	w := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // nothing else is put in
	w.Reset(&out)
	_, _ = w.Write(b) // a buffer takes everything
	_ = w.Close()
	compressors.Put(w)
	return out.Bytes()
}

func formatIndex(i incumbent.Index) string { return strconv.FormatUint(uint64(max(i, 1)), 10) }

// appendHead appends the head of the answer to a body of n bytes; negative: they are not
// known.
func (r *request) appendHead(b []byte, status int, n int) []byte {
	b = append(b, "HTTP/1.1 "...)
	if r.http10 {
		b = append(b[:0], "HTTP/1.0 "...)
	}
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
	for i := 0; i < len(r.extra); i += 2 {
		b = appendHeader(b, r.extra[i], r.extra[i+1])
	}
	if !r.bare {
		b = append(b, "Vary: Accept-Encoding\r\nX-Consul-Default-Acl-Policy: "...)
		b = append(append(b, r.door.defaultPolicy()...), "\r\n"...)
	}
	b = append(b, "Date: "...)
	b = r.door.now().UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\n"...)
	switch {
	case n >= 0:
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(n), 10), "\r\n"...)
	case !r.http10:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	switch {
	case r.ends() || n < 0 && r.http10:
		b = append(b, "Connection: close\r\n"...)
	case r.http10:
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return append(b, "\r\n"...)
}

func appendHeader(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, oneLine(value)...), "\r\n"...)
}

// oneLine keeps a value from beginning another header.
func oneLine(v string) string {
	if isText(v) {
		return v
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, v)
}

// send sends the answer: body may be shared with other answers, and is never changed.
func (r *request) send(status int, body []byte) {
	idle := r.bare || r.absent
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMethodNotAllowed:
		idle = true
	}
	r.giveBack(idle) // now that the outcome is there, whether or not somebody waits for it
	if r.done.Swap(true) {
		return // the connection is gone, or this is a second answer
	}
	r.door.counts.answered(r, status, len(body), r.door.now().Sub(r.began))
	if idle {
		r.spent = r.came + admit.MessageBytes
	}
	p := r.conn.parked.Load()
	head := r.appendHead(make([]byte, 0, 512), status, len(body))
	if r.method == http.MethodHead {
		body = nil
	}
	first := body[:min(len(body), sendBytes)]
	var err error
	if len(first) == 0 {
		err = p.Send(head)
	} else {
		err = p.Send(head, first)
	}
	if err != nil {
		return // Closed follows
	}
	rest := body[len(first):]
	if len(rest) > 0 {
		r.conn.expect(p, len(body))
	}
	r.sendRest(rest)
}

// sendRest sends what is left of a body a piece at a time: the next one when the client
// has taken the one before.
func (r *request) sendRest(body []byte) {
	p := r.conn.parked.Load()
	for len(body) > 0 {
		if p.WhenDrained(func() { r.door.work.Put(func() { r.sendRest(body) }) }) {
			return
		}
		piece := body[:min(len(body), sendBytes)]
		if p.Send(piece) != nil {
			return
		}
		body = body[len(piece):]
	}
	r.conn.answered(p, r, !r.ends())
}

// ends reports whether the connection ends with the answer.
func (r *request) ends() bool { return !r.keepAlive || r.leaving.Load() }
