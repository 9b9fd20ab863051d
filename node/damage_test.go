package node

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// flip changes one bit of a file.
func flip(t *testing.T, fs vfs.FS, path string, at int) {
	t.Helper()
	b, err := vfs.ReadFile(fs, path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1 << (at % 8)
	if err := vfs.WriteFile(fs, path, b); err != nil {
		t.Fatal(err)
	}
}

// TestG31_FollowerWithADamagedLogStaysDown flips bits in the log of one of three
// while it is down: it refuses to start and names the file and the offset, and the
// others go on without it.
func TestG31_FollowerWithADamagedLogStaysDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := func(c *Config) { c.SnapshotEntries = 1000 } // all of it stays in the log
		g, _ := startTrio(t, long)
		mark := "here-" + strings.Repeat("x", 300)
		g.write("a", 50, 10)
		if _, err := g.leader().propose(mark); err != nil {
			t.Fatal(err)
		}
		g.write("b", 50, 10)
		g.agree()
		down := g.follower()
		g.kill(down)
		disk := g.disks[down]
		path, at := findIn(t, disk, "/data/log", mark)
		for _, offset := range []int{at - 20, at, at + 100, at + 299} {
			damaged := disk.Clone()
			flip(t, damaged, path, offset)
			_, err := Open(Config{FS: damaged, Dir: "/data", Machine: &journal{}, Schema: 1, SegmentBytes: MinSegmentBytes, Transport: g})
			want := fmt.Sprintf("%s at byte %d", path, offset/512*512) // of the sector
			if incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), want) {
				t.Errorf("bit flipped at %d: got %v, want Corrupt and %q", offset, err, want)
			}
			g.write("go on", 5, 10)
		}
		g.start(down, long) // on the disk as it was
		g.agree()
		g.stopAll()
	})
}

// findIn returns the file in a folder that contains a text, and where.
func findIn(t *testing.T, fs vfs.FS, dir, text string) (path string, at int) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := vfs.ReadFile(fs, dir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(b), text); at >= 0 {
			return dir + "/" + name, at
		}
	}
	t.Fatalf("no file in %s has it", dir)
	return "", 0
}

// spoken is a log handler's output.
type spoken struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spoken) contains(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

// TestALogThatWasMovedAwayIsMissed leaves the lock and the spares where they are: the member
// refuses to begin anew, also alone, and goes on once its log is back.
func TestALogThatWasMovedAwayIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		r := s.start(t, nil)
		r.mustPropose("kept")
		if _, err := r.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * diskPollEvery) // there are spares
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		files := func() (all []string) {
			t.Helper()
			for _, dir := range []string{"/data/log", "/data/snap"} {
				names, err := s.fs.List(dir)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, names...)
			}
			return all
		}
		move := func(from, to string) {
			t.Helper()
			names, err := s.fs.List(from)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if strings.HasSuffix(name, ".wal") {
					if err := s.fs.Rename(from+"/"+name, to+"/"+name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := vfs.MkdirAll(s.fs, "/away"); err != nil {
			t.Fatal(err)
		}
		move("/data/log", "/away")
		left := files()
		cfg := surviveConfig(s.fs, &journal{})
		if _, err := Open(cfg); incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "without the log") {
			t.Errorf("without its log: %v", err)
		}
		cfg.Join = &Identity{Cluster: [16]byte{1}, Member: 7}
		if _, err := Open(cfg); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("joining without its log: %v", err)
		}
		if _, err := Recover(surviveConfig(s.fs, &journal{}), func(Survivor) error { return nil }); incumbent.KindOf(err) != incumbent.NotFound {
			t.Errorf("recovered without its log: %v", err)
		}
		if got := files(); !slices.Equal(got, left) {
			t.Errorf("files %v became %v", left, got)
		}
		move("/away", "/data/log")
		r = s.start(t, nil)
		if got := r.machine.list(); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("with its log back it has %q", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestDamagedSnapshotOfTheLeader flips one bit in the middle of the leader's own
// file. The peer finds out; the leader reads its file again, takes a newer one
// although nobody has written anything since, and sends that.
func TestDamagedSnapshotOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		log := &spoken{}
		l := g.leader()
		l.inbox.call(func() { l.cfg.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		disk := g.disks[l.Status().Member]
		names, err := disk.List("/data/snap")
		if err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
		before := l.Status()
		if before.Snapshot != before.Applied {
			t.Fatalf("something was applied since the snapshot: %+v", before)
		}
		flip(t, disk, "/data/snap/"+names[0], 2*bigRate)
		r := g.start(down, slow)
		g.until("a snapshot that works", func() bool {
			sent, _ := g.events()
			return len(sent) > 0 && sent[len(sent)-1].Err == nil
		})
		sent, received := g.events()
		if len(sent) != 2 || incumbent.KindOf(sent[0].Err) != incumbent.Unavailable || sent[1].Index <= sent[0].Index {
			t.Errorf("sent %+v, want a refusal and then a newer one", sent)
		}
		if d := received[down]; len(d) != 2 || d[0].Err == nil || d[1].Err != nil {
			t.Errorf("received %+v, want a failure and then a newer one", d)
		}
		if !log.contains("own snapshot is damaged") || !log.contains(names[0]) {
			t.Error("nobody was told that the leader's file is damaged")
		}
		g.agree()
		if st := l.Status(); st.State != Leader || st.Term != before.Term {
			t.Errorf("the leader is %+v", st.Role)
		}
		if got := len(r.machine.list()); got != 120 {
			t.Errorf("%d commands, want 120", got)
		}
		g.settled()
		g.stopAll()
		for _, id := range trioIDs { // its own next start depends on it too
			g.start(id, slow)
		}
		g.agree()
		g.stopAll()
	})
}

// TestPeerRefusesAGoodSnapshot damages a piece on the way: the leader finds its own
// file whole and sends it again, without another one.
func TestPeerRefusesAGoodSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, down, slow := big(t)
		var once sync.Once
		g.filter(func(m *Message) bool {
			if m.Chunk != nil {
				once.Do(func() {
					m.Chunk.Data = slices.Clone(m.Chunk.Data)
					m.Chunk.Data[len(m.Chunk.Data)-1] ^= 1
				})
			}
			return true
		})
		before := g.leader().Status().Applied
		g.start(down, slow)
		g.agree()
		time.Sleep(time.Second)
		sent, _ := g.events()
		if len(sent) != 2 || sent[0].Err == nil || sent[1].Err != nil || sent[0].Index != sent[1].Index {
			t.Errorf("sent %+v, want the same twice", sent)
		}
		if st := g.leader().Status(); st.Applied != before || st.Snapshot != sent[0].Index {
			t.Errorf("applied %d → %d, snapshot %d", before, st.Applied, st.Snapshot)
		}
		g.settled()
		g.stopAll()
	})
}
