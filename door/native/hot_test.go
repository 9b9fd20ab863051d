package native

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/lease"
)

// A stream that sends thousands of extensions is refused what is beyond those that it may
// have without an answer: of frames with one token, and of beats by how many sessions they
// extend. They take little of the lane, and what others ask for is let in meanwhile: the
// lanes before it, and the beats of others.
func TestG40_OneStreamDoesNotFillTheLaneOfExtensions(t *testing.T) {
	const messages, little = 20, admit.DefaultStart / 2
	for _, sessions := range []int{0, 3} {
		frame := beatMessage
		if sessions == 0 {
			frame = func(id uint64) *pb.ClientFrame { return tokensMessage(id, 0, 1<<40) }
		}
		lanes := newLanes(t)
		m := newMember(t, func(c *Config) { c.Admission = lanes })
		other := m.dial()
		id := incumbent.NewSessionID().String()
		other.ok(openFrame(1, id, 15000))
		other.ok(attachFrame(2, id, 1))
		w := m.dial()
		for i := range sessions {
			id := incumbent.NewSessionID().String()
			w.ok(openFrame(uint64(1+2*i), id, 15000))
			w.ok(attachFrame(uint64(2+2*i), id, 1))
		}
		eventually(t, "nothing is under way", func() bool { return m.door.Stats().Calls == 0 && !m.door.lanes.Busy() })
		m.group.Hold()
		most := MaxExtendsPerStream / (1 + sessions)
		n := 0
		for range messages {
			var frames []*pb.ClientFrame
			for range MaxFrames {
				n++
				frames = append(frames, frame(uint64(100+n)))
			}
			w.send(frames...)
		}
		for i := most; i < n; i++ {
			if f := w.next(); f.Id != uint64(100+i+1) || f.Error.GetKind() != incumbent.Overloaded.String() {
				t.Fatalf("%d sessions, frame %d of %d: %v", sessions, i, most, f)
			}
		}
		if got := lanes.Stats()[admit.Extensions].Inflight; got == 0 || got >= little {
			t.Errorf("%d sessions: %d are under way in the lane", sessions, got)
		}
		place, err := m.door.lanes.Enter(admit.Who{}, admit.Logins, 1)
		if err != nil {
			t.Errorf("%d sessions, a login meanwhile: %v", sessions, err)
		}
		place.Leave()
		other.send(beatMessage(3))
		other.settle()
		m.group.Release()
		if f := other.next(); f.GetBeaten().GetHeldMs() == 0 {
			t.Errorf("%d sessions, another's beat: %v", sessions, f)
		}
		for i := range most {
			if f := w.next(); f.Id <= 100 || f.Error != nil {
				t.Fatalf("%d sessions, frame %d of %d: %v", sessions, i, most, f)
			}
		}
		w.ok(frame(1)) // once they are answered there is room again
		eventually(t, "nothing is under way", func() bool { return lanes.Stats()[admit.Extensions].Inflight == 0 })
	}
}

// countedLeases counts what the lease service is asked to extend.
type countedLeases struct {
	Leases
	items atomic.Int64
}

func (c *countedLeases) Extend(b *lease.Batch) {
	c.items.Add(int64(len(b.Items)))
	c.Leases.Extend(b)
}

// What keeps a critical lease is let in when the lane of extensions refuses, and nothing
// else that came with it: in a frame, a call, a batch.
func TestG40_OnlyWhatIsCriticalIsLetIn(t *testing.T) {
	lanes := newLanes(t)
	var counted *countedLeases
	m := newMember(t, func(c *Config) {
		counted = &countedLeases{Leases: c.Leases}
		c.Admission, c.Leases = lanes, counted
	})
	w := m.dial()
	claimed := func(f *pb.ClientFrame, critical bool) uint64 {
		f.GetOperation().GetClaim().Critical = critical
		return w.ok(f).GetOperation().GetClaim().Lease.Token
	}
	vital := claimed(claimFrame(1, "vital", "h", "", false), true)
	var tokens, others []uint64
	for i := range uint64(1000) {
		if i == 500 {
			tokens = append(tokens, vital)
		} else {
			tokens = append(tokens, vital+1000+i)
			others = append(others, vital+1000+i)
		}
	}
	lanes.SetMemory(99, 100)
	asked := func(what string, want int64) {
		t.Helper()
		if n := counted.items.Swap(0); n != want {
			t.Errorf("%s: %d were asked for, want %d", what, n, want)
		}
	}
	counted.items.Store(0)
	e := w.ok(tokensMessage(2, 0, tokens...)).GetTokensExtended()
	if !slices.Equal(e.GetUnavailable(), others) || e.RetryAfterMs == 0 || e.HeldMs != 15000 || len(e.NotHeld) > 0 {
		t.Errorf("a frame: held for %d ms, %d not held, %d of %d unavailable, again after %d ms", e.GetHeldMs(), len(e.GetNotHeld()), len(e.GetUnavailable()), len(others), e.GetRetryAfterMs())
	}
	asked("a frame", 1)

	extend := &pb.ExtendRequest{}
	batch := &pb.BatchRequest{}
	for _, token := range tokens {
		x := &pb.Extension{Token: token}
		extend.Extensions = append(extend.Extensions, x)
		batch.Operations = append(batch.Operations, &pb.Operation{Op: &pb.Operation_Extend{Extend: x}})
	}
	calls := incumbentv1connect.NewLeaseServiceClient(http.DefaultClient, m.url)
	results := func(what string, got []*pb.ExtensionResult, err error) {
		t.Helper()
		if err != nil || len(got) != len(tokens) {
			t.Fatalf("%s: %d results, %v", what, len(got), err)
		}
		for i, r := range got {
			if held := tokens[i] == vital; held != (r.HeldMs > 0) || !held && (r.Error.GetKind() != incumbent.Overloaded.String() || r.Error.RetryAfterMs == 0) {
				t.Errorf("%s, %d: %v", what, i, r)
			}
		}
		asked(what, 1)
	}
	out, err := calls.Extend(t.Context(), connect.NewRequest(extend))
	results("a call", out.Msg.GetResults(), err)
	done, err := calls.Batch(t.Context(), connect.NewRequest(batch))
	var list []*pb.ExtensionResult
	for _, r := range done.Msg.GetResults() {
		if r.Error != nil {
			list = append(list, &pb.ExtensionResult{Error: r.Error})
		} else {
			list = append(list, r.GetExtend())
		}
	}
	results("a batch", list, err)
}

// A beat has one answer for all of its sessions: one of them that keeps a critical lease
// keeps all.
func TestG40_ABeatIsKeptWhole(t *testing.T) {
	lanes := newLanes(t)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	w := m.dial()
	var one string
	for i := range uint64(3) {
		one = incumbent.NewSessionID().String()
		w.ok(openFrame(1+2*i, one, 15000))
		w.ok(attachFrame(2+2*i, one, 1))
	}
	beat := func() *pb.ServerFrame {
		lanes.SetMemory(99, 100)
		defer lanes.SetMemory(0, 100)
		return w.ask(beatMessage(10))
	}
	if f := beat(); f.Error.GetKind() != incumbent.Overloaded.String() {
		t.Errorf("without a critical lease: %v", f)
	}
	f := claimFrame(20, "vital", "h", one, false)
	f.GetOperation().GetClaim().Critical = true
	w.ok(f)
	if f := beat(); f.GetBeaten().GetHeldMs() == 0 {
		t.Errorf("with one: %v", f)
	}
}
