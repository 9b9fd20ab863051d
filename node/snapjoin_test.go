package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/incumbent-dev/incumbent/vfs"
)

// addMember makes a member known and starts it on an empty disk.
func (g *trio) addMember(id uint64, role MemberRole, change func(*Config)) *running {
	g.t.Helper()
	if err := g.leader().ChangeMembers(context.Background(), MemberChange{ID: id, Role: role}); err != nil {
		g.t.Fatalf("add member %d: %v", id, err)
	}
	g.disks[id] = vfs.NewMem()
	return g.start(id, joining(id, change))
}

func joining(id uint64, change func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Join = &Identity{Cluster: [16]byte{1}, Member: id}
		if change != nil {
			change(c)
		}
	}
}

// TestJoinerCatchesUpBySnapshot adds a learner to a cluster whose log has long
// been cut, while writing goes on, and makes it a voter.
func TestJoinerCatchesUpBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		for _, id := range trioIDs {
			g.start(id, nil)
		}
		g.write("a", 5000, 20)
		r := g.addMember(4, Learner, nil)
		for i := range 20 {
			g.write(fmt.Sprintf("b%d", i), 100, 20)
		}
		g.agree()
		if _, received := g.events(); len(received[4]) == 0 || received[4][0].Err != nil {
			t.Errorf("received %+v, want a snapshot", received[4])
		}
		if err := g.leader().ChangeMembers(context.Background(), MemberChange{ID: 4, Role: Voter}); err != nil {
			t.Fatal(err)
		}
		g.write("c", 100, 1)
		g.agree()
		if st := r.Status(); len(st.Voters) != 4 || len(st.Learners) != 0 {
			t.Errorf("the joiner knows %v and %v", st.Voters, st.Learners)
		}
		g.settled()
		g.kill(4)
		g.start(4, nil) // no longer told to join
		g.write("d", 100, 1)
		g.agree()
		g.settled()
		g.stopAll()
	})
}

// TestPowerFailsWhileJoining lets the power of a joiner fail at every call that
// changes its disk, from the first piece on: it has no snapshot to fall back to.
func TestPowerFailsWhileJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		for _, id := range trioIDs {
			g.start(id, nil)
		}
		g.write("a", 100, 3000)
		rng := rand.New(rand.NewPCG(3, 5))
		crashes := 0
		for k := 1; ; k++ {
			if k > 1000 {
				t.Fatal("the member never catches up")
			}
			id := uint64(10 + k)
			p := &powerCut{rng: rng, left: k}
			g.filter(func(m *Message) bool {
				if m.To == id && m.Chunk != nil {
					p.arm()
				}
				return true
			})
			r := g.addMember(id, Learner, func(c *Config) {
				p.mem = c.FS.(*vfs.Mem)
				c.FS = vfs.Inject(c.FS, p.decide)
			})
			done := g.caughtUp(r, p)
			if !done {
				crashes++
				g.crashed(id, p)
				g.restartAfterCrash(id, joining(id, nil))
			}
			g.settled()
			if err := g.leader().ChangeMembers(context.Background(), MemberChange{ID: id, Role: Gone}); err != nil {
				t.Fatal(err)
			}
			g.kill(id)
			if done {
				break
			}
		}
		if crashes < 10 {
			t.Errorf("the power failed only %d times", crashes)
		}
		g.stopAll()
	})
}
