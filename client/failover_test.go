package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// patient is how long a silent member delays these tests. A member that is not
// silent must answer sooner, on a machine that does other things for seconds.
const patient = 10 * time.Second

func failoverClient(t testing.TB, urls ...string) *Client {
	t.Helper()
	return newClient(t, Config{Servers: urls, SilentTimeout: patient})
}

func keyedClaim(c *Client, name string) *connect.Request[apiv1.ClaimRequest] {
	return connect.NewRequest(&apiv1.ClaimRequest{Name: apiName(named(name)), Holder: "a", TtlMs: 60_000, Idempotency: c.NewKey()})
}

func TestFailover(t *testing.T) {
	s := startServer(t, serverConfig(t))
	mustClaim(t, openSession(t, clientOf(t, s.URL()), SessionConfig{TTL: longTTL}), "watched")
	calls := map[string]func(ctx context.Context, c *Client, name string) error{
		"read":    failoverRead,
		"claim":   failoverClaim,
		"session": failoverSession,
		"watch":   failoverWatch,
		"keys":    failoverWatchKeys,
	}
	var all sync.WaitGroup
	for name, broken := range map[string]string{"dead": deadServer, "silent": silentServer(t)} {
		for what, call := range calls {
			c, ctx := failoverClient(t, broken, s.URL()), testContext(t)
			all.Go(func() {
				if err := call(ctx, c, name); err != nil {
					t.Errorf("%s: a %s: %v", name, what, err)
				}
				if _, member := c.members.current(); member.String() != s.URL() {
					t.Errorf("%s: after a %s %v is preferred", name, what, member)
				}
			})
		}
	}
	all.Wait()
}

func failoverRead(ctx context.Context, c *Client, _ string) error {
	_, err := c.Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{Name: apiName(named("watched"))}))
	return err
}

func failoverClaim(ctx context.Context, c *Client, name string) error {
	_, err := c.Leases().Claim(ctx, keyedClaim(c, "k-"+name))
	return err
}

func failoverSession(ctx context.Context, c *Client, name string) error {
	session, err := c.Open(ctx, SessionConfig{TTL: longTTL})
	if err != nil {
		return err
	}
	l, err := session.Claim(ctx, named("s-"+name), ClaimOptions{})
	if err == nil && !l.Held() {
		err = errors.New("what was claimed is not held")
	}
	return errors.Join(err, session.Close(ctx))
}

func failoverWatch(ctx context.Context, c *Client, _ string) error {
	for m, err := range c.Watch(ctx, WatchOptions{Name: named("watched")}) {
		if err == nil && len(m.Events) != 1 {
			err = fmt.Errorf("the first message is %v", m)
		}
		return err
	}
	return errors.New("it ended")
}

func failoverWatchKeys(ctx context.Context, c *Client, _ string) error {
	for m, err := range c.KV("").Watch(ctx, WatchKeysOptions{Key: "watched"}) {
		if err == nil && !m.Snapshot {
			err = fmt.Errorf("the first message is %v", m)
		}
		return err
	}
	return errors.New("it ended")
}

// What may have been executed and must not be repeated ends as unknown.
func TestG25_AnUnknownOutcomeIsUnknown(t *testing.T) {
	claim := func(ctx context.Context, c *Client, key *apiv1.Idempotency) error {
		_, err := c.Leases().Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{Name: apiName(named("db")), Holder: "a", TtlMs: 1000, Idempotency: key}))
		return AsError(err)
	}
	silent, heard := listenSilently(t)
	if err := claim(dueOnce{context.Background(), heard}, clientOf(t, silent), nil); incumbent.KindOf(err) != incumbent.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim that is never answered: %v, want Unknown", err)
	}
	based := &apiv1.Idempotency{Key: []byte("k"), BaseIndex: 1}
	second, heard := listenSilently(t)
	both := newClient(t, Config{Servers: []string{silent, second}, SilentTimeout: time.Second})
	if err := claim(dueOnce{context.Background(), heard}, both, based); incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("with a key, at two members: %v, want Unknown", err)
	}
	if err := claim(testContext(t), clientOf(t, deadServer), nil); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("a claim that was never sent: %v, want Unavailable", err)
	}
	// Without a key it is not repeated, although another member is there.
	s := startServer(t, serverConfig(t))
	cutting := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cutting.Close()
	if err := claim(testContext(t), clientOf(t, cutting.URL, s.URL()), nil); incumbent.KindOf(err) != incumbent.Unknown {
		t.Errorf("a claim whose connection was cut: %v, want Unknown", err)
	}
	if got := lookUp(t, clientOf(t, s.URL()), "db"); got.GetLastToken() != 0 {
		t.Errorf("it was repeated: %v", got)
	}
	read := func(ctx context.Context, c *Client) error {
		_, err := c.Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{Name: apiName(named("db"))}))
		return AsError(err)
	}
	silent, heard = listenSilently(t)
	if err := read(dueOnce{context.Background(), heard}, clientOf(t, silent)); incumbent.KindOf(err) != incumbent.DeadlineExceeded {
		t.Errorf("a read that is never answered: %v, want DeadlineExceeded", err)
	}
	if err := read(testContext(t), clientOf(t, cutting.URL)); incumbent.KindOf(err) != incumbent.Unavailable {
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
	c := failoverClient(t, lossy.URL, s.URL())
	direct := clientOf(t, s.URL())
	mustClaim(t, openSession(t, direct, SessionConfig{}), "warm") // an empty log has no index to choose a key by
	key := direct.NewKey()
	if err := direct.complete(testContext(t), key, direct.learn); err != nil {
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

func (k *keyRecorder) GetSession(context.Context, *connect.Request[apiv1.GetSessionRequest]) (*connect.Response[apiv1.GetSessionResponse], error) {
	k.asked++
	return nil, notThereAt(k.index)
}

// notThereAt is what a read answers that found nothing in the state at an index.
func notThereAt(index uint64) error {
	err := connect.NewError(connect.CodeNotFound, errors.New("not there"))
	err.Meta().Set(headerIndex, strconv.FormatUint(index, 10))
	if d, bad := connect.NewErrorDetail(&apiv1.Error{Kind: incumbent.NotFound.String()}); bad == nil {
		err.AddDetail(d)
	}
	return err
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
