package credential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// naive is the family once more, in a map and without a thought for cost.
type naive struct {
	index  incumbent.Index
	all    map[incumbent.Index]Credential
	limits limits
}

func (n *naive) find(is func(c *Credential) bool) (ids []incumbent.Index) {
	for _, id := range slices.Sorted(maps.Keys(n.all)) {
		if c := n.all[id]; is(&c) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (n *naive) apply(c *Command) incumbent.Kind {
	n.index++
	new := Credential{
		ID: n.index, Method: c.Method, Principal: c.Principal, Scope: c.Scope, Secret: c.Secret, Grants: c.Grants, Ends: c.Ends,
		EndSessions: c.EndSessions, Created: MomentOf(at), CreatedBy: "operator:ops",
	}
	if c.Verb == Create {
		return n.create(new)
	}
	if c.Verb == Revoke {
		return n.revoke(new)
	}
	o, there := n.all[c.ID]
	if !there {
		return incumbent.NotFound
	}
	switch c.Verb {
	case End:
		if c.EndSessions && (o.Method == Password || o.Principal == "") {
			return incumbent.Invalid
		}
		if o.Live() {
			o.Ended, o.EndedAt, o.EndedBy, o.Expired, o.Secret = n.index, MomentOf(at), "operator:ops", c.Expired, nil
			o.Closing = o.EndSessions
		}
		if c.EndSessions && !o.EndSessions {
			o.EndSessions, o.Closing = true, true
		}
	case Settled:
		o.Closing = false
	case Forget:
		if o.Live() || o.Closing {
			return incumbent.Conflict
		}
		delete(n.all, c.ID)
		return incumbent.OK
	}
	n.all[c.ID] = o
	return incumbent.OK
}

func (n *naive) create(c Credential) incumbent.Kind {
	same := n.find(func(o *Credential) bool {
		return o.Live() && o.Method == c.Method && (c.Method == Token || o.Scope == c.Scope && o.Principal == c.Principal) && string(o.Secret) == string(c.Secret)
	})
	account := n.find(func(o *Credential) bool {
		return o.Live() && c.Method == Password && o.Method == Password && o.Scope == c.Scope && o.Principal == c.Principal
	})
	switch {
	case len(same) > 0:
		return incumbent.Conflict
	case len(account) >= MaxPerAccount:
		return incumbent.TooLarge
	}
	if len(n.find(func(o *Credential) bool { return o.Method != Certificate })) >= n.limits.credentials {
		over := n.find(func(o *Credential) bool { return o.Method != Certificate && !o.Live() && !o.Closing })
		if len(over) == 0 {
			return incumbent.TooLarge
		}
		delete(n.all, slices.MinFunc(over, func(a, b incumbent.Index) int { return int(n.all[a].Ended) - int(n.all[b].Ended) }))
	}
	n.all[c.ID] = c
	return incumbent.OK
}

func (n *naive) revoke(c Credential) incumbent.Kind {
	if is := n.find(func(o *Credential) bool { return o.Method == Certificate && string(o.Secret) == string(c.Secret) }); len(is) > 0 {
		o := n.all[is[0]]
		if c.EndSessions && !o.EndSessions {
			o.EndSessions, o.Closing = true, true
			if o.Principal == "" {
				o.Principal = c.Principal
			}
		}
		if o.Ends != 0 && (c.Ends == 0 || c.Ends > o.Ends) {
			o.Ends = c.Ends
			if o.Principal == "" {
				o.Principal = c.Principal
			}
		}
		n.all[is[0]] = o
		return incumbent.OK
	}
	if len(n.find(func(o *Credential) bool { return o.Method == Certificate })) >= n.limits.revocations {
		return incumbent.TooLarge
	}
	c.Method, c.Ended, c.EndedAt, c.EndedBy, c.Closing = Certificate, n.index, MomentOf(at), "operator:ops", c.EndSessions
	n.all[c.ID] = c
	return incumbent.OK
}

// draw draws a command about few credentials, most of it true.
func (n *naive) draw(t *rapid.T) Command {
	who := rapid.SampledFrom([]string{"agent:a", "agent:b", "operator:o"}).Draw(t, "who")
	secret := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "secret")
	ends := rapid.SampledFrom([]Moment{0, 0, 1, 2, 3}).Draw(t, "ends")
	sessions := rapid.Bool().Draw(t, "sessions")
	id := incumbent.Index(rapid.IntRange(1, int(n.index)+1).Draw(t, "id"))
	if ids := n.find(func(*Credential) bool { return true }); len(ids) > 0 && rapid.IntRange(0, 5).Draw(t, "known") > 0 {
		id = rapid.SampledFrom(ids).Draw(t, "of")
	}
	switch rapid.IntRange(0, 9).Draw(t, "verb") {
	case 0, 1, 2:
		return Command{Verb: Create, Method: Token, Principal: who, Secret: sum(secret), Ends: ends, EndSessions: sessions}
	case 3, 4:
		return Command{Verb: Create, Method: Password, Principal: who, Scope: rapid.SampledFrom([]string{"*", "m"}).Draw(t, "scope"), Secret: []byte(secret), Ends: ends}
	case 5:
		return Command{Verb: Revoke, Secret: []byte(secret), Principal: who, Ends: ends, EndSessions: sessions}
	case 6:
		return Command{Verb: Settled, ID: id}
	case 7:
		return Command{Verb: Forget, ID: id}
	default:
		expired := rapid.Bool().Draw(t, "expired")
		return Command{Verb: End, ID: id, Expired: expired, EndSessions: sessions && !expired}
	}
}

// TestModel plays random batches against the state and against the naive one: answers,
// records and every order of them are the same, with snapshots in between.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fewer{limits: limits{rapid.IntRange(1, 5).Draw(t, "credentials"), rapid.IntRange(1, 3).Draw(t, "revocations")}}
		s := core.New(f)
		n := &naive{all: map[incumbent.Index]Credential{}, limits: f.limits}
		t.Repeat(map[string]func(*rapid.T){
			"batch": func(t *rapid.T) {
				var cmds []core.Command
				var want []incumbent.Kind
				for range rapid.IntRange(1, 4).Draw(t, "commands") {
					c := n.draw(t)
					cmds, want = append(cmds, c), append(want, n.apply(&c))
				}
				old := Of(s.View())
				was := allOf(old)
				results, changes := do(t, s, cmds...)
				for i, r := range results {
					kind := incumbent.OK
					if r.Err != nil {
						kind = r.Err.Kind
					}
					if kind != want[i] {
						t.Fatalf("%+v: %v, want %v", cmds[i], r.Err, want[i])
					}
				}
				if allOf(old) != was {
					t.Fatal("a view has changed")
				}
				n.told(t, old, changes)
			},
			"restart": func(t *rapid.T) { s = reload(t, s, f) },
			"":        func(t *rapid.T) { n.compare(t, Of(s.View())) },
		})
	})
}

// told follows the changes from a view on: they lead to what is.
func (n *naive) told(t *rapid.T, from *View, changes []core.Change) {
	all := map[incumbent.Index]string{}
	from.Ascend(0, func(c *Credential) bool { all[c.ID] = fmt.Sprintf("%+v", *c); return true })
	for i := range changes {
		before, _ := changes[i].Family.Before.(*Credential)
		after, _ := changes[i].Family.After.(*Credential)
		if before != nil {
			if all[before.ID] != fmt.Sprintf("%+v", *before) {
				t.Fatalf("told that %+v was", before)
			}
			delete(all, before.ID)
		}
		if after != nil {
			all[after.ID] = fmt.Sprintf("%+v", *after)
		}
	}
	for id, c := range n.all {
		if all[id] != fmt.Sprintf("%+v", c) {
			t.Fatalf("told of %d: %s, want %+v", id, all[id], c)
		}
	}
	if len(all) != len(n.all) {
		t.Fatalf("told of %d records, want %d", len(all), len(n.all))
	}
}

func allOf(v *View) string {
	var b strings.Builder
	v.Ascend(0, func(c *Credential) bool { fmt.Fprintf(&b, "%+v\n", *c); return true })
	return b.String()
}

func (n *naive) compare(t *rapid.T, v *View) {
	var want strings.Builder
	for _, id := range n.find(func(*Credential) bool { return true }) {
		fmt.Fprintf(&want, "%+v\n", n.all[id])
	}
	if got := allOf(v); got != want.String() {
		t.Fatalf("records\n%swant\n%s", got, want.String())
	}
	for _, secret := range []string{"a", "b", "c", "d", "e", "f"} {
		ids := n.find(func(c *Credential) bool {
			return c.Live() && c.Method == Token && string(c.Secret) == string(sum(secret))
		})
		if got := v.Token(sum(secret)); (got != nil) != (len(ids) == 1) || got != nil && got.ID != ids[0] {
			t.Fatalf("token %s leads to %+v, want %v", secret, got, ids)
		}
		ids = n.find(func(c *Credential) bool { return c.Method == Certificate && string(c.Secret) == secret })
		if got := v.Certificate([]byte(secret)); (got != nil) != (len(ids) == 1) || got != nil && got.ID != ids[0] {
			t.Fatalf("certificate %s leads to %+v, want %v", secret, got, ids)
		}
	}
	for _, scope := range []string{"*", "m"} {
		want := n.find(func(c *Credential) bool {
			return c.Live() && c.Method == Password && c.Scope == scope && c.Principal == "agent:a"
		})
		if got := v.Passwords(scope, "agent:a"); !slices.Equal(idsOf(slices.Values(got)), want) {
			t.Fatalf("passwords %v, want %v", idsOf(slices.Values(got)), want)
		}
	}
	ending := n.find(func(c *Credential) bool { return c.Ends != 0 && (c.Live() || c.Method == Certificate) })
	slices.SortStableFunc(ending, func(a, b incumbent.Index) int { return int(n.all[a].Ends - n.all[b].Ends) })
	ended := n.find(func(c *Credential) bool { return !c.Live() && !c.Closing && c.Method != Certificate })
	slices.SortStableFunc(ended, func(a, b incumbent.Index) int { return int(n.all[a].Ended) - int(n.all[b].Ended) })
	for name, order := range map[string]struct {
		got  func(func(*Credential) bool)
		want []incumbent.Index
	}{
		"ending": {v.Ending, ending}, "ended": {v.Ended, ended},
		"closing": {v.Closing, n.find(func(c *Credential) bool { return c.Closing })},
	} {
		if got := idsOf(order.got); !slices.Equal(got, order.want) {
			t.Fatalf("%s are %v, want %v", name, got, order.want)
		}
	}
}

func idsOf(all func(func(*Credential) bool)) (ids []incumbent.Index) {
	all(func(c *Credential) bool { ids = append(ids, c.ID); return true })
	return ids
}
