package wal

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

const lockName = "lock"

// Recovered is what a log says when it is opened.
type Recovered struct {
	Meta   Meta // with the incarnation of this opening
	Groups map[uint64]GroupState
	// Created: there was no log.
	Created bool
	// Clean: the run before closed the log in order.
	Clean bool
	// Cut is the length of what a crash had left unfinished behind the last
	// frame, and CutFile and CutOffset where it began. None of it was ever
	// synced.
	Cut       int64
	CutFile   string
	CutOffset int64
}

// GroupState is what the log says of one group.
type GroupState struct {
	HardState HardState
	Snapshot  SnapshotMark // zero: none
	Entries   []Entry      // after the snapshot, without a gap
}

// Open opens the log in dir, making both if they do not exist. It holds the
// folder's lock until Close; if another has it, the error is Unavailable. A
// log that cannot be trusted gives Corrupt with a [Damage].
func Open(fsys vfs.FS, dir string, opts Options) (*Log, Recovered, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, Recovered{}, err
	}
	if err := vfs.MkdirAll(fsys, dir); err != nil {
		return nil, Recovered{}, diskError("making "+dir, err)
	}
	lock, err := fsys.Lock(join(dir, lockName))
	if err != nil {
		return nil, Recovered{}, err
	}
	l := &Log{
		fs: fsys, dir: dir, opts: opts, lock: lock,
		pool:     &pool{fs: fsys, dir: dir, bytes: opts.SegmentBytes},
		groups:   map[uint64]group{},
		released: map[uint64]uint64{},
	}
	rec, err := l.open()
	if err != nil {
		l.abandon()
		return nil, Recovered{}, err
	}
	return l, rec, nil
}

// abandon lets go of what a failed open holds. The error that is returned
// matters more than what these calls say.
func (l *Log) abandon() {
	if l.file != nil {
		_ = l.file.Close()
	}
	_ = l.lock.Close()
}

func (l *Log) open() (Recovered, error) {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return Recovered{}, fatal("listing "+l.dir, err)
	}
	created := !hasSegment(names)
	// The log is read before anything is removed or made.
	sc := &scanner{}
	if !created {
		if sc, err = scan(l.fs, l.dir, names, nil); err != nil {
			return Recovered{}, err
		}
	}
	if err := l.identify(sc.meta, created); err != nil {
		return Recovered{}, err
	}
	if l.opts.KeepLength && !created {
		l.opts.SegmentBytes = max(l.opts.SegmentBytes, lengthOf(l.fs, l.dir, names, sc))
		l.pool.bytes = l.opts.SegmentBytes
	}
	if err := l.pool.adopt(names); err != nil {
		return Recovered{}, err
	}
	if created {
		if sc, err = l.create(); err != nil {
			return Recovered{}, err
		}
	}
	rec, err := l.resume(sc)
	if err != nil {
		return Recovered{}, err
	}
	rec.Created = created
	l.opts.Logger.Info("log opened", "dir", l.dir, "incarnation", rec.Meta.Incarnation, "segments", len(l.segs),
		"created", created, "clean", rec.Clean, "cut_bytes", rec.Cut)
	return rec, nil
}

// Exists reports whether there is a log in dir: a lock or spare segments are none.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fatal("listing "+dir, err)
	}
	return hasSegment(names), nil
}

// Read returns what the log in dir says, as [Open] would, and leaves it as it is: nothing
// is cut off, removed or made, and the incarnation is that of the last opening. It takes
// the folder's lock meanwhile. The errors are those of Open; NotFound says that there is
// no log.
func Read(fsys vfs.FS, dir string) (rec Recovered, err error) {
	names, err := fsys.List(dir)
	if err != nil || !hasSegment(names) {
		return Recovered{}, incumbent.Errorf(incumbent.NotFound, "no log in %s: %w", dir, cmp.Or(err, fs.ErrNotExist))
	}
	lock, err := fsys.Lock(join(dir, lockName))
	if err != nil {
		return Recovered{}, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if names, err = fsys.List(dir); err != nil {
		return Recovered{}, fatal("listing "+dir, err)
	}
	sc, err := scan(fsys, dir, names, nil)
	if err != nil {
		return Recovered{}, err
	}
	return sc.recovered(), nil
}

// lengthOf returns which length the files of a log have: its spares, or its newest segment
// if it has none. What cannot be measured is no spare.
func lengthOf(fsys vfs.FS, dir string, names []string, sc *scanner) (bytes int64) {
	for _, name := range names {
		if !strings.HasPrefix(name, sparePrefix) {
			continue
		}
		size, err := fsys.Size(join(dir, name))
		if err == nil && size <= MaxSegmentBytes && size%sectorBytes == 0 {
			bytes = max(bytes, size)
		}
	}
	if bytes == 0 {
		bytes = int64(sc.segs[len(sc.segs)-1].sectors) * sectorBytes
	}
	return bytes
}

func hasSegment(names []string) bool {
	for _, name := range names {
		if _, ok := segmentFirst(name); ok {
			return true
		}
	}
	return false
}

// identify settles whose log this is.
func (l *Log) identify(found Meta, created bool) error {
	want := Meta{Cluster: l.opts.Cluster, Member: l.opts.Member}
	none := want == Meta{}
	switch {
	case created && (want.Member == 0 || want.Cluster == [16]byte{}):
		return incumbent.Errorf(incumbent.NotFound, "%s holds no log, and whose it would be is not given: %w", l.dir, fs.ErrNotExist)
	case created:
		l.meta = want
		l.meta.Format = cmp.Or(l.opts.format, FormatVersion)
		return nil
	case !none && (found.Cluster != want.Cluster || found.Member != want.Member):
		return incumbent.Errorf(incumbent.Conflict, "log in %s belongs to member %d of cluster %x, not to member %d of cluster %x",
			l.dir, found.Member, found.Cluster, want.Member, want.Cluster)
	}
	l.meta = found
	return nil
}

// create makes the first segment and reads it back, as any other.
func (l *Log) create() (*scanner, error) {
	spare, err := l.pool.take()
	if err != nil {
		return nil, err
	}
	seg := newSegment(1, uint64(l.opts.SegmentBytes/sectorBytes))
	l.encodeHead(seg)
	f, err := publish(l.fs, l.dir, spare, seg, l.enc.buf)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, fatal("closing "+seg.name, err)
	}
	return scan(l.fs, l.dir, []string{seg.name}, nil)
}

// resume goes on where the log ends.
func (l *Log) resume(sc *scanner) (Recovered, error) {
	rec := sc.recovered()
	for id, h := range sc.groups {
		l.groups[id] = h.group
	}
	l.segs = sc.segs
	l.segments.Store(int32(len(l.segs)))
	l.enc.chain, l.enc.rec = sc.chain, sc.rec
	l.advance(sc.next)
	if err := l.mend(sc); err != nil {
		return Recovered{}, err
	}
	if err := l.raise(); err != nil {
		return Recovered{}, err
	}
	if err := l.pool.ensure(1); err != nil && !vfs.IsNoSpace(err) {
		return Recovered{}, err
	}
	rec.Meta = l.meta
	return rec, nil
}

// mend makes the disk agree with what was read: zeros where a frame was cut,
// and every frame that nothing proves to be synced written once more. That is
// not idle: after a crash of the process alone, or a failed sync, a frame may
// exist only in the system's cache, which may think it clean. So may the name of
// the segment: a process that ends between renaming a spare and syncing the folder
// leaves it so, and what is written from now on would go with it.
func (l *Log) mend(sc *scanner) error {
	f, err := l.fs.OpenWrite(l.path(l.cur().name))
	if err != nil {
		return fatal("opening "+l.cur().name, err)
	}
	l.file = f
	seq, frames := sc.unsynced()
	if err := writeAll(f, frames, l.cur().offset(seq)); err != nil {
		return diskError("writing "+l.cur().name, err)
	}
	if sc.dirty > sc.next {
		if err := writeZeros(f, l.cur().offset(sc.next), l.cur().offset(sc.dirty)); err != nil {
			return diskError("clearing "+l.cur().name, err)
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return fatal("syncing "+l.dir, err)
	}
	return l.Sync()
}

// raise makes the next incarnation durable.
func (l *Log) raise() error {
	l.meta.Incarnation++
	if err := l.begin(1, l.cur().end()-closeSectors); err != nil {
		return err
	}
	l.enc.meta(l.meta)
	if err := l.writeFrame(); err != nil {
		return err
	}
	return l.Sync()
}
