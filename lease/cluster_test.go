package lease

import (
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/node"
)

// cluster is some engines around one log, in virtual time. Each member applies
// the log at its own pace to a state of its own. What is proposed, applied, sent
// and confirmed waits until it is let through, or (auto) passes at once.
type cluster struct {
	t        failer
	now      int64
	term     uint64
	leader   uint64         // the one that can append; 0: none
	winner   uint64         // of the term, also when it is deposed
	over     map[uint64]int // terms that have ended, with the length of the log then
	learner  uint64         // whose word is not enough
	vouching bool           // members vouch for the leader they know
	log      [][]byte
	from     []Proposal // where the log's entries are from, with whose member
	by       []uint64
	members  []*peer
	packets  []packet
	newest   *core.State // has applied the whole log
	watch    func(core.Change)
	auto     bool
	full     bool // no frame is taken
	said     []string
	saidAt   int64
}

// packet is a frame on its way.
type packet struct {
	from, to uint64
	data     []byte
}

// peer is one member.
type peer struct {
	c        *cluster
	id       uint64
	e        *Engine
	state    *core.State
	applied  int
	told     int // how much of the log it was told of as ahead
	proposed []Proposal
	confirms []asked
	vouched  []asked
	barriers []uint64
	boots    uint64
	frames   load // received and not done with
}

// asked is a confirmation under way: answered once index has been applied.
type asked struct {
	id    uint64
	index int
	term  uint64
	by    uint64 // who vouches
	told  bool   // what is ahead
}

// newState has, besides leases, families that do not say of all of their commands that
// they commute with extensions.
func newState() *core.State {
	return core.New(leases.Family{}, settings.Family{}, catalog.Family{})
}

func newCluster(t failer, cfg Config, n int) *cluster {
	c := &cluster{t: t, newest: newState(), auto: true, over: make(map[uint64]int)}
	for i := range n {
		p := &peer{c: c, id: uint64(i + 1), state: newState(), boots: 1}
		p.e = NewEngine(cfg, p.state.View())
		p.e.Join(p.id<<32 | p.boots)
		c.members = append(c.members, p)
	}
	return c
}

func (c *cluster) at(id uint64) *peer { return c.members[id-1] }

// turn is one turn of a member's loop, with what happened in fn; then, if auto,
// all that follows from it.
func (p *peer) turn(fn func()) {
	p.step(fn)
	if p.c.auto {
		p.c.settle()
	}
}

func (p *peer) step(fn func()) {
	e := p.e
	e.Begin(p.c.now)
	if fn != nil {
		fn()
	}
	if p.c.vouching {
		// Whoever has helped another to win knows that the term is over; and nobody
		// wins without them, as long as this leader does not know.
		e.Vouch(p.c.winner, p.c.term)
	}
	eff := e.End()
	p.checkFrames(eff)
	p.proposed = append(p.proposed, eff.Proposals...)
	if eff.Confirm != 0 {
		p.confirms = append(p.confirms, asked{id: eff.Confirm, index: len(p.c.log), term: p.c.term})
	}
	for _, v := range eff.Vouched {
		p.vouched = append(p.vouched, asked{id: v.ID, index: p.c.committed(e.term), term: e.term, by: v.Member})
	}
	if eff.Barrier != 0 {
		p.barriers = append(p.barriers, eff.Barrier)
	}
	extended, answered := slices.Clone(eff.Extended), slices.Clone(eff.Answered)
	lost, inspected, frames := slices.Clone(eff.Lost), slices.Clone(eff.Inspected), slices.Clone(eff.Frames)
	for _, f := range frames {
		if p.c.full {
			e.Unsent(f)
			continue
		}
		p.c.packets = append(p.c.packets, packet{p.id, f.To, f.Data})
	}
	e.used()
	e.Performed()
	for _, b := range extended {
		b.Done(b)
	}
	for _, a := range answered {
		a.Done(a.Result)
	}
	for _, l := range lost {
		l.Tell(l.Reason)
	}
	for _, q := range inspected {
		q.Done(q)
	}
}

// settle lets everything through until nothing is left.
func (c *cluster) settle() {
	for c.pass() {
	}
}

// pass lets one thing through.
func (c *cluster) pass() bool {
	if len(c.packets) > 0 {
		c.deliver(0)
		return true
	}
	for _, p := range c.members {
		if p.appendAll() || p.applyOne() || p.confirm() || p.confirmFor() || p.barrier() {
			return true
		}
	}
	return false
}

// deliver hands over the packet at a position.
func (c *cluster) deliver(i int) {
	x := c.packets[i]
	c.packets = slices.Delete(c.packets, i, i+1)
	c.hand(x)
}

func (c *cluster) hand(x packet) {
	f := new(frame)
	if !f.decode(x.data) {
		c.t.Fatalf("member %d sent a frame that cannot be read: %x", x.from, x.data)
	}
	p := c.at(x.to)
	p.step(func() { p.receive(x.from, f) })
}

func (p *peer) receive(from uint64, f *frame) {
	p.frames = p.frames.add(f.load(), 1)
	p.e.Received(from, f)
}

// checkFrames checks that a frame counts for as long as it is early or served.
func (p *peer) checkFrames(eff *Effects) {
	p.frames = p.frames.add(eff.ended, -1)
	want := p.e.serves
	for _, x := range p.e.early {
		want = want.add(x.frame.load(), 1)
	}
	if p.frames != want {
		p.c.t.Fatalf("member %d counts %+v, has %+v", p.id, p.frames, want)
	}
}

// appendAll brings what a member has proposed into the log, by way of the
// leader; what is bound to another term is refused.
func (p *peer) appendAll() bool {
	c := p.c
	if len(p.proposed) == 0 || c.leader == 0 {
		return false
	}
	ps := p.proposed
	p.proposed = nil
	for _, x := range ps {
		if x.Term != 0 && (x.Term != c.term || c.leader != p.id) {
			p.step(func() { p.e.Proposed(x.Ticket, core.Result{}, incumbent.Errorf(incumbent.NotLeader, "another term")) })
			continue
		}
		c.log, c.from, c.by = append(c.log, x.Command), append(c.from, x), append(c.by, p.id)
		for _, ch := range c.newest.Apply([][]byte{x.Command}, make([]core.Result, 1)) {
			if c.watch != nil {
				c.watch(ch)
			}
		}
	}
	return true
}

// applyOne applies one entry.
func (p *peer) applyOne() bool {
	c := p.c
	if p.applied == len(c.log) {
		return false
	}
	i := p.applied
	p.applied++
	results := make([]core.Result, 1)
	changes := p.state.Apply([][]byte{c.log[i]}, results)
	p.step(func() {
		p.e.Applied(p.state.View(), changes)
		if c.by[i] == p.id {
			p.e.Proposed(c.from[i].Ticket, results[0], nil)
		}
	})
	return true
}

// confirm answers the oldest confirmation, if what it has to wait for has been
// applied. A member that was deposed gets an error.
func (p *peer) confirm() bool {
	c := p.c
	if len(p.confirms) == 0 {
		return false
	}
	x := p.confirms[0]
	var err error
	switch {
	case c.leader == 0 || x.term != c.term:
		err = incumbent.Errorf(incumbent.Unavailable, "no quorum")
	case p.applied < x.index:
		return p.ahead(&p.confirms[0])
	}
	p.confirms = p.confirms[1:]
	p.step(func() { p.e.Confirmed(x.id, x.term, err) })
	return true
}

// confirmFor answers the oldest confirmation of what members vouch for: that asks
// nobody, so a leader that does not know that it is deposed gets it as well.
func (p *peer) confirmFor() bool {
	if len(p.vouched) == 0 {
		return false
	}
	x := p.vouched[0]
	if p.applied < x.index {
		return len(p.c.members) <= 3 && x.by != p.c.learner && p.ahead(&p.vouched[0])
	}
	p.vouched = p.vouched[1:]
	var err error
	if len(p.c.members) > 3 || x.by == p.c.learner {
		err = incumbent.Errorf(incumbent.Unavailable, "no quorum")
	}
	p.step(func() { p.e.Confirmed(x.id, x.term, err) })
	return true
}

// unapplied puts a command into the log that nobody has proposed here.
func (c *cluster) unapplied(cmd core.Command) {
	x := Proposal{Command: cmd.Encode(core.Meta{})}
	c.log, c.from, c.by = append(c.log, x.Command), append(c.from, x), append(c.by, 0)
	c.newest.Apply([][]byte{x.Command}, make([]core.Result, 1))
}

// ahead tells a leader, once, that what it asked is confirmed, and what it has not
// applied. One that is deposed and does not know it gets it as well, of the log that it
// knows.
func (p *peer) ahead(x *asked) bool {
	if x.told || x.term != p.e.term || !p.e.leading {
		return false
	}
	x.told = true
	news := &node.Ahead{Term: x.term, Applied: uint64(p.applied)}
	for p.told = max(p.told, p.applied); p.told < x.index; p.told++ {
		news.Entries = append(news.Entries, node.Unapplied{Index: uint64(p.told + 1), Commands: [][]byte{p.c.log[p.told]}})
	}
	p.step(func() { p.e.Ahead(x.id, news) })
	return true
}

// committed is how much of the log the leader of a term knows to be committed.
func (c *cluster) committed(term uint64) int {
	if n, over := c.over[term]; over {
		return n
	}
	return len(c.log)
}

func (p *peer) barrier() bool {
	if len(p.barriers) == 0 {
		return false
	}
	id := p.barriers[0]
	p.barriers = p.barriers[1:]
	p.step(func() { p.e.BarrierPassed(id) })
	return true
}

// advance lets time pass in ticks of all loops.
func (c *cluster) advance(d time.Duration) {
	for end := c.now + int64(d); c.now < end; {
		c.now = min(c.now+int64(tickEvery), end)
		for _, p := range c.members {
			p.turn(nil)
		}
	}
}

// depose ends a term: nobody can append or confirm. The leader does not know.
func (c *cluster) depose() {
	if c.leader != 0 {
		c.over[c.term] = len(c.log)
	}
	c.leader = 0
}

// elect makes a member lead. The others are told by tell.
func (c *cluster) elect(id uint64) {
	c.win(id)
	c.begin(id)
}

// win begins a term.
func (c *cluster) win(id uint64) {
	c.depose()
	c.term++
	c.leader, c.winner = id, id
}

// begin lets the leader know: it has applied the whole log, as the first entry
// of a term has everything before it.
func (c *cluster) begin(id uint64) {
	p := c.at(id)
	for p.applyOne() {
	}
	p.turn(func() { p.e.Lead(c.term, p.state.View()) })
}

// tell tells a member who leads.
func (c *cluster) tell(id uint64) {
	p := c.at(id)
	if id != c.leader {
		p.turn(func() { p.e.Follow(c.leader, c.term) })
	}
}

// lead makes a member lead and tells everybody.
func (c *cluster) lead(id uint64) {
	c.elect(id)
	for _, p := range c.members {
		c.tell(p.id)
	}
}

// extend hands in extensions.
func (p *peer) extend(items ...Extension) (b *Batch, done *bool) {
	p.c.t.Helper()
	done = new(bool)
	b = &Batch{Items: items, Done: func(*Batch) {
		if *done {
			p.c.t.Fatal("a batch is answered twice")
		}
		*done = true
	}}
	p.turn(func() { p.e.Extend(b) })
	return b, done
}

// call hands in a command; the pointer is filled in when it is answered.
func (p *peer) call(cmd core.Command) **core.Result {
	p.c.t.Helper()
	got := new(*core.Result)
	q, err := newCall(Call{}, cmd, func(r core.Result) {
		if *got != nil {
			p.c.t.Fatal("a call is answered twice")
		}
		*got = &r
	})
	if err != nil {
		p.c.t.Fatal(err)
	}
	p.turn(func() { p.e.Submit(q) })
	return got
}

// must hands in a command that succeeds at once.
func (p *peer) must(cmd core.Command) core.Result {
	p.c.t.Helper()
	r := *p.call(cmd)
	if r == nil || r.Err != nil {
		p.c.t.Fatalf("%T: %+v", cmd, r)
	}
	return *r
}

func (p *peer) claim(name, holder string, ttl time.Duration) incumbent.Token {
	p.c.t.Helper()
	return leases.AnswerOf(p.must(leases.ClaimCommand{Name: leaseName(name), Holder: holder, TTL: ttl})).Lease.Token
}
