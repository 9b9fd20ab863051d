package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/incumbent-dev/incumbent"
)

// TestG12_TheWholeTable prints what every kind may do, on its own and on
// others' leases and sessions, into a page one can read. The page is checked
// against the code; the tests below check the page's claims one by one.
func TestG12_TheWholeTable(t *testing.T) {
	datadriven.RunTest(t, "testdata/table", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		rules := map[string]*Rules{
			"none":    nil,
			"nothing": Compile([]*Policy{{Name: "p", For: []string{"agent:x"}}}, 1),
			"everything": Compile([]*Policy{{Name: "p", For: []string{"*"}, Rules: []Rule{
				{State: Leases, Namespace: "*", Verbs: AllVerbs},
				{State: Keys, Namespace: "*", Verbs: AllVerbs},
				{State: Nodes, Namespace: "*", Verbs: AllVerbs},
				{State: Services, Namespace: "*", Verbs: AllVerbs},
				{State: Sessions, Verbs: AllVerbs},
				{State: Cluster, Verbs: AllVerbs},
			}}}, 1),
		}[d.CmdArgs[0].Vals[0]]
		for a := range NumActions {
			fmt.Fprintf(&b, "%-14s", a)
			for k := range numKinds {
				p := Principal{Name: "unit-1", Kind: k, Via: Certificate}
				g := rules.Of(p)
				own := Authorize(g, a, Resource{Holder: "unit-1", Owner: p.String()}) == nil
				other := Authorize(g, a, Resource{Holder: "unit-2", Owner: "agent:unit-2"}) == nil
				word := map[[2]bool]string{{false, false}: "-", {true, false}: "own", {true, true}: "any", {false, true}: "WRONG"}[[2]bool{own, other}]
				fmt.Fprintf(&b, " %-9s", k.String()+"="+word)
			}
			b.WriteString("\n")
		}
		return strings.ReplaceAll(b.String(), " \n", "\n")
	})
}

func TestG12_AnAgentActsOnlyAsItself(t *testing.T) {
	for _, tt := range []struct {
		agent, holder string
		want          bool
	}{
		{"unit-1", "unit-1", true},
		{"unit-1", "unit-1/lock", true},
		{"unit-1", "unit-1/", true},
		{"unit-1", "unit-10", false},
		{"unit-1", "unit-1.x", false},
		{"unit-1", "unit-2", false},
		{"unit-1", "unit", false},
		{"unit-1", "", false},
		{"unit-1", "x/unit-1", false},
		{"unit-1", "Unit-1", false},
		{"", "", false},
		{"", "/x", false},
	} {
		for _, a := range []Action{Claim, Extend, Release, Transfer} {
			err := Authorize(unruled(Principal{Name: tt.agent, Kind: Agent}), a, Resource{Holder: tt.holder})
			if (err == nil) != tt.want {
				t.Errorf("%q %s for %q: %v", tt.agent, a, tt.holder, err)
			}
		}
	}
	for _, a := range []Action{SessionUse, SessionClose} {
		if err := Authorize(unruled(Principal{Kind: Agent}), a, Resource{Owner: "agent"}); err == nil {
			t.Errorf("an agent without a name may %s", a)
		}
		if err := Authorize(unruled(Principal{Name: "a", Kind: Agent}), a, Resource{Owner: "operator:a"}); err == nil {
			t.Errorf("agent a may %s what operator a opened", a)
		}
	}
}

func TestG12_DeniedByDefaultAndSaysWhatHelps(t *testing.T) {
	look := []Action{Read, Watch, SessionRead, Status, Discover, NodeRead, ServiceRead, TableRead, TableWatch}
	store := []Action{SessionOpen, KeyRead, KeyWatch, KeyWrite, NodeWrite, ServiceWrite, TableWrite}
	for _, p := range []Principal{{}, {Name: "x"}, {Name: "x", Kind: numKinds}, {Name: "x", Kind: 255}, {Name: "x", Kind: Observer}, {Name: "x", Kind: Agent}} {
		for a := range NumActions + 3 {
			err := Authorize(unruled(p), a, Resource{Holder: "other", Owner: "other"})
			allowed := p.Kind == Observer && slices.Contains(look, a) ||
				p.Kind == Agent && (slices.Contains(look, a) && a != SessionRead || slices.Contains(store, a))
			if allowed != (err == nil) {
				t.Errorf("%s %s: %v", p, a, err)
			}
			if e, ok := err.(*incumbent.Error); err != nil && (!ok || e.Kind != incumbent.Denied || e.Hint == "") {
				t.Errorf("%s %s: %#v", p, a, err)
			}
		}
	}
	if err := Authorize(unruled(Principal{Name: "root", Kind: Operator}), NumActions, Resource{}); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("an operator may do what does not exist: %v", err)
	}
}

// unruled are the rights of a principal while there is no policy.
func unruled(p Principal) *Rights {
	var none *Rules
	return none.Of(p)
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for a := range NumActions {
		seen[a.String()] = true
	}
	if len(seen) != int(NumActions) || seen[""] || seen["unknown"] {
		t.Errorf("actions %v", seen)
	}
	for k := Observer; k < numKinds; k++ {
		if got, err := ParseKind(k.String()); err != nil || got != k {
			t.Errorf("%s: %v, %v", k, got, err)
		}
	}
	for _, s := range []string{"", "anonymous", "Operator", "root"} {
		if k, err := ParseKind(s); incumbent.KindOf(err) != incumbent.Invalid || k != Anonymous {
			t.Errorf("%q: %v, %v", s, k, err)
		}
	}
}
