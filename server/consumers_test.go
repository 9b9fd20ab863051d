package server

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// What takes memory beside the state is shown with its bound; a message to the OVSDB door
// that has not come whole is, beyond what each connection has, for as long as it has not.
func TestConsumersAreShownWithTheirBounds(t *testing.T) {
	s, path := commanded(t, nil)
	used := func(name string) int64 {
		for _, l := range s.consumerLimits() {
			if l.GetName() == name {
				return int64(l.GetUsed())
			}
		}
		t.Fatalf("status does not show %q", name)
		return 0
	}
	for _, l := range s.consumerLimits() {
		if l.GetValue() == 0 || l.GetUsed() > l.GetValue() || l.GetUnit() != "bytes" {
			t.Errorf("%+v", l)
		}
	}
	c, err := net.Dial("unix", filepath.Join(filepath.Dir(path), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const name, begins, own, beyond = "messages to OVSDB", `{"method":"echo","params":["`, 64 << 10, 1000
	if _, err := c.Write([]byte(begins + strings.Repeat("x", own+beyond-len(begins)))); err != nil {
		t.Fatal(err)
	}
	until(t, "half a message is shown", func() bool { return used(name) == beyond })
	if _, err := c.Write([]byte(`"],"id":1}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing is", func() bool { return used(name) == 0 })
	for _, name := range []string{"refused calls held back", "incomplete bodies of calls", "frames waiting for one member"} {
		if n := used(name); n != 0 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

// The body of a request to Consul's API that has not come whole is shown as well, and what
// is held back there.
func TestIncompleteBodiesAreShown(t *testing.T) {
	const bodies, own, beyond = "incomplete bodies to Consul's API", 64 << 10, 1000
	s := open(t, withConsul(testConfig(t)))
	used := func(name string) uint64 {
		for _, l := range s.consumerLimits() {
			if l.GetName() == name && l.GetValue() > 0 {
				return l.GetUsed()
			}
		}
		t.Fatalf("status does not show %s", name)
		return 0
	}
	c, err := net.Dial("tcp", s.ConsulAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	head := fmt.Sprintf("PUT /v1/kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", own+beyond+1)
	if _, err := c.Write([]byte(head + strings.Repeat("x", own+beyond))); err != nil {
		t.Fatal(err)
	}
	until(t, "part of a body is shown", func() bool { return used(bodies) == beyond })
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing is", func() bool { return used(bodies) == 0 })
	if n := used("refused requests to Consul's API held back"); n != 0 {
		t.Errorf("%d bytes are held back", n)
	}
}

// What calls of Juju's agents take that wait is shown.
func TestCallsOfJujusAgentsThatWaitAreShown(t *testing.T) {
	s := open(t, withJuju(t, testConfig(t)))
	used := func() uint64 {
		for _, l := range s.consumerLimits() {
			if l.GetName() == "calls of Juju's agents that wait" && l.GetValue() > 0 {
				return l.GetUsed()
			}
		}
		t.Fatal("status does not show them")
		return 0
	}
	agent, reply := jujuLogin(t, s, "unit-app-0", "unit-app-0")
	if !strings.Contains(reply, "controller-tag") {
		t.Fatal(reply)
	}
	if got := agent.claim("app-0"); got != jujuGranted {
		t.Fatal(got)
	}
	agent.send("LeadershipService", 2, "BlockUntilLeadershipReleased", `{"Name":"app"}`)
	until(t, "a wait is shown", func() bool { return used() > 0 })
	agent.conn.Close()
	until(t, "nothing is", func() bool { return used() == 0 })
}

// What is left to those that have a part of the memory limit follows it while the server runs.
func TestG39_ConsumersHaveAPartOfTheMemory(t *testing.T) {
	cfg := withConsul(testConfig(t))
	cfg.MemoryLimit = 1 << 30
	s := open(t, cfg)
	follows := func(most int64) {
		t.Helper()
		until(t, "what connections hold and shared reads have a part", func() bool {
			return s.park.Limits().MaxHeldBytes == most && s.engine.Hub().Limits().QueryBytes == most
		})
		shown := 0
		for _, l := range s.consumerLimits() {
			switch is := int64(l.GetValue()) == most; {
			case is && l.GetSetting() == "--memory-limit":
				shown++
			case l.GetSetting() == "--memory-limit":
				t.Errorf("%s may have %d bytes, of %d for each", l.GetName(), l.GetValue(), most)
			}
		}
		if shown < 4 {
			t.Errorf("%d consumers are shown with %d bytes", shown, most)
		}
	}
	follows(128 << 20)
	if err := s.SetLimits(Limits{MemoryLimit: 256 << 20}); err != nil {
		t.Fatal(err)
	}
	follows(32 << 20)
}
