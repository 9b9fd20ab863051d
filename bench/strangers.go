package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/client"
)

// Limits of strangers, and what they do.
const (
	maxSilent     = 10_000           // connections that say nothing
	maxFlooders   = 64               // clients that send what is large and proves nothing
	bombBytes     = 256 << 20        // of one request, once it is decompressed
	pieceBytes    = 1 << 20          // of which it consists
	strangerWait  = 10 * time.Second // for a dial, or an answer
	strangerPause = 5 * time.Second  // before whoever was closed comes again: what is measured is who sits, not who dials
	sitEvery      = time.Millisecond // between two of them, lest this program's own dialling be what is measured
	floodPause    = 20 * time.Millisecond
	loginEvery    = 200 * time.Millisecond
	loginWait     = 30 * time.Second
	silentAllowed = 20 * time.Second // a connection may say nothing: servers allow ten seconds at first
)

// strangerSource is where strangers come from: nobody else does.
var strangerSource = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 250)}

// strangers are clients that prove nothing: some connect and say nothing, to every
// listener, and come again when they are closed; others send compressed requests and
// wrong tokens, one after the other, or a message that never ends. Meanwhile somebody who
// may logs in again and again.
type strangers struct {
	*run
	bomb             []byte
	silent, closed   atomic.Int64 // connections opened, and closed by a server
	floods, answered atomic.Int64 // requests sent, and refused by an answer
	slow             visits
}

// strangers lets them in on some members. What it returns ends them.
func (o *ordeal) strangers(ctx context.Context, a Action, who []int) (end func(), err error) {
	s := &strangers{run: o.run}
	if s.bomb, err = bomb(); err != nil {
		return nil, err
	}
	var listeners, urls []string
	for _, i := range who {
		server := o.cluster.Servers()[i]
		u, err := url.Parse(server.URL)
		if err != nil {
			return nil, err
		}
		urls = append(urls, server.URL)
		listeners = append(append(listeners, u.Host), server.Others...)
	}
	before, began := o.rss(), o.now()
	most := peakRSS
	for _, pid := range o.meter.pids() {
		if !forgetPeak(pid) {
			most = func(pid int) uint64 { return readProcess(pid).RSS }
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range a.Silent {
		all.Go(func() {
			if sleep(ctx, time.Duration(i)*sitEvery) == nil {
				s.sit(ctx, listeners[i%len(listeners)])
			}
		})
	}
	for i := range a.Flood {
		all.Go(func() { s.flood(ctx, urls[i%len(urls)]) })
	}
	for i := range a.Slow {
		all.Go(func() {
			if sleep(ctx, time.Duration(i)*sitEvery) == nil {
				s.dribble(ctx, listeners[i%len(listeners)], slowStarts[i/len(listeners)%len(slowStarts)])
			}
		})
	}
	all.Go(func() { s.logIn(ctx, urls) })
	return func() {
		took, grown := o.now()-began, -float64(before)
		for _, pid := range o.meter.pids() {
			grown += float64(most(pid)) // what was given back meanwhile was taken, too
		}
		stop()
		all.Wait()
		s.judge(a, took)
		o.fact("strangers_listeners", float64(len(listeners)))
		o.fact("strangers_silent", float64(s.silent.Load()))
		o.fact("strangers_closed", float64(s.closed.Load()))
		o.fact("strangers_requests", float64(s.floods.Load()))
		o.fact("strangers_refused", float64(s.answered.Load()))
		o.fact("rss_grown_bytes", grown)
	}, nil
}

// judge says whether strangers did what they came for, and were treated as they are to be:
// who says nothing is closed, and whoever is known gets in.
func (s *strangers) judge(a Action, took time.Duration) {
	if n := s.silent.Load(); n < int64(a.Silent) {
		s.check.Violate("only %d of %d connections that say nothing were opened", n, a.Silent)
	}
	if took > silentAllowed && s.silent.Load() > 0 && s.closed.Load() == 0 {
		s.check.Violate("in %v no server closed a connection that says nothing", took)
	}
	if a.Slow > 0 {
		s.slow.judge(s, a.Slow)
	}
	if n := s.rec.op("login").summary().Errors; n > 0 {
		s.check.Violate("%d who are known did not get in beside strangers", n)
	}
}

// bomb is a request that is small until it is decompressed: the same compressed
// megabyte again and again, which is one stream to whoever reads it.
func bomb() ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(make([]byte, pieceBytes)); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return bytes.Repeat(b.Bytes(), bombBytes/pieceBytes), nil
}

// sit keeps a connection open that says nothing.
func (s *strangers) sit(ctx context.Context, address string) {
	d := net.Dialer{LocalAddr: strangerSource, Timeout: strangerWait}
	for ctx.Err() == nil {
		c, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			s.silent.Add(1)
			stop := context.AfterFunc(ctx, func() { c.Close() })
			_, _ = io.Copy(io.Discard, c) // until somebody closes it
			stop()
			c.Close()
			if ctx.Err() == nil {
				s.closed.Add(1)
			}
		}
		_ = sleep(ctx, strangerPause)
	}
}

// flood sends what is large, and what proves nothing, by turns. Being let do anything
// is a violation.
func (s *strangers) flood(ctx context.Context, server string) {
	transport := &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: strangerSource, Timeout: strangerWait}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a stranger trusts everybody
	}
	defer transport.CloseIdleConnections()
	c := http.Client{Transport: transport, Timeout: strangerWait}
	for n := 0; ctx.Err() == nil; n++ {
		body, compressed := []byte(`{"name":{"name":"stranger"},"holder":"stranger","ttl_ms":10000}`), n%2 == 0
		if compressed {
			body = s.bomb
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/incumbent.v1.LeaseService/Claim", bytes.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer of-nothing")
		if compressed {
			r.Header.Set("Content-Encoding", "gzip")
		}
		s.floods.Add(1)
		resp, err := c.Do(r)
		if err != nil {
			_ = sleep(ctx, floodPause)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body) // of no interest
		resp.Body.Close()
		if s.answered.Add(1); resp.StatusCode < http.StatusBadRequest {
			s.check.Violate("a stranger's claim was answered with %s", resp.Status)
		}
	}
}

// logIn has somebody known connect and ask, on a connection of its own each time.
func (s *strangers) logIn(ctx context.Context, urls []string) {
	op := s.rec.op("login")
	for i := 0; ctx.Err() == nil; i++ {
		_ = s.timed(ctx, op, func() error { return s.logInOnce(ctx, urls[i%len(urls)]) }) // counted
		_ = sleep(ctx, loginEvery)
	}
}

func (s *strangers) logInOnce(ctx context.Context, server string) error {
	cfg := s.cluster.Client()
	cfg.Servers = []string{server}
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	_, err = statusOf(ctx, c)
	return err
}
