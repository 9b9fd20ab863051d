package ovsdb

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/tally"
)

// startCounted is a member that counts what is open.
func startCounted(t *testing.T, change ...func(*Config)) *guarded {
	t.Helper()
	g := &guarded{guests: &guests{who: operatorO()}, records: &records{}}
	g.member = startMember(t, func(c *Config) {
		group := c.Engine
		c.Schemas, c.Guard, c.Audit = [][]byte{[]byte(testSchema)}, g.guests, g.records.note
		c.Tally = tally.New(func() *settings.Values { return settings.Of(group.View()).Values() })
		c.Anonymous = agentOf("fleet")
		for _, f := range change {
			f(c)
		}
	})
	return g
}

// A client has as many monitors as its quota of watches says, over all connections; what
// is refused, canceled, or ends with its connection or a policy makes room.
func TestG39_QuotasStopMonitors(t *testing.T) {
	g := startCounted(t)
	if r := g.group.Do(settings.Command{Name: "quota.watches@agent:a", Value: 2}); r.Err != nil {
		t.Fatal(r.Err)
	}
	const good, bad = `["T","ID",{"P":{"columns":["name"]}}]`, `["T","ID",{"R":{}}]`
	begin := func(c *client, id, params string) string {
		return c.call("monitor_cond", strings.Replace(params, "ID", id, 1))
	}
	one, two := g.as(agentOf("a")), g.as(agentOf("a"))
	for _, id := range []string{"1", "2", "3"} {
		want(t, "one that is refused", begin(one, id, bad), `error {"details":"no table named R","error":"syntax error"}`)
	}
	want(t, "the first", begin(one, "1", good), `{}`)
	want(t, "the second", begin(two, "1", good), `{}`)
	full := func(what string) {
		t.Helper()
		c := g.as(agentOf("a"))
		c.write(ask("7", "monitor_cond", strings.Replace(good, "ID", "9", 1)))
		t.Log(what)
		c.ended()
	}
	full("a third")
	b := g.as(agentOf("b"))
	want(t, "another's", begin(b, "1", good), `{}`)
	want(t, "an operator's", begin(g.as(operatorO()), "1", good), `{}`)
	want(t, "another id", one.call("monitor_cond_change", `["1","2",{}]`), `{}`)
	full("behind that")
	want(t, "it is canceled", one.call("monitor_cancel", `["2"]`), `{}`)
	want(t, "the third", begin(one, "3", good), `{}`)
	full("a fourth")
	two.conn.Close()
	one.until("the connection is gone", func() bool { return len(g.door.conns.All()) == 3 })
	one.until("there is room", func() bool { return begin(one, "4", good) == `{}` })
	want(t, "it is aware", one.call("set_db_change_aware", `[true]`), `{}`)
	g.let(tableRule(auth.See))
	for range 2 {
		if got := one.read(); !strings.Contains(got, "monitor_canceled") {
			t.Errorf("a right that is gone: %s", got)
		}
	}
	b.ended()
	b.conn.Close()
	one.until("nobody has any", func() bool {
		_, _, _, found := g.door.cfg.Tally.Fullest(settings.OpenWatches)
		return !found
	})
}

// Who asks for a monitor that its quota, or the room for conditions, does not allow loses the
// connection: of an error clients wait for ever, or ask for more. It does after a while in which
// nothing is read, once however much it asks for, and the log says why, seldom.
func TestWhoMayHaveNoOtherMonitorIsDisconnected(t *testing.T) {
	var log buffer
	g := startCounted(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	if r := g.group.Do(settings.Command{Name: "quota.watches@agent:a", Value: 1}); r.Err != nil {
		t.Fatal(r.Err)
	}
	const narrow = `["T","ID",{"P":{"columns":["name"],"where":[["name","==","a"]]}}]`
	a, b := g.as(agentOf("a")), g.as(agentOf("b"))
	want(t, "the first", a.call("monitor_cond", monitorT), `{}`)
	for _, x := range g.door.conns.All() {
		if x.who.principal.Name == "b" {
			x.kept.Store(maxConditionBytes)
		}
	}
	for i, c := range []*client{a, b} {
		began := time.Now()
		for _, id := range []string{"n", "o", "p"} {
			c.write(ask("7", "monitor_cond", strings.Replace(narrow, "ID", id, 1)))
		}
		if c.ended(); time.Since(began) < admit.HeldBackFor {
			t.Errorf("client %d: the connection ends after %v", i, time.Since(began))
		}
	}
	if n := g.door.Stats().Refused; n != 2 || g.door.held.Len() != 0 {
		t.Errorf("%d are counted, %d are held back", n, g.door.held.Len())
	}
	if text := log.String(); strings.Count(text, "one monitor too many") != 1 || !strings.Contains(text, "principal=agent:a") || !strings.Contains(text, "quota.watches") {
		t.Errorf("logged: %s", text)
	}
	want(t, "whoever comes back later", g.as(agentOf("b")).call("monitor_cond", narrow), `{}`)
}

// buffer is one that several write to.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A transaction that waits for a change is tried again with each of them, as a monitor is
// told: both are of one quota, over all connections and of both databases.
func TestG39_QuotasStopWaits(t *testing.T) {
	g := startCounted(t)
	if r := g.group.Do(settings.Command{Name: "quota.watches@agent:a", Value: 2}); r.Err != nil {
		t.Fatal(r.Err)
	}
	const ofServer = `["_Server",{"op":"wait","table":"Database","where":[["name","==","none"]],"columns":["name"],"until":"==","rows":[{"name":"none"}]}]`
	one, two := g.as(agentOf("a")), g.as(agentOf("a"))
	one.write(ask("1", "transact", forSeven))
	one.until("one waits", func() bool { return g.waiting() == 1 })
	two.write(ask("2", "transact", ofServer))
	open := func(n int64) func() bool {
		return func() bool {
			_, has, _, _ := g.door.cfg.Tally.Fullest(settings.OpenWatches)
			return has == n
		}
	}
	one.until("the other waits", open(2))
	for _, wait := range []string{forSeven, ofServer} {
		if got := two.call("transact", wait); !strings.Contains(got, "quota.watches") || !strings.Contains(got, `"error":"resources exhausted"`) {
			t.Errorf("a third: %s", got)
		}
	}
	g.as(agentOf("b")).write(ask("3", "transact", forSeven))
	one.until("another's waits", func() bool { return g.waiting() == 2 })
	want(t, "what need not wait", two.call("transact", `["T",{"op":"wait","timeout":0,"table":"Q","where":[],"columns":["n"],"until":"!=","rows":[{"n":7}]}]`), `[{}]`)
	two.conn.Close()
	one.until("the connection is gone", func() bool { return len(g.door.conns.All()) == 2 })
	g.tick(1)
	one.until("its end makes room", open(1))
	g.as(operatorO()).call("transact", `["T",{"op":"insert","table":"Q","row":{"n":7}}]`)
	want(t, "the wait", one.read(), `{"error":null,"id":1,"result":[{}]}`)
	one.until("so does an answer", open(0))
}

// Who has lost a lock, and has no place in the line for its quota, gets one when there is room.
func TestWhoLosesALockWaitsForRoomInTheLine(t *testing.T) {
	g := startCounted(t)
	a, thief := g.as(agentOf("a")), g.as(operatorO())
	want(t, "the first", a.call("lock", `["l"]`), `{"locked":true}`)
	want(t, "of another", thief.call("lock", `["m"]`), `{"locked":true}`)
	want(t, "who waits for it", a.call("lock", `["m"]`), `{"locked":false}`)
	quota := func(n int64) {
		if r := g.group.Do(settings.Command{Name: "quota.places@agent:a", Value: n}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	quota(1)
	want(t, "a thief", thief.call("steal", `["l"]`), `{"locked":true}`)
	want(t, "the victim", a.read(), `{"id":null,"method":"stolen","params":["l"]}`)
	want(t, "the victim still", a.call("echo", `[]`), `[]`)
	quota(2)
	want(t, "its end", thief.call("unlock", `["l"]`), `{}`)
	want(t, "the victim then", a.read(), `{"id":null,"method":"locked","params":["l"]}`)
}

// One principal has as many connections as its quota says: the door has so many places, and
// others need some.
func TestG39_QuotasStopConnections(t *testing.T) {
	g := startCounted(t)
	if r := g.group.Do(settings.Command{Name: "quota.connections@agent:a", Value: 2}); r.Err != nil {
		t.Fatal(r.Err)
	}
	first := g.as(agentOf("a"))
	g.as(agentOf("a"))
	third := g.dial()
	third.ended()
	g.as(agentOf("b"))
	for range 3 {
		g.as(operatorO())
	}
	first.conn.Close()
	await(t, "there is room", func() bool {
		_, has, _, _ := g.door.cfg.Tally.Fullest(settings.OpenConnections)
		return has == 1
	})
	g.as(agentOf("a"))
	// A fleet without certificates has one name, and is not bounded by that of one client.
	if r := g.group.Do(settings.Command{Name: "quota.connections@agent:fleet", Value: 1}); r.Err != nil {
		t.Fatal(r.Err)
	}
	for range 3 {
		g.as(auth.Principal{Kind: auth.Anonymous})
	}
}
