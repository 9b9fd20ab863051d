package lease

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/node"
)

// An extension waits until a command is applied that is committed and concerns what it
// extends, and for no other. What it names that is not here waits for all of them.
func TestG04_AnExtensionWaitsForWhatConcernsItOnly(t *testing.T) {
	const (
		a = 1 << iota // a lease that a session owns
		s             // that session
		n             // a lease that is held without one, by name
		x             // a token that nobody has
	)
	names := map[int]string{a: "the lease of a session", s: "the session", n: "a lease without one, by name", x: "a token of nobody"}
	for _, v := range []struct {
		what  string
		cmd   func(token incumbent.Token) core.Command // of the lease of the session
		waits int
		ends  int
	}{
		{"a claim of another lease", func(incumbent.Token) core.Command {
			return leases.ClaimCommand{Name: leaseName("new"), Holder: "x", TTL: ttl}
		}, x, 0},
		{"a claim of the lease by somebody else", func(incumbent.Token) core.Command {
			return leases.ClaimCommand{Name: leaseName("a"), Holder: "x", Session: sessionID(2), Wait: true}
		}, x, 0},
		{"the release of another lease", func(incumbent.Token) core.Command {
			return leases.ReleaseCommand{Name: leaseName("other"), Holder: "o"}
		}, x, 0},
		{"its release", func(token incumbent.Token) core.Command {
			return leases.ReleaseCommand{Name: leaseName("a"), Token: token}
		}, a | x, a},
		{"the release of the other, by its holder", func(incumbent.Token) core.Command {
			return leases.ReleaseCommand{Name: leaseName("n"), Holder: "n"}
		}, n | x, n},
		{"its release by name", func(incumbent.Token) core.Command {
			return leases.ReleaseCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1)}
		}, a | x, a},
		{"a release of another holding of it", func(token incumbent.Token) core.Command {
			return leases.ReleaseCommand{Name: leaseName("a"), Token: token + 99}
		}, x, 0},
		{"its revocation", func(incumbent.Token) core.Command {
			return leases.RevokeCommand{Name: leaseName("a"), By: "op"}
		}, a | s | n | x, a},
		{"its revocation at the deadline", func(incumbent.Token) core.Command {
			return leases.RevokeCommand{Name: leaseName("a"), By: "op", AtDeadline: true}
		}, a | s | n | x, a},
		{"its transfer", func(incumbent.Token) core.Command {
			return leases.TransferCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1), ToSession: sessionID(2), ToHolder: "x"}
		}, a | x, a},
		{"its expiry", func(token incumbent.Token) core.Command {
			return leases.ExpireCommand{Token: token, Renewal: 1 << 40} // which is void
		}, a | x, 0},
		{"the end of its session", func(incumbent.Token) core.Command {
			return core.CloseSessionCommand{ID: sessionID(1)}
		}, a | s | x, a | s},
		{"the expiry of its session", func(incumbent.Token) core.Command {
			return core.ExpireSessionCommand{ID: sessionID(1), Renewal: 1 << 40}
		}, a | s | x, 0},
		{"the end of another session", func(incumbent.Token) core.Command {
			return core.CloseSessionCommand{ID: sessionID(2)}
		}, x, 0},
		{"the end of a transaction that releases it", func(token incumbent.Token) core.Command {
			return core.TxnCommand{Then: []core.Command{leases.ReleaseCommand{Name: leaseName("a"), Token: token}}}
		}, a | x, a},
		{"a setting that is set", func(incumbent.Token) core.Command {
			return settings.Command{Name: "quota.watches@agent:a", Value: 1}
		}, x, 0},
		{"the registration of a service", func(incumbent.Token) core.Command {
			return registered(catalog.Command{Service: &catalog.Service{ID: "web", Name: "web"}})
		}, x, 0},
		{"the registration of a check that is critical", func(incumbent.Token) core.Command {
			return registered(catalog.Command{Checks: []*catalog.Check{{ID: "web", Status: catalog.Critical}}})
		}, a | s | n | x, 0},
		{"a change of members", func(incumbent.Token) core.Command {
			return core.RemoveMemberCommand{ID: 9}
		}, a | s | n | x, 0},
	} {
		for what, name := range names {
			c := newCluster(t, Config{}, 3)
			c.lead(1)
			p := c.at(1)
			for i := range 2 {
				p.must(core.OpenSessionCommand{ID: sessionID(i + 1), TTL: ttl})
			}
			token := leases.AnswerOf(p.must(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1)})).Lease.Token
			p.claim("n", "n", ttl)
			p.claim("other", "o", ttl)
			c.auto = false
			c.unapplied(v.cmd(token))
			ask := map[int]Extension{
				a: {Token: token}, s: {Session: sessionID(1)}, n: {Named: &Named{leaseName("n"), "n"}}, x: {Token: 1},
			}[what]
			b, done := p.extend(ask)
			if len(p.confirms) != 1 || !p.ahead(&p.confirms[0]) {
				t.Fatalf("confirmations %+v", p.confirms)
			}
			if *done == (v.waits&what != 0) {
				t.Errorf("%s, with %s ahead: answered before it is applied: %v", name, v.what, *done)
			}
			_, later := p.extend(ask) // behind the round that waits
			if len(p.confirms) != 2 || !p.ahead(&p.confirms[1]) || *later == (v.waits&what != 0) {
				t.Errorf("%s, with %s ahead, told of before: answered before it is applied: %v", name, v.what, *later)
			}
			c.auto = true
			c.settle()
			kind := b.Items[0].Kind
			if !*done || !*later || (kind == incumbent.OK) != ((v.ends|x)&what == 0) {
				t.Errorf("%s, after %s: answered %v, %v", name, v.what, *done, kind)
			}
			if len(p.e.behind) > 0 {
				t.Errorf("%s, after %s: %d rounds are behind", name, v.what, len(p.e.behind))
			}
		}
	}
}

// registered is a registration on a node that is registered with it.
func registered(c catalog.Command) core.Command {
	c.Verb, c.Target, c.Node = catalog.Register, catalog.Target{Namespace: incumbent.DefaultNamespace, Node: "host"}, &catalog.Node{Address: "192.0.2.1"}
	return c
}

// A service ends with its session, and with its checks the sessions that depend on them: an
// extension of one of those waits for the end of any session.
func TestG04_AnExtensionWaitsForWhatEndsItThroughAnother(t *testing.T) {
	const (
		depends = iota + 2 // on a check of a service that ends with session 1
		apart              // on nothing
	)
	for what, waits := range map[int]bool{depends: true, apart: false} {
		for _, lease := range []bool{false, true} {
			c := newCluster(t, Config{}, 3)
			c.lead(1)
			p := c.at(1)
			p.must(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
			p.must(core.OpenSessionCommand{ID: sessionID(apart), TTL: ttl})
			c.unapplied(registered(catalog.Command{
				Service: &catalog.Service{ID: "web", Name: "web", Session: sessionID(1)},
				Checks:  []*catalog.Check{{ID: "web", ServiceID: "web", Status: catalog.Passing}},
			}))
			c.unapplied(catalog.Command{
				Verb: catalog.OpenSession, Target: catalog.Target{Namespace: incumbent.DefaultNamespace, Node: "host"},
				Session: &catalog.Session{ID: sessionID(depends), TTL: ttl, ServiceChecks: []string{"web"}},
			})
			c.settle()
			token := leases.AnswerOf(p.must(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(what)})).Lease.Token
			c.auto = false
			c.unapplied(core.CloseSessionCommand{ID: sessionID(1)})
			ask := Extension{Session: sessionID(what)}
			if lease {
				ask = Extension{Token: token}
			}
			b, done := p.extend(ask)
			if len(p.confirms) != 1 || !p.ahead(&p.confirms[0]) {
				t.Fatalf("confirmations %+v", p.confirms)
			}
			if *done == waits {
				t.Errorf("session %d, by its lease: %v: answered before the other has ended: %v", what, lease, *done)
			}
			c.auto = true
			c.settle()
			if held := b.Items[0].Kind == incumbent.OK; !*done || held == waits {
				t.Errorf("session %d, by its lease: %v: answered %v, %v", what, lease, *done, b.Items[0].Kind)
			}
		}
	}
}

// What is due is proposed to expire only once the state has caught up, and a round that
// fails meanwhile takes nothing of it back.
func TestG02_AnExpiryWaitsForTheState(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	p := c.at(1)
	p.claim("a", "h", ttl)
	c.auto = false
	c.unapplied(leases.ClaimCommand{Name: leaseName("b"), Holder: "x", TTL: ttl})
	for n := 0; len(p.confirms) == 0 && n < 1000; n++ {
		c.advance(tickEvery)
	}
	if len(p.confirms) != 1 || !p.ahead(&p.confirms[0]) || !p.barrier() {
		t.Fatalf("confirmations %+v", p.confirms)
	}
	if len(p.proposed) != 0 {
		t.Fatalf("proposed %d before the state has caught up", len(p.proposed))
	}
	p.turn(func() { // another round begins meanwhile, and fails
		p.e.Extend(&Batch{Items: []Extension{{Token: 99}}, Done: func(*Batch) {}})
	})
	if len(p.confirms) != 2 {
		t.Fatalf("confirmations %+v", p.confirms)
	}
	other := p.confirms[1]
	p.confirms = p.confirms[:1]
	p.step(func() { p.e.Confirmed(other.id, 0, incumbent.Errorf(incumbent.Overloaded, "too many")) })
	p.applyOne()
	p.confirm()
	if len(p.proposed) != 1 {
		t.Errorf("proposed %d once it has", len(p.proposed))
	}
}

// What is ahead is forgotten as it is applied.
func TestAheadForgets(t *testing.T) {
	v := core.New(leases.Family{}).View()
	release := func(name string) [][]byte {
		return [][]byte{leases.ReleaseCommand{Name: leaseName(name), Holder: "h"}.Encode(core.Meta{})}
	}
	held := func(name string) *leases.Lease {
		s := core.New(leases.Family{})
		r := make([]core.Result, 1)
		s.Apply([][]byte{leases.ClaimCommand{Name: leaseName(name), Holder: "h", TTL: ttl}.Encode(core.Meta{})}, r)
		return leases.AnswerOf(r[0]).Lease
	}
	a := newAhead()
	a.learn(v, &node.Ahead{Applied: 4, Entries: []node.Unapplied{{Index: 5, Commands: release("b")}, {Index: 6, Commands: release("a")}}})
	if !a.any() || !a.ends(v, held("a")) || !a.ends(v, held("b")) || a.ends(v, held("c")) {
		t.Errorf("of two releases %+v", a)
	}
	a.learn(v, &node.Ahead{Applied: 5, Entries: []node.Unapplied{{Index: 7}}})
	if !a.ends(v, held("c")) {
		t.Error("an entry of which nothing is known ends nothing")
	}
	a.learn(v, &node.Ahead{Applied: 5})
	if a.anything != 1 || len(a.names) != 1 {
		t.Errorf("with the first applied: %+v", a)
	}
	a.learn(v, &node.Ahead{Applied: 7, Entries: []node.Unapplied{{Index: 8, Commands: release("b")}}})
	if !a.any() || a.ends(v, held("a")) || !a.ends(v, held("b")) {
		t.Errorf("of %+v", a)
	}
	a.learn(v, &node.Ahead{Applied: 8})
	if a.any() || len(a.names)+len(a.keys)+a.anything > 0 {
		t.Errorf("of nothing %+v", a)
	}
}
