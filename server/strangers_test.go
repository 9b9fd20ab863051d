package server

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/gate"
)

// What the cluster sets for strangers holds at every listener of a server that runs,
// and of one that is started again.
func TestSettingsOfStrangersReachTheListeners(t *testing.T) {
	s := open(t, withConsul(testConfig(t)))
	const few = 40 // above the least that may be set, below the default
	crowd := func(address, says string, n int) {
		t.Helper()
		for range n {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := c.Write([]byte(says)); err != nil {
				t.Fatal(err)
			}
		}
	}
	set := func(name, value string) {
		t.Helper()
		if _, err := clientOf(t, s).Settings().Set(testContext(t), name, value); err != nil {
			t.Fatal(err)
		}
	}
	at := func(s *Server) gate.Stats { return s.gates()[nativeListener].Stats() }
	address := func(s *Server) string { return strings.TrimPrefix(s.URL(), "http://") }
	before := at(s).Unproven // of clients whose connections wait for their next call
	crowd(address(s), "G", few)
	until(t, "all that the default lets in are served", func() bool { return at(s).Unproven >= before+few })
	if st := at(s); st.Waiting > 0 {
		t.Errorf("%+v", st)
	}

	set("strangers.unproven", "16")
	bounded := func(s *Server) {
		t.Helper()
		crowd(address(s), "G", few)
		until(t, "the rest waits", func() bool {
			st := at(s)
			return st.Waiting > 0
		})
	}
	bounded(s)

	set("strangers.first-byte", "1s")
	crowd(address(s), "", 1)
	until(t, "who is silent is closed", func() bool { return at(s).Closed[gate.Silent] > 0 })
	for name, g := range s.gates() {
		if unproven, firstByte := g.Strangers(); unproven != 16 || firstByte != time.Second {
			t.Errorf("%s: %d, %v", name, unproven, firstByte)
		}
	}
	cfg := s.cfg
	cfg.Listen = "127.0.0.1:0"
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	bounded(s)
}
