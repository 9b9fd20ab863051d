package catalog

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
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

const space = "default"

// small is the family with smaller limits.
type small struct {
	Family
	limits limits
}

func (f small) New() core.Tables {
	t := newTables()
	t.limits = f.limits
	return t
}

func (f small) state() *core.State { return core.New(leases.Family{}, f) }

var ample = small{limits: limits{1000, 100, 20, 20, 5}}

func sessionID(n int) incumbent.SessionID { return incumbent.SessionID{0: 1, 15: byte(n)} }

// naive is the catalog once more, in maps by folded names, and without a thought for
// cost. Its indexes are never forgotten.
type naive struct {
	index    incumbent.Index
	nodes    map[string]Node
	services map[[2]string]Service
	checks   map[[2]string]Check
	sessions map[incumbent.SessionID]Session
	open     map[incumbent.SessionID]bool
	last     map[string]incumbent.Index // "service x", "node n", "nodes", …
	ending   []incumbent.SessionID
	told     []string // what watchers are told, in order: see [toldBy]
}

// key is where a service or a check of a node stands, however that is written.
func key(node, id string) [2]string { return [2]string{incumbent.Fold(node), incumbent.Fold(id)} }

func newNaive() *naive {
	return &naive{
		nodes: map[string]Node{}, services: map[[2]string]Service{}, checks: map[[2]string]Check{},
		sessions: map[incumbent.SessionID]Session{}, open: map[incumbent.SessionID]bool{}, last: map[string]incumbent.Index{},
	}
}

func (n *naive) copied() *naive {
	c := newNaive()
	c.index, c.told = n.index, slices.Clone(n.told)
	for k, v := range n.nodes {
		c.nodes[k] = v
	}
	for k, v := range n.services {
		c.services[k] = v
	}
	for k, v := range n.checks {
		c.checks[k] = v
	}
	for k, v := range n.sessions {
		c.sessions[k] = v
	}
	for k, v := range n.open {
		c.open[k] = v
	}
	for k, v := range n.last {
		c.last[k] = v
	}
	return c
}

// moved tells of a change of a record, and moves the indexes of its table, of its node and
// of services.
func (n *naive) moved(table Table, node, id string, services ...string) {
	name := node
	switch table {
	case Services, Checks:
		name += "\x00" + id
	case Sessions:
		name = id
	}
	list := []string{"node " + incumbent.Fold(node)}
	for _, s := range services {
		list = append(list, "service "+incumbent.Fold(s))
	}
	slices.Sort(list)
	list = slices.Compact(list)
	n.last[string(table)] = n.index
	for _, what := range list {
		n.last[what] = n.index
	}
	n.told = append(n.told, fmt.Sprintf("%d %s %q: %q", n.index, table, incumbent.Fold(name), list))
}

// shown are the services whose instances show a check.
func (n *naive) shown(c Check) []string {
	if c.ServiceID != "" {
		return []string{n.services[key(c.Node, c.ServiceID)].Name}
	}
	return n.namesOn(c.Node)
}

func (n *naive) namesOn(node string) (names []string) {
	for _, s := range n.services {
		if incumbent.Alike(s.Node, node) {
			names = append(names, s.Name)
		}
	}
	return names
}

func (n *naive) dropCheck(c Check) {
	n.moved(Checks, c.Node, c.ID, n.shown(c)...)
	delete(n.checks, key(c.Node, c.ID))
	n.endBound(c.Node, c.ID)
}

func (n *naive) endBound(node, check string) {
	for _, id := range slices.SortedFunc(maps.Keys(n.sessions), func(a, b incumbent.SessionID) int { return bytes.Compare(a[:], b[:]) }) {
		s := n.sessions[id]
		if s.Node == node && (check == "" || slices.ContainsFunc(s.checks(), func(id string) bool { return incumbent.Alike(id, check) })) {
			n.ending = append(n.ending, id)
		}
	}
}

func (n *naive) dropService(s Service) {
	for _, c := range n.sortedChecks() {
		if c.Node == s.Node && c.ServiceID == s.ID {
			n.dropCheck(c)
		}
	}
	n.moved(Services, s.Node, s.ID, s.Name)
	delete(n.services, key(s.Node, s.ID))
}

func (n *naive) dropNode(name string) {
	for _, s := range n.sortedServices() {
		if s.Node == name {
			n.dropService(s)
		}
	}
	for _, c := range n.sortedChecks() {
		if c.Node == name {
			n.dropCheck(c)
		}
	}
	n.moved(Nodes, name, "")
	delete(n.nodes, incumbent.Fold(name))
	n.endBound(name, "")
}

// settle ends the sessions that are to end.
func (n *naive) settle() {
	for len(n.ending) > 0 {
		id := n.ending[0]
		n.ending = n.ending[1:]
		if !n.open[id] {
			continue
		}
		delete(n.open, id)
		if s, ok := n.sessions[id]; ok {
			delete(n.sessions, id)
			n.moved(Sessions, s.Node, s.ID.String())
			n.lead(s, Critical, "Session '"+s.ID.String()+"' is invalid")
		}
		for _, s := range n.sortedServices() {
			if s.Session == id {
				n.dropService(s)
			}
		}
	}
}

func (n *naive) putCheck(c Check) {
	k := key(c.Node, c.ID)
	o, there := n.checks[k]
	c.ServiceName, c.ServiceTags = "", nil
	if c.ServiceID != "" {
		s := n.services[key(c.Node, c.ServiceID)]
		c.ServiceID, c.ServiceName, c.ServiceTags = s.ID, s.Name, s.Tags
	}
	if there && c.same(&o) {
		return
	}
	c.Created, c.Modified, c.Since = n.index, n.index, n.index
	shown := n.shown(c)
	if there {
		c.Created = o.Created
		if c.Status == o.Status && c.TTL == o.TTL && c.DeregisterAfter == o.DeregisterAfter {
			c.Since = o.Since
		}
		shown = append(shown, n.shown(o)...)
	}
	n.checks[k] = c
	n.moved(Checks, c.Node, c.ID, shown...)
	if c.Status == Critical {
		n.endBound(c.Node, c.ID)
	}
}

func (n *naive) putService(s Service) {
	k := key(s.Node, s.ID)
	o, there := n.services[k]
	if there && s.same(&o) {
		return
	}
	s.Created, s.Modified = n.index, n.index
	names := []string{s.Name}
	if there {
		s.Created = o.Created
		names = append(names, o.Name)
	}
	n.services[k] = s
	n.moved(Services, s.Node, s.ID, names...)
	for _, c := range n.sortedChecks() {
		if c.Node == s.Node && incumbent.Alike(c.ServiceID, s.ID) { // which may be written otherwise now
			n.putCheck(c)
		}
	}
}

func (n *naive) byID(id string) (Node, bool) {
	for _, o := range n.nodes {
		if id != "" && o.ID == id {
			return o, true
		}
	}
	return Node{}, false
}

// written is a name as the node writes it that has it.
func (n *naive) written(node string) string {
	if o, there := n.nodes[incumbent.Fold(node)]; there {
		return o.Name
	}
	return node
}

// register returns the kind of its error; nothing has changed then.
func (n *naive) register(c *Command) incumbent.Kind {
	node := n.written(c.Target.Node)
	o, there := n.nodes[incumbent.Fold(node)]
	if c.If {
		var at incumbent.Index
		switch {
		case c.Node != nil:
			at = o.Modified
		case c.Service != nil:
			at = n.services[key(node, c.Service.ID)].Modified
		default:
			at = n.checks[key(node, c.Checks[0].ID)].Modified
		}
		if at != c.Index {
			return incumbent.Conflict
		}
	}
	if c.Node == nil && !there {
		return incumbent.NotFound
	}
	if c.Node != nil && there && c.Node.ID != "" && o.ID != "" && o.ID != c.Node.ID {
		if serf, ok := n.checks[key(node, serfHealth)]; !ok || serf.Status != Critical {
			return incumbent.Conflict
		}
	}
	if c.Service != nil && !c.Service.Session.IsZero() && !n.open[c.Service.Session] {
		return incumbent.Expired
	}
	for _, k := range c.Checks {
		_, ok := n.services[key(node, k.ServiceID)]
		if k.ServiceID != "" && !ok && (c.Service == nil || !incumbent.Alike(c.Service.ID, k.ServiceID)) {
			return incumbent.NotFound
		}
	}
	if c.Node != nil {
		next := *c.Node
		next.Namespace, next.Name = space, node
		if next.ID == "" {
			next.ID = o.ID
		}
		created := n.index
		if same, ok := n.byID(next.ID); ok && !incumbent.Alike(same.Name, node) {
			n.dropNode(same.Name)
			created = same.Created
		}
		if !there || !next.same(&o) {
			next.Created, next.Modified = created, n.index
			if there {
				next.Created = o.Created
			}
			n.nodes[incumbent.Fold(node)] = next
			n.moved(Nodes, node, "", n.namesOn(node)...)
		}
	}
	if c.Service != nil {
		s := *c.Service
		s.Namespace, s.Node = space, node
		n.putService(s)
	}
	for _, k := range c.Checks {
		next := *k
		next.Namespace, next.Node = space, node
		if had, ok := n.checks[key(node, k.ID)]; ok && c.KeepOutput {
			next.Status, next.Output = had.Status, had.Output
		}
		n.putCheck(next)
	}
	return incumbent.OK
}

func (n *naive) command(c *Command) incumbent.Kind {
	k := key(c.Target.Node, c.Target.ID)
	switch c.Verb {
	case Register:
		return n.register(c)
	case Deregister:
		node, isNode := n.nodes[incumbent.Fold(c.Target.Node)]
		s, isService := n.services[k]
		check, isCheck := n.checks[k]
		at := map[Kind]incumbent.Index{NodeKind: node.Modified, ServiceKind: s.Modified, CheckKind: check.Modified}[c.Target.Kind]
		switch {
		case c.If && at != c.Index:
			return incumbent.Conflict
		case c.Target.Kind == NodeKind && isNode:
			n.dropNode(node.Name)
		case c.Target.Kind == ServiceKind && isService:
			n.dropService(s)
		case c.Target.Kind == CheckKind && isCheck:
			n.dropCheck(check)
		}
	case UpdateCheck:
		o, ok := n.checks[k]
		if !ok {
			return incumbent.NotFound
		}
		if c.Status != o.Status || !c.StatusOnly {
			o.Status, o.Output = c.Status, c.Output
			n.putCheck(o)
		}
	case Lapse:
		o, ok := n.checks[k]
		switch {
		case !ok || o.Since != c.Index || o.Deadline() == nil:
			return incumbent.Conflict
		case o.Status == Critical:
			n.dropService(n.services[key(o.Node, o.ServiceID)])
		default:
			o.Status, o.Output = Critical, Expired
			n.putCheck(o)
		}
	case OpenSession:
		return n.openSession(c)
	}
	return incumbent.OK
}

// sortedChecks and sortedServices are in the order in which the state goes through them.
func (n *naive) sortedChecks() (list []Check) {
	for _, k := range slices.SortedFunc(maps.Keys(n.checks), compareKeys) {
		list = append(list, n.checks[k])
	}
	return list
}

func (n *naive) sortedServices() (list []Service) {
	for _, k := range slices.SortedFunc(maps.Keys(n.services), compareKeys) {
		list = append(list, n.services[k])
	}
	return list
}

func compareKeys(a, b [2]string) int {
	return slices.Compare(a[:], b[:])
}

// lead has what follows a session become what that makes it.
func (n *naive) lead(s Session, status Status, output string) {
	for _, c := range n.sortedChecks() {
		if c.Node == s.Node && s.Leads && c.SessionName != "" && c.SessionName == s.Name && c.Status != status {
			c.Status, c.Output = status, output
			n.putCheck(c)
		}
	}
}

func (n *naive) openSession(c *Command) incumbent.Kind {
	s := *c.Session
	s.Namespace, s.Node = space, n.written(c.Target.Node)
	if o, ok := n.sessions[s.ID]; ok {
		if !o.same(&s) {
			return incumbent.Exists
		}
		return incumbent.OK
	}
	if _, ok := n.nodes[incumbent.Fold(s.Node)]; !ok {
		return incumbent.NotFound
	}
	for _, id := range s.checks() {
		k, ok := n.checks[key(s.Node, id)]
		if !ok {
			return incumbent.NotFound
		}
		if k.Status == Critical && (!s.Leads || k.SessionName == "" || k.SessionName != s.Name) {
			return incumbent.Conflict
		}
	}
	if n.open[s.ID] {
		return incumbent.Exists
	}
	s.Created, s.Modified = n.index, n.index
	n.open[s.ID], n.sessions[s.ID] = true, s
	n.moved(Sessions, s.Node, s.ID.String())
	n.lead(s, Passing, "Session '"+s.ID.String()+"' in force")
	return incumbent.OK
}

// apply executes a command as the state does.
func (n *naive) apply(c core.Command) incumbent.Kind {
	n.index++
	kind := incumbent.OK
	switch c := c.(type) {
	case core.OpenSessionCommand:
		n.open[c.ID] = true
	case core.CloseSessionCommand:
		n.ending = append(n.ending, c.ID)
	case Command:
		kind = n.command(&c)
	case core.TxnCommand:
		kind = n.transaction(c)
	}
	n.settle()
	return kind
}

func (n *naive) transaction(c core.TxnCommand) incumbent.Kind {
	was := n.copied()
	for _, op := range c.Then {
		if cmd, ok := op.(Command); ok && cmd.Verb != Get {
			if kind := n.command(&cmd); kind != incumbent.OK {
				*n = *was
				return kind
			}
		}
	}
	return incumbent.OK
}

// draws. Names come in two cases.

func drawName(t *rapid.T, what string, names ...string) string {
	name := rapid.SampledFrom(names).Draw(t, what)
	if rapid.IntRange(0, 3).Draw(t, "upper") == 0 {
		return strings.ToUpper(name)
	}
	return name
}

func drawCheck(t *rapid.T) *Check {
	c := &Check{
		ID: drawName(t, "check", "c1", "c2", serfHealth), Status: Status(rapid.IntRange(0, 2).Draw(t, "status")),
		ServiceID: drawName(t, "of", "", "s1", "s2"), Output: rapid.SampledFrom([]string{"", "x"}).Draw(t, "output"),
		TTL: time.Duration(rapid.IntRange(0, 1).Draw(t, "ttl")) * time.Minute,
	}
	if c.ServiceID == "" {
		c.SessionName = rapid.SampledFrom([]string{"", "", "lock"}).Draw(t, "follows")
	}
	c.DeregisterAfter = time.Duration(rapid.IntRange(0, 1).Draw(t, "after")) * time.Hour
	return c
}

func drawNode(t *rapid.T) string {
	return drawName(t, "node", "n1", "n2", "n3")
}

func drawSession(t *rapid.T) incumbent.SessionID {
	return sessionID(rapid.IntRange(1, 3).Draw(t, "session"))
}

func drawRegister(t *rapid.T) Command {
	c := Command{Verb: Register, Target: Target{Namespace: space, Node: drawNode(t)}}
	parts := rapid.IntRange(1, 7).Draw(t, "parts")
	if parts&1 != 0 {
		c.Node = &Node{ID: rapid.SampledFrom([]string{"", "id1", "id2"}).Draw(t, "id"), Address: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "address")}
	}
	if parts&2 != 0 {
		c.Service = &Service{ID: drawName(t, "service", "s1", "s2"), Name: drawName(t, "name", "web", "db", "mail")}
		c.Service.Tags = rapid.SampledFrom([][]string{nil, {"t"}}).Draw(t, "tags")
		if c.Service.SocketPath = rapid.SampledFrom([]string{"", "/run/s"}).Draw(t, "socket"); rapid.IntRange(0, 2).Draw(t, "ports") == 0 {
			c.Service.Port, c.Service.Ports = 80, []Port{{"http", 80, true}, {"metrics", uint16(rapid.IntRange(81, 82).Draw(t, "port")), false}}
		}
		if rapid.IntRange(0, 3).Draw(t, "bound") == 0 {
			c.Service.Session = drawSession(t)
		}
	}
	if parts&4 != 0 {
		c.Checks = rapid.SliceOfNDistinct(rapid.Custom(drawCheck), 1, 2, func(c *Check) string { return incumbent.Fold(c.ID) }).Draw(t, "checks")
		c.KeepOutput = rapid.Bool().Draw(t, "keep")
	}
	return c
}

func (m *model) drawCommand(t *rapid.T) Command {
	c := Command{Target: Target{Namespace: space, Node: drawNode(t), Kind: CheckKind, ID: drawName(t, "id", "c1", "c2", serfHealth)}}
	switch rapid.IntRange(0, 4).Draw(t, "verb") {
	case 0:
		c.Verb = Deregister
		switch c.Target.Kind = Kind(rapid.IntRange(1, 3).Draw(t, "kind")); c.Target.Kind {
		case NodeKind:
			c.Target.ID = ""
		case ServiceKind:
			c.Target.ID = drawName(t, "id", "s1", "s2")
		}
	case 1:
		c.Verb, c.Status = UpdateCheck, Status(rapid.IntRange(0, 2).Draw(t, "status"))
		c.StatusOnly, c.Output = rapid.Bool().Draw(t, "only"), rapid.SampledFrom([]string{"", "x"}).Draw(t, "output")
	default:
		c = drawRegister(t)
	}
	one := c.Verb == Deregister || c.Verb == Register && (c.Node != nil) != (c.Service != nil) && len(c.Checks) == 0
	if one && rapid.IntRange(0, 3).Draw(t, "conditional") == 0 {
		c.If = true
		if c.Index = incumbent.Index(rapid.IntRange(0, 2).Draw(t, "index")); c.Index == 2 {
			target := c.Target
			if c.Verb == Register {
				target = c.one()
			}
			_, c.Index = Of(m.s.View()).record(target)
		}
	}
	return c
}

func (m *model) drawTransaction(t *rapid.T) (c core.TxnCommand) {
	for range rapid.IntRange(1, 4).Draw(t, "operations") {
		c.Then = append(c.Then, m.drawCommand(t))
	}
	return c
}

type model struct {
	s *core.State
	n *naive
}

func (m *model) do(t *rapid.T, c core.Command) {
	before := m.s.View()
	idle, answered := idling(before, c)
	encoded, ends := c.Encode(core.Meta{}), map[incumbent.SessionID]bool{}
	effect := before.Effect(encoded, func(end *core.End) { ends[end.Session] = true })
	results := make([]core.Result, 1)
	changes := m.s.Apply([][]byte{encoded}, results)
	for i := range 3 {
		id := sessionID(i + 1)
		if o, n := before.Session(id), m.s.View().Session(id); o != nil && n != nil && o.Opened == n.Opened && before.MayFollow(id) != m.s.View().MayFollow(id) {
			t.Fatalf("%+v changes whether session %v may follow others", c, id)
		}
		if before.Session(id) != nil && m.s.View().Session(id) == nil && effect != core.Anything && !ends[id] && !(len(ends) > 0 && before.MayFollow(id)) {
			t.Fatalf("%+v ends session %v, which it does not say", c, id)
		}
	}
	m.n.told = nil
	kind := m.n.apply(c)
	if d := cmp.Diff(m.n.told, toldBy(changes)); d != "" {
		t.Fatalf("%+v: watchers are told (-want +got):\n%s", c, d)
	}
	if got := incumbent.KindOf(errOf(results[0])); got != kind {
		t.Fatalf("%+v: %v, want %v", c, results[0].Err, kind)
	}
	if answered && (incumbent.KindOf(errOf(idle)) != kind || !same(before, m.s.View())) {
		t.Fatalf("%+v was answered from the view with %v, and then: %v", c, idle.Err, results[0].Err)
	}
	if err := m.s.Check(); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	m.compare(t)
}

// doAll executes several commands as one batch.
func (m *model) doAll(t *rapid.T, cmds []core.Command) {
	var encoded [][]byte
	var kinds []incumbent.Kind
	m.n.told = nil
	for _, c := range cmds {
		encoded = append(encoded, c.Encode(core.Meta{}))
		kinds = append(kinds, m.n.apply(c))
	}
	results := make([]core.Result, len(cmds))
	if d := cmp.Diff(m.n.told, toldBy(m.s.Apply(encoded, results))); d != "" {
		t.Fatalf("%+v: watchers are told (-want +got):\n%s", cmds, d)
	}
	for i, r := range results {
		if got := incumbent.KindOf(errOf(r)); got != kinds[i] {
			t.Fatalf("%d of %+v: %v, want %v", i, cmds, r.Err, kinds[i])
		}
	}
	if rapid.Bool().Draw(t, "checked before it is seen") {
		if err := m.s.Check(); err != nil {
			t.Fatalf("%+v: %v", cmds, err)
		}
	}
	m.compare(t)
	if err := m.s.Check(); err != nil {
		t.Fatalf("%+v: %v", cmds, err)
	}
}

// toldBy is what watchers are told: the index, the topic and the further topics of each
// change.
func toldBy(changes []core.Change) (list []string) {
	for _, c := range changes {
		if c.Family == nil || !c.Family.Told() {
			continue
		}
		var also []string
		for _, topic := range c.Family.Also {
			also = append(also, topic.Scope[1]+" "+topic.Name)
		}
		list = append(list, fmt.Sprintf("%d %s %q: %q", c.Index, c.Family.Topic.Scope[1], c.Family.Topic.Name, also))
	}
	return list
}

func errOf(r core.Result) error {
	if r.Err == nil {
		return nil
	}
	return r.Err
}

// idling answers a command from a view.
func idling(v *core.View, c core.Command) (core.Result, bool) {
	if cmd, ok := c.(Command); ok {
		return Of(v).Idling(&cmd, func(id incumbent.SessionID) bool { return v.Session(id) != nil })
	}
	return core.Result{}, false
}

// section is what a view writes into a snapshot.
func section(v *View) string {
	var b strings.Builder
	v.Write(func(r []byte) bool {
		fmt.Fprintf(&b, "%x\n", r)
		return true
	})
	return b.String()
}

func same(a, b *core.View) bool { return section(Of(a)) == section(Of(b)) }

// compare compares the view with the naive one.
func (m *model) compare(t *rapid.T) {
	v := Of(m.s.View())
	got := newNaive()
	v.Nodes(space, "", func(n *Node) bool {
		got.nodes[incumbent.Fold(n.Name)] = *n
		if by := v.NodeByID(space, n.ID); n.ID != "" && by != n {
			t.Fatalf("node %s by its id %s: %v", n.Name, n.ID, by)
		}
		v.NodeServices(space, n.Name, func(s *Service) bool {
			got.services[key(s.Node, s.ID)] = *s
			return true
		})
		v.NodeSessions(space, n.Name, func(s *Session) bool {
			got.sessions[s.ID] = *s
			return true
		})
		return true
	})
	v.Checks(space, func(c *Check) bool {
		got.checks[key(c.Node, c.ID)] = *c
		return true
	})
	for what, d := range map[string]string{
		"nodes": cmp.Diff(m.n.nodes, got.nodes), "services": cmp.Diff(m.n.services, got.services),
		"checks": cmp.Diff(m.n.checks, got.checks), "sessions": cmp.Diff(m.n.sessions, got.sessions),
	} {
		if d != "" {
			t.Fatalf("%s (-want +got):\n%s", what, d)
		}
	}
	v.AllInstances(space, func(i *Instance) bool {
		if h := v.host(space, i.Service.Node); i.Node != h.node || !slices.Equal(i.NodeChecks, h.checks) || h.outdated || h.topics != nil {
			t.Fatalf("the instance of %s on %s shows another node, or other checks of it", i.Service.ID, i.Service.Node)
		}
		return true
	})
	m.compareIndexes(t, v)
}

// compareIndexes: an index is that of the last change, or the floor where that is not
// remembered; never less.
func (m *model) compareIndexes(t *rapid.T, v *View) {
	for name, want := range m.n.last {
		of, rest, named := strings.Cut(name, " ")
		var got incumbent.Index
		switch {
		case !named:
			got = v.TableIndex(space, Table(of))
		case of == "node":
			got = v.NodeIndex(space, rest)
		default:
			got = v.ServiceIndex(space, rest)
		}
		if got != max(want, v.floor) {
			t.Fatalf("index of %s is %d, want %d, the floor is %d", name, got, want, v.floor)
		}
	}
}

// The catalog does what a naive one does, whatever the commands, in transactions and
// alone; a snapshot of it gives the same catalog again.
func TestG28_CatalogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{ample.state(), newNaive()}
		t.Repeat(map[string]func(*rapid.T){
			"command": func(t *rapid.T) { m.do(t, m.drawCommand(t)) },
			"again":   func(t *rapid.T) { m.do(t, m.drawCommand(t)) },
			"session": func(t *rapid.T) {
				s := &Session{ID: drawSession(t), Name: rapid.SampledFrom([]string{"", "lock"}).Draw(t, "name"), Leads: rapid.IntRange(0, 3).Draw(t, "leads") > 0}
				s.NodeChecks = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"c1", "C1", "c2", serfHealth}), 0, 2, rapid.ID).Draw(t, "checks")
				if len(s.NodeChecks) == 0 {
					s.NodeChecks = nil
				}
				m.do(t, Command{Verb: OpenSession, Target: Target{Namespace: space, Node: drawNode(t)}, Session: s})
			},
			"batch": func(t *rapid.T) {
				var cmds []core.Command
				for range rapid.IntRange(2, 6).Draw(t, "commands") {
					if rapid.IntRange(0, 4).Draw(t, "of several") == 0 {
						cmds = append(cmds, m.drawTransaction(t))
					} else {
						cmds = append(cmds, m.drawCommand(t))
					}
				}
				m.doAll(t, cmds)
			},
			"open":  func(t *rapid.T) { m.do(t, core.OpenSessionCommand{ID: drawSession(t)}) },
			"close": func(t *rapid.T) { m.do(t, core.CloseSessionCommand{ID: drawSession(t)}) },
			"lapse": func(t *rapid.T) {
				var list []*core.Deadline
				Of(m.s.View()).Deadlines(func(d *core.Deadline) bool {
					list = append(list, d)
					return true
				})
				if len(list) == 0 {
					t.Skip()
				}
				d := *rapid.SampledFrom(list).Draw(t, "deadline")
				d.Generation -= incumbent.Index(rapid.IntRange(0, 1).Draw(t, "old"))
				if d.Generation == 0 {
					t.Skip()
				}
				m.do(t, Of(m.s.View()).EndDeadline(&d))
			},
			"transaction": func(t *rapid.T) { m.do(t, m.drawTransaction(t)) },
			"restart": func(t *rapid.T) {
				var b bytes.Buffer
				if err := m.s.View().WriteSnapshot(&b); err != nil {
					t.Fatal(err)
				}
				s, err := core.Restore(&b, leases.Family{}, ample)
				if err != nil {
					t.Fatal(err)
				}
				if !same(s.View(), m.s.View()) {
					t.Fatal("a snapshot gives another catalog")
				}
				m.s = s
			},
		})
	})
}
