package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// patient is how long a silent member delays these tests.
const patient = 50 * time.Millisecond

func failoverClient(t testing.TB, urls ...string) *Client {
	t.Helper()
	return newClient(t, Config{Servers: urls, SilentTimeout: patient})
}

func keyedClaim(c *Client, name string) *connect.Request[apiv1.ClaimRequest] {
	return connect.NewRequest(&apiv1.ClaimRequest{Name: apiName(named(name)), Holder: "a", TtlMs: 60_000, Idempotency: c.NewKey()})
}

func TestFailover(t *testing.T) {
	s := startServer(t, serverConfig(t))
	for name, broken := range map[string]string{"dead": deadServer(t), "silent": silentServer(t)} {
		c := failoverClient(t, broken, s.URL())
		if got := lookUp(t, c, "nothing"); got.GetToken() != 0 {
			t.Errorf("%s: a read: %v", name, got)
		}
		if _, member := c.members.current(); member.String() != s.URL() {
			t.Errorf("%s: %v is preferred", name, member)
		}
		if _, err := failoverClient(t, broken, s.URL()).Leases().Claim(testContext(t), keyedClaim(c, "k-"+name)); err != nil {
			t.Errorf("%s: a claim with a key: %v", name, err)
		}
		session := openSession(t, failoverClient(t, broken, s.URL()), SessionConfig{})
		if l := mustClaim(t, session, "s-"+name); !l.Held() {
			t.Errorf("%s: a session's claim is not held", name)
		}
		watched := false
		for m, err := range failoverClient(t, broken, s.URL()).Watch(testContext(t), WatchOptions{Name: named("s-" + name)}) {
			watched = err == nil && len(m.Events) == 1
			break
		}
		if !watched {
			t.Errorf("%s: a watch did not go on with the other member", name)
		}
	}
}

// What may have been executed and must not be repeated ends as unknown.
func TestG25_AnUnknownOutcomeIsUnknown(t *testing.T) {
	silent := silentServer(t)
	claim := func(c *Client, key *apiv1.Idempotency) error {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		_, err := c.Leases().Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{Name: apiName(named("db")), Holder: "a", TtlMs: 1000, Idempotency: key}))
		return AsError(err)
	}
	if err := claim(clientOf(t, silent), nil); incumbent.KindOf(err) != incumbent.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim that is never answered: %v, want Unknown", err)
	}
	based := &apiv1.Idempotency{Key: []byte("k"), BaseIndex: 1}
	if err := claim(failoverClient(t, silent, silentServer(t)), based); incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("with a key, at two members: %v, want Unknown", err)
	}
	if err := claim(clientOf(t, deadServer(t)), nil); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("a claim that was never sent: %v, want Unavailable", err)
	}
	// Without a key it is not repeated, although another member is there.
	s := startServer(t, serverConfig(t))
	cutting := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cutting.Close()
	if err := claim(clientOf(t, cutting.URL, s.URL()), nil); incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("a claim whose connection was cut: %v, want Unknown", err)
	}
	if got := lookUp(t, clientOf(t, s.URL()), "db"); got.GetLastToken() != 0 {
		t.Errorf("it was repeated: %v", got)
	}
	read := func(c *Client) error {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		_, err := c.Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{Name: apiName(named("db"))}))
		return AsError(err)
	}
	if err := read(clientOf(t, silent)); incumbent.KindOf(err) != incumbent.DeadlineExceeded {
		t.Errorf("a read that is never answered: %v, want DeadlineExceeded", err)
	}
	if err := read(clientOf(t, cutting.URL)); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("a read whose connection was cut: %v, want Unavailable", err)
	}
}

// The first answer is lost on the way; the repeated call applies nothing twice.
func TestG25_ARepeatedCallAppliesOnce(t *testing.T) {
	s := startServer(t, serverConfig(t))
	var claims atomic.Int32
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := strings.HasSuffix(r.URL.Path, "/Claim") && claims.Add(1) == 1
		out, err := http.NewRequestWithContext(r.Context(), r.Method, s.URL()+r.URL.Path, r.Body)
		if err != nil {
			panic(err)
		}
		out.Header = r.Header.Clone()
		res, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer res.Body.Close()
		if first {
			panic(http.ErrAbortHandler) // it was executed; nobody learns of it
		}
		t.Errorf("%s came twice to the same member", r.URL.Path)
	}))
	defer lossy.Close()
	c := clientOf(t, lossy.URL, s.URL())
	direct := clientOf(t, s.URL())
	mustClaim(t, openSession(t, direct, SessionConfig{}), "warm") // an empty log has no index to choose a key by
	key := direct.NewKey()
	if err := direct.complete(testContext(t), key); err != nil {
		t.Fatal(err)
	}
	req := keyedClaim(c, "db")
	req.Msg.Idempotency = key
	res, err := c.Leases().Claim(testContext(t), req)
	if err != nil {
		t.Fatal(err)
	}
	got := lookUp(t, direct, "db")
	if got.Token != res.Msg.Lease.Token || got.LastToken != got.Token || len(got.History) != 1 || res.Msg.HeldMs != 0 {
		t.Errorf("applied more than once, or held for certain from the wrong moment: %v; the lease is %v", res.Msg, got)
	}
	if claims.Load() != 1 {
		t.Errorf("%d claims went through the lossy member", claims.Load())
	}
}

// members that record the keys of claims.
type keyRecorder struct {
	incumbentv1connect.UnimplementedLeaseServiceHandler
	incumbentv1connect.UnimplementedSessionServiceHandler
	index uint64
	bases []uint64
	asked int
}

func (k *keyRecorder) Claim(_ context.Context, r *connect.Request[apiv1.ClaimRequest]) (*connect.Response[apiv1.ClaimResponse], error) {
	k.bases = append(k.bases, r.Msg.Idempotency.BaseIndex)
	k.index++
	return connect.NewResponse(&apiv1.ClaimResponse{Index: k.index}), nil
}

func (k *keyRecorder) ListSessions(context.Context, *connect.Request[apiv1.ListSessionsRequest]) (*connect.Response[apiv1.ListSessionsResponse], error) {
	k.asked++
	return connect.NewResponse(&apiv1.ListSessionsResponse{Index: k.index}), nil
}

// A key is never sent with a base that servers may have forgotten: neither the
// first of a client, nor one after a long silence.
func TestKeysHaveAFreshBase(t *testing.T) {
	k := &keyRecorder{index: 1000}
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewLeaseServiceHandler(k))
	mux.Handle(incumbentv1connect.NewSessionServiceHandler(k))
	web := httptest.NewServer(mux)
	defer web.Close()
	c := clientOf(t, web.URL)
	clock := &pausable{}
	c.clock = clock.now
	claim := func() {
		t.Helper()
		if _, err := c.Leases().Claim(testContext(t), keyedClaim(c, "db")); err != nil {
			t.Fatal(err)
		}
	}
	claim() // learns 1000, and of 1001 by the answer
	claim() // knows 1001
	k.index = 5000
	clock.ahead.Store(int64(maxIndexAge + time.Second))
	claim() // has to ask again
	if want := []uint64{1000, 1001, 5000}; fmt.Sprint(k.bases) != fmt.Sprint(want) || k.asked != 2 {
		t.Errorf("bases %v after asking %d times, want %v and 2", k.bases, k.asked, want)
	}
}
