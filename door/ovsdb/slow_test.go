package ovsdb

import (
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// Who asks for nothing that a lane admits, as fast as it can, is read later; nobody else is.
func TestG47_WhatAsksForNothingIsReadSlowly(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const atATime, n = 4, 100
	m := startMember(t, func(c *Config) {
		c.Schemas, c.Admission, c.MaxUnderWay = [][]byte{[]byte(testSchema)}, lanes, atATime
	})
	other := m.dial()
	other.until("the database is there", func() bool { return other.call("list_dbs", `[]`) == `["T","_Server"]` })
	before := lanes.Slowed()
	c := m.dial()
	echo := `{"method":"echo","params":["` + strings.Repeat("x", 500) + `"],"id":7}`
	began := time.Now()
	c.write(strings.Repeat(echo, n))
	for range 200 {
		if got := other.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":1}}]`); !strings.HasPrefix(got, `[{"uuid":`) {
			t.Fatalf("beside it: %s", got)
		}
	}
	for range n {
		c.answer()
	}
	least := time.Duration((n-atATime-1)*(len(echo)+admit.MessageBytes)-64<<10) * time.Second / (16 << 10)
	if took := time.Since(began); took < least {
		t.Errorf("%d echoes within %v, which are to take %v", n, took, least)
	}
	if lanes.Slowed() == before {
		t.Error("nobody is said to have waited")
	}
}

// What changes nothing and is of no lane asks for nothing, whatever it is called.
func TestG47_WhatIsOfNoLaneIsReadSlowly(t *testing.T) {
	for method, params := range map[string]string{
		"get_server_id":       `["` + strings.Repeat("x", 500) + `"]`,
		"set_db_change_aware": `[true]`,
		"monitor_cancel":      `["unknown"]`,
		"cancel":              `["unknown"]`,
		"unheard_of":          `[]`,
		"unlock":              `["unknown"]`,
		"lock":                `["another"]`, // one more than there may be
	} {
		lanes, err := admit.New(admit.Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := startMember(t, func(c *Config) { c.Admission, c.Limits.MaxLocks = lanes, 1 })
		c := m.dial()
		if got := c.call("lock", `["mine"]`); got != `{"locked":true}` {
			t.Fatalf("a lock: %s", got)
		}
		for n := 0; lanes.Slowed() == 0; n++ {
			if n*admit.MessageBytes > 128<<10 {
				t.Errorf("%s: nobody waits after %d", method, n)
				break
			}
			c.call(method, params)
		}
	}
}
