package linequeue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// paper is what is written on: it may stand still, or be full.
type paper struct {
	mu      sync.Mutex
	free    sync.Cond
	blocked bool
	full    bool
	writes  []string
	calls   []string // of Settle, Reopen, End, with the lines written by then
}

func newPaper() *paper {
	p := &paper{}
	p.free.L = &p.mu
	return p
}

func (p *paper) write(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.blocked {
		p.free.Wait()
	}
	if p.full {
		return errors.New("no room")
	}
	p.writes = append(p.writes, string(b))
	return nil
}

func (p *paper) set(blocked, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked, p.full = blocked, full
	p.free.Broadcast()
}

func (p *paper) called(what string) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = append(p.calls, fmt.Sprintf("%s %d", what, strings.Count(strings.Join(p.writes, ""), "\n")))
	}
}

func (p *paper) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.writes, "")
}

// queue is one that is written on paper, of most bytes.
func (p *paper) queue(most int) *Queue[string] {
	return New(Config[string]{
		Max: most, Size: func(s string) int { return len(s) },
		Append: func(b []byte, s string) []byte { return append(append(b, s...), '\n') },
		Lost:   func(b []byte, n uint64) []byte { return fmt.Appendf(b, "lost %d\n", n) },
		Write:  p.write, Settle: p.called("settle"), Reopen: p.called("reopen"), End: p.called("end"),
	})
}

func play(t *testing.T, most int, f func(t *testing.T, p *paper, q *Queue[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		q := p.queue(most)
		defer q.Close(time.Second)
		f(t, p, q)
	})
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// While the writer stands still what waits is bounded, nobody waits, and a line behind
// says how much is missing.
func TestNobodyWaitsForTheWriter(t *testing.T) {
	play(t, 6, func(t *testing.T, p *paper, q *Queue[string]) {
		p.set(true, false)
		q.Put("taken")
		synctest.Wait()
		for _, s := range []string{"aa", "bb", "ccc", "dd", "e"} { // ccc and e find no room
			q.Put(s)
		}
		expect(t, "lost", q.Lost(), 2)
		p.set(false, false)
		synctest.Wait()
		q.Put("f")
		synctest.Wait()
		expect(t, "written", p.text(), "taken\naa\nbb\ndd\nlost 2\nf\n")
	})
}

// What could not be written is told of as soon as something can be, without that
// another line comes; and so is that which could not be told.
func TestALossIsToldWithoutAnotherLine(t *testing.T) {
	play(t, 100, func(t *testing.T, p *paper, q *Queue[string]) {
		p.set(false, true)
		q.Put("a")
		q.Put("b")
		time.Sleep(3 * Every)
		expect(t, "lost", q.Lost(), 2)
		p.set(false, false)
		time.Sleep(Every)
		synctest.Wait()
		expect(t, "written", p.text(), "lost 2\n")
	})
}

// Pieces are bounded, so that files can be; the lines of one that fails are lost, those
// behind it are not.
func TestPiecesAreBounded(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, p *paper, q *Queue[string]) {
		p.set(true, false)
		q.Put("first")
		synctest.Wait()
		line := strings.Repeat("x", 999)
		for range 300 {
			q.Put(line)
		}
		p.set(false, false)
		synctest.Wait()
		for i, w := range p.writes {
			if len(w) > maxPiece+1000 || !strings.HasSuffix(w, "\n") {
				t.Errorf("piece %d has %d bytes, the last %q", i, len(w), w[len(w)-1])
			}
		}
		expect(t, "lines", strings.Count(p.text(), "\n"), 301)
	})
}

// What was written is settled within a second, once, and at the end; a file is opened
// anew behind what was handed in before.
func TestWhatWasWrittenIsSettled(t *testing.T) {
	play(t, 100, func(t *testing.T, p *paper, q *Queue[string]) {
		time.Sleep(10 * Every)
		q.Put("a")
		q.Put("b")
		q.Reopen()
		time.Sleep(Every)
		synctest.Wait()
		expect(t, "calls", fmt.Sprint(p.calls), "[reopen 2 settle 2]")
		time.Sleep(10 * Every)
		q.Put("c")
		q.Close(time.Second)
		expect(t, "calls", fmt.Sprint(p.calls), "[reopen 2 settle 2 settle 3 end 3]")
		q.Put("d")
		expect(t, "lost behind the end", q.Lost(), 1)
	})
}

// Closing gives up where nothing can be written.
func TestCloseGivesUp(t *testing.T) {
	play(t, 100, func(t *testing.T, p *paper, q *Queue[string]) {
		p.set(true, false)
		q.Put("a")
		began := time.Now()
		q.Close(3 * time.Second)
		expect(t, "gave up after", time.Since(began), 3*time.Second)
		p.set(false, false)
		synctest.Wait()
		expect(t, "written", p.text(), "a\n")
	})
}
