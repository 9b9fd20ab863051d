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
	acked    int // the longest prefix of the log that somebody was told of
}

type modelRead struct {
	floor int // commands acknowledged before it was asked for
	calls int
}

// TestG22_ModelOfThree lets one or three replicas propose, confirm, lose
// messages, crash and elect in any order. Every order of commands must be a
// prefix of one order, what was acknowledged must stay, a command that was
// refused must never be applied, nothing may be answered twice, and a
// confirmation must see what was acknowledged before it was asked for.
func TestG22_ModelOfThree(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			cluster: newCluster(rapid.SampledFrom([]int{1, 3, 3}).Draw(t, "members")),
			answers: map[string][]error{}, results: map[string]int{},
		}
		id := rapid.SampledFrom(m.ids())
		t.Repeat(map[string]func(*rapid.T){
			"propose": func(t *rapid.T) { m.proposeNext(t, id.Draw(t, "on"), rapid.IntRange(1, 3).Draw(t, "n")) },
			"confirm": func(t *rapid.T) { m.read(t, id.Draw(t, "on")) },
			"tick": func(t *rapid.T) {
				on := id.Draw(t, "on")
				for range rapid.IntRange(1, 12).Draw(t, "n") {
					m.now = m.now.Add(DefaultTick)
					m.members[on].Tick(m.now)
					m.ready(on)
				}
			},
			"work": func(t *rapid.T) {
				on := id.Draw(t, "on")
				for range rapid.IntRange(1, 4).Draw(t, "n") {
					m.ready(on)
					m.append(on)
					m.ready(on)
					m.apply(on)
				}
			},
			"append":  func(t *rapid.T) { on := id.Draw(t, "on"); m.ready(on); m.append(on) },
			"deliver": func(t *rapid.T) { m.deliverSome(rapid.IntRange(1, 20).Draw(t, "n")) },
			"drop": func(t *rapid.T) {
				if n := len(m.network); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "i")
					m.network = slices.Delete(m.network, i, i+1)
				}
			},
			"settle":  func(t *rapid.T) { m.settle() },
			"elect":   func(t *rapid.T) { _ = m.members[id.Draw(t, "on")].Campaign(); m.settle() },
			"crash":   func(t *rapid.T) { m.crash(id.Draw(t, "on")) },
			"compact": func(t *rapid.T) { m.compact(id.Draw(t, "on")) },
			"":        func(t *rapid.T) { m.check(t) },
		})
		m.converge(t)
	})
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
		r.log.snapshotTaken(meta, 1<<20)
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
	for _, r := range m.reads {
		if r.calls > 1 {
			t.Fatalf("a confirmation was answered %d times", r.calls)
		}
	}
}

// converge lets everybody talk until all have applied the same, and then stops
// them: by then everyone who did not lose their member to a crash is answered.
func (m *model) converge(t *rapid.T) {
	leads := func() *member {
		for _, id := range m.ids() {
			if r := m.members[id]; r.Status().State == Leader && r.Status().Commit == r.Status().Durable {
				return r
			}
		}
		return nil
	}
	for range 400 {
		m.now = m.now.Add(DefaultTick)
		for _, id := range m.ids() {
			m.members[id].Tick(m.now)
			m.settle()
		}
	}
	m.check(t)
	l := leads()
	if l == nil {
		t.Fatalf("no leader after 400 ticks of peace: %s", m.log.String())
	}
	for _, id := range m.ids() {
		if got, want := m.members[id].machine.commands, l.machine.commands; !slices.Equal(got, want) {
			t.Fatalf("member %d has %v, the leader %v", id, got, want)
		}
		st := m.members[id].Status()
		if st.Unanswered != 0 || st.Waiting != 0 || st.Confirming != 0 || st.InFlight != 0 {
			t.Fatalf("member %d at peace still holds: %+v", id, st)
		}
	}
	if m.acked > len(l.machine.commands) {
		t.Fatalf("%d commands were acknowledged, %d are left", m.acked, len(l.machine.commands))
	}
}
