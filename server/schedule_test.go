package server

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/vfs"
)

func backupsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := backup.List(vfs.OS{}, dir)
	if err != nil {
		return nil // not made yet
	}
	for _, f := range list {
		if f.Err != nil {
			t.Errorf("%s: %v", f.Name, f.Err)
		}
		names = append(names, f.Name)
	}
	return names
}

// Of three members with a folder each a follower writes, and none but it; when it
// leaves another does.
func TestOneMemberWritesBackups(t *testing.T) {
	members, dirs := make([]*Server, 3), make([]string, 3)
	for i := range members {
		cfg := memberConfig(t, "n"+string(rune('1'+i)))
		dirs[i] = filepath.Join(t.TempDir(), "made", "by-server")
		cfg.BackupDir, cfg.backupTick = dirs[i], 20*time.Millisecond
		if i == 0 {
			members[i] = open(t, cfg)
			continue
		}
		members[i] = join(t, members[0], cfg)
	}
	leader := leaderOf(t, members...)
	// The first one was alone at first, and wrote as such.
	until(t, "the first has written", func() bool { return len(backupsIn(t, dirs[0])) == 1 })
	holder := func() *Server {
		name := writerOf(members[1].engine.View())
		i := slices.IndexFunc(members, func(s *Server) bool { return s.cfg.Name == name })
		if i < 0 {
			return nil
		}
		return members[i]
	}
	var first *Server
	until(t, "a follower has the lease", func() bool { first = holder(); return first != nil && first != leader })
	at := slices.Index(members, first)
	until(t, "a follower has written", func() bool { return len(backupsIn(t, dirs[at])) == 1 })
	third := 3 - slices.Index(members, leader) - at
	denied := func() uint64 { return members[third].engine.Leases().Stats().ClaimsDenied }
	until(t, "the third one was denied the lease", func() bool { return denied() > 3 })
	if got := backupsIn(t, dirs[third]); third != 0 && len(got) > 0 {
		t.Errorf("%s has written too: %q", members[third].cfg.Name, got)
	}
	if st, err := members[third].operator().Status(testContext(t)); err != nil || st.Backups.Writer != first.cfg.Name {
		t.Errorf("status says %v, %v", st.GetBackups(), err)
	}
	if err := first.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	until(t, "another goes on", func() bool { return len(backupsIn(t, dirs[third])) == 1 })
}

// A leader writes where nobody else does, and has the lease only while it writes.
func TestALeaderWritesWhereNobodyElseDoes(t *testing.T) {
	cfg := memberConfig(t, "n1")
	cfg.BackupDir, cfg.backupTick = t.TempDir(), 10*time.Millisecond
	first := open(t, cfg)
	until(t, "it writes while it is alone", func() bool { return len(backupsIn(t, cfg.BackupDir)) == 1 })
	learner := memberConfig(t, "n2") // so that the first leads, however long it stands still
	learner.JoinToken, learner.Learner = tokenOf(t, first, learner.Name), true
	open(t, learner)
	until(t, "there are two members and the lease is free", func() bool {
		v := first.engine.View()
		return len(v.Members()) == 2 && writerOf(v) == ""
	})
	if err := os.Remove(filepath.Join(cfg.BackupDir, backupsIn(t, cfg.BackupDir)[0])); err != nil {
		t.Fatal(err)
	}
	until(t, "it writes again", func() bool { return len(backupsIn(t, cfg.BackupDir)) == 1 })
	until(t, "the lease is free again", func() bool { return writerOf(first.engine.View()) == "" })
}

// What is there says when the next one is due, whatever the clock did since. Of more
// than are to stay the oldest go.
func TestBackupsAreWrittenWhenDueAndPruned(t *testing.T) {
	cfg := testConfig(t)
	cfg.BackupKeep, cfg.BackupEvery = 2, time.Hour
	s := open(t, cfg)
	if err := s.WaitReady(testContext(t)); err != nil {
		t.Fatal(err)
	}
	k := &schedule{s: s, dir: t.TempDir()}
	now := time.Now()
	if k.look(now); !k.due.Equal(now) || !k.newest.IsZero() {
		t.Errorf("where there is none the next is due at %v, want %v", k.due, now)
	}
	var written []string
	var last backup.Info
	for i := range 4 {
		if err := k.call(testContext(t), testTimeout, core.OpenSessionCommand{ID: incumbent.SessionID{byte(i + 1)}}); err != nil {
			t.Fatal(err)
		}
		path, info, bytes, err := k.write(testContext(t))
		if err != nil || bytes == 0 {
			t.Fatalf("%s: %d bytes, %v", path, bytes, err)
		}
		written, last = append(written, filepath.Base(path)), info
	}
	if got := backupsIn(t, k.dir); !slices.Equal(got, written[2:]) {
		t.Errorf("there are %q, want %q", got, written[2:])
	}
	at := last.At.UTC().Truncate(time.Second)
	for _, c := range []struct{ now, due time.Time }{
		{at.Add(time.Minute), at.Add(time.Hour)},
		{at.Add(5 * time.Hour), at.Add(time.Hour)},
		{at.Add(-5 * time.Hour), at.Add(-4 * time.Hour)}, // the clock was put back
	} {
		if k.look(c.now); !k.due.Equal(c.due) || !k.newest.Equal(at) {
			t.Errorf("at %v the next is due at %v, want %v", c.now, k.due, c.due)
		}
	}
}

// counting is a context that counts what is told of its end.
type counting struct {
	context.Context
	done chan struct{}
	told atomic.Int64
}

func (c *counting) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context asks of a context that is not its own.
func (c *counting) AfterFunc(func()) (stop func() bool) {
	c.told.Add(1)
	return sync.OnceValue(func() bool { c.told.Add(-1); return true })
}

// A member writes backups for years: one that is written leaves nothing behind that
// waits for the member's end.
func TestABackupThatIsWrittenLeavesNothing(t *testing.T) {
	cfg := testConfig(t)
	cfg.backupTick = time.Hour
	s := open(t, cfg)
	k := &schedule{s: s, dir: t.TempDir(), finished: make(chan bool, 1), quit: make(chan struct{}), left: make(chan struct{})}
	k.written, k.failures = s.backups.written, s.backups.failures
	ctx := &counting{Context: context.Background(), done: make(chan struct{})}
	go k.run(ctx)
	until(t, "a backup is written", func() bool { return len(backupsIn(t, k.dir)) == 1 })
	until(t, "nothing waits for the end", func() bool { return ctx.told.Load() == 0 })
	close(ctx.done)
	<-k.left
}

// A folder that hangs, as one of a file server that is gone, costs a member that leaves
// neither the hand-over nor its clean end.
func TestG48_AHungBackupFolderDoesNotHoldUpTheEnd(t *testing.T) {
	cfg := memberConfig(t, "n1")
	cfg.BackupDir, cfg.backupTick = t.TempDir(), 10*time.Millisecond
	hung, looks, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	defer close(hung)
	cfg.fs = vfs.Inject(vfs.OS{}, func(c vfs.Call) vfs.Fault {
		if strings.HasPrefix(c.Name, cfg.BackupDir) {
			once.Do(func() { close(looks) })
			<-hung
		}
		return vfs.Fault{}
	})
	first := open(t, cfg)
	<-looks
	second := join(t, first, memberConfig(t, "n2"))
	if leaderOf(t, first, second) != first {
		t.Fatal("the first does not lead")
	}
	const most = 30 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	began := time.Now()
	if err := first.Close(ctx); err != nil || time.Since(began) > most*8/10 {
		t.Errorf("closed after %v: %v", time.Since(began), err)
	}
	if got := first.cluster.Leader(); got != second.cluster.ID() {
		t.Errorf("it left leadership to %x, the other is %x", got, second.cluster.ID())
	}
}

// A folder that cannot be written is an event, a warning and a metric.
func TestABackupThatFails(t *testing.T) {
	cfg := testConfig(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.BackupDir = filepath.Join(file, "dir")
	s := open(t, cfg)
	until(t, "an event", func() bool { return len(eventsOf(s, "backup failed")) > 0 })
	until(t, "a warning", func() bool {
		st, err := s.operator().Status(testContext(t))
		return err == nil && st.Backups.Failed != "" && slices.ContainsFunc(st.Warnings, func(w string) bool {
			return strings.HasPrefix(w, "the last backup failed: ")
		})
	})
	if valueOf(s.backups.failures) < 1 || valueOf(s.backups.written) > 0 {
		t.Error("the metrics do not say so")
	}
}

// A backup leaves free what the log needs, where both are on one disk.
func TestG31_ABackupLeavesTheReserve(t *testing.T) {
	s := open(t, testConfig(t))
	const values, size = 8, 500_000
	for i := range values {
		value := make([]byte, size)
		for at := range value {
			value[at] = byte(at * (i + 7) * at >> 3) // it does not compress to nothing
		}
		if _, err := clientOf(t, s).KV("").Put(testContext(t), fmt.Sprint("k", i), value); err != nil {
			t.Fatal(err)
		}
	}
	mem, least := vfs.NewMem(), int64(math.MaxInt64)
	s.cfg.fs = vfs.Inject(mem, func(c vfs.Call) vfs.Fault {
		if free, err := mem.Free("/b"); err == nil && c.Op != vfs.OpMkdir {
			least = min(least, free)
		}
		return vfs.Fault{}
	})
	k := &schedule{s: s, dir: "/b"}
	for i, room := range []int64{size, 2 * values * size} { // in this order: what the second writes stays
		works := i == 1
		mem.SetCapacity(s.cfg.DiskReserve + room)
		least = math.MaxInt64
		path, _, bytes, err := k.write(testContext(t))
		if works != (err == nil) || least < s.cfg.DiskReserve {
			t.Errorf("with room for %d bytes: %s of %d bytes, %v; as few as %d were free, the reserve is %d", room, path, bytes, err, least, s.cfg.DiskReserve)
		}
	}
}
