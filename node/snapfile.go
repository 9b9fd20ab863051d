package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/vfs/sealed"
	"github.com/incumbent-dev/incumbent/wal"
)

// A snapshot file has the form of package sealed. Its header, little-endian:
//
//	u32 schema │ u64 group │ u64 index │ u64 term │ u8 auto-leave │
//	4 × (u16 count, count × u64): voters, outgoing voters, learners, next learners
const snapshotMagic = "INCSNAP1"

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

// snapshotWriter writes a snapshot file.
type snapshotWriter struct{ *sealed.Writer }

func newSnapshotWriter(w io.Writer, h snapshotHeader) (*snapshotWriter, error) {
	s, err := sealed.NewWriter(w, snapshotMagic, h.encode())
	return &snapshotWriter{s}, err
}

// mark names the finished file for the log.
func (s *snapshotWriter) mark(h SnapshotMeta, file string) wal.SnapshotMark {
	return wal.SnapshotMark{Index: h.Index, Term: h.Term, File: file, Bytes: s.Bytes(), Checksum: s.Sum()}
}

// snapshotReader reads a snapshot file, verifying before it hands on.
type snapshotReader struct {
	*sealed.Reader
	Header snapshotHeader
}

// newSnapshotReader reads and verifies the header.
func newSnapshotReader(r io.Reader, name string) (*snapshotReader, error) {
	in, err := sealed.NewReader(r, name, snapshotMagic, maxSnapshotHeader)
	if err != nil {
		return nil, err
	}
	s := &snapshotReader{Reader: in}
	if err := s.Header.decode(in.Header()); err != nil {
		return nil, s.Corrupt(err.Error())
	}
	return s, nil
}

// finish verifies what the machine did not read, and that this is the very file
// that the log's mark names.
func (s *snapshotReader) finish(m wal.SnapshotMark) error {
	if err := s.Finish(); err != nil {
		return err
	}
	if s.Offset() != m.Bytes {
		return s.Corrupt(fmt.Sprintf("file ends here, the log says it has %d bytes", m.Bytes))
	}
	if s.Sum() != m.Checksum {
		return s.Corrupt("a whole snapshot, but not the one that the log names")
	}
	return nil
}
