package bench

import (
	"strings"
	"testing"
	"time"
)

func TestChecker(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name       string
		history    func(c *Checker)
		lost       uint64
		violations uint64
		text       string
	}{
		{"an orderly life", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.Extended("a", 10, 9*s)
			c.Granted("a", 1, 10, 2*s, 6*s) // its own claim again
			c.Granted("b", 2, 3, 1*s, 2*s)  // another lease has tokens of its own
			c.Released("a", 10)
			c.Granted("a", 2, 11, 3*s, 7*s)
			c.Granted("a", 1, 12, 7*s, 9*s) // the deadline has passed
			c.NotHolder("a", 12, 9*s, 9*s)  // sent at its own deadline
			c.Granted("a", 2, 13, 9*s, 12*s)
			c.NotHolder("a", 12, 10*s, 9*s) // sent after it, and granted to another since
			c.Lapsed()
		}, 0, 0, ""},
		{"two holders", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.Granted("a", 2, 11, 4*s, 8*s)
		}, 1, 1, "granted to agent 2 (token 11) while agent 1 (token 10) held it for another 1s"},
		{"two holders, by an extension", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.Extended("a", 10, 9*s)
			c.Granted("a", 2, 11, 6*s, 8*s)
		}, 1, 1, "for another 3s"},
		{"a token does not rise", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.Released("a", 10)
			c.Granted("a", 2, 10, 6*s, 8*s)
		}, 0, 1, "does not exceed"},
		{"a release of an earlier holding", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.Released("a", 9)
			c.Granted("a", 2, 11, 2*s, 8*s)
		}, 1, 1, "held it for another 3s"},
		{"lost in time", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.NotHolder("a", 10, 3*s, 5*s)
		}, 1, 1, "2s before its own deadline"},
		{"lost in time, and granted to another since", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 5*s)
			c.Granted("a", 2, 11, 6*s, 8*s)
			c.NotHolder("a", 10, 3*s, 5*s)
		}, 1, 1, "token 10 was told it does not hold, 2s before its own deadline"},
		{"an extension of nothing", func(c *Checker) { c.Extended("a", 10, 5*s) }, 0, 1, "that nobody was granted"},
		{"an extension of what is over", func(c *Checker) {
			c.Granted("a", 1, 10, 1*s, 2*s)
			c.Granted("a", 2, 11, 3*s, 5*s)
			c.Extended("a", 10, 6*s)
		}, 0, 1, "although token 11 was granted"},
		{"freed too early", func(c *Checker) { c.Freed("a", 10*s, 1*s, 2*s, 10*s) }, 0, 1, "before its holder's own deadline"},
		{"freed in time", func(c *Checker) { c.Freed("a", 2*s+dueAfter(10*s)+lateAllowed, 1*s, 2*s, 10*s) }, 0, 0, ""},
		{"freed too late", func(c *Checker) { c.Freed("a", 2*s+dueAfter(10*s)+lateAllowed+1, 1*s, 2*s, 10*s) }, 0, 1, "after its due time"},
	} {
		check := NewChecker()
		c.history(check)
		lost, _, violations := check.Counts()
		text := strings.Join(check.Texts(), "\n")
		if lost != c.lost || violations != c.violations || !strings.Contains(text, c.text) {
			t.Errorf("%s: lost %d, violations %d: %s", c.name, lost, violations, text)
		}
	}
	many := NewChecker()
	for range maxViolationsKept + 5 {
		many.Violate("again")
	}
	if _, _, n := many.Counts(); n != maxViolationsKept+5 || len(many.Texts()) != maxViolationsKept {
		t.Errorf("%d counted, %d kept", n, len(many.Texts()))
	}
}
