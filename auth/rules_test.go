package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

func agentOf(name string) Principal { return Principal{Name: name, Kind: Agent, Via: Credential} }

func leaseOf(namespace, model, name string) incumbent.Name {
	return incumbent.Name{Namespace: namespace, Model: model, Lease: name}
}

// What the compiled rules answer is what going through all of them one by one does,
// for one name, for all below a prefix, and for any below it.
func TestG12_CompiledRulesAreThoseOfThePolicies(t *testing.T) {
	words := rapid.SampledFrom([]string{"a", "ab", "abc", "b", "a/", "a/0", "a/1", "{name}", "{parent}", "{name}/x", "c{name}"})
	pattern := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 0:
			return "*"
		case 1:
			return words.Draw(t, "word") + "*"
		}
		return words.Draw(t, "word")
	})
	names := rapid.SampledFrom([]string{"", "a", "ab", "abc", "abcd", "b", "a/0", "a/0/x", "a/1", "ca/0", "c", "*", "a*"})
	rapid.Check(t, func(t *rapid.T) {
		var list []*Policy
		for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
			p := &Policy{Name: fmt.Sprintf("p%d", i)}
			p.For = rapid.SliceOfN(rapid.SampledFrom([]string{"*", "agent:*", "agent:a*", "agent:a/0", "agent:a", "observer:a", "a*"}), 1, 3).Draw(t, "for")
			for range rapid.IntRange(0, 6).Draw(t, "rules") {
				r := Rule{
					State: State(rapid.IntRange(0, int(numStates)-1).Draw(t, "state")), Namespace: pattern.Draw(t, "namespace"),
					Verbs: Verbs(rapid.IntRange(1, int(AllVerbs)).Draw(t, "verbs")),
				}
				if rapid.Bool().Draw(t, "modelled") {
					r.Model = pattern.Draw(t, "model")
				}
				if rapid.Bool().Draw(t, "named") {
					r.Prefix = pattern.Draw(t, "name")
				}
				if r.State == Tables && rapid.Bool().Draw(t, "within") {
					r.Verbs, r.Role = r.Verbs&^Write|WriteInRole, rapid.SampledFrom([]string{"r", "s"}).Draw(t, "role")
				}
				p.Rules = append(p.Rules, r)
			}
			list = append(list, p)
		}
		rules := Compile(list, 7)
		p := Principal{Name: rapid.SampledFrom([]string{"", "a", "a/0", "a/1", "b"}).Draw(t, "principal"), Kind: Kind(rapid.IntRange(1, 2).Draw(t, "kind"))}
		g := rules.Of(p)
		n := leaseOf(names.Draw(t, "in"), names.Draw(t, "of"), names.Draw(t, "is"))
		for s := range numStates {
			for v := See; v <= WriteInRole; v <<= 1 {
				for _, how := range []reach{one, whole} {
					_, want := rules.Explain(p, s, v, n, how == whole)
					if got := g.granted(s, v, n, how); got != want {
						t.Fatalf("%v %v %v of %v (%d): %v, want %v", p, v, s, n, how, got, want)
					}
				}
				want := false
				for _, rest := range []string{"", "b", "bc", "c", "d", "/0", "/0/x", "/1", "0", "x", "a", "a/0", "a/1", "ab", "abc", "ca", "ca/0", "ca/1", "cb", "/", "a/", "/x", "c", "a/0/x", "a/1/x", "b/x", "/1/x", "a/x", "1/x", "0/x", "1"} {
					below := n
					below.Lease += rest
					_, allowed := rules.Explain(p, s, v, below, false)
					want = want || allowed
				}
				if got := g.granted(s, v, n, some); got != want {
					t.Fatalf("%v %v %v of something below %v: %v, want %v", p, v, s, n, got, want)
				}
			}
		}
		for _, whole := range []bool{false, true} {
			var want []string
			for _, role := range []string{"r", "s"} {
				only := []*Policy{}
				for _, policy := range list {
					x := *policy
					x.Rules = slices.DeleteFunc(slices.Clone(x.Rules), func(r Rule) bool { return r.Role != role })
					only = append(only, &x)
				}
				if _, in := Compile(only, 7).Explain(p, Tables, WriteInRole, n, whole); in {
					want = append(want, role)
				}
			}
			if got := g.roles(n, whole); !slices.Equal(got, want) {
				t.Fatalf("%v has roles %v in %v (%v), want %v", p, got, n, whole, want)
			}
		}
	})
}

// As soon as there is a policy, what none allows is denied, save to operators; what
// is an agent's own it may still let go and see.
func TestG12_PoliciesDenyByDefault(t *testing.T) {
	rules := Compile([]*Policy{{Name: "one", For: []string{"agent:mysql/*"}, Rules: []Rule{
		{State: Leases, Namespace: "db", Prefix: "{parent}", Verbs: See | Write},
		{State: Keys, Namespace: "db", Prefix: "{name}/*", Verbs: See | Follow | Write},
		{State: Sessions, Verbs: Write},
	}}}, 5)
	db := leaseOf("db", "default", "mysql")
	key := incumbent.Name{Namespace: "db", Lease: "mysql/0/state"}
	for _, tt := range []struct {
		p    Principal
		a    Action
		r    Resource
		want bool
	}{
		{agentOf("mysql/0"), Claim, Resource{Name: db, Holder: "mysql/0"}, true},
		{agentOf("mysql/0"), Claim, Resource{Name: db, Holder: "mysql/0/lock"}, true},
		{agentOf("mysql/0"), Claim, Resource{Name: db, Holder: "mysql/1"}, false},
		{agentOf("mysql/0"), Claim, Resource{Name: leaseOf("db", "default", "mysql2"), Holder: "mysql/0"}, false},
		{agentOf("mysql/0"), Claim, Resource{Name: leaseOf("default", "default", "mysql"), Holder: "mysql/0"}, false},
		{agentOf("pg/0"), Claim, Resource{Name: db, Holder: "pg/0"}, false},
		{agentOf("pg/0"), Release, Resource{Name: db, Holder: "pg/0"}, true}, // it lets go of what it had
		{agentOf("pg/0"), Release, Resource{Name: db, Holder: "mysql/0"}, false},
		{agentOf("mysql/0"), Revoke, Resource{Name: db}, false},
		{agentOf("mysql/0"), Watch, Resource{Name: db}, false},
		{agentOf("mysql/0"), Read, Resource{Name: db}, true},
		{agentOf("mysql/0"), KeyWrite, Resource{Name: key}, true},
		{agentOf("mysql/1"), KeyWrite, Resource{Name: key}, false},
		{agentOf("mysql/0"), KeyWrite, Resource{Name: incumbent.Name{Namespace: "db", Lease: "mysql/0/"}, Whole: true}, true},
		{agentOf("mysql/0"), KeyWrite, Resource{Name: incumbent.Name{Namespace: "db", Lease: "mysql/"}, Whole: true}, false},
		{agentOf("mysql/0"), SessionOpen, Resource{Owner: "agent:mysql/0"}, true},
		{agentOf("pg/0"), SessionOpen, Resource{Owner: "agent:pg/0"}, false},
		{agentOf("mysql/0"), SessionUse, Resource{Owner: "agent:mysql/1"}, false},
		{agentOf("pg/0"), SessionRead, Resource{Owner: "agent:pg/0"}, true},
		{agentOf("pg/0"), SessionRead, Resource{Owner: "agent:mysql/0"}, false},
		{agentOf("pg/0"), SessionClose, Resource{Owner: "agent:pg/0"}, true},
		{agentOf("pg/0"), Status, Resource{}, false},
		{agentOf("pg/0"), Discover, Resource{}, true},
		{Principal{Name: "o", Kind: Observer}, Read, Resource{Name: db}, false},
		{Principal{Name: "o", Kind: Operator}, Revoke, Resource{Name: db}, true},
		{Principal{}, Read, Resource{Name: db}, false},
	} {
		if err := Authorize(rules.Of(tt.p), tt.a, tt.r); (err == nil) != tt.want {
			t.Errorf("%v %v %+v: %v", tt.p, tt.a, tt.r, err)
		}
	}
}

// The namespaces of Juju's door are changed through it; others look, and what a policy
// lets them do they do as themselves alone.
func TestG12_ReservedNamespacesBelongToTheirDoor(t *testing.T) {
	lead := leaseOf("application-leadership", "m", "mysql")
	via := func(r Resource) Resource { r.Door = "juju"; return r }
	claim := Resource{Name: lead, Holder: "mysql/0"}
	letsAll := func(name string) *Rules {
		return Compile([]*Policy{{Name: name, For: []string{"agent:mysql*"}, Rules: []Rule{{State: Leases, Namespace: "*", Verbs: AllVerbs}, {State: Keys, Namespace: "*", Verbs: AllVerbs}}}}, 1)
	}
	other := Compile([]*Policy{{Name: "other", For: []string{"agent:x"}}}, 1)
	replaced := Compile([]*Policy{{Name: DoorPolicy, For: []string{"agent:x"}}}, 1)
	key := Resource{Name: incumbent.Name{Namespace: "singular-controller", Lease: "k"}}
	backup := Resource{Name: leaseOf("incumbent", "server", "backup"), Holder: "mysql/0"}
	for i, tt := range []struct {
		rules *Rules
		p     Principal
		a     Action
		r     Resource
		want  bool
	}{
		{nil, agentOf("mysql/0"), Claim, claim, false},
		{nil, agentOf("mysql/0"), Release, claim, false},
		{nil, agentOf("mysql/0"), Read, Resource{Name: lead}, true},
		{nil, agentOf("mysql/0"), Watch, Resource{Name: lead}, true},
		{nil, agentOf("mysql/0"), Claim, via(claim), true},
		{nil, agentOf("mysql"), Claim, via(claim), true}, // an application's agent, through Juju's door
		{nil, agentOf("mysql/1"), Claim, via(claim), false},
		{nil, agentOf("mysql/0"), KeyWrite, key, false},
		{nil, agentOf("mysql/0"), KeyRead, key, true},
		{other, agentOf("mysql/0"), Claim, claim, false},
		{other, agentOf("mysql/0"), Claim, via(claim), true}, // the door's own rules stand
		{other, agentOf("mysql/0"), Watch, via(claim), true},
		{other, agentOf("mysql/0"), Read, claim, false},
		{letsAll("p"), agentOf("mysql/0"), Claim, claim, true},
		{letsAll("p"), agentOf("mysql"), Claim, claim, false}, // not as what is below its name
		{letsAll("p"), agentOf("mysql"), Claim, Resource{Name: leaseOf("db", "m", "x"), Holder: "mysql/0"}, true},
		{replaced, agentOf("mysql/0"), Claim, via(claim), false},
		{replaced, agentOf("mysql/0"), Watch, via(claim), false},
		{letsAll(DoorPolicy), agentOf("mysql/0"), Claim, via(claim), true},
		{letsAll("p"), agentOf("mysql/0"), KeyWrite, key, true},
		{nil, Principal{Name: "o", Kind: Operator}, Claim, claim, true},
		{nil, agentOf("mysql/0"), Claim, backup, false}, // what belongs to the members no rule gives
		{nil, agentOf("mysql/0"), Read, backup, true},
		{letsAll("p"), agentOf("mysql/0"), Claim, backup, false},
		{letsAll("p"), agentOf("mysql/0"), Revoke, backup, false},
		{letsAll("p"), agentOf("mysql/0"), KeyWrite, Resource{Name: incumbent.Name{Namespace: "incumbent", Lease: "k"}}, false},
		{nil, Principal{Name: "o", Kind: Operator}, Revoke, backup, true},
	} {
		if err := Authorize(tt.rules.Of(tt.p), tt.a, tt.r); (err == nil) != tt.want {
			t.Errorf("%d: %v %v %+v: %v", i, tt.p, tt.a, tt.r, err)
		}
	}
}

func TestPoliciesThatCannotBe(t *testing.T) {
	good := func() *Policy {
		return &Policy{Name: "p", For: []string{"agent:a"}, Rules: []Rule{{State: Leases, Namespace: "n", Verbs: See}}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Policy){
		"no name":              func(p *Policy) { p.Name = "" },
		"a pattern as name":    func(p *Policy) { p.Name = "p*" },
		"a long name":          func(p *Policy) { p.Name = strings.Repeat("p", MaxPolicyNameBytes+1) },
		"for nobody":           func(p *Policy) { p.For = nil },
		"for too many":         func(p *Policy) { p.For = make([]string, MaxPrincipals+1) },
		"for a bare name":      func(p *Policy) { p.For = []string{"mysql"} },
		"for a placeholder":    func(p *Policy) { p.For = []string{"agent:{name}"} },
		"a star in the middle": func(p *Policy) { p.For = []string{"agent:*/0"} },
		"too many rules":       func(p *Policy) { p.Rules = make([]Rule, MaxRules+1) },
		"no verb":              func(p *Policy) { p.Rules[0].Verbs = 0 },
		"an unknown verb":      func(p *Policy) { p.Rules[0].Verbs = 1 << 7 },
		"an unknown kind":      func(p *Policy) { p.Rules[0].State = numStates },
		"no namespace":         func(p *Policy) { p.Rules[0].Namespace = "" },
		"keys with a model":    func(p *Policy) { p.Rules[0].State, p.Rules[0].Model = Keys, "m" },
		"sessions in one":      func(p *Policy) { p.Rules[0].State = Sessions },
		"a cluster's name":     func(p *Policy) { p.Rules[0] = Rule{State: Cluster, Prefix: "x", Verbs: See} },
		"a misspelt one":       func(p *Policy) { p.Rules[0].Prefix = "{nam}" },
		"an open brace":        func(p *Policy) { p.Rules[0].Prefix = "{name" },
		"a control character":  func(p *Policy) { p.Rules[0].Prefix = "a\x1b" },
		"white space":          func(p *Policy) { p.Rules[0].Namespace = "a b" },
		"a role of leases":     func(p *Policy) { p.Rules[0].Verbs, p.Rules[0].Role = WriteInRole, "r" },
		"a role for nothing":   func(p *Policy) { p.Rules[0].State, p.Rules[0].Role = Tables, "r" },
		"no role to write in":  func(p *Policy) { p.Rules[0].State, p.Rules[0].Verbs = Tables, WriteInRole },
		"write, and in a role": func(p *Policy) {
			p.Rules[0] = Rule{State: Tables, Namespace: "n", Verbs: Write | WriteInRole, Role: "r"}
		},
		"any role":            func(p *Policy) { p.Rules[0] = Rule{State: Tables, Namespace: "n", Verbs: WriteInRole, Role: "r*"} },
		"a role by a name":    func(p *Policy) { p.Rules[0] = Rule{State: Tables, Namespace: "n", Verbs: WriteInRole, Role: "{name}"} },
		"a role of two words": func(p *Policy) { p.Rules[0] = Rule{State: Tables, Namespace: "n", Verbs: WriteInRole, Role: "r s"} },
		"a long role": func(p *Policy) {
			p.Rules[0] = Rule{State: Tables, Namespace: "n", Verbs: WriteInRole, Role: strings.Repeat("r", MaxRoleBytes+1)}
		},
	} {
		p := good()
		change(p)
		if k := incumbent.KindOf(p.Validate()); k != incumbent.Invalid && k != incumbent.TooLarge {
			t.Errorf("%s: %v", name, k)
		}
	}
	p := good()
	p.For = []string{"agnet:a"}
	if p.Validate() != nil || p.CheckPrincipals() == nil {
		t.Error("a kind of principal that is not known is for the log, and not for whoever writes a policy")
	}
}

func TestCheckPrincipals(t *testing.T) {
	for pattern, can := range map[string]bool{
		"*": true, "ag*": true, "agent:*": true, "agent:mysql/0": true, "agent": true, "anonymous": true,
		"mysql/0": false, "fleet:*": false, "anonymous:a": false,
	} {
		if err := CheckPrincipals(pattern); (err == nil) != can {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// Verbs are written as they are read; a role is one word with its verb.
func TestVerbsOfARule(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"see", "write"}, "[see write]"},
		{[]string{"write:r", "see", "write:r"}, "[see write:r]"},
		{[]string{"write:r:s"}, "[write:r:s]"},
		{[]string{"write:r", "write:s"}, `verbs: write:r and "write:s": a rule has one role`},
		{[]string{"wrote"}, `verb "wrote" is none of see, watch, write, release-others, administer`},
		{[]string{"see:r"}, `verb "see:r" is none of see, watch, write, release-others, administer`},
	} {
		var r Rule
		var err error
		for _, word := range tt.words {
			if e := r.AddVerb(word); e != nil {
				err = e
			}
		}
		got := fmt.Sprint(r.VerbNames())
		if err != nil {
			got = messageOf(err)
		}
		if got != tt.want {
			t.Errorf("%v: %s, want %s", tt.words, got, tt.want)
		}
	}
	if _, err := ParseVerb("write:r"); err == nil {
		t.Error("a role is a verb by itself")
	}
}

// Whoever may write within roles may not write by what does not ask for them; write
// without one is all; and there are no more of them than a transaction takes.
func TestG12_WhoHasRolesWritesWithinThemAlone(t *testing.T) {
	in := func(name, role string) Rule {
		return Rule{State: Tables, Namespace: "n", Prefix: name, Verbs: See | WriteInRole, Role: role}
	}
	many := &Policy{Name: "many", For: []string{"agent:many"}}
	for i := range MaxRoles + 1 {
		many.Rules = append(many.Rules, in("T", fmt.Sprintf("r%02d", i)))
	}
	rules := Compile([]*Policy{
		{Name: "hv", For: []string{"agent:hv*"}, Rules: []Rule{in("SB", "r"), in("S*", "s"), in("{name}", "own")}},
		{Name: "north", For: []string{"agent:north", "observer:x"}, Rules: []Rule{in("SB", "r"), {State: Tables, Namespace: "n", Prefix: "S*", Verbs: Write}}},
		many,
	}, 1)
	for _, tt := range []struct {
		who, database string
		want          string
	}{
		{"agent:hv1", "SB", "[r s] <nil>"},
		{"agent:hv1", "SC", "[s] <nil>"},
		{"agent:hv1", "hv1", "[own] <nil>"},
		{"agent:hv1", "NB", "[] denied: agent:hv1 may not do table_write: no policy lets it write tables n:NB"},
		{"agent:north", "SB", "[] <nil>"},
		{"agent:none", "SB", "[] denied: agent:none may not do table_write: no policy lets it write tables n:SB"},
		{"observer:x", "SB", "[] denied: observer:x may not do table_write"},
		{"operator:o", "SB", "[] <nil>"},
		{"agent:many", "T", "[] denied: agent:many has 17 roles in T: limit MaxRoles is 16"},
	} {
		p, err := ParsePrincipal(tt.who)
		if err != nil {
			t.Fatal(err)
		}
		g, r := rules.Of(p), Resource{Name: incumbent.Name{Namespace: "n", Lease: tt.database}}
		roles, err := AuthorizeRows(g, r)
		if got := fmt.Sprint(roles, " ", err); got != tt.want {
			t.Errorf("%s in %s: %s, want %s", tt.who, tt.database, got, tt.want)
		}
		if all := Authorize(g, TableWrite, r) == nil; all != (err == nil && len(roles) == 0) {
			t.Errorf("%s may write all of %s: %v", tt.who, tt.database, all)
		}
	}
	var none *Rules
	if roles, err := AuthorizeRows(none.Of(agentOf("hv1")), Resource{}); len(roles) > 0 || err != nil {
		t.Errorf("without a policy: %v, %v", roles, err)
	}
}

// What is put in for a placeholder is never taken for a pattern.
func TestPlaceholdersAreLiteral(t *testing.T) {
	rules := Compile([]*Policy{{Name: "p", For: []string{"agent:*"}, Rules: []Rule{
		{State: Leases, Namespace: "n", Prefix: "{name}", Verbs: Write}, {State: Keys, Namespace: "n", Prefix: "{parent}/*", Verbs: Write},
	}}}, 1)
	star := rules.Of(agentOf("*"))
	if star.granted(Leases, Write, leaseOf("n", "m", "other"), one) || !star.granted(Leases, Write, leaseOf("n", "m", "*"), one) {
		t.Error("an agent called * is every agent")
	}
	odd := rules.Of(agentOf("{name}"))
	if odd.granted(Leases, Write, leaseOf("n", "m", "x"), one) || !odd.granted(Leases, Write, leaseOf("n", "m", "{name}"), one) {
		t.Error("a placeholder is put in twice")
	}
	if rules.Of(agentOf("a/b")).granted(Keys, Write, incumbent.Name{Namespace: "n", Lease: "ab/x"}, one) {
		t.Error("the parent of a/b is ab")
	}
}

func TestAskNamesTheRule(t *testing.T) {
	rules := Compile([]*Policy{
		{Name: "a", For: []string{"agent:x"}, Rules: []Rule{{State: Leases, Namespace: "n", Verbs: See}, {State: Leases, Namespace: "n", Verbs: Write}}},
		{Name: "b", For: []string{"*"}, Rules: []Rule{{State: Leases, Namespace: "*", Verbs: Write}}},
		{Name: "c", For: []string{"agent:hv1"}, Rules: []Rule{{State: Tables, Namespace: "n", Verbs: See}, {State: Tables, Namespace: "n", Prefix: "SB", Verbs: WriteInRole, Role: "r"}, {State: Tables, Namespace: "n", Verbs: WriteInRole, Role: "q"}}},
		{Name: "d", For: []string{"agent:north"}, Rules: []Rule{{State: Tables, Namespace: "n", Prefix: "S*", Verbs: AllVerbs}}},
	}, 1)
	sb := incumbent.Name{Namespace: "n", Lease: "SB"}
	ask := func(r *Rules, p Principal, s State, v Verbs, n incumbent.Name) Answer {
		return r.Ask(Question{Principal: p, State: s, Verb: v, Name: n, Holder: p.Name})
	}
	n := leaseOf("n", "m", "l")
	for i, tt := range []struct {
		got  Answer
		want string
	}{
		{ask(rules, agentOf("x"), Leases, Write, n), "true a 1 rule 2 of policy a"},
		{ask(rules, agentOf("y"), Leases, Write, n), "true b 0 rule 1 of policy b"},
		{ask(rules, agentOf("y"), Leases, See, n), "false  -1 agent:y may not do read: no policy lets it see leases n:m:l"},
		{ask(rules, Principal{Name: "o", Kind: Operator}, Leases, See, n), "true  -1 operators may do everything"},
		{ask(rules, agentOf("hv1"), Tables, See, sb), "true c 0 rule 1 of policy c"},
		{ask(rules, agentOf("hv1"), Tables, Write, sb), "true c 1 rule 2 of policy c, as far as these roles of the database allow: q, r"},
		{ask(rules, agentOf("hv1"), Tables, Write, incumbent.Name{Namespace: "n", Lease: "NB"}), "true c 2 rule 3 of policy c, as far as these roles of the database allow: q"},
		{ask(rules, agentOf("hv1"), Tables, Administer, sb), "false  -1 agent:hv1 may not do table_define: no policy lets it administer tables n:SB"},
		{ask(rules, agentOf("north"), Tables, Write, sb), "true d 0 rule 1 of policy d"},
		{ask(rules, agentOf("north"), Tables, Follow, sb), "true d 0 rule 1 of policy d"},
		{ask(nil, agentOf("y"), Tables, Write, sb), "true  -1 there is no policy, and its kind may"},
		{ask(nil, agentOf("y"), Leases, See, n), "true  -1 there is no policy, and its kind may"},
		{ask(rules, agentOf("y"), Sessions, See, incumbent.Name{Lease: "agent:y"}), "true  -1 it is its own"},
		{ask(rules, agentOf("y"), Cluster, Write, incumbent.Name{}), "false  -1 there is nothing that verb write lets do to cluster"},
	} {
		if got := fmt.Sprintf("%v %s %d %s", tt.got.Allowed, tt.got.Cause.Policy, tt.got.Cause.Rule, tt.got.Reason); got != tt.want {
			t.Errorf("%d: %s, want %s", i, got, tt.want)
		}
	}
}

// manyRules are ten rules for each of a thousand principals.
func manyRules() *Rules {
	var list []*Policy
	for i := range 1000 {
		p := &Policy{Name: fmt.Sprintf("p%04d", i), For: []string{fmt.Sprintf("agent:unit-%d", i)}}
		for j := range 10 {
			p.Rules = append(p.Rules, Rule{State: Leases, Namespace: "default", Prefix: fmt.Sprintf("app-%d/%d/*", i, j), Verbs: See | Write})
		}
		list = append(list, p)
	}
	return Compile(list, 1)
}

func BenchmarkAuthorize(b *testing.B) {
	for name, rules := range map[string]*Rules{"none": nil, "10000rules": manyRules()} {
		b.Run(name, func(b *testing.B) {
			g := rules.Of(agentOf("unit-500"))
			r := Resource{Name: leaseOf("default", "default", "app-500/7/leader"), Holder: "unit-500"}
			b.ReportAllocs()
			for b.Loop() {
				if err := Authorize(g, Claim, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		manyRules()
	}
}

// Names of nodes and services that differ in case alone are one, and so are the rights
// to them; names of all else are what they are.
func TestG12_RightsToOneNameAreThose(t *testing.T) {
	for s, want := range map[State]bool{Nodes: true, Services: true, Keys: false, Leases: false, Tables: false} {
		for _, prefix := range []string{"Web", "We*"} {
			rules := Compile([]*Policy{{Name: "p", For: []string{"agent:x"}, Rules: []Rule{{State: s, Namespace: "n", Prefix: prefix, Verbs: AllVerbs}}}}, 1)
			if got := rules.Ask(Question{Principal: agentOf("x"), State: s, Verb: See, Name: leaseOf("n", "", "wEB")}); got.Allowed != want {
				t.Errorf("%v: %s lets see wEB: %v, want %v: %s", s, prefix, got.Allowed, want, got.Reason)
			}
		}
	}
	rules := Compile([]*Policy{{Name: "p", For: []string{"agent:x"}, Rules: []Rule{{State: Services, Namespace: "n", Prefix: "Web/*", Verbs: AllVerbs}}}}, 1)
	sight := rules.Of(agentOf("x")).Sight(ServiceRead)
	if !sight.Sees(leaseOf("n", "", "WEB/a")) || sight.SeesAny(leaseOf("n", "", "WE")) != nil || !sight.Within(leaseOf("n", "", "WEB/")).All() {
		t.Error("a list does not show what may be seen")
	}
}
