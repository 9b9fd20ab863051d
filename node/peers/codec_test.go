package peers

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent/node"
)

// optional draws a value that may be absent.
func optional[T any](t *rapid.T, g *rapid.Generator[T], label string) *T {
	if !rapid.Bool().Draw(t, label+" is there") {
		return nil
	}
	return new(g.Draw(t, label))
}

func number(t *rapid.T, label string) *uint64 {
	return optional(t, rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64(), rapid.Just(uint64(math.MaxUint64))), label)
}

func data(t *rapid.T, label string) []byte {
	if !rapid.Bool().Draw(t, label+" is there") {
		return nil
	}
	return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, label)...)
}

var travelling = []pb.MessageType{
	pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgSnap, pb.MsgHeartbeat, pb.MsgHeartbeatResp,
	pb.MsgTransferLeader, pb.MsgTimeoutNow, pb.MsgReadIndex, pb.MsgReadIndexResp, pb.MsgPreVote, pb.MsgPreVoteResp,
}

func raftMessage(t *rapid.T) *pb.Message {
	m := &pb.Message{
		Type: rapid.SampledFrom(travelling).Draw(t, "type").Enum(), To: number(t, "to"), From: number(t, "from"), Term: number(t, "term"),
		LogTerm: number(t, "log term"), Index: number(t, "index"), Commit: number(t, "commit"), Vote: number(t, "vote"),
		RejectHint: number(t, "hint"), Reject: optional(t, rapid.Bool(), "reject"), Context: data(t, "context"),
	}
	for range rapid.IntRange(0, 5).Draw(t, "entries") {
		m.Entries = append(m.Entries, &pb.Entry{
			Term: number(t, "entry term"), Index: number(t, "entry index"), Data: data(t, "entry data"),
			Type: optional(t, rapid.SampledFrom([]pb.EntryType{pb.EntryNormal, pb.EntryConfChange, pb.EntryConfChangeV2}), "entry type"),
		})
	}
	if rapid.Bool().Draw(t, "snapshot") {
		m.Snapshot = snapshot(t)
	}
	return m
}

func snapshot(t *rapid.T) *pb.Snapshot {
	s := &pb.Snapshot{}
	if !rapid.Bool().Draw(t, "metadata") {
		return s
	}
	s.Metadata = &pb.SnapshotMetadata{Index: number(t, "snapshot index"), Term: number(t, "snapshot term")}
	if !rapid.Bool().Draw(t, "members") {
		return s
	}
	ids := rapid.SliceOfN(rapid.Uint64(), 0, 4)
	s.Metadata.ConfState = &pb.ConfState{
		Voters: ids.Draw(t, "voters"), Learners: ids.Draw(t, "learners"), VotersOutgoing: ids.Draw(t, "outgoing"),
		LearnersNext: ids.Draw(t, "next"), AutoLeave: optional(t, rapid.Bool(), "auto leave"),
	}
	return s
}

func anyMessage(t *rapid.T) node.Message {
	switch rapid.IntRange(0, 4).Draw(t, "family") {
	case 0:
		return node.Message{Forward: &node.Forward{Term: rapid.Uint64().Draw(t, "term"), First: rapid.Uint64().Draw(t, "first"), After: rapid.Uint64().Draw(t, "after"), Entry: rapid.SliceOf(rapid.Byte()).Draw(t, "entry")}}
	case 1:
		return node.Message{Refuse: &node.Refuse{Term: rapid.Uint64().Draw(t, "term"), First: rapid.Uint64().Draw(t, "first")}}
	case 2:
		c := &node.Chunk{
			Index: rapid.Uint64().Draw(t, "index"), Term: rapid.Uint64().Draw(t, "term"), Bytes: rapid.Int64Range(0, 1<<62).Draw(t, "bytes"),
			Offset: rapid.Int64Range(0, 1<<62).Draw(t, "offset"), Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		}
		copy(c.Checksum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "checksum"))
		if rapid.Bool().Draw(t, "with message") {
			c.Raft = raftMessage(t)
		}
		return node.Message{Chunk: c}
	case 3:
		k := &node.Taken{
			Index: rapid.Uint64().Draw(t, "index"), Term: rapid.Uint64().Draw(t, "term"), Offset: rapid.Int64Range(0, 1<<62).Draw(t, "offset"),
			Done: rapid.Bool().Draw(t, "done"), Failed: rapid.StringN(0, 20, 100).Draw(t, "failed"),
		}
		copy(k.Checksum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "checksum"))
		return node.Message{Taken: k}
	default:
		return node.Message{Raft: raftMessage(t)}
	}
}

// same compares messages as raft sees them: what is absent is not zero.
var same = []cmp.Option{
	cmp.Comparer(func(a, b *pb.Message) bool { return (a == nil) == (b == nil) && (a == nil || proto.Equal(a, b)) }),
	cmpopts.EquateEmpty(),
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage(t)
		if err := sendable(&m); err != nil {
			t.Fatal(err)
		}
		b := appendMessage(nil, &m, 3)
		if bound := headerBytes + sizeMessage(&m); len(b) > bound {
			t.Fatalf("%d bytes, the bound said %d", len(b), bound)
		}
		got := roundTrip(t, b)
		if diff := cmp.Diff(m, got, same...); diff != "" {
			t.Fatal(diff)
		}
		// Nothing of it lives in the buffer it was read from.
		clear(b)
		if diff := cmp.Diff(m, got, same...); diff != "" {
			t.Fatalf("changes with the buffer: %s", diff)
		}
	})
}

// fataler is what both kinds of test share.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func roundTrip(t fataler, b []byte) node.Message {
	t.Helper()
	r := &frameReader{group: 3, known: true, limit: MaxBulkFrame, buf: b, to: len(b)}
	f, err := r.next()
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMessage(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEveryFlippedBitIsNoticed flips each bit of a frame: none of them passes.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	m := appendOf(1, 2, 5, 20)
	whole := appendMessage(nil, &m, 3)
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		r := newFrameReader(bytes.NewReader(b), 3)
		r.known = true
		if f, err := r.wait(); err == nil {
			t.Errorf("bit %d: a frame of type %d was accepted", i, f.kind)
		}
	}
}

// TestFramesOfAnySizeInAnyPieces cuts a stream of frames into small reads.
func TestFramesOfAnySizeInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want []int
		for range rapid.IntRange(1, 4).Draw(t, "frames") {
			n := rapid.SampledFrom([]int{0, 1, 100, readBytes - headerBytes, readBytes - headerBytes + 1, readBytes, 3 * readBytes}).Draw(t, "bytes")
			m := appendOf(1, 2, 5, n)
			stream = appendMessage(stream, &m, 3)
			want = append(want, n)
		}
		r := newFrameReader(&pieces{b: stream, n: rapid.IntRange(1000, 2*readBytes).Draw(t, "piece")}, 3)
		r.known, r.limit = true, MaxBulkFrame
		for _, n := range want {
			f, err := r.wait()
			if err != nil {
				t.Fatal(err)
			}
			m, err := decodeMessage(f)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(m.Raft.GetEntries()[0].GetData()); got != n {
				t.Fatalf("%d bytes of data, want %d", got, n)
			}
		}
	})
}

// pieces is a reader that returns at most n bytes at a time.
type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), p.n)], p.b)
	p.b = p.b[n:]
	if n == 0 {
		return 0, errors.New("nothing left")
	}
	return n, nil
}

func TestWhatDoesNotTravelIsNotSent(t *testing.T) {
	for _, m := range []node.Message{
		{},
		{Raft: &pb.Message{Type: pb.MsgHup.Enum()}},
		{Raft: &pb.Message{Type: pb.MsgStorageAppend.Enum()}},
		{Chunk: &node.Chunk{Raft: &pb.Message{Type: pb.MsgUnreachable.Enum()}}},
		{Raft: &pb.Message{Type: pb.MsgHeartbeat.Enum(), Context: make([]byte, MaxControlFrame)}},
		{Raft: &pb.Message{Type: pb.MsgSnap.Enum(), Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: &pb.ConfState{Voters: make([]uint64, MaxMemberIDs+1)}}}}},
		{Raft: &pb.Message{Type: pb.MsgApp.Enum(), Entries: make([]*pb.Entry, MaxEntries+1)}},
	} {
		if err := sendable(&m); err == nil {
			t.Errorf("%v can be sent", m)
		}
	}
}

func TestForeignMessagesAreRefused(t *testing.T) {
	ok := heartbeat(1, 2, 1)
	if err := check(&ok, 1, 2); err != nil {
		t.Error(err)
	}
	for _, m := range []node.Message{heartbeat(3, 2, 1), heartbeat(1, 3, 1), {Raft: &pb.Message{Type: pb.MsgHup.Enum(), From: new(uint64(1)), To: new(uint64(2))}}} {
		if err := check(&m, 1, 2); err == nil {
			t.Errorf("%v of member 1 is accepted at 2", m.Raft)
		}
	}
}

// ends are the two sides of a handshake that have agreed on a key.
func ends() (a, b *proof) {
	return &proof{key: secret, self: dialer, said: []byte("x")}, &proof{key: secret, self: dialed, said: []byte("x")}
}

func TestHelloComesBack(t *testing.T) {
	want := hello{
		cluster: [16]byte{1, 2}, group: 3, member: 4, to: 5, shows: Standing{6, 7, 8, 9},
		boot: newBootNonce(), schema: 10, class: node.Bulk, name: "m1",
	}
	a, b := ends()
	got, err := helloOf(frame{kind: frameHello, payload: appendHello(nil, want, a)[headerBytes:]}, b)
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	g := greeting{version: version, nonce: [nonceBytes]byte{1}, keys: []keyID{{1}, {2}}}
	p := greetingFrame(&g, 3)[headerBytes:]
	if got, err := decodeGreeting(p); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("got %+v, %v, want %+v", got, err, g)
	}
	p[4] = 99 // another version may have another form behind
	if got, err := decodeGreeting(p[:6]); err != nil || got.version != 99 {
		t.Errorf("got version %d, %v", got.version, err)
	}
	no := &refusal{RolledBack, "why"}
	back, err := decodeRefusal(encodeRefusal(no, 3, nil)[headerBytes:])
	if err != nil || *back != *no {
		t.Errorf("got %v, %v, want %v", back, err, no)
	}
}

// FuzzHandshake feeds what comes before the first message to everything that reads
// it: nothing of it is believed without the code of who has the key.
func FuzzHandshake(f *testing.F) {
	a, _ := ends()
	good := hello{cluster: [16]byte{7}, group: 3, member: 1, to: 2, name: "m"}
	f.Add(byte(frameGreeting), greetingFrame(&greeting{version: version, keys: []keyID{secret.id()}}, 3)[headerBytes:])
	f.Add(byte(frameChallenge), appendChallenge(nil, &challenge{key: secret.id()}, 3)[headerBytes:])
	f.Add(byte(frameHello), appendHello(nil, good, &proof{key: Key{Secret: []byte("another")}, self: dialer})[headerBytes:])
	f.Add(byte(frameHello), appendHello(nil, good, a)[headerBytes:])
	f.Add(byte(frameRefusal), encodeRefusal(&refusal{Removed, "x"}, 3, nil)[headerBytes:])
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		b := endFrame(append(beginFrame(nil, frameType(kind), 3), payload...), 0)
		// Who was dialed answers with a challenge, or the frame was no greeting.
		p, err := welcome(io.Discard, newFrameReader(bytes.NewReader(b), 3), []Key{secret})
		if err == nil && (p.key.id() != secret.id() || frameType(kind) != frameGreeting) {
			t.Fatalf("a frame of type %d was taken", kind)
		}
		// Nobody can answer a greeting whose nonce it does not know.
		if p, err := meet(io.Discard, newFrameReader(bytes.NewReader(b), 3), []Key{secret}); err == nil {
			t.Fatalf("proven: %+v", p)
		}
		_, other := ends()
		other.said = []byte("another connection")
		if h, err := helloOf(frame{kind: frameHello, payload: payload}, other); err == nil {
			t.Fatalf("a hello was taken: %+v", h)
		}
		if h, err := decodeHello(payload); err == nil {
			a, b := ends()
			if back, err := helloOf(frame{kind: frameHello, payload: appendHello(nil, h, a)[headerBytes:]}, b); err != nil || back != h {
				t.Fatalf("%+v came back as %+v, %v", h, back, err)
			}
		}
	})
}

// FuzzFrame feeds a stream to everything that decodes. What is accepted must
// survive another round.
func FuzzFrame(f *testing.F) {
	for _, m := range []node.Message{
		heartbeat(1, 2, 3), appendOf(1, 2, 3, 10),
		{Forward: &node.Forward{Term: 1, First: 2, Entry: []byte("x")}},
		{Refuse: &node.Refuse{Term: 1}},
		{Chunk: &node.Chunk{Bytes: 9, Data: []byte("y"), Raft: &pb.Message{Type: pb.MsgSnap.Enum(), Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(4)), ConfState: &pb.ConfState{Voters: []uint64{1}}}}}}},
		{Taken: &node.Taken{Failed: "no"}},
	} {
		b := appendMessage(nil, &m, 3)
		f.Add(b[4], b[headerBytes:])
	}
	f.Add(byte(frameRefusal), encodeRefusal(&refusal{Removed, "x"}, 3, nil)[headerBytes:])
	f.Add(byte(framePing), appendPing(nil, ping{}, 3)[headerBytes:])
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		b := endFrame(append(append(beginFrame(nil, frameType(kind), 3), payload...), "behind"...), 0)
		_, _ = newFrameReader(bytes.NewReader(b[:len(b)-6]), 3).wait()
		_, _ = decodeHello(payload)
		_, _ = decodeRefusal(payload)
		_, _ = decodePing(payload)
		_, _ = decodePong(payload)
		m, err := decodeMessage(frame{kind: frameType(kind), payload: payload})
		if err != nil || sendable(&m) != nil {
			return
		}
		if diff := cmp.Diff(m, roundTrip(t, appendMessage(nil, &m, 3)), same...); diff != "" {
			t.Fatal(diff)
		}
	})
}

func benchMessage(entries, bytes int) node.Message {
	m := appendOf(1, 2, 1000, bytes)
	for i := 1; i < entries; i++ {
		m.Raft.Entries = append(m.Raft.Entries, &pb.Entry{Term: new(uint64(1)), Index: new(uint64(1001 + i)), Data: make([]byte, bytes)})
	}
	return m
}

// BenchmarkCodec compares with protobuf; ours includes frame and checksum.
func BenchmarkCodec(b *testing.B) {
	for name, m := range map[string]node.Message{"heartbeat": heartbeat(1, 2, 3), "64x1kB": benchMessage(64, 1000), "512x40B": benchMessage(512, 40)} {
		enc := appendMessage(nil, &m, 3)
		pbEnc, err := proto.Marshal(m.Raft)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/encode/ours", func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, len(enc))
			for b.Loop() {
				buf = appendMessage(buf[:0], &m, 3)
			}
		})
		b.Run(name+"/encode/proto", func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, len(pbEnc))
			for b.Loop() {
				buf, _ = proto.MarshalOptions{}.MarshalAppend(buf[:0], m.Raft)
			}
		})
		b.Run(name+"/decode/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := roundTrip(b, enc); got.Raft == nil {
					b.Fatal("lost")
				}
			}
		})
		b.Run(name+"/decode/proto", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(pbEnc, new(pb.Message)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
