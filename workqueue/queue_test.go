package workqueue

import (
	"slices"
	"sync"
	"testing"
)

func TestTakeKeepsTheOrderAndTheLimit(t *testing.T) {
	q := New[int]()
	for i := range 5 {
		q.Put(i)
	}
	got := q.Take([]int{7, 7, 7}, 2)
	if !slices.Equal(got, []int{0, 1}) {
		t.Errorf("took %v", got)
	}
	q.Put(5)
	q.Close()
	q.Put(6) // lost
	if got = q.Take(got, 10); !slices.Equal(got, []int{2, 3, 4, 5}) {
		t.Errorf("after Close took %v", got)
	}
	if got = q.Take(got, 10); len(got) != 0 {
		t.Errorf("a closed and empty queue gave %v", got)
	}
}

// Whatever was put in is run once, and Close lets the runners go.
func TestRunMakesEachCallOnce(t *testing.T) {
	q := New[func()]()
	var runners, calls sync.WaitGroup
	for range 3 {
		runners.Go(func() { Run(q) })
	}
	made := make([]int, 1000)
	for i := range made {
		calls.Add(1)
		q.Put(func() { made[i]++; calls.Done() })
	}
	calls.Wait()
	q.Close()
	runners.Wait()
	for i, n := range made {
		if n != 1 {
			t.Errorf("call %d was made %d times", i, n)
		}
	}
}
