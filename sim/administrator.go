package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/node"
)

// Times of the administrator.
const (
	administers = 4 * time.Second // between two deeds, on average
	pinnedFor   = 8 * time.Second // a pin, at most
	registers   = time.Second     // looks at who is recorded, at most
)

// administrator is what people do about leases that others hold: they pin them,
// take the pins away, and revoke, now or at the deadline. It changes policies, and
// records who belongs to the cluster, as each member's server does.
type administrator struct {
	w *world
	a *agent // makes its calls, by way of any member

	heard map[string]incumbent.Index // when policies were last modified, as far as it knows
}

func newAdministrator(w *world) *administrator {
	return &administrator{w: w, heard: map[string]incumbent.Index{}, a: &agent{w: w, id: 2*len(w.agents) + len(w.members), at: w.anyone(), rate: 1, people: true}}
}

// begin lets it act at random intervals until the healing.
func (d *administrator) begin() {
	d.w.after(d.w.upTo(2*administers), func() {
		if d.w.healed {
			return
		}
		d.act()
		d.begin()
	})
}

// configure sets what the run is to have from its beginning, until it is set.
func (d *administrator) configure() {
	if d.w.cfg.Quota > 0 {
		d.set(settings.Command{Name: "kv.quota-bytes", Value: d.w.cfg.Quota})
	}
	if d.w.cfg.Flood != nil {
		for _, c := range besideFloods() {
			d.set(c)
		}
	}
}

// quotasSet are the quotas that the administrator sets, and what becomes of what is over
// one.
var quotasSet = [...]string{
	quotaMode, "quota.sessions", "quota.leases@agent:1", "quota.places@agent:*", "quota.keys", "quota.key-bytes@agent:2", "quota.namespace.leases",
}

const quotaMode = "quota.mode"

// besideFloods are settings of a run with a flood. What goes on beside the flood is to be
// served as before, and what a quota refuses is not: those that are for everybody are not
// for its clients, nor for their namespace.
func besideFloods() (cs []settings.Command) {
	for _, name := range quotasSet {
		d, ok := settings.Declared(name)
		switch {
		case !ok || d.For == settings.Nobody || strings.Contains(name, "@"):
			continue
		case d.For == settings.Namespaces:
			name += "@" + floodOf
		default:
			name += "@" + floodOf + ":*"
		}
		cs = append(cs, settings.Command{Name: name}) // 0: no limit
	}
	return cs
}

// set changes a setting of the cluster, until that has been answered.
func (d *administrator) set(c settings.Command) {
	again := func() { d.set(c) }
	d.a.at = d.w.anyone()
	d.a.submit(c, func(r core.Result) {
		if r.Err != nil {
			d.a.later(d.w.upTo(returns), again)
		}
	}, again)
}

// quotas sets one of the quotas, or what becomes of what is over one.
func (d *administrator) quotas() {
	rng := d.w.rng
	c := settings.Command{Name: quotasSet[rng.IntN(len(quotasSet))], Value: int64(rng.IntN(4))}
	if c.Name == quotaMode {
		c.Value = 1 + int64(rng.IntN(2))
	}
	if c.Unset = rng.IntN(3) == 0; c.Unset {
		c.Value = 0
	}
	d.do(c)
}

func (d *administrator) act() {
	w := d.w
	name := leaseName(w.rng.IntN(w.cfg.Leases))
	d.a.at = w.anyone()
	switch w.rng.IntN(10) {
	case 8, 9:
		d.quotas()
	case 0, 1, 2:
		d.pins(name)
	case 6, 7:
		d.policy()
	case 3, 4:
		d.do(leases.RevokeCommand{Name: name, By: "people", AtDeadline: true})
	default:
		d.do(leases.RevokeCommand{Name: name, By: "people"})
	}
}

// pins pins a lease for a while.
func (d *administrator) pins(name incumbent.Name) {
	d.do(leases.PinCommand{Name: name, Entity: d.w.entity()})
	d.w.after(d.w.upTo(pinnedFor), func() { d.do(leases.UnpinCommand{Name: name, Entity: d.w.entity()}) })
}

// entity is what pins: one of two, so that a lease may have two pins.
func (w *world) entity() string { return fmt.Sprintf("entity-%d", w.rng.IntN(2)) }

func (d *administrator) do(cmd core.Command) {
	d.w.note("administrator: %T %+v", cmd, cmd)
	d.a.submit(cmd, func(core.Result) {}, func() {})
}

// conclude takes all pins away, until each is gone: what was asked before has
// been decided by now.
func (d *administrator) conclude() {
	for i := range d.w.cfg.Leases {
		for e := range 2 {
			d.unpin(leases.UnpinCommand{Name: leaseName(i), Entity: fmt.Sprintf("entity-%d", e)})
		}
	}
}

func (d *administrator) unpin(cmd leases.UnpinCommand) {
	again := func() { d.unpin(cmd) }
	d.a.submit(cmd, func(r core.Result) {
		if r.Err != nil {
			d.a.later(d.w.upTo(returns), again)
		}
	}, again)
}

// register has the leader record who belongs to the cluster, as raft counts
// them. A record that says what is there already changes nothing, so that it is
// said again now and then.
func (d *administrator) register() {
	w := d.w
	if w.ends > 0 && w.now > w.ends+3*registers {
		return
	}
	w.after(w.upTo(registers), d.register)
	p := w.leading()
	if p == nil || p.frozen {
		return
	}
	st := p.node.Status()
	counted := slices.Concat(st.Voters, st.Learners)
	view := p.group.View()
	for _, m := range view.Members() {
		if !slices.Contains(counted, m.ID) {
			p.record(st.Term, core.RemoveMemberCommand{ID: m.ID})
		}
	}
	for _, id := range counted {
		if m := w.member(id); m != nil && (w.chance(20) || !recorded(view, id)) {
			p.record(st.Term, core.PutMemberCommand{Member: core.Member{
				ID: id, Name: fmt.Sprintf("machine-%d", m.at), Schema: core.SchemaVersion, Learner: m.learner,
			}})
		}
	}
	p.work()
}

func recorded(v *core.View, id uint64) bool {
	_, is := v.Member(id)
	return is
}

// record proposes a record of a member, for the term in which it was found to be
// needed.
func (p *process) record(term uint64, cmd core.Command) {
	p.node.Propose(node.Proposal{Command: cmd.Encode(core.Meta{}), Term: term, Reserve: true})
}

// registered checks that the records name whom raft counts, and that no id that
// is gone is among them (G33).
func (c *checker) registered() {
	p := c.w.leading()
	if p == nil {
		c.w.violate("nobody leads at the end (G35)")
		return
	}
	st := p.node.Status()
	counted := slices.Sorted(slices.Values(slices.Concat(st.Voters, st.Learners)))
	var named []uint64
	view := p.group.View()
	for _, m := range view.Members() {
		named = append(named, m.ID)
		if view.MemberGone(m.ID) {
			c.w.violate("member %x is gone and recorded (G33)", m.ID)
		}
	}
	if !slices.Equal(named, counted) {
		c.w.violate("members %x are recorded, raft counts %x (G33)", named, counted)
	}
}

// leaseName is the name of one of the leases that agents want.
func leaseName(i int) incumbent.Name {
	return leaseNamed(fmt.Sprintf("lease-%d", i))
}

func leaseNamed(name string) incumbent.Name {
	return incumbent.Name{Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: name}
}
