package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/watch"
)

func (m *member) leaseClient(o ...connect.ClientOption) incumbentv1connect.LeaseServiceClient {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{Protocols: &protocols}
	m.tb.Cleanup(t.CloseIdleConnections)
	return incumbentv1connect.NewLeaseServiceClient(&http.Client{Transport: t}, m.url, o...)
}

// kindOf reads the kind from the detail of a call's error.
func kindOf(err error) incumbent.Kind {
	var ce *connect.Error
	if err == nil || !errors.As(err, &ce) {
		return incumbent.OK
	}
	for _, d := range ce.Details() {
		v, err := d.Value()
		if err != nil {
			continue
		}
		if e, ok := v.(*pb.Error); ok {
			k, _ := incumbent.ParseKind(e.Kind)
			return k
		}
	}
	return incumbent.OK
}

// A block is woken by the release, and not before it, wherever the release
// falls between looking and waiting.
func TestG10_WokenExactlyByTheRelease(t *testing.T) {
	m := newMember(t)
	holder, waiter := m.dial(), m.dial()
	for i := range uint64(300) {
		token := holder.ok(claimFrame(1, "x", "h", "", false)).GetOperation().GetClaim().Lease.Token
		if i%2 == 0 {
			token = 0 // whatever the holding is
		}
		waiter.send(waitFrame(1, "x", token))
		if token == 0 {
			// The wait must have looked before the release, else it waits for nothing.
			waiter.send(waitFrame(1, "x", token))
			if f := waiter.next(); f.Error.GetKind() != "invalid" {
				t.Fatalf("round %d: answered before the release: %v", i, f)
			}
			waiter.ok(&pb.ClientFrame{Id: 2, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("x")}}})
		}
		holder.ok(releaseFrame(2, "x", "h", ""))
		f := waiter.next()
		if r := f.GetWaitReleased(); f.Id != 1 || !r.GetReleased() || r.Lease.GetToken() != 0 {
			t.Fatalf("round %d: %v", i, f)
		}
	}
}

// A lease handed to the next in its queue counts as released for who blocks.
func TestG10_WokenByAHandOver(t *testing.T) {
	m := newMember(t)
	holder, next, waiter := m.dial(), m.dial(), m.dial()
	next.ok(openFrame(1, sessionB, 20000))
	next.ok(attachFrame(2, sessionB, 1))
	// On a loaded machine the offer may be over when who blocks is answered.
	deadline := time.Now().Add(patience)
	for i := 0; ; i++ {
		name := fmt.Sprint("x", i)
		token := holder.ok(claimFrame(1, name, "h", "", false)).GetOperation().GetClaim().Lease.Token
		next.send(claimFrame(3, name, "n", sessionB, true))
		for next.next().Id != 3 { // what comes before is offers of earlier leases
		}
		waiter.send(waitFrame(1, name, token))
		holder.ok(releaseFrame(2, name, "h", ""))
		r := waiter.next().GetWaitReleased()
		if r.GetReleased() && r.Lease.GetHolder() == "n" {
			return
		}
		if !r.GetReleased() || time.Now().After(deadline) {
			t.Fatalf("got %v", r)
		}
	}
}

func TestWaitsAreCancelledAndEnd(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(claimFrame(1, "x", "h", "", false))
	w.send(waitFrame(2, "x", 0))
	w.ok(&pb.ClientFrame{Id: 3, Request: &pb.ClientFrame_Cancel{Cancel: &pb.Cancel{Id: 2}}})
	f := waitFrame(4, "x", 0)
	f.GetWaitReleased().WaitMs = 1
	if r := w.ok(f).GetWaitReleased(); r.Released {
		t.Fatalf("released: %v", r)
	}
	w.ok(releaseFrame(5, "x", "h", "")) // and the cancelled wait says nothing
	w.ok(beatMessage(6))
}

// composed is the state that a watcher has put together.
type composed struct {
	t        *testing.T
	holders  map[string]string
	progress uint64
	events   int
}

func (c *composed) take(r *pb.WatchResponse) {
	c.t.Helper()
	for i, e := range r.Events {
		if !r.Snapshot && e.Index <= c.progress {
			c.t.Fatalf("event %d after everything up to %d was delivered", e.Index, c.progress)
		}
		if !r.Snapshot && i > 0 && e.Index < r.Events[i-1].Index {
			c.t.Fatalf("event %d after %d", e.Index, r.Events[i-1].Index)
		}
		if e.Lease.Holder == "" {
			delete(c.holders, e.Lease.Name.Name)
		} else {
			c.holders[e.Lease.Name.Name] = e.Lease.Holder
		}
		c.events++
	}
	if r.ProgressIndex < c.progress {
		c.t.Fatalf("progress %d after %d", r.ProgressIndex, c.progress)
	}
	c.progress = r.ProgressIndex
}

// A watch is a snapshot and then every change, in order, once, without a gap:
// it composes to what a fresh read gives, and resumes where it was.
func TestG15_G16_G17_WatchComposes(t *testing.T) {
	m := newMember(t)
	w, worker := m.dial(), m.dial()
	worker.ok(claimFrame(1, "p/before", "h", "", false))
	w.send(watchFrameOf(7, "p/", 0))
	got := &composed{t: t, holders: map[string]string{}}
	busy := func(from, to int) (index uint64) {
		for i := from; i < to; i++ {
			name, holder := fmt.Sprintf("p/%d", i%7), fmt.Sprintf("h%d", i)
			c := worker.ask(claimFrame(2, name, holder, "", false))
			if l := c.Error.GetLease(); l != nil {
				index = worker.ok(releaseFrame(3, name, l.Holder, "")).GetOperation().GetRelease().Index
				continue
			}
			index = c.GetOperation().GetClaim().Index
			worker.ok(claimFrame(4, fmt.Sprintf("q/%d", i), holder, "", false)) // of no interest
		}
		return index
	}
	follow := func(w *wire, id, until uint64) {
		for got.progress < until {
			f := w.next()
			if f.Id != id || f.Error != nil {
				t.Fatalf("got %v", f)
			}
			got.take(f.GetWatch())
		}
	}
	compare := func() {
		t.Helper()
		l := m.leaseClient()
		r, err := l.List(t.Context(), connect.NewRequest(&pb.ListRequest{Prefix: "p/"}))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Msg.Leases) != len(got.holders) {
			t.Fatalf("%d leases, the watcher has %v", len(r.Msg.Leases), got.holders)
		}
		for _, l := range r.Msg.Leases {
			if got.holders[l.Name.Name] != l.Holder {
				t.Errorf("%s is held by %s, the watcher has %v", l.Name.Name, l.Holder, got.holders)
			}
		}
	}
	follow(w, 7, busy(0, 300))
	compare()

	// It goes on elsewhere, exactly behind what was delivered.
	w.conn.Close()
	at := got.progress
	end := busy(300, 400)
	w = m.dial()
	w.send(watchFrameOf(8, "p/", at))
	follow(w, 8, end)
	compare()

	// And the same over gRPC.
	got.holders, got.progress = map[string]string{}, 0
	stream, err := m.leaseClient(connect.WithGRPC()).Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("p/"), Prefix: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	end = busy(400, 500)
	for got.progress < end && stream.Receive() {
		got.take(stream.Msg())
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	compare()
}

func TestG17_SilentWatchesAreToldHowFar(t *testing.T) {
	m := newMember(t, func(c *Config) { c.ProgressEvery = time.Millisecond })
	w := m.dial()
	w.send(watchFrameOf(7, "p/", 0))
	if first := w.next().GetWatch(); !first.GetSnapshot() {
		t.Fatalf("got %v", first)
	}
	want := m.dial().ok(claimFrame(1, "elsewhere", "h", "", false)).GetOperation().GetClaim().Index
	if r := w.next().GetWatch(); r.GetProgressIndex() != want || len(r.Events) != 0 {
		t.Fatalf("got %v, want progress %d", r, want)
	}
}

func TestG16_ResumeBeforeHistoryIsCompacted(t *testing.T) {
	m := newMember(t)
	m.group.Hub().SetLimits(watch.Limits{HistoryBytes: 1})
	w := m.dial()
	for i := range uint64(20) {
		w.ok(claimFrame(i+1, fmt.Sprint("p/", i), "h", "", false))
	}
	if f := w.ask(watchFrameOf(50, "p/", 1)); f.Error.GetKind() != "compacted" {
		t.Fatalf("got %v", f)
	}
	stream, err := m.leaseClient().Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("p/"), Prefix: true, AfterIndex: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Receive() || kindOf(stream.Err()) != incumbent.Compacted {
		t.Fatalf("got %v", stream.Err())
	}
}

// Who does not read is cut off with the index to resume from; nobody else
// notices.
func TestG18_SlowReaderIsCutOff(t *testing.T) {
	m := newMember(t)
	m.group.Hub().SetLimits(watch.Limits{HistoryBytes: 1 << 20})
	slow, quick, worker := m.dial(), m.dial(), m.dial()
	slow.send(watchFrameOf(1, "p/", 0))
	quick.send(watchFrameOf(1, "p/", 0))
	quick.next()
	long := strings.Repeat("n", 240)
	last := uint64(0)
	const rounds = 400
	for i := range rounds {
		var frames []*pb.ClientFrame
		for k := range uint64(20) {
			name, holder := fmt.Sprintf("p/%s%d", long, k), strings.Repeat("h", 250)
			frames = append(frames, claimFrame(2*k+1, name, holder, "", false), releaseFrame(2*k+2, name, holder, ""))
		}
		worker.send(frames...)
		for range frames {
			if f := worker.next(); i == rounds-1 {
				last = max(last, f.GetOperation().GetRelease().GetIndex())
			}
		}
		for at := uint64(0); at < m.hubIndex(); {
			f := quick.next()
			if f.Error != nil {
				t.Fatalf("the quick one was cut off: %v", f.Error)
			}
			at = f.GetWatch().ProgressIndex
		}
	}
	events := 0
	for {
		f := slow.next()
		if f.Error == nil {
			events += len(f.GetWatch().Events)
			continue
		}
		if f.Error.Kind != "compacted" || !strings.Contains(f.Error.Message, "are gone") {
			t.Fatalf("got %v", f.Error)
		}
		break
	}
	if events >= rounds*40 {
		t.Errorf("the slow one got all %d events", events)
	}
	slow.ok(beatMessage(2)) // its stream goes on
}

func (m *member) hubIndex() uint64 { return uint64(m.group.Hub().Index()) }

// Extensions are refused last, and critical ones never, though all came in one
// wake-up.
func TestG40_CriticalExtensionsAreNeverRefused(t *testing.T) {
	control, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, func(c *Config) { c.Admission = control })
	w := m.dial()
	plain := w.ok(claimFrame(1, "plain", "h", "", false)).GetOperation().GetClaim().Lease.Token
	f := claimFrame(2, "vital", "h", "", false)
	f.GetOperation().GetClaim().Critical = true
	vital := w.ok(f).GetOperation().GetClaim().Lease.Token

	control.SetMemory(92, 100)
	if f := w.ask(claimFrame(3, "more", "h", "", false)); f.Error.GetKind() != "overloaded" || f.Error.RetryAfterMs == 0 {
		t.Fatalf("a claim under pressure: %v", f)
	}
	if e := w.ok(tokensMessage(4, 0, plain, vital)).GetTokensExtended(); e.HeldMs != 15000 {
		t.Fatalf("extensions while claims are refused: %v", e)
	}
	control.SetMemory(99, 100)
	w.send(tokensMessage(5, 0, plain), tokensMessage(6, 0, vital), tokensMessage(7, 0, plain))
	for range 3 {
		f := w.next()
		e := f.GetTokensExtended()
		if f.Id == 6 && e.GetHeldMs() != 15000 || f.Id != 6 && (!slices.Equal(e.GetUnavailable(), []uint64{plain}) || e.RetryAfterMs == 0) {
			t.Errorf("frame %d: %v", f.Id, f)
		}
	}
	resp, _ := m.post("LeaseService/Claim", `{"name": {"name": "y"}, "holder": "h", "ttl_ms": 5000}`)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("HTTP %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

// A request whose deadline has passed is not executed, and an outcome that is
// not known is said to be unknown (G25).
func TestG41_G25_DeadlinePassedIsNotExecuted(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	m.group.Hold()
	const call = `{"name": {"name": "call"}, "holder": "h", "ttl_ms": 5000}`
	resp, body := m.postLate("LeaseService/Claim", call)
	late := []*pb.ClientFrame{
		claimFrame(1, "stream", "h", "", false),
		{Id: 11, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("stream")}}},
		{Id: 12, Request: &pb.ClientFrame_GetSession{GetSession: &pb.GetSessionRequest{Id: sessionA}}},
		{Id: 13, Request: &pb.ClientFrame_GetKey{GetKey: &pb.GetKeyRequest{Key: "k"}}},
		{Id: 14, Request: &pb.ClientFrame_ListKeys{ListKeys: &pb.ListKeysRequest{Prefix: "k"}}},
	}
	for _, f := range late {
		f.TimeoutMs = 20
		w.send(f)
	}
	w.settle()
	m.post("LeaseService/Claim", call, "Connect-Timeout-Ms", "40") // so long it takes
	m.group.Release()
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, `"kind":"unknown"`) && !strings.Contains(body, `"kind": "unknown"`) {
		t.Errorf("HTTP %d %s", resp.StatusCode, body)
	}
	for range late {
		if got := w.next(); got.Error.GetKind() != "deadline_exceeded" {
			t.Errorf("got %v", got)
		}
	}
	for i, name := range []string{"stream", "call"} {
		got := w.ask(&pb.ClientFrame{Id: uint64(i + 2), Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf(name)}}})
		if got.Error.GetKind() != "not_found" {
			t.Errorf("lease %s was claimed: %v", name, got)
		}
	}
}

// postLate posts a call whose deadline passes while it waits for the log: on a
// loaded machine a short one may pass before the call is handed in.
func (m *member) postLate(method, body string) (resp *http.Response, text string) {
	m.tb.Helper()
	before := m.group.Proposed()
	for limit := 20; limit < int(patience.Milliseconds()); limit *= 4 {
		if resp, text = m.post(method, body, "Connect-Timeout-Ms", strconv.Itoa(limit)); m.group.Proposed() > before {
			return resp, text
		}
	}
	m.tb.Fatalf("the call was not handed in: HTTP %d %s", resp.StatusCode, text)
	return nil, ""
}

func TestG45_BodiesAndListsAreBounded(t *testing.T) {
	m := newMember(t)
	resp, body := m.post("LeaseService/Claim", `{"holder": "`+strings.Repeat("x", DefaultMaxBodyBytes+2*bodySlack)+`"}`)
	if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, `"resource_exhausted"`) || !strings.Contains(body, "split it") {
		t.Errorf("HTTP %d %s", resp.StatusCode, body)
	}
	// In every encoding, whether its length was announced or not.
	large := &pb.ClaimRequest{Holder: strings.Repeat("x", DefaultMaxBodyBytes+2*bodySlack)}
	for name, o := range map[string]connect.ClientOption{
		"connect": connect.WithClientOptions(), "json": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		_, err := m.leaseClient(o).Claim(t.Context(), connect.NewRequest(large))
		if kindOf(err) != incumbent.TooLarge || connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	chunked, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+"/incumbent.v1.LeaseService/Claim",
		io.MultiReader(strings.NewReader(`{"holder": "`), strings.NewReader(large.Holder), strings.NewReader(`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	chunked.Header.Set("Content-Type", "application/json")
	if resp, err = http.DefaultClient.Do(chunked); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(said), "split it") {
		t.Errorf("HTTP %d %s %v", resp.StatusCode, said, err)
	}
	c := m.leaseClient(connect.WithGRPC())
	b := &pb.BatchRequest{Operations: make([]*pb.Operation, MaxOperations+1)}
	for i := range b.Operations {
		b.Operations[i] = &pb.Operation{}
	}
	if _, err := c.Batch(t.Context(), connect.NewRequest(b)); kindOf(err) != incumbent.Invalid {
		t.Errorf("batch: %v", err)
	}
	e := &pb.ExtendRequest{Extensions: make([]*pb.Extension, MaxOperations+1)}
	for i := range e.Extensions {
		e.Extensions[i] = &pb.Extension{}
	}
	if _, err := c.Extend(t.Context(), connect.NewRequest(e)); kindOf(err) != incumbent.Invalid {
		t.Errorf("extend: %v", err)
	}
}

// Two bytes of a request are not taken for a message of hundreds as often as fit into it.
func TestG45_ValuesOfARequestAreBounded(t *testing.T) {
	m := newMember(t)
	many, quoted := strings.Repeat(`{},`, maxValues/2)+`{}`, strings.Repeat(`\",[{`, maxValues)
	for body, refused := range map[string]bool{
		`{"node_name":"n","checks":[` + many + `]}`:                       true,
		`{"node_name":"n","service":{"tags":[` + many + `]}}`:             true,
		`{"node_name":"n","checks":[{"id":"c","output":"` + quoted + `"}`: false,
	} {
		if resp, text := m.post("CatalogService/Register", body); resp.StatusCode != http.StatusBadRequest || strings.Contains(text, "values; split it") != refused {
			t.Errorf("%.40s: HTTP %d %.200s", body, resp.StatusCode, text)
		}
	}
	steps := strings.Repeat(`{},`, maxTxnValues/2) + `{}`
	if resp, text := m.post("TransactionService/Txn", `{"then":[`+steps+`]}`); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "values; split it") {
		t.Errorf("HTTP %d %.200s", resp.StatusCode, text)
	}
	// So are those of protobuf, where a message without fields has two bytes.
	checks, lengths := &pb.RegisterRequest{NodeName: "n"}, map[int]bool{maxValues - 1: false, maxValues: true}
	for n, refused := range lengths {
		checks.Checks = slices.Repeat([]*pb.Check{{}}, n)
		b := marshal(t, checks)
		if err := (protoCodec{}).Unmarshal(b, &pb.RegisterRequest{}); (err != nil) != refused {
			t.Errorf("%d checks: %v", n, err)
		}
	}
	then := &pb.TxnRequest{Then: slices.Repeat([]*pb.TxnOperation{{}}, maxTxnValues+1)}
	if err := (protoCodec{}).Unmarshal(marshal(t, then), &pb.TxnRequest{}); err == nil {
		t.Error("a transaction of that many steps is kept")
	}
}

// The largest transaction that there may be is read, in either form.
func TestTheLargestTransactionIsRead(t *testing.T) {
	claim := &pb.TxnOperation{Op: &pb.TxnOperation_Claim{Claim: &pb.ClaimRequest{
		Name: &pb.LeaseName{Namespace: "n", Model: "m", Name: "l"}, Holder: "h", Session: sessionA, TtlMs: 1, Critical: true,
	}}}
	when := &pb.Condition{Is: &pb.Condition_Key{Key: &pb.KeyCondition{
		Namespace: "n", Key: "k", Is: &pb.KeyCondition_Value{Value: []byte("v")}, Comparison: pb.Comparison_COMPARISON_NOT_EQUAL,
	}}}
	all := slices.Repeat([]*pb.TxnOperation{claim}, core.MaxTxnSteps)
	in := &pb.TxnRequest{Conditions: slices.Repeat([]*pb.Condition{when}, core.MaxTxnSteps), Then: all, Else: all}
	text, err := jsonCodec{}.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := (jsonCodec{}).Unmarshal(text, &pb.TxnRequest{}); err != nil {
		t.Error(err)
	}
	if err := (protoCodec{}).Unmarshal(marshal(t, in), &pb.TxnRequest{}); err != nil {
		t.Error(err)
	}
}

// Whatever a client sends: the stream answers, or closes with a code.
func FuzzG45_Stream(f *testing.F) {
	f.Add(marshal(f, &pb.ClientMessage{Frames: []*pb.ClientFrame{tokensMessage(1, 500, 7, 8), beatMessage(9)}}))
	f.Add(marshal(f, &pb.ClientMessage{Frames: []*pb.ClientFrame{
		openFrame(1, sessionA, 5000), attachFrame(2, sessionA, 3), claimFrame(3, "x", "h", sessionA, true), waitFrame(4, "x", 0),
		watchFrameOf(5, "", 0), watchFrameOf(6, "x", 1), closeSessionFrame(7, sessionA), releaseFrame(8, "x", "h", ""),
	}}))
	m := newMember(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		m.tb = t
		w := m.dial()
		defer w.conn.Close()
		w.write(clientFrameBytes(ws.OpBinary, true, in))
		w.write(clientFrameBytes(ws.OpPing, true, []byte("end")))
		for {
			switch op, p := w.read(); op {
			case ws.OpClose:
				return
			case ws.OpPong:
				return
			default:
				if err := proto.Unmarshal(p, &pb.ServerMessage{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A body that dribbles in is cut off.
func TestG47_Dribble(t *testing.T) {
	m := newMember(t, func(c *Config) { c.WriteTimeout = time.Second })
	conn, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /incumbent.v1.LeaseService/Claim HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Errorf("HTTP %d for half a body", resp.StatusCode)
		}
		_, err = io.Copy(io.Discard, conn)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("a dribbled body was not cut off")
	}
}

// The answer to a body that was cut off is the last on its connection, even if it
// can still be written: the rest of the body is not the next request.
func TestG47_ACutOffBodyEndsItsConnection(t *testing.T) {
	m := newMember(t)
	for proto, want := range map[int]string{1: "close", 2: ""} {
		r := httptest.NewRequest(http.MethodPost, "/incumbent.v1.LeaseService/Claim", iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(`{"name"`))))
		r.Header.Set("Content-Type", "application/json")
		r.ProtoMajor = proto
		w := httptest.NewRecorder()
		m.door.ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); w.Code == http.StatusOK || got != want {
			t.Errorf("HTTP/%d: code %d, connection %q, want %q", proto, w.Code, got, want)
		}
	}
}

// A call that blocks for longer than a body may dribble is not cut off: its message
// is there. On a loaded machine that may come late, so the limit grows until it was
// in time.
func TestG47_ABlockedCallIsNoDribble(t *testing.T) {
	var err error
	for limit := time.Second; limit <= 16*time.Second; limit *= 4 {
		m := newMember(t, func(c *Config) { c.WriteTimeout = limit })
		wait := fmt.Sprintf(`{"name": {"name": "x"}, "wait_ms": %d}`, (limit + limit/3).Milliseconds())
		if err = m.tryPost("Claim", `{"name": {"name": "x"}, "holder": "h", "ttl_ms": 60000}`); err == nil {
			err = m.tryPost("WaitReleased", wait)
		}
		if err == nil {
			return
		}
	}
	t.Errorf("a call that blocks: %v", err)
}

// tryPost calls a method of the leases and returns why that was not answered well.
func (m *member) tryPost(method, body string) error {
	resp, err := http.Post(m.url+"/incumbent.v1.LeaseService/"+method, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// Shutdown answers who blocks, sends streams away and leaves no goroutine.
func TestG48_Shutdown(t *testing.T) {
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	m := newMember(t)
	c := m.leaseClient(connect.WithGRPC())
	if _, err := c.Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: nameOf("x"), Holder: "h", TtlMs: 15000})); err != nil {
		t.Fatal(err)
	}
	w := m.dial()
	w.ok(openFrame(1, sessionA, 15000))
	w.ok(attachFrame(2, sessionA, 1))
	w.send(watchFrameOf(3, "", 0), waitFrame(4, "x", 0))
	w.next()
	stream, err := c.Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf(""), Prefix: true}))
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	ended := make(chan error, 2)
	go func() {
		_, err := c.WaitReleased(context.Background(), connect.NewRequest(&pb.WaitReleasedRequest{Name: nameOf("x")}))
		ended <- err
	}()
	go func() {
		for stream.Receive() {
		}
		ended <- stream.Err()
	}()
	for m.door.Stats().Calls < 2 {
		runtime.Gosched()
	}
	go m.stop()
	for range 2 {
		if err := <-ended; kindOf(err) != incumbent.Unavailable {
			t.Errorf("a blocked call was told %v", err)
		}
	}
	for w.next().GetGoAway() == nil {
	}
	if code := w.closed(); code != ws.StatusGoingAway {
		t.Errorf("closed with %d", code)
	}
	w.conn.Close()
	m.stop()
	stream.Close()
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before+2; runtime.Gosched() {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

// All protocols say the same, errors and their details included.
func TestProtocols(t *testing.T) {
	m := newMember(t)
	for name, o := range map[string]connect.ClientOption{
		"connect": connect.WithClientOptions(), "json": connect.WithProtoJSON(), "grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			c := m.leaseClient(o)
			r, err := c.Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: nameOf(name), Holder: "h", TtlMs: 15000}))
			if err != nil || !r.Msg.Granted {
				t.Fatalf("%v, %v", r, err)
			}
			_, err = c.Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: nameOf(name), Holder: "other", TtlMs: 15000}))
			if kindOf(err) != incumbent.Held || connect.CodeOf(err) != connect.CodeAlreadyExists {
				t.Errorf("held: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			defer cancel()
			if _, err := c.Get(ctx, connect.NewRequest(&pb.GetRequest{Name: nameOf(name)})); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Errorf("late: %v", err)
			}
		})
	}
}

// A stale read is asked for, needs nobody else, and says what it is: the index it
// shows and how old that may be.
func TestG23_StaleReadsSayTheirIndexAndAge(t *testing.T) {
	m := newMember(t, func(c *Config) { c.Age = func() time.Duration { return 1500 * time.Millisecond } })
	w := m.dial()
	token := w.ok(claimFrame(1, "db", "a", "", false)).GetOperation().GetClaim().Lease.Token
	get := func(id uint64, stale bool) *pb.ClientFrame {
		return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("db"), Stale: stale}}}
	}
	if g := w.ok(get(2, false)).GetGet(); g.AgeMs != 0 || g.Index != token || g.Lease.ExpiresInMs == 0 {
		t.Errorf("a confirmed read: %v", g)
	}
	m.group.Hold() // nobody confirms, nobody applies
	g := w.ok(get(3, true)).GetGet()
	m.group.Release()
	if g.AgeMs != 1500 || g.Index != token || g.Lease.Token != token || g.Lease.ExpiresInMs != 0 {
		t.Errorf("a stale read: %v", g)
	}
}
