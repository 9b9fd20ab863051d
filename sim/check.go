package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// checker watches over all agents and members in the one true time. Its parts:
// check_lease.go, who holds what; check_log.go, what was applied and who leads;
// check_call.go, what was answered; check_keys.go, what is under which key;
// check_locks.go, who has locked it; history.go, whether all answers about keys can
// be explained; lists.go, whether those of transactions can; check_catalog.go, what is in
// the catalog; check_polls.go, what those are told who wait for a change of it; check_tables.go, what is in
// the database, and what monitors put together; check_ends.go, what commands end; check_end.go, what must hold once all is well again.
type checker struct {
	w *world

	// Leases.
	tokens map[incumbent.Name]incumbent.Token // greatest that was granted and heard of
	log    map[incumbent.Name]incumbent.Token // greatest that was applied
	told   map[incumbent.Token]tellings       // grants that an agent was told of
	ended  map[incumbent.Token]bool           // holdings that were applied as over
	// What the administrator did: holdings that were taken by force, and those
	// that are to end at their deadline, by token and by name.
	forced   map[incumbent.Token]bool
	revoking map[incumbent.Token]bool
	fading   map[incumbent.Name]incumbent.Token
	unpinned map[incumbent.Token]time.Duration // when the last pin of a holding went
	offered  map[incumbent.Token]time.Duration // when an offer began
	accepted map[incumbent.Token]bool          // offers that an agent was told it holds

	// The log.
	canon   []entry                 // every batch, as the first member applied it
	places  map[incumbent.Index]int // by the index before it
	index   incumbent.Index         // of the newest
	leaders map[uint64]uint64       // by term
	// Terms of a cluster that was lost.
	ledBefore int
	term      uint64 // newest in which anybody led

	view *core.View // after the batch that was applied last for the first time

	// Calls.
	acked   incumbent.Index // greatest index that any member answered with
	refused map[uint64]incumbent.Kind
	calls   map[uint64]incumbent.Index // by number: where it was applied first
	effects map[uint64]incumbent.Index // where it changed something
	raises  map[string]bool            // commands of leaders, with the origin of the grant that they raise

	keys *keyChecker
	// policies are those that the log has.
	policies *policyChecker
	tables   *tableChecker
	lists    *listChecker
	catalog  *catalogChecker
	polls    *pollChecker
	load     *loadChecker

	// After the healing.
	settledTerm uint64
	probes      []*probe
}

// tellings is when an agent was first told of a grant.
type tellings struct{ acked incumbent.Index }

func newChecker(w *world) *checker {
	return &checker{
		w: w, tokens: map[incumbent.Name]incumbent.Token{}, log: map[incumbent.Name]incumbent.Token{},
		told: map[incumbent.Token]tellings{}, ended: map[incumbent.Token]bool{},
		forced: map[incumbent.Token]bool{}, revoking: map[incumbent.Token]bool{}, fading: map[incumbent.Name]incumbent.Token{},
		unpinned: map[incumbent.Token]time.Duration{}, offered: map[incumbent.Token]time.Duration{}, accepted: map[incumbent.Token]bool{},
		places: map[incumbent.Index]int{}, leaders: map[uint64]uint64{},
		refused: map[uint64]incumbent.Kind{}, calls: map[uint64]incumbent.Index{}, effects: map[uint64]incumbent.Index{},
		raises: map[string]bool{}, keys: newKeyChecker(w), lists: newListChecker(w), catalog: newCatalogChecker(w), polls: &pollChecker{w: w},
		policies: &policyChecker{w: w, are: map[string]*policy.Policy{}}, tables: newTableChecker(w),
		load: newLoadChecker(w),
	}
}

// recovered checks the state that a process finds when it starts, once it has
// read its snapshot; what follows from the log comes as changes (G5, G26).
func (c *checker) recovered(p *process) {
	if i := p.group.View().Index(); i > c.index {
		c.w.violate("member %d has index %d after a start, which was never applied before (%d)", p.m.at, i, c.index)
	}
	if err := p.group.Check(); err != nil {
		c.w.violate("member %d after a start: %v", p.m.at, err)
	}
	c.shown(p, p.group.View())
}

// shown checks what a member shows.
func (c *checker) shown(p *process, v *core.View) {
	c.keys.shown(p, v)
	c.catalog.shown(p, v)
	c.tables.shown(p, v)
}

// ready is called when the doors open after a start: whatever was acknowledged
// to anybody before the start is there (G5, G26).
func (c *checker) ready(p *process) {
	v := p.group.View()
	if v.Index() < p.began {
		c.w.violate("member %d opened its doors at index %d, although %d was acknowledged before it started (G26)", p.m.at, v.Index(), p.began)
	}
	c.kept(p, v, p.began)
}

// kept checks that every holding that agents were told of is there, as far as it
// was acknowledged up to an index and not ended since (G5).
func (c *checker) kept(p *process, v *core.View, upTo incumbent.Index) {
	for token, t := range c.told {
		if incumbent.Index(token) <= upTo && t.acked <= upTo && !c.ended[token] && leases.Of(v).ByToken(token) == nil {
			c.w.violate("token %d was acknowledged and member %d does not have it (G5)", token, p.m.at)
		}
	}
}
