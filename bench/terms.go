package bench

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// How the members' terms are watched.
const (
	termsEvery   = 250 * time.Millisecond
	termsPatient = time.Second // a stopped member does not answer
)

// terms counts elections: what each member says of its term and who leads.
type terms struct {
	mu     sync.Mutex // held for field accesses
	first  uint64     // newest term when counting began; 0: it has not
	newest uint64
	leader string // by name; the last one anybody named in the newest term
	moves  int    // how often another one led
}

// heard takes note of what a member says.
func (t *terms) heard(term uint64, leader string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == 0 {
		t.first = term
	}
	if term < t.newest {
		return // it has not heard of the newest yet
	}
	t.newest = term
	if leader == "" || leader == t.leader {
		return
	}
	if t.leader != "" {
		t.moves++
	}
	t.leader = leader
}

// restart counts from now on.
func (t *terms) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.moves = t.newest, 0
}

// counts returns how many terms began, and how often another member led.
func (t *terms) counts() (elections uint64, moves int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest - t.first, t.moves
}

// lead is the name of who leads, as far as is known.
func (t *terms) lead() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leader
}

// ask asks all members once, at the same time.
func (t *terms) ask(ctx context.Context, clients []*client.Client) {
	ctx, cancel := context.WithTimeout(ctx, termsPatient)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			if st, err := statusOf(ctx, c); err == nil {
				t.heard(st.Term, st.Leader)
			}
		})
	}
	all.Wait()
}

// watch asks until ctx ends.
func (t *terms) watch(ctx context.Context, clients []*client.Client) {
	for ; sleep(ctx, termsEvery) == nil; t.ask(ctx, clients) {
	}
}

func statusOf(ctx context.Context, c *client.Client) (*apiv1.StatusResponse, error) {
	res, err := c.Cluster().Status(ctx, connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg, nil
}
