package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

func run(t testing.TB, s *core.State, cmds ...core.Command) (results []core.Result, changes []core.Change) {
	t.Helper()
	for _, c := range cmds {
		one := make([]core.Result, 1)
		changes = append(changes, s.Apply([][]byte{c.Encode(core.Meta{})}, one)...)
		results = append(results, one[0])
		if err := s.Check(); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	return results, changes
}

// must executes commands that succeed.
func must(t testing.TB, s *core.State, cmds ...core.Command) []core.Result {
	t.Helper()
	results, _ := run(t, s, cmds...)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("%+v: %v", cmds[i], r.Err)
		}
	}
	return results
}

func on(node string) Target { return Target{Namespace: space, Node: node} }

func ofCheck(node, id string) Target { return Target{CheckKind, space, node, id} }

func becomes(id string, s Status) Command {
	return Command{Verb: UpdateCheck, Target: ofCheck("n", id), Status: s}
}

// registered is a node with a service and checks that pass.
func registered(checks ...string) Command {
	c := Command{Verb: Register, Target: on("n"), Node: &Node{Address: "a"}, Service: &Service{ID: "s", Name: "web"}}
	for _, id := range checks {
		c.Checks = append(c.Checks, &Check{ID: id, Status: Passing, ServiceID: "s"})
	}
	return c
}

func opened(id incumbent.SessionID, checks ...string) Command {
	return Command{Verb: OpenSession, Target: on("n"), Session: &Session{ID: id, TTL: time.Minute, ServiceChecks: checks}}
}

func leaseName(name string) incumbent.Name {
	return incumbent.Name{Namespace: space, Model: space, Lease: name}
}

// A session that ends because of a transaction gives its leases to those who wait, behind
// the transaction: under tokens of their own, which are greater than all before.
func TestG03_SessionsThatATransactionEndsHandTheirLeasesOver(t *testing.T) {
	s := ample.state()
	bound, waits := sessionID(1), sessionID(2)
	must(t, s, registered("c"), opened(bound, "c"), core.OpenSessionCommand{ID: waits},
		leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: bound}, leases.ClaimCommand{Name: leaseName("b"), Holder: "h", Session: bound},
		leases.ClaimCommand{Name: leaseName("a"), Holder: "w", Session: waits, Wait: true}, leases.ClaimCommand{Name: leaseName("b"), Holder: "w", Session: waits, Wait: true})
	results, changes := run(t, s, core.TxnCommand{Then: []core.Command{
		leases.ClaimCommand{Name: leaseName("x"), Holder: "h", Session: waits},
		leases.ClaimCommand{Name: leaseName("y"), Holder: "h", Session: waits},
		becomes("c", Critical),
		Command{Verb: Get, Target: ofCheck("n", "c")},
	}})
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	seen := map[incumbent.Token]bool{}
	for _, name := range []string{"x", "y", "a", "b"} {
		l := leases.Of(s.View()).Lease(leaseName(name))
		if l.Session != waits || seen[l.Token] {
			t.Errorf("lease %s: token %d of session %v", name, l.Token, l.Session)
		}
		seen[l.Token] = true
	}
	var last incumbent.Index
	for _, c := range changes {
		if c.Index < last {
			t.Errorf("a change of index %d is told behind one of %d", c.Index, last)
		}
		last = c.Index
	}
	if s.View().Session(bound) != nil || Of(s.View()).Session(bound) != nil {
		t.Error("the session is open, and its check is critical")
	}
}

// A session lives for twice the ttl that it says, once all members know that, and for a day
// at most; one that is opened again for as long as it has.
func TestSessionsLiveForTwiceTheirTTL(t *testing.T) {
	s := ample.state()
	opens := func(id int, ttl time.Duration) Command {
		c := opened(sessionID(id))
		c.Session.TTL = ttl
		return c
	}
	lives := func(id int, ttl, want time.Duration) {
		t.Helper()
		must(t, s, opens(id, ttl))
		if got := s.View().Session(sessionID(id)).TTL; got != want {
			t.Errorf("a session of %v lives for %v, want %v", ttl, got, want)
		}
		if got := Of(s.View()).Session(sessionID(id)).TTL; got != ttl {
			t.Errorf("a session of %v says %v", ttl, got)
		}
	}
	member := func(schema uint32) {
		must(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
	}
	member(lifeSchema - 1)
	must(t, s, registered())
	lives(1, time.Minute, time.Minute)
	member(lifeSchema)
	lives(1, time.Minute, time.Minute)
	lives(2, time.Minute, 2*time.Minute)
	lives(2, time.Minute, 2*time.Minute)
	lives(3, 0, 0)
	lives(4, 13*time.Hour, incumbent.MaxTTL)
}

// A transaction that fails ends no session, whatever it did before.
func TestG24_ATransactionThatFailsEndsNoSession(t *testing.T) {
	s := ample.state()
	bound := sessionID(1)
	must(t, s, registered("c"), opened(bound, "c"))
	results, changes := run(t, s, core.TxnCommand{Then: []core.Command{
		Command{Verb: Deregister, Target: Target{NodeKind, space, "n", ""}}, Command{Verb: UpdateCheck, Target: ofCheck("n", "c")},
	}})
	if incumbent.KindOf(results[0].Err) != incumbent.NotFound || len(changes) != 0 || s.View().Session(bound) == nil {
		t.Fatalf("%v, %d changes, session %v", results[0].Err, len(changes), s.View().Session(bound))
	}
	must(t, s, becomes("c", Critical))
	if s.View().Session(bound) != nil {
		t.Error("the session is open, and its check is critical")
	}
}

// Extensions wait for what may end a session, and only for that.
func TestG04_WhatMayEndASessionIsSaid(t *testing.T) {
	registers := func(c Command) Command {
		c.Verb, c.Target = Register, on("n")
		return c
	}
	service := &Service{ID: "t", Name: "db"}
	for _, x := range []struct {
		what string
		cmd  core.Command
		may  bool
		ends bool
	}{
		{"a service", registers(Command{Service: service}), false, false},
		{"a node without an id", registers(Command{Node: &Node{Address: "b"}, Service: service}), false, false},
		{"a check that passes", registers(Command{Checks: []*Check{{ID: "c", Status: Passing, Output: "x"}, {ID: "d", Status: Warning}}}), false, false},
		{"what passes", becomes("c", Passing), false, false},
		{"a session", opened(sessionID(2), "c"), false, false},
		{"several", core.TxnCommand{Then: []core.Command{registers(Command{Service: service}), becomes("c", Warning)}}, false, false},
		{"a critical check", registers(Command{Checks: []*Check{{ID: "d", Status: Passing}, {ID: "c"}}}), true, true},
		{"what is critical", becomes("c", Critical), true, true},
		{"that of another", becomes("d", Critical), true, false},
		{"a node that is renamed", Command{Verb: Register, Target: on("m"), Node: &Node{ID: "id"}}, true, true},
		{"a node that goes", Command{Verb: Deregister, Target: Target{NodeKind, space, "n", ""}}, true, true},
		{"a service that goes", Command{Verb: Deregister, Target: Target{ServiceKind, space, "n", "s"}}, true, true},
		{"one that goes among several", core.TxnCommand{Then: []core.Command{registers(Command{Service: service}), Command{Verb: Deregister, Target: ofCheck("n", "c")}}}, true, true},
	} {
		s := ample.state()
		node := registered("c", "d")
		node.Node.ID = "id"
		must(t, s, node, opened(sessionID(1), "c"))
		effect := s.View().Effect(x.cmd.Encode(core.Meta{}), func(*core.End) {})
		must(t, s, x.cmd)
		if ended := s.View().Session(sessionID(1)) == nil; (effect == core.Anything) != x.may || ended != x.ends {
			t.Errorf("%s: effect %d, the session ended: %v", x.what, effect, ended)
		}
	}
}

// What ends with a session may end others: all of them end with the one command.
func TestSessionsEndInChains(t *testing.T) {
	s := ample.state()
	must(t, s, Command{Verb: Register, Target: on("n"), Node: &Node{}, Checks: []*Check{{ID: "first", Status: Passing}}})
	const length = 10
	before := "first"
	for i := range length {
		id := sessionID(i + 1)
		name := strings.Repeat("s", i+1)
		must(t, s, opened(id, before), Command{
			Verb: Register, Target: on("n"), Service: &Service{ID: name, Name: name, Session: id},
			Checks: []*Check{{ID: name, ServiceID: name, Status: Passing}},
		})
		before = name
	}
	must(t, s, becomes("first", Critical))
	v := Of(s.View())
	if n := s.View().SessionCount(); n != 0 || v.services.Len() != 0 || v.checks.Len() != 1 || v.sessions.Len() != 0 {
		t.Errorf("%d sessions, %d services and %d checks are left", n, v.services.Len(), v.checks.Len())
	}
}

// A flap of an instance costs the same however many instances there are: it tells of
// three topics, moves three indexes, and shares all other instances with the view before.
func TestAFlapTouchesItsInstanceAlone(t *testing.T) {
	s := small{limits: newTables().limits}.state()
	for i := range 100 {
		node := strings.Repeat("n", i+1)
		must(t, s, Command{
			Verb: Register, Target: on(node), Node: &Node{}, Service: &Service{ID: "s", Name: "web"},
			Checks: []*Check{{ID: "c", ServiceID: "s", Status: Passing}},
		})
	}
	instances := func() (list []*Instance) {
		Of(s.View()).Instances(space, "web", func(i *Instance) bool {
			list = append(list, i)
			return true
		})
		return list
	}
	before := instances()
	_, changes := run(t, s, becomes("c", Critical))
	after := instances()
	differ := 0
	for i := range before {
		if before[i] != after[i] {
			differ++
		}
	}
	if len(before) != 100 || len(after) != 100 || differ != 1 || after[0].Status() != Critical {
		t.Errorf("of %d and %d instances %d differ, the first is %v", len(before), len(after), differ, after[0].Status())
	}
	if len(changes) != 1 || len(changes[0].Family.Also) != 2 {
		t.Errorf("told: %+v", changes)
	}
}

// Indexes of names that are of nothing are bounded: what is forgotten raises the floor,
// so that no index goes back.
func TestG14_IndexesOfNothingAreForgottenUpwards(t *testing.T) {
	s := ample.state()
	var last incumbent.Index
	for i := range 4 * ample.limits.tombstones {
		name := strings.Repeat("x", i+1)
		must(t, s, Command{Verb: Register, Target: on(name), Node: &Node{}}, Command{Verb: Deregister, Target: Target{NodeKind, space, name, ""}})
		v := Of(s.View())
		at := v.NodeIndex(space, "x")
		if at < last || v.NodeIndex(space, name) != s.Index() {
			t.Fatalf("index of the first is %d, after %d; that of the newest %d of %d", at, last, v.NodeIndex(space, name), s.Index())
		}
		last = at
	}
	v := Of(s.View())
	if n := v.marks.Len(); n != ample.limits.tombstones+1 || v.floor == 0 { // with that of the table
		t.Errorf("%d indexes, the floor is %d", n, v.floor)
	}
}

// Limits refuse what is one too many, and nothing of it has happened.
func TestG39_ACatalogIsBounded(t *testing.T) {
	base := registered("c")
	node := func(name string) Command { return Command{Verb: Register, Target: on(name), Node: &Node{}} }
	for name, c := range map[string]struct {
		limits limits
		one    core.Command
	}{
		"records":  {limits{3, 9, 9, 9, 9}, node("m")},
		"services": {limits{9, 1, 9, 9, 9}, Command{Verb: Register, Target: on("n"), Service: &Service{ID: "t", Name: "t"}}},
		"checks":   {limits{9, 9, 1, 9, 9}, Command{Verb: Register, Target: on("n"), Checks: []*Check{{ID: "d", ServiceID: "s"}}}},
		"sessions": {limits{9, 9, 9, 0, 9}, opened(sessionID(1))},
	} {
		s := small{limits: c.limits}.state()
		must(t, s, base)
		before := section(Of(s.View()))
		results, _ := run(t, s, c.one)
		if incumbent.KindOf(results[0].Err) != incumbent.TooLarge || section(Of(s.View())) != before {
			t.Errorf("%s: %v", name, results[0].Err)
		}
		must(t, s, becomes("c", Warning), base)
	}
}

// governed is the family with a quota of registrations for each principal.
type governed struct {
	Family
	most int64
}

func (f governed) New() core.Tables { return &governedTables{newTables(), f.most} }

type governedTables struct {
	*tables
	most int64
}

// Terms implements [core.Governing].
func (t *governedTables) Terms() *core.Terms {
	terms := &core.Terms{Quotas: core.Enforce}
	terms.Principals[core.Registrations].Each = t.most
	return terms
}

// What a record says may be two hundred thousand bytes, and so many records are nobody's
// usual quota: large ones count as more, and as what they are when they have another owner,
// grow, shrink or go.
func TestG39_LargeRecordsCountAsMore(t *testing.T) {
	s := core.New(leases.Family{}, governed{most: 6})
	tags := func(n int) []string { return slices.Repeat([]string{strings.Repeat("x", firstMaxTagBytes)}, n) }
	register := func(who string, size int, want incumbent.Kind, count int64) {
		t.Helper()
		c := Command{Verb: Register, Target: on("n"), Node: &Node{Address: "a"}, Service: &Service{ID: "s", Name: "web", Tags: tags(size)}}
		results := make([]core.Result, 1)
		s.Apply([][]byte{c.Encode(core.Meta{Origin: core.Origin{Principal: who}})}, results)
		if got := incumbent.KindOf(errorOf(results[0])); got != want {
			t.Errorf("%d tags of %s: %v, want %v", size, who, got, want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if got := s.View().Usage().Principal(who).Of(core.Registrations); got != count {
			t.Errorf("%s has %d with %d tags, want %d", who, got, size, count)
		}
	}
	register("agent:a", 1, incumbent.OK, 2)
	register("agent:a", 32, incumbent.OK, 6) // sixteen kilobytes
	register("agent:a", 40, incumbent.TooLarge, 6)
	register("agent:b", 48, incumbent.TooLarge, 0)
	register("agent:b", 16, incumbent.OK, 3)
	register("agent:b", 1, incumbent.OK, 1)
	must(t, s, Command{Verb: Deregister, Target: Target{Kind: NodeKind, Namespace: space, Node: "n"}})
	for _, who := range []string{"agent:a", "agent:b"} {
		if got := s.View().Usage().Principal(who).Of(core.Registrations); got != 0 {
			t.Errorf("%s has %d when all is gone", who, got)
		}
	}
}

// Proxies are told by tags what to route, by rules of more than 512 bytes. Members of earlier
// versions would refuse them, so there are none while one of these belongs to the cluster.
func TestG49_LongTagsComeOnceAllMembersKnowOfThem(t *testing.T) {
	s := core.New(leases.Family{}, Family{})
	register := func(tags ...string) incumbent.Kind {
		c := Command{Verb: Register, Target: on("n"), Node: &Node{Address: "a"}, Service: &Service{ID: "s", Name: "web", Tags: tags}}
		results := make([]core.Result, 1)
		s.Apply([][]byte{c.Encode(core.Meta{})}, results)
		return incumbent.KindOf(errorOf(results[0]))
	}
	long := strings.Repeat("x", MaxTagBytes)
	for _, x := range []struct {
		schema uint32
		tags   []string
		want   incumbent.Kind
	}{
		{tagsSchema - 1, []string{long[:firstMaxTagBytes]}, incumbent.OK},
		{tagsSchema - 1, []string{"a", long[:firstMaxTagBytes+1]}, incumbent.TooLarge},
		{tagsSchema, []string{"a", long}, incumbent.OK},
		{tagsSchema, []string{long + "x"}, incumbent.TooLarge},
		{tagsSchema, slices.Repeat([]string{long}, MaxTagsBytes/MaxTagBytes), incumbent.OK},
		{tagsSchema, slices.Repeat([]string{long}, MaxTagsBytes/MaxTagBytes+1), incumbent.TooLarge},
	} {
		must(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: x.schema}})
		if got := register(x.tags...); got != x.want {
			t.Errorf("schema %d, %d tags, the last of %d bytes: %v, want %v", x.schema, len(x.tags), len(x.tags[len(x.tags)-1]), got, x.want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// A service has several ports, or a socket, once all members know of them.
func TestServicesWithPortsAndSockets(t *testing.T) {
	s := ample.state()
	several := []Port{{"http", 80, true}, {"metrics", 90, false}}
	for _, x := range []struct {
		name   string
		schema uint32
		is     Service
		want   incumbent.Kind
	}{
		{"ports before all know of them", tagsSchema - 1, Service{Port: 80, Ports: several}, incumbent.Invalid},
		{"a socket before all know of them", tagsSchema - 1, Service{SocketPath: "/s"}, incumbent.Invalid},
		{"ports", tagsSchema, Service{Port: 80, Ports: several}, incumbent.OK},
		{"a socket", tagsSchema, Service{SocketPath: "/s"}, incumbent.OK},
		{"another port than the default one", tagsSchema, Service{Port: 90, Ports: several}, incumbent.Invalid},
		{"a port twice", tagsSchema, Service{Port: 80, Ports: []Port{several[0], {"http", 81, false}}}, incumbent.Invalid},
		{"two defaults", tagsSchema, Service{Port: 80, Ports: []Port{several[0], {"also", 80, true}}}, incumbent.Invalid},
		{"no default", tagsSchema, Service{Port: 90, Ports: several[1:]}, incumbent.Invalid},
		{"no name", tagsSchema, Service{Port: 80, Ports: []Port{{"", 80, true}}}, incumbent.Invalid},
		{"port 0", tagsSchema, Service{Ports: []Port{{"http", 0, true}}}, incumbent.Invalid},
		{"a long name", tagsSchema, Service{Port: 80, Ports: []Port{{strings.Repeat("x", MaxPairKeyBytes+1), 80, true}}}, incumbent.TooLarge},
		{"many", tagsSchema, Service{Port: 80, Ports: slices.Repeat(several, MaxPorts)}, incumbent.Invalid},
		{"a long path", tagsSchema, Service{SocketPath: strings.Repeat("x", MaxAddressBytes+1)}, incumbent.TooLarge},
	} {
		x.is.ID, x.is.Name = "s", "web"
		must(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: x.schema}})
		results, _ := run(t, s, Command{Verb: Register, Target: on("n"), Node: &Node{Address: "a"}, Service: &x.is})
		if got := incumbent.KindOf(errorOf(results[0])); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
			continue
		}
		if is := Of(s.View()).Service(space, "n", "s"); x.want == incumbent.OK && (!slices.Equal(is.Ports, x.is.Ports) || is.SocketPath != x.is.SocketPath) {
			t.Errorf("%s: %+v", x.name, is)
		}
	}
}

// A check of a node follows the sessions of a name on it, once all members know of that: it
// passes once one opens, though it was critical, and the end of any of them ends all that
// depend on it.
func TestChecksFollowSessions(t *testing.T) {
	s := ample.state()
	registers := func(k Check) Command {
		return Command{Verb: Register, Target: on("n"), Node: &Node{Address: "a"}, Service: &Service{ID: "s", Name: "web"}, Checks: []*Check{&k}}
	}
	opens := func(id int, name string) Command {
		return Command{Verb: OpenSession, Target: on("n"), Session: &Session{ID: sessionID(id), Name: name, Leads: name == "esm", NodeChecks: []string{"c"}}}
	}
	refused := func(what string, want incumbent.Kind, c Command) {
		t.Helper()
		if results, _ := run(t, s, c); incumbent.KindOf(errorOf(results[0])) != want {
			t.Errorf("%s: %v, want %v", what, errorOf(results[0]), want)
		}
	}
	is := func(status Status, output string, open ...int) {
		t.Helper()
		if c := Of(s.View()).Check(space, "n", "c"); c.Status != status || c.Output != output {
			t.Errorf("the check is %v, %q", c.Status, c.Output)
		}
		for id := range 4 {
			if there := s.View().Session(sessionID(id)) != nil; there != slices.Contains(open, id) {
				t.Errorf("session %d is open: %v", id, there)
			}
		}
	}
	member := func(schema uint32) {
		must(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
	}
	follows := Check{ID: "c", SessionName: "esm"}
	member(FollowSchema - 1)
	refused("before all know of it", incumbent.Invalid, registers(follows))
	refused("before all know of it", incumbent.Invalid, opens(1, "esm"))
	member(FollowSchema)
	refused("a check of a service", incumbent.Invalid, registers(Check{ID: "c", ServiceID: "s", SessionName: "esm"}))
	must(t, s, registers(follows))
	refused("a session of another name", incumbent.Conflict, opens(1, "leader"))
	others := opens(1, "esm")
	others.Session.Leads = false
	refused("one who may not write the node", incumbent.Conflict, others)
	must(t, s, opens(1, "esm"), opens(2, "leader"))
	is(Passing, "Session '"+sessionID(1).String()+"' in force", 1, 2)
	must(t, s, opens(3, "esm"))
	is(Passing, "Session '"+sessionID(1).String()+"' in force", 1, 2, 3)
	must(t, s, core.CloseSessionCommand{ID: sessionID(2)})
	is(Passing, "Session '"+sessionID(1).String()+"' in force", 1, 3)
	must(t, s, core.CloseSessionCommand{ID: sessionID(3)})
	is(Critical, "Session '"+sessionID(3).String()+"' is invalid")

	var many []*Check
	for i := range MaxFollowing {
		many = append(many, &Check{ID: fmt.Sprint("f", i), SessionName: "x"})
	}
	more := Command{Verb: Register, Target: on("n"), Checks: many}
	refused("more than may follow", incumbent.TooLarge, more)
	more.Checks = many[1:]
	must(t, s, more, more)
}

// A member that counts each record as one would execute what is refused for a large one:
// until all members count further ones a record says nothing of them, and stays as it is
// until it is registered anew.
func TestG49_LargeRecordsCountAsMoreOnceAllMembersCountSo(t *testing.T) {
	f := governed{most: 20}
	s := core.New(leases.Family{}, f)
	member := func(schema uint32) {
		must(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
	}
	large := strings.Repeat("x", 2*registrationBytes)
	register := func(address, id string) *incumbent.Error {
		c := Command{
			Verb: Register, Target: on("n"), Node: &Node{Address: address, Meta: []Pair{{"k", "v"}}},
			Service: &Service{ID: id, Name: "web", Tags: slices.Repeat([]string{large[:firstMaxTagBytes]}, 32)},
			Checks:  []*Check{{ID: "c-" + id, Status: Passing, ServiceID: id, Definition: []byte(large)}},
		}
		results := make([]core.Result, 1)
		s.Apply([][]byte{c.Encode(core.Meta{Origin: core.Origin{Principal: "agent:a"}})}, results)
		return results[0].Err
	}
	count := func(what string, want int64) {
		t.Helper()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.View().WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		again, err := core.Restore(&b, leases.Family{}, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []*core.State{s, again} {
			if got := of.View().Usage().Principal("agent:a").Of(core.Registrations); got != want || of.View().Hash() != s.View().Hash() {
				t.Errorf("%s: %d are counted, want %d", what, got, want)
			}
		}
	}
	// written are the records as they were before any counted as more.
	written := func() (list []string) {
		v := Of(s.View())
		write := func(kind uint8, w func(*writer)) {
			var b writer
			b.Uint(1, uint64(kind))
			w(&b)
			list = append(list, string(b.B))
		}
		v.hosts.Scan(func(h *host) bool { write(nodeRecord, func(w *writer) { w.node(h.node) }); return true })
		v.services.Scan(func(s *Service) bool { write(serviceRecord, func(w *writer) { w.service(s) }); return true })
		v.checks.Scan(func(c *Check) bool { write(checkRecord, func(w *writer) { w.check(c) }); return true })
		return list
	}
	records := func() (list []string) {
		Of(s.View()).Write(func(b []byte) bool {
			list = append(list, string(b))
			return len(list) < len(written())
		})
		return list
	}

	member(core.CountSchema - 1)
	for _, id := range []string{"s", "t"} {
		if err := register("a", id); err != nil {
			t.Fatal(err)
		}
	}
	count("before all members count so", 5)
	if got, want := records(), written(); !slices.Equal(got, want) {
		t.Errorf("the records are %q", got)
	}
	before := records()
	member(core.CountSchema)
	if err := register("a", "s"); err != nil || !slices.Equal(records(), before) {
		t.Errorf("what is registered as it is: %v", err)
	}
	must(t, s, Command{Verb: UpdateCheck, Target: ofCheck("n", "c-s"), Status: Critical})
	count("what is not registered anew", 5)
	if got, want := records(), written(); !slices.Equal(got, want) {
		t.Errorf("the records are %q", got)
	}
	if err := register("a", "u"); err != nil {
		t.Fatal(err)
	}
	count("a new one", 5+5+3)
	must(t, s, Command{Verb: UpdateCheck, Target: ofCheck("n", "c-u"), Status: Critical, Output: large[:MaxOutputBytes]})
	count("a check that says more", 5+5+3)
	if err := register("a", "v"); err == nil || err.Kind != incumbent.TooLarge {
		t.Errorf("what would be more than twenty: %v", err)
	}
	for _, c := range []struct {
		id   string
		left int64
	}{{"s", 11}, {"u", 3}, {"t", 1}} {
		must(t, s, Command{Verb: Deregister, Target: Target{ServiceKind, space, "n", c.id}})
		count("without service "+c.id, c.left)
	}
}

// A record of a snapshot counts as one or as what it is, and nothing else.
func TestARecordThatCountsAsAnythingIsRefused(t *testing.T) {
	for further, fine := range map[uint64]bool{0: true, 2: true, 1: false, 3: false, 1 << 60: false} {
		s := &Service{Namespace: space, Node: "n", ID: "s", Name: "web", Tags: slices.Repeat([]string{strings.Repeat("x", firstMaxTagBytes)}, 16), Created: 1, Modified: 1, Further: further}
		tables := newTables()
		var w recordWriter
		for _, b := range [][]byte{
			bytes.Clone(w.write(nodeRecord, &Node{Namespace: space, Name: "n", Address: "a", Created: 1, Modified: 1})), w.write(serviceRecord, s),
		} {
			if !tables.ReadRecord(b) {
				t.Fatalf("%x is not read", b)
			}
		}
		again := newTables()
		if err := errors.Join(tables.verifyNodes(again, nil, 9), tables.verifyServices(again, nil, 9)); (err == nil) != fine {
			t.Errorf("%d besides one: %v", further, err)
		}
	}
}

func errorOf(r core.Result) error {
	if r.Err != nil {
		return r.Err
	}
	return nil
}

// A restore of one namespace has what is of it, and the sessions that it names.
func TestANamespaceHasItsOwn(t *testing.T) {
	s := ample.state()
	other := Command{Verb: Register, Target: Target{Namespace: "other", Node: "n"}, Node: &Node{ID: "id"}}
	must(t, s, registered("c"), opened(sessionID(1), "c"), other)
	part := s.View().Namespace(space)
	if v := Of(part); v.Node("other", "n") != nil || v.Instance(space, "n", "s") == nil || v.Session(sessionID(1)) == nil || part.Session(sessionID(1)) == nil {
		t.Error("the part is another")
	}
	var b bytes.Buffer
	if err := part.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := core.Restore(&b, leases.Family{}, ample); err != nil {
		t.Error(err)
	}
}

func FuzzCommand(f *testing.F) {
	for _, c := range []Command{registered("c", "d"), opened(sessionID(1), "c"), becomes("c", Warning), registered("C", "D"), becomes("C", Critical), {Verb: Lapse, Target: ofCheck("n", "c"), Index: 1}} {
		b := c.Encode(core.Meta{})
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := ample.state()
		must(t, s, registered("c"), opened(sessionID(9), "c"))
		r := make([]core.Result, 1)
		defer func() {
			if p := recover(); p != nil && !strings.Contains(p.(string), "newer version") {
				panic(p)
			}
		}()
		s.Apply([][]byte{b}, r)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	s := ample.state()
	must(f, s, registered("c"), opened(sessionID(9), "c"))
	Of(s.View()).Write(func(b []byte) bool {
		f.Add(bytes.Clone(b))
		return true
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		own := newTables()
		if !own.ReadRecord(b) {
			return
		}
		again := newTables()
		v := &View{own.copied()}
		v.Write(func(r []byte) bool {
			if !again.ReadRecord(r) {
				t.Fatalf("%x is read, and not what it is written as", b)
			}
			return true
		})
	})
}

// A check that is registered under its id in another case is the same one: its deadline
// begins anew, and the one before is over.
func TestADeadlineIsOneWhateverTheCase(t *testing.T) {
	s := ample.state()
	do := func(id string, status Status) (told []*core.Deadline) {
		t.Helper()
		results := make([]core.Result, 1)
		changes := s.Apply([][]byte{Command{
			Verb: Register, Target: Target{Namespace: space, Node: "n"}, Node: &Node{},
			Checks: []*Check{{ID: id, Status: status, TTL: time.Minute}},
		}.Encode(core.Meta{})}, results)
		if results[0].Err != nil {
			t.Fatal(results[0].Err)
		}
		for _, c := range changes {
			if c.Family != nil && c.Family.Deadline != nil {
				told = append(told, c.Family.Deadline)
			}
		}
		return told
	}
	first, second := do("ttl", Passing), do("TTL", Warning)
	if len(first) != 1 || len(second) != 1 || first[0].ID != second[0].ID || first[0].Generation == second[0].Generation {
		t.Errorf("deadlines %+v, then %+v", first, second)
	}
}
