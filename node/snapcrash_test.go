package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/vfs"
)

// powerCut makes a member's power fail at one call that changes its disk, and
// keeps what the machine finds afterwards.
type powerCut struct {
	mem *vfs.Mem
	rng *rand.Rand

	mu    sync.Mutex
	armed bool
	left  int // calls until the power fails
	found *vfs.Mem
	at    string // call and folder
}

var errPower = errors.New("the power has failed")

func (p *powerCut) decide(call vfs.Call) vfs.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch call.Op {
	case vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpPreallocate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir:
		if p.armed && p.found == nil {
			if p.left--; p.left == 0 {
				p.found = p.mem.CrashClone(p.rng)
				p.at = fmt.Sprintf("%v %v", call.Op, strings.Split(call.Name, "/")[2])
			}
		}
	default:
	}
	if p.found != nil {
		return vfs.Fault{Err: errPower}
	}
	return vfs.Fault{}
}

func (p *powerCut) arm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = true
}

func (p *powerCut) after() *vfs.Mem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// TestPowerFailsWhileReceiving lets the power of a member fail at every single
// call that changes its disk, from the first piece of a snapshot until it has
// caught up. It must come back with a state that the cluster had, and catch up.
func TestPowerFailsWhileReceiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		for _, id := range trioIDs {
			g.start(id, nil)
		}
		g.write("a", 100, 3000)
		down := g.follower()
		rng := rand.New(rand.NewPCG(3, 5))
		var crashes []string
		for k := 1; ; k++ {
			if k > 1000 {
				t.Fatal("the member never catches up")
			}
			g.kill(down)
			time.Sleep(2 * time.Second) // for who was there a moment ago the log is kept
			for i := range 6 {
				g.write(fmt.Sprintf("b%d-%d", k, i), 1, 1)
			}
			g.compact()
			p := &powerCut{mem: g.disks[down], rng: rng, left: k}
			g.filter(func(m *Message) bool {
				if m.To == down && m.Chunk != nil {
					p.arm()
				}
				return true
			})
			r := g.start(down, func(c *Config) {
				c.FS = vfs.Inject(p.mem, p.decide)
			})
			if g.caughtUp(r, p) {
				break // it made fewer calls
			}
			crashes = append(crashes, p.at)
			g.crashed(down, p)
			g.restartAfterCrash(down, nil)
		}
		for _, want := range []string{"create snap", "write snap", "sync snap", "rename snap", "syncdir snap", "write log", "sync log", "remove snap"} {
			if !slices.Contains(crashes, want) {
				t.Errorf("the power never failed at %s: %v", want, crashes)
			}
		}
		g.agree()
		g.settled()
		g.stopAll()
	})
}

// caughtUp waits until a member has all or its power has failed.
func (g *trio) caughtUp(r *running, p *powerCut) bool {
	want := len(g.leader().machine.list())
	g.until("catching up, or a crash", func() bool { return p.after() != nil || len(r.machine.list()) >= want })
	time.Sleep(time.Second) // old files and segments go
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	return p.found == nil
}

// crashed takes a member away whose power has failed and gives it the disk that
// the machine finds.
func (g *trio) crashed(id uint64, p *powerCut) {
	g.t.Helper()
	g.mu.Lock()
	r := g.members[id]
	delete(g.members, id)
	g.disks[id] = p.after()
	g.mu.Unlock()
	_ = r.Close(g.t.Context()) // its disk does not answer any more
	<-r.err
}

// restartAfterCrash starts a member on what a crash left: a state that the
// cluster had.
func (g *trio) restartAfterCrash(id uint64, change func(*Config)) {
	g.t.Helper()
	r := g.start(id, change)
	had := r.machine.list()
	all := g.leader().machine.list()
	if len(had) > len(all) || !slices.Equal(had, all[:len(had)]) {
		g.t.Fatalf("member %d came back with %d commands that the cluster never had", id, len(had))
	}
	g.agree()
}
