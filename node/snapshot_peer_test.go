package node

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// TestMemberComesBackBySnapshot has one of three down while 5,000 commands are
// written and the log before them is gone, and lets it come back while writing
// goes on.
func TestMemberComesBackBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		for _, id := range trioIDs {
			g.start(id, nil)
		}
		g.write("a", 100, 1)
		down := g.follower()
		g.kill(down)
		time.Sleep(2 * time.Second) // for who was there a moment ago the log is kept
		g.write("b", 5000, 20)
		if st := g.leader().Status(); st.First < 50 {
			t.Fatalf("the log still begins at %d", st.First)
		}
		r := g.start(down, nil)
		for i := range 20 {
			g.write(string(rune('c'+i)), 100, 20)
			time.Sleep(10 * time.Millisecond)
		}
		g.agree()
		sent, received := g.events()
		if len(sent) == 0 || sent[0].Err != nil || len(received[down]) == 0 || received[down][0].Err != nil {
			t.Errorf("sent %+v, received %+v", sent, received)
		}
		if st := r.Status(); st.Snapshot < 50 {
			t.Errorf("it came back without a snapshot: %+v", st)
		}
		g.settled()
		g.stopAll()
		// What came over the wire is what it starts from.
		for _, id := range trioIDs {
			g.start(id, nil)
		}
		g.agree()
		g.stopAll()
	})
}

// bigRate is at what rate the snapshot of big travels, in bytes per second: it
// takes ten seconds.
const bigRate = 1 << 19

// big starts three members of which one is behind by a snapshot of ten times
// bigRate, and stopped.
func big(t *testing.T, changes ...func(*Config)) (g *trio, down uint64, slow func(*Config)) {
	t.Helper()
	g = newTrio(t)
	slow = func(c *Config) {
		c.SnapshotRate = bigRate
		for _, change := range changes {
			change(c)
		}
	}
	for _, id := range trioIDs {
		g.start(id, slow)
	}
	g.write("a", 10, 1)
	down = g.follower()
	g.kill(down)
	time.Sleep(2 * time.Second) // for who was there a moment ago the log is kept
	g.write("b", 100, bigRate/10)
	g.compact()
	return g, down, slow
}

// compact takes snapshots until the log in memory is short everywhere.
func (g *trio) compact() {
	g.t.Helper()
	for _, r := range g.members {
		if _, err := r.Snapshot(context.Background()); err != nil {
			g.t.Fatal(err)
		}
	}
	g.write("compact", 10, 1)
	for _, r := range g.members {
		if _, err := r.Snapshot(context.Background()); err != nil {
			g.t.Fatal(err)
		}
	}
}

// until waits up to a minute of virtual time.
func (g *trio) until(what string, ok func() bool) {
	g.t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	sent, received := g.events()
	g.t.Fatalf("never happened: %s; sent %+v, received %+v", what, sent, received)
}

// sentBytes returns what went over the wire in pieces, and for how long.
func (g *trio) sentBytes() (bytes int64, first, last piece) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pieces {
		bytes += int64(p.bytes)
	}
	if len(g.pieces) > 0 {
		first, last = g.pieces[0], g.pieces[len(g.pieces)-1]
	}
	return bytes, first, last
}

// TestSnapshotTransferIsThrottled holds a transfer against the rate, while
// writing goes on, and while both sides take snapshots of their own.
func TestSnapshotTransferIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		r := g.start(down, slow)
		g.until("first pieces", func() bool { n, _, _ := g.sentBytes(); return n > bigRate })
		if _, err := r.Snapshot(context.Background()); err != nil {
			t.Errorf("snapshot while receiving: %v", err)
		}
		asked := time.Now()
		g.write("during", 60, 1)
		if took := time.Since(asked); took > time.Second {
			t.Errorf("writing took %v beside a transfer", took)
		}
		if _, err := g.leader().Snapshot(context.Background()); err != nil {
			t.Errorf("snapshot while sending: %v", err)
		}
		g.agree()
		sent, _ := g.events()
		if len(sent) != 1 || sent[0].Err != nil {
			t.Fatalf("transfers: %+v, want one that worked", sent)
		}
		bytes, first, last := g.sentBytes()
		if bytes != sent[0].Bytes {
			t.Errorf("%d bytes were sent for a file of %d", bytes, sent[0].Bytes)
		}
		want := time.Duration(float64(bytes) / bigRate * float64(time.Second))
		if took := last.at.Sub(first.at); took < want*9/10 || took > want*12/10 {
			t.Errorf("%d bytes at %d a second took %v, want %v", bytes, bigRate, took, want)
		}
		g.settled()
		g.stopAll()
	})
}

// Under load that never ends a snapshot is old when it has been sent: what follows on it is
// kept for who receives it, however many newer ones were taken meanwhile.
func TestComesBackUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		g.start(down, slow)
		g.until("first pieces", func() bool { n, _, _ := g.sentBytes(); return n > bigRate })
		newer := g.leader().Status().Snapshot
		g.filter(func(m *Message) bool { return m.To != down || m.Chunk == nil }) // longer than a newer one takes
		g.write("load", 5000, 20)
		if _, err := g.leader().Snapshot(context.Background()); err != nil {
			t.Fatal(err)
		}
		g.filter(nil)
		if st := g.leader().Status(); st.Snapshot <= newer {
			t.Fatalf("no snapshot was taken: %+v", st)
		}
		g.agree()
		if sent, _ := g.events(); len(sent) != 1 || sent[0].Err != nil {
			t.Errorf("transfers: %+v, want one that worked", sent)
		}
		g.write("more", 100, 20)
		if _, err := g.leader().Snapshot(context.Background()); err != nil {
			t.Fatal(err)
		}
		if st := g.leader().Status(); st.First+20 < st.Snapshot {
			t.Errorf("entries from %d on are kept behind a snapshot at %d for who has them", st.First, st.Snapshot)
		}
		g.settled()
		g.stopAll()
	})
}

// TestSnapshotTransferResumes restarts the receiver in the middle, then cuts the
// connection: what has arrived is not sent again.
func TestSnapshotTransferResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		g.start(down, slow)
		half := func(n int64) func() bool {
			return func() bool { sent, _, _ := g.sentBytes(); return sent > n }
		}
		g.until("a third", half(3*bigRate))
		g.kill(down)
		g.start(down, slow)
		g.until("two thirds", half(7*bigRate))
		g.filter(func(m *Message) bool { return m.To != down && m.From != down })
		time.Sleep(5 * time.Second)
		g.filter(nil)
		g.agree()
		sent, received := g.events()
		if len(sent) != 1 || sent[0].Err != nil || len(received[down]) != 1 || received[down][0].Err != nil {
			t.Fatalf("sent %+v, received %+v: want one transfer that worked", sent, received[down])
		}
		// What was under way is lost, and each silence costs a piece or two.
		bytes, _, _ := g.sentBytes()
		if most := sent[0].Bytes + 2*(sendWindow+4)*MaxChunkBytes; bytes > most {
			t.Errorf("%d bytes were sent for a file of %d, want at most %d", bytes, sent[0].Bytes, most)
		}
		g.settled()
		g.stopAll()
	})
}

// TestSnapshotPiecesAreLost loses every seventh piece and every fifth answer.
func TestSnapshotPiecesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		pieces, answers := 0, 0
		var mu sync.Mutex
		g.filter(func(m *Message) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case m.Chunk != nil:
				pieces++
				return pieces%7 != 0
			case m.Taken != nil:
				answers++
				return answers%5 != 0
			}
			return true
		})
		g.start(down, slow)
		g.agree()
		if sent, _ := g.events(); len(sent) != 1 || sent[0].Err != nil {
			t.Errorf("transfers: %+v, want one that worked", sent)
		}
		g.settled()
		g.stopAll()
	})
}

// TestPeerDiesDuringTransfer leaves nothing behind.
func TestPeerDiesDuringTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		g.start(down, slow)
		g.until("first pieces", func() bool { n, _, _ := g.sentBytes(); return n > bigRate })
		g.kill(down)
		died := time.Now()
		g.until("the end", func() bool { sent, _ := g.events(); return len(sent) == 1 && sent[0].Err != nil })
		if took := time.Since(died); took < giveUpAfter-2*time.Second || took > giveUpAfter+2*time.Second {
			t.Errorf("given up after %v, want %v", took, giveUpAfter)
		}
		g.settled()
		g.start(down, slow)
		g.agree()
		g.settled()
		g.stopAll()
	})
}

// TestLeaderStopsDuringTransfer lets another member begin anew.
func TestLeaderStopsDuringTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		g.start(down, slow)
		g.until("first pieces", func() bool { n, _, _ := g.sentBytes(); return n > bigRate })
		old := g.leader().Status().Member
		g.kill(old)
		g.until("another leader", func() bool { return g.leader().Status().Member != old })
		g.write("after", 10, 1)
		g.agree()
		g.start(old, slow)
		g.agree()
		g.settled()
		g.stopAll()
	})
}

// TestDamagedPiece flips one bit on the way: the file is refused, the member
// stays as it is, and the next attempt works.
func TestDamagedPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		var once sync.Once
		g.filter(func(m *Message) bool {
			if m.Chunk != nil && m.Chunk.Offset > 5*bigRate {
				once.Do(func() {
					m.Chunk.Data = slices.Clone(m.Chunk.Data)
					m.Chunk.Data[100] ^= 4
				})
			}
			return true
		})
		r := g.start(down, slow)
		g.until("the refusal", func() bool { _, received := g.events(); return len(received[down]) == 1 })
		if got := len(r.machine.list()); got != 10 {
			t.Errorf("%d commands after a refused snapshot, want the 10 from before", got)
		}
		if names, err := g.disks[down].List("/data/snap"); err != nil || len(names) != 1 {
			t.Errorf("files after a refused snapshot: %v, %v", names, err)
		}
		g.agree()
		sent, received := g.events()
		if d := received[down]; len(d) != 2 || d[0].Err == nil || d[1].Err != nil || len(sent) != 2 || sent[0].Err == nil || sent[1].Err != nil {
			t.Errorf("sent %+v, received %+v: want a failure and a success", sent, d)
		}
		g.settled()
		g.stopAll()
	})
}

// TestTruncatedSnapshotOfTheLeader cuts the leader's own file short: it notices,
// takes another, and sends that.
func TestTruncatedSnapshotOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		l := g.leader()
		fs := g.disks[l.Status().Member]
		names, err := fs.List("/data/snap")
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		whole, err := vfs.ReadFile(fs, "/data/snap/"+names[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(fs, "/data/snap/"+names[0], whole[:len(whole)-100]); err != nil {
			t.Fatal(err)
		}
		g.write("after", 5, 1)
		g.start(down, slow)
		g.agree()
		sent, _ := g.events()
		if len(sent) > 3 || incumbent.KindOf(sent[0].Err) != incumbent.Corrupt || sent[len(sent)-1].Err != nil || sent[len(sent)-1].Index <= sent[0].Index {
			t.Errorf("sent %+v, want the damage found and then a newer one", sent)
		}
		g.settled()
		g.stopAll()
	})
}

// TestNoSpaceWhileReceiving fills the receiver's disk.
func TestNoSpaceWhileReceiving(t *testing.T) {
	for name, fault := range map[string]func(full bool, call vfs.Call) vfs.Fault{
		"known before": func(bool, vfs.Call) vfs.Fault { return vfs.Fault{} },
		"while writing": func(full bool, call vfs.Call) vfs.Fault {
			if full && call.Op == vfs.OpWrite && strings.HasSuffix(call.Name, partSuffix) {
				return vfs.Fault{Err: syscall.ENOSPC, Bytes: call.Bytes / 2}
			}
			return vfs.Fault{}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, down, slow := big(t)
			var full atomic.Bool
			full.Store(true)
			disk := g.disks[down]
			if name == "known before" {
				disk.SetCapacity(6<<20 + 5*bigRate)
			}
			r := g.start(down, func(c *Config) {
				slow(c)
				c.FS = vfs.Inject(disk, func(call vfs.Call) vfs.Fault { return fault(full.Load(), call) })
			})
			g.until("the refusal", func() bool { _, received := g.events(); return len(received[down]) > 0 })
			_, received := g.events()
			if err := received[down][0].Err; err == nil {
				t.Errorf("%s: received on a full disk", name)
			}
			if got := len(r.machine.list()); got != 10 {
				t.Errorf("%s: %d commands, want the 10 from before", name, got)
			}
			if names, err := disk.List("/data/snap"); err != nil || len(names) != 1 {
				t.Errorf("%s: files: %v, %v", name, names, err)
			}
			began := time.Now()
			g.until("the next attempt", func() bool { sent, _ := g.events(); return len(sent) > 1 })
			if took := time.Since(began); took < sendAgainAfter/2 {
				t.Errorf("%s: tried again after %v", name, took)
			}
			full.Store(false)
			disk.SetCapacity(0)
			g.agree()
			g.settled()
			g.stopAll()
		})
	}
}

// TestPeerWithoutRoomCostsNoReading has a peer refuse a snapshot again and again before
// it has any of it: nothing is wrong with the leader's file, and others are to be sent theirs.
func TestPeerWithoutRoomCostsNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int64 // bytes of snapshots
		g, down, slow := big(t, func(c *Config) {
			c.FS = vfs.Inject(c.FS, func(call vfs.Call) vfs.Fault {
				if call.Op == vfs.OpRead && strings.HasSuffix(call.Name, snapshotSuffix) {
					read.Add(call.Bytes)
				}
				return vfs.Fault{}
			})
		})
		g.disks[down].SetCapacity(6<<20 + 5*bigRate)
		read.Store(0)
		g.start(down, slow)
		g.until("four refusals", func() bool { sent, _ := g.events(); return len(sent) > 3 })
		sent, _ := g.events()
		if got := read.Load(); sent[3].Err == nil || got >= sent[3].Bytes {
			t.Errorf("%d bytes were read of a snapshot of %d: %v", got, sent[3].Bytes, sent[3].Err)
		}
		g.disks[down].SetCapacity(0)
		g.agree()
		g.settled()
		g.stopAll()
	})
}

// TestTailKeepsAFollowerOnEntries stops a follower for less than the tail.
func TestTailKeepsAFollowerOnEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		tail := func(c *Config) { c.TailEntries = 200 }
		for _, id := range trioIDs {
			g.start(id, tail)
		}
		g.write("a", 100, 1)
		down := g.follower()
		g.kill(down)
		for i := range 100 {
			g.write(string(rune('b'+i)), 1, 1)
		}
		if st := g.leader().Status(); st.Snapshot < 50 {
			t.Fatalf("no snapshot was taken: %+v", st)
		}
		g.start(down, tail)
		g.agree()
		if sent, _ := g.events(); len(sent) != 0 {
			t.Errorf("snapshots sent: %+v, want none", sent)
		}
		g.settled()
		g.stopAll()
	})
}
