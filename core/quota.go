package core

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// exempt reports whether quotas are not for a principal: a member on its own account,
// or an operator, whom no limit may lock out.
func exempt(principal string) bool {
	return principal == "" || principal == operators || strings.HasPrefix(principal, operators+":")
}

// operators is the kind of principal that may do everything.
const operators = "operator"

// Growth is by how much a command raises what is counted, of each kind.
type Growth [NumCounted]int64

// request is what quotas are asked about.
type request struct {
	asks       string // the principal that sent the command
	owner      string // whose it will be
	namespace  string // "": it belongs to none
	owners     Growth // of what the owner has
	namespaces Growth // of what the namespace has
}

// judge says why a request is over a quota, nil: it is not. count finds what somebody
// has.
func (t *Terms) judge(r *request, count func(Scope, string) *Count) (over *quotaError) {
	if exempt(r.asks) {
		return nil
	}
	if !exempt(r.owner) {
		over = t.judgeIn(ScopePrincipal, r.owner, &r.owners, count)
	}
	if over == nil && r.namespace != "" {
		over = t.judgeIn(ScopeNamespace, r.namespace, &r.namespaces, count)
	}
	return over
}

func (t *Terms) judgeIn(s Scope, name string, g *Growth, count func(Scope, string) *Count) *quotaError {
	qs := t.quotas(s)
	for of := range NumCounted {
		if g[of] <= 0 {
			continue
		}
		most := qs[of].Of(name)
		if most == 0 {
			continue
		}
		if has := count(s, name).Of(of); has+g[of] > most {
			return &quotaError{s, of, name, has, most}
		}
	}
	return nil
}

// Scope is what a quota is for each of.
type Scope uint8

// The scopes.
const (
	ScopePrincipal Scope = iota
	ScopeNamespace
	NumScopes
)

// String returns the scope's name, as used in metrics.
func (s Scope) String() string { return [NumScopes]string{"principal", "namespace"}[s] }

// quotaError says which quota something is over.
type quotaError struct {
	scope     Scope
	of        Counted
	name      string
	has, most int64
}

// Setting is the name of the setting that a quota is.
func (s Scope) Setting(of Counted) string {
	if s == ScopeNamespace {
		return "quota.namespace." + of.String()
	}
	return "quota." + of.String()
}

func (e *quotaError) err() *incumbent.Error {
	setting := e.scope.Setting(e.of)
	return incumbent.Errorf(incumbent.TooLarge, "%v %s has %d of the %d %s that %s allows", e.scope, e.name, e.has, e.most, e.of.words(), setting).
		WithHint("let go of what is not needed, which always works, or an operator raises it: incumbent config set '" + setting + "@" + e.name + "' NUMBER")
}

// overQuota says why what the command under way asks for is over a quota; nil: it is
// executed.
func (s *State) overQuota(r *request) *incumbent.Error {
	t := s.holding(s.terms)
	if t.Quotas == Off {
		return nil
	}
	r.asks = s.origin().Principal
	over := t.judge(r, s.usage.own)
	if over == nil {
		return nil
	}
	s.usage.over[over.scope][over.of].Add(1)
	if t.Quotas == Observe {
		return nil
	}
	return over.err()
}

// Asking is a command that says itself what it makes more of.
type Asking interface {
	Command
	// Asks says why a quota refuses the command, which a principal sends, as far as a view
	// can tell; nil: it does not.
	Asks(v *View, principal string) *incumbent.Error
}

// OverQuota says why a command is refused for a quota as far as this view can tell,
// nil: it is not, or only the log knows. asks is the principal that sends it.
func (v *View) OverQuota(asks string, c Command) *incumbent.Error {
	if v.Terms().Quotas != Enforce {
		return nil
	}
	switch c := c.(type) {
	case OpenSessionCommand:
		if v.session(c.ID) == nil {
			return v.overQuota(&request{asks: asks, owner: asks, owners: Growth{Sessions: 1}})
		}
	case Asking:
		return c.Asks(v, asks)
	}
	return nil
}

// OverQuotaIn is [Exec.OverQuota] for a command of a family that is not proposed yet.
func (v *View) OverQuotaIn(asks, owner, namespace string, owners, namespaces Growth) *incumbent.Error {
	if v.Terms().Quotas != Enforce {
		return nil
	}
	return v.overQuota(&request{asks: asks, owner: owner, namespace: namespace, owners: owners, namespaces: namespaces})
}

func (v *View) overQuota(r *request) *incumbent.Error {
	over := v.terms.judge(r, v.usage.read)
	if over == nil {
		return nil
	}
	v.usage.over[over.scope][over.of].Add(1)
	return over.err()
}
