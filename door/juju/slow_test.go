package juju

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent/admit"
)

// foreignText claims what other units may claim, so often.
func foreignText(id, n int) string {
	one := `{"application-tag":"application-other","unit-tag":"unit-other-0","duration":60}`
	return fmt.Sprintf(`{"request-id":%d,"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":{"params":[%s]}}`,
		id, strings.TrimSuffix(strings.Repeat(one+",", n), ","))
}

// Who asks, as fast as it can, for what no lane is asked for, is answered later; nobody else is.
func TestG47_WhatIsRefusedIsReadSlowly(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, nil, func(c *Config) { c.Admission = lanes })
	a, b := m.login("unit-app-0"), m.login("unit-app-1")
	const messages, params = 4, 300
	began := time.Now()
	for i := range messages {
		a.send(foreignText(2+i, params))
	}
	for i := range 200 { // each asks for one thing
		if got := b.ask(claimText(2+i, "app", "app-1", "60")); got != granted(2+i) {
			t.Fatalf("beside it: %s", got)
		}
	}
	for i := range messages {
		if got := a.read(); strings.Count(got, "unauthorized access") != params || !strings.HasPrefix(got, fmt.Sprintf(`{"request-id":%d,`, 2+i)) {
			t.Fatalf("answer %d: %.100s", i, got)
		}
	}
	// The last is read when those before it are paid for, but for what is free.
	least := time.Duration((messages-1)*len(foreignText(2, params))-64<<10) * time.Second / (16 << 10)
	if took := time.Since(began); took < least {
		t.Errorf("%d were answered within %v, which is to take %v", messages, took, least)
	}
	if n := lanes.Slowed(); n == 0 || n > messages {
		t.Errorf("%d times somebody was to wait", n)
	}
}

// Pings cost about as much each.
func TestG47_PingsAreReadSlowly(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, nil, func(c *Config) { c.Admission = lanes })
	a := m.login("unit-app-0")
	began := time.Now()
	pings := []byte(strings.Repeat(string(ws.MustCompileFrame(ws.MaskFrameWith(ws.NewPingFrame(nil), [4]byte{1, 2, 3, 4}))), 200))
	if _, err := a.conn.Write(pings); err != nil {
		t.Fatal(err)
	}
	if got := a.ask(`{"request-id":2,"type":"Pinger","version":1,"request":"Ping","params":null}`); got != empty(2) {
		t.Fatal(got)
	}
	const least = (200*admit.MessageBytes - 64<<10) * time.Second / (16 << 10)
	if took := time.Since(began); took < least {
		t.Errorf("200 pings were answered within %v, which is to take %v", took, least)
	}
}
