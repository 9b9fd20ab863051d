package peers

import (
	"encoding/binary"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A message of raft. Bits say which fields are there, so that a field that is
// absent and one that is zero stay apart, as in the library. Responses never
// travel, nor does the data of a snapshot.
//
//	┌──────┬───────┬─────────────────────────────────────────────┬────────────────────────┐
//	│ type │ bits  │ fields whose bit is set, in the bits' order │ entries if bitEntries  │
//	│ u8   │ u16   │ ids u64, numbers uvarint, context bytes     │ uvarint count, entries │
//	└──────┴───────┴─────────────────────────────────────────────┴────────────────────────┘
//
// An entry is a byte of bits, then its fields. Term and index are mostly those
// of the entry before, and that plus one: then they are two bits and no bytes.

const (
	bitType uint16 = 1 << iota // unset: the type is absent, and the byte is 0
	bitTo
	bitFrom
	bitTerm
	bitLogTerm
	bitIndex
	bitCommit
	bitVote
	bitRejectHint
	bitReject      // present
	bitRejectValue // and true
	bitContext
	bitSnapshot
	bitEntries
	bitUnknown // this and those above are not used
)

const (
	entryType uint8 = 1 << iota
	entryTerm
	entryIndex
	entryData
	entrySameTerm  // as the entry before
	entryNextIndex // that of the entry before, plus one
	entryUnknown
)

const (
	snapMetadata uint8 = 1 << iota
	snapIndex
	snapTerm
	snapMembers
	snapAutoLeave
	snapAutoLeaveValue
	snapUnknown
)

// travels says which messages may come from another member; all others are
// between raft and its own storage or clock.
func travels(t pb.MessageType) bool {
	switch t {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgSnap, pb.MsgHeartbeat, pb.MsgHeartbeatResp,
		pb.MsgTransferLeader, pb.MsgTimeoutNow, pb.MsgReadIndex, pb.MsgReadIndexResp, pb.MsgPreVote, pb.MsgPreVoteResp:
		return true
	default:
		return false
	}
}

// sizeRaft is at least the length of m's encoding.
func sizeRaft(m *pb.Message) int {
	const fields = 3 + 3*8 + 5*binary.MaxVarintLen64 + 2*binary.MaxVarintLen32
	n := fields + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += 2 + 3*binary.MaxVarintLen64 + binary.MaxVarintLen32 + len(e.GetData())
	}
	if m.Snapshot != nil {
		cs := m.Snapshot.GetMetadata().GetConfState()
		ids := len(cs.GetVoters()) + len(cs.GetVotersOutgoing()) + len(cs.GetLearners()) + len(cs.GetLearnersNext())
		n += 1 + 2*binary.MaxVarintLen64 + 4*2 + 8*ids
	}
	return n
}

// appendRaft encodes m. It only reads it.
func appendRaft(b []byte, m *pb.Message) []byte {
	b = append(b, byte(m.GetType()))
	at := len(b)
	b = append(b, 0, 0)
	var bits uint16
	if m.Type != nil {
		bits |= bitType
	}
	for _, f := range [...]struct {
		v   *uint64
		bit uint16
	}{{m.To, bitTo}, {m.From, bitFrom}} {
		if f.v != nil {
			bits |= f.bit
			b = binary.LittleEndian.AppendUint64(b, *f.v)
		}
	}
	for _, f := range [...]struct {
		v   *uint64
		bit uint16
	}{{m.Term, bitTerm}, {m.LogTerm, bitLogTerm}, {m.Index, bitIndex}, {m.Commit, bitCommit}, {m.Vote, bitVote}, {m.RejectHint, bitRejectHint}} {
		if f.v != nil {
			bits |= f.bit
			b = binary.AppendUvarint(b, *f.v)
		}
	}
	if m.Reject != nil {
		bits |= bitReject
		if *m.Reject {
			bits |= bitRejectValue
		}
	}
	if m.Context != nil {
		bits |= bitContext
		b = appendBytes(b, m.Context)
	}
	if m.Snapshot != nil {
		bits |= bitSnapshot
		b = appendSnapshot(b, m.Snapshot)
	}
	if len(m.Entries) > 0 {
		bits |= bitEntries
		b = appendEntries(b, m.Entries)
	}
	binary.LittleEndian.PutUint16(b[at:], bits)
	return b
}

func appendEntries(b []byte, es []*pb.Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(es)))
	var term, index uint64
	for _, e := range es {
		at := len(b)
		b = append(b, 0)
		var bits uint8
		if e.Type != nil {
			bits |= entryType
			b = binary.AppendUvarint(b, uint64(uint32(*e.Type)))
		}
		switch {
		case e.Term == nil:
		case *e.Term == term:
			bits |= entrySameTerm
		default:
			bits |= entryTerm
			b = binary.AppendUvarint(b, *e.Term)
		}
		switch {
		case e.Index == nil:
		case *e.Index == index+1:
			bits |= entryNextIndex
		default:
			bits |= entryIndex
			b = binary.AppendUvarint(b, *e.Index)
		}
		if e.Data != nil {
			bits |= entryData
			b = appendBytes(b, e.Data)
		}
		b[at] = bits
		term, index = e.GetTerm(), e.GetIndex()
	}
	return b
}

func appendSnapshot(b []byte, s *pb.Snapshot) []byte {
	at := len(b)
	b = append(b, 0)
	md := s.Metadata
	if md == nil {
		return b
	}
	bits := snapMetadata
	if md.Index != nil {
		bits |= snapIndex
		b = binary.AppendUvarint(b, *md.Index)
	}
	if md.Term != nil {
		bits |= snapTerm
		b = binary.AppendUvarint(b, *md.Term)
	}
	if cs := md.ConfState; cs != nil {
		bits |= snapMembers
		if cs.AutoLeave != nil {
			bits |= snapAutoLeave
			if *cs.AutoLeave {
				bits |= snapAutoLeaveValue
			}
		}
		for _, ids := range [...][]uint64{cs.Voters, cs.Learners, cs.VotersOutgoing, cs.LearnersNext} {
			b = binary.LittleEndian.AppendUint16(b, uint16(len(ids)))
			for _, id := range ids {
				b = binary.LittleEndian.AppendUint64(b, id)
			}
		}
	}
	b[at] = bits
	return b
}

// raftBox is a message with the memory of its optional fields: one allocation.
type raftBox struct {
	m       pb.Message
	kind    pb.MessageType
	ids     [2]uint64
	numbers [6]uint64
	reject  bool
}

// decodeRaft decodes a message whose context and entries alias the cursor's
// payload, which must therefore be the message's own.
func decodeRaft(c *cursor) *pb.Message {
	box := new(raftBox)
	m := &box.m
	kind := pb.MessageType(c.u8())
	bits := c.u16()
	switch {
	case bits >= bitUnknown:
		c.fail("raft message has unknown fields: %#x", bits)
	case bits&bitType == 0 && kind != 0, bits&bitReject == 0 && bits&bitRejectValue != 0:
		c.fail("raft message has the value of an absent field: %#x", bits)
	case bits&bitType != 0:
		box.kind = kind
		m.Type = &box.kind
	}
	for i, f := range [...]struct {
		v   **uint64
		bit uint16
	}{{&m.To, bitTo}, {&m.From, bitFrom}} {
		if bits&f.bit != 0 {
			box.ids[i] = c.u64()
			*f.v = &box.ids[i]
		}
	}
	for i, f := range [...]struct {
		v   **uint64
		bit uint16
	}{{&m.Term, bitTerm}, {&m.LogTerm, bitLogTerm}, {&m.Index, bitIndex}, {&m.Commit, bitCommit}, {&m.Vote, bitVote}, {&m.RejectHint, bitRejectHint}} {
		if bits&f.bit != 0 {
			box.numbers[i] = c.uvarint()
			*f.v = &box.numbers[i]
		}
	}
	if bits&bitReject != 0 {
		box.reject = bits&bitRejectValue != 0
		m.Reject = &box.reject
	}
	if bits&bitContext != 0 {
		m.Context = c.bytes()
	}
	if bits&bitSnapshot != 0 {
		m.Snapshot = decodeSnapshot(c)
	}
	if bits&bitEntries != 0 {
		m.Entries = decodeEntries(c)
	}
	return m
}

// entryBox is an entry with the memory of its optional fields.
type entryBox struct {
	e     pb.Entry
	kind  pb.EntryType
	term  uint64
	index uint64
}

func decodeEntries(c *cursor) []*pb.Entry {
	n := c.uvarint()
	if n == 0 || n > MaxEntries || n > uint64(len(c.b)) {
		c.fail("message with %d entries in %d bytes, limit is %d", n, len(c.b), MaxEntries)
		return nil
	}
	boxes := make([]entryBox, n)
	es := make([]*pb.Entry, n)
	var term, index uint64
	for i := range boxes {
		decodeEntry(c, &boxes[i], term, index)
		if c.err != nil {
			return nil
		}
		es[i] = &boxes[i].e
		term, index = boxes[i].term, boxes[i].index
	}
	return es
}

// decodeEntry fills box; term and index are those of the entry before.
func decodeEntry(c *cursor, box *entryBox, term, index uint64) {
	bits := c.u8()
	if bits >= entryUnknown || bits&(entryTerm|entrySameTerm) == entryTerm|entrySameTerm || bits&(entryIndex|entryNextIndex) == entryIndex|entryNextIndex {
		c.fail("entry has impossible fields: %#x", bits)
		return
	}
	e := &box.e
	if bits&entryType != 0 {
		v := c.uvarint()
		if v > uint64(pb.EntryConfChangeV2) {
			c.fail("entry of unknown type %d", v)
			return
		}
		box.kind = pb.EntryType(v)
		e.Type = &box.kind
	}
	switch {
	case bits&entryTerm != 0:
		box.term = c.uvarint()
		e.Term = &box.term
	case bits&entrySameTerm != 0:
		box.term = term
		e.Term = &box.term
	}
	switch {
	case bits&entryIndex != 0:
		box.index = c.uvarint()
		e.Index = &box.index
	case bits&entryNextIndex != 0:
		box.index = index + 1
		e.Index = &box.index
	}
	if bits&entryData != 0 {
		e.Data = c.bytes()
	}
}

func decodeSnapshot(c *cursor) *pb.Snapshot {
	s := new(pb.Snapshot)
	bits := c.u8()
	if bits >= snapUnknown || bits&snapMetadata == 0 && bits != 0 || bits&(snapMembers|snapAutoLeave) == snapAutoLeave || bits&(snapAutoLeave|snapAutoLeaveValue) == snapAutoLeaveValue {
		c.fail("snapshot has impossible fields: %#x", bits)
		return s
	}
	if bits == 0 {
		return s
	}
	md := new(pb.SnapshotMetadata)
	s.Metadata = md
	if bits&snapIndex != 0 {
		md.Index = new(c.uvarint())
	}
	if bits&snapTerm != 0 {
		md.Term = new(c.uvarint())
	}
	if bits&snapMembers == 0 {
		return s
	}
	cs := new(pb.ConfState)
	md.ConfState = cs
	if bits&snapAutoLeave != 0 {
		cs.AutoLeave = new(bits&snapAutoLeaveValue != 0)
	}
	for _, ids := range [...]*[]uint64{&cs.Voters, &cs.Learners, &cs.VotersOutgoing, &cs.LearnersNext} {
		*ids = decodeIDs(c)
	}
	return s
}

func decodeIDs(c *cursor) []uint64 {
	n := c.u16()
	if n > MaxMemberIDs {
		c.fail("list of %d members, limit is %d", n, MaxMemberIDs)
	}
	if n == 0 || c.err != nil {
		return nil
	}
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = c.u64()
	}
	return ids
}
