package ovsdb

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
)

// randomParts are what is random in records: the id of a session, and that of a connection in a holder.
var randomParts = regexp.MustCompile(`session [0-9a-f-]{36}|/[0-9a-f]{12}`)

// of is what was recorded of a principal, without ids.
func (r *records) of(p auth.Principal) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.list {
		if x.Principal != p.String() || x.Door != doorName || x.Outcome == audit.Done && x.Index == 0 {
			continue
		}
		text := strings.Join([]string{x.Action, x.Subject, x.Outcome.String(), x.Detail}, " ")
		out = append(out, strings.TrimSpace(randomParts.ReplaceAllString(text, "-")))
	}
	return out
}

// wantRecorded fails unless that is all that is recorded of a principal, once it is there.
func (g *guarded) wantRecorded(what string, p auth.Principal, want ...string) {
	g.tb.Helper()
	await(g.tb, what, func() bool { return len(g.records.of(p)) >= len(want) })
	if got := g.records.of(p); !slices.Equal(got, want) {
		g.tb.Errorf("%s: recorded %q, want %q", what, got, want)
	}
}

// Who takes a lock, waits for it, steals it or gives it up is recorded, as of the native
// door, and so is the session that it does that with.
func TestLocksAreRecorded(t *testing.T) {
	g := startGuarded(t)
	g.let(lockRule(auth.Write | auth.ReleaseOthers))
	a, b := agentOf("a"), agentOf("b")
	owner, thief := g.as(a), g.as(b)
	want(t, "a lock", owner.call("lock", `["l"]`), `{"locked":true}`)
	want(t, "a lock that another has", thief.call("lock", `["l"]`), `{"locked":false}`)
	want(t, "its end", thief.call("unlock", `["l"]`), `{}`)
	const opened, waits, left = "session_open - done", "claim default:ovsdb:l done for b-", "release default:ovsdb:l done for b-"
	g.wantRecorded("who waits, and no longer", b, opened, waits, left)
	want(t, "a thief", thief.call("steal", `["l"]`), `{"locked":true}`)
	want(t, "the victim", owner.read(), `{"id":null,"method":"stolen","params":["l"]}`)
	g.wantRecorded("the thief", b, opened, waits, left, waits, "revoke default:ovsdb:l done for b-, from a-")
	const has = "claim default:ovsdb:l done for a-"
	g.wantRecorded("the victim, which waits again", a, opened, has, has)
	owner.conn.Close()
	g.wantRecorded("who is gone", a, opened, has, has, "session_close - done the connection was closed")
}

// A change of rows is recorded, also if its client is gone before it is answered; what
// changes nothing is not.
func TestChangesOfRowsAreRecorded(t *testing.T) {
	g := startGuarded(t)
	g.let(tableRule(auth.See | auth.Write))
	a := agentOf("a")
	c := g.as(a)
	if got := c.call("transact", `["T",{"op":"select","table":"P","where":[]}]`); strings.HasPrefix(got, "error") {
		t.Error(got)
	}
	if got := c.call("transact", `["T",{"op":"delete","table":"P","where":[]}]`); strings.HasPrefix(got, "error") {
		t.Error(got)
	}
	c.call("transact", insertA)
	const written = "table_write default:T done"
	g.wantRecorded("a change", a, written)
	before, open := g.group.Proposed(), len(g.door.conns.All())
	g.group.Hold()
	c.write(ask("7", "transact", strings.Replace(insertA, `"a"`, `"b"`, 1)))
	await(t, "the change is on its way", func() bool { return g.group.Proposed() > before })
	c.conn.Close()
	await(t, "its client is gone", func() bool { return len(g.door.conns.All()) < open })
	g.group.Release()
	g.wantRecorded("a change whose client is gone", a, written, written)
}

// What may have been done is recorded as that, what was not is not.
func TestOutcomesHaveTheirRecords(t *testing.T) {
	g := startGuarded(t)
	who := &caller{door: g.door, principal: agentOf("a")}
	for kind, want := range map[incumbent.Kind]string{
		incumbent.Unknown:   "claim x unknown",
		incumbent.Denied:    "claim x denied",
		incumbent.NotLeader: "",
		incumbent.TooLarge:  "",
	} {
		g.records.mu.Lock()
		g.records.list = nil
		g.records.mu.Unlock()
		g.door.settled(who, auth.Claim, "x", "", &core.Result{Err: &incumbent.Error{Kind: kind}}, true)
		if got := strings.Join(g.records.of(who.principal), ", "); got != want {
			t.Errorf("%v: %q, want %q", kind, got, want)
		}
	}
}
