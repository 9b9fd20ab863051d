package node

import (
	"encoding/binary"

	"github.com/incumbent-dev/incumbent"
)

// An entry of the log as raft carries it. All integers are little-endian.
//
//	 0         1       9        17            25               33      37
//	┌─────────┬───────┬────────┬─────────────┬────────────────┬───────┬──────────────────────────┐
//	│ version │ group │ member │ incarnation │ first sequence │ count │ count × (uvarint, bytes) │
//	└─────────┴───────┴────────┴─────────────┴────────────────┴───────┴──────────────────────────┘
//
// (member, incarnation, first sequence + i) is the request id of command i. The
// member is the one that took the requests, which need not be the leader. The
// incarnation is its durable boot counter, so an entry that is replayed after a
// restart meets nobody that waits for it.

const (
	entryVersion     = 1
	entryHeaderBytes = 37
)

// firstSequence is where an incarnation begins to count; 0 is nobody's. Each has numbers
// of its own, as long as no life proposes more commands than 48 bits can count: a Refuse
// names no incarnation, and one that an earlier life was sent must not be taken for a
// refusal of what this one has on its way, which would be appended twice then.
func firstSequence(incarnation uint64) uint64 { return incarnation<<48 + 1 }

// entryHeader names who waits for the commands of an entry.
type entryHeader struct {
	Group       uint64
	Member      uint64
	Incarnation uint64
	First       uint64 // sequence of the first command
	Count       int
}

// encodeEntry returns a fresh buffer: raft keeps what it is given.
func encodeEntry(h entryHeader, cmds [][]byte) []byte {
	size := entryHeaderBytes
	for _, c := range cmds {
		size += binary.MaxVarintLen32 + len(c)
	}
	b := make([]byte, 0, size)
	b = append(b, entryVersion)
	b = binary.LittleEndian.AppendUint64(b, h.Group)
	b = binary.LittleEndian.AppendUint64(b, h.Member)
	b = binary.LittleEndian.AppendUint64(b, h.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, h.First)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(cmds)))
	for _, c := range cmds {
		b = binary.AppendUvarint(b, uint64(len(c)))
		b = append(b, c...)
	}
	return b
}

// decodeHeader reads who waits, without looking at the commands.
func decodeHeader(b []byte) (entryHeader, error) {
	var h entryHeader
	switch {
	case len(b) < entryHeaderBytes:
		return h, incumbent.Errorf(incumbent.Corrupt, "entry has %d bytes, a header has %d", len(b), entryHeaderBytes)
	case len(b) > MaxCommandBytes+maxEntryOverhead:
		return h, incumbent.Errorf(incumbent.Corrupt, "entry has %d bytes, limit is %d", len(b), MaxCommandBytes+maxEntryOverhead)
	case b[0] != entryVersion:
		return h, incumbent.Errorf(incumbent.Corrupt, "entry has version %d, this code knows %d", b[0], entryVersion)
	}
	h.Group = binary.LittleEndian.Uint64(b[1:])
	h.Member = binary.LittleEndian.Uint64(b[9:])
	h.Incarnation = binary.LittleEndian.Uint64(b[17:])
	h.First = binary.LittleEndian.Uint64(b[25:])
	count := binary.LittleEndian.Uint32(b[33:])
	if count == 0 || count > MaxEntryCommands {
		return h, incumbent.Errorf(incumbent.Corrupt, "entry has %d commands, limit is %d", count, MaxEntryCommands)
	}
	h.Count = int(count)
	return h, nil
}

// decodeEntry appends the commands of b to cmds. They alias b.
func decodeEntry(b []byte, cmds [][]byte) ([][]byte, error) {
	h, err := decodeHeader(b)
	if err != nil {
		return cmds, err
	}
	rest := b[entryHeaderBytes:]
	for i := range h.Count {
		n, w := binary.Uvarint(rest)
		if w <= 0 || n > uint64(len(rest)-w) {
			return cmds, incumbent.Errorf(incumbent.Corrupt, "entry ends within command %d of %d", i, h.Count)
		}
		rest = rest[w:]
		cmds = append(cmds, rest[:n:n])
		rest = rest[n:]
	}
	if len(rest) != 0 {
		return cmds, incumbent.Errorf(incumbent.Corrupt, "entry has %d bytes behind its last command", len(rest))
	}
	return cmds, nil
}
