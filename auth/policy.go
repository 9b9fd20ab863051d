package auth

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Limits of policies. Those of all policies together are core/policy's.
const (
	MaxPolicyNameBytes = 128   // of a policy's name
	MaxPatternBytes    = 1024  // of one pattern: as much as a key may have
	MaxPrincipals      = 1_000 // patterns of principals in one policy
	MaxRules           = 1_000 // in one policy
	MaxRoleBytes       = 256   // of the name of a database's role
	MaxRoles           = 16    // of one database that policies give one principal
)

// State is a kind of state that rules speak of.
type State uint8

// The kinds. The numbers are part of the log: append only.
const (
	Leases   State = iota // by namespace, model and name
	Sessions              // by who opened them, "agent:unit-1" as their name
	Keys                  // by namespace and key
	Cluster               // status, events and metrics of members; it has no names
	Nodes                 // of the catalog, by namespace and name
	Services              // of the catalog, by namespace and name
	Tables                // databases of tables, by namespace and name
	numStates
)

var stateNames = [numStates]string{"leases", "sessions", "keys", "cluster", "nodes", "services", "tables"}

// namespaced reports whether state of this kind belongs to namespaces.
func (s State) namespaced() bool { return s != Sessions && s != Cluster }

// String returns the kind's name, as in files of policies.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "unknown"
}

// ParseState is the inverse of [State.String].
func ParseState(s string) (State, error) {
	if i := slices.Index(stateNames[:], s); i >= 0 {
		return State(i), nil
	}
	return 0, incumbent.Errorf(incumbent.Invalid, "kind of state %q is none of %s", s, strings.Join(stateNames[:], ", "))
}

// Verbs are what a rule lets its principals do, a set of bits.
type Verbs uint8

// The verbs. The bits are part of the log: append only.
const (
	See           Verbs = 1 << iota // read and list it
	Follow                          // watch it, and wait for its change
	Write                           // claim, extend, put, lock, delete; open sessions
	ReleaseOthers                   // end what others have
	Administer                      // pin leases
	WriteInRole                     // of tables: change rows within what a role of the database allows; see [Rule.Role]
	AllVerbs      = See | Follow | Write | ReleaseOthers | Administer
)

// writeIn is what the word for [WriteInRole] begins with, before the role. It is one
// word with the role, so that whoever does not know it refuses it, and nobody can lose
// the role and keep the verb.
const writeIn = "write:"

var verbNames = []string{"see", "watch", "write", "release-others", "administer"}

// Names returns the words for the verbs but [WriteInRole], in their order.
func (v Verbs) Names() []string {
	var names []string
	for i, name := range verbNames {
		if v&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the words for the verbs.
func (v Verbs) String() string { return strings.Join(v.Names(), ", ") }

// ParseVerb returns the verb of a word.
func ParseVerb(s string) (Verbs, error) {
	if i := slices.Index(verbNames, s); i >= 0 {
		return 1 << i, nil
	}
	return 0, incumbent.Errorf(incumbent.Invalid, "verb %q is none of %s", s, strings.Join(verbNames, ", "))
}

// AddVerb has the rule let its principals do what a word says: a verb, or write:ROLE.
func (r *Rule) AddVerb(word string) error {
	role, in := strings.CutPrefix(word, writeIn)
	switch {
	case !in:
		v, err := ParseVerb(word)
		r.Verbs |= v
		return err
	case r.Verbs&WriteInRole != 0 && r.Role != role:
		return incumbent.Errorf(incumbent.Invalid, "verbs: %s%s and %q: a rule has one role", writeIn, r.Role, word)
	}
	r.Verbs, r.Role = r.Verbs|WriteInRole, role
	return nil
}

// VerbNames returns the words for what the rule lets its principals do.
func (r *Rule) VerbNames() []string {
	names := r.Verbs.Names()
	if r.Verbs&WriteInRole != 0 {
		names = append(names, writeIn+r.Role)
	}
	return names
}

// Policy says what the principals that it is for may do. Policies only add to one
// another: what one allows no other takes away.
type Policy struct {
	Name  string
	For   []string // patterns of principals, "agent:mysql/0", "agent:mysql/*", "*"
	Rules []Rule
}

// Rule lets the principals of its policy do something with state of one kind. Its
// texts are patterns: a name, or with * at the end what names begin with. In them
// {name} stands for the principal's own name, and {parent} for that name up to its
// last slash (the whole name, if it has none).
type Rule struct {
	State     State
	Namespace string // of leases, keys, nodes, services and tables
	Model     string // of leases; "": any
	Prefix    string // of names, of leases, keys, nodes, services, databases and who opened sessions; "": any
	Verbs     Verbs
	// Role is one of the roles that databases of tables have by their rows: with
	// [WriteInRole] rows may be changed as far as it allows. It is no pattern. "": there
	// is none.
	Role string
}

// Placeholders in patterns of rules.
const (
	ownName   = "{name}"
	ownParent = "{parent}"
)

// Validate returns an Invalid or TooLarge error for a policy that cannot be.
func (p *Policy) Validate() error {
	if err := ValidatePolicyName(p.Name); err != nil {
		return err
	}
	switch {
	case len(p.For) == 0:
		return incumbent.Errorf(incumbent.Invalid, "for: is empty; name principals, as agent:mysql/0 or agent:mysql/*")
	case len(p.For) > MaxPrincipals:
		return incumbent.Errorf(incumbent.TooLarge, "for: has %d patterns, limit MaxPrincipals is %d", len(p.For), MaxPrincipals)
	case len(p.Rules) > MaxRules:
		return incumbent.Errorf(incumbent.TooLarge, "rules: are %d, limit MaxRules is %d", len(p.Rules), MaxRules)
	}
	for i, who := range p.For {
		if err := validPrincipal(who); err != nil {
			return incumbent.Errorf(incumbent.Invalid, "for[%d]: %s", i, err.Message)
		}
	}
	for i := range p.Rules {
		if err := p.Rules[i].validate(); err != nil {
			return incumbent.Errorf(incumbent.Invalid, "rules[%d]: %s", i, err.Message)
		}
	}
	return nil
}

// ValidatePolicyName returns an Invalid error unless a policy may be called so.
func ValidatePolicyName(name string) error {
	if err := checkPattern("name", name, false); err != nil {
		return err
	}
	if len(name) > MaxPolicyNameBytes || strings.ContainsAny(name, "*{}/") {
		return incumbent.Errorf(incumbent.Invalid, "name: %q has more than %d bytes, or one of * { } /", name, MaxPolicyNameBytes)
	}
	return nil
}

// CheckPrincipals returns an Invalid error for principals of a kind that this
// version does not know. The log does not ask: a later one may know more.
func (p *Policy) CheckPrincipals() error {
	for i, who := range p.For {
		if err := CheckPrincipals(who); err != nil {
			return incumbent.Errorf(incumbent.Invalid, "for[%d]: %w", i, err)
		}
	}
	return nil
}

// CheckPrincipals returns an Invalid error for a pattern that no principal can match, for this
// version knows no such kind.
func CheckPrincipals(pattern string) error {
	kind, _, named := strings.Cut(pattern, ":")
	if !named && (strings.HasSuffix(kind, "*") || slices.Contains(kindNames[:], kind)) {
		return nil // * and ag* begin the names of kinds, and some principals have no other name
	}
	if _, err := ParseKind(kind); err != nil {
		return incumbent.Errorf(incumbent.Invalid, "%q: %w", pattern, err)
	}
	return nil
}

func validPrincipal(who string) *incumbent.Error {
	if err := checkPattern("a principal", who, false); err != nil {
		return err
	}
	if !strings.Contains(who, ":") && !strings.HasSuffix(who, "*") || strings.ContainsAny(who, "{}") {
		return incumbent.Errorf(incumbent.Invalid, "%q is neither a principal, as agent:mysql/0, nor the beginning of some, as agent:mysql/*", who)
	}
	return nil
}

func (r *Rule) validate() *incumbent.Error {
	if r.State >= numStates || r.Verbs == 0 || r.Verbs&^(AllVerbs|WriteInRole) != 0 {
		return incumbent.Errorf(incumbent.Invalid, "has no kind of state or no verb that is known")
	}
	if err := r.validateRole(); err != nil {
		return err
	}
	hasNamespace := r.State.namespaced()
	switch {
	case hasNamespace && r.Namespace == "":
		return incumbent.Errorf(incumbent.Invalid, "namespace: is missing; * is all of them")
	case !hasNamespace && r.Namespace != "":
		return incumbent.Errorf(incumbent.Invalid, "namespace: %s have none", r.State)
	case r.Model != "" && r.State != Leases:
		return incumbent.Errorf(incumbent.Invalid, "model: %s have none", r.State)
	case r.Prefix != "" && r.State == Cluster:
		return incumbent.Errorf(incumbent.Invalid, "name: the cluster has none")
	}
	if err := checkPattern("namespace", r.Namespace, true); err != nil {
		return err
	}
	if err := checkPattern("model", r.Model, true); err != nil {
		return err
	}
	return checkPattern("name", r.Prefix, true)
}

func (r *Rule) validateRole() *incumbent.Error {
	in := r.Verbs&WriteInRole != 0
	switch {
	case !in && r.Role == "":
		return nil
	case !in || r.Role == "":
		return incumbent.Errorf(incumbent.Invalid, "verbs: %sROLE names a role", writeIn)
	case r.State != Tables:
		return incumbent.Errorf(incumbent.Invalid, "verbs: %s%s: %s have no roles", writeIn, r.Role, r.State)
	case r.Verbs&Write != 0:
		return incumbent.Errorf(incumbent.Invalid, "verbs: write is more than %s%s: name one of them", writeIn, r.Role)
	case len(r.Role) > MaxRoleBytes || strings.ContainsAny(r.Role, "*{}"):
		return incumbent.Errorf(incumbent.Invalid, "verbs: role %.300q has more than %d bytes, or one of * { }", r.Role, MaxRoleBytes)
	}
	return checkPattern("role", r.Role, false)
}

// checkPattern refuses what no name is made of, a * that is not at the end, and
// braces that are no placeholder: they would mean something else than they seem to.
func checkPattern(what, s string, may bool) *incumbent.Error {
	switch {
	case s == "" && may:
		return nil
	case s == "":
		return incumbent.Errorf(incumbent.Invalid, "%s: is empty", what)
	case len(s) > MaxPatternBytes:
		return incumbent.Errorf(incumbent.Invalid, "%s: has %d bytes, limit MaxPatternBytes is %d", what, len(s), MaxPatternBytes)
	}
	if at, r := incumbent.PlainText(s); at >= 0 {
		return incumbent.Errorf(incumbent.Invalid, "%s: has %U at byte %d; white space, control, invisible and directional characters are not allowed", what, r, at)
	}
	if i := strings.IndexByte(s, '*'); i >= 0 && i < len(s)-1 {
		return incumbent.Errorf(incumbent.Invalid, "%s: %q has * elsewhere than at its end", what, s)
	}
	if strings.ContainsAny(strings.NewReplacer(ownName, "", ownParent, "").Replace(s), "{}") {
		return incumbent.Errorf(incumbent.Invalid, "%s: %q has braces that are neither %s nor %s", what, s, ownName, ownParent)
	}
	return nil
}

// pattern is what names are compared to: all of it, or (open) how they begin.
type pattern struct {
	text string
	open bool
}

// patternOf reads a pattern for a principal; false: the principal has no name to
// put in. What is put in is never a * of the pattern's.
func patternOf(s string, p Principal) (pattern, bool) {
	if s == "" {
		return pattern{open: true}, true
	}
	text, open := strings.CutSuffix(s, "*")
	if strings.Contains(text, "{") {
		if p.Name == "" {
			return pattern{}, false
		}
		text = strings.NewReplacer(ownName, p.Name, ownParent, p.parent()).Replace(text)
	}
	return pattern{text, open}, true
}

// parent is the principal's name up to its last slash.
func (p Principal) parent() string {
	if i := strings.LastIndexByte(p.Name, '/'); i > 0 {
		return p.Name[:i]
	}
	return p.Name
}

// matches reports whether a name is what the pattern says, or (whole) every name
// that begins with it is.
func (p pattern) matches(name string, whole bool) bool {
	if p.open {
		return strings.HasPrefix(name, p.text)
	}
	return !whole && p.text == name
}
