package wal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// A sector is what a disk writes whole or not at all:
//
//	 0 head mark 0xD6        1 byte
//	 1 flags                 1
//	 2 payload bytes used    2
//	 4 sequence              8   place of the sector in the log
//	12 behind                4   sequence minus the first that was not known synced
//	16 payload             491
//	507 CRC-32C of 0..506    4
//	511 tail mark 0xB5       1
//
// Numbers are little endian. Both marks have several bits set and the tail is
// the last byte: a sector of which only the front arrived ends in zero, and no
// single flipped bit makes a zero sector or a torn one of a whole one.
const (
	sectorBytes  = 512
	payloadAt    = 16
	payloadBytes = sumAt - payloadAt
	sumAt        = 507
	headMark     = 0xD6
	tailMark     = 0xB5

	flagFirst = 1 // the frame begins here
	flagLast  = 2 // and ends here
)

// sectorTable is the polynomial of sectors: any five flipped bits of a sector
// change this sum. Records use another one, so that what slips through one is
// caught by the other.
var sectorTable = crc32.MakeTable(crc32.Castagnoli) // never changed

// sectorsFor returns the sectors that so many bytes of payload take.
func sectorsFor(payload int) uint64 {
	return uint64((payload + payloadBytes - 1) / payloadBytes)
}

// sealFrame fills in everything but the payload of a frame whose first sector
// has this sequence; used is the payload of its last sector.
func sealFrame(frame []byte, seq, synced uint64, used int) {
	n := len(frame) / sectorBytes
	for i := range n {
		s := frame[i*sectorBytes : (i+1)*sectorBytes]
		var flags byte
		fill := payloadBytes
		if i == 0 {
			flags |= flagFirst
		}
		if i == n-1 {
			flags |= flagLast
			fill = used
		}
		s[0], s[1], s[sectorBytes-1] = headMark, flags, tailMark
		binary.LittleEndian.PutUint16(s[2:], uint16(fill))
		binary.LittleEndian.PutUint64(s[4:], seq+uint64(i))
		binary.LittleEndian.PutUint32(s[12:], uint32(seq+uint64(i)-synced))
		putSum(s)
	}
}

func putSum(s []byte) {
	binary.LittleEndian.PutUint32(s[sumAt:], crc32.Checksum(s[:sumAt], sectorTable))
}

// verdict is what a sector's bytes say about themselves.
type verdict uint8

const (
	whole   verdict = iota // written, sum and sequence right
	empty                  // all zero: never written
	torn                   // the front of a write, then zeros to the end
	damaged                // none of these: no interrupted write leaves it
)

// judge looks at the sector that should have this sequence.
func judge(s []byte, seq uint64) (verdict, string) {
	if bytes.Equal(s, blankSector[:]) {
		return empty, ""
	}
	last := sectorBytes - 1
	for s[last] == 0 {
		last--
	}
	switch {
	case last < sectorBytes-1:
		return judgeFront(s[:last+1], seq)
	case s[0] != headMark || s[sectorBytes-1] != tailMark:
		return damaged, "sector mark is wrong"
	case binary.LittleEndian.Uint32(s[sumAt:]) != crc32.Checksum(s[:sumAt], sectorTable):
		return damaged, "sector checksum is wrong"
	case sectorSeq(s) != seq:
		return damaged, "sector belongs elsewhere"
	case sectorUsed(s) == 0 || sectorUsed(s) > payloadBytes || uint64(sectorBehind(s)) > seq:
		return damaged, "sector header is impossible"
	}
	return whole, ""
}

// judgeFront judges a sector that ends in zeros: it is torn only if what is
// there is how the sector in this place begins.
func judgeFront(front []byte, seq uint64) (verdict, string) {
	var want [8]byte
	binary.LittleEndian.PutUint64(want[:], seq)
	if front[0] != headMark {
		return damaged, "bytes where nothing was written"
	}
	for i := 4; i < min(len(front), 12); i++ {
		if front[i] != want[i-4] {
			return damaged, "bytes where nothing was written"
		}
	}
	return torn, ""
}

func sectorSeq(s []byte) uint64    { return binary.LittleEndian.Uint64(s[4:]) }
func sectorUsed(s []byte) int      { return int(binary.LittleEndian.Uint16(s[2:])) }
func sectorBehind(s []byte) uint32 { return binary.LittleEndian.Uint32(s[12:]) }

// sectorHorizon is the first sequence that was not known synced when the
// sector was written.
func sectorHorizon(s []byte) uint64 { return sectorSeq(s) - uint64(sectorBehind(s)) }
