package native

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
)

// shutLanes returns lanes that refuse everything that may be refused.
func shutLanes(t *testing.T) *admit.Controller {
	t.Helper()
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lanes.SetMemory(2, 1) // beyond all bounds
	return lanes
}

// Nothing is looked up for a request that its lane refuses.
func TestG40_WhatIsRefusedIsNotLookedAt(t *testing.T) {
	lanes := shutLanes(t)
	var looks atomic.Int64
	m := newMember(t, func(c *Config) {
		view := c.Engine.View
		c.Admission = lanes
		c.View = func() *core.View { looks.Add(1); return view() }
	})
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Agent} // whose requests are checked against the state
	session := incumbent.NewSessionID().String()
	lanes.SetMemory(0, 1)
	w := m.dial()
	lanes.SetMemory(2, 1)
	before := looks.Load()
	claim := fmt.Sprintf(`{"name": {"name": "x"}, "holder": "a", "session": %q}`, session)
	for method, body := range map[string]string{
		"LeaseService/Claim":   claim,
		"LeaseService/Release": fmt.Sprintf(`{"name": {"name": "x"}, "token": 7, "session": %q}`, session),
		"LeaseService/Batch":   fmt.Sprintf(`{"operations": [{"claim": %s}, {"extend": {"session": %q}}]}`, claim, session),
		"LeaseService/Get":     `{"name": {"name": "x"}}`,
	} {
		if resp, text := m.post(method, body); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s: HTTP %d %s", method, resp.StatusCode, text)
		}
	}
	if f := w.ask(claimFrame(1, "x", "a", session, false)); f.Error.GetKind() != "overloaded" {
		t.Errorf("on a stream: %v", f)
	}
	if f := w.ask(attachFrame(2, session, 1)); f.Error.GetKind() != "overloaded" {
		t.Errorf("an attachment: %v", f)
	}
	if n := looks.Load() - before; n != 0 {
		t.Errorf("the state was looked at %d times", n)
	}
}

// TestG43_WhoComesBackIsNotSentAway: while everything waits too long, a stream is opened all the
// same, for to refuse it takes as long, and its client would connect anew; what is asked for over
// it has its lanes. Where memory is short it is refused.
func TestG43_WhoComesBackIsNotSentAway(t *testing.T) {
	lanes := shutLanes(t)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	notWebSocket := func() string {
		resp, err := http.Get(m.url + StreamPath) // a stream's request is judged before it is looked at
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Status
	}
	dial := func() error {
		conn, _, _, err := ws.Dialer{Timeout: patience}.Dial(t.Context(), strings.Replace(m.url, "http", "ws", 1)+StreamPath)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(); !errors.As(err, new(ws.StatusError)) {
		t.Errorf("while memory is short: %v", err)
	}
	lanes.SetMemory(0, 1)
	if status := notWebSocket(); !strings.HasPrefix(status, "426 ") {
		t.Errorf("what is no WebSocket: %s", status)
	}
	session := incumbent.NewSessionID().String()
	token := m.dial().ok(claimFrame(1, "x", "h", "", false)).GetOperation().GetClaim().Lease.Token
	lanes.Press(uint8(admit.Releases.Rank()), 1<<62) // for long
	w := m.dial()
	if f := w.ask(attachFrame(1, session, 1)); f.Error.GetKind() != "overloaded" || f.Error.RetryAfterMs == 0 {
		t.Errorf("an attachment: %v", f)
	}
	if e := w.ok(tokensMessage(2, 0, token)).GetTokensExtended(); e.HeldMs == 0 {
		t.Errorf("an extension: %v", e)
	}
}

// An operator who looks what is the matter is answered whatever is refused.
func TestG40_AnOperatorLooksInAnOverload(t *testing.T) {
	lanes := shutLanes(t)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	for kind, refused := range map[auth.Kind]bool{auth.Operator: false, auth.Observer: true} {
		m.guard.principal = auth.Principal{Name: "a", Kind: kind}
		for method, body := range map[string]string{
			"LeaseService/Get":          `{"name": {"name": "x"}}`,
			"SessionService/GetSession": fmt.Sprintf(`{"id": %q}`, incumbent.NewSessionID()),
		} {
			want := http.StatusNotFound
			if refused {
				want = http.StatusTooManyRequests
			}
			if resp, text := m.post(method, body); resp.StatusCode != want {
				t.Errorf("%s by an %v: HTTP %d %s, want %d", method, kind, resp.StatusCode, text, want)
			}
		}
	}
}

// A lane looks at how long calls stay for which something is done, and not at what is misspelt: that
// has waited for nothing, and would hide a queue.
func TestG41_WhatIsNotDoneIsNotLookedAt(t *testing.T) {
	for _, tt := range []struct {
		lane         admit.Lane
		method, body string
		done         bool
	}{
		{admit.Small, "KeyValueService/Put", `{"key": "k"}`, true},
		{admit.Small, "KeyValueService/Get", `{"key": "k"}`, true},
		{admit.Small, "KeyValueService/Get", `{"key": "k", "stale": true}`, true},
		{admit.Small, "KeyValueService/Put", `{"key": "` + strings.Repeat("k", 10<<10) + `"}`, false},
		{admit.Transactions, "TransactionService/Txn", `{"then": [{"put": {"key": "k"}}]}`, true},
		{admit.Transactions, "TransactionService/Txn", `{"then": [{}]}`, false},
		{admit.Claims, "LeaseService/Batch", `{"operations": [{"claim": {"name": {"name": "l"}, "holder": "h", "ttl_ms": 60000}}]}`, true},
		{admit.Claims, "LeaseService/Batch", `{"operations": [{"claim": {}}]}`, false},
		{admit.Claims, "LeaseService/Claim", `{"name": {"name": "l"}, "holder": "h", "ttl_ms": 60000}`, true},
		{admit.Claims, "LeaseService/Claim", `{}`, false},
	} {
		lanes, err := admit.New(admit.Limits{Min: 1, Interval: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		clock := new(atomic.Int64)
		m := newMember(t, func(c *Config) { c.Admission, c.Monotonic = lanes, clock.Load })
		var place admit.Ticket
		for one := place; err == nil; one, err = lanes.Enter(tt.lane, 1, clock.Load()) {
			place = one
		}
		place.Drop() // there is room for one more
		before := lanes.Stats()[tt.lane]
		resp, body := m.post(tt.method, tt.body)
		if n := lanes.Stats()[tt.lane].Admitted - before.Admitted; n != 1 {
			t.Errorf("%s %.60s: HTTP %d %.100s: %d were let in, want one", tt.method, tt.body, resp.StatusCode, body, n)
		}
		clock.Add(int64(time.Hour))
		_, _ = lanes.Enter(tt.lane, 1, clock.Load()) // so that the lane draws its conclusion: what has waited for nothing makes it grow
		if after := lanes.Stats()[tt.lane]; after.Limit > before.Limit != tt.done {
			t.Errorf("%s %.60s: HTTP %d %.100s: the limit of its lane is %d, was %d", tt.method, tt.body, resp.StatusCode, body, after.Limit, before.Limit)
		}
	}
}

// An extension that names one session a thousand times does not look through its
// leases each time; and a critical lease keeps its session from being refused.
func TestG40_ASessionNamedOftenIsLookedAtInOneStep(t *testing.T) {
	const leases, named, most = 2000, 1000, 16 << 20 // bytes; to sort the leases each time takes some times as much
	lanes := shutLanes(t)
	lanes.SetMemory(0, 1)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	calls := incumbentv1connect.NewLeaseServiceClient(http.DefaultClient, m.url)
	session := incumbent.NewSessionID().String()
	if resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	for from := 0; from < leases; from += MaxOperations {
		var ops []string
		for i := range MaxOperations {
			ops = append(ops, fmt.Sprintf(`{"claim": {"name": {"name": "l%d"}, "holder": "h", "session": %q}}`, from+i, session))
		}
		if resp, body := m.post("LeaseService/Batch", `{"operations": [`+strings.Join(ops, ",")+`]}`); resp.StatusCode != http.StatusOK || strings.Contains(body, "error") {
			t.Fatalf("%.300s", body)
		}
	}
	r := &pb.ExtendRequest{}
	for range named {
		r.Extensions = append(r.Extensions, &pb.Extension{Session: session})
	}
	extend := func() (*pb.ExtendResponse, error) {
		out, err := calls.Extend(context.Background(), connect.NewRequest(r))
		if err != nil {
			return nil, err
		}
		return out.Msg, nil
	}
	measured := func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := extend()
		runtime.ReadMemStats(&after)
		if kind := kindOf(err); err != nil && kind != incumbent.Overloaded {
			t.Fatal(err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if took := measured(); took > most {
		t.Errorf("%d extensions took %d bytes", named, took)
	}
	lanes.SetMemory(2, 1)
	if took := measured(); took > most {
		t.Errorf("refused, %d extensions took %d bytes", named, took)
	}
	if _, err := extend(); kindOf(err) != incumbent.Overloaded {
		t.Errorf("without a critical lease: %v", err)
	}
	lanes.SetMemory(0, 1)
	if resp, body := m.post("LeaseService/Claim", fmt.Sprintf(`{"name": {"name": "l7"}, "holder": "h", "session": %q, "critical": true}`, session)); resp.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	lanes.SetMemory(2, 1)
	out, err := extend()
	if err != nil || len(out.Results) != named || out.Results[named-1].HeldMs == 0 {
		t.Errorf("with a critical lease: %v", err)
	}
	w := fmt.Sprintf(`{"operations": [{"extend": {"session": %q}}]}`, session)
	if resp, body := m.post("LeaseService/Batch", w); resp.StatusCode != http.StatusOK || strings.Contains(body, "error") {
		t.Errorf("in a batch: HTTP %d %s", resp.StatusCode, body)
	}
}

// shutting is a body whose call had been let in, before its message, when the lanes are shut.
type shutting struct {
	io.Reader
	shut func()
}

func (s *shutting) Read(p []byte) (int, error) {
	s.shut()
	return s.Reader.Read(p)
}

// While the refusal of a call is held back its message counts as it is kept: of a body whose
// length nobody said, and of one that was compressed, too.
func TestG39_WhatIsHeldBackCountsAsItIsKept(t *testing.T) {
	const values, size = 4, 256 << 10
	var message pb.TxnRequest
	for i := range values {
		message.Then = append(message.Then, &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: strconv.Itoa(i), Value: make([]byte, size)}}})
	}
	plain, err := proto.Marshal(&message)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for encoding, body := range map[string][]byte{"identity": plain, "gzip": zipped.Bytes()} {
		t.Run(encoding, func(t *testing.T) {
			lanes, err := admit.New(admit.Limits{Retry: time.Minute, MaxRetry: time.Minute}, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := newMember(t, func(c *Config) { c.Admission = lanes })
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+incumbentv1connect.TransactionServiceTxnProcedure,
				&shutting{bytes.NewReader(body), func() { lanes.SetMemory(2, 1) }})
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range map[string]string{"Content-Type": "application/proto", "Content-Encoding": encoding, "Connect-Timeout-Ms": "60000", "Expect": "100-continue"} {
				r.Header.Set(name, value)
			}
			client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: patience}}
			defer client.CloseIdleConnections()
			status := make(chan string, 1)
			go func() {
				resp, err := client.Do(r)
				if err != nil {
					status <- err.Error()
					return
				}
				resp.Body.Close()
				status <- resp.Status
			}()
			eventually(t, "the message is counted", func() bool { return m.door.HeldBackBytes() >= values*size })
			if got := <-status; !strings.HasPrefix(got, "429") {
				t.Error(got)
			}
			if n := m.door.HeldBackBytes(); n != 0 {
				t.Errorf("%d bytes count behind the answer", n)
			}
		})
	}
}
