package admit

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// room has so much of it, and notes who entered, and who asked.
type room struct {
	mu      sync.Mutex // protects the rest
	free    int
	aside   int // has no room, whatever there is
	entered []int
	asked   []int
}

// has makes so much room, and returns who has asked since.
func (r *room) has(free int) (asked []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, r.asked, r.free = r.asked, nil, free
	return asked
}

func (r *room) line() *Line[int] {
	return &Line[int]{Pause: time.Millisecond, Run: func(f func()) { f() }, Enter: func(n int) Turn {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, n)
		switch {
		case r.free == 0:
			return NoRoom
		case n == r.aside:
			return Aside
		}
		r.free--
		r.entered = append(r.entered, n)
		return Begun
	}}
}

// pass has work begin at once, or wait: false.
func (l *Line[T]) pass(t T) bool {
	begun := l.Try(t)
	if !begun {
		l.Join(t)
	}
	return begun
}

func TestALineKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{free: 1}
		l := r.line()
		if !l.pass(1) {
			t.Error("there is room, and it waits")
		}
		for n := 2; n <= 5; n++ {
			if l.pass(n) {
				t.Errorf("%d has overtaken the others", n)
			}
		}
		r.has(0)
		time.Sleep(10*time.Millisecond + time.Microsecond)
		synctest.Wait()
		if asked, want := r.has(2), slices.Repeat([]int{2}, 10); !slices.Equal(asked, want) {
			t.Errorf("in ten looks %v asked, want the first, once in each", asked)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !slices.Equal(r.entered, []int{1, 2, 3}) || l.Len() != 2 {
			t.Errorf("with room for two %v have entered, %d wait", r.entered, l.Len())
		}
		if r.has(9); l.pass(6) {
			t.Error("who comes while others wait has overtaken them")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		r.has(9)
		time.Sleep(time.Second)
		synctest.Wait()
		if asked := r.has(9); !slices.Equal(r.entered, []int{1, 2, 3, 4, 5, 6}) || len(asked) > 0 {
			t.Errorf("%v have entered; %v asked of an empty line", r.entered, asked)
		}
		if !l.pass(7) {
			t.Error("nobody waits, and it does")
		}
	})
}

// Who alone has no room keeps nobody out who stands behind.
func TestALineGoesOnBehindWhoStandsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{aside: 1}
		l := r.line()
		for n := 1; n <= 4; n++ {
			l.Join(n)
		}
		r.has(2)
		time.Sleep(time.Millisecond)
		if synctest.Wait(); !slices.Equal(r.entered, []int{2, 3}) || l.Len() != 2 {
			t.Errorf("%v have entered, %d wait", r.entered, l.Len())
		}
		r.has(9)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if asked := r.has(9); !slices.Equal(r.entered, []int{2, 3, 4}) || len(asked) > 20 {
			t.Errorf("%v have entered; asked: %v", r.entered, asked)
		}
		r.mu.Lock()
		r.aside = 0
		r.mu.Unlock()
		time.Sleep(time.Millisecond)
		if synctest.Wait(); !slices.Equal(r.entered, []int{2, 3, 4, 1}) || l.Len() != 0 {
			t.Errorf("in the end %v have entered, %d wait", r.entered, l.Len())
		}
	})
}

func TestALineLetsGoOfWhatWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{}
		l := r.line()
		over := map[int]bool{1: true, 3: true}
		l.Over = func(n int) bool {
			if n == 3 {
				l.Join(6) // meanwhile
			}
			return over[n]
		}
		for n := 1; n <= 4; n++ {
			l.Join(n)
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); l.Len() != 3 {
			t.Errorf("%d wait, want three", l.Len())
		}
		r.has(9)
		time.Sleep(time.Millisecond)
		if synctest.Wait(); !slices.Equal(r.entered, []int{2, 4, 6}) {
			t.Errorf("%v have entered", r.entered)
		}
	})
}

// Nothing is lost and nothing entered twice, whoever comes when.
func TestALineWithManyAtOnce(t *testing.T) {
	const comers, each = 8, 500
	var entered, aside [comers * each]atomic.Int32
	var in, left sync.WaitGroup
	var under atomic.Int32
	l := &Line[int]{Pause: time.Microsecond, Run: func(f func()) { go f() }}
	l.Enter = func(n int) Turn {
		if under.Add(1) > 3 {
			under.Add(-1)
			return NoRoom
		}
		if n%7 == 0 && aside[n].Add(1) == 1 {
			under.Add(-1)
			return Aside
		}
		entered[n].Add(1)
		go func() {
			under.Add(-1)
			left.Done()
		}()
		return Begun
	}
	left.Add(comers * each)
	for c := range comers {
		in.Go(func() {
			for i := range each {
				l.pass(c*each + i)
			}
		})
	}
	in.Wait()
	left.Wait()
	for n := range entered {
		if got := entered[n].Load(); got != 1 {
			t.Fatalf("%d has entered %d times", n, got)
		}
	}
	if l.Len() != 0 {
		t.Errorf("%d wait", l.Len())
	}
}

// The next in line has room where others are refused, a little, and counts as refused where
// it has none no more than anybody who waits.
func TestTheNextInLineIsNotOvertaken(t *testing.T) {
	for _, l := range []Lane{Watches, Claims, Small} {
		c, err := New(Limits{Min: 4, Max: 8}, nil)
		if err != nil {
			t.Fatal(err)
		}
		enter := func() bool { _, err := c.Enter(l, 1, ms); return err == nil }
		for enter() {
		}
		refused := c.Stats()[l].Refused
		var next []Ticket
		for {
			ticket, why := c.EnterNext(Who{}, l, 1, ms)
			if why != NumReasons {
				break
			}
			if next = append(next, ticket); enter() {
				t.Fatalf("%s: who does not wait is let in before who does", l)
			}
			refused[Delay]++
		}
		if len(next) != 4 || c.Stats()[l].Refused != refused {
			t.Errorf("%s: %d of those who wait, want 4; refused %v, want %v", l, len(next), c.Stats()[l].Refused, refused)
		}
		next[0].Done(2 * ms)
		if enter() {
			t.Errorf("%s: who does not wait has taken the place", l)
		}
		if _, why := c.EnterNext(Who{}, l, 1, 2*ms); why != NumReasons {
			t.Errorf("%s: the next in line has not the place that is free", l)
		}
		c.SetMode(Off)
		if _, why := c.EnterNext(Who{}, l, 1, 2*ms); why != NumReasons {
			t.Errorf("%s: something waits while nothing is refused", l)
		}
	}
}
