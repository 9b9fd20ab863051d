// Package wal is the log on disk that a member of the cluster must never lose
// or misread: the entries of raft, its hard state, and which snapshot they
// start from.
//
// A log is a folder of segment files. [Open] reads it, cuts off what a crash
// left unfinished, refuses what is damaged, and returns what the log says.
// [Log.Append] writes a batch and [Log.Sync] makes everything appended
// durable; nothing may be answered before that. [Log.MarkSnapshot] says that
// the state up to an index is safe elsewhere, after which [Log.Release] lets
// old segments go. One log serves several raft groups: a group id is in every
// record.
//
// README.md draws the format and argues why a log survives what it does.
//
// # Invariants
//
//   - A byte that was synced never gets another value, except zero when its
//     whole segment was released and recycled.
//   - What Sync acknowledged is there after any crash, or the log refuses to open.
//   - Of what it did not acknowledge, a crash leaves a prefix, frame by frame.
//   - Within a group entries follow one another without a gap, an entry
//     replaces everything from its index on, nothing committed is replaced,
//     and no vote is changed: a batch that breaks this is refused as Internal.
//   - After a failed sync every call returns that error.
//
// # Concurrency
//
// A Log belongs to one goroutine, with two exceptions: Status may be called
// from any, and Prepare from one other, which must have returned before Close.
package wal

import (
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// FormatVersion is what this package writes. It reads no other. It stands for all
// that a member's folder holds: whoever changes the form of log, entries or
// snapshots, or what an old command does, raises it.
//
//	1  leases
//	2  keys and values, transactions, commands in parts
//	3  leases as a family: neither logs nor snapshots of before are read
const FormatVersion = 3

// Entry is a raft entry. Data belongs to whoever gave it and is not kept.
type Entry struct {
	Index uint64
	Term  uint64
	Type  uint8
	Data  []byte
}

// HardState is what raft must remember of its votes.
type HardState struct {
	Term   uint64
	Vote   uint64
	Commit uint64
}

// SnapshotMark names a snapshot: the state after the entry at Index.
type SnapshotMark struct {
	Index    uint64
	Term     uint64
	Bytes    int64    // length of the file
	Checksum [32]byte // of its content, as whoever wrote it computes it
	File     string   // base name, at most MaxSnapshotName bytes
}

// Meta says whose log it is.
type Meta struct {
	Cluster [16]byte
	Member  uint64
	Format  uint32
	// Incarnation counts the openings of this log. It is durable before Open
	// returns, so no two runs of a member ever have the same.
	Incarnation uint64
}

// Options configure a log. The zero value opens an existing one.
type Options struct {
	// SegmentBytes is the length of new segments, a multiple of 512 between
	// MinSegmentBytes and MaxSegmentBytes; 0 is DefaultSegmentBytes.
	SegmentBytes int64
	// KeepLength has a log that exists go on with the length that its spares have, or
	// without any its newest segment, if that is more than SegmentBytes. It is for who
	// opens the log of another program: spares of another length are removed.
	KeepLength bool
	// Cluster and Member are whose log it is. A new log needs both; an existing
	// one that belongs to another is refused. Both zero: whatever it says.
	Cluster [16]byte
	Member  uint64
	// Logger hears about openings, segments and cuts; nil is silence.
	Logger *slog.Logger

	format uint32 // of a new log, for tests; 0: FormatVersion
}

func (o Options) withDefaults() (Options, error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentBytes < MinSegmentBytes || o.SegmentBytes > MaxSegmentBytes || o.SegmentBytes%sectorBytes != 0 {
		return o, incumbent.Errorf(incumbent.Invalid, "segment of %d bytes: want a multiple of %d from %d to %d",
			o.SegmentBytes, sectorBytes, MinSegmentBytes, MaxSegmentBytes)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Batch is what one Append writes for a group: entries that follow one
// another, a hard state, or both. The zero HardState is none.
type Batch struct {
	Group     uint64
	Entries   []Entry
	HardState HardState
}

// Status is how a log does, for whoever admits work.
type Status struct {
	// Room is how many bytes the segments that exist can still take.
	Room int64
	// ReserveOnly: no spare segment is left and the disk had no room for one.
	// What is left is for what frees leases and space; growth must be refused.
	ReserveOnly bool
	// Segments is how many files hold the log, spares not counted.
	Segments int
}

// Log is an open log.
type Log struct {
	fs   vfs.FS
	dir  string
	opts Options
	lock io.Closer
	pool *pool

	// What follows belongs to the goroutine that appends.
	meta     Meta
	groups   map[uint64]group
	released map[uint64]uint64
	segs     []*segment // the last is the one that is written
	file     vfs.File   // of the last segment
	enc      encoder
	chain    uint32 // sum of the last record
	rec      uint64 // number of the next record
	next     uint64 // sequence of the next sector
	synced   uint64 // sequences below are durable
	stale    uint64 // sequences from next up to this hold a failed write
	err      error  // the first fatal error, or that the log is closed

	room     atomic.Int64
	segments atomic.Int32
}

// Append writes a batch. It is durable after the next Sync, not before.
//
// An error that is Unavailable says that the disk is full: nothing has changed
// and the same batch may be tried again. TooLarge names an entry over
// [Log.MaxEntryBytes] or a group too many; Internal is fatal.
//
// A batch up to MaxFrameBytes is one write and survives a crash whole or not
// at all. A larger one takes several, the hard state in the last.
func (l *Log) Append(b Batch) error {
	if l.err != nil {
		return l.err
	}
	hasState := b.HardState != HardState{}
	if len(b.Entries) == 0 && !hasState {
		return nil
	}
	if err := l.admit(b); err != nil {
		return err
	}
	if err := l.wipeStale(); err != nil {
		return err
	}
	if err := l.reserve(b); err != nil {
		return err
	}
	for rest := b.Entries; len(rest) > 0 || hasState; {
		n, sectors := l.fit(rest)
		if err := l.begin(sectors, l.cur().limit()); err != nil {
			return err
		}
		for i := range rest[:n] {
			l.enc.entry(b.Group, &rest[i])
		}
		g := l.groups[b.Group]
		if n > 0 {
			g.last = rest[n-1].Index
		}
		rest = rest[n:]
		if len(rest) == 0 && hasState {
			l.enc.hardState(b.Group, b.HardState)
			g.hs = b.HardState
			hasState = false
		}
		if err := l.writeFrame(); err != nil {
			return err
		}
		l.groups[b.Group] = g
		if n > 0 {
			l.cur().saw(b.Group, g.last)
		}
	}
	return nil
}

// admit refuses a batch that may not be written.
func (l *Log) admit(b Batch) error {
	g, known := l.groups[b.Group]
	if limit := maxGroups(l.opts.SegmentBytes); !known && len(l.groups) >= limit {
		return incumbent.Errorf(incumbent.TooLarge, "log has %d groups, limit is %d for segments of %d bytes",
			len(l.groups), limit, l.opts.SegmentBytes)
	}
	for i := range b.Entries {
		if n := len(b.Entries[i].Data); n > l.MaxEntryBytes() {
			return incumbent.Errorf(incumbent.TooLarge, "entry %d has %d bytes, limit is %d", b.Entries[i].Index, n, l.MaxEntryBytes())
		}
	}
	if err := g.entries(b.Entries); err != nil {
		return l.fail(broken(b.Group, err))
	}
	if (b.HardState == HardState{}) {
		return nil
	}
	if err := g.hardState(b.HardState); err != nil {
		return l.fail(broken(b.Group, err))
	}
	return nil
}

// MaxEntryBytes is the most data that one entry may have: with it and a hard
// state a frame is full.
func (l *Log) MaxEntryBytes() int {
	return int(frameSectors(l.opts.SegmentBytes))*payloadBytes - 2*recordBytes - entryBytes - hardStateBytes
}

// fit returns how many of the entries go into the next frame, leaving room for
// a hard state, and the sectors that they take with it.
func (l *Log) fit(es []Entry) (n int, sectors uint64) {
	room := int(frameSectors(l.opts.SegmentBytes)) * payloadBytes
	used := recordBytes + hardStateBytes
	for n < len(es) {
		size := recordBytes + entryBytes + len(es[n].Data)
		if used+size > room {
			break
		}
		used += size
		n++
	}
	return n, sectorsFor(used)
}

// reserve makes sure that all of a batch finds room before any of it is
// written, so that a full disk leaves the log unchanged.
func (l *Log) reserve(b Batch) error {
	left := l.cur().limit() - min(l.next, l.cur().limit())
	segments := 0
	for rest := b.Entries; ; {
		n, sectors := l.fit(rest)
		if sectors > left {
			segments++
			fresh := uint64(l.opts.SegmentBytes / sectorBytes)
			left = fresh - headSectors(fresh) - tailSectors(fresh)
		}
		left -= sectors
		if rest = rest[n:]; len(rest) == 0 {
			break
		}
	}
	if segments == 0 {
		return nil
	}
	return l.sticky(l.pool.ensure(segments))
}

// Sync makes everything appended durable. Its error is final: the log cannot
// know what is on the disk, and every later call returns it.
func (l *Log) Sync() error {
	if l.err != nil {
		return l.err
	}
	if l.synced == l.next {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(fatal("syncing "+l.cur().name, err))
	}
	l.synced = l.next
	return nil
}

// MarkSnapshot records, durably, a snapshot of what the log holds. The caller
// has made the snapshot's file durable under its name. The index must be
// covered by a hard state's commit. One sync covers the mark and all before it:
// a crash that loses any of that loses the mark, so the log never starts from a
// snapshot of what it may not have.
func (l *Log) MarkSnapshot(group uint64, m SnapshotMark) error {
	return l.mark(group, m, false)
}

// InstallSnapshot records, durably, a snapshot that another member sent: it
// takes the place of all entries of the group, and the next entry is the one
// after its index. The caller has made the file durable under its name.
func (l *Log) InstallSnapshot(group uint64, m SnapshotMark) error {
	return l.mark(group, m, true)
}

func (l *Log) mark(id uint64, m SnapshotMark, replaces bool) error {
	if l.err != nil {
		return l.err
	}
	if err := l.admit(Batch{Group: id}); err != nil {
		return err
	}
	g := l.groups[id]
	if err := g.take(m, replaces); err != nil {
		return l.fail(broken(id, err))
	}
	if err := l.wipeStale(); err != nil {
		return err
	}
	sectors := sectorsFor(recordBytes + 1 + markBytes + len(m.File))
	if err := l.begin(sectors, l.cur().end()-closeSectors); err != nil {
		return err
	}
	l.enc.snapshot(id, m, replaces)
	if err := l.writeFrame(); err != nil {
		return err
	}
	l.groups[id] = g
	return l.Sync()
}

// Release says that the entries of a group up to index are no longer needed
// from the log: the index of its snapshot at most. Segments that hold nothing
// else that is needed go, oldest first.
func (l *Log) Release(id, index uint64) error {
	if l.err != nil {
		return l.err
	}
	if mark := l.groups[id].mark.Index; index > mark {
		return l.fail(incumbent.Errorf(incumbent.Internal, "log of group %d: release up to %d, beyond the snapshot at %d", id, index, mark))
	}
	l.released[id] = max(l.released[id], index)
	for len(l.segs) > 1 && l.segs[0].below(l.released) {
		if err := l.pool.retire(l.segs[0]); err != nil {
			return l.fail(fatal("removing "+l.segs[0].name, err))
		}
		l.segs = l.segs[1:]
		l.segments.Store(int32(len(l.segs)))
	}
	return nil
}

// Oldest returns the index up to which entries of a group must be released before any
// segment that holds some of them goes; 0 if none but the one that is written does.
func (l *Log) Oldest(group uint64) uint64 {
	for _, s := range l.segs[:len(l.segs)-1] {
		if index := s.highest[group]; index > 0 {
			return index
		}
	}
	return 0
}

// Prepare makes spare segments ready, so that Append need not: it fills
// released ones with zeros, or makes new ones. It may run on another goroutine
// than the rest and is worth calling after Release, and now and then while
// Status says ReserveOnly. Its error is Unavailable when the disk has no room
// for all the spares it wants, though it may have made one; any other is worth
// a line in the log, and Append will meet it if it matters.
func (l *Log) Prepare() error { return l.pool.prepare() }

// Status returns how much the log can take. Any goroutine may call it.
func (l *Log) Status() Status {
	n := l.pool.count()
	return Status{
		Room:        l.room.Load() + int64(n)*l.opts.SegmentBytes,
		ReserveOnly: n == 0,
		Segments:    int(l.segments.Load()),
	}
}

// Meta returns whose log it is, with the incarnation of this opening.
func (l *Log) Meta() Meta { return l.meta }

// Close syncs what was appended, records that the log ended here in order, and
// lets go of the folder. It is an error if the last sync fails, or had failed.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.finish()
	if closeErr := l.file.Close(); err == nil {
		err = closeErr
	}
	l.file = nil
	if lockErr := l.lock.Close(); err == nil {
		err = lockErr
	}
	if l.err == nil {
		l.err = incumbent.Errorf(incumbent.Unavailable, "log in %s is closed", l.dir)
	}
	return err
}

// finish writes the last record, for which every segment keeps a sector. It
// covers the batch before: what is missing there is then known to be missing.
func (l *Log) finish() error {
	if l.err != nil {
		return l.err
	}
	if err := l.Sync(); err != nil {
		return err
	}
	if l.wipeStale() != nil {
		return l.err
	}
	l.enc.begin(l.chain, l.rec)
	l.enc.record(recClose, 0, nil, nil)
	if l.writeFrame() != nil {
		return l.err
	}
	return l.Sync()
}

// fail makes an error final.
func (l *Log) fail(err error) error {
	if l.err == nil {
		l.err = err
	}
	return err
}

// sticky makes an error final unless it passes with the shortage of space.
func (l *Log) sticky(err error) error {
	if err != nil && incumbent.KindOf(err) != incumbent.Unavailable {
		return l.fail(err)
	}
	return err
}

func (l *Log) path(name string) string { return filepath.Join(l.dir, name) }
