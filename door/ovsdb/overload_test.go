package ovsdb

import (
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// While memory is short new connections are refused, monitors wait and are refused then,
// transactions wait, locks and probes are answered; what was refused comes through
// afterwards, and so does what still waits.
func TestG40_MonitorsAreRefusedBeforeTransactions(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission, c.Limits.Patience = lanes, time.Millisecond })
	c := m.dial()
	c.call("echo", "[]") // it was accepted while there was memory
	const monitor = `["_Server","m",{"Database":{}}]`
	lanes.SetMemory(85, 100)
	if a := c.call("monitor", monitor); !strings.Contains(a, "resources exhausted") {
		t.Errorf("a monitor: %s", a)
	}
	if a := c.call("transact", `["_Server"]`); a != "[]" {
		t.Errorf("a transaction: %s", a)
	}
	m.dial().ended()
	lanes.SetMemory(2, 1) // beyond all bounds
	if a := c.call("echo", `["x"]`); !strings.Contains(a, `["x"]`) {
		t.Errorf("a probe: %s", a)
	}
	if a := c.call("lock", `["l"]`); !strings.Contains(a, `"locked":true`) {
		t.Errorf("a lock: %s", a)
	}
	lanes.SetMemory(0, 1)
	if a := c.call("monitor", monitor); !strings.Contains(a, `"name":"_Server"`) {
		t.Errorf("a monitor afterwards: %s", a)
	}
	m.dial().call("echo", "[]")
}

// A monitor for which there is no place begins when there is one.
func TestG40_MonitorsWaitForAPlace(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission, c.Limits.Patience = lanes, time.Hour })
	c := m.dial()
	c.call("echo", "[]") // it was accepted while there was memory
	lanes.SetMemory(85, 100)
	c.write(`{"id":1,"method":"monitor","params":["_Server","m",{"Database":{}}]}`)
	c.until("a refusal", func() bool { return lanes.Stats()[admit.Watches].Refused[admit.Memory] > 0 })
	lanes.SetMemory(0, 100)
	if a := c.read(); !strings.Contains(a, `"id":1`) || !strings.Contains(a, `"name":"_Server"`) {
		t.Errorf("a monitor that has waited: %s", a)
	}
}
