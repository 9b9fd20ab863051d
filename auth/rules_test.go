package auth

import (
	"fmt"
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
				p.Rules = append(p.Rules, r)
			}
			list = append(list, p)
		}
		rules := Compile(list, 7)
		p := Principal{Name: rapid.SampledFrom([]string{"", "a", "a/0", "a/1", "b"}).Draw(t, "principal"), Kind: Kind(rapid.IntRange(1, 2).Draw(t, "kind"))}
		g := rules.Of(p)
		n := leaseOf(names.Draw(t, "in"), names.Draw(t, "of"), names.Draw(t, "is"))
		for s := range numStates {
			for v := See; v <= AllVerbs; v <<= 1 {
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
	}, 1)
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
