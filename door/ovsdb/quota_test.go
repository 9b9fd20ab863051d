package ovsdb

import (
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/tally"
)

// A client has as many monitors as its quota of watches says, over all connections; what
// is refused, canceled, or ends with its connection or a policy makes room.
func TestG39_QuotasStopMonitors(t *testing.T) {
	g := &guarded{guests: &guests{who: operatorO()}, records: &records{}}
	g.member = startMember(t, func(c *Config) {
		group := c.Engine
		c.Schemas, c.Guard, c.Audit = [][]byte{[]byte(testSchema)}, g.guests, g.records.note
		c.Tally = tally.New(func() *settings.Values { return settings.Of(group.View()).Values() })
	})
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
	full := func(what string, c *client) {
		t.Helper()
		if got := begin(c, "9", good); !strings.Contains(got, "quota.watches") || !strings.Contains(got, `"error":"resources exhausted"`) {
			t.Errorf("%s: %s", what, got)
		}
	}
	full("a third", one)
	b := g.as(agentOf("b"))
	want(t, "another's", begin(b, "1", good), `{}`)
	want(t, "an operator's", begin(g.as(operatorO()), "1", good), `{}`)
	want(t, "another id", one.call("monitor_cond_change", `["1","2",{}]`), `{}`)
	full("behind that", one)
	want(t, "it is canceled", one.call("monitor_cancel", `["2"]`), `{}`)
	want(t, "the third", begin(one, "3", good), `{}`)
	full("a fourth", two)
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
