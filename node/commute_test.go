package node

import (
	"bytes"
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

// What commutes with the question is not waited for, by a leader that is asked and in
// a round; everything else is, also where it comes behind something that commutes.
func TestG04_WhatCommutesIsNotWaitedFor(t *testing.T) {
	for _, x := range []struct {
		commands []string
		strict   bool // waits like any other confirmation
	}{
		{[]string{"commutes 1"}, false},
		{[]string{"commutes 1", "commutes 2"}, false},
		{[]string{"other"}, true},
		{[]string{"commutes 1", "other"}, true},
		{[]string{"other", "commutes 1"}, true},
	} {
		t.Run(strings.Join(x.commands, ","), func(t *testing.T) {
			c := three(t)
			for _, m := range c.members {
				m.Replica.cfg.Commutes = func(cmd []byte) bool { return bytes.HasPrefix(cmd, []byte("commutes")) }
			}
			c.commit(1, x.commands...)
			vouched := c.confirmFor(1, 2, c.members[1].Status().Term)
			shown := c.confirmForAll(1, 2, c.members[1].Status().Term, false)
			var asked, strict outcome
			c.members[1].ConfirmCommuting(func(term uint64, err error) { asked = outcome{true, term, err} })
			c.members[1].Confirm(func(term uint64, err error) { strict = outcome{true, term, err} })
			for n := rounds(0); c.members[1].reads.round.active || len(c.members[1].reads.waiting) > 0; n.next() {
				for _, id := range c.ids() {
					c.ready(id)
				}
				c.deliver()
			}
			c.ready(1)
			if vouched.answered == x.strict || asked.answered == x.strict || shown.answered || strict.answered {
				t.Errorf("before anything is applied: vouched for %v, to be shown %v, asked %v, strict %v", vouched, shown, asked, strict)
			}
			c.settle()
			for _, o := range []outcome{*vouched, *shown, asked, strict} {
				if !o.answered || o.err != nil {
					t.Errorf("after all is applied: vouched for %v, to be shown %v, asked %v, strict %v", vouched, shown, asked, strict)
				}
			}
		})
	}
}

// The first entry of a term, which says that the machine leads, is waited for, and so
// is a change of members.
func TestG04_TheBeginningOfATermDoesNotCommute(t *testing.T) {
	c := three(t)
	r := c.members[1].Replica
	r.cfg.Commutes = func([]byte) bool { return true }
	if r.commutes(r.leadIndex) {
		t.Error("it commutes")
	}
	c.commit(1, "a")
	if at := r.Status().Commit; !r.commutes(at) || r.commutes(at+1) {
		t.Errorf("entry %d, which is the last, commutes: %v; the next: %v", at, r.commutes(at), r.commutes(at+1))
	}
	r.restoring = r.applied + 5
	if at := r.Status().Commit; r.commutes(at) {
		t.Error("an entry commutes although a snapshot is about to be read")
	}
}
