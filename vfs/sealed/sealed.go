// Package sealed is the form of files that must be whole or be refused: snapshots
// and backups. All integers are little-endian, all checksums CRC-32C.
//
//	header   8 bytes, which say what it is │ u32 n │ n bytes │ u32 crc
//	chunk*   u32 length (1 to 64 KiB) │ bytes │ u32 crc
//	trailer  u32 0 │ u64 sum of lengths │ SHA-256 of all before the trailer │ u32 crc
//	end of file
//
// Every crc continues from the one before it, from the first byte of the file
// on, and covers its own length word. So each one vouches for everything before
// it: a chunk that is missing, doubled or moved does not verify. A reader hands on
// no byte that it has not verified so far, and says at the end whether the hash,
// which no accident gets past, agrees.
//
// # Invariants
//
//   - A [Reader] returns io.EOF only for a file that a [Writer] has closed, to its
//     last byte and not beyond.
//   - Its memory is bounded by one chunk and the greatest header, whatever the bytes.
package sealed

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"

	"github.com/incumbent-dev/incumbent"
)

// Sizes, in bytes.
const (
	MagicBytes   = 8                       // what a file begins with
	MaxChunk     = 64 << 10                // contents of one chunk
	ChunkBytes   = 4 + 4                   // of a chunk, besides its contents
	TrailerBytes = 4 + 8 + sha256.Size + 4 // all of it
	headBytes    = MagicBytes + 4          // what a header is read by
	maxRecord    = 4 + MaxChunk + 4        // a chunk, whole
	crcBytes     = 4                       // behind each part
)

// ErrOther is the cause of the Corrupt error for a file that begins with other
// bytes: it is none of those that were expected.
var ErrOther = errors.New("wrong magic, it is something else")

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // a constant: written once, here

// Writer writes the form. Close must be called to end the file; it does not close
// what it writes to.
type Writer struct {
	w     io.Writer
	chunk []byte // 4 bytes for the length, then contents
	crc   uint32
	total uint64 // contents written
	bytes int64  // file written
	sum   hash.Hash
}

// NewWriter begins a file. magic has MagicBytes.
func NewWriter(w io.Writer, magic string, header []byte) (*Writer, error) {
	s := &Writer{w: w, chunk: make([]byte, 4, maxRecord), sum: sha256.New()}
	b := make([]byte, headBytes, headBytes+len(header)+crcBytes)
	if copy(b, magic) != MagicBytes || len(magic) != MagicBytes {
		return nil, incumbent.Errorf(incumbent.Internal, "%q has not %d bytes", magic, MagicBytes)
	}
	binary.LittleEndian.PutUint32(b[MagicBytes:], uint32(len(header)))
	return s, s.record(append(b, header...))
}

// record writes b and the checksum of everything up to it.
func (s *Writer) record(b []byte) error {
	s.crc = crc32.Update(s.crc, castagnoli, b)
	b = binary.LittleEndian.AppendUint32(b, s.crc)
	s.bytes += int64(len(b))
	s.sum.Write(b) // never fails
	_, err := s.w.Write(b)
	return err
}

// Write implements io.Writer.
func (s *Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(len(p), 4+MaxChunk-len(s.chunk))
		s.chunk = append(s.chunk, p[:take]...)
		p = p[take:]
		if len(s.chunk) < 4+MaxChunk {
			break
		}
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (s *Writer) flush() error {
	n := len(s.chunk) - 4
	if n == 0 {
		return nil
	}
	binary.LittleEndian.PutUint32(s.chunk, uint32(n))
	s.total += uint64(n)
	err := s.record(s.chunk)
	s.chunk = s.chunk[:4]
	return err
}

// Close writes what is left and the trailer.
func (s *Writer) Close() error {
	if err := s.flush(); err != nil {
		return err
	}
	b := make([]byte, 4, TrailerBytes) // a length of 0
	b = binary.LittleEndian.AppendUint64(b, s.total)
	return s.record(s.sum.Sum(b))
}

// Bytes is the length of the file so far; once it is closed, of all of it.
func (s *Writer) Bytes() int64 { return s.bytes }

// Sum is the SHA-256 of the file, once it is closed.
func (s *Writer) Sum() (sum [sha256.Size]byte) {
	s.sum.Sum(sum[:0])
	return sum
}
