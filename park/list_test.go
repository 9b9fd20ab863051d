package park

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type listed struct {
	Link[*listed]
	id int
}

func idsOf(all []*listed) []int {
	ids := make([]int, len(all))
	for i, h := range all {
		ids[i] = h.id
	}
	slices.Sort(ids)
	return ids
}

// However connections come and go, the list has those that came and did not go.
func TestListHasWhoIsThere(t *testing.T) {
	var l List[*listed]
	there := map[int]*listed{}
	for id := range 500 {
		if len(there) > 0 && rand.IntN(5) < 2 {
			gone := l.All()[rand.IntN(l.Len())]
			l.Remove(gone)
			delete(there, gone.id)
			if gone.next != nil || gone.prev != nil {
				t.Fatalf("%d was taken out and keeps its neighbours", gone.id)
			}
		} else {
			there[id] = &listed{id: id}
			l.Add(there[id])
		}
		var want []*listed
		for _, h := range there {
			want = append(want, h)
		}
		if diff := cmp.Diff(idsOf(want), idsOf(l.All())); diff != "" || l.Len() != len(want) {
			t.Fatalf("length %d: %s", l.Len(), diff)
		}
	}
}

// Those who go while everybody is sent away may take themselves out.
func TestListSendAway(t *testing.T) {
	var l List[*listed]
	for id := range 10 {
		l.Add(&listed{id: id})
	}
	asked := 0
	var away []*listed
	goAway := func(h *listed) { away = append(away, h); l.Remove(h) }
	l.SendAway(func() bool { asked++; return asked <= 4 }, goAway)
	if len(away) != 4 || asked != 5 || l.Len() != 6 {
		t.Errorf("%d went of 4, %d times asked, %d left", len(away), asked, l.Len())
	}
	l.SendAway(func() bool { return true }, goAway)
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, idsOf(away)); diff != "" || l.Len() != 0 {
		t.Errorf("%d left: %s", l.Len(), diff)
	}
}

func TestListIsForAnyGoroutine(t *testing.T) {
	var l List[*listed]
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for id := range 1000 {
				h := &listed{id: id}
				l.Add(h)
				l.All()
				l.Remove(h)
			}
		})
	}
	users.Wait()
	if l.Len() != 0 || len(l.All()) != 0 {
		t.Errorf("%d left", l.Len())
	}
}
