package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// members is the list of servers and which of them is preferred now. The list only
// grows, so that a place in it stays that of the same server.
type members struct {
	list      atomic.Pointer[[]*url.URL]
	named     int                            // so many of the list were named by the user, and are always tried
	former    atomic.Pointer[map[int32]bool] // those of the others that do not belong to the cluster any more
	preferred atomic.Int32
	spread    int32 // of a client that is to spread, some number: see next
}

func (m *members) urls() []*url.URL { return *m.list.Load() }

// live is how many there are that have not left the cluster.
func (m *members) live() int { return len(m.urls()) - len(*m.former.Load()) }

func (m *members) several() bool { return m.live() > 1 }

func newMembers(servers []string) (*members, error) {
	if len(servers) == 0 {
		return nil, incumbent.Errorf(incumbent.Invalid, "no server named").WithHint("give --server or INCUMBENT_SERVER")
	}
	var urls []*url.URL
	for _, s := range servers {
		u, err := parseServer(s)
		if err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	m := &members{named: len(urls)}
	m.list.Store(&urls)
	m.former.Store(&map[int32]bool{})
	return m, nil
}

func parseServer(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, incumbent.Errorf(incumbent.Invalid, "server %q is not an http or https URL", s).
			WithHint("as in http://127.0.0.1:7600, or https:// where it has TLS")
	}
	return u, nil
}

func (m *members) current() (int32, *url.URL) {
	i := m.preferred.Load()
	return i, m.urls()[i]
}

// leave prefers the member after i, unless another caller has moved on already.
func (m *members) leave(i int32) {
	m.preferred.CompareAndSwap(i, m.next(i))
}

// next is the member after i: each is met before one is met again, but for those that have
// left the cluster. Clients that are to spread have orders of their own, or all whom a member
// leaves would go to the same one.
func (m *members) next(i int32) int32 {
	n := int32(len(m.urls()))
	step := int32(1)
	if n > 2 {
		step += m.spread % (n - 1)
	}
	for ; gcd(step, n) != 1; step++ { // n-1 will do at the latest
	}
	former := *m.former.Load()
	for range n {
		if i = (i + step) % n; !former[i] {
			break
		}
	}
	return i
}

func gcd(a, b int32) int32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// transport sends each call to the preferred member and, where that is safe,
// to the next one when a member refuses the connection or is silent.
type transport struct {
	c    *Client
	next *http.Transport
}

func newTransport(c *Client) *transport {
	return &transport{c: c, next: &http.Transport{
		TLSClientConfig:     c.tls,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1024, // as many as ask at once: what is refused comes back, over a new connection at several times the price
		IdleConnTimeout:     90 * time.Second,
		DialContext:         dialerFrom(c.cfg.Local, net.Dialer{Timeout: 5 * time.Second}),
	}}
}

// CloseIdleConnections is called by http.Client.
func (t *transport) CloseIdleConnections() { t.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := rereadable(req)
	if err != nil {
		return nil, err
	}
	safe := safetyOf(req.Context())
	var tried, last error
	for range t.c.members.live() {
		i, member := t.c.members.current()
		safe.member.Store(i)
		res, err := t.attempt(req, body, member, safe)
		if err == nil {
			return res, nil
		}
		if last = fmt.Errorf("%s: %w", member.Host, err); tried != nil {
			last = fmt.Errorf("%w; %w", tried, last) // one that is there and silent says more than one that is not
		}
		tried = last
		if req.Context().Err() != nil {
			break // the caller has given up, which says nothing about the member
		}
		t.c.members.leave(i)
		if safe.sent.Load() && !safe.repeat {
			break
		}
		if errors.Is(err, errSilent) && !t.c.budget.repeat(t.c.clock()) {
			break // a member that has too much to do is silent, too, and others get its work
		}
	}
	switch {
	case safe.sent.Load() && !safe.read:
		return nil, unknownOutcome(last)
	case req.Context().Err() != nil:
		return nil, last
	}
	return nil, incumbent.Errorf(incumbent.Unavailable, "no member answers: %w", last).WithHint(remedy(last))
}

// remedy is what may help whom no member answers: TLS where there is none, or the
// other way round, and a certificate of an authority that was not named look like a
// server that is down.
func remedy(cause error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(cause, &unknown):
		return "name the file with its authority's certificate with --ca"
	case errors.As(cause, &name):
		return "name the server as its certificate does with --server"
	case errors.As(cause, &record):
		return "nothing speaks TLS there: http:// instead of https:// with --server, or another port"
	case errors.Is(cause, errWantsTLS):
		return "https:// instead of http:// with --server"
	case errors.Is(cause, errSilent):
		return "'incumbent status' of a member that is there says why it does not answer"
	}
	return "is the server running? start one with 'incumbent server --dev', or name it with --server"
}

// attempt sends the request to one member. With several members, one that is
// silent for too long is given up, if the call may be repeated elsewhere.
func (t *transport) attempt(req *http.Request, body []byte, member *url.URL, safe *safety) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	// With a connection, the member may have the request from now on.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { safe.sent.Store(true) }})
	out := req.Clone(ctx)
	if safe.sent.Load() {
		out.Header.Del(headerFirst)
		safe.unsure.Store(true)
	}
	out.URL.Scheme, out.URL.Host, out.Host = member.Scheme, member.Host, ""
	out.URL.Path = member.Path + out.URL.Path
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	if t.c.members.several() && safe.prompt {
		silent := time.AfterFunc(t.c.cfg.SilentTimeout, func() { cancel(errSilent) })
		defer silent.Stop()
	}
	res, err := t.next.RoundTrip(out)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(cause, errSilent) {
			err = errSilent
		}
		cancel(nil)
		return nil, err
	}
	if member.Scheme == "http" && wantsTLS(res) {
		res.Body.Close()
		cancel(nil)
		safe.sent.Store(false) // what is no handshake is not looked at
		return nil, errWantsTLS
	}
	res.Body = &cancelOnClose{res.Body, func() { cancel(nil) }}
	return res, nil
}

var (
	errSilent   = errors.New("the member is silent")
	errWantsTLS = errors.New("the member speaks TLS only")
)

// wantsTLS reports whether an answer is that of net/http to whoever speaks HTTP where
// TLS is spoken: a 400 of HTTP/1.0 without any header, as no server of ours sends.
func wantsTLS(res *http.Response) bool {
	return res.StatusCode == http.StatusBadRequest && res.ProtoMajor == 1 && res.ProtoMinor == 0 && len(res.Header) == 0
}

type cancelOnClose struct {
	io.ReadCloser
	cancel func()
}

func (b *cancelOnClose) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// rereadable returns the whole body of a unary call, so that it can be sent
// again. Our calls are far smaller than the server's limit of a body.
func rereadable(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}
