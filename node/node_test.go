package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/vfs"
)

// running is a node under test with what it stands on.
type running struct {
	*Node
	t       testing.TB
	machine *journal
	err     chan error
}

// stand is the disk that lives on when a node does not.
type stand struct{ fs *vfs.Mem }

func newStand() *stand { return &stand{fs: vfs.NewMem()} }

func (s *stand) start(t testing.TB, change func(*Config)) *running {
	t.Helper()
	r := s.startUnready(t, change)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.WaitReady(ctx); err != nil {
		t.Fatalf("wait for ready: %v", err)
	}
	return r
}

func (s *stand) startUnready(t testing.TB, change func(*Config)) *running {
	t.Helper()
	watch(t)
	r := &running{t: t, machine: &journal{}, err: make(chan error, 1)}
	cfg := Config{FS: s.fs, Dir: "/data", Machine: r.machine, Schema: 1, DiskReserve: -1, SegmentBytes: MinSegmentBytes}
	if change != nil {
		change(&cfg)
	}
	n, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	r.Node = n
	go func() { r.err <- n.Run(context.Background()) }()
	t.Cleanup(func() { _ = r.close() }) // a test that failed may have left a disk that hangs
	return r
}

// stop closes the node and returns what Run returned.
func (r *running) stop() error {
	r.t.Helper()
	if err := r.close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	return <-r.err
}

// close closes the node, but does not wait for a disk that hangs.
func (r *running) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.Close(ctx)
}

// propose proposes one command and waits for its answer.
func (r *running) propose(cmd string) (any, error) {
	type answer struct {
		result any
		err    error
	}
	c := make(chan answer, 1)
	r.Propose(Proposal{Command: []byte(cmd), Done: func(v any, err error) { c <- answer{v, err} }})
	a := <-c
	return a.result, a.err
}

func (r *running) mustPropose(cmd string) {
	r.t.Helper()
	if _, err := r.propose(cmd); err != nil {
		r.t.Fatalf("propose %q: %v", cmd, err)
	}
}

// confirm waits for a read confirmation.
func (r *running) confirm() (uint64, error) {
	type answer struct {
		term uint64
		err  error
	}
	c := make(chan answer, 1)
	r.Confirm(func(term uint64, err error) { c <- answer{term, err} })
	a := <-c
	return a.term, a.err
}

// TestOneMember lives three lives, in virtual time: how long a start takes is how
// long it waits.
func TestOneMember(t *testing.T) { synctest.Test(t, oneMember) }

func oneMember(t *testing.T) {
	s := newStand()
	var want []string
	for life := range 3 {
		began := time.Now()
		r := s.start(t, nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("life %d: start took %v; a sole voter waits for no election", life, took)
		}
		if got := r.machine.list(); !slices.Equal(got, want) {
			t.Errorf("life %d: got %v after start, want %v", life, got, want)
		}
		for i := range 10 {
			cmd := fmt.Sprintf("%d-%d", life, i)
			want = append(want, cmd)
			if v, err := r.propose(cmd); err != nil || v != len(want) {
				t.Fatalf("propose: got %v, %v, want %d", v, err, len(want))
			}
		}
		term, err := r.confirm()
		if err != nil || term != r.Status().Term {
			t.Errorf("confirm: got term %d, %v; status says %d", term, err, r.Status().Term)
		}
		if r.machine.mu.Lock(); !slices.Equal(r.machine.leads, []uint64{term}) {
			t.Errorf("the machine was told of leadership in terms %v, want once, of %d", r.machine.leads, term)
		}
		r.machine.mu.Unlock()
		if st := r.Status(); st.State != Leader || !st.Ready || st.Incarnation != uint64(life+1) {
			t.Errorf("status: %+v", st)
		}
		if life == 1 {
			if _, err := r.Snapshot(t.Context()); err != nil {
				t.Fatalf("snapshot: %v", err)
			}
		}
		if err := r.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	}
}
