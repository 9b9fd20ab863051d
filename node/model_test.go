package node

import (
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// model drives a cluster with whatever rapid draws and knows what must hold.
type model struct {
	*cluster
	proposed int
	answers  map[string][]error // by command: every answer that came
	results  map[string]int
	reads    []*modelRead
	acked    int               // the longest prefix of the log that somebody was told of
	from     map[string]string // by command: which life of which member took it
	gone     map[uint64]bool   // ids that were removed, and are never used again
	told     int               // changes and transfers that were answered
	asked    int
}

type modelRead struct {
	floor int // commands acknowledged before it was asked for
	calls int
}

// TestG22_ModelOfThree lets one, three or five replicas propose, confirm, lose,
// double and reorder messages, crash, elect, hand over, stall and change members
// in any order. Every order of commands must be a prefix of one order, what was
// acknowledged must stay, a command that was refused must never be applied, none
// may be applied or answered twice or overtake an earlier one of the same member,
// a confirmation must see what was acknowledged before it was asked for, and no
// term may have two leaders.
func TestG22_ModelOfThree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cryptotest.SetGlobalRandom(t, 1) // each run from the start, so that a failure can be played again
		t := rt
		m := &model{
			cluster: newCluster(rapid.SampledFrom([]int{1, 3, 3, 5}).Draw(t, "members")),
			answers: map[string][]error{}, results: map[string]int{}, from: map[string]string{}, gone: map[uint64]bool{},
		}
		any := func(t *rapid.T) uint64 { return rapid.SampledFrom(m.ids()).Draw(t, "on") }
		t.Repeat(map[string]func(*rapid.T){
			"propose": func(t *rapid.T) { m.proposeNext(t, any(t), rapid.IntRange(1, 3).Draw(t, "n")) },
			"confirm": func(t *rapid.T) { m.read(t, any(t)) },
			"tick":    func(t *rapid.T) { m.ticks(any(t), rapid.IntRange(1, 12).Draw(t, "n")) },
			"work":    func(t *rapid.T) { m.work(any(t), rapid.IntRange(1, 4).Draw(t, "n")) },
			"append":  func(t *rapid.T) { on := any(t); m.ready(on); m.append(on) },
			"deliver": func(t *rapid.T) { m.deliverSome(rapid.IntRange(1, 20).Draw(t, "n")) },
			"drop":    func(t *rapid.T) { m.disturb(t, func(i int) { m.drop(m.take(i)) }) },
			"delay":   func(t *rapid.T) { m.disturb(t, func(i int) { m.network = append(m.network, m.take(i)) }) },
			"double":  func(t *rapid.T) { m.disturb(t, func(i int) { m.network = append(m.network, m.network[i]) }) },
			"cut":     func(t *rapid.T) { m.cut[any(t)] = true },
			"heal":    func(t *rapid.T) { m.cut = map[uint64]bool{} },
			"settle":  func(t *rapid.T) { m.settle() },
			"elect":   func(t *rapid.T) { _ = m.members[any(t)].Campaign(); m.settle() },
			"lost":    func(t *rapid.T) { on := m.members[any(t)]; on.PeerLost(on.Status().Leader, m.now); m.ready(on.id) },
			"hand":    func(t *rapid.T) { m.handOver(any(t)) },
			"stall":   func(t *rapid.T) { m.members[any(t)].FlushStalled(rapid.Bool().Draw(t, "out")) },
			"change":  func(t *rapid.T) { m.change(t, any(t)) },
			"crash":   func(t *rapid.T) { m.crash(any(t)) },
			"compact": func(t *rapid.T) { m.compact(any(t)) },
			"":        func(t *rapid.T) { m.check(t) },
		})
		m.converge(t)
	})
}

func (m *model) ticks(on uint64, n int) {
	for range n {
		m.now = m.now.Add(DefaultTick)
		m.members[on].Tick(m.now)
		m.ready(on)
	}
}

func (m *model) work(on uint64, n int) {
	for range n {
		m.ready(on)
		m.append(on)
		m.ready(on)
		m.apply(on)
	}
}

// disturb does something to a message under way.
func (m *model) disturb(t *rapid.T, do func(i int)) {
	if n := len(m.network); n > 0 {
		do(rapid.IntRange(0, n-1).Draw(t, "i"))
	}
}

// take takes a message out of the network.
func (m *model) take(i int) Message {
	msg := m.network[i]
	m.network = slices.Delete(m.network, i, i+1)
	return msg
}

func (m *model) handOver(on uint64) {
	m.asked++
	m.members[on].TransferLeader(0, func(error) { m.told++ })
	m.ready(on)
}

// change makes some member a voter, a learner or gone. New ones join first.
func (m *model) change(t *rapid.T, on uint64) {
	var changes []MemberChange
	for range rapid.IntRange(1, 2).Draw(t, "changes") {
		id := rapid.Uint64Range(1, 7).Draw(t, "id")
		role := rapid.SampledFrom([]MemberRole{Voter, Voter, Learner, Gone}).Draw(t, "role")
		if m.gone[id] || m.members[id] == nil && role == Gone {
			continue
		}
		if m.members[id] == nil {
			m.join(id)
		}
		changes = append(changes, MemberChange{id, role})
	}
	if m.members[on].Status().State != Leader {
		return // it would be refused, and a removal not tried again
	}
	for _, c := range changes {
		// Once asked for, a removal may be made at any time.
		m.gone[c.ID] = m.gone[c.ID] || c.Role == Gone
	}
	m.asked++
	m.members[on].ChangeMembers(changes, func(error) { m.told++ })
	m.ready(on)
}

func (m *model) proposeNext(t *rapid.T, on uint64, n int) {
	var ps []Proposal
	for range n {
		cmd := fmt.Sprintf("c%d", m.proposed)
		m.proposed++
		p := Proposal{Command: []byte(cmd)}
		if rapid.Bool().Draw(t, "deadline") {
			p.Deadline = m.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "ticks")) * DefaultTick)
		}
		p.Done = func(v any, err error) {
			m.answers[cmd] = append(m.answers[cmd], err)
			if err == nil {
				m.results[cmd] = v.(int)
				m.acked = max(m.acked, v.(int))
			}
		}
		m.from[cmd] = fmt.Sprintf("%d/%d", on, m.members[on].cfg.Incarnation)
		ps = append(ps, p)
	}
	m.members[on].Propose(ps)
	m.ready(on)
}

func (m *model) read(t *rapid.T, on uint64) {
	r := &modelRead{floor: m.acked}
	m.reads = append(m.reads, r)
	m.members[on].Confirm(func(_ uint64, err error) {
		r.calls++
		if got := len(m.members[on].machine.commands); err == nil && got < r.floor {
			t.Fatalf("member %d confirmed a read that sees %d commands; %d were acknowledged before", on, got, r.floor)
		}
	})
	m.ready(on)
}

func (m *model) deliverSome(n int) {
	for range n {
		if !m.deliver() {
			return
		}
	}
	for _, id := range m.ids() {
		m.ready(id)
	}
}

// crash restarts a member on what is durable. Those who waited there are gone.
func (m *model) crash(on uint64) { m.start(on) }

// compact forgets the front of a member's log in memory, as after a snapshot.
// The tail is as long as the log of a model run, so that nobody needs one sent.
func (m *model) compact(on uint64) {
	r := m.members[on]
	if st := r.Status(); st.Applied > st.Snapshot && st.Applied <= st.Durable {
		meta := r.MetaAt(st.Applied)
		r.log.snapshotTaken(meta, 1<<20, meta.Index+1)
	}
}

// longest returns the longest list of commands any member has applied.
func (m *model) longest() []string {
	var longest []string
	for _, id := range m.ids() {
		if c := m.members[id].machine.commands; len(c) > len(longest) {
			longest = c
		}
	}
	return longest
}

func (m *model) check(t *rapid.T) {
	all := m.longest()
	for _, id := range m.ids() {
		if c := m.members[id].machine.commands; !slices.Equal(c, all[:len(c)]) {
			t.Fatalf("member %d applied %v, another %v", id, c, all)
		}
	}
	for cmd, errs := range m.answers {
		if len(errs) > 1 {
			t.Fatalf("%s was answered %d times: %v", cmd, len(errs), errs)
		}
		if k := incumbent.KindOf(errs[0]); k != incumbent.OK && k != incumbent.Unknown && slices.Contains(all, cmd) {
			t.Fatalf("%s was refused (%v) and applied", cmd, errs[0])
		}
		if at, ok := m.results[cmd]; ok && at <= len(all) && all[at-1] != cmd {
			t.Fatalf("%s was acknowledged at place %d, where %s is", cmd, at, all[at-1])
		}
	}
	m.checkOrder(t, all)
	if m.told > m.asked {
		t.Fatalf("%d changes and hand-overs were answered %d times", m.asked, m.told)
	}
	for _, r := range m.reads {
		if r.calls > 1 {
			t.Fatalf("a confirmation was answered %d times", r.calls)
		}
	}
}

// checkOrder checks that nothing was applied twice or overtook an earlier command
// of the same life of the same member.
func (m *model) checkOrder(t *rapid.T, all []string) {
	last := map[string]int{}
	for _, cmd := range all {
		var number int
		if _, err := fmt.Sscanf(cmd, "c%d", &number); err != nil {
			t.Fatal(err)
		}
		from := m.from[cmd]
		if before, ok := last[from]; ok && before >= number {
			t.Fatalf("of member %s c%d was applied after c%d", from, number, before)
		}
		last[from] = number
	}
}

// leading returns the member that leads the latest term.
func (m *model) leading() *member {
	var l *member
	for _, id := range m.ids() {
		if r := m.members[id]; r.Status().State == Leader && (l == nil || r.Status().Term > l.Status().Term) {
			l = r
		}
	}
	return l
}

// converge lets everybody talk until all members have applied the same: by then
// everyone who did not lose their member to a crash or a removal is answered.
func (m *model) converge(t *rapid.T) {
	m.cut = map[uint64]bool{}
	for _, id := range m.ids() {
		m.members[id].FlushStalled(false)
	}
	for range 400 {
		m.now = m.now.Add(DefaultTick)
		for _, id := range m.ids() {
			m.members[id].Tick(m.now)
			m.settle()
		}
	}
	m.check(t)
	l := m.leading()
	if l == nil {
		t.Fatalf("no leader after 400 ticks of peace: %s", m.log.String())
	}
	for _, id := range slices.Concat(l.members.Voters, l.members.Learners) {
		m.atPeace(t, m.members[id], l)
	}
	if m.acked > len(l.machine.commands) {
		t.Fatalf("%d commands were acknowledged, %d are left", m.acked, len(l.machine.commands))
	}
}

func (m *model) atPeace(t *rapid.T, r, l *member) {
	if got, want := r.machine.commands, l.machine.commands; !slices.Equal(got, want) {
		t.Fatalf("member %d has %v, the leader %v", r.id, got, want)
	}
	if !slices.Equal(r.members.Voters, l.members.Voters) || !slices.Equal(r.members.Learners, l.members.Learners) {
		t.Fatalf("member %d knows members %+v, the leader %+v", r.id, r.members, l.members)
	}
	st := r.Status()
	if st.Unanswered != 0 || st.Waiting != 0 || st.Confirming != 0 || st.InFlight != 0 || len(r.changes.queue) != 0 || len(r.transfer.done) != 0 {
		t.Fatalf("member %d at peace still holds: %+v", r.id, st)
	}
}
