package server

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
)

// At every door and for metrics, who brings what is nobody's, or comes and goes where
// nothing has to be brought, counts against the pace of those who prove nothing; who
// brings what is theirs does not.
func TestG47_WhoProvesNothingCountsAtEveryDoor(t *testing.T) {
	cfg := withJuju(t, withConsul(testConfig(t)))
	cfg.OVSDB.Listen = []string{"127.0.0.1:0"}
	s := open(t, cfg)
	failed := func() uint64 { return s.pace.Stats().Failed }
	get := func(url, header, value string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			r.Header.Set(header, value)
		}
		res, err := (&http.Transport{}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	status := func(credential string) error {
		c := dialer(t, client.Config{Servers: []string{s.URL()}, Credential: credential})
		_, err := c.Settings().Set(testContext(t), "strangers.failing", "1000")
		return err
	}
	for _, step := range []struct {
		who  string
		does func()
		more uint64
	}{
		{"an operator of this machine", func() {
			if err := status(""); err != nil {
				t.Error(err)
			}
		}, 0},
		{"a token of nobody", func() {
			if err := status("wrong"); incumbent.KindOf(err) != incumbent.Denied {
				t.Error(err)
			}
		}, 1},
		{"an upgrade with one", func() {
			if res := get(s.URL()+"/v1/stream", "Authorization", "Bearer wrong"); !res.Close {
				t.Errorf("%v, and the connection goes on", res.Status)
			}
		}, 1},
		{"metrics with one", func() {
			if res := get(s.URL()+"/metrics", "Authorization", "Bearer wrong"); !res.Close {
				t.Errorf("%v, and the connection goes on", res.Status)
			}
		}, 1},
		{"a call of somebody who shows nothing", func() { get(s.URL()+"/metrics", "X-Forwarded-For", "192.0.2.1") }, 1},
		{"an agent of Juju's", func() { jujuLogin(t, s, "unit-app-0", "unit-app-0") }, 0},
		{"a wrong password of one", func() { jujuLogin(t, s, "unit-app-0", "wrong") }, 1},
		{"a client of Consul's", func() { get("http://"+s.ConsulAddr()+"/v1/kv/none", "", "") }, 0},
		{"a token of nobody where tokens mean nothing", func() { get("http://"+s.ConsulAddr()+"/v1/kv/none", "X-Consul-Token", "wrong") }, 1},
		{"who comes and goes where nothing is to be brought", func() {
			c, err := net.Dial("tcp", s.ovsdb.gates[0].Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("{")); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}, 1},
	} {
		before := failed()
		step.does()
		until(t, step.who, func() bool { return failed() >= before+step.more })
		if more := failed() - before; more != step.more {
			t.Errorf("%s: %d failures, want %d", step.who, more, step.more)
		}
	}
}

// Who is refused for the member's own sake, be it that it cannot know their token now or that
// it has no place, does not count, nor does anybody who comes from there.
func TestG47_WhatIsRefusedForTheMembersSakeIsNoFailure(t *testing.T) {
	path, tokens := credentialFile(t, map[string]auth.Kind{"unit-1": auth.Agent})
	cfg := withConsul(testConfig(t))
	cfg.CredentialFile = path
	s := open(t, cfg)
	ask := func(over *http.Client, method, url, header, value string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(testContext(t), method, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, value)
		r.Header.Set("Content-Type", "application/json")
		res, err := over.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
		}
		return res.StatusCode
	}
	refused := func(token string, want int) {
		t.Helper()
		for _, c := range []struct{ method, path string }{
			{http.MethodGet, "/v1/stream"}, {http.MethodPost, "/incumbent.v1.LeaseService/Claim"}, {http.MethodGet, "/metrics"},
		} {
			got := ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, c.method, s.URL()+c.path, "Authorization", "Bearer "+token)
			if got != want && got != http.StatusServiceUnavailable {
				t.Errorf("%s: HTTP %d, want %d", c.path, got, want)
			}
		}
	}
	s.draining.Store(true) // it does not know a token that is new
	refused(auth.NewToken(), http.StatusServiceUnavailable)
	consul := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if got := ask(consul, http.MethodGet, "http://"+s.ConsulAddr()+"/v1/kv/none", "X-Consul-Token", auth.NewToken()); got != http.StatusInternalServerError {
		t.Errorf("Consul: HTTP %d", got)
	}
	s.draining.Store(false)
	if got := ask(web(t), http.MethodPost, s.URL()+"/incumbent.v1.LeaseService/Claim", "Authorization", "Bearer "+tokens["unit-1"]); got == http.StatusServiceUnavailable {
		t.Error("nobody is let in")
	}
	s.gate.SetMax(1) // who was let in has the only place
	refused(tokens["unit-1"], http.StatusTooManyRequests)
	until(t, "their connections are closed", func() bool { return s.gate.Stats().Unproven == 0 })
	if st := s.pace.Stats(); st.Failed != 0 || st.Failing != 0 {
		t.Errorf("%d have failed, of %d addresses", st.Failed, st.Failing)
	}
}
