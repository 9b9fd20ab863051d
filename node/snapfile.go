package node

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/wal"
)

// A snapshot file. All integers are little-endian, all checksums CRC-32C.
//
//	header   "INCSNAP1" │ u32 n │ n bytes │ u32 crc
//	         the n bytes: u32 schema │ u64 group │ u64 index │ u64 term │ u8 auto-leave │
//	         4 × (u16 count, count × u64): voters, outgoing voters, learners, next learners
//	chunk*   u32 length (1 to 64 KiB) │ bytes │ u32 crc
//	trailer  u32 0 │ u64 sum of lengths │ u32 crc
//	end of file
//
// Every crc continues from the one before it, from the first byte of the file
// on, and covers its own length word. So each one vouches for everything before
// it: a chunk that is missing, doubled or moved does not verify, and the
// trailer's crc is the checksum of the whole. A reader hands on no byte that it
// has not verified.

const snapshotMagic = "INCSNAP1"

var castagnoli = crc32.MakeTable(crc32.Castagnoli) // a constant: written once, here

// snapshotHeader is what a snapshot file says of itself.
type snapshotHeader struct {
	Schema uint32 // version of what the machine wrote
	Group  uint64
	Meta   SnapshotMeta
}

func (h *snapshotHeader) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, h.Schema)
	b = binary.LittleEndian.AppendUint64(b, h.Group)
	b = binary.LittleEndian.AppendUint64(b, h.Meta.Index)
	b = binary.LittleEndian.AppendUint64(b, h.Meta.Term)
	cs := h.Meta.ConfState
	auto := byte(0)
	if cs.GetAutoLeave() {
		auto = 1
	}
	b = append(b, auto)
	for _, ids := range [...][]uint64{cs.GetVoters(), cs.GetVotersOutgoing(), cs.GetLearners(), cs.GetLearnersNext()} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(ids)))
		for _, id := range ids {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
	}
	return b
}

var errShortHeader = errors.New("header ends early")

func (h *snapshotHeader) decode(b []byte) error {
	if len(b) < 29 {
		return errShortHeader
	}
	h.Schema = binary.LittleEndian.Uint32(b)
	h.Group = binary.LittleEndian.Uint64(b[4:])
	h.Meta.Index = binary.LittleEndian.Uint64(b[12:])
	h.Meta.Term = binary.LittleEndian.Uint64(b[20:])
	cs := &pb.ConfState{AutoLeave: new(b[28] == 1)}
	b = b[29:]
	for _, ids := range [...]*[]uint64{&cs.Voters, &cs.VotersOutgoing, &cs.Learners, &cs.LearnersNext} {
		if len(b) < 2 {
			return errShortHeader
		}
		n := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		if n > maxConfStateIDs || len(b) < 8*n {
			return errShortHeader
		}
		for i := range n {
			*ids = append(*ids, binary.LittleEndian.Uint64(b[8*i:]))
		}
		b = b[8*n:]
	}
	if len(b) != 0 {
		return errors.New("header has bytes behind its end")
	}
	h.Meta.ConfState = cs
	return nil
}

// snapshotWriter writes the format. Close must be called to end the file; it
// does not close what it writes to.
type snapshotWriter struct {
	w     io.Writer
	chunk []byte // 4 bytes for the length, then payload
	crc   uint32
	total uint64 // payload written
	bytes int64  // file written
	sum   hash.Hash
}

func newSnapshotWriter(w io.Writer, h snapshotHeader) (*snapshotWriter, error) {
	s := &snapshotWriter{w: w, chunk: make([]byte, 4, 4+maxIOChunk+4), sum: sha256.New()}
	body := h.encode()
	b := append([]byte(snapshotMagic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[len(snapshotMagic):], uint32(len(body)))
	return s, s.record(append(b, body...))
}

// record writes b and the checksum of everything up to it.
func (s *snapshotWriter) record(b []byte) error {
	s.crc = crc32.Update(s.crc, castagnoli, b)
	b = binary.LittleEndian.AppendUint32(b, s.crc)
	s.bytes += int64(len(b))
	s.sum.Write(b) // never fails
	_, err := s.w.Write(b)
	return err
}

// Write implements io.Writer.
func (s *snapshotWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(len(p), 4+maxIOChunk-len(s.chunk))
		s.chunk = append(s.chunk, p[:take]...)
		p = p[take:]
		if len(s.chunk) < 4+maxIOChunk {
			break
		}
		if err := s.flush(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (s *snapshotWriter) flush() error {
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

// mark names the finished file for the log.
func (s *snapshotWriter) mark(h SnapshotMeta, file string) wal.SnapshotMark {
	m := wal.SnapshotMark{Index: h.Index, Term: h.Term, File: file, Bytes: s.bytes}
	s.sum.Sum(m.Checksum[:0])
	return m
}

// Close writes what is left and the trailer.
func (s *snapshotWriter) Close() error {
	if err := s.flush(); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, 0)
	return s.record(binary.LittleEndian.AppendUint64(b, s.total))
}

// snapshotReader reads the format, verifying before it hands on.
type snapshotReader struct {
	r      *bufio.Reader
	sum    hash.Hash // of the whole file
	name   string    // file, for errors
	offset int64     // of the record being read
	crc    uint32
	total  uint64
	buf    []byte
	rest   []byte // verified and not handed on
	err    error
	Header snapshotHeader
}

// newSnapshotReader reads and verifies the header.
func newSnapshotReader(r io.Reader, name string) (*snapshotReader, error) {
	sum := sha256.New()
	s := &snapshotReader{r: bufio.NewReaderSize(io.TeeReader(r, sum), maxIOChunk), sum: sum, name: name}
	head := make([]byte, len(snapshotMagic)+4)
	if err := s.fill(head); err != nil {
		return nil, err
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return nil, s.corrupt("not a snapshot: wrong magic")
	}
	n := binary.LittleEndian.Uint32(head[len(snapshotMagic):])
	if n > maxSnapshotHeader {
		return nil, s.corrupt("header length is out of range")
	}
	body := make([]byte, n)
	if err := s.fill(body); err != nil {
		return nil, err
	}
	if err := s.verify(head, body); err != nil {
		return nil, err
	}
	if err := s.Header.decode(body); err != nil {
		return nil, s.corrupt(err.Error())
	}
	s.offset += int64(len(head)+len(body)) + 4
	return s, nil
}

func (s *snapshotReader) corrupt(what string) error {
	return incumbent.Errorf(incumbent.Corrupt, "%s: offset %d: %s", s.name, s.offset, what)
}

func (s *snapshotReader) fill(b []byte) error {
	_, err := io.ReadFull(s.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.corrupt("file ends early")
	}
	return err
}

// verify reads a checksum and compares it with that of everything so far.
func (s *snapshotReader) verify(parts ...[]byte) error {
	var sum [4]byte
	if err := s.fill(sum[:]); err != nil {
		return err
	}
	for _, p := range parts {
		s.crc = crc32.Update(s.crc, castagnoli, p)
	}
	if s.crc != binary.LittleEndian.Uint32(sum[:]) {
		return s.corrupt("checksum does not match")
	}
	return nil
}

// Read implements io.Reader. It returns io.EOF only after the trailer and the
// end of the file have been verified.
func (s *snapshotReader) Read(p []byte) (int, error) {
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
func (s *snapshotReader) next() error {
	var word [4]byte
	if err := s.fill(word[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(word[:])
	switch {
	case n == 0:
		return s.trailer(word[:])
	case n > maxIOChunk:
		return s.corrupt("chunk length is out of range")
	}
	if s.buf == nil {
		s.buf = make([]byte, maxIOChunk)
	}
	if err := s.fill(s.buf[:n]); err != nil {
		return err
	}
	if err := s.verify(word[:], s.buf[:n]); err != nil {
		return err
	}
	s.offset += int64(n) + 8
	s.total += uint64(n)
	s.rest = s.buf[:n]
	return nil
}

func (s *snapshotReader) trailer(word []byte) error {
	var total [8]byte
	if err := s.fill(total[:]); err != nil {
		return err
	}
	if err := s.verify(word, total[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(total[:]) != s.total {
		return s.corrupt("trailer has another length")
	}
	s.offset += 16
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		return s.corrupt("bytes behind the trailer")
	}
	return io.EOF
}

// finish verifies what the machine did not read, and that this is the very file
// that the log's mark names.
func (s *snapshotReader) finish(m wal.SnapshotMark) error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	if s.offset != m.Bytes {
		return s.corrupt(fmt.Sprintf("file ends here, the log says it has %d bytes", m.Bytes))
	}
	if [sha256.Size]byte(s.sum.Sum(nil)) != m.Checksum {
		s.offset = 0
		return s.corrupt("a whole snapshot, but not the one that the log names")
	}
	return nil
}
