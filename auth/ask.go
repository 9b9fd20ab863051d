package auth

import (
	"fmt"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Question is whether a principal may do something.
type Question struct {
	Principal Principal
	State     State
	Verb      Verbs // one
	Name      incumbent.Name
	Whole     bool   // to all whose names begin with Name.Lease
	Holder    string // as whom, of leases
}

// Answer is what the rules say to a question.
type Answer struct {
	Allowed bool
	Cause   Cause  // the rule that allows it; without a policy none had to
	Reason  string // in words
}

// actions that stand for a verb of a kind of state.
var actions = [numStates]map[Verbs]Action{
	Leases:   {See: Read, Follow: Watch, Write: Claim, ReleaseOthers: Revoke, Administer: Pin},
	Sessions: {See: SessionRead, Write: SessionOpen, ReleaseOthers: SessionClose},
	Keys:     {See: KeyRead, Follow: KeyWatch, Write: KeyWrite},
	Cluster:  {See: Status},
	Nodes:    {See: NodeRead, Write: NodeWrite},
	Services: {See: ServiceRead, Write: ServiceWrite},
	Tables:   {See: TableRead, Follow: TableWatch, Write: TableWrite, Administer: TableDefine},
}

// Ask answers a question as [Authorize] decides, and says by which rule. Without
// policies the table of kinds decides.
func (r *Rules) Ask(q Question) Answer {
	a, ok := actions[q.State][q.Verb]
	if !ok {
		return Answer{Cause: Cause{Rule: -1}, Reason: fmt.Sprintf("there is nothing that verb %s lets do to %s", q.Verb, q.State)}
	}
	asked := Resource{Name: q.Name, Whole: q.Whole, Holder: q.Holder}
	if q.State == Sessions {
		asked = Resource{Owner: q.Name.Lease, Whole: q.Whole}
	}
	roles, err := authorize(r.Of(q.Principal), a, asked)
	if err != nil {
		return Answer{Cause: Cause{Rule: -1}, Reason: messageOf(err)}
	}
	verb, within := q.Verb, ""
	if len(roles) > 0 {
		verb, within = WriteInRole, ", as far as these roles of the database allow: "+strings.Join(roles, ", ")
	}
	switch c, found := r.Explain(q.Principal, q.State, verb, compared(&decrees[a], &asked), q.Whole); {
	case q.Principal.Kind == Operator:
		return Answer{Allowed: true, Cause: Cause{Rule: -1}, Reason: "operators may do everything"}
	case found:
		return Answer{Allowed: true, Cause: c, Reason: fmt.Sprintf("rule %d of policy %s%s", c.Rule+1, c.Policy, within)}
	case r == nil:
		return Answer{Allowed: true, Cause: Cause{Rule: -1}, Reason: "there is no policy, and its kind may"}
	default:
		return Answer{Allowed: true, Cause: Cause{Rule: -1}, Reason: "it is its own"}
	}
}

// authorize is [Authorize], and of changes of rows [AuthorizeRows].
func authorize(g *Rights, a Action, r Resource) (roles []string, err error) {
	if a == TableWrite {
		return AuthorizeRows(g, r)
	}
	return nil, Authorize(g, a, r)
}

func messageOf(err error) string {
	if e, ok := err.(*incumbent.Error); ok { //nolint:errorlint // Authorize returns nothing else
		return e.Message
	}
	return err.Error()
}

// ParsePrincipal is the inverse of [Principal.String], for those who have a name.
func ParsePrincipal(s string) (Principal, error) {
	word, name, ok := strings.Cut(s, ":")
	kind, err := ParseKind(word)
	switch {
	case !ok:
		return Principal{}, incumbent.Errorf(incumbent.Invalid, "principal %q is not KIND:NAME, as agent:mysql/0", s)
	case err != nil:
		return Principal{}, err
	}
	if err := incumbent.ValidateHolder(name); err != nil {
		return Principal{}, err
	}
	return Principal{Name: name, Kind: kind}, nil
}
