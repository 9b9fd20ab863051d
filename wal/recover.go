package wal

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/incumbent-dev/incumbent/vfs"
)

// scanner reads a log from its first segment to its end. It changes nothing on
// the disk.
type scanner struct {
	fs  vfs.FS
	dir string
	// visit, if set, is told of every record and where its header begins.
	visit func(file string, offset int64, r record)

	segs    []*segment
	data    []byte // of the segment being read
	meta    Meta
	other   uint32 // the format of a log that this version does not read; 0: none
	groups  map[uint64]*history
	chain   uint32
	rec     uint64
	next    uint64 // sequence after the last frame
	horizon uint64 // sequences below are known to have been synced
	dirty   uint64 // sequence after the last sector that is not empty
	closed  bool   // the last record is that of an orderly end
}

// history is a group as it is read back.
type history struct {
	group
	entries []Entry // those after the mark, without a gap
}

// scan reads the segments among names. The error is Corrupt if the log cannot
// be trusted.
func scan(fsys vfs.FS, dir string, names []string, visit func(string, int64, record)) (*scanner, error) {
	sc := &scanner{fs: fsys, dir: dir, visit: visit, groups: map[uint64]*history{}}
	for _, name := range names {
		if first, ok := segmentFirst(name); ok {
			sc.segs = append(sc.segs, newSegment(first, 0))
		}
	}
	slices.SortFunc(sc.segs, func(a, b *segment) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	for i := range sc.segs {
		if err := sc.segment(i); err != nil {
			return sc, err
		}
	}
	return sc, sc.complete()
}

func (sc *scanner) damage(seg *segment, seq uint64, reason string) error {
	return corrupt(join(sc.dir, seg.name), seg.offset(seq), "%s", reason)
}

// segment reads one segment and what it holds.
func (sc *scanner) segment(i int) error {
	seg, last := sc.segs[i], i == len(sc.segs)-1
	if i > 0 && seg.first != sc.segs[i-1].end() {
		prev := sc.segs[i-1]
		return sc.damage(prev, prev.end(), "the next segment, "+segmentName(prev.end())+", is missing")
	}
	if err := sc.load(seg); err != nil {
		return err
	}
	end := sc.next
	sc.next = seg.first
	for sc.next < seg.end() {
		f := sc.frame(seg)
		if f.verdict == damaged {
			return sc.damage(seg, f.bad, f.reason)
		}
		head := sc.next == seg.first
		if f.verdict != whole && head {
			return sc.damage(seg, f.bad, "the segment has no beginning")
		}
		if f.verdict != whole {
			return sc.tail(seg, f.bad, last)
		}
		if err := sc.replay(seg, i, f, head, end); err != nil {
			return err
		}
		sc.next += f.sectors
		sc.horizon = f.horizon
	}
	sc.dirty = sc.next
	return nil
}

// load reads the file of a segment. Its length was durable before it had its
// name, so another length is damage, not a crash.
func (sc *scanner) load(seg *segment) error {
	f, err := sc.fs.Open(join(sc.dir, seg.name))
	if err != nil {
		return fatal("opening "+seg.name, err)
	}
	defer func() { _ = f.Close() }() // only read from
	size, err := f.Size()
	if err != nil {
		return fatal("measuring "+seg.name, err)
	}
	if size < MinSegmentBytes || size > MaxSegmentBytes || size%sectorBytes != 0 {
		return corrupt(join(sc.dir, seg.name), size, "no segment is %d bytes long", size)
	}
	sc.data = slices.Grow(sc.data[:0], int(size))[:size]
	if _, err := f.ReadAt(sc.data, 0); err != nil && !errors.Is(err, io.EOF) {
		return fatal("reading "+seg.name, err)
	}
	seg.sectors = uint64(size / sectorBytes)
	return nil
}

func (sc *scanner) sector(seg *segment, seq uint64) []byte {
	off := seg.offset(seq)
	return sc.data[off : off+sectorBytes]
}

// frame is what lies at a place in the log.
type frame struct {
	verdict verdict
	bad     uint64 // unless whole: the sector that is not
	reason  string
	sectors uint64
	horizon uint64
	payload []byte
}

// frame reads the frame at sc.next. It is torn or empty if one of its sectors
// is; the frame is whole only from first to last sector.
func (sc *scanner) frame(seg *segment) frame {
	f := frame{horizon: sc.horizon, payload: make([]byte, 0, sc.frameBytes(seg))}
	for seq := sc.next; seq < seg.end(); seq++ {
		s := sc.sector(seg, seq)
		f.bad = seq
		if f.verdict, f.reason = judge(s, seq); f.verdict != whole {
			return f
		}
		if f.reason = sc.misfit(s, seq, &f); f.reason != "" {
			f.verdict = damaged
			return f
		}
		f.sectors++
		f.horizon = sectorHorizon(s)
		f.payload = append(f.payload, s[payloadAt:payloadAt+sectorUsed(s)]...)
		if s[1]&flagLast != 0 {
			return f
		}
	}
	f.verdict, f.bad, f.reason = damaged, sc.next, "a frame runs over the end of the segment"
	return f
}

// frameBytes is the payload that the sectors from sc.next to the next that
// calls itself a last one can hold. Entries live in that memory for long, so it
// is not to be larger than it must; what the sectors are worth is seen later.
func (sc *scanner) frameBytes(seg *segment) int {
	n := 0
	for seq := sc.next; seq < seg.end(); seq++ {
		s := sc.sector(seg, seq)
		if s[0] != headMark {
			return n
		}
		n += min(sectorUsed(s), payloadBytes)
		if s[1]&flagLast != 0 {
			return n
		}
	}
	return n
}

// misfit says why a whole sector cannot come next in a frame.
func (sc *scanner) misfit(s []byte, seq uint64, f *frame) string {
	first, last, horizon := seq == sc.next, s[1]&flagLast != 0, sectorHorizon(s)
	switch {
	case s[1]&^(flagFirst|flagLast) != 0 || first != (s[1]&flagFirst != 0):
		return "a frame begins where none does, or none where one does"
	case !last && sectorUsed(s) != payloadBytes:
		return "a sector within a frame is not full"
	case horizon > sc.next || horizon < f.horizon || !first && horizon != f.horizon:
		return "a sector says of what was synced before it what cannot be"
	}
	return ""
}

// tail judges the end of a segment, where the sector bad is not whole. In the
// last segment this is where a crash cut off a frame, or where nothing was
// written yet: behind it may lie only what was never synced. In an earlier one
// nothing may, and the next segment knows whether the end is the right one.
func (sc *scanner) tail(seg *segment, bad uint64, last bool) error {
	sc.dirty = bad
	for seq := bad; seq < seg.end(); seq++ {
		s := sc.sector(seg, seq)
		v, reason := judge(s, seq)
		switch {
		case v == damaged:
			return sc.damage(seg, seq, reason)
		case v == empty:
			continue
		case !last:
			return sc.damage(seg, bad, "nothing whole is here, though more was written behind it")
		case v == whole && sectorHorizon(s) > bad:
			return sc.damage(seg, bad, "what a later frame says was synced is missing")
		}
		sc.dirty = seq + 1
	}
	return nil
}

// replay takes the records of a frame. The first frame of a segment begins
// with the segment's own record.
func (sc *scanner) replay(seg *segment, i int, f frame, head bool, end uint64) error {
	d := decoder{payload: f.payload, chain: sc.chain, rec: sc.rec}
	if head {
		d.chain, d.rec = 0, 0
	}
	for d.more() {
		at := d.at
		r, reason := d.next()
		if reason == "" && head != (r.kind == recSegment) && at == 0 {
			reason = "the segment's own record is not where it belongs"
		}
		if reason == "" && at == 0 && head {
			reason = sc.begin(seg, i, &d, r, end)
			if reason == lostEnd {
				prev := sc.segs[i-1]
				return sc.damage(prev, end, reason)
			}
		} else if reason == "" {
			reason = sc.apply(seg, r, i == 0)
		}
		if sc.other != 0 {
			return errOtherFormat(sc.dir, sc.other)
		}
		if reason != "" {
			return sc.damage(seg, sc.next+uint64(at/payloadBytes), reason)
		}
		if sc.visit != nil {
			off := seg.offset(sc.next+uint64(at/payloadBytes)) + int64(payloadAt+at%payloadBytes)
			sc.visit(join(sc.dir, seg.name), off, r)
		}
	}
	sc.chain, sc.rec = d.chain, d.rec
	return nil
}

const lostEnd = "the next segment says that more was written here"

// begin checks that a segment is the one its name says and continues the log.
func (sc *scanner) begin(seg *segment, i int, d *decoder, r record, end uint64) string {
	h, ok := decodeSegment(r.body)
	switch {
	case !ok:
		return "the segment's own record has the wrong shape"
	case h.first != seg.first || h.sectors != seg.sectors:
		return "the segment's name or length is not what it says itself"
	case i > 0 && h.end > end:
		return lostEnd
	case i > 0 && (h.end != end || h.chain != sc.chain || h.rec != sc.rec):
		return "the segment does not continue the one before"
	}
	d.rec = h.rec + 1
	return ""
}

// apply takes a record into what the log says.
func (sc *scanner) apply(seg *segment, r record, oldest bool) string {
	sc.closed = r.kind == recClose
	switch r.kind {
	case recClose:
		return ""
	case recMeta:
		return sc.takeMeta(r)
	}
	h := sc.groups[r.group]
	if h == nil {
		h = &history{}
		sc.groups[r.group] = h
	}
	var ok bool
	var err error
	switch r.kind {
	case recEntry:
		var en Entry
		if en, ok = decodeEntry(r.body); ok {
			err = h.entry(en)
			seg.saw(r.group, en.Index)
		}
	case recHardState:
		var hs HardState
		if hs, ok = decodeHardState(r.body); ok {
			err = h.hardState(hs)
		}
	case recSnapshot:
		var m SnapshotMark
		var replaces bool
		if m, replaces, ok = decodeSnapshot(r.body); ok {
			err = h.snapshot(m, replaces)
		}
	case recGroup:
		var g group
		if g, ok = decodeGroup(r.body); ok {
			err = h.checkpoint(g, oldest)
		}
	default:
		return "a record of this type is not known"
	}
	if !ok {
		return "a record has the wrong shape for its type"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (sc *scanner) takeMeta(r record) string {
	m, ok := decodeMeta(r.body)
	switch {
	case !ok:
		return "a record has the wrong shape for its type"
	case m.Format != FormatVersion:
		sc.other = max(m.Format, 1)
		return ""
	case sc.meta.Format != 0 && (m.Cluster != sc.meta.Cluster || m.Member != sc.meta.Member || m.Incarnation < sc.meta.Incarnation):
		return "the segment belongs to another log"
	}
	sc.meta = m
	return ""
}

func (h *history) entry(en Entry) error {
	if err := h.group.entry(en.Index); err != nil {
		return err
	}
	if n := len(h.entries); n > 0 && en.Index <= h.entries[n-1].Index {
		first := h.entries[0].Index
		h.entries = h.entries[:max(en.Index, first)-first]
	}
	h.entries = append(h.entries, en)
	return nil
}

func (h *history) snapshot(m SnapshotMark, replaces bool) error {
	if err := h.take(m, replaces); err != nil {
		return err
	}
	if replaces {
		h.entries = nil
		return nil
	}
	h.trim()
	return nil
}

// trim drops the entries that the snapshot contains.
func (h *history) trim() {
	i := 0
	for i < len(h.entries) && h.entries[i].Index <= h.mark.Index {
		i++
	}
	h.entries = slices.Clone(h.entries[i:]) // the old array holds what is dropped
}

// checkpoint takes what a segment says of the time before it: all that is
// known in the oldest one, and in later ones nothing new.
func (h *history) checkpoint(g group, oldest bool) error {
	if oldest {
		h.group = g
		return nil
	}
	if h.group != g {
		return errors.New("a segment does not agree with the one before about a group")
	}
	return nil
}

// complete checks what only the end shows: that no group lacks entries.
func (sc *scanner) complete() error {
	for id, h := range sc.groups {
		if h.last-h.mark.Index != uint64(len(h.entries)) {
			seg := sc.segs[0]
			return corrupt(join(sc.dir, seg.name), 0, "group %d has %d entries between its snapshot at %d and %d; older segments are missing",
				id, len(h.entries), h.mark.Index, h.last)
		}
	}
	return nil
}

// recovered returns what was read.
func (sc *scanner) recovered() Recovered {
	rec := Recovered{Meta: sc.meta, Groups: map[uint64]GroupState{}, Clean: sc.closed && sc.dirty == sc.next}
	for id, h := range sc.groups {
		rec.Groups[id] = GroupState{HardState: h.hs, Snapshot: h.mark, Entries: h.entries}
	}
	if sc.dirty > sc.next {
		seg := sc.segs[len(sc.segs)-1]
		rec.Cut = int64(sc.dirty-sc.next) * sectorBytes
		rec.CutFile, rec.CutOffset = join(sc.dir, seg.name), seg.offset(sc.next)
	}
	return rec
}

// unsynced returns the frames that nothing proves to have been synced, and
// where they begin.
func (sc *scanner) unsynced() (seq uint64, b []byte) {
	seg := sc.segs[len(sc.segs)-1]
	from := max(sc.horizon, seg.first)
	return from, bytes.Clone(sc.data[seg.offset(from):seg.offset(sc.next)])
}
