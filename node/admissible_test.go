package node

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/incumbent-dev/incumbent"
)

// TestG49_LeaderRefusesWhatIsNotAdmissible: also in frames of a member that did
// not know better; the frame is refused for ever, what comes after it is not.
func TestG49_LeaderRefusesWhatIsNotAdmissible(t *testing.T) {
	c := three(t)
	r := c.members[1].Replica
	term := r.Status().Term
	r.cfg.Admissible = func(cmd []byte) error {
		if strings.HasPrefix(string(cmd), "new") {
			return incumbent.Errorf(incumbent.Unavailable, "a member does not know it")
		}
		return nil
	}
	for range 2 {
		if c.step(t, c.frame(term, 7, 0, "new")) == nil {
			t.Error("the frame was not refused")
		}
	}
	if c.step(t, c.frame(term, 8, 0, "old")) != nil {
		t.Error("another frame was refused")
	}
	if c.count("new") != 0 || c.count("old") != 1 {
		t.Errorf("want old once and new never: %v", c.members[1].machine.commands)
	}
}

// TestG49_NotAdmissibleIsAnswered on every member, beside others that are applied.
func TestG49_NotAdmissibleIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, func(c *Config) {
			c.Admissible = func(cmd []byte) error {
				if string(cmd) == "new" {
					return incumbent.Errorf(incumbent.Unavailable, "a member does not know it")
				}
				return nil
			}
		})
		for _, r := range g.members {
			type answer struct {
				cmd string
				err error
			}
			answers := make(chan answer, 3)
			var ps []Proposal
			for _, cmd := range []string{"a", "new", "b"} {
				ps = append(ps, Proposal{Command: []byte(cmd), Done: func(_ any, err error) { answers <- answer{cmd, err} }})
			}
			r.Propose(ps...)
			for range ps {
				a := <-answers
				if want := a.cmd == "new"; (incumbent.KindOf(a.err) == incumbent.Unavailable) != want || want != (a.err != nil) {
					t.Errorf("member %d, %s: %v", r.Status().Member, a.cmd, a.err)
				}
			}
		}
		for _, cmd := range l.machine.list() {
			if cmd == "new" {
				t.Error("it was applied")
			}
		}
		g.stopAll()
	})
}
