package sealed

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"

	"github.com/incumbent-dev/incumbent"
)

// Reader reads the form, verifying before it hands on.
type Reader struct {
	r      *bufio.Reader
	sum    hash.Hash // of what was read
	name   string    // file, for errors
	offset int64     // of the part being read
	crc    uint32
	total  uint64
	header []byte
	buf    []byte
	rest   []byte // verified and not handed on
	err    error
}

// NewReader reads and verifies the header, of at most so many bytes. The errors
// name the file. They are Corrupt, with the cause [ErrOther] if the file begins
// with something else than magic, or those of r.
func NewReader(r io.Reader, name, magic string, maxHeader int) (*Reader, error) {
	s := &Reader{r: bufio.NewReaderSize(r, MaxChunk), sum: sha256.New(), name: name}
	if begin, err := s.r.Peek(MagicBytes); !bytes.HasPrefix([]byte(magic), begin) {
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: offset 0: %w", name, ErrOther)
	} else if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	head := make([]byte, headBytes)
	if err := s.fill(head); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[MagicBytes:])
	if n > uint32(maxHeader) {
		return nil, s.Corrupt("header length is out of range")
	}
	s.header = make([]byte, n)
	if err := s.fill(s.header); err != nil {
		return nil, err
	}
	if err := s.verify(head, s.header); err != nil {
		return nil, err
	}
	s.offset = int64(headBytes+len(s.header)) + crcBytes
	return s, nil
}

// Header is what the header says, not to be changed.
func (s *Reader) Header() []byte { return s.header }

// Name is the file, as errors name it.
func (s *Reader) Name() string { return s.name }

// Offset is how many bytes of the file are verified.
func (s *Reader) Offset() int64 { return s.offset }

// Corrupt is the error that something is wrong behind the offset.
func (s *Reader) Corrupt(what string) error {
	return incumbent.Errorf(incumbent.Corrupt, "%s: offset %d: %s", s.name, s.offset, what)
}

func (s *Reader) fill(b []byte) error {
	n, err := io.ReadFull(s.r, b)
	s.sum.Write(b[:n]) // never fails
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.Corrupt("file ends early")
	}
	return err
}

// verify reads a checksum and compares it with that of everything so far.
func (s *Reader) verify(parts ...[]byte) error {
	var sum [crcBytes]byte
	if err := s.fill(sum[:]); err != nil {
		return err
	}
	for _, p := range parts {
		s.crc = crc32.Update(s.crc, castagnoli, p)
	}
	if s.crc != binary.LittleEndian.Uint32(sum[:]) {
		return s.Corrupt("checksum does not match")
	}
	return nil
}

// Read implements io.Reader. It returns io.EOF only after the trailer and the
// end of the file have been verified.
func (s *Reader) Read(p []byte) (int, error) {
	for len(s.rest) == 0 && s.err == nil {
		s.err = s.next()
	}
	if len(s.rest) == 0 {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next reads one chunk, or the trailer, after which it returns io.EOF.
func (s *Reader) next() error {
	if word, _ := s.r.Peek(4); string(word) == endWord {
		return s.trailer()
	}
	var word [4]byte
	if err := s.fill(word[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(word[:])
	if n > MaxChunk {
		return s.Corrupt("chunk length is out of range")
	}
	if s.buf == nil {
		s.buf = make([]byte, MaxChunk)
	}
	if err := s.fill(s.buf[:n]); err != nil {
		return err
	}
	if err := s.verify(word[:], s.buf[:n]); err != nil {
		return err
	}
	s.offset += int64(n) + ChunkBytes
	s.total += uint64(n)
	s.rest = s.buf[:n]
	return nil
}

// endWord stands where the length of a chunk would.
const endWord = "\x00\x00\x00\x00"

func (s *Reader) trailer() error {
	want := s.sum.Sum(nil)
	b := make([]byte, TrailerBytes-crcBytes)
	if err := s.fill(b); err != nil {
		return err
	}
	if err := s.verify(b); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b[len(endWord):]) != s.total {
		return s.Corrupt("trailer has another length")
	}
	if !bytes.Equal(b[len(endWord)+8:], want) {
		return s.Corrupt("trailer has another hash")
	}
	s.offset += TrailerBytes
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		return s.Corrupt("bytes behind the trailer")
	}
	return io.EOF
}

// Finish verifies what was not read, to the end of the file.
func (s *Reader) Finish() error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// Damage is what was found wrong with the file so far, nil if nothing was: whoever
// reads through others gets it unchanged.
func (s *Reader) Damage() error {
	if s.err == nil || errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// Sum is the SHA-256 of the file, once it is read to its end.
func (s *Reader) Sum() (sum [sha256.Size]byte) {
	s.sum.Sum(sum[:0])
	return sum
}
