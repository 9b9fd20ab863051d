package consul

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
)

// However long all steps of a large deletion take, each has as long as any request to find
// the leader.
func TestALargeDeletionTakesItsTime(t *testing.T) {
	var late atomic.Int64
	m := startMemberOn(t, func(c *engine.Config) {
		c.Applied = func(a *engine.Applied) {
			if len(a.Changes) == kv.MaxDeleted {
				late.Add(int64(4 * time.Second))
			}
		}
	}, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) } })
	for n := 0; n < 3*kv.MaxDeleted+1; {
		var some core.TxnCommand
		for range 1000 {
			some.Then = append(some.Then, kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: m.door.namespace, Name: fmt.Sprintf("below/%d", n)}})
			n++
		}
		if r := m.group.Do(some); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if a := m.do("DELETE", "/v1/kv/below/?recurse", ""); a.StatusCode != http.StatusOK || a.body != "true" {
		t.Errorf("%s %s", a.Status, a.body)
	}
	if late.Load() < int64(8*time.Second) {
		t.Errorf("it was done within %v", time.Duration(late.Load()))
	}
	const step = "key_write default:below/ done"
	m.wantRecorded("its steps", step, step, step, step)
}

// A connection that is ended from our side while an answer goes out ends behind it, and one
// that is ended while a request comes does not begin it.
func TestGoAwayMeetsARequest(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	c.write(head("GET", "/v1/status/leader", ""))
	c.read("")
	conn := m.door.conns.All()[0]
	r := &request{conn: conn, door: m.door, keepAlive: true}
	if !conn.owes(r) {
		t.Fatal("an open connection begins no request")
	}
	keepAlive := !r.ends() // as the one who sends the last piece finds it
	conn.goAway()
	conn.answered(conn.parked.Load(), r, keepAlive)
	c.ended()

	c = m.dial()
	c.write(head("GET", "/v1/status/leader", ""))
	c.read("")
	for _, conn = range m.door.conns.All() {
		conn.goAway()
		if conn.owes(&request{conn: conn, door: m.door}) {
			t.Error("begins a request that cannot be answered")
		}
	}
	c.ended()
}
