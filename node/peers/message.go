package peers

import (
	"encoding/binary"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/node"
)

// Payloads of the other messages:
//
//	forward  term u64, first u64, after u64, entry (the rest)
//	refuse   term u64, first u64
//	chunk    index u64, term u64, bytes u64, checksum 32, offset u64, data (uvarint, bytes), raft (the rest, or none)
//	taken    index u64, term u64, checksum 32, offset u64, done u8, failed (uvarint, bytes)
//	app      the user's bytes
//	ping     stamp u64, incarnation u64, term u64, durable u64, commit u64
//	pong     stamp u64
//	redial   nothing

// sizeMessage is at least the length of m's payload.
func sizeMessage(m *node.Message) int {
	switch {
	case m.Raft != nil:
		return sizeRaft(m.Raft)
	case m.Forward != nil:
		return 24 + len(m.Forward.Entry)
	case m.Chunk != nil:
		n := 64 + binary.MaxVarintLen32 + len(m.Chunk.Data)
		if m.Chunk.Raft != nil {
			n += sizeRaft(m.Chunk.Raft)
		}
		return n
	case m.Taken != nil:
		return 57 + binary.MaxVarintLen32 + min(len(m.Taken.Failed), MaxTextBytes)
	default:
		return 16
	}
}

// sendable says why m cannot travel, or nil. It is the caller's mistake.
func sendable(m *node.Message) error {
	limit := MaxControlFrame
	if m.Class() == node.Bulk {
		limit = MaxBulkFrame
	}
	raft := m.Raft
	if m.Chunk != nil {
		raft = m.Chunk.Raft
	}
	switch {
	case m.Raft == nil && m.Forward == nil && m.Refuse == nil && m.Chunk == nil && m.Taken == nil:
		return errProtocol("message is empty")
	case raft != nil && !travels(raft.GetType()):
		return errProtocol("message of type %v does not travel", raft.GetType())
	case raft != nil && (len(raft.GetEntries()) > MaxEntries || raft.Snapshot != nil && tooManyIDs(raft.Snapshot)):
		return errProtocol("message of type %v has too many entries or members", raft.GetType())
	case sizeMessage(m) > limit:
		return errProtocol("message of %d bytes, limit is %d", sizeMessage(m), limit)
	}
	return nil
}

func tooManyIDs(s *pb.Snapshot) bool {
	cs := s.GetMetadata().GetConfState()
	return max(len(cs.GetVoters()), len(cs.GetLearners()), len(cs.GetVotersOutgoing()), len(cs.GetLearnersNext())) > MaxMemberIDs
}

// appendMessage appends m as a whole frame.
func appendMessage(b []byte, m *node.Message, group uint64) []byte {
	at := len(b)
	switch {
	case m.Raft != nil:
		b = appendRaft(beginFrame(b, frameRaft, group), m.Raft)
	case m.Forward != nil:
		b = beginFrame(b, frameForward, group)
		b = binary.LittleEndian.AppendUint64(b, m.Forward.Term)
		b = binary.LittleEndian.AppendUint64(b, m.Forward.First)
		b = binary.LittleEndian.AppendUint64(b, m.Forward.After)
		b = append(b, m.Forward.Entry...)
	case m.Refuse != nil:
		b = beginFrame(b, frameRefuse, group)
		b = binary.LittleEndian.AppendUint64(b, m.Refuse.Term)
		b = binary.LittleEndian.AppendUint64(b, m.Refuse.First)
	case m.Chunk != nil:
		b = appendChunk(beginFrame(b, frameChunk, group), m.Chunk)
	case m.Taken != nil:
		b = appendTaken(beginFrame(b, frameTaken, group), m.Taken)
	}
	return endFrame(b, at)
}

func appendChunk(b []byte, c *node.Chunk) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.Index)
	b = binary.LittleEndian.AppendUint64(b, c.Term)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Bytes))
	b = append(b, c.Checksum[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Offset))
	b = appendBytes(b, c.Data)
	if c.Raft != nil {
		b = appendRaft(b, c.Raft)
	}
	return b
}

func appendTaken(b []byte, t *node.Taken) []byte {
	b = binary.LittleEndian.AppendUint64(b, t.Index)
	b = binary.LittleEndian.AppendUint64(b, t.Term)
	b = append(b, t.Checksum[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Offset))
	done := byte(0)
	if t.Done {
		done = 1
	}
	return appendText(append(b, done), t.Failed, MaxTextBytes)
}

// decodeMessage decodes a frame that carries a message. What it returns shares
// no memory with the reader: raft and the log keep it.
func decodeMessage(f frame) (node.Message, error) {
	p := f.payload
	if !f.owned {
		p = slices.Clone(p)
	}
	c := &cursor{b: p}
	var m node.Message
	switch f.kind {
	case frameRaft:
		m.Raft = decodeRaft(c)
	case frameForward:
		m.Forward = &node.Forward{Term: c.u64(), First: c.u64(), After: c.u64()}
		m.Forward.Entry = c.take(uint64(len(c.b)))
	case frameRefuse:
		m.Refuse = &node.Refuse{Term: c.u64(), First: c.u64()}
	case frameChunk:
		m.Chunk = decodeChunk(c)
	case frameTaken:
		m.Taken = decodeTaken(c)
	default:
		return m, errProtocol("frame of type %d is not expected here", f.kind)
	}
	return m, c.end()
}

func decodeChunk(c *cursor) *node.Chunk {
	k := &node.Chunk{Index: c.u64(), Term: c.u64(), Bytes: c.size()}
	copy(k.Checksum[:], c.take(32))
	k.Offset = c.size()
	k.Data = c.bytes()
	if len(c.b) > 0 {
		k.Raft = decodeRaft(c)
	}
	return k
}

func decodeTaken(c *cursor) *node.Taken {
	t := &node.Taken{Index: c.u64(), Term: c.u64()}
	copy(t.Checksum[:], c.take(32))
	t.Offset = c.size()
	switch done := c.u8(); done {
	case 0, 1:
		t.Done = done == 1
	default:
		c.fail("neither yes nor no: %d", done)
	}
	t.Failed = c.text(MaxTextBytes)
	return t
}

// size reads a number of bytes in a file.
func (c *cursor) size() int64 {
	v := c.u64()
	if v > 1<<62 {
		c.fail("size %d is out of range", v)
		return 0
	}
	return int64(v)
}

// check refuses what the member at the other end may not send.
func check(m *node.Message, from, self uint64) error {
	raft := m.Raft
	if m.Chunk != nil {
		raft = m.Chunk.Raft
	}
	switch {
	case raft == nil:
		return nil
	case !travels(raft.GetType()):
		return errProtocol("message of type %v does not travel", raft.GetType())
	case raft.GetTo() != self:
		return errProtocol("message for member %d arrived at %d", raft.GetTo(), self)
	case raft.GetFrom() != from && raft.GetType() != pb.MsgTransferLeader: // which names whom to hand over to
		return errProtocol("message of member %d came from %d", raft.GetFrom(), from)
	}
	return nil
}

// ping shows what a member holds and asks for an answer.
type ping struct {
	stamp uint64 // nanoseconds of the sender's clock
	shows Standing
}

func appendPing(b []byte, p ping, group uint64) []byte {
	at := len(b)
	b = beginFrame(b, framePing, group)
	b = binary.LittleEndian.AppendUint64(b, p.stamp)
	return endFrame(appendStanding(b, p.shows), at)
}

func decodePing(b []byte) (ping, error) {
	c := &cursor{b: b}
	p := ping{stamp: c.u64(), shows: decodeStanding(c)}
	return p, c.end()
}

func appendPong(b []byte, stamp, group uint64) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(beginFrame(b, framePong, group), stamp)
	return endFrame(b, at)
}

func decodePong(b []byte) (uint64, error) {
	c := &cursor{b: b}
	stamp := c.u64()
	return stamp, c.end()
}

func appendStanding(b []byte, s Standing) []byte {
	for _, v := range [...]uint64{s.Incarnation, s.Term, s.Durable, s.Commit} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func decodeStanding(c *cursor) Standing {
	return Standing{Incarnation: c.u64(), Term: c.u64(), Durable: c.u64(), Commit: c.u64()}
}
