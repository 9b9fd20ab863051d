package kv_test

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// Commands about keys commute with extensions, alone, in transactions and in parts;
// what touches a session or a lease does not, and nobody can say that it does.
func TestG04_KeysCommuteWithExtensions(t *testing.T) {
	families := []core.Family{kv.Family{}, parts.Family{}, settings.Family{}}
	key := kv.Key{Namespace: "default", Name: "a"}
	put := kv.Command{Verb: kv.Put, Key: key, Value: make([]byte, 100)}
	session := incumbent.SessionID{1}
	open := core.OpenSessionCommand{ID: session, TTL: time.Minute}
	claim := leases.ClaimCommand{Name: incumbent.Name{Namespace: "default", Model: "m", Lease: "l"}, Holder: "h", TTL: time.Minute}
	held := leases.IfHeld{Name: claim.Name, Token: 1}
	meta := core.Meta{Origin: core.Origin{Door: "native", Principal: "agent:a"}, KeyID: []byte("one")}
	for _, x := range []struct {
		what string
		cmd  core.Command
		meta core.Meta
		want bool
	}{
		{"a put", put, meta, true},
		{"a lock", kv.Command{Verb: kv.Acquire, Key: key, Session: session}, meta, true},
		{"the end of a delay", kv.Command{Verb: kv.EndDelay, Key: key}, core.Meta{}, true},
		{"a transaction of keys under a token", core.TxnCommand{If: []core.Condition{held}, Then: []core.Command{put, put}, Else: []core.Command{put}}, meta, true},
		{"a transaction that claims", core.TxnCommand{Then: []core.Command{put, claim}}, meta, false},
		{"a transaction that claims otherwise", core.TxnCommand{Then: []core.Command{put}, Else: []core.Command{claim}}, meta, false},
		{"a session", open, meta, false},
		{"a claim", claim, meta, false},
		{"nothing", core.TxnCommand{}, core.Meta{}, true},
		{"a last part of keys", parts.Part{Member: 1, Whole: put.Encode(meta), Commutes: true}, core.Meta{}, true},
		{"a last part of a claim", parts.Part{Member: 1, Whole: claim.Encode(meta)}, core.Meta{}, false},
		{"a part that is not the last, of a claim", parts.Part{Member: 1, Whole: make([]byte, 2*parts.PartBytes)}, core.Meta{}, true},
		{"a drop of parts", parts.Drop{Member: 1, Newest: 5}, core.Meta{}, true},
	} {
		cmd := x.cmd.Encode(x.meta)
		if got := core.Commutes(families, cmd); got != x.want {
			t.Errorf("%s commutes: %v", x.what, got)
		}
		for cut := range min(len(cmd), 200) {
			if core.Commutes(families, append(cmd[:len(cmd)-cut-1:len(cmd)-cut-1], 0xff)) && !x.want {
				t.Errorf("%s commutes, cut by %d", x.what, cut+1)
			}
		}
	}
	s := core.New(families...)
	results := make([]core.Result, 1)
	s.Apply([][]byte{parts.Part{Member: 1, Whole: open.Encode(core.Meta{}), Commutes: true}.Encode(core.Meta{})}, results)
	if results[0].Err == nil || results[0].Err.Kind != incumbent.Invalid || s.View().Session(session) != nil {
		t.Errorf("a part that says that a session commutes: %v", results[0].Err)
	}
}
