package consul

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// A refusal whose hint is 1.2 s says 2 s at once, and 1 s once it was held back.
const (
	hinted    = 1200 * time.Millisecond
	heldSays  = "1"
	hastySays = "2"
	soon      = 20 * time.Millisecond // longer than anything takes that waits for nothing
)

// startRude returns a member, within a bubble, whose lanes refuse all but what is critical
// once they are shut, and always with the same hint.
func startRude(t *testing.T) (m *member, shut func(bool)) {
	t.Helper()
	lanes, err := admit.New(admit.Limits{Retry: hinted, MaxRetry: hinted}, func() float64 { return 0.5 })
	if err != nil {
		t.Fatal(err)
	}
	m = startPiped(t, func(c *Config) { c.Admission = lanes })
	m.door.jitter = func() float64 { return 0 } // nothing is added to the hint
	return m, func(on bool) {
		lanes.SetMemory(0, 1)
		if on {
			lanes.SetMemory(2, 1)
		}
	}
}

func head(method, path, more string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n"
}

// holds fails unless the door holds so many refusals back.
func (m *member) holds(n int) {
	m.tb.Helper()
	synctest.Wait()
	if got := m.door.held.Len(); got != n {
		m.tb.Errorf("%d refusals are held back, want %d", got, n)
	}
	if n == 0 && m.door.HeldBackBytes() != 0 {
		m.tb.Errorf("%d bytes are kept of nothing", m.door.HeldBackBytes())
	}
}

// A refusal is told after a part of its hint, with the rest, however much of the request
// has come; what extends a lease is refused at once.
func TestG41_ARefusalIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, shut := startRude(t)
		for _, tt := range []struct {
			name    string
			request []string // in pieces
			status  int
			ends    bool
			atOnce  bool
		}{
			{"read", []string{head("GET", "/v1/kv/a", "")}, http.StatusTooManyRequests, false, false},
			{"blocking read", []string{head("GET", "/v1/kv/a?index=1", "")}, http.StatusTooManyRequests, false, false},
			{"read that is the last", []string{head("GET", "/v1/kv/a", "Connection: close\r\n")}, http.StatusTooManyRequests, true, false},
			{"change", []string{head("PUT", "/v1/kv/a", "Content-Length: 3\r\n") + "abc"}, http.StatusServiceUnavailable, false, false},
			{"change of which more comes", []string{head("PUT", "/v1/kv/a", "Content-Length: 6\r\n"), "ab", "cdef"}, http.StatusServiceUnavailable, false, false},
			{"change that waits", []string{head("PUT", "/v1/kv/a", "Content-Length: 3\r\nExpect: 100-continue\r\n")}, http.StatusServiceUnavailable, true, false},
			{"change in chunks", []string{head("PUT", "/v1/kv/a", "Transfer-Encoding: chunked\r\n"), "3\r\nabc", "\r\n0\r\n\r\n"}, http.StatusServiceUnavailable, true, false},
			{"change in what are no chunks", []string{head("PUT", "/v1/kv/a", "Transfer-Encoding: chunked\r\n"), "no chunk\r\n"}, http.StatusServiceUnavailable, true, false},
			{"extension", []string{head("PUT", "/v1/session/renew/01234567-0123-0123-0123-0123456789ab", "")}, http.StatusServiceUnavailable, false, true},
		} {
			shut(true)
			c := m.dial()
			began := time.Now()
			for _, piece := range tt.request {
				c.write(piece)
			}
			want, says := admit.HeldBackFor, heldSays
			if tt.atOnce {
				want, says = 0, hastySays
			} else {
				m.holds(1)
				if n := m.park.Stats().HeldBytes; n != 0 {
					t.Errorf("%s: %d bytes of it are kept unread", tt.name, n)
				}
			}
			a := c.read("")
			if took := time.Since(began); took < want || took > want+soon {
				t.Errorf("%s: answered after %v, want %v", tt.name, took, want)
			}
			if a.StatusCode != tt.status || a.Close != tt.ends || a.Header.Get("Retry-After") != says {
				t.Errorf("%s: %s, ends: %v, Retry-After %q", tt.name, a.Status, a.Close, a.Header.Get("Retry-After"))
			}
			m.holds(0)
			if tt.ends {
				c.ended()
				continue
			}
			shut(false)
			began = time.Now()
			c.write(head("PUT", "/v1/kv/b", "Content-Length: 1\r\n") + "x")
			if a := c.read(""); a.StatusCode != http.StatusOK || time.Since(began) > soon {
				t.Errorf("%s: the next request: %s after %v", tt.name, a.Status, time.Since(began))
			}
		}
	})
}

// Who asks again at once does so four times a second.
func TestG41_WhoAsksAgainAtOnceIsSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, shut := startRude(t)
		shut(true)
		const long = 3 * time.Second
		const most = int(long / admit.HeldBackFor)
		for name, request := range map[string]string{
			"reads":   head("GET", "/v1/health/service/web", ""),
			"changes": head("PUT", "/v1/kv/a", "Content-Length: 3\r\n") + "abc",
		} {
			c, asked := m.dial(), 0
			for began := time.Now(); time.Since(began) < long && asked <= most; asked++ {
				c.write(request)
				c.read("")
			}
			if asked > most || asked < most/2 {
				t.Errorf("%s: %d in %v, want %d", name, asked, long, most)
			}
		}
	})
}

// No more is held back than is bounded, by number and by bytes: the next one is told at once.
func TestG39_WhatIsHeldBackIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		query int // bytes of each
		most  int
	}{
		"requests": {0, admit.MaxHeldBack},
		"bytes":    {60 << 10, admit.MaxHeldBackBytes / (60<<10 + len("/v1/kv/a?"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, shut := startRude(t)
				shut(true)
				request := head("GET", "/v1/kv/a?"+strings.Repeat("x", tt.query), "")
				var all []*client
				for i := range tt.most {
					c := m.dial()
					c.write(request)
					all = append(all, c)
					if i%64 == 0 { // more that have not been looked at would be turned away
						synctest.Wait()
					}
				}
				m.holds(tt.most)
				began := time.Now()
				c := m.dial()
				c.write(request)
				if a := c.read(""); a.Header.Get("Retry-After") != hastySays || time.Since(began) > soon {
					t.Errorf("beyond the bound: Retry-After %q after %v", a.Header.Get("Retry-After"), time.Since(began))
				}
				for _, c := range all {
					if a := c.read(""); a.Header.Get("Retry-After") != heldSays {
						t.Fatalf("Retry-After %q", a.Header.Get("Retry-After"))
					}
				}
				m.holds(0)
			})
		})
	}
}

// Nothing is left of what was held back when its connection closes, and a member that
// leaves tells it at once.
func TestG39_WhatIsHeldBackEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, shut := startRude(t)
		shut(true)
		began := time.Now()
		for name, request := range map[string]string{
			"read":                       head("GET", "/v1/kv/a", ""),
			"change":                     head("PUT", "/v1/kv/a", "Content-Length: 3\r\n") + "abc",
			"change of which more comes": head("PUT", "/v1/kv/a", "Content-Length: 300\r\n"),
		} {
			c := m.dial()
			c.write(request)
			m.holds(1)
			c.conn.Close()
			m.holds(0)
			if n := m.door.Parked(); n != 0 {
				t.Errorf("%s: %d connections are left", name, n)
			}
		}
		if time.Since(began) > soon {
			t.Errorf("that took %v", time.Since(began))
		}
		time.Sleep(admit.HeldBackFor) // what was to be told then is not
		m.holds(0)

		c := m.dial()
		began = time.Now()
		c.write(head("GET", "/v1/kv/a", ""))
		m.holds(1)
		m.door.Drain()
		if a := c.read(""); a.StatusCode != http.StatusTooManyRequests || !a.Close || time.Since(began) > soon {
			t.Errorf("of a member that leaves: %s, closes: %v, after %v", a.Status, a.Close, time.Since(began))
		}
		c.ended()
		m.holds(0)
	})
}

// Requests that are sent behind one that is held back are answered behind it, in order.
func TestWhatIsHeldBackIsAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, shut := startRude(t)
		m.group.Do(&kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: m.door.namespace, Name: "b"}, Value: []byte("second")})
		for name, first := range map[string][]string{
			"read":                       {head("GET", "/v1/kv/a", "")},
			"change":                     {head("PUT", "/v1/kv/a", "Content-Length: 3\r\n") + "abc"},
			"change of which more comes": {head("PUT", "/v1/kv/a", "Content-Length: 6\r\n") + "ab", "cdef"},
		} {
			shut(true)
			c := m.dial()
			began := time.Now()
			c.write(first[0])
			m.holds(1)
			shut(false)
			c.write(strings.Join(first[1:], "") + head("GET", "/v1/kv/b?raw", "") + head("GET", "/v1/kv/none", ""))
			var got []string
			for range 3 {
				a := c.read("")
				got = append(got, fmt.Sprint(a.StatusCode, " ", a.body))
			}
			if took := time.Since(began); took < admit.HeldBackFor || took > admit.HeldBackFor+soon {
				t.Errorf("%s: answered after %v", name, took)
			}
			if !strings.Contains(got[0], "rate limit") || got[1] != "200 second" || got[2] != "404 " {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}

// A read that waits is told of a change at once, whatever its lane has to say meanwhile.
func TestAReadThatWaitsIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, shut := startRude(t)
		key := kv.Key{Namespace: m.door.namespace, Name: "a"}
		was := m.group.Do(&kv.Command{Verb: kv.Put, Key: key, Value: []byte("first")})
		c := m.dial()
		c.write(head("GET", "/v1/kv/a?raw&index="+formatIndex(was.Index), ""))
		synctest.Wait()
		shut(true)
		began := time.Now()
		m.group.Do(&kv.Command{Verb: kv.Put, Key: key, Value: []byte("second")})
		a := c.read("")
		if a.body != "second" || time.Since(began) > soon {
			t.Errorf("%s %q after %v", a.Status, a.body, time.Since(began))
		}
		c.write(head("GET", "/v1/kv/a?raw&index="+a.Header.Get("X-Consul-Index"), ""))
		m.holds(1)
		if a := c.read(""); a.StatusCode != http.StatusTooManyRequests {
			t.Errorf("and waits again: %s", a.Status)
		}
	})
}
