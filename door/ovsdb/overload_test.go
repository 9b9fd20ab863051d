package ovsdb

import (
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

// While memory is short new connections and monitors are refused, transactions wait,
// locks and probes are answered; what was refused comes through afterwards.
func TestG40_MonitorsAreRefusedBeforeTransactions(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	c := m.dial()
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
