package auth

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Action is something a request does.
type Action uint8

// The actions.
const (
	Claim    Action = iota // become holder, or wait for it
	Extend                 // go on holding
	Release                // stop holding, or waiting
	Transfer               // give a holding to somebody else
	Revoke                 // take a holding away
	Pin                    // keep from expiring, and undo that
	Read                   // look at leases, their history and explanation
	Watch                  // follow changes of leases, or wait for one
	SessionRead
	SessionOpen
	SessionUse       // extend, attach, or claim with
	SessionClose     // end, with all that it holds
	Status           // of the member and the cluster, its events and metrics
	Discover         // who the members are, to connect to another
	Admin            // settings, membership, backup, policies
	Debug            // profiles and internals
	KeyRead          // look at keys and values
	KeyWatch         // follow changes of them
	KeyWrite         // store, lock and delete them
	NodeRead         // look at nodes of the catalog and their checks, wait for their change
	NodeWrite        // register and deregister them
	ServiceRead      // look at services, their instances and checks, wait for their change
	ServiceWrite     // register and deregister them
	TableRead        // look at databases of tables and their rows
	TableWatch       // follow changes of them
	TableWrite       // change rows
	TableDefine      // define and convert databases
	TableWriteInRole // change rows within roles of the database: see [AuthorizeRows]
	NumActions
)

// Resource is what an action is done to.
type Resource struct {
	Name   incumbent.Name // of a lease, or of a key, node, service or database, which have no model
	Whole  bool           // it is done to all whose names begin so
	Holder string         // for whom one claims, extends, releases, transfers: who holds, or will
	Owner  string         // [Principal.String] of who opened the session
	Door   string         // whose namespace it is in, if the request came by that one: see [Reserved]
}

// rule says under which condition a kind may do an action.
type rule uint8

const (
	never rule = iota
	always
	asHolder // if the holder is the principal, or below it
	asOwner  // if the principal opened the session
)

// decree is what the table says of an action. Operators may do everything, so only
// observers and agents are in it.
type decree struct {
	name  string
	state State
	verb  Verbs
	free  [numKinds]rule // may do it while there is no policy
	most  [numKinds]rule // may do it if a policy lets it
	own   rule           // of an agent: needs no policy
}

func lookers(r rule) [numKinds]rule { return [numKinds]rule{Observer: r, Agent: r} }
func agents(r rule) [numKinds]rule  { return [numKinds]rule{Agent: r} }

// decrees is the whole table. What is not in it is never, but for operators.
var decrees = [NumActions]decree{
	Claim:        {name: "claim", state: Leases, verb: Write, free: agents(asHolder), most: agents(asHolder)},
	Extend:       {name: "extend", state: Leases, verb: Write, free: agents(asHolder), most: agents(asHolder)},
	Release:      {name: "release", state: Leases, verb: Write, free: agents(asHolder), most: agents(asHolder), own: asHolder},
	Transfer:     {name: "transfer", state: Leases, verb: Write, free: agents(asHolder), most: agents(asHolder)},
	Revoke:       {name: "revoke", state: Leases, verb: ReleaseOthers, most: agents(always)},
	Pin:          {name: "pin", state: Leases, verb: Administer, most: agents(always)},
	Read:         {name: "read", state: Leases, verb: See, free: lookers(always), most: lookers(always)},
	Watch:        {name: "watch", state: Leases, verb: Follow, free: lookers(always), most: lookers(always)},
	SessionRead:  {name: "session_read", state: Sessions, verb: See, free: [numKinds]rule{Observer: always, Agent: asOwner}, most: lookers(always), own: asOwner},
	SessionOpen:  {name: "session_open", state: Sessions, verb: Write, free: agents(always), most: agents(always)},
	SessionUse:   {name: "session_use", state: Sessions, verb: Write, free: agents(asOwner), most: agents(asOwner)},
	SessionClose: {name: "session_close", state: Sessions, verb: ReleaseOthers, free: agents(asOwner), most: agents(always), own: asOwner},
	Status:       {name: "status", state: Cluster, verb: See, free: lookers(always), most: lookers(always)},
	Discover:     {name: "discover", state: Cluster, verb: See, free: lookers(always), most: lookers(always), own: always},
	Admin:        {name: "admin", state: Cluster, verb: Administer},
	Debug:        {name: "debug", state: Cluster, verb: Administer},
	KeyRead:      {name: "key_read", state: Keys, verb: See, free: agents(always), most: lookers(always)},
	KeyWatch:     {name: "key_watch", state: Keys, verb: Follow, free: agents(always), most: lookers(always)},
	KeyWrite:     {name: "key_write", state: Keys, verb: Write, free: agents(always), most: agents(always)},
	NodeRead:     {name: "node_read", state: Nodes, verb: See, free: lookers(always), most: lookers(always)},
	NodeWrite:    {name: "node_write", state: Nodes, verb: Write, free: agents(always), most: agents(always)},
	ServiceRead:  {name: "service_read", state: Services, verb: See, free: lookers(always), most: lookers(always)},
	ServiceWrite: {name: "service_write", state: Services, verb: Write, free: agents(always), most: agents(always)},
	TableRead:    {name: "table_read", state: Tables, verb: See, free: lookers(always), most: lookers(always)},
	TableWatch:   {name: "table_watch", state: Tables, verb: Follow, free: lookers(always), most: lookers(always)},
	TableWrite:   {name: "table_write", state: Tables, verb: Write, free: agents(always), most: agents(always)},
	TableDefine:  {name: "table_define", state: Tables, verb: Administer, most: agents(always)},

	TableWriteInRole: {name: "table_write_in_role", state: Tables, verb: WriteInRole, most: agents(always)},
}

// String returns the action's name, as in errors and metrics.
func (a Action) String() string {
	if a < NumActions {
		return decrees[a].name
	}
	return "unknown"
}

// Needs returns the kind of state and the verb that a rule must have to let an agent
// do the action; no verb: no rule can.
func (a Action) Needs() (State, Verbs) {
	if a >= NumActions || decrees[a].most == [numKinds]rule{} {
		return 0, 0
	}
	return decrees[a].state, decrees[a].verb
}

// The doors of namespaces.
const (
	jujuDoor   = "juju"
	consulDoor = "consul"
	serverDoor = "server" // the members themselves: no request comes by it
)

// Reserved returns the door that a namespace belongs to, "": it belongs to nobody.
// What the door's own protocol says is done there, and others look, unless a policy
// lets them do more in Juju's. Elsewhere no policy can: what members agree on is
// nobody's, and what Consul's door stores says as whom a query is executed, and who has
// fired an event.
func Reserved(namespace string) string {
	switch {
	case namespace == "application-leadership", namespace == "singular-controller":
		return jujuDoor
	case namespace == incumbent.ServerNamespace:
		return serverDoor
	case strings.HasPrefix(namespace, QueriesOf), strings.HasPrefix(namespace, EventsOf):
		return consulDoor
	}
	return ""
}

// What namespaces begin with in which Consul's door stores prepared queries and events of
// another.
const (
	QueriesOf = "consul-queries-"
	EventsOf  = "consul-events-"
)

// looks are the verbs that change nothing.
const looks = See | Follow

// Authorize returns nil if a principal with these rights may do the action to the
// resource, else a Denied error that says what would be needed. It is the one
// decision for all doors.
func Authorize(g *Rights, a Action, r Resource) error {
	if g.permits(a, &r) {
		return nil
	}
	refused := r // so that what is permitted allocates nothing
	return g.denied(a, &refused)
}

// AuthorizeRows is [Authorize] for whoever has changes of rows judged by the roles of
// their database: each has to be within one of the roles, none: all are allowed. Who asks
// Authorize for [TableWrite] is refused for those who have roles.
func AuthorizeRows(g *Rights, r Resource) (roles []string, err error) {
	if err = Authorize(g, TableWrite, r); err == nil || !g.permits(TableWriteInRole, &r) {
		return nil, err
	}
	switch roles = g.roles(r.Name, r.Whole); {
	case len(roles) == 0:
		return nil, err
	case len(roles) > MaxRoles:
		return nil, deny("%s has %d roles in %s: limit MaxRoles is %d", g.principal, len(roles), r.Name.Lease, MaxRoles).
			WithHint("an operator can take some away: incumbent policy ls")
	}
	return roles, nil
}

func (g *Rights) permits(a Action, r *Resource) bool {
	p := &g.principal
	switch {
	case a >= NumActions, p.Kind == Anonymous, p.Kind >= numKinds:
		return false
	case p.Kind == Operator:
		return true
	}
	d := &decrees[a]
	if door := d.reservedFor(r); door != "" {
		return g.permitsIn(door, d, r)
	}
	if g.rules == nil {
		return d.free[p.Kind].holds(p, r)
	}
	return d.own == always || p.Kind == Agent && d.own.holds(p, r) || g.lets(d, r)
}

// lets reports whether a rule lets the principal do what its kind may be let do.
func (g *Rights) lets(d *decree, r *Resource) bool {
	how := one
	if r.Whole {
		how = whole
	}
	return g.rules != nil && d.most[g.principal.Kind].holds(&g.principal, r) && g.granted(d.state, d.verb, compared(d, r), how)
}

// reservedFor is the door that a resource belongs to; "": there is none, or another
// one only looks.
func (d *decree) reservedFor(r *Resource) string {
	if d.state != Leases && d.state != Keys {
		return ""
	}
	door := Reserved(r.Name.Namespace)
	if d.verb&looks != 0 && r.Door != door {
		return ""
	}
	return door
}

// permitsIn decides about what changes something in a namespace that belongs to a
// door. An agent holds there by its own door's rules, or as itself alone: a name
// below its own is another agent's there.
func (g *Rights) permitsIn(door string, d *decree, r *Resource) bool {
	p := &g.principal
	if r.Door != door {
		return door == jujuDoor && !g.isAnother(d, r) && g.lets(d, r)
	}
	if g.rules == nil || door == jujuDoor && !g.rules.replaced {
		return d.free[p.Kind].holds(p, r)
	}
	return g.lets(d, r)
}

// isAnother reports whether a holder is not the principal itself.
func (g *Rights) isAnother(d *decree, r *Resource) bool {
	return d.most[g.principal.Kind] == asHolder && r.Holder != g.principal.Name
}

// named is what rules compare: a session has the name of who opened it.
func named(d *decree, r *Resource) incumbent.Name {
	if d.state == Sessions {
		return incumbent.Name{Lease: r.Owner}
	}
	return r.Name
}

// compared is what is compared with the patterns of rules: those of nodes and services
// are folded, too, so that nobody has a right to another spelling of a name.
func compared(d *decree, r *Resource) incumbent.Name {
	n := named(d, r)
	if d.state.folds() {
		n.Lease = incumbent.Fold(n.Lease)
	}
	return n
}

// folds reports whether names of a kind of state that differ in case alone are one.
func (s State) folds() bool { return s == Nodes || s == Services }

// holds reports whether a principal meets the rule's condition.
func (l rule) holds(p *Principal, r *Resource) bool {
	switch l {
	case always:
		return true
	case asHolder:
		return p.Is(r.Holder)
	case asOwner:
		return p.opened(r.Owner)
	default:
		return false
	}
}

// opened reports whether who opened a session is the principal, as [Principal.String]
// says it, without writing that: lists ask it of each.
func (p *Principal) opened(owner string) bool {
	kind := p.Kind.String()
	return p.Name != "" && len(owner) == len(kind)+1+len(p.Name) && strings.HasPrefix(owner, kind) &&
		owner[len(kind)] == ':' && strings.HasSuffix(owner, p.Name)
}

// denied says why, and what would help.
func (g *Rights) denied(a Action, r *Resource) error {
	p := g.principal
	if p.Kind == Anonymous || p.Kind >= numKinds || a >= NumActions {
		return deny("%s may not do %s", p, a).WithHint("bring a client certificate or --credential-file")
	}
	d := &decrees[a]
	most, door := d.most[p.Kind], d.reservedFor(r)
	if door == r.Door {
		door = ""
	}
	switch {
	case door == serverDoor || door == consulDoor:
		return deny("%s may not do %s in namespace %s: it belongs to the door %s", p, a, r.Name.Namespace, door).
			WithHint("use another namespace")
	case most == asHolder && !p.Is(r.Holder):
		return deny("%s may not %s %s for holder %q", p, a, r.Name, r.Holder).
			WithHint("an agent acts only for the holder of its own name, or below it: " + p.Name + " or " + p.Name + "/…")
	case door != "" && g.isAnother(d, r):
		return deny("%s may not %s %s for holder %q", p, a, r.Name, r.Holder).
			WithHint("in the namespaces of the door " + door + " an agent acts only for the holder of its very name")
	case most == asOwner && !most.holds(&p, r), a == SessionClose && g.rules == nil && most != never:
		return deny("%s may not do %s: the session is not its own", p, a).
			WithHint("use a session that this agent has opened, or ask an operator")
	case door != "" && g.rules == nil:
		return deny("%s may not do %s in namespace %s: it belongs to the door %s", p, a, r.Name.Namespace, door).
			WithHint("an operator can allow it by a policy: incumbent policy set")
	case most == never || g.rules == nil:
		return deny("%s may not do %s", p, a).
			WithHint("ask for a certificate or credential of a kind that may: " + strings.Join(allowed(a), ", "))
	}
	return deny("%s may not do %s: no policy lets it %s %s%s", p, a, d.verb, d.state, whereOf(d, r, &p)).
		WithHint("an operator can allow it with incumbent policy set; incumbent policy test says what holds")
}

func deny(format string, args ...any) *incumbent.Error {
	return incumbent.Errorf(incumbent.Denied, format, args...)
}

func whereOf(d *decree, r *Resource, p *Principal) string {
	switch n := named(d, r); {
	case n == incumbent.Name{}:
		return ""
	case d.state == Leases:
		return " " + n.String()
	case d.state != Sessions && d.state != Cluster:
		return " " + n.Namespace + ":" + n.Lease
	case d.state == Sessions && !p.opened(n.Lease):
		return " of others" // of whom is not told to whoever knows the session's id
	default:
		return " of " + n.Lease
	}
}

// allowed returns the kinds that may do the action, on some condition.
func allowed(a Action) []string {
	var names []string
	for k := range numKinds {
		if a < NumActions && (k == Operator || decrees[a].free[k] != never) {
			names = append(names, k.String())
		}
	}
	return names
}

// Sight is what a principal may see, or follow, of one kind of state. The zero value
// sees nothing.
type Sight struct {
	g      *Rights
	action Action
	all    bool
}

// Sight returns what may be seen with these rights by an action that looks.
func (g *Rights) Sight(a Action) Sight {
	s := Sight{g: g, action: a}
	p := &g.principal
	s.all = p.Kind == Operator || p.Kind < numKinds && g.rules == nil && decrees[a].free[p.Kind] == always
	return s
}

// All reports whether everything may be seen.
func (s Sight) All() bool { return s.all }

// Sees reports whether something of a name may be seen.
func (s Sight) Sees(n incumbent.Name) bool {
	return s.all || s.g != nil && s.g.permits(s.action, &Resource{Name: n})
}

// Within is what may be seen of what begins with a name: all of it, where that may be
// seen.
func (s Sight) Within(n incumbent.Name) Sight {
	s.all = s.all || s.g != nil && s.g.permits(s.action, &Resource{Name: n, Whole: true})
	return s
}

// Key tells sights apart by what they show of what has names: who has an equal one sees
// the same, whoever it is.
func (s Sight) Key() string {
	switch {
	case s.all:
		return ""
	case s.g == nil:
		return "nothing"
	}
	d := &decrees[s.action]
	return s.g.principal.Kind.String() + " " + string(s.g.states[d.state].appendKey(nil, d.verb))
}

// SeesOf reports whether what a principal has opened may be seen: a session.
func (s Sight) SeesOf(owner string) bool {
	return s.all || s.g != nil && s.g.permits(s.action, &Resource{Owner: owner})
}

// SeesAny returns nil if something whose name begins so may be seen, else Denied.
func (s Sight) SeesAny(n incumbent.Name) error {
	d := &decrees[s.action]
	if s.all || s.g.principal.Kind < numKinds && d.most[s.g.principal.Kind] == always && s.g.granted(d.state, d.verb, compared(d, &Resource{Name: n}), some) {
		return nil
	}
	return s.g.denied(s.action, &Resource{Name: n, Whole: true})
}

// Possible returns nil unless a principal with these rights may not do the action to
// anything.
func Possible(g *Rights, a Action) error {
	p := &g.principal
	if a >= NumActions || p.Kind == Anonymous || p.Kind >= numKinds {
		return g.denied(a, &Resource{})
	}
	d := &decrees[a]
	switch {
	case p.Kind == Operator, d.own == always, d.own != never && p.Kind == Agent:
		return nil
	case g.rules == nil && d.free[p.Kind] != never, d.most[p.Kind] != never && g.verbs[d.state]&d.verb != 0:
		return nil
	}
	return deny("%s may not do %s", p, a).
		WithHint("ask for a certificate or credential of a kind that may: " + strings.Join(allowed(a), ", ") + "; with policies, one must allow it: incumbent policy test")
}

// Somebody returns Denied for who is nobody.
func Somebody(g *Rights) error {
	if p := g.principal; p.Kind == Anonymous || p.Kind >= numKinds {
		return deny("%s may do nothing", p).WithHint("bring a client certificate or --credential-file")
	}
	return nil
}
