//go:build unix

package native

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// unread is a body that says whether it was read.
type unread struct {
	io.Reader
	reads int
}

func (u *unread) Read(p []byte) (int, error) { u.reads++; return u.Reader.Read(p) }
func (*unread) Close() error                 { return nil }

// enveloped is a message as gRPC and streaming calls send it.
func enveloped(m []byte) []byte { return append([]byte{0, 0, 0, 0, byte(len(m))}, m...) }

// earlyCalls are one call of each lane that may be refused, in each of the protocols.
var earlyProtocols = map[string]func(m proto.Message) []byte{
	"application/proto":          func(m proto.Message) []byte { b, _ := proto.Marshal(m); return b },
	"application/json":           func(proto.Message) []byte { return []byte("{}") },
	"application/grpc":           func(m proto.Message) []byte { b, _ := proto.Marshal(m); return enveloped(b) },
	"application/grpc-web+proto": func(m proto.Message) []byte { b, _ := proto.Marshal(m); return enveloped(b) },
}

// What its lane refuses whatever it says is refused without a byte of it being read, in
// the protocol's form, with the time to come back, and counted once.
func TestG41_ARefusedCallIsNotRead(t *testing.T) {
	lanes, err := admit.New(admit.Limits{Retry: time.Millisecond, MaxRetry: time.Millisecond}, nil) // held back for hardly any time
	if err != nil {
		t.Fatal(err)
	}
	lanes.SetMemory(2, 1)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	ask := func(procedure, contentType string, body *unread, header ...string) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, procedure, body)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Te", "trailers")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		r.ContentLength, r.ProtoMajor, r.ProtoMinor = -1, 2, 0
		w := httptest.NewRecorder()
		m.door.ServeHTTP(w, r)
		return w.Result()
	}
	refusedIn := func(l admit.Lane) uint64 { return lanes.Stats()[l].Refused[admit.Memory] }
	for _, procedure := range []string{
		incumbentv1connect.LeaseServiceClaimProcedure, incumbentv1connect.LeaseServiceReleaseProcedure, incumbentv1connect.LeaseServiceListProcedure,
		incumbentv1connect.KeyValueServicePutProcedure, incumbentv1connect.KeyValueServiceGetProcedure, incumbentv1connect.KeyValueServiceListProcedure,
		incumbentv1connect.TransactionServiceTxnProcedure, incumbentv1connect.CatalogServiceRegisterProcedure, incumbentv1connect.CatalogServiceUpdateCheckProcedure,
		incumbentv1connect.TableServiceTransactProcedure, incumbentv1connect.SessionServiceOpenSessionProcedure,
	} {
		lane := calls.Must(procedure).Lane()
		for contentType, form := range earlyProtocols {
			before, body := refusedIn(lane), &unread{Reader: bytes.NewReader(form(&pb.ClaimRequest{Holder: "h"}))}
			resp := ask(procedure, contentType, body)
			if body.reads > 0 {
				t.Errorf("%s, %s: its body was read %d times", procedure, contentType, body.reads)
			}
			if n := refusedIn(lane) - before; n != 1 {
				t.Errorf("%s, %s: counted %d times", procedure, contentType, n)
			}
			if strings.Contains(contentType, "grpc") {
				status := resp.Trailer.Get("Grpc-Status") + resp.Header.Get("Grpc-Status")
				if hint := resp.Trailer.Get("Retry-After") + resp.Header.Get("Retry-After"); status != "8" || hint != "1" {
					t.Errorf("%s, %s: status %q, hint %q", procedure, contentType, status, hint)
				}
			} else if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
				t.Errorf("%s, %s: HTTP %d, hint %q", procedure, contentType, resp.StatusCode, resp.Header.Get("Retry-After"))
			}
		}
	}
	// What may keep a critical lease is looked at.
	for _, procedure := range []string{incumbentv1connect.LeaseServiceExtendProcedure, incumbentv1connect.LeaseServiceBatchProcedure} {
		body := &unread{Reader: strings.NewReader("{}")}
		if ask(procedure, "application/json", body); body.reads == 0 {
			t.Errorf("%s was refused unread", procedure)
		}
	}
	// An operator's look is served, another's is not.
	for kind, read := range map[auth.Kind]bool{auth.Operator: true, auth.Observer: false} {
		m.guard.principal = auth.Principal{Name: "a", Kind: kind}
		body := &unread{Reader: strings.NewReader(`{"name":{"name":"x"}}`)}
		if ask(incumbentv1connect.LeaseServiceGetProcedure, "application/json", body); body.reads > 0 != read {
			t.Errorf("a look of an %v was read: %v, want %v", kind, body.reads > 0, read)
		}
	}
	// Nobody waits for this one any more.
	lanes.SetMemory(0, 1)
	for header, contentType := range map[string]string{"Connect-Timeout-Ms": "application/proto", "Grpc-Timeout": "application/grpc"} {
		value := "0"
		if header == "Grpc-Timeout" {
			value = "0m"
		}
		m.guard.principal = admin
		body := &unread{Reader: bytes.NewReader(nil)}
		resp := ask(incumbentv1connect.KeyValueServicePutProcedure, contentType, body, header, value)
		late := resp.StatusCode == http.StatusGatewayTimeout || resp.Trailer.Get("Grpc-Status")+resp.Header.Get("Grpc-Status") == "4"
		if body.reads > 0 || !late {
			t.Errorf("%s: read %d times, HTTP %d, status %q", header, body.reads, resp.StatusCode, resp.Trailer.Get("Grpc-Status"))
		}
	}
}

// A call that may be of several lanes is refused unread only once none of them would let
// it in.
func TestG41_WhatOneLaneLetsInIsRead(t *testing.T) {
	lanes, err := admit.New(admit.Limits{Retry: time.Millisecond, MaxRetry: time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var looks atomic.Int64
	m := newMember(t, func(c *Config) {
		c.Admission = lanes
		view := c.Engine.View
		c.View = func() *core.View { looks.Add(1); return view() }
	})
	put := `{"then": [{"put": {"key": "a", "value": "eA=="}}]}`
	drop := `{"then": [{"delete": {"key": "a"}}]}`
	for used, want := range map[int64][2]int{ // percent of memory: of a transaction that changes, and of one that lets go
		0:  {http.StatusOK, http.StatusOK},
		89: {http.StatusTooManyRequests, http.StatusOK}, // transactions are shut, releases are not
		95: {http.StatusTooManyRequests, http.StatusTooManyRequests},
	} {
		lanes.SetMemory(used, 100)
		for i, body := range []string{put, drop} {
			if resp, text := m.post("TransactionService/Txn", body); resp.StatusCode != want[i] {
				t.Errorf("%d%%: %s: HTTP %d %s, want %d", used, body, resp.StatusCode, text, want[i])
			}
		}
	}
}

// After an early refusal the connection is used again if what was not read is little, and
// closed if it is much.
func TestG41_ARefusalKeepsTheConnection(t *testing.T) {
	lanes, err := admit.New(admit.Limits{Retry: time.Millisecond, MaxRetry: time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	var conns atomic.Int64
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conns.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}}
	t.Cleanup(client.CloseIdleConnections)
	put := func(size int) (int, error) {
		body := fmt.Sprintf(`{"key": "a", "value": %q}`, strings.Repeat("A", size))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+incumbentv1connect.KeyValueServicePutProcedure, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err // the connection was reset while it was written
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, nil
	}
	for i := range 6 {
		lanes.SetMemory(int64(1+i%2), 2) // every second is refused
		want := http.StatusOK
		if i%2 == 1 {
			want = http.StatusTooManyRequests
		}
		if got, err := put(64 << 10); got != want {
			t.Fatalf("call %d: HTTP %d, %v, want %d", i, got, err, want)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for what fits into one", n)
	}
	for _, tt := range []struct {
		used int64
		kind auth.Kind
		want int
	}{{2, auth.Operator, http.StatusTooManyRequests}, {0, auth.Observer, http.StatusForbidden}} {
		before := conns.Load()
		lanes.SetMemory(tt.used, 2)
		m.guard.principal = auth.Principal{Name: "a", Kind: tt.kind}
		if got, err := put(600 << 10); err == nil && got != tt.want {
			t.Errorf("a large one: HTTP %d, want %d", got, tt.want)
		}
		lanes.SetMemory(0, 2)
		m.guard.principal = admin
		if got, err := put(12); got != http.StatusOK { // what was not read is no request
			t.Errorf("after HTTP %d: HTTP %d, %v", tt.want, got, err)
		}
		if n := conns.Load() - before; n != 1 {
			t.Errorf("after HTTP %d: %d more connections, want one", tt.want, n)
		}
	}
}

// BenchmarkRefusedCall is what a call costs that its lane refuses, without sockets and
// without the time for which the answer is held back.
func BenchmarkRefusedCall(b *testing.B) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	m := newMember(b, func(c *Config) { c.Admission = lanes })
	lanes.SetMemory(2, 1)
	fill(m.door)
	raw, err := proto.Marshal(&pb.PutRequest{Key: "a", Value: make([]byte, 4<<10)})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name, contentType string
		body              []byte
	}{
		{"proto", "application/proto", raw},
		{"json", "application/json", fmt.Appendf(nil, `{"key": "a", "value": %q}`, strings.Repeat("A", 4<<10))},
		{"grpc", "application/grpc", append([]byte{0, 0, 0, byte(len(raw) >> 8), byte(len(raw))}, raw...)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, incumbentv1connect.KeyValueServicePutProcedure, bytes.NewReader(c.body))
			r.Header.Set("Content-Type", c.contentType)
			r.ProtoMajor, r.ProtoMinor = 2, 0
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				r.Body = io.NopCloser(bytes.NewReader(c.body))
				m.door.ServeHTTP(new(discarded), r)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime is what this process has had of the processors, in nanoseconds: others may have
// the rest of the time that passes.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// discarded is an answer that nobody reads.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}
func (*discarded) Write(b []byte) (int, error) { return len(b), nil }
func (*discarded) WriteHeader(int)             {}
func (*discarded) Flush()                      {}
