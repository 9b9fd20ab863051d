package auth

import (
	"net/netip"
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

// take waits for a turn, which is given back by give. It is refused if as many wait
// from the address as may.
func (t *turns) take(from netip.Addr, most int) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	line := t.lines[from]
	if len(line) >= most {
		t.mu.Unlock()
		return false
	}
	if len(line) == 0 {
		t.order = append(t.order, from)
	}
	turn := make(chan struct{})
	t.lines[from] = append(line, turn)
	t.mu.Unlock()
	<-turn
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
