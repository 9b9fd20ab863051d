package auth

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
)

// maxRights is how many principals' rights one set of rules keeps at a time: they
// are made anew for about what a claim costs.
const maxRights = 20_000

// Rules are all policies of a moment. They never change; nil: there is no policy.
type Rules struct {
	index    incumbent.Index
	policies []*Policy
	byWho    level // patterns of principals → positions in policies
	replaced bool  // the policy named [DoorPolicy] stands in the place of what doors allow their own agents

	mu     sync.RWMutex // guards rights; held for one look-up or change
	rights map[Principal]*Rights
}

// DoorPolicy is the name of the policy that stands in the place of what Juju's door
// allows its own agents in its own namespaces.
const DoorPolicy = "juju"

// Compile returns the rules of policies, in the order of their names, as they are
// since an index. They are not to be changed any more.
func Compile(policies []*Policy, index incumbent.Index) *Rules {
	if len(policies) == 0 {
		return nil
	}
	r := &Rules{index: index, policies: policies, rights: map[Principal]*Rights{}}
	b := newBuilder()
	for i, p := range policies {
		for _, who := range p.For {
			text, open := strings.CutSuffix(who, "*")
			e := b.entry(pattern{text, open})
			e.policies = append(e.policies, i)
		}
		r.replaced = r.replaced || p.Name == DoorPolicy
	}
	r.byWho = *b.seal()
	return r
}

// Index is that of the newest change of a policy; 0: there is none.
func (r *Rules) Index() incumbent.Index {
	if r == nil {
		return 0
	}
	return r.index
}

// Of returns what a principal may do by the rules.
func (r *Rules) Of(p Principal) *Rights {
	if r == nil || p.Kind == Operator {
		return &Rights{rules: r, principal: p}
	}
	r.mu.RLock()
	g := r.rights[p]
	r.mu.RUnlock()
	if g != nil {
		return g
	}
	g = r.compile(p)
	r.mu.Lock()
	if len(r.rights) >= maxRights {
		clear(r.rights)
	}
	r.rights[p] = g
	r.mu.Unlock()
	return g
}

// policiesOf are the positions of the policies for a principal, in their order.
func (r *Rules) policiesOf(p Principal) []int {
	var found []int
	who := p.String()
	for j := r.byWho.upTo(who); j >= 0; j = r.byWho.entries[j].up {
		if e := &r.byWho.entries[j]; e.matches(who, false) {
			found = append(found, e.policies...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (r *Rules) compile(p Principal) *Rights {
	g := &Rights{rules: r, principal: p}
	var trees [numStates]*builder
	for _, i := range r.policiesOf(p) {
		for j := range r.policies[i].Rules {
			rule := &r.policies[i].Rules[j]
			parts, ok := rule.patterns(p)
			if !ok {
				continue
			}
			if trees[rule.State] == nil {
				trees[rule.State] = newBuilder()
			}
			trees[rule.State].add(parts[:], rule)
			g.verbs[rule.State] |= rule.Verbs
		}
	}
	for s, t := range trees {
		if t != nil {
			g.states[s] = t.seal()
		}
	}
	return g
}

func (r *Rule) patterns(p Principal) (parts [3]pattern, ok bool) {
	for i, s := range [3]string{r.Namespace, r.Model, r.Prefix} {
		if parts[i], ok = patternOf(s, p); !ok {
			return parts, false
		}
	}
	if name := &parts[2]; r.State.folds() {
		name.text = incumbent.Fold(name.text)
	}
	return parts, true
}

// Cause is the rule that allows something: the Rule'th of a policy, from 0.
type Cause struct {
	Policy string
	Rule   int
}

// Explain returns the first rule that lets a principal do something to what has a
// name, looked for in the plainest way; whole: to all names that begin with it.
func (r *Rules) Explain(p Principal, s State, v Verbs, n incumbent.Name, whole bool) (Cause, bool) {
	if r == nil {
		return Cause{}, false
	}
	who := p.String()
	for _, policy := range r.policies {
		if !slices.ContainsFunc(policy.For, func(f string) bool {
			text, open := strings.CutSuffix(f, "*")
			return pattern{text, open}.matches(who, false)
		}) {
			continue
		}
		for i := range policy.Rules {
			if policy.Rules[i].allows(p, s, v, n, whole) {
				return Cause{policy.Name, i}, true
			}
		}
	}
	return Cause{}, false
}

func (r *Rule) allows(p Principal, s State, v Verbs, n incumbent.Name, whole bool) bool {
	parts, ok := r.patterns(p)
	return ok && r.State == s && r.Verbs&v != 0 &&
		parts[0].matches(n.Namespace, false) && parts[1].matches(n.Model, false) && parts[2].matches(n.Lease, whole)
}

// Rights are what one principal may do by the rules of a moment. They never change.
type Rights struct {
	rules     *Rules
	principal Principal
	states    [numStates]*level // namespace → model → name → verbs; nil: nothing
	verbs     [numStates]Verbs  // that any rule gives
}

// Under reports whether the rights are those of these rules.
func (g *Rights) Under(r *Rules) bool { return g.rules == r }

// Principal is whose the rights are.
func (g *Rights) Principal() Principal { return g.principal }

// reach says which names a question is about.
type reach uint8

const (
	one   reach = iota // the name
	whole              // every name that begins with it
	some               // at least one name that begins with it
)

// granted reports whether the rules let the principal do something.
func (g *Rights) granted(s State, v Verbs, n incumbent.Name, how reach) bool {
	l := g.states[s]
	if l == nil || g.verbs[s]&v == 0 {
		return false
	}
	parts := [3]string{n.Namespace, n.Model, n.Lease}
	return l.verbs(parts[:], how)&v != 0
}

// roles are those within which the rules let rows of a database be changed, whole: of
// all whose names begin with it; each once, in their order.
func (g *Rights) roles(n incumbent.Name, whole bool) []string {
	l := g.states[Tables]
	if l == nil {
		return nil
	}
	found := l.appendRoles(nil, []string{n.Namespace, n.Model, n.Lease}, whole)
	slices.Sort(found)
	return slices.Compact(found)
}

// level is one part of names: its entries in the order of their texts.
type level struct{ entries []levelEntry }

// levelEntry is a pattern and what stands behind it. up is the entry with the
// longest pattern that matches all that this one can match, -1: there is none; so the
// patterns that match a name are on the way up from the last one that is not behind
// it in the order.
type levelEntry struct {
	pattern
	up       int
	verbs    Verbs    // of the last part
	roles    []string // the same, of WriteInRole
	next     *level   // of the other parts
	policies []int    // of principals
}

// upTo is the last entry that is not behind a name, -1: there is none.
func (l *level) upTo(name string) int {
	low, high := 0, len(l.entries)
	for low < high {
		if middle := (low + high) / 2; l.entries[middle].text <= name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// verbs are those that the patterns give that match a name of these parts.
func (l *level) verbs(parts []string, how reach) (v Verbs) {
	name, last := parts[0], len(parts) == 1
	for j := l.upTo(name); j >= 0; j = l.entries[j].up {
		e := &l.entries[j]
		switch {
		case !e.matches(name, last && how == whole):
		case last:
			v |= e.verbs
		default:
			v |= e.next.verbs(parts[1:], how)
		}
	}
	if last && how == some {
		i, _ := slices.BinarySearchFunc(l.entries, name, func(e levelEntry, name string) int { return cmp.Compare(e.text, name) })
		for ; i < len(l.entries) && strings.HasPrefix(l.entries[i].text, name); i++ {
			v |= l.entries[i].verbs
		}
	}
	return v
}

// appendRoles appends the roles that the patterns give that match a name of these parts.
func (l *level) appendRoles(to, parts []string, whole bool) []string {
	last := len(parts) == 1
	for j := l.upTo(parts[0]); j >= 0; j = l.entries[j].up {
		e := &l.entries[j]
		switch {
		case !e.matches(parts[0], last && whole):
		case last:
			to = append(to, e.roles...)
		default:
			to = e.next.appendRoles(to, parts[1:], whole)
		}
	}
	return to
}

// appendKey appends the patterns behind which some of the verbs stand.
func (l *level) appendKey(b []byte, v Verbs) []byte {
	if l == nil {
		return b
	}
	for i := range l.entries {
		e := &l.entries[i]
		if e.next == nil && e.verbs&v == 0 {
			continue
		}
		b = strconv.AppendBool(strconv.AppendQuote(b, e.text), e.open)
		b = append(e.next.appendKey(append(b, '('), v), ')')
	}
	return b
}

// builder makes a level.
type builder struct {
	at      map[pattern]int
	entries []levelEntry
	next    []*builder // beside entries
}

func newBuilder() *builder { return &builder{at: map[pattern]int{}} }

func (b *builder) position(p pattern) int {
	i, there := b.at[p]
	if !there {
		i = len(b.entries)
		b.at[p] = i
		b.entries = append(b.entries, levelEntry{pattern: p})
		b.next = append(b.next, nil)
	}
	return i
}

// entry is that of a pattern, until the next one is added.
func (b *builder) entry(p pattern) *levelEntry { return &b.entries[b.position(p)] }

func (b *builder) add(parts []pattern, r *Rule) {
	i := b.position(parts[0])
	if len(parts) == 1 {
		e := &b.entries[i]
		if e.verbs |= r.Verbs; r.Verbs&WriteInRole != 0 {
			e.roles = append(e.roles, r.Role)
		}
		return
	}
	if b.next[i] == nil {
		b.next[i] = newBuilder()
	}
	b.next[i].add(parts[1:], r)
}

// seal puts the entries in order, and finds for each the one above it.
func (b *builder) seal() *level {
	for i, n := range b.next {
		if n != nil {
			b.entries[i].next = n.seal()
		}
	}
	slices.SortFunc(b.entries, func(x, y levelEntry) int {
		switch c := cmp.Compare(x.text, y.text); {
		case c != 0:
			return c
		case x.open == y.open:
			return 0
		case x.open:
			return 1
		}
		return -1
	})
	var above []int // open ones that the next may lie below, and one with its very text
	for i := range b.entries {
		e := &b.entries[i]
		for n := len(above); n > 0; n = len(above) {
			if o := &b.entries[above[n-1]]; o.text == e.text || o.open && strings.HasPrefix(e.text, o.text) {
				break
			}
			above = above[:n-1]
		}
		e.up = -1
		if n := len(above); n > 0 {
			e.up = above[n-1]
		}
		above = append(above, i)
	}
	return &level{entries: b.entries}
}
