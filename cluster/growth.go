package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/node"
)

// growth is why this member refuses what makes the state grow (claims, new
// sessions), besides its own disk, which the node looks after. What gives up
// goes on: releases, expiries, membership; and what becomes of checks that are there.
type growth struct {
	mu    sync.Mutex // held for moments, and while the node is told
	split error      // the members' states differ and nobody knows who is right; for good
	short []string   // the voters without whose disks there is no quorum
}

// splitBy refuses growth for good.
func (g *growth) splitBy(n *node.Node, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.split = err
	g.tell(n)
}

// shortOf refuses growth while members of these names are short of disk; none
// ends that. It reports whether that is news.
func (g *growth) shortOf(n *node.Node, names []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	news := (len(names) == 0) != (len(g.short) == 0)
	if !news && strings.Join(names, "\n") == strings.Join(g.short, "\n") {
		return false
	}
	g.short = names
	g.tell(n)
	return news
}

// tell is called with mu held.
func (g *growth) tell(n *node.Node) {
	switch split, short := g.split, strings.Join(g.short, ", "); {
	case split != nil:
		n.RefuseGrowth(func() error { return errSplit(split) })
	case short != "":
		n.RefuseGrowth(func() error { return errShort(short) })
	default:
		n.RefuseGrowth(nil)
	}
}

// state returns why growth is refused; nothing if it is not.
func (g *growth) state() (short []string, split error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.short, g.split
}

// refusals name what is refused, as status shows it.
func (g *growth) refusals() (out []string) {
	short, split := g.state()
	if split != nil {
		out = append(out, "growth (states differ)")
	}
	if len(short) > 0 {
		out = append(out, "growth (members' disks)")
	}
	return out
}

const splitHint = "compare 'incumbent debug hash' on every member, keep the data directories, and see 'When members differ' in the operator's guide"

func errSplit(cause error) error {
	return incumbent.Errorf(incumbent.Unavailable, "no grants while the members' states differ: %w", cause).WithHint(splitHint)
}

func errShort(names string) error {
	e := incumbent.Errorf(incumbent.Overloaded, "a quorum needs the disk of %s, which is below its reserve", names).
		WithHint("free space there, or lower --disk-reserve-bytes")
	e.RetryAfter = shortRetry/2 + rand.N(shortRetry)
	return e
}

// shortRetry is when a client may try again: disks are looked at each second.
const shortRetry = 2 * time.Second

// Refusing names what is refused here because of other members.
func (c *Cluster) Refusing() []string { return c.growth.refusals() }

// StatesDiffer reports whether no grants are made because the members' states differ.
func (c *Cluster) StatesDiffer() bool {
	_, split := c.growth.state()
	return split != nil
}

// growthWarnings say why growth is refused, and what helps.
func (c *Cluster) growthWarnings() []string {
	var out []string
	short, split := c.growth.state()
	if split != nil {
		out = append(out, split.Error()+": "+splitHint)
	}
	low := c.shortOfDisk()
	for _, name := range slices.Sorted(maps.Keys(low)) {
		out = append(out, fmt.Sprintf("member %s has %d MiB free on disk, its reserve is %d MiB: free some there, or lower --disk-reserve-bytes", name, low[name].Free>>20, low[name].Reserve>>20))
	}
	if len(short) > 0 {
		out = append(out, "growth is refused everywhere: a quorum needs the disk of "+strings.Join(short, ", "))
	}
	return out
}
