package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/watch"
)

// crowdedNode is a group of which a node has services of different names, and checks of
// its own that pass.
func crowdedNode(t *testing.T, services, checks int) *Engine {
	t.Helper()
	e, err := New(Config{Watch: watch.Config{Limits: watch.Limits{HistoryBytes: 1 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.CloseWatches)
	cmds := []core.Command{catalog.Command{Verb: catalog.Register, Target: crowded(), Node: &catalog.Node{}}}
	for i := range services {
		cmds = append(cmds, catalog.Command{Verb: catalog.Register, Target: crowded(), Service: &catalog.Service{ID: fmt.Sprint("s", i), Name: fmt.Sprint("name", i)}})
	}
	applied(t, e, append(cmds, ownChecks(checks, catalog.Passing))...)
	return e
}

func crowded() catalog.Target { return catalog.Target{Namespace: "n", Node: "node"} }

func ownChecks(checks int, status catalog.Status) catalog.Command {
	c := catalog.Command{Verb: catalog.Register, Target: crowded()}
	for i := range checks {
		c.Checks = append(c.Checks, &catalog.Check{ID: fmt.Sprint("c", i), Status: status})
	}
	return c
}

func applied(t *testing.T, e *Engine, cmds ...core.Command) {
	t.Helper()
	var encoded [][]byte
	for _, c := range cmds {
		encoded = append(encoded, c.Encode(core.Meta{}))
	}
	if err := e.ApplyAll(encoded); err != nil {
		t.Fatal(err)
	}
}

// Many checks of a node that change at once cost the history as much for each of the node's
// services as one does; and who watches one of them is told of each check, by whatever it
// selects.
func TestG15_ChangesOfManyChecksShareTheirTopics(t *testing.T) {
	const services, checks, each = 1000, 200, 2048 // bytes for a check
	cost := func(checks int, as ...core.Command) int64 {
		e := crowdedNode(t, services, checks)
		before := e.Hub().Stats().HistoryBytes
		applied(t, e, as...)
		return e.Hub().Stats().HistoryBytes - before
	}
	one := cost(1, ownChecks(1, catalog.Warning))
	if all := cost(checks, ownChecks(checks, catalog.Warning)); all > one+each*checks {
		t.Errorf("%d checks cost %d bytes, one %d", checks, all, one)
	}
	var flips []core.Command
	for i := range checks {
		flips = append(flips, catalog.Command{
			Verb: catalog.UpdateCheck, Status: catalog.Warning,
			Target: catalog.Target{Kind: catalog.CheckKind, Namespace: "n", Node: "node", ID: fmt.Sprint("c", i)},
		})
	}
	if all := cost(checks, flips...); all > one+each*checks {
		t.Errorf("%d commands of a batch cost %d bytes, one %d", checks, all, one)
	}

	e := crowdedNode(t, services, checks)
	from := e.View().Index()
	topic := FamilyTopic(catalog.Number, catalog.ServiceTopic("n", "name7"))
	status, err := Changing(watch.Exact(topic), topic.Kind, []string{"status"})
	if err != nil {
		t.Fatal(err)
	}
	output, err := Changing(watch.Exact(topic), topic.Kind, []string{"output"})
	if err != nil {
		t.Fatal(err)
	}
	readers := map[string]*watch.Reader{}
	subscribe := func(name string, s watch.Selector) {
		r, err := e.Hub().Subscribe(from, func() {}, s)
		if err != nil {
			t.Fatal(err)
		}
		readers[name] = r
	}
	subscribe("all", watch.Exact(topic))
	subscribe("status", status)
	subscribe("output", output)
	applied(t, e, append([]core.Command{ownChecks(checks, catalog.Warning)}, flips[0])...)
	subscribe("all, later", watch.Exact(topic))
	subscribe("status, later", status)
	for name, r := range readers {
		want := checks
		if name == "output" {
			want = 0
		}
		b, err := r.Pull(nil, 10*checks, 1<<30)
		if err != nil || len(b.Events) != want || b.Progress != e.View().Index() {
			t.Fatalf("%s: %d events up to %d, %v", name, len(b.Events), b.Progress, err)
		}
		for i, event := range b.Events {
			before, after := event.Payload.(*core.Change).Family.Before.(*catalog.Check), event.Payload.(*core.Change).Family.After.(*catalog.Check)
			if id := fmt.Sprint("c", i); after.ID != id || before.ID != id || before.Status != catalog.Passing || after.Status != catalog.Warning {
				t.Errorf("%s: event %d is of check %s, %v after %v", name, i, after.ID, after.Status, before.Status)
			}
		}
	}
}

// Events have the topics that their changes say, whether or not they share them.
func TestEventsHaveTheTopicsOfTheirChanges(t *testing.T) {
	topics := func(n int, name string) (list []core.Topic) {
		for i := range n {
			list = append(list, core.Topic{Scope: [2]string{"n", "s"}, Name: fmt.Sprint(name, n-i)})
		}
		return list
	}
	few, most, a, b := topics(2, "few"), topics(sharedFrom-1, "most"), topics(sharedFrom, "a"), topics(2*sharedFrom, "b")
	var changes []core.Change
	for i, also := range [][]core.Topic{a, a, a, b, few, a, slices.Clone(a), b[:sharedFrom], nil, few[:0], few, most, most, b} {
		c := core.Change{Index: incumbent.Index(i + 1), Family: &core.FamilyChange{Family: catalog.Number, Topic: topics(1, fmt.Sprint("c", i))[0], Also: also, After: i}}
		if i == 2 {
			c.Family = &core.FamilyChange{Family: catalog.Number} // of which nobody is told
		}
		changes = append(changes, c)
	}
	shared := map[*watch.Shared]int{}
	for i, e := range eventsOf(changes) {
		c := e.Payload.(*core.Change)
		want := []watch.Topic{FamilyTopic(catalog.Number, c.Family.Topic)}
		for _, t := range c.Family.Also {
			want = append(want, FamilyTopic(catalog.Number, t))
		}
		got := slices.Clone(e.Topics)
		if e.Shared != nil {
			shared[e.Shared]++
			got = append(got, e.Shared.Topics...)
		}
		byName := func(a, b watch.Topic) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(want, byName)
		slices.SortFunc(got, byName)
		if !slices.Equal(got, want) || e.Index != c.Index {
			t.Errorf("event %d has the topics %v, want %v", i, got, want)
		}
	}
	if got := fmt.Sprint(slices.Sorted(maps.Values(shared))); got != "[1 1 2 3]" {
		t.Errorf("as many events share topics: %v, want 1 and 1, 2 and 3", got)
	}
}
