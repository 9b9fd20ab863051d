package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// mailbox is a transport that keeps what is sent.
type mailbox struct{ ms []Message }

func (b *mailbox) Send(ms []Message) { b.ms = append(b.ms, ms...) }

// taken returns the answers to pieces since the last call.
func (b *mailbox) taken() []Taken {
	var ts []Taken
	for _, m := range b.ms {
		if m.Taken != nil {
			ts = append(ts, *m.Taken)
		}
	}
	b.ms = nil
	return ts
}

// lone is member 1 of three; the others are the test.
type lone struct {
	*Manual
	t       *testing.T
	fs      *vfs.Mem
	machine *journal
	box     *mailbox
}

func newLone(t *testing.T) *lone {
	t.Helper()
	l := &lone{t: t, fs: vfs.NewMem()}
	foundMember(t, l.fs, 1, trioIDs)
	l.open()
	return l
}

func (l *lone) open() {
	l.t.Helper()
	l.machine, l.box = &journal{}, &mailbox{}
	m, err := OpenManual(Config{
		FS: l.fs, Dir: "/data", Machine: l.machine, Schema: 1, DiskReserve: -1, SegmentBytes: MinSegmentBytes, Transport: l.box,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.Manual = m
}

// settle does all there is to do.
func (l *lone) settle() {
	l.t.Helper()
	n := rounds(0)
	for busy := true; busy; n.next() {
		l.Turn(false)
		appended, err := l.Append()
		if err != nil {
			l.t.Fatal(err)
		}
		applied, err := l.Apply()
		if err != nil {
			l.t.Fatal(err)
		}
		loop, _, _ := l.Busy()
		busy = appended || applied || loop
	}
}

// offered is a snapshot that member 2 offers.
type offered struct {
	header  snapshotHeader
	term    uint64 // of the leader
	content []byte
	mark    wal.SnapshotMark
	msg     *pb.Message
}

// offer makes a snapshot file of a few pieces, with one command of each number
// up to n.
func (l *lone) offer(h snapshotHeader, term uint64, n int) *offered {
	l.t.Helper()
	var state []byte
	for i := range n {
		c := fmt.Sprintf("%d-%s", i, strings.Repeat("x", 1000))
		state = append(binary.AppendUvarint(state, uint64(len(c))), c...)
	}
	var b bytes.Buffer
	w, err := newSnapshotWriter(&b, h)
	if err == nil {
		_, err = w.Write(state)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return &offered{header: h, term: term, content: b.Bytes(), mark: w.mark(h.Meta, ""), msg: snapshotMessage(h.Meta, term)}
}

func snapshotMessage(meta SnapshotMeta, term uint64) *pb.Message {
	return &pb.Message{
		Type: pb.MsgSnap.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(term),
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(meta.Index), Term: new(meta.Term), ConfState: meta.ConfState}},
	}
}

func snapshotOf(index, term uint64, voters ...uint64) snapshotHeader {
	return snapshotHeader{Schema: 1, Meta: SnapshotMeta{Index: index, Term: term, ConfState: pb.EnsureConfState(&pb.ConfState{Voters: voters})}}
}

// piece returns the i-th piece.
func (o *offered) piece(i int) *Chunk {
	at := i * MaxChunkBytes
	return &Chunk{
		Index: o.mark.Index, Term: o.mark.Term, Bytes: o.mark.Bytes, Checksum: o.mark.Checksum,
		Offset: int64(at), Data: o.content[at:min(at+MaxChunkBytes, len(o.content))], Raft: o.msg,
	}
}

func (o *offered) pieces() int { return (len(o.content) + MaxChunkBytes - 1) / MaxChunkBytes }

// give hands in pieces and returns the answers.
func (l *lone) give(cs ...*Chunk) []Taken {
	l.t.Helper()
	for _, c := range cs {
		l.Step(Message{From: 2, To: 1, Chunk: c})
		l.settle()
	}
	return l.box.taken()
}

// giveAll hands in all pieces, up to one that is refused, as a sender does.
func (l *lone) giveAll(o *offered) []Taken {
	l.t.Helper()
	var ts []Taken
	for i := range o.pieces() {
		got := l.give(o.piece(i))
		ts = append(ts, got...)
		if slices.ContainsFunc(got, func(t Taken) bool { return t.Failed != "" }) {
			break
		}
	}
	return ts
}

func (l *lone) files() []string {
	l.t.Helper()
	names, err := l.fs.List("/data/snap")
	if err != nil {
		l.t.Fatal(err)
	}
	return names
}

// offsets returns what answers say has arrived.
func offsets(ts []Taken) []int64 {
	var got []int64
	for _, t := range ts {
		got = append(got, t.Offset)
	}
	return got
}

// TestPiecesInOrder gives pieces in every order and wants each answered with
// what is there, and the whole restored and installed.
func TestPiecesInOrder(t *testing.T) {
	l := newLone(t)
	o := l.offer(snapshotOf(50, 5, 1, 2, 3), 6, 200)
	if o.pieces() != 4 {
		t.Fatalf("%d pieces", o.pieces())
	}
	const p = MaxChunkBytes
	got := l.give(o.piece(1), o.piece(0), o.piece(0), o.piece(2), o.piece(1), o.piece(3), o.piece(2))
	if want := []int64{0, p, p, p, 2 * p, 2 * p, 3 * p}; !slices.Equal(offsets(got), want) {
		t.Errorf("answers %v, want %v", offsets(got), want)
	}
	got = l.give(o.piece(3))
	if len(got) != 1 || !got[0].Done || got[0].Offset != o.mark.Bytes {
		t.Fatalf("answer to the last piece: %+v, want done", got)
	}
	check := func() {
		t.Helper()
		if n := len(l.machine.list()); n != 200 {
			t.Errorf("%d commands, want 200", n)
		}
		if st := l.Status(); st.Applied != 50 || st.Commit != 50 || st.Snapshot != 50 || st.First != 51 {
			t.Errorf("status %+v", st)
		}
		if n := l.snapshots.kept.holds(); n != 0 || len(l.files()) != 1 {
			t.Errorf("%d files held, files %v", n, l.files())
		}
	}
	check()
	if got := l.give(o.piece(0)); len(got) != 1 || !got[0].Done {
		t.Errorf("answer to a snapshot that is here: %+v, want done", got)
	}
	l.fs = l.fs.Clone()
	l.open()
	l.settle()
	check()
}

// TestUnfitSnapshots offers files that must not be installed. The member stays
// as it is.
func TestUnfitSnapshots(t *testing.T) {
	fits := func() snapshotHeader { return snapshotOf(50, 5, 1, 2, 3) }
	for name, tc := range map[string]struct {
		header snapshotHeader
		change func(*offered)
		want   string // in the answer; "": none
	}{
		"other group":        {header: func() snapshotHeader { h := fits(); h.Group = 9; return h }(), want: "group 9"},
		"newer schema":       {header: func() snapshotHeader { h := fits(); h.Schema = 2; return h }(), want: "schema 2"},
		"without the member": {header: snapshotOf(50, 5, 2, 3), want: "not what this member needs"},
		"other index": {header: fits(), want: "file covers index 50", change: func(o *offered) {
			o.mark.Index = 60
			o.msg = snapshotMessage(snapshotOf(60, 5, 1, 2, 3).Meta, 6)
		}},
		"other members": {header: fits(), want: "other members", change: func(o *offered) {
			o.msg = snapshotMessage(snapshotOf(50, 5, 1, 2, 3, 4).Meta, 6)
		}},
		"wrong checksum": {header: fits(), want: "checksum", change: func(o *offered) { o.mark.Checksum[0] ^= 1 }},
		"flipped bit":    {header: fits(), want: "checksum", change: func(o *offered) { o.content[70_000] ^= 1 }},
		"no snapshot": {header: fits(), want: "magic", change: func(o *offered) {
			o.content[0] ^= 1
			o.mark.Checksum = sha256.Sum256(o.content)
		}},
		"message of another":   {header: fits(), change: func(o *offered) { o.msg.Type = pb.MsgApp.Enum() }},
		"message to another":   {header: fits(), change: func(o *offered) { o.msg.To = new(uint64(3)) }},
		"message from another": {header: fits(), change: func(o *offered) { o.msg.From = new(uint64(3)) }},
		"negative length":      {header: fits(), change: func(o *offered) { o.mark.Bytes = -1 }},
		"too short":            {header: fits(), change: func(o *offered) { o.mark.Bytes = 1 }},
	} {
		l := newLone(t)
		o := l.offer(tc.header, 6, 200)
		if tc.change != nil {
			tc.change(o)
		}
		before := l.files()
		ts := l.giveAll(o)
		var failed string
		if len(ts) > 0 {
			failed = ts[len(ts)-1].Failed
		}
		if tc.want == "" && len(ts) != 0 || !strings.Contains(failed, tc.want) {
			t.Errorf("%s: answers %+v, want %q", name, ts, tc.want)
		}
		if st := l.Status(); st.Applied != 1 || st.Snapshot != 1 || len(l.machine.list()) != 0 {
			t.Errorf("%s: status %+v", name, st)
		}
		if n := l.snapshots.kept.holds(); n != 0 || !slices.Equal(l.files(), before) {
			t.Errorf("%s: %d files held, files %v", name, n, l.files())
		}
		fit := l.offer(fits(), 7, 10)
		if ts := l.giveAll(fit); !ts[len(ts)-1].Done || len(l.machine.list()) != 10 {
			t.Errorf("%s: the next one, which fits: %+v", name, ts)
		}
	}
}

// TestUnfitHeadersAreRefusedAtOnce offers files of which the first piece says that they must
// not be installed, or is damaged: that the sender is to look at its file only the checksum
// of the whole says.
func TestUnfitHeadersAreRefusedAtOnce(t *testing.T) {
	fits := snapshotOf(50, 5, 1, 2, 3)
	newer, other := fits, fits
	newer.Schema++
	other.Group = 9
	for name, tc := range map[string]struct {
		header snapshotHeader
		want   string // in the answer to the first piece; "": only the last one fails
	}{
		"newer schema":   {header: newer, want: "schema 2"},
		"other group":    {header: other, want: "group 9"},
		"damaged header": {header: fits},
	} {
		l := newLone(t)
		o := l.offer(tc.header, 6, 200)
		if tc.want == "" {
			o.content[20] ^= 1
		}
		before := l.files()
		ts := l.give(o.piece(0))
		if len(ts) != 1 || !strings.Contains(ts[0].Failed, tc.want) || (ts[0].Failed == "") != (tc.want == "") || ts[0].Offset != MaxChunkBytes {
			t.Errorf("%s: answer to the first piece %+v, want %q", name, ts, tc.want)
		}
		if tc.want == "" {
			ts = l.giveAll(o)
			if last := ts[len(ts)-1]; !strings.Contains(last.Failed, "checksum") || last.Offset != o.mark.Bytes {
				t.Errorf("%s: answer to the last piece %+v", name, last)
			}
		}
		if n := l.snapshots.kept.holds(); n != 0 || !slices.Equal(l.files(), before) {
			t.Errorf("%s: %d files held, files %v", name, n, l.files())
		}
	}
}

// TestOneFileAtATime offers pieces of two files in turns.
func TestOneFileAtATime(t *testing.T) {
	l := newLone(t)
	first := l.offer(snapshotOf(50, 5, 1, 2, 3), 6, 200)
	older := l.offer(snapshotOf(40, 5, 1, 2, 3), 6, 200)
	newer := l.offer(snapshotOf(45, 5, 1, 2, 3), 7, 150)
	l.give(first.piece(0))
	if ts := l.give(older.piece(0)); len(ts) != 0 {
		t.Errorf("answers to an older snapshot: %+v, want none", ts)
	}
	if ts := l.give(first.piece(1)); len(ts) != 1 || ts[0].Offset != 2*MaxChunkBytes {
		t.Errorf("answers to the first one: %+v", ts)
	}
	if ts := l.give(newer.piece(0)); len(ts) != 1 || ts[0].Offset != MaxChunkBytes || ts[0].Checksum != newer.mark.Checksum {
		t.Errorf("answers to a later leader's: %+v", ts)
	}
	if names := l.files(); len(names) != 2 {
		t.Errorf("files: %v, want the current one and one part", names)
	}
	if ts := l.give(first.piece(2)); len(ts) != 0 {
		t.Errorf("answers to the one given up: %+v, want none", ts)
	}
	l.giveAll(newer)
	if n := len(l.machine.list()); n != 150 {
		t.Errorf("%d commands, want 150", n)
	}
}

// TestPartSurvivesARestart goes on from what is there, unless it is damaged.
func TestPartSurvivesARestart(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		l := newLone(t)
		o := l.offer(snapshotOf(50, 5, 1, 2, 3), 6, 200)
		l.give(o.piece(0), o.piece(1))
		l.fs = l.fs.Clone()
		if damaged {
			i := slices.IndexFunc(l.files(), func(s string) bool { return strings.HasSuffix(s, partSuffix) })
			f, err := l.fs.OpenWrite("/data/snap/" + l.files()[i])
			if err == nil {
				_, err = f.WriteAt([]byte("!!!"), 1000)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		l.open()
		ts := l.give(o.piece(0), o.piece(2), o.piece(3))
		if offsets(ts)[0] != 2*MaxChunkBytes {
			t.Errorf("after a restart: %+v, want to go on at %d", ts, 2*MaxChunkBytes)
		}
		last := ts[len(ts)-1]
		if damaged {
			if !strings.Contains(last.Failed, "checksum") || len(l.files()) != 1 {
				t.Errorf("a damaged part: %+v, files %v", ts, l.files())
			}
			ts = l.giveAll(o)
			last = ts[len(ts)-1]
		}
		if !last.Done || len(l.machine.list()) != 200 {
			t.Errorf("at the end: %+v, %d commands", last, len(l.machine.list()))
		}
	}
}

// TestRaftsOwnSnapshotMessageIsDropped steps one without a file.
func TestRaftsOwnSnapshotMessageIsDropped(t *testing.T) {
	l := newLone(t)
	l.Step(Message{From: 2, To: 1, Raft: snapshotMessage(snapshotOf(50, 5, 1, 2, 3).Meta, 6)})
	l.settle()
	if st := l.Status(); st.Commit != 1 || st.Applied != 1 {
		t.Errorf("status %+v", st)
	}
}

// TestOwnSnapshotBesideARefusedOne has a received snapshot that is not needed any more and
// the bound state of one's own meet in one turn, while the log lacks the last commit index:
// raft's refusal makes an append of it, which must come before the snapshot.
func TestOwnSnapshotBesideARefusedOne(t *testing.T) {
	l := newLone(t)
	ended, end := context.WithCancel(t.Context())
	end() // the file is not written: what matters is that the log lets it begin
	l.run, l.die = ended, func(err error) { t.Error(err) }
	const term = 5
	app := func(commit, prev, prevTerm uint64, entries ...*pb.Entry) {
		l.Step(Message{From: 2, To: 1, Raft: &pb.Message{
			Type: pb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(term)),
			Index: new(prev), LogTerm: new(prevTerm), Commit: new(commit), Entries: entries,
		}})
		l.settle()
	}
	app(1, 1, 1, &pb.Entry{Index: new(uint64(2)), Term: new(uint64(term))})
	app(2, 2, term)
	index := l.Status().Applied
	if index != 2 || l.replica.lagging == nil || l.appender.commit >= index {
		t.Fatalf("applied %d, the log knows commit %d: the test tests nothing", index, l.appender.commit)
	}
	old := l.offer(snapshotOf(2, term, 1, 2, 3), term, 1)
	l.inbox.call(func() {
		l.pieceTaken(2, old.piece(0), &Taken{Offset: old.mark.Bytes}, &received{mark: old.mark, raft: old.msg})
	})
	l.snap.running = true
	l.bound(index, l.machine.Snapshot())
	l.settle() // fails on what would stop a running member
	l.group.Wait()
	if l.snap.bound != nil || l.appender.commit != index {
		t.Errorf("bound: %v, the log knows commit %d, want %d", l.snap.bound, l.appender.commit, index)
	}
}

// TestG31_AReceivedSnapshotLeavesTheReserve offers snapshots to a member whose disk has
// not much space: it says so before it writes any of it.
func TestG31_AReceivedSnapshotLeavesTheReserve(t *testing.T) {
	const reserve = 100 << 10
	l := newLone(t)
	l.cfg.DiskReserve = reserve
	large := l.offer(snapshotOf(50, 5, 1, 2, 3), 6, 300)
	free := func(bytes int64) {
		l.fs.SetCapacity(1 << 40)
		have, err := l.fs.Free("/data")
		if err != nil {
			t.Fatal(err)
		}
		l.fs.SetCapacity(1<<40 - have + bytes)
	}
	free(reserve + large.mark.Bytes/2)
	if ts := l.give(large.piece(0)); len(ts) != 1 || !strings.Contains(ts[0].Failed, "no space") || len(l.files()) != 1 {
		t.Errorf("one that does not fit: %+v, files %v", ts, l.files())
	}
	free(reserve + large.mark.Bytes)
	if ts := l.give(large.piece(0), large.piece(1)); len(ts) != 2 || ts[1].Failed != "" {
		t.Errorf("one that fits: %+v", ts)
	}
	l.fs = l.fs.Clone() // what is missing of it is all that counts
	l.open()
	l.cfg.DiskReserve = reserve
	free(reserve + large.mark.Bytes - 2*MaxChunkBytes)
	if ts := l.giveAll(large); !ts[len(ts)-1].Done {
		t.Errorf("the rest of it: %+v", ts)
	}
}
