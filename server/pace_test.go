package server

import (
	"net"
	"net/http"
	"testing"

	"github.com/incumbent-dev/incumbent"
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
