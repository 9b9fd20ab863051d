//go:build unix

package native

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/watch"
)

// hoard opens session A and has it claim n leases with long names. What changed
// at their end is several times what a connection may queue.
func (m *member) hoard(n int) (w *wire) {
	m.tb.Helper()
	m.park.SetLimits(park.Limits{MaxQueuedBytes: MaxWatchBacklog + 4*pullBytes, WriteTimeout: time.Hour})
	w = m.dial()
	w.ok(openFrame(1, sessionA, 60_000))
	holder := strings.Repeat("h", incumbent.MaxHolderBytes)
	const together, slice = 1500, 250 // of what a stream may have unanswered, and of a message
	for from := 0; from < n; from += together {
		// In few batches: where invariants are asserted, each has all looked at.
		to, proposed := min(from+together, n), m.group.Proposed()
		m.group.Hold()
		for i := from; i < to; i += slice {
			var frames []*pb.ClientFrame
			for k := i; k < min(i+slice, to); k++ {
				frames = append(frames, claimFrame(uint64(k+1), hoarded(k), holder, sessionA, false))
			}
			w.send(frames...)
		}
		for m.group.Proposed() < proposed+int64(to-from) {
			runtime.Gosched()
		}
		m.group.Release()
		for range to - from {
			if f := w.next(); f.Error != nil || f.GetOperation().GetError() != nil {
				m.tb.Fatalf("claim: %v", f)
			}
		}
	}
	return w
}

func hoarded(i int) string { return fmt.Sprintf("p/%0238d", i) }

// collector checks that changes come in order, once, and whole by progress.
type collector struct {
	t        *testing.T
	progress uint64
	held     []*pb.LeaseEvent // of an index that is not whole yet
	got      map[string]int
	messages int
}

func newCollector(t *testing.T, after uint64) *collector {
	return &collector{t: t, progress: after, got: map[string]int{}}
}

func (c *collector) take(r *pb.WatchResponse) {
	c.t.Helper()
	c.messages++
	if n := proto.Size(r); n > 2*pullBytes {
		c.t.Fatalf("a message of %d bytes", n)
	}
	for _, e := range r.Events {
		if e.Index <= c.progress || len(c.held) > 0 && e.Index < c.held[len(c.held)-1].Index {
			c.t.Fatalf("event %d after everything up to %d", e.Index, c.progress)
		}
		c.held = append(c.held, e)
	}
	c.progress = max(c.progress, r.ProgressIndex)
	rest := c.held[:0]
	for _, e := range c.held {
		if e.Index > c.progress {
			rest = append(rest, e)
			continue
		}
		c.got[e.What+" "+e.Lease.Name.Name]++
	}
	c.held = rest
	if r.More != (len(c.held) > 0) {
		c.t.Fatalf("more is %v, %d events are above progress %d", r.More, len(c.held), c.progress)
	}
}

func (c *collector) check(n int) {
	c.t.Helper()
	if len(c.got) != n {
		c.t.Fatalf("%d changes of %d", len(c.got), n)
	}
	for what, times := range c.got {
		if times != 1 {
			c.t.Errorf("%q was told %d times", what, times)
		}
	}
}

// The end of a session whose leases are more than any connection may queue
// reaches everybody who watches, in pieces: who reads, who comes back in the
// middle of it, who asks by a call, while some do not read at all.
func TestG15_G16_G18_AnIndexLargerThanAQueue(t *testing.T) {
	const leases = 3000
	m := newMember(t)
	worker := m.hoard(leases)
	before := m.hubIndex()
	var stuck []*wire
	for range 3 {
		w := m.dial()
		w.send(watchFrameOf(1, "p/", before))
		w.next()
		stuck = append(stuck, w)
	}
	reading, leaving := m.dial(), m.dial()
	for _, w := range []*wire{reading, leaving} {
		w.send(watchFrameOf(1, "p/", before))
		w.next()
	}
	end := worker.ok(closeSessionFrame(1<<20, sessionA)).GetOperation().GetCloseSession().Index

	follow := func(c *collector, w *wire, enough func() bool) {
		t.Helper()
		for !enough() {
			f := w.next()
			if f.Error != nil {
				t.Fatalf("cut off: %v", f.Error)
			}
			c.take(f.GetWatch())
		}
	}
	c := newCollector(t, before)
	follow(c, reading, func() bool { return c.progress >= end })
	c.check(leases)

	again := newCollector(t, before)
	follow(again, leaving, func() bool { return len(again.held) > 0 && again.messages > 2 })
	leaving.conn.Close()
	again.held = nil // as the protocol says
	back := m.dial()
	back.send(watchFrameOf(9, "p/", again.progress))
	follow(again, back, func() bool { return again.progress >= end })
	again.check(leases)

	for name, o := range map[string]connect.ClientOption{
		"proto": connect.WithClientOptions(), "grpc": connect.WithGRPC(), "json": connect.WithProtoJSON(),
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := m.leaseClient(o).Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("p/"), Prefix: true, AfterIndex: before}))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			c := newCollector(t, before)
			for c.progress < end && stream.Receive() {
				c.take(stream.Msg())
			}
			if stream.Err() != nil {
				t.Fatal(stream.Err())
			}
			c.check(leases)
		})
	}

	// Who did not read was neither cut off nor given more than its share.
	for _, w := range stuck {
		c := newCollector(t, before)
		follow(c, w, func() bool { return c.progress >= end })
		c.check(leases)
	}
}

// Events are encoded once for all watches of a form: writing a piece again costs
// a copy and nothing else.
func TestG21_PiecesShareTheirEncoding(t *testing.T) {
	m := newMember(t)
	m.hoard(100)
	r, err := m.group.Hub().Subscribe(0, func() {}, watch.All(engine.FamilyTopic(leases.Number, leases.TopicOf(incumbent.Name{})).Kind))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := r.Pull(nil, pullEvents, pullBytes)
	if err != nil {
		t.Fatal(err)
	}
	p := m.door.piece(form{}, b)
	for name, write := range map[string]func([]byte) []byte{
		"proto": func(b []byte) []byte { b, _ = protoCodec{}.MarshalAppend(b, p); return b },
		"json":  p.appendJSON,
	} {
		first := bytes.Clone(write(nil))
		cost := m.group.Hub().Stats().HistoryBytes
		buf := make([]byte, 0, 2*len(first))
		if n := testing.AllocsPerRun(10, func() { buf = write(buf[:0]) }); n > 0 {
			t.Errorf("%s: written again with %v allocations", name, n)
		}
		if !bytes.Equal(first, buf) || m.group.Hub().Stats().HistoryBytes != cost {
			t.Errorf("%s: written again it differs, or was made again", name)
		}
		var got pb.WatchResponse
		if name == "json" {
			err = protojson.Unmarshal(first, &got)
		} else {
			err = proto.Unmarshal(first, &got)
		}
		if err != nil || len(got.Events) != len(b.Events) || got.ProgressIndex != uint64(b.Progress) || got.Events[0].Lease.Name.Name != hoarded(0) {
			t.Errorf("%s: got %v, %v", name, &got, err)
		}
	}
}

// A session's list comes in pages that together are all of it, over a stream as
// by a call, and so does what attaching tells.
func TestG18_ASessionIsToldInPages(t *testing.T) {
	const leases = 1100
	m := newMember(t)
	w := m.hoard(leases)
	w.ok(claimFrame(1, "a/theirs", "other", "", false))
	w.ok(claimFrame(2, "z/theirs", "other", "", false))
	w.ok(claimFrame(3, "a/theirs", "h", sessionA, true))
	w.ok(claimFrame(4, "z/theirs", "h", sessionA, true))
	m.park.SetLimits(park.Limits{WriteTimeout: time.Hour})

	a := w.ok(attachFrame(5, sessionA, 1)).GetAttached()
	if a.Session.Leases != leases || a.Next == nil || proto.Size(a) > 2*pageBytes {
		t.Fatalf("attached: %d bytes, %v", proto.Size(a), a.Session)
	}
	seen := map[string]int{}
	take := func(held []*pb.Lease, waits []*pb.LeaseName) {
		for _, l := range held {
			seen[l.Name.Name]++
		}
		for _, n := range waits {
			seen[n.Name]++
		}
	}
	check := func() {
		t.Helper()
		if len(seen) != leases+2 || seen["a/theirs"] != 1 || seen["z/theirs"] != 1 || seen[hoarded(7)] != 1 {
			t.Fatalf("%d names", len(seen))
		}
		clear(seen)
	}
	take(a.Leases, a.Waits)
	for next := a.Next; next != nil; {
		g := w.ok(&pb.ClientFrame{Id: 6, Request: &pb.ClientFrame_GetSession{GetSession: &pb.GetSessionRequest{Id: sessionA, After: next}}}).GetGetSession()
		take(g.Leases, g.Waits)
		next = g.Next
	}
	check()

	c := incumbentv1connect.NewSessionServiceClient(http.DefaultClient, m.url)
	for next, more := (*pb.LeaseName)(nil), true; more; more = next != nil {
		g, err := c.GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Id: sessionA, After: next, Limit: 10_000}))
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(g.Msg); n > 2*pageBytes {
			t.Fatalf("a page of %d bytes", n)
		}
		take(g.Msg.Leases, g.Msg.Waits)
		next = g.Msg.Next
	}
	check()
	if _, err := c.GetSession(t.Context(), connect.NewRequest(&pb.GetSessionRequest{Id: sessionA, Limit: MaxPage + 1})); kindOf(err) != incumbent.Invalid {
		t.Errorf("a page too large: %v", err)
	}
}

// A watch that resumes after an index that the cluster does not have is told,
// over a stream and by a call. It is asked of the cluster first: a member that is
// behind does not take itself for it.
func TestG14_G16_ResumeAfterAnIndexToCome(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(claimFrame(1, "p/0", "h", "", false))
	at := m.hubIndex()
	call := func(after uint64) (*connect.ServerStreamForClient[pb.WatchResponse], error) {
		return m.leaseClient().Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("p/"), Prefix: true, AfterIndex: after}))
	}
	m.group.Hold() // nothing is confirmed, while others go on
	lagging := m.dial()
	lagging.send(watchFrameOf(7, "p/", at+1))
	lagging.settle()
	m.group.Do(leases.ClaimCommand{Name: incumbent.Name{Namespace: "default", Model: "default", Lease: "p/1"}, Holder: "h", TTL: time.Minute})
	m.group.Release()
	if f := lagging.next(); f.Id != 7 || f.Error != nil || len(f.GetWatch().Events) > 0 || f.GetWatch().ProgressIndex != at+1 {
		t.Fatalf("got %v", f)
	}

	at = m.hubIndex()
	if f := w.ask(watchFrameOf(8, "p/", at+1)); f.Error.GetKind() != "compacted" || f.Error.Hint == "" {
		t.Fatalf("a stream got %v", f)
	}
	w.ok(claimFrame(2, "p/2", "h", "", false)) // which has that index, and nobody is told of it
	w.ok(beatMessage(3))
	stream, err := call(at + 2)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Receive() || kindOf(stream.Err()) != incumbent.Compacted {
		t.Fatalf("a call got %v, %v", stream.Msg(), stream.Err())
	}
}
