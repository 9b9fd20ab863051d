package policy

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// small is the family with limits that a test can reach.
type smallFamily struct {
	Family
	limits limits
}

func (f smallFamily) New() core.Tables {
	t := newTables()
	t.limits = f.limits
	return t
}

type fatal interface{ Fatalf(string, ...any) }

func reload(t fatal, s *core.State, f core.Family) *core.State {
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatalf("writing a snapshot: %v", err)
	}
	n, err := core.Restore(&b, f)
	if err != nil {
		t.Fatalf("restoring a snapshot: %v", err)
	}
	if n.View().Hash() != s.View().Hash() {
		t.Fatalf("the restored state has another hash")
	}
	return n
}

var meta = core.Meta{Origin: core.Origin{At: time.UnixMilli(1_700_000_000_000).UTC(), Door: "native", Principal: "operator:o"}}

func apply(t fatal, s *core.State, c core.Command, m core.Meta) (core.Result, []core.Change) {
	results := make([]core.Result, 1)
	changes := s.Apply([][]byte{c.Encode(m)}, results)
	if err := s.Check(); err != nil {
		t.Fatalf("broken invariant: %v", err)
	}
	return results[0], changes
}

func sample(name string, rules int) auth.Policy {
	p := auth.Policy{Name: name, For: []string{"agent:" + name + "/*", "observer:x"}}
	for i := range rules {
		p.Rules = append(p.Rules, auth.Rule{State: auth.Leases, Namespace: "n", Model: "m*", Prefix: fmt.Sprintf("{name}/%d/*", i), Verbs: auth.See | auth.Write})
	}
	return p
}

// Random commands do to the family what they do to a map, and a snapshot at any time
// gives the same state.
func TestModel(t *testing.T) {
	type kept struct {
		auth.Policy
		created, modified incumbent.Index
	}
	rapid.Check(t, func(t *rapid.T) {
		f := smallFamily{limits: limits{policies: 3, bytes: 700}}
		s := core.New(f)
		model, changed, at := map[string]kept{}, incumbent.Index(0), incumbent.Index(0)
		for range rapid.IntRange(1, 30).Draw(t, "commands") {
			at++
			c := Command{Verb: rapid.SampledFrom([]Verb{Set, Set, Remove}).Draw(t, "verb")}
			c.Policy = auth.Policy{Name: rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")}
			if c.Verb == Set {
				c.Policy = sample(c.Policy.Name, rapid.IntRange(0, 6).Draw(t, "rules"))
				if rapid.Bool().Draw(t, "with a role") {
					c.Policy = within(c.Policy.Name, rapid.SampledFrom([]string{"r", "s"}).Draw(t, "role"))
				}
			}
			if c.IfIndex = rapid.Bool().Draw(t, "conditional"); c.IfIndex {
				c.Index = incumbent.Index(rapid.IntRange(0, int(at)).Draw(t, "index"))
			}
			was, there := model[c.Policy.Name]
			want := incumbent.OK
			after := maps.Clone(model)
			switch {
			case c.IfIndex && was.modified != c.Index: // 0 where it is not there
				want = incumbent.Conflict
			case c.Verb == Remove:
				delete(after, c.Policy.Name)
			default:
				is := kept{c.Policy, at, at}
				if there {
					is.created = was.created
				}
				after[c.Policy.Name] = is
				bytes, before := 0, 0
				for _, k := range after {
					bytes += (&Policy{Policy: k.Policy, Created: k.created, Modified: k.modified, By: "operator:o", At: meta.Origin.At}).size()
				}
				for _, k := range model {
					before += (&Policy{Policy: k.Policy, Created: k.created, Modified: k.modified, By: "operator:o", At: meta.Origin.At}).size()
				}
				if len(after) > f.limits.policies || bytes > f.limits.bytes && bytes > before {
					want, after = incumbent.TooLarge, model
				}
			}
			r, changes := apply(t, s, c, meta)
			kind := incumbent.OK
			if r.Err != nil {
				kind = r.Err.Kind
			}
			if kind != want {
				t.Fatalf("%+v: %v, want %v", c, kind, want)
			}
			does := want == incumbent.OK && (c.Verb == Set || there)
			if (len(changes) == 1) != does {
				t.Fatalf("%+v: %d changes", c, len(changes))
			}
			if does {
				model, changed = after, at
				if got := changes[0].Family; got.Topic != TopicOf(c.Policy.Name) || (got.Before != nil) != there || (got.After != nil) != (c.Verb == Set) {
					t.Fatalf("%+v: told %+v", c, got)
				}
			}
			if rapid.Bool().Draw(t, "reload") {
				s = reload(t, s, f)
			}
			v := Of(s.View())
			var names []string
			v.Ascend("", func(p *Policy) bool {
				names = append(names, p.Name)
				k := model[p.Name]
				if d := cmp.Diff(k.Policy, p.Policy); d != "" || p.Created != k.created || p.Modified != k.modified || p.By != "operator:o" || !p.At.Equal(meta.Origin.At) {
					t.Fatalf("policy %s is %+v: %s", p.Name, p, d)
				}
				return true
			})
			if !slices.Equal(names, slices.Sorted(maps.Keys(model))) || v.Len() != len(model) || v.Changed() != changed {
				t.Fatalf("policies %v, want %v; changed at %d, want %d", names, model, v.Changed(), changed)
			}
		}
	})
}

// As long as no policy changes the rules are the same, so that what was looked up by
// them stays good; whatever else is committed.
func TestRulesAreCompiledOncePerChange(t *testing.T) {
	s := core.New(Family{})
	if Of(s.View()).Rules() != nil {
		t.Error("rules without a policy")
	}
	apply(t, s, Command{Verb: Set, Policy: sample("a", 1)}, meta)
	v := Of(s.View())
	first := v.Rules()
	if first.Index() != 1 {
		t.Errorf("rules of index %d", first.Index())
	}
	apply(t, s, core.OpenSessionCommand{ID: incumbent.SessionID{1}, TTL: time.Minute}, meta)
	apply(t, s, Command{Verb: Remove, Policy: auth.Policy{Name: "nobody"}}, meta)
	if Of(s.View()).Rules() != first {
		t.Error("rules are compiled anew although nothing has changed")
	}
	apply(t, s, Command{Verb: Remove, Policy: auth.Policy{Name: "a"}}, meta)
	if Of(s.View()).Rules() != nil || Of(s.View()).Changed() != 4 || v.Rules() != first {
		t.Error("a deletion does not change the rules, or changes those of an older view")
	}
	if got := Of(reload(t, s, Family{}).View()).Changed(); got != 4 {
		t.Errorf("after a snapshot the newest change is of %d", got)
	}
}

func TestG27_WhatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]Command{
		"no verb":            {Policy: sample("a", 1)},
		"an unknown verb":    {Verb: numVerbs, Policy: sample("a", 1)},
		"no policy":          {Verb: Set},
		"a whole to remove":  {Verb: Remove, Policy: sample("a", 1)},
		"an index for no if": {Verb: Set, Policy: sample("a", 1), Index: 3},
		"a star for a name":  {Verb: Remove, Policy: auth.Policy{Name: "*"}},
		"no verbs":           {Verb: Set, Policy: auth.Policy{Name: "a", For: []string{"agent:a"}, Rules: []auth.Rule{{Namespace: "n"}}}},
		"too much":           {Verb: Set, Policy: auth.Policy{Name: "a", For: []string{"agent:a"}, Rules: slices.Repeat([]auth.Rule{{Namespace: "n", Prefix: strings.Repeat("x", 1000), Verbs: 1}}, 300)}},
	} {
		s := core.New(Family{})
		r, changes := apply(t, s, c, meta)
		if r.Err == nil || r.Err.Kind != incumbent.Invalid && r.Err.Kind != incumbent.TooLarge || len(changes) > 0 {
			t.Errorf("%s: %v, %d changes", name, r.Err, len(changes))
		}
	}
	s := core.New(Family{})
	r, _ := apply(t, s, core.TxnCommand{Then: []core.Command{Command{Verb: Set, Policy: sample("a", 1)}}}, meta)
	if r.Err == nil || r.Err.Kind != incumbent.Invalid || Of(s.View()).Len() != 0 {
		t.Errorf("in a transaction: %v", r.Err)
	}
}

// body is a command as core hands it to the family.
func body(t testing.TB, c Command) []byte {
	t.Helper()
	r := wire.Read(c.Encode(core.Meta{}))
	for {
		f, more := r.Next()
		if !more {
			t.Fatal("no command")
		}
		if f.Num == Number {
			return f.B
		}
	}
}

func commands() []Command {
	return []Command{
		{Verb: Set, Policy: sample("a", 2), IfIndex: true, Index: 300},
		{Verb: Set, Policy: auth.Policy{Name: "b", For: []string{"*"}, Rules: []auth.Rule{{State: auth.Cluster, Verbs: auth.AllVerbs}, {State: auth.Sessions, Prefix: "agent:{name}", Verbs: auth.See}}}},
		{Verb: Remove, Policy: auth.Policy{Name: "a"}, IfIndex: true},
		{Verb: Set, Policy: within("a", "r")},
	}
}

// within is a policy with a rule that lets rows be written within a role.
func within(name, role string) auth.Policy {
	p := sample(name, 1)
	p.Rules = append(p.Rules, auth.Rule{State: auth.Tables, Namespace: "n", Prefix: "SB", Verbs: auth.See | auth.WriteInRole, Role: role})
	return p
}

// Who does not know of roles refuses a policy with one; all others are what they were.
func TestG49_PoliciesWithRolesNeedTheirSchema(t *testing.T) {
	for _, c := range commands() {
		want := Family{}.Schema()
		if len(c.Policy.Rules) > 0 && c.Policy.Rules[len(c.Policy.Rules)-1].Role != "" {
			want = core.RoleSchema
		}
		if got := core.RequiredSchema(c.Encode(meta)); got != want {
			t.Errorf("%+v needs schema %d, want %d", c.Policy, got, want)
		}
	}
	old := core.Member{ID: 1, Name: "old", Schema: core.RoleSchema - 1}
	s := core.New(Family{})
	apply(t, s, core.PutMemberCommand{Member: old}, meta)
	if r, _ := apply(t, s, Command{Verb: Set, Policy: within("a", "r")}, meta); r.Err == nil || r.Err.Kind != incumbent.Invalid || Of(s.View()).Len() > 0 {
		t.Errorf("a member does not know it: %+v", r)
	}
	if r, _ := apply(t, s, Command{Verb: Set, Policy: sample("a", 1)}, meta); r.Err != nil {
		t.Errorf("one without a role: %v", r.Err)
	}
	old.Schema = core.RoleSchema
	apply(t, s, core.PutMemberCommand{Member: old}, meta)
	if r, _ := apply(t, s, Command{Verb: Set, Policy: within("a", "r")}, meta); r.Err != nil {
		t.Errorf("all know it: %v", r.Err)
	}
	if got := Of(reload(t, s, Family{}).View()).Policy("a"); got == nil || !cmp.Equal(got.Policy, within("a", "r")) {
		t.Errorf("after a snapshot it is %+v", got)
	}
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	for _, c := range commands() {
		var got Command
		if !got.decode(body(t, c)) {
			t.Errorf("%+v is not read", c)
		}
		if d := cmp.Diff(c, got); d != "" {
			t.Error(d)
		}
	}
}

// FuzzDecode: no bytes make decode panic, and what it reads is written so that it is
// read alike.
func FuzzDecode(f *testing.F) {
	for _, c := range commands() {
		f.Add(body(f, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again Command
		if !c.decode(b) {
			return
		}
		if !again.decode(body(t, c)) || !cmp.Equal(c, again) {
			t.Fatalf("%x is read as %+v and then as %+v", b, c, again)
		}
		_ = c.Validate()
	})
}

// FuzzReadRecord: no bytes of a snapshot make tables that differ from what is written
// of them, nor rules that cannot be asked.
func FuzzReadRecord(f *testing.F) {
	var w recordWriter
	p := &Policy{Policy: sample("a", 2), Created: 1, Modified: 2, By: "operator:o", At: meta.Origin.At}
	f.Add(bytes.Clone(w.policy(p)))
	f.Add(bytes.Clone(w.changed(7)))
	p.Policy = within("a", "r")
	f.Add(bytes.Clone(w.policy(p)))
	f.Fuzz(func(t *testing.T, b []byte) {
		tables := newTables()
		if !tables.ReadRecord(b) {
			return
		}
		if tables.Check(nil, 1<<62) != nil {
			return
		}
		v := tables.View().(*View)
		v.Write(func(again []byte) bool {
			if !bytes.Equal(again, b) && v.Records() == 1 {
				t.Fatalf("%x is written as %x", b, again)
			}
			return true
		})
		v.Rules().Ask(auth.Question{Principal: auth.Principal{Name: "a/0", Kind: auth.Agent}, Verb: auth.Write, Name: incumbent.Name{Namespace: "n", Model: "m", Lease: "x"}})
	})
}

// A command does nothing if a policy has changed since a door let it pass, and leaves
// nothing behind for its key; what nobody was asked for is executed.
func TestG12_ACommandIsVoidOnceThePoliciesItWasJudgedByHaveChanged(t *testing.T) {
	s := core.New(Family{})
	open := core.OpenSessionCommand{ID: incumbent.SessionID{1}}
	at := JudgedBy(s.View())
	if r, _ := apply(t, s, Command{Verb: Set, Policy: sample("a", 1)}, meta); r.Err != nil {
		t.Fatal(r.Err)
	}
	changed := s.Index()
	judged := func(at incumbent.Index) core.Meta {
		m := meta
		m.Judged, m.KeyID, m.KeyBase = at, []byte("k"), 1
		return m
	}
	if JudgedBy(s.View()) != changed+1 {
		t.Fatalf("judged at %d by the state of %d", JudgedBy(s.View()), changed)
	}
	if r, _ := apply(t, s, open, judged(at)); r.Err == nil || r.Err.Kind != incumbent.Unavailable {
		t.Errorf("the first policy of all: %+v", r)
	}
	again, _ := apply(t, s, Command{Verb: Set, Policy: sample("b", 1)}, meta)
	r, changes := apply(t, s, open, judged(changed+1))
	if r.Err == nil || r.Err.Kind != incumbent.Unavailable || !r.Err.Kind.Transient() || len(changes) > 0 || s.View().Session(open.ID) != nil {
		t.Errorf("judged at %d, a policy changed at %d: %+v", changed, again.Index, r)
	}
	if r, _ = apply(t, s, open, judged(again.Index+1)); r.Err != nil || r.Replayed {
		t.Errorf("judged again: %+v", r)
	}
	s = reload(t, s, Family{})
	removed, _ := apply(t, s, Command{Verb: Remove, Policy: auth.Policy{Name: "a"}}, meta)
	if r, _ = apply(t, s, open, judged(again.Index+1)); r.Err != nil || !r.Replayed {
		t.Errorf("what was executed is not found by its key: %+v", r)
	}
	m := judged(again.Index + 1)
	m.KeyID, m.KeyBase = nil, 0
	if r, _ = apply(t, s, core.CloseSessionCommand{ID: open.ID}, m); r.Err == nil || r.Err.Kind != incumbent.Unavailable {
		t.Errorf("a policy was deleted at %d: %+v", removed.Index, r)
	}
	if r, _ = apply(t, s, core.CloseSessionCommand{ID: open.ID}, meta); r.Err != nil {
		t.Errorf("nobody was asked: %+v", r)
	}
	if r, _ = apply(t, s, Command{Verb: Remove, Policy: auth.Policy{Name: "b"}}, meta); r.Err != nil {
		t.Errorf("nobody was asked: %+v", r)
	}
}
