package wal

import (
	"encoding/binary"
	"hash/crc32"
)

// recordType says what a record is. The numbers are on disk: append only.
type recordType uint8

const (
	recSegment   recordType = 1 + iota // first in a segment: which, and what came before
	recMeta                            // whose log, and which opening
	recGroup                           // checkpoint of a group at the start of a segment
	recHardState                       // term, vote, commit of a group
	recEntry                           // an entry of a group
	recSnapshot                        // a snapshot of a group
	recClose                           // the log was closed in order
)

// A record is a header and a body, and lies in the payload of one frame:
//
//	 0 sum of the header    4   CRC-32 (IEEE) of: the sum of the record before,
//	                            the record's number (both not stored), bytes 4..20
//	 4 sum of the body      4   CRC-32 (IEEE)
//	 8 length of the body   4
//	12 type                 1
//	13 group                8
//	21 body
//
// The sums of the headers form a chain: a record that is whole but in another
// place, or from another history, does not fit. The chain starts anew with the
// first record of a segment, whose body holds the sum that the chain ended on.
const (
	recordBytes = 21
	linkBytes   = 12 + recordBytes - 4 // what the sum of a header covers

	entryBytes     = 8 + 8 + 1 // before the data
	hardStateBytes = 3 * 8
	markBytes      = 8 + 8 + 8 + 32 + 1 // before the name
	groupBytes     = 8 + hardStateBytes + markBytes
	metaBytes      = 4 + 8 + 16 + 8
	segmentBytes   = 4*8 + 4
)

// encoder builds a frame in a buffer that it keeps.
type encoder struct {
	buf   []byte // whole sectors
	left  int    // payload bytes free in the last of them
	chain uint32 // sum of the last record's header
	rec   uint64 // number of the next record

	// Kept here because what the checksum functions are given escapes.
	link [linkBytes]byte
	body [groupBytes + MaxSnapshotName]byte
}

// begin starts a frame after the record with this sum.
func (e *encoder) begin(chain uint32, rec uint64) {
	if cap(e.buf) > MaxFrameBytes {
		e.buf = nil
	}
	e.buf, e.left, e.chain, e.rec = e.buf[:0], 0, chain, rec
}

var blankSector [sectorBytes]byte

// put appends payload.
func (e *encoder) put(p []byte) {
	for len(p) > 0 {
		if e.left == 0 {
			e.buf = append(e.buf, blankSector[:]...)
			e.left = payloadBytes
		}
		at := len(e.buf) - sectorBytes + payloadAt + payloadBytes - e.left
		n := copy(e.buf[at:at+e.left], p)
		e.left -= n
		p = p[n:]
	}
}

// record appends a record whose body is head and data.
func (e *encoder) record(t recordType, group uint64, head, data []byte) {
	l := &e.link
	le := binary.LittleEndian
	le.PutUint32(l[0:], e.chain)
	le.PutUint64(l[4:], e.rec)
	le.PutUint32(l[12:], crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, data))
	le.PutUint32(l[16:], uint32(len(head)+len(data)))
	l[20] = byte(t)
	le.PutUint64(l[21:], group)
	e.chain = crc32.ChecksumIEEE(l[:])
	e.rec++
	le.PutUint32(l[8:], e.chain) // the stored header is bytes 8.. of the link now
	e.put(l[8:])
	e.put(head)
	e.put(data)
}

// seal finishes the frame.
func (e *encoder) seal(seq, synced uint64) { sealFrame(e.buf, seq, synced, payloadBytes-e.left) }

func (e *encoder) sectors() uint64 { return uint64(len(e.buf) / sectorBytes) }

func (e *encoder) entry(group uint64, en *Entry) {
	b := e.body[:entryBytes]
	binary.LittleEndian.PutUint64(b[0:], en.Index)
	binary.LittleEndian.PutUint64(b[8:], en.Term)
	b[16] = en.Type
	e.record(recEntry, group, b, en.Data)
}

func (e *encoder) hardState(group uint64, hs HardState) {
	e.record(recHardState, group, appendHardState(e.body[:0], hs), nil)
}

// snapshot records a snapshot; replaces says that it came from another member
// and takes the place of the group's entries.
func (e *encoder) snapshot(group uint64, m SnapshotMark, replaces bool) {
	var flag byte
	if replaces {
		flag = 1
	}
	e.record(recSnapshot, group, appendMark(append(e.body[:0], flag), m), nil)
}

func (e *encoder) meta(m Meta) {
	le := binary.LittleEndian
	b := le.AppendUint32(e.body[:0], m.Format)
	b = le.AppendUint64(b, m.Incarnation)
	b = append(b, m.Cluster[:]...)
	e.record(recMeta, 0, le.AppendUint64(b, m.Member), nil)
}

// group writes what a segment must know of a group that earlier ones told.
func (e *encoder) group(id uint64, g group) {
	b := binary.LittleEndian.AppendUint64(e.body[:0], g.last)
	e.record(recGroup, id, appendMark(appendHardState(b, g.hs), g.mark), nil)
}

func (e *encoder) segment(h segmentHead) {
	le := binary.LittleEndian
	b := le.AppendUint64(e.body[:0], h.first)
	b = le.AppendUint64(b, h.sectors)
	b = le.AppendUint64(b, h.end)
	b = le.AppendUint64(b, h.rec)
	b = le.AppendUint32(b, h.chain)
	e.record(recSegment, 0, b, nil)
	e.rec = h.rec + 1
}

// segmentHead is the body of the first record of a segment.
type segmentHead struct {
	first   uint64 // sequence of the first sector
	sectors uint64 // length of the file
	end     uint64 // sequence after the last frame of the segment before, or 0
	rec     uint64 // number that this record has in the log
	chain   uint32 // sum of the last record before
}

func appendHardState(b []byte, hs HardState) []byte {
	le := binary.LittleEndian
	return le.AppendUint64(le.AppendUint64(le.AppendUint64(b, hs.Term), hs.Vote), hs.Commit)
}

func appendMark(b []byte, m SnapshotMark) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, m.Index), m.Term), uint64(m.Bytes))
	b = append(b, m.Checksum[:]...)
	return append(append(b, byte(len(m.File))), m.File...)
}

// record is a decoded record. The body belongs to the payload it came from.
type record struct {
	at    int // in the payload
	kind  recordType
	group uint64
	body  []byte
}

// decoder reads the records of one frame's payload.
type decoder struct {
	payload []byte
	at      int
	chain   uint32
	rec     uint64
	link    [linkBytes]byte
}

// next returns the next record, or a reason why there is none to trust. It is
// not called at the end of the payload.
func (d *decoder) next() (record, string) {
	p := d.payload[d.at:]
	if len(p) < recordBytes {
		return record{}, "record is cut short"
	}
	le := binary.LittleEndian
	le.PutUint32(d.link[0:], d.chain)
	le.PutUint64(d.link[4:], d.rec)
	copy(d.link[12:], p[4:recordBytes])
	sum := crc32.ChecksumIEEE(d.link[:])
	if sum != le.Uint32(p) {
		return record{}, "record header checksum is wrong"
	}
	length := uint64(le.Uint32(p[8:]))
	if length > uint64(len(p)-recordBytes) {
		return record{}, "record is longer than its frame"
	}
	r := record{at: d.at, kind: recordType(p[12]), group: le.Uint64(p[13:]), body: p[recordBytes : recordBytes+length]}
	if crc32.ChecksumIEEE(r.body) != le.Uint32(p[4:]) {
		return record{}, "record body checksum is wrong"
	}
	d.at += recordBytes + int(length)
	d.chain = sum
	d.rec++
	return r, ""
}

func (d *decoder) more() bool { return d.at < len(d.payload) }

// The functions below read bodies; false means that the body has not the shape
// of its type.

func decodeEntry(b []byte) (Entry, bool) {
	if len(b) < entryBytes {
		return Entry{}, false
	}
	en := Entry{Index: binary.LittleEndian.Uint64(b), Term: binary.LittleEndian.Uint64(b[8:]), Type: b[16]}
	if len(b) > entryBytes {
		en.Data = b[entryBytes:len(b):len(b)]
	}
	return en, true
}

func decodeHardState(b []byte) (HardState, bool) {
	if len(b) != hardStateBytes {
		return HardState{}, false
	}
	le := binary.LittleEndian
	return HardState{Term: le.Uint64(b), Vote: le.Uint64(b[8:]), Commit: le.Uint64(b[16:])}, true
}

func decodeMark(b []byte) (SnapshotMark, bool) {
	if len(b) < markBytes || len(b) != markBytes+int(b[markBytes-1]) {
		return SnapshotMark{}, false
	}
	le := binary.LittleEndian
	m := SnapshotMark{Index: le.Uint64(b), Term: le.Uint64(b[8:]), Bytes: int64(le.Uint64(b[16:])), File: string(b[markBytes:])}
	copy(m.Checksum[:], b[24:])
	return m, m.Bytes >= 0
}

func decodeSnapshot(b []byte) (m SnapshotMark, replaces, ok bool) {
	if len(b) == 0 || b[0] > 1 {
		return SnapshotMark{}, false, false
	}
	m, ok = decodeMark(b[1:])
	return m, b[0] == 1, ok
}

func decodeGroup(b []byte) (group, bool) {
	if len(b) < 8+hardStateBytes {
		return group{}, false
	}
	hs, ok := decodeHardState(b[8 : 8+hardStateBytes])
	m, ok2 := decodeMark(b[8+hardStateBytes:])
	return group{hs: hs, mark: m, last: binary.LittleEndian.Uint64(b)}, ok && ok2
}

func decodeMeta(b []byte) (Meta, bool) {
	if len(b) != metaBytes {
		return Meta{}, false
	}
	le := binary.LittleEndian
	m := Meta{Format: le.Uint32(b), Incarnation: le.Uint64(b[4:]), Member: le.Uint64(b[28:])}
	copy(m.Cluster[:], b[12:])
	return m, true
}

func decodeSegment(b []byte) (segmentHead, bool) {
	if len(b) != segmentBytes {
		return segmentHead{}, false
	}
	le := binary.LittleEndian
	return segmentHead{first: le.Uint64(b), sectors: le.Uint64(b[8:]), end: le.Uint64(b[16:]), rec: le.Uint64(b[24:]), chain: le.Uint32(b[32:])}, true
}
