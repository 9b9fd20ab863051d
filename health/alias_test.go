package health

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// TestAlias: it is as bad as the worst check of what it stands for, and of nothing else.
func TestAlias(t *testing.T) {
	s := core.New(catalog.Family{})
	check := func(node, service, id string, status catalog.Status) *catalog.Check {
		return &catalog.Check{Namespace: "default", Node: node, ID: id, Name: id, ServiceID: service, Status: status, Output: "out of " + id}
	}
	for _, node := range []string{"a", "b"} {
		c := catalog.Command{
			Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: node},
			Node:    &catalog.Node{Namespace: "default", Name: node, Address: "10.0.0.1"},
			Service: &catalog.Service{Namespace: "default", Node: node, ID: "web", Name: "web", Weights: catalog.Weights{Passing: 1, Warning: 1}},
			Checks:  []*catalog.Check{check(node, "", "serf", catalog.Passing), check(node, "web", "self", catalog.Critical)},
		}
		if node == "b" {
			c.Checks = append(c.Checks, check(node, "web", "worse", catalog.Critical), check(node, "web", "bad", catalog.Warning), check(node, "", "disk", catalog.Warning))
		}
		fine := catalog.Command{
			Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: node},
			Service: &catalog.Service{Namespace: "default", Node: node, ID: "fine", Name: "fine", Weights: catalog.Weights{Passing: 1, Warning: 1}},
		}
		results := make([]core.Result, 2)
		if s.Apply([][]byte{c.Encode(core.Meta{}), fine.Encode(core.Meta{})}, results); results[0].Err != nil || results[1].Err != nil {
			t.Fatal(results)
		}
	}
	self := Key{"default", "a", "self"}
	for _, c := range []struct {
		d    Definition
		want Outcome
	}{
		{Definition{AliasService: "web"}, Outcome{Status: Passing, Output: "All checks passing."}}, // of the node, but for itself
		{Definition{AliasNode: "a"}, Outcome{Status: Passing, Output: "All checks passing."}},
		{Definition{AliasNode: "b"}, Outcome{Status: Warning, Output: `Aliased check "disk" failing: out of disk`}},
		{Definition{AliasNode: "b", AliasService: "web"}, Outcome{Status: Critical, Output: `Aliased check "self" failing: out of self`}},
		{Definition{AliasNode: "b", AliasService: "fine"}, Outcome{Status: Warning, Output: `Aliased check "disk" failing: out of disk`}},
		{Definition{AliasNode: "b", AliasService: "none"}, Outcome{Status: Critical, Output: "Service none could not be found on node b"}},
		{Definition{AliasNode: "c"}, Outcome{Status: Critical, Output: "Node c could not be found"}},
	} {
		if got := Alias(s.View(), self, &c.d); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.d, got, c.want)
		}
		if err := c.d.Validate(); err != nil {
			t.Error(err)
		}
		if back, err := Parse(c.d.Encode()); err != nil || back.AliasNode != c.d.AliasNode || back.AliasService != c.d.AliasService {
			t.Errorf("%+v came back as %+v, %v", c.d, back, err)
		}
	}
}

// TestH2Ping: a server of HTTP/2 answers, another does not.
func TestH2Ping(t *testing.T) {
	plain := httptest.NewUnstartedServer(http.NotFoundHandler())
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	old := httptest.NewServer(http.NotFoundHandler())
	defer old.Close()
	endless, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	go func() {
		for {
			c, err := endless.Accept()
			if err != nil {
				return
			}
			frames := h2Frame(nil, h2Settings, nil)
			for range 2 * h2MaxFrames {
				frames = h2Frame(frames, h2Ping, []byte(h2Payload)) // not an answer
			}
			_, _ = c.Write(frames)
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	at := func(s *httptest.Server) string {
		return strings.TrimPrefix(strings.TrimPrefix(s.URL, "http://"), "https://")
	}
	for what, c := range map[string]struct {
		d    Definition
		want Status
	}{
		"plain":           {Definition{H2Ping: at(plain)}, Passing},
		"over TLS":        {Definition{H2Ping: at(secure), H2PingUseTLS: true, TLSSkipVerify: true}, Passing},
		"of nobody known": {Definition{H2Ping: at(secure), H2PingUseTLS: true}, Critical},
		"of HTTP/1.1":     {Definition{H2Ping: at(old)}, Critical},
		"without an end":  {Definition{H2Ping: endless.Addr().String()}, Critical},
		"plain to TLS":    {Definition{H2Ping: at(secure)}, Critical},
	} {
		c.d.Interval = time.Second
		if got := found(t, c.d); got.Status != c.want {
			t.Errorf("%s: %+v", what, got)
		}
		if back, err := Parse(c.d.Encode()); err != nil || back.H2Ping != c.d.H2Ping || back.H2PingUseTLS != c.d.H2PingUseTLS || back.Validate() != nil {
			t.Errorf("%s came back as %+v, %v", what, back, err)
		}
	}
}
