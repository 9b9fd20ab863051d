package client

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func TestTransactions(t *testing.T) {
	for _, way := range []string{"calls", "stream"} {
		t.Run(way, func(t *testing.T) { testTransactions(t, way == "stream") })
	}
}

func testTransactions(t *testing.T, stream bool) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	ctx := testContext(t)
	s := openSession(t, c, SessionConfig{TTL: time.Minute, Holder: "me"})
	txn := c.Txn
	if stream {
		txn = s.Txn
	}
	held := mustClaim(t, s, "db")
	first, err := txn("").IfHeld(held.Name(), held.Token()).IfOpen(s.ID()).IfNone("a/").Put("a/1", []byte("x")).Put("a/2", []byte("y"), Flags(3)).Commit(ctx)
	if err != nil || !first.Succeeded || len(first.Results) != 2 {
		t.Fatalf("%v %v", first, err)
	}
	index := incumbent.Index(first.Index)
	for name, step := range map[string]struct {
		txn   *Txn
		unmet uint32
	}{
		"as it is":         {txn("").IfIndex("a/1", index).IfValue("a/2", []byte("y")).IfUnchanged("a/", index).List("a/", 0).Get("b"), 0},
		"changed since":    {txn("").IfIndex("a/1", index).IfUnchanged("a/", index-1).Get("a/1"), 2},
		"not there":        {txn("").IfIndex("a/1", 0).Delete("a/1").Else().Get("a/1"), 1},
		"not locked":       {txn("").IfLocked("a/1", s.ID()).DeleteTree("a/").Else().List("a/", 1), 1},
		"another token":    {txn("").IfHeld(held.Name(), held.Token()+1).Delete("a/1"), 1},
		"another keyspace": {txn("other").IfNone("").Get("a/1"), 0},
	} {
		res, err := step.txn.Commit(ctx)
		if err != nil || res.Unmet != step.unmet || res.Succeeded != (step.unmet == 0) {
			t.Errorf("%s: %v %v", name, res, err)
		}
	}
	res, err := txn("").Put("b", nil).Delete("a/2").Put("a/1", nil, IfIndex(0)).Commit(ctx)
	if incumbent.KindOf(err) != incumbent.Conflict || FailedOperation(err) != 3 {
		t.Errorf("%v %v: operation %d", res, err, FailedOperation(err))
	}
	if _, err := c.KV("").Get(ctx, "a/2"); err != nil {
		t.Errorf("what failed has deleted: %v", err)
	}
	if res, err = txn("").Release(held.Name(), held.Token()).Put("b", []byte("released")).Commit(ctx); err != nil || !res.Results[0].GetRelease().GetReleased() {
		t.Errorf("%v %v", res, err)
	}
}
