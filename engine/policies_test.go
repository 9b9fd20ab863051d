package engine_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
)

// Who follows the policies is told at first, behind each change, and when a snapshot came
// in the place of the state, of which no change is heard.
func TestPoliciesAreFollowedAcrossARestore(t *testing.T) {
	from, to := enginetest.Start(t, engine.Config{}), enginetest.Start(t, engine.Config{})
	set := func(g *enginetest.Group, name string) {
		t.Helper()
		rules := []auth.Rule{{State: auth.Cluster, Verbs: auth.See}}
		if r := g.Do(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: name, For: []string{"agent:*"}, Rules: rules}}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	told, stop, ended := make(chan int, 100), make(chan struct{}), make(chan struct{})
	go func() {
		to.FollowPolicies(stop, func() {
			told <- policy.Of(to.View()).Len()
		})
		close(ended)
	}()
	until := func(what string, policies int) {
		t.Helper()
		for {
			select {
			case n := <-told:
				if n == policies {
					return
				}
			case <-time.After(checksTimeout):
				t.Fatalf("not told of %s", what)
			}
		}
	}
	until("what there is at first", 0)
	set(to, "a")
	until("a change", 1)
	for _, name := range []string{"a", "b", "c"} {
		set(from, name)
	}
	var b bytes.Buffer
	if err := from.Snapshot()(&b); err != nil {
		t.Fatal(err)
	}
	if err := to.Restore(&b); err != nil {
		t.Fatal(err)
	}
	until("a state that came in the place of the old one", 3)
	close(stop)
	<-ended
}
