package kv

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// as executes one command of a principal, and checks the state: the counts anew, too.
func as(t fatal, s *core.State, who string, c core.Command) core.Result {
	results := make([]core.Result, 1)
	s.Apply([][]byte{c.Encode(core.Meta{Origin: core.Origin{Principal: who}})}, results)
	if err := s.Check(); err != nil {
		t.Fatalf("broken invariant: %v", err)
	}
	return results[0]
}

func enforced(keys, bytes int64) core.Terms {
	terms := core.Terms{Quotas: core.Enforce}
	terms.Principals[core.Keys].Each, terms.Principals[core.KeyBytes].Each = keys, bytes
	return terms
}

func put(name, value string) Command {
	return Command{Verb: Put, Key: key(name), Value: []byte(value)}
}

// Whatever is done to keys, in transactions and not, the counts are those of the
// records, and nobody who asks gets over a quota.
func TestG39_CountsFollowFromEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := ample()
		f.terms = enforced(rapid.Int64Range(0, 4).Draw(t, "keys"), rapid.Int64Range(0, 4*(EntryBytes+3)).Draw(t, "bytes"))
		f.terms.Namespaces[core.Keys].Each = rapid.Int64Range(0, 5).Draw(t, "keys of a namespace")
		s := core.New(f)
		schema := core.CountSchema - uint32(rapid.IntRange(0, 1).Draw(t, "before delays count"))
		as(t, s, "", core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
		for _, id := range []string{"s", "x"} {
			as(t, s, "", core.OpenSessionCommand{ID: session(id), TTL: time.Minute})
		}
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			who := rapid.SampledFrom([]string{"agent:a", "agent:b", "operator:o", ""}).Draw(t, "who")
			var c core.Command = drawStore(t)
			if rapid.IntRange(0, 2).Draw(t, "several") == 0 {
				c = core.TxnCommand{Then: []core.Command{drawStore(t), drawStore(t), drawStore(t)}}
			}
			switch rapid.IntRange(0, 9).Draw(t, "end") {
			case 0:
				id := session(rapid.SampledFrom([]string{"s", "x"}).Draw(t, "ends"))
				as(t, s, "", core.CloseSessionCommand{ID: id})
				as(t, s, "", core.OpenSessionCommand{ID: id, TTL: time.Minute})
			case 1:
				endDelays(t, s)
			case 2:
				as(t, s, "", core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: core.CountSchema}})
			}
			before := s.View().Usage().Principal(who).Of(core.Keys)
			as(t, s, who, c)
			n, most := s.View().Usage().Principal(who).Of(core.Keys), f.terms.Principals[core.Keys].Each
			if who[:min(5, len(who))] == "agent" && most > 0 && n > most && n > before {
				t.Fatalf("%s has %d keys of %d", who, n, most)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				s = reload(t, s, f)
			}
		}
	})
}

func drawStore(t *rapid.T) Command {
	name := rapid.SampledFrom([]string{"a", "b", "b/1", "b/2", "c"}).Draw(t, "key")
	value := rapid.SampledFrom([]string{"", "1", "22"}).Draw(t, "value")
	id := session(rapid.SampledFrom([]string{"s", "x"}).Draw(t, "session"))
	switch rapid.IntRange(0, 5).Draw(t, "verb") {
	case 0:
		return Command{Verb: Remove, Key: key(name)}
	case 1:
		return Command{Verb: RemoveTree, Key: key("b")}
	case 2:
		return Command{
			Verb: Acquire, Key: key(name), Value: []byte(value), Session: id,
			OnEnd: OnEnd(rapid.IntRange(0, 1).Draw(t, "on end")), Delay: time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * time.Second,
		}
	case 3:
		return Command{Verb: Release, Key: key(name), Value: []byte(value), Session: id}
	}
	return put(name, value)
}

// endDelays has all delays end, as the leader's clock would.
func endDelays(t fatal, s *core.State) {
	v := Of(s.View())
	v.Deadlines(func(d *core.Deadline) bool {
		as(t, s, "", v.EndDeadline(d))
		return true
	})
}

// Who locks keys that are deleted with its session keeps no more delays than it may have
// keys: those have a limit of all, beyond which nobody locks anything.
func TestG39_DelaysCountAsKeys(t *testing.T) {
	f := ample()
	f.terms = enforced(2, 0)
	s := core.New(f)
	lock := func(round, i int) core.Result {
		return as(t, s, "agent:a", Command{
			Verb: Acquire, Key: key(fmt.Sprintf("%d-%d", round, i)), Session: session("s"), OnEnd: Delete, Delay: time.Second,
		})
	}
	for round := range 3 {
		as(t, s, "agent:a", core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
		for i := range 2 {
			if r := lock(round, i); (r.Err == nil) != (round == 0) {
				t.Errorf("round %d, lock %d: %v", round, i, r.Err)
			}
		}
		as(t, s, "agent:a", core.CloseSessionCommand{ID: session("s")})
		s = reload(t, s, f)
	}
	endDelays(t, s)
	as(t, s, "agent:a", core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
	if r := lock(9, 9); r.Err != nil {
		t.Errorf("after the delays: %v", r.Err)
	}
}

// A member that does not count delays would execute what is refused for them, and says
// nothing of whose they are: until all members do, a delay is what it was, and stays so.
func TestG49_DelaysCountOnceAllMembersCountThem(t *testing.T) {
	f := ample()
	f.terms = enforced(1, 0)
	s := core.New(leases.Family{}, f)
	member := func(schema uint32) {
		do(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
	}
	lock := func(who, name string) *incumbent.Error {
		as(t, s, who, core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
		r := as(t, s, who, Command{Verb: Acquire, Key: key(name), Session: session("s"), OnEnd: Delete, Delay: time.Second})
		as(t, s, who, core.CloseSessionCommand{ID: session("s")})
		return r.Err
	}
	counts := func(what string, keys, all int64) {
		t.Helper()
		s = reload(t, s, f)
		u := s.View().Usage()
		if a, n := u.Principal("agent:a").Of(core.Keys), u.Namespace("n").Of(core.Keys); a != keys || n != all {
			t.Errorf("%s: %d keys, %d in the namespace; want %d and %d", what, a, n, keys, all)
		}
	}
	// says compares the record of a delay, the last one, with what it is to say.
	says := func(name, owner string) {
		t.Helper()
		d, _ := Of(s.View()).delays.Get(&Delay{Key: key(name)})
		if d == nil {
			t.Fatalf("%s is not under a delay", name)
		}
		var want wire.Writer
		want.Uint(1, uint64(delayRecord))
		want.Text(2, "n")
		want.Text(3, name)
		want.Uint(4, uint64(d.Since))
		want.Millis(11, time.Second)
		want.Text(12, owner)
		found := false
		Of(s.View()).Write(func(record []byte) bool {
			found = found || bytes.Equal(record, want.B)
			return true
		})
		if !found {
			t.Errorf("no record is %x", want.B)
		}
	}

	member(core.CountSchema - 1)
	for _, name := range []string{"old-1", "old-2"} {
		if err := lock("agent:a", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		says(name, "")
	}
	counts("before all members count them", 0, 0)
	member(core.CountSchema)
	counts("before another begins", 0, 0)
	if err := lock("agent:a", "new"); err != nil {
		t.Error(err)
	}
	says("new", "agent:a")
	says("old-1", "")
	counts("one that is counted", 1, 1)
	if err := lock("agent:a", "more"); err == nil || err.Kind != incumbent.TooLarge {
		t.Errorf("a second one: %v", err)
	}
	if err := lock("", "nobody's"); err != nil {
		t.Error(err)
	}
	says("nobody's", "")
	counts("one of a key that nobody owns", 1, 1)
	endDelays(t, s)
	counts("after all of them", 0, 0)
}

func TestG45_CountsGoBackWithTheTransaction(t *testing.T) {
	f := ample()
	s := core.New(f)
	as(t, s, "agent:a", put("a", "1"))
	r := as(t, s, "agent:b", core.TxnCommand{Then: []core.Command{
		put("a", "22"), put("b", "1"), Command{Verb: Remove, Key: key("a")}, Command{Verb: Put, Key: key("b"), If: IfIndex, Index: 1},
	}})
	if r.Err == nil || r.Err.Kind != incumbent.Conflict {
		t.Fatalf("%+v", r)
	}
	u := s.View().Usage()
	if a, b := u.Principal("agent:a").Of(core.Keys), u.Principal("agent:b").Of(core.Keys); a != 1 || b != 0 {
		t.Errorf("a has %d keys, b %d", a, b)
	}
}

// What is full refuses what grows; it never stops deleting, what shrinks, or giving a
// lock up, be it on a key that another has stored.
func TestG39_AnUnlockIsNeverStopped(t *testing.T) {
	f := ample()
	f.terms = enforced(2, 0)
	s := core.New(f)
	as(t, s, "agent:a", core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
	fine := func(what string, r core.Result) {
		t.Helper()
		if r.Err != nil {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
	fine("a lock", as(t, s, "agent:a", Command{Verb: Acquire, Key: key("l"), Value: []byte("xx"), Session: session("s")}))
	fine("another's value", as(t, s, "agent:b", put("l", "yy")))
	for i := range 2 {
		fine("a key", as(t, s, "agent:a", put(fmt.Sprint(i), "v")))
	}
	if r := as(t, s, "agent:a", put("z", "v")); r.Err == nil || r.Err.Kind != incumbent.TooLarge {
		t.Errorf("a third key: %v", r.Err)
	}
	fine("the unlock", as(t, s, "agent:a", Command{Verb: Release, Key: key("l"), Value: []byte("y"), Session: session("s")}))
	fine("what shrinks", as(t, s, "agent:a", put("0", "")))
	fine("a deletion", as(t, s, "agent:a", Command{Verb: Remove, Key: key("0")}))
	fine("a key in its place", as(t, s, "agent:a", put("z", "v")))
}
