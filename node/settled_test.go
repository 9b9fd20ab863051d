package node

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// run is an append of the entries from first to last.
func run(first, last uint64) *Append {
	a := &Append{MustSync: true}
	for i := first; i <= last; i++ {
		a.Entries = append(a.Entries, &pb.Entry{Index: new(i)})
	}
	return a
}

// TestStaleTail: what an append under way replaces counts for nothing until the
// append is durable, however far raft knows the new entries to be committed.
func TestStaleTail(t *testing.T) {
	const index = 1000
	var s staleTail
	want := func(what string, n uint64) {
		t.Helper()
		if got := s.below(index); got != n {
			t.Errorf("%s: up to %d, want %d", what, got, n)
		}
	}
	a, b := run(11, 20), run(21, 30)
	s.submits(a, 10)
	s.submits(b, 10)
	want("entries that follow one another", index)
	s.appended(a)
	c, d := run(25, 26), run(18, 19) // of two later leaders
	s.submits(c, 20)
	want("a tail that is still being written is replaced", 24)
	s.submits(d, 20)
	f := run(20, 40) // follows, but the disk has another entry there
	s.submits(f, 20)
	want("more of it is", 17)
	s.appended(b)
	s.appended(c)
	want("the last one is still under way", 17)
	s.appended(d)
	want("what follows it is", 17)
	s.appended(f)
	want("all is durable", index)
	snapshot := &Append{Snapshot: &pb.Snapshot{}}
	s.replaces(snapshot, 15)
	e := run(51, 52)
	s.submits(e, 40)
	want("a snapshot is under way", 15)
	s.appended(snapshot)
	s.appended(e)
	want("the snapshot is there", index)
}
