package node

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// What a snapshot leaves of the entries that it covers is bounded in bytes as well as
// in number: entries may be of any size.
func TestG39_TailIsBoundedInBytes(t *testing.T) {
	for _, c := range []struct {
		size int    // of an entry's data
		tail uint64 // entries to keep
		want int
	}{
		{1 << 20, 4096, 15},
		{1 << 20, 4, 4},
		{10, 4096, 100},
		{MaxTailBytes, 4096, 0},
	} {
		l, err := newMemoryLog(nil, SnapshotMeta{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var entries []*pb.Entry
		for i := range uint64(102) {
			entries = append(entries, &pb.Entry{Index: new(i + 1), Term: new(uint64(1)), Data: make([]byte, c.size)})
			if c.size == MaxTailBytes {
				entries[i].Data = nil
			}
		}
		if c.size == MaxTailBytes {
			entries[99].Data = make([]byte, c.size)
		}
		l.append(entries)
		l.snapshotTaken(SnapshotMeta{Index: 100, Term: 1}, c.tail, 101)
		if got := len(l.entries) - 2; got != c.want {
			t.Errorf("entries of %d bytes, at most %d: %d are kept, want %d", c.size, c.tail, got, c.want)
		}
		if first, _ := l.FirstIndex(); first != uint64(101-c.want) || l.last() != 102 {
			t.Errorf("entries of %d bytes: from %d to %d", c.size, first, l.last())
		}
		var bytes int64
		for _, e := range l.entries {
			bytes += entryCost(e)
		}
		if bytes != l.bytes {
			t.Errorf("entries of %d bytes: they cost %d, counted %d", c.size, bytes, l.bytes)
		}
	}
}
