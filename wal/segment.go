package wal

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent/vfs"
)

const segmentSuffix = ".wal"

func segmentName(first uint64) string { return fmt.Sprintf("%016x%s", first, segmentSuffix) }

// segmentFirst is the inverse; false for the names of other files.
func segmentFirst(name string) (uint64, bool) {
	var first uint64
	hex, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	if _, err := fmt.Sscanf(hex, "%016x", &first); err != nil {
		return 0, false
	}
	return first, segmentName(first) == name
}

// segment is a file of the log.
type segment struct {
	name    string
	first   uint64            // sequence of its first sector
	sectors uint64            // its length
	highest map[uint64]uint64 // group → highest index of an entry in it
}

func newSegment(first, sectors uint64) *segment {
	return &segment{name: segmentName(first), first: first, sectors: sectors, highest: map[uint64]uint64{}}
}

func (s *segment) end() uint64 { return s.first + s.sectors }

func (s *segment) offset(seq uint64) int64 { return int64(seq-s.first) * sectorBytes }

// limit is where batches end.
func (s *segment) limit() uint64 { return s.end() - tailSectors(s.sectors) }

// saw notes that the segment holds entries of a group up to index.
func (s *segment) saw(group, index uint64) { s.highest[group] = max(s.highest[group], index) }

// below reports whether every entry in the segment was released.
func (s *segment) below(released map[uint64]uint64) bool {
	for group, index := range s.highest {
		if index > released[group] {
			return false
		}
	}
	return true
}

func (l *Log) cur() *segment { return l.segs[len(l.segs)-1] }

// begin starts a frame of at most so many sectors, in a new segment if the
// current one has no room for it before limit.
func (l *Log) begin(sectors, limit uint64) error {
	if l.next+sectors > limit {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	l.enc.begin(l.chain, l.rec)
	return nil
}

// writeFrame writes what the encoder holds with one call. Only when it returns
// nil has anything changed.
func (l *Log) writeFrame() error {
	l.enc.seal(l.next, l.synced)
	end := l.next + l.enc.sectors()
	if err := writeAll(l.file, l.enc.buf, l.cur().offset(l.next)); err != nil {
		l.stale = max(l.stale, end)
		return l.sticky(diskError("writing "+l.cur().name, err))
	}
	l.advance(end)
	return nil
}

func (l *Log) advance(end uint64) {
	l.next, l.chain, l.rec = end, l.enc.chain, l.enc.rec
	l.room.Store(max(0, l.cur().offset(l.cur().limit())-l.cur().offset(end)))
}

// wipeStale zeroes what a write that failed for lack of space left behind the
// last frame. It is durable before the next frame is written: else a crash
// could leave that frame followed by sectors that do not belong to it.
func (l *Log) wipeStale() error {
	if l.stale <= l.next {
		return nil
	}
	s := l.cur()
	if err := writeZeros(l.file, s.offset(l.next), s.offset(l.stale)); err != nil {
		return l.sticky(diskError("clearing "+s.name, err))
	}
	if err := l.file.Sync(); err != nil {
		return l.fail(fatal("syncing "+s.name, err))
	}
	l.stale = 0
	return nil
}

// rotate goes on in the next segment. A segment has its name only once its
// first frame is durable, and that only once the segment before is: so a
// segment that has a name is never torn at the start, and what is torn lies in
// the last one.
func (l *Log) rotate() error {
	spare, err := l.pool.take()
	if err != nil {
		return l.sticky(err)
	}
	if err := l.Sync(); err != nil {
		return err
	}
	old := l.cur()
	seg := newSegment(old.end(), uint64(l.opts.SegmentBytes/sectorBytes))
	l.encodeHead(seg)
	f, err := publish(l.fs, l.dir, spare, seg, l.enc.buf)
	if err != nil {
		return l.sticky(err)
	}
	err = l.file.Close() // everything in it is synced
	if err != nil {
		l.opts.Logger.Warn("closing log segment", "file", old.name, "err", err)
	}
	l.file = f
	l.segs = append(l.segs, seg)
	l.segments.Store(int32(len(l.segs)))
	l.advance(seg.first + l.enc.sectors())
	l.synced = l.next
	l.opts.Logger.Debug("log segment begun", "file", seg.name)
	if err := l.pool.ensure(1); err != nil {
		l.opts.Logger.Warn("log has no spare segment", "err", err)
	}
	return nil
}

// encodeHead encodes the first frame of a segment: which one it is, what came
// before, and what only earlier segments would tell.
func (l *Log) encodeHead(seg *segment) {
	l.enc.begin(0, 0)
	l.enc.segment(segmentHead{first: seg.first, sectors: seg.sectors, end: l.next, rec: l.rec, chain: l.chain})
	l.enc.meta(l.meta)
	for _, id := range slices.Sorted(maps.Keys(l.groups)) {
		l.enc.group(id, l.groups[id])
	}
	l.enc.seal(seg.first, seg.first)
}

// publish makes a spare file the segment that begins with this frame.
func publish(fsys vfs.FS, dir, spare string, seg *segment, frame []byte) (vfs.File, error) {
	from, to := join(dir, spare), join(dir, seg.name)
	f, err := fsys.OpenWrite(from)
	if err != nil {
		return nil, fatal("opening "+spare, err)
	}
	if err := writeAll(f, frame, 0); err != nil {
		// The file is no spare any more. Nothing refers to it yet.
		return nil, diskError("writing "+spare, errors.Join(err, f.Close(), fsys.Remove(from)))
	}
	if err := f.Sync(); err != nil {
		return nil, fatal("syncing "+spare, errors.Join(err, f.Close()))
	}
	if err := fsys.Rename(from, to); err != nil {
		return nil, fatal("renaming "+spare, errors.Join(err, f.Close()))
	}
	if err := fsys.SyncDir(dir); err != nil {
		return nil, fatal("syncing "+dir, errors.Join(err, f.Close()))
	}
	return f, nil
}

// writeAll writes b at off; a short write goes on where it ended.
func writeAll(f vfs.File, b []byte, off int64) error {
	for {
		n, err := f.WriteAt(b, off)
		b, off = b[n:], off+int64(n)
		switch {
		case err != nil && !errors.Is(err, io.ErrShortWrite):
			return err
		case len(b) == 0:
			return nil
		case n == 0:
			return io.ErrShortWrite
		}
	}
}

// writeZeros writes zeros from off to end.
func writeZeros(f vfs.File, off, end int64) error {
	zeros := make([]byte, min(wipeBytes, end-off))
	for off < end {
		n := min(int64(len(zeros)), end-off)
		if err := writeAll(f, zeros[:n], off); err != nil {
			return err
		}
		off += n
	}
	return nil
}
