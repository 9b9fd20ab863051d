package node

import (
	"fmt"
	"strings"
	"testing"
)

// commit replicates commands, one entry each, and leaves them to be applied.
func (c *cluster) commit(on uint64, cmds ...string) {
	for _, cmd := range cmds {
		want := c.members[on].Status().Commit + 1
		c.propose(on, Proposal{Command: []byte(cmd)})
		for n := rounds(0); c.members[on].Status().Commit < want; n.next() {
			for _, id := range c.ids() {
				c.ready(id)
				c.append(id)
				c.ready(id)
			}
			c.deliver()
		}
	}
}

// confirmAhead asks a member and lets the round be answered, without anything being applied.
func (c *cluster) confirmAhead(on uint64) *outcome {
	o := &outcome{}
	m := c.members[on]
	m.ConfirmAhead(func(a Ahead) { o.ahead = append(o.ahead, a) }, func(term uint64, err error) {
		o.answered, o.term, o.err = true, term, err
	})
	for n := rounds(0); m.reads.round.active || len(m.reads.waiting) > 0; n.next() {
		for _, id := range c.ids() {
			c.ready(id)
		}
		c.deliver()
	}
	c.ready(on)
	return o
}

// described is what a confirmation was told before it was answered.
func described(as []Ahead) string {
	var b strings.Builder
	for _, a := range as {
		for _, e := range a.Entries {
			fmt.Fprintf(&b, "%d:%s ", e.Index-a.Applied, e.Commands)
		}
		b.WriteString("| ")
	}
	return b.String()
}

// A leader that has not applied everything is told at once that it was confirmed, of a
// round and of what a member vouches for, and of each entry that it has not applied once.
// The answer waits for them all, and so does whoever does not ask to be told.
func TestG04_WhatIsAheadIsToldOnce(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	quiet := c.confirmAhead(1)
	if !quiet.answered || quiet.err != nil || len(quiet.ahead) > 0 {
		t.Errorf("with everything applied: %+v", quiet)
	}
	c.commit(1, "a", "b")
	vouched := c.confirmFor(1, 2, term)
	asked := c.confirmAhead(1)
	var strict outcome
	c.members[1].Confirm(func(term uint64, err error) { strict = outcome{answered: true, term: term, err: err} })
	c.commit(1, "c")
	last := c.confirmAhead(1)
	follower := c.confirmAhead(2)
	all := []*outcome{vouched, asked, last, follower, &strict}
	for i, o := range all {
		if o.answered {
			t.Errorf("%d is answered before anything is applied: %+v", i, o)
		}
		for _, a := range o.ahead {
			if a.Term != term || a.Applied != c.members[1].Status().Applied {
				t.Errorf("%d is told of term %d, applied %d", i, a.Term, a.Applied)
			}
		}
	}
	for i, want := range []string{"1:[a] 2:[b] | ", "| ", "3:[c] | ", "", ""} {
		if got := described(all[i].ahead); got != want {
			t.Errorf("%d is told %q, want %q", i, got, want)
		}
	}
	c.settle()
	for i, o := range all {
		if !o.answered || o.err != nil || o.term != term || len(o.ahead) > 1 {
			t.Errorf("%d, after all is applied: %+v", i, o)
		}
	}
}

// The first entry of a term, which says that the machine leads, is none whose commands are
// known; and where a snapshot is about to be read, nothing is told.
func TestG04_TheBeginningOfATermIsAhead(t *testing.T) {
	c := three(t)
	r := c.members[1].Replica
	if got := r.commandsAt(r.leadIndex); got != nil {
		t.Errorf("the first entry of the term has the commands %q", got)
	}
	c.commit(1, "a")
	r.restoring = r.applied + 5
	if o := c.confirmFor(1, 2, r.Status().Term); o.answered || len(o.ahead) > 0 {
		t.Errorf("before a snapshot is read: %+v", o)
	}
	r.restoring = 0
	c.ready(1)
}

// What raft has given up is not told of, though it lies in the log until what replaces it
// is durable.
func TestG04_AStaleTailIsNotAhead(t *testing.T) {
	c := three(t)
	c.commit(1, "a")
	r := c.members[1].Replica
	r.stale = staleTail{by: &Append{}, keeps: r.applied}
	o := c.confirmFor(1, 2, r.Status().Term)
	if o.answered || len(o.ahead) > 0 {
		t.Errorf("of a tail that may be stale: %+v", o)
	}
	r.stale = staleTail{}
	c.ready(1)
	if described(o.ahead) != "1:[a] | " {
		t.Errorf("once it is not: %q", described(o.ahead))
	}
}

// What was told of and is not applied when the leader stops has failed.
func TestG04_WhatIsAheadOfAStoppedLeaderFails(t *testing.T) {
	c := three(t)
	c.commit(1, "a")
	o := c.confirmAhead(1)
	m := c.members[1]
	c.effects(m, m.Stop())
	if !o.answered || o.err == nil || described(o.ahead) != "1:[a] | " {
		t.Errorf("%+v", o)
	}
}
