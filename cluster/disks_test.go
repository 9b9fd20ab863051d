package cluster

import (
	"slices"
	"testing"
	"time"
)

func TestG31_Needed(t *testing.T) {
	full, low := Disk{Free: 1 << 40}, Disk{Short: true}
	type known = map[uint64]Disk
	three, four := []uint64{1, 2, 3}, []uint64{1, 2, 3, 4}
	for _, x := range []struct {
		name   string
		voters []uint64
		known  known
		want   []uint64
	}{
		{"alone", three[:1], known{1: full}, nil},
		{"alone and short", three[:1], known{1: low}, three[:1]},
		{"all have space", three, known{1: full, 2: full, 3: full}, nil},
		{"one of three", three, known{1: full, 2: low, 3: full}, nil},
		{"two of three", three, known{1: low, 2: low, 3: full}, []uint64{1, 2}},
		{"one, and another is not heard of", three, known{1: full, 2: low}, []uint64{2}},
		{"others are not heard of", three, known{1: full}, nil},
		{"one of two", three[:2], known{1: full, 2: low}, []uint64{2}},
		{"one of four", four, known{1: full, 2: low, 3: full, 4: full}, nil},
		{"two of four", four, known{1: full, 2: low, 3: low, 4: full}, []uint64{2, 3}},
		{"a learner", three, known{1: full, 2: full, 3: full, 9: low}, nil},
		{"nobody votes yet", nil, known{9: low}, nil},
	} {
		if got := needed(x.voters, x.known); !slices.Equal(got, x.want) {
			t.Errorf("%s: got %v, want %v", x.name, got, x.want)
		}
	}
}

func TestDisksForgetAndRefuseFrames(t *testing.T) {
	var s disks
	want := Disk{Short: true, Free: 7, Reserve: 9, Behind: true}
	s.receive(2, encodeDisk(want), time.Second)
	s.receive(3, encodeDisk(want)[:diskBytes-1], time.Second)
	s.receive(4, append(encodeDisk(want), 0), time.Second)
	s.receive(5, []byte{diskKind}, time.Second)
	odd := encodeDisk(want)
	odd[1] = 4
	s.receive(6, odd, time.Second)
	if got := s.fresh(time.Second + diskFresh); len(got) != 1 || got[2] != want {
		t.Errorf("got %v", got)
	}
	if got := s.fresh(time.Second + diskFresh + 1); len(got) != 0 {
		t.Errorf("of old reports: %v", got)
	}
	for id := range uint64(10 * reportersKept) {
		s.receive(id, encodeDisk(want), time.Second)
	}
	if n := len(s.heard); n > reportersKept {
		t.Errorf("%d reports kept", n)
	}
}
