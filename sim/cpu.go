package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// What takes a member's processor, in a run with a flood: some four hundred requests a
// second and member are all that it can do.
const (
	readTakes = 50 * time.Microsecond // a request that came in: reading it, and refusing it
	sliceMost = 5 * time.Millisecond  // a goroutine waits so long for its turn while others run, at most
)

// workTakes is what serving a request takes, by its lane.
var workTakes = [admit.NumLanes]time.Duration{
	admit.Logins: 4 * time.Millisecond, admit.Watches: 2 * time.Millisecond, admit.Reads: 3 * time.Millisecond,
	admit.Claims: 2500 * time.Microsecond, admit.Transactions: 3 * time.Millisecond, admit.Small: 2 * time.Millisecond,
	admit.Releases: 2 * time.Millisecond, admit.Extensions: 100 * time.Microsecond, admit.Critical: time.Millisecond,
}

// cpu is a processor that reads what came in from clients and serves what was let in.
// It shares its time evenly between the two as long as both want it. What is as short
// as the turns of the loops waits for a slice of it at most (see process.step).
type cpu struct {
	p       *process
	frames  fifo[frame] // not read yet; from barrierFrom: to be called when all before it is
	work    fifo[task]
	waits   time.Duration // that what is in work takes
	spent   [2]time.Duration
	running bool
}

type task struct {
	takes time.Duration
	do    func()
}

func (c *cpu) unread() int { return c.frames.len() }

// busy reports whether other goroutines wait for the processor.
func (c *cpu) busy() bool { return c.running }

// arrive takes a frame of a client.
func (c *cpu) arrive(f frame) {
	c.frames.push(f)
	c.next()
}

// add takes work that was let in.
func (c *cpu) add(takes time.Duration, do func()) {
	c.work.push(task{takes, do})
	c.waits += takes
	c.next()
}

// next begins what has had less of the processor so far.
func (c *cpu) next() {
	for !c.running && c.frames.len() > 0 && c.frames.first().from == barrierFrom {
		c.frames.pop().do()
	}
	reads, works := c.frames.len() > 0, c.work.len() > 0
	if c.running || !reads && !works {
		return
	}
	class := 0
	switch {
	case !reads:
		class = 1
		c.spent[0] = max(c.spent[0], c.spent[1])
	case !works:
		c.spent[1] = max(c.spent[0], c.spent[1])
	case c.spent[1] < c.spent[0]:
		class = 1
	}
	t := task{takes: readTakes}
	if class == 0 {
		t.do = c.frames.pop().do
	} else {
		t = c.work.pop()
		c.waits -= t.takes
	}
	c.spent[class] += t.takes
	c.running = true
	c.p.w.after(t.takes, func() {
		c.p.while(func() {
			c.running = false
			t.do()
			c.next()
			c.p.work()
		})
	})
}

// fifo is a queue.
type fifo[T any] struct {
	list []T
	head int
}

func (f *fifo[T]) len() int  { return len(f.list) - f.head }
func (f *fifo[T]) first() *T { return &f.list[f.head] }
func (f *fifo[T]) push(x T)  { f.list = append(f.list, x) }

func (f *fifo[T]) pop() T {
	x := f.list[f.head]
	clear(f.list[f.head : f.head+1])
	if f.head++; f.head*2 > len(f.list) {
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	return x
}
