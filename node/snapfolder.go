package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// Names in the folder of snapshots: term and index in hexadecimal, of a received
// one also the front of its checksum, and one of these endings.
const (
	snapshotSuffix  = ".snap"
	temporarySuffix = ".tmp"  // being written here
	partSuffix      = ".part" // being received
)

// snapshotFolder is where snapshot files live.
type snapshotFolder struct {
	fs   vfs.FS
	dir  string
	kept *keptFiles
}

func newSnapshotFolder(fs vfs.FS, dir string) snapshotFolder {
	return snapshotFolder{fs: fs, dir: dir, kept: &keptFiles{held: map[string]int{}}}
}

func (s snapshotFolder) syncDir() error { return s.fs.SyncDir(s.dir) }

func (s snapshotFolder) path(name string) string { return filepath.Join(s.dir, name) }

func (s snapshotFolder) name(meta SnapshotMeta) string {
	return fmt.Sprintf("%016x-%016x%s", meta.Term, meta.Index, snapshotSuffix)
}

// receivedName is what a file is called that another member sent. It carries
// the checksum's front, so that it never takes the place of a snapshot of this
// member's own at the same index, whose bytes may differ.
func (s snapshotFolder) receivedName(m wal.SnapshotMark) string {
	return fmt.Sprintf("%016x-%016x-%x%s", m.Term, m.Index, m.Checksum[:8], snapshotSuffix)
}

// keptFiles knows which files of the folder are in use: the one that the log's
// mark names, and those being written, sent, received or restored. A name is
// held before its file exists, and let go only when nobody needs the file.
type keptFiles struct {
	mu      sync.Mutex // held for a few assignments
	current string
	held    map[string]int
}

func (k *keptFiles) hold(names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		k.held[name]++
	}
}

func (k *keptFiles) letGo(names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		if k.held[name]--; k.held[name] <= 0 {
			delete(k.held, name)
		}
	}
}

// setCurrent names the file that the log's mark names now.
func (k *keptFiles) setCurrent(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = name
}

func (k *keptFiles) keeps(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return name == k.current || k.held[name] > 0
}

// holds returns how many names are held, the current one not counted.
func (k *keptFiles) holds() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

// write makes a snapshot file durable under its name, at so many bytes a second and no
// more than so many in all.
func (s snapshotFolder) write(ctx context.Context, clock Clock, rate, room int64, h snapshotHeader, write func(io.Writer) error) (wal.SnapshotMark, error) {
	name := s.name(h.Meta)
	path := filepath.Join(s.dir, name)
	w, err := s.writeTemporary(ctx, clock, rate, room, path+temporarySuffix, h, write)
	if err != nil {
		// Nobody knows the file; what cannot be removed now goes at the next start.
		_ = s.fs.Remove(path + temporarySuffix)
		return wal.SnapshotMark{}, err
	}
	if err := s.fs.Rename(path+temporarySuffix, path); err != nil {
		return wal.SnapshotMark{}, err
	}
	return w.mark(h.Meta, name), s.fs.SyncDir(s.dir)
}

// writeNow is write without limits: nothing runs yet.
func (s snapshotFolder) writeNow(clock Clock, h snapshotHeader, write func(io.Writer) error) (wal.SnapshotMark, error) {
	return s.write(context.Background(), clock, math.MaxInt64, math.MaxInt64, h, write)
}

func (s snapshotFolder) writeTemporary(ctx context.Context, clock Clock, rate, room int64, path string, h snapshotHeader, write func(io.Writer) error) (w *snapshotWriter, err error) {
	f, err := s.fs.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err = newSnapshotWriter(&throttle{ctx: ctx, file: f, clock: clock, rate: rate, room: room, began: clock.Now()}, h)
	if err != nil {
		return nil, err
	}
	if err := write(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return w, f.Sync()
}

// open opens the file that the log's mark names and verifies its header.
func (s snapshotFolder) open(m wal.SnapshotMark) (vfs.File, *snapshotReader, error) {
	path := filepath.Join(s.dir, m.File)
	f, err := s.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, incumbent.Errorf(incumbent.Corrupt, "%s: offset 0: the log says that this snapshot exists, the folder has none", path)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := newSnapshotReader(f, path)
	if err == nil && (r.Header.Meta.Index != m.Index || r.Header.Meta.Term != m.Term) {
		err = r.Corrupt(fmt.Sprintf("a snapshot of index %d, the log says %d", r.Header.Meta.Index, m.Index))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, r, nil
}

// refuseOrphans returns Corrupt if there are snapshots of a log that is gone: a
// member that lost its log must not begin a new cluster over what is left.
func (s snapshotFolder) refuseOrphans() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	first := s.name(SnapshotMeta{Index: bootstrapIndex, Term: bootstrapTerm})
	for _, name := range names {
		if strings.HasSuffix(name, snapshotSuffix) && name != first {
			return incumbent.Errorf(incumbent.Corrupt, "%s: offset 0: a snapshot without the log that it belongs to", filepath.Join(s.dir, name)).
				WithHint("the log was lost or moved: bring it back, or move this folder away to begin anew")
		}
	}
	return nil
}

// removeStale removes, at the start, every snapshot but the current one, and
// what crashes left. The beginning of a newer file that was being received is
// spared: its sender goes on from there.
func (s snapshotFolder) removeStale() error {
	return s.remove(func(name string) bool {
		return s.kept.keeps(name) || strings.HasSuffix(name, partSuffix) && newerName(name, s.kept.current)
	})
}

// newerName compares what two files cover: their names begin with term and
// index. A member that waits for its first snapshot has no current one.
func newerName(a, b string) bool {
	const prefix = 16 + 1 + 16
	return len(a) > prefix && (b == "" || len(b) > prefix && a[:prefix] > b[:prefix])
}

// sweep removes what nobody needs. Only the file worker calls it, so that no
// file that is being received appears under a name that it is about to remove.
func (s snapshotFolder) sweep() error { return s.remove(s.kept.keeps) }

func (s snapshotFolder) remove(spare func(name string) bool) error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	removed := false
	for _, name := range names {
		base := strings.TrimSuffix(strings.TrimSuffix(name, temporarySuffix), partSuffix)
		if !strings.HasSuffix(base, snapshotSuffix) || spare(name) {
			continue
		}
		// A snapshot that fails removes its own temporary file.
		if err := s.fs.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return s.fs.SyncDir(s.dir)
}
