package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
)

func TestACommandOfAFamilyIsExecuted(t *testing.T) {
	g := enginetest.Start(t, engine.Config{})
	execute := func(c engine.Call, cmd core.Command) core.Result {
		t.Helper()
		got := make(chan core.Result, 1)
		g.Execute(c, cmd, func(r core.Result) { got <- r })
		select {
		case r := <-got:
			return r
		case <-time.After(time.Minute):
			t.Fatal("no answer")
			return core.Result{}
		}
	}
	key := kv.Key{Namespace: "n", Name: "x"}
	r := execute(engine.Call{}, kv.Command{Verb: kv.Put, Key: key, Value: []byte("v")})
	if r.Err != nil || r.Index == 0 {
		t.Fatalf("%+v", r)
	}
	if e := kv.Of(g.View()).Entry(key); e == nil || e != r.Record.(*kv.Entry) || e.Modified != r.Index {
		t.Errorf("the view is behind the answer: %+v", e)
	}
	r = execute(engine.Call{}, kv.Command{Verb: kv.Put, Key: key, If: kv.IfIndex})
	if incumbent.KindOf(r.Err) != incumbent.Conflict || r.Record.(*kv.Entry) == nil {
		t.Errorf("refused by the state: %+v", r)
	}
	late := engine.Call{Deadline: time.Unix(1, 0)}
	if r = execute(late, kv.Command{Verb: kv.Remove, Key: key}); incumbent.KindOf(r.Err) != incumbent.DeadlineExceeded {
		t.Errorf("past its deadline: %+v", r)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := g.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if r = execute(engine.Call{}, kv.Command{Verb: kv.Remove, Key: key}); r.Err == nil || r.Err.Kind != incumbent.Unavailable {
		t.Errorf("after the end: %+v", r)
	}
}
