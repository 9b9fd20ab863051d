package node

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

func surviveConfig(fs vfs.FS, m Machine) Config {
	return Config{FS: fs, Dir: "/data", Machine: m, Schema: 1, DiskReserve: -1, SegmentBytes: MinSegmentBytes}
}

// raise is what a survivor is given before it goes on alone.
func (j *journal) raise() error {
	j.Apply([][]byte{[]byte("epoch")}, make([]any, 1))
	return nil
}

// TestRecoverMakesOneOfThreeAClusterOfItsOwn ends all three and goes on with one.
func TestRecoverMakesOneOfThreeAClusterOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		for i := range 50 { // some of it in a snapshot, some behind it
			if _, err := l.propose(fmt.Sprintf("entry %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		last := g.others(l.Status().Member)[0]
		id := last.Status().Member
		eventually(t, "the survivor has it all", func() bool { return last.Status().Applied == l.Status().Applied })
		g.stopAll()

		seen := &journal{}
		looked, err := Recover(surviveConfig(g.disks[id], seen), nil)
		if err != nil || looked.Member != id || looked.Durable < 50 || looked.Committed > looked.Durable || len(seen.commands) != 50 {
			t.Fatalf("looking: %+v with %d commands, %v", looked, len(seen.commands), err)
		}
		j := &journal{}
		found, err := Recover(surviveConfig(g.disks[id], j), func(s Survivor) error {
			if s != looked {
				t.Errorf("told %+v, looked at %+v", s, looked)
			}
			return j.raise()
		})
		if err != nil || found != looked {
			t.Fatalf("recovering: %+v, %v", found, err)
		}
		alone := (&stand{fs: g.disks[id]}).start(t, nil)
		st := alone.Status()
		if !slices.Equal(st.Voters, []uint64{id}) || len(st.Learners) != 0 || st.Term <= looked.LastTerm || st.Commit <= looked.Durable {
			t.Errorf("afterwards %+v", st)
		}
		if got := alone.machine.commands; len(got) != 51 || got[50] != "epoch" {
			t.Errorf("%d commands, the last %q", len(got), got[len(got)-1])
		}
		alone.mustPropose("on it goes")
	})
}

// TestLookingAtASurvivorChangesNothing compares its files, after an orderly end and after a
// loss of power, and has recovery itself keep the spares, whatever length they have.
func TestLookingAtASurvivorChangesNothing(t *testing.T) {
	const segmentBytes = 4 * MinSegmentBytes
	files := func(fs vfs.FS) map[string]string {
		t.Helper()
		found := map[string]string{}
		for _, dir := range []string{"/data/log/", "/data/snap/"} {
			names, err := fs.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				var f vfs.File
				var size int64
				if f, err = fs.Open(dir + name); err == nil {
					size, err = f.Size()
				}
				b := make([]byte, size)
				if err == nil && size > 0 {
					_, err = f.ReadAt(b, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
				found[dir+name] = string(b)
			}
		}
		return found
	}
	spares := func(files map[string]string) (names []string) {
		for name, content := range files {
			if strings.HasPrefix(name, "/data/log/spare-") && len(content) == segmentBytes {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		r := s.start(t, func(c *Config) { c.SegmentBytes = segmentBytes })
		r.mustPropose("kept")
		time.Sleep(2 * diskPollEvery)
		cut := s.fs.CrashClone(rand.New(rand.NewPCG(1, 1)))
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		for name, fs := range map[string]*vfs.Mem{"closed": s.fs.Clone(), "crashed": cut} {
			before, seen := files(fs), &journal{}
			want := spares(before)
			if _, err := Recover(surviveConfig(fs, seen), nil); err != nil || !slices.Equal(seen.commands, []string{"kept"}) {
				t.Fatalf("%s: %q, %v", name, seen.commands, err)
			}
			after := files(fs)
			if !maps.Equal(before, after) {
				t.Errorf("%s: files %v became %v, or have changed", name, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
			cfg := surviveConfig(fs, &journal{})
			cfg.KeepSegmentBytes = true
			if _, err := Recover(cfg, func(Survivor) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if got := spares(files(fs)); len(got) == 0 || len(want) > 0 && !slices.Equal(got, want) {
				t.Errorf("%s: spares %v are left, want %v", name, got, want)
			}
		}
	})
}

// TestRecoverIsAllOrNothing loses power in the middle of it, again and again.
func TestRecoverIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		l.mustPropose("kept")
		id := l.Status().Member
		g.stopAll()
		done := false
		n := rounds(mostRounds - 2000)
		for calls := 0; !done; calls++ {
			n.next() // it makes some hundred calls
			fs, left := g.disks[id].Clone(), calls
			j := &journal{}
			_, err := Recover(surviveConfig(vfs.Inject(fs, func(c vfs.Call) vfs.Fault {
				if left--; left < 0 {
					return vfs.Fault{Err: fmt.Errorf("power is gone")}
				}
				return vfs.Fault{}
			}), j), func(Survivor) error { return j.raise() })
			done = err == nil
			j = &journal{}
			n, err := Open(surviveConfig(fs.CrashClone(rand.New(rand.NewPCG(uint64(calls), 1))), j))
			if err != nil {
				t.Fatalf("power lost after %d calls: %v", calls, err)
			}
			before, after := len(n.Status().Voters) == 3, slices.Equal(n.Status().Voters, []uint64{id}) && slices.Equal(j.commands, []string{"kept", "epoch"})
			if !before && !after || done && !after {
				t.Errorf("power lost after %d calls: voters %v, commands %q", calls, n.Status().Voters, j.commands)
			}
			if err := n.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestARecoveryThatIsRefusedChangesNothing refuses what is to come before a survivor goes on
// alone: it is the member that it was.
func TestARecoveryThatIsRefusedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		l.mustPropose("kept")
		id := l.Status().Member
		g.stopAll()
		refused := errors.New("refused")
		j := &journal{}
		_, err := Recover(surviveConfig(g.disks[id], j), func(Survivor) error { return errors.Join(j.raise(), refused) })
		if !errors.Is(err, refused) {
			t.Errorf("recovered: %v", err)
		}
		j = &journal{}
		n, err := Open(surviveConfig(g.disks[id], j))
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(j.commands, "epoch") || len(n.Status().Voters) != 3 {
			t.Errorf("voters %v, commands %q", n.Status().Voters, j.commands)
		}
		if err := n.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRecoverRefuses(t *testing.T) {
	if _, err := Recover(surviveConfig(vfs.NewMem(), &journal{}), nil); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("an empty folder: %v", err)
	}
	fs := vfs.NewMem()
	cfg := surviveConfig(fs, &journal{})
	cfg.Join = &Identity{Cluster: [16]byte{1}, Member: 7}
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(surviveConfig(fs, &journal{}), nil); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("while somebody uses it: %v", err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(surviveConfig(fs, &journal{}), nil); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("a member that waits for its leader: %v", err)
	}
}
