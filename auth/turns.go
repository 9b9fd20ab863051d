package auth

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// turns lets few do something at once. Addresses take turns: however many come from
// one, who comes from another waits for one of each.
type turns struct {
	mu    sync.Mutex // guards the rest; held to change it
	free  int
	lines map[netip.Addr][]chan struct{} // who waits, in order
	order []netip.Addr                   // those from which somebody waits, the next one first
}

func newTurns(atOnce int) *turns {
	return &turns{free: atOnce, lines: map[netip.Addr][]chan struct{}{}}
}

// take waits for a turn, which is given back by give. False: ctx has ended before, and
// there is no turn to give back.
func (t *turns) take(ctx context.Context, from netip.Addr) bool {
	if turn := t.enter(from); turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
			if t.leave(from, turn) {
				return false
			}
		}
	}
	if ctx.Err() == nil {
		return true
	}
	t.give()
	return false
}

// enter takes a turn that is free (nil), or a place in the line of an address: the turn
// has come when what it returns is closed.
func (t *turns) enter(from netip.Addr) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	line := t.lines[from]
	if len(line) == 0 {
		t.order = append(t.order, from)
	}
	turn := make(chan struct{})
	t.lines[from] = append(line, turn)
	return turn
}

// leave leaves the line; false: the turn has come.
func (t *turns) leave(from netip.Addr, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.lines[from]
	i := slices.Index(line, turn)
	if i < 0 {
		return false
	}
	if line = slices.Delete(line, i, i+1); len(line) > 0 {
		t.lines[from] = line
		return true
	}
	delete(t.lines, from)
	i = slices.Index(t.order, from)
	t.order = slices.Delete(t.order, i, i+1)
	return true
}

// give gives a turn to the next one.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	from := t.order[0]
	t.order = t.order[1:]
	line := t.lines[from]
	close(line[0])
	if len(line) == 1 {
		delete(t.lines, from)
		return
	}
	t.lines[from] = line[1:]
	t.order = append(t.order, from)
}

// crowd counts those who wait or have a turn, in all and of each address.
type crowd struct {
	most int // in all; of one address half as many

	mu sync.Mutex // guards the rest; held to change it
	n  int
	of map[netip.Addr]int
}

func newCrowd(most int) *crowd { return &crowd{most: most, of: map[netip.Addr]int{}} }

// half is how many may be of one address.
func (c *crowd) half() int { return (c.most + 1) / 2 }

// join counts one more; false: there are as many as may be, in all or of the address.
func (c *crowd) join(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= c.most || c.of[from] >= c.half() {
		return false
	}
	c.n++
	c.of[from]++
	return true
}

// part counts one less.
func (c *crowd) part(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.of[from]--; c.of[from] == 0 {
		delete(c.of, from)
	}
}

// busy reports whether there are half of those that may be, one of the address among them.
func (c *crowd) busy(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n >= c.half() && c.of[from] > 0
}
