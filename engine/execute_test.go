package engine_test

import (
	"context"
	"errors"
	"runtime"
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
		r, err := g.Await(t.Context(), c, cmd)
		if (err == nil) != (r.Err == nil) || r.Err != nil && !errors.Is(err, r.Err) {
			t.Fatalf("%+v comes with %v", r, err)
		}
		return r
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

// Who gives up is told that the command may take effect, and it may.
func TestACommandThatIsGivenUpMayTakeEffect(t *testing.T) {
	g := enginetest.Start(t, engine.Config{})
	key := kv.Key{Namespace: "n", Name: "x"}
	g.Hold()
	ctx, give := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	before := g.Proposed()
	go func() {
		_, err := g.Await(ctx, engine.Call{}, kv.Command{Verb: kv.Put, Key: key})
		ended <- err
	}()
	for g.Proposed() == before {
		runtime.Gosched()
	}
	cause := errors.New("tired of it")
	give(cause)
	if err := <-ended; incumbent.KindOf(err) != incumbent.Unknown || !errors.Is(err, cause) {
		t.Errorf("given up: %v", err)
	}
	g.Release()
	if _, err := g.Await(t.Context(), engine.Call{}, kv.Command{Verb: kv.Put, Key: key, If: kv.IfIndex}); incumbent.KindOf(err) != incumbent.Conflict {
		t.Errorf("what was given up has not taken effect: %v", err)
	}
}
