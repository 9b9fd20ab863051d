package kv

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// What says the same leaves an entry as it is, and a view says so before.
func TestWhatIsLazyChangesNothing(t *testing.T) {
	s := core.New(Family{})
	do(t, s, core.OpenSessionCommand{ID: session("s")})
	first := do(t, s, Command{Verb: Acquire, Key: key("a"), Value: []byte("x"), Flags: 3, Session: session("s"), OnEnd: Delete})
	at := first.Record.(*Entry).Modified
	for _, tt := range []struct {
		name string
		cmd  Command
		idle bool
	}{
		{"the same value and flags", Command{Verb: Put, Value: []byte("x"), Flags: 3, Lazy: true}, true},
		{"the same lock", Command{Verb: Acquire, Value: []byte("x"), Flags: 3, Session: session("s"), OnEnd: Delete, Lazy: true}, true},
		{"another value", Command{Verb: Put, Value: []byte("y"), Flags: 3, Lazy: true}, false},
		{"other flags", Command{Verb: Put, Value: []byte("y"), Flags: 4, Lazy: true}, false},
		{"another end", Command{Verb: Acquire, Value: []byte("y"), Flags: 4, Session: session("s"), Lazy: true}, false},
		{"the same, but not lazy", Command{Verb: Put, Value: []byte("y"), Flags: 4}, false},
	} {
		tt.cmd.Key = key("a")
		_, tried, idle := Of(s.View()).Idling(&tt.cmd, true)
		r := do(t, s, tt.cmd)
		e := r.Record.(*Entry)
		if idle != tt.idle || (e.Modified == at) != tt.idle || tt.idle && tried.Record != any(e) {
			t.Errorf("%s: a view says that it changes nothing: %v; it was modified at %d, now at %d", tt.name, idle, at, e.Modified)
		}
		at = e.Modified
	}
}

// What a transaction reads may be on a condition, too.
func TestWhatATransactionReadsHasConditions(t *testing.T) {
	s := core.New(Family{})
	for _, id := range []string{"s", "t"} {
		do(t, s, core.OpenSessionCommand{ID: session(id)})
	}
	e := do(t, s, Command{Verb: Acquire, Key: key("a"), Session: session("s")}).Record.(*Entry)
	do(t, s, Command{Verb: Put, Key: key("free")})
	for _, tt := range []struct {
		name string
		get  Command
		want incumbent.Kind
	}{
		{"is there", Command{Key: key("a"), If: IfThere}, incumbent.OK},
		{"is there, of what is not", Command{Key: key("b"), If: IfThere}, incumbent.Conflict},
		{"is not there", Command{Key: key("b"), If: IfIndex}, incumbent.OK},
		{"is not there, of what is", Command{Key: key("a"), If: IfIndex}, incumbent.Conflict},
		{"was modified", Command{Key: key("a"), If: IfIndex, Index: e.Modified}, incumbent.OK},
		{"was modified at another index", Command{Key: key("a"), If: IfIndex, Index: e.Modified + 1}, incumbent.Conflict},
		{"is locked by the session", Command{Key: key("a"), If: IfLocked, Session: session("s")}, incumbent.OK},
		{"is locked by another", Command{Key: key("a"), If: IfLocked, Session: session("t")}, incumbent.Conflict},
		{"is locked by nobody", Command{Key: key("free"), If: IfLocked}, incumbent.OK},
		{"is locked by nobody, of what is", Command{Key: key("a"), If: IfLocked}, incumbent.Conflict},
		{"is locked, of what is not there", Command{Key: key("b"), If: IfLocked}, incumbent.Conflict},
	} {
		tt.get.Verb = Get
		txn := core.TxnCommand{Then: []core.Command{tt.get}}
		tried, idle := s.View().Try(txn.Pack())
		results, _ := apply(t, s, txn)
		if kindOf(results[0]) != tt.want || kindOf(tried) != tt.want || !idle {
			t.Errorf("%s: %v, and a view says %v; want %v", tt.name, kindOf(results[0]), kindOf(tried), tt.want)
		}
	}
}
