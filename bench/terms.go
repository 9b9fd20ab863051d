package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// How the members' terms are watched.
const (
	termsEvery   = 250 * time.Millisecond
	termsPatient = time.Second // a stopped member does not answer
	learnPatient = time.Minute // until one names a leader, where that has to be known
)

// terms counts elections: what each member says of its term and who leads.
type terms struct {
	mu     sync.Mutex // held for field accesses
	first  uint64     // newest term when counting began; 0: it has not
	newest uint64
	leader string // by name; the first one anybody named in the term named
	named  uint64
	moves  int // how often another one led
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
	if leader == "" || term == t.named {
		return // one leads in a term: a member that has just joined may have another name for it
	}
	if t.leader != "" && leader != t.leader {
		t.moves++
	}
	t.leader, t.named = leader, term
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

// ask asks all members once, at the same time, and reports whether one named a
// leader.
func (t *terms) ask(ctx context.Context, clients []*client.Client) (named bool) {
	ctx, cancel := context.WithTimeout(ctx, termsPatient)
	defer cancel()
	var all sync.WaitGroup
	var some atomic.Bool
	for _, c := range clients {
		all.Go(func() {
			if st, err := statusOf(ctx, c); err == nil {
				t.heard(st.Term, st.Leader)
				if st.Leader != "" {
					some.Store(true)
				}
			}
		})
	}
	all.Wait()
	return some.Load()
}

// learn asks until a member names a leader: a machine that stands still, or an
// election, may take all that one attempt has. What is known then is of now: no
// answer that is still under way from before is taken for news.
func (t *terms) learn(ctx context.Context, clients []*client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, learnPatient)
	defer cancel()
	for !t.ask(ctx, clients) {
		if err := sleep(ctx, termsEvery); err != nil {
			return incumbent.Errorf(incumbent.Unavailable, "no member of the cluster says who leads: %w", err)
		}
	}
	return nil
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
