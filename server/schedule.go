package server

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Backups by schedule are written by one member: the one that holds a lease, which
// every member that has a folder for them claims again and again. A follower goes
// before the leader, which has more to do: the leader claims it only to write a
// backup that is due and that nobody has wanted to write for some rounds.

// Timing of backups by schedule.
const (
	backupTTL        = time.Minute      // of the lease: how soon another goes on for one that crashed
	backupTick       = 20 * time.Second // between two claims
	backupPasses     = 3                // rounds for which a leader leaves the lease to others
	backupRetryAfter = 5 * time.Minute  // a backup that failed is tried again after so long, or when the next is due
	backupClaimWait  = 10 * time.Second // for one claim or release
	backupLeaveWait  = time.Second      // for the release of a member that leaves
	backupStopWait   = 2 * time.Second  // for all that a member does before it leaves
)

// backupLease is the name of the lease.
func backupLease() incumbent.Name {
	return incumbent.Name{Namespace: incumbent.ServerNamespace, Model: "server", Lease: "backup"}
}

// schedule writes this member's backups.
type schedule struct {
	s   *Server
	dir string

	written, failures prometheus.Counter

	// Owned by run.
	until    time.Time          // for so long the lease is this member's
	passes   int                // rounds for which it was left to others
	due      time.Time          // when the next backup is to be written
	begun    time.Time          // when the one under way was
	writing  context.CancelFunc // ends that; nil: none is
	finished chan bool          // whether it went well

	quit, left chan struct{} // closed when the member leaves, and when run has returned
	once       sync.Once     // of quit

	mu     sync.Mutex // guards what follows; held for assignments
	newest time.Time  // of the newest backup of this cluster in the folder
	bytes  int64      // of that
	failed error      // of the newest attempt; nil: it went well
}

func (s *Server) newSchedule() *schedule {
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "incumbent_backups_total", Help: "Backups by schedule that this member wrote, and attempts that failed.",
	}, []string{"outcome"})
	s.metrics.registry.MustRegister(outcomes)
	k := &schedule{s: s, dir: s.cfg.BackupDir, finished: make(chan bool, 1), quit: make(chan struct{}), left: make(chan struct{})}
	k.written, k.failures = outcomes.WithLabelValues("written"), outcomes.WithLabelValues("failed")
	k.gauge("timestamp_seconds", "When the newest backup in this member's folder was taken, in seconds since 1970; 0: there is none.", func() float64 {
		if k.newest.IsZero() {
			return 0
		}
		return float64(k.newest.Unix())
	})
	k.gauge("bytes", "Size of the newest backup in this member's folder.", func() float64 { return float64(k.bytes) })
	return k
}

func (k *schedule) gauge(name, help string, read func() float64) {
	k.s.metrics.gauge("incumbent_backup_"+name, help, nil, func() float64 {
		k.mu.Lock()
		defer k.mu.Unlock()
		return read()
	})
}

// run looks after the lease and writes backups until ctx ends or the member leaves.
func (k *schedule) run(ctx context.Context) {
	defer close(k.left)
	if k.dir == "" {
		return
	}
	select {
	case <-k.s.node.Ready():
	case <-k.quit:
		return
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(k.s.cfg.backupTick)
	defer tick.Stop()
	for {
		k.turn(ctx)
		select {
		case <-tick.C:
		case well := <-k.finished:
			k.writing() // ctx keeps what hangs on it until then
			if k.writing = nil; well {
				k.due = k.begun.Add(k.s.cfg.BackupEvery)
			}
		case <-k.quit:
			k.giveUp()
			if time.Now().Before(k.until) {
				k.leave(ctx, backupLeaveWait)
			}
			return
		case <-ctx.Done():
			k.giveUp()
			return
		}
	}
}

// giveUp ends the backup that is being written, if one is.
func (k *schedule) giveUp() {
	if k.writing != nil {
		k.writing()
		<-k.finished
	}
}

// stop has another member go on, which takes the engine. It waits until ctx ends, but not
// for a folder that hangs: the lease runs out by itself.
func (k *schedule) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, backupStopWait)
	defer cancel()
	k.once.Do(func() { close(k.quit) })
	select {
	case <-k.left:
	case <-ctx.Done():
	}
}

func (k *schedule) turn(ctx context.Context) {
	was := time.Now().Before(k.until)
	k.claim(ctx)
	now := time.Now()
	switch mine := now.Before(k.until); {
	case !mine && k.writing != nil:
		k.writing() // another writes now
	case !mine:
	case !was:
		k.look(now)
		fallthrough
	default:
		if k.writing == nil && !now.Before(k.due) {
			k.begin(ctx)
		}
	}
}

// claim claims the lease, or leaves it to others.
func (k *schedule) claim(ctx context.Context) {
	v := k.s.engine.View()
	if k.s.cluster.Leader() == k.s.cluster.ID() && len(v.Members()) > 1 && !k.mayLead(ctx, v) {
		return
	}
	sent := time.Now()
	err := k.call(ctx, backupClaimWait, leases.ClaimCommand{Name: backupLease(), Holder: k.s.cfg.Name, TTL: backupTTL})
	switch {
	case err == nil:
		k.until = sent.Add(backupTTL)
	case incumbent.KindOf(err) == incumbent.Held:
		k.until = time.Time{}
	}
	// Otherwise nobody knows: what was granted lasts as long as it was granted for.
}

// mayLead reports whether a leader of others is to claim the lease: while it writes,
// or when a backup is due and nobody has wanted the lease for some rounds.
func (k *schedule) mayLead(ctx context.Context, v *core.View) bool {
	l := leases.Of(v).Lease(backupLease())
	switch {
	case l != nil && l.Holder == k.s.cfg.Name:
		if k.writing == nil {
			k.leave(ctx, backupClaimWait)
		}
		return k.writing != nil
	case l != nil && l.Token != 0:
		k.passes, k.until = 0, time.Time{}
		return false
	case k.passes < backupPasses:
		k.passes++
		return false
	}
	now := time.Now()
	k.look(now)
	return !now.Before(k.due)
}

// leave gives the lease up.
func (k *schedule) leave(ctx context.Context, wait time.Duration) {
	k.until = time.Time{}
	if err := k.call(ctx, wait, leases.ReleaseCommand{Name: backupLease(), Holder: k.s.cfg.Name}); err != nil {
		k.s.log.Info("the lease of backups runs out by itself", "cause", err)
	}
}

func (k *schedule) call(ctx context.Context, wait time.Duration, c core.Command) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	origin := core.Origin{At: time.Now().UTC(), Door: "server", Principal: k.s.cfg.Name}
	_, err := k.s.engine.Leases().Await(ctx, lease.Call{Origin: origin}, c)
	return err
}

// look finds the newest backup in the folder, and from it when the next is due:
// another member, or an earlier run, may have written it.
func (k *schedule) look(now time.Time) {
	k.due = now
	list, err := backup.List(k.s.cfg.fs, k.dir)
	if err != nil {
		return // writing says what is wrong
	}
	list = slices.DeleteFunc(list, func(f backup.File) bool { return f.Err != nil || f.Info.Cluster != k.s.backupInfo().Cluster })
	if len(list) == 0 {
		return
	}
	last := list[len(list)-1]
	k.mu.Lock()
	k.newest, k.bytes = last.Info.At, last.Bytes
	k.mu.Unlock()
	// A clock that was put back since makes it due no later than it ever is.
	k.due = now.Add(min(last.Info.At.Add(k.s.cfg.BackupEvery).Sub(now), k.s.cfg.BackupEvery))
}

// begin writes a backup meanwhile.
func (k *schedule) begin(ctx context.Context) {
	ctx, k.writing = context.WithCancel(ctx)
	k.begun = time.Now()
	k.due = k.begun.Add(min(k.s.cfg.BackupEvery, backupRetryAfter))
	began := k.begun
	go func() {
		path, info, bytes, err := k.write(ctx)
		if ctx.Err() == nil {
			k.note(path, info, bytes, err, time.Since(began))
		}
		k.finished <- err == nil
	}()
}

// write writes a backup and removes what is too old.
func (k *schedule) write(ctx context.Context) (path string, info backup.Info, bytes int64, err error) {
	fsys, info := k.s.cfg.fs, k.s.backupInfo()
	room, err := k.prepare(fsys, info.Cluster)
	if err != nil {
		return k.dir, info, 0, err
	}
	v, err := k.s.confirmedView(ctx)
	if err != nil {
		return k.dir, info, 0, err
	}
	info.Index = v.Index()
	path = filepath.Join(k.dir, info.FileName())
	err = backup.SaveOwn(fsys, path, info.Cluster, func(w io.Writer) error { return backup.Write(ctx, &bounded{w, room}, v, info) })
	if err != nil {
		return path, info, 0, err
	}
	if bytes, err = fsys.Size(path); err != nil {
		return path, info, 0, err
	}
	_, err = backup.Prune(fsys, k.dir, info.Cluster, k.s.cfg.BackupKeep)
	return path, info, bytes, err
}

// prepare makes the folder, removes what an earlier run had begun there, and returns how many
// bytes may be written: the log may be on the same disk.
func (k *schedule) prepare(fsys vfs.FS, cluster string) (room int64, err error) {
	if err := vfs.MkdirAll(fsys, k.dir); err != nil {
		return 0, incumbent.Errorf(incumbent.Unavailable, "setting backup-dir: %w", err)
	}
	if err := backup.RemoveUnfinished(fsys, k.dir, cluster, k.s.cfg.Name); err != nil {
		return 0, err
	}
	free, err := fsys.Free(k.dir)
	if err != nil {
		return math.MaxInt64, nil // it is not known
	}
	k.mu.Lock()
	last := k.bytes
	k.mu.Unlock()
	if room = free - k.s.cfg.DiskReserve; room <= 0 || room < last {
		return 0, incumbent.Errorf(incumbent.Unavailable, "%s has %d MiB free, less than --disk-reserve-bytes and the last backup take", k.dir, free>>20)
	}
	return room, nil
}

// bounded ends what is written where it would take more than there is room for.
type bounded struct {
	io.Writer
	room int64
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.room -= int64(len(p)); b.room < 0 {
		return 0, incumbent.Errorf(incumbent.Unavailable, "the folder of backups has no room for one beside --disk-reserve-bytes")
	}
	return b.Writer.Write(p)
}

// note tells of an attempt.
func (k *schedule) note(path string, info backup.Info, bytes int64, err error, took time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
	if err != nil {
		k.failures.Inc()
		k.s.events.add(Event{What: "backup failed", Subject: path, Detail: err.Error(), Index: uint64(info.Index)})
		k.s.log.Warn("backup failed", "file", path, "cause", err)
		return
	}
	k.newest, k.bytes = info.At, bytes
	k.written.Inc()
	k.s.events.add(Event{What: "backup written", Subject: path, Detail: fmt.Sprintf("%d bytes in %v", bytes, took.Round(time.Millisecond)), Index: uint64(info.Index)})
	k.s.log.Info("backup written", "file", path, "index", info.Index, "bytes", bytes, "took", took)
}

// show is the schedule for `status`; nil: this member has no folder.
func (k *schedule) show(v *core.View) *apiv1.Backups {
	if k.dir == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &apiv1.Backups{Dir: k.dir, EveryMs: uint64(k.s.cfg.BackupEvery.Milliseconds()), Keep: uint32(k.s.cfg.BackupKeep), Writer: writerOf(v), NewestBytes: uint64(k.bytes)}
	if !k.newest.IsZero() {
		out.NewestUnixMs = k.newest.UnixMilli()
	}
	if k.failed != nil {
		out.Failed = k.failed.Error()
	}
	return out
}

// writerOf is who writes the backups, by the lease; "" if nobody does.
func writerOf(v *core.View) string {
	if l := leases.Of(v).Lease(backupLease()); l != nil {
		return l.Holder
	}
	return ""
}

// warnings are what an operator should know of it.
func (k *schedule) warnings(v *core.View, members []*apiv1.Member) (out []string) {
	shown := k.show(v)
	if shown == nil {
		return nil
	}
	if shown.Failed != "" {
		out = append(out, "the last backup failed: "+shown.Failed)
	}
	known := slices.ContainsFunc(members, func(m *apiv1.Member) bool { return m.Name == shown.Writer })
	if shown.Writer != "" && !known {
		out = append(out, fmt.Sprintf("no backups are written: %s holds the lease %s, and is no member", shown.Writer, backupLease().Lease))
	}
	return out
}
