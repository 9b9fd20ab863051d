// Package client is the Go client of Incumbent.
//
// Three ways in, from least to most:
//
//	client.Elect(ctx, c, "db/primary", 15*time.Second, lead)  // lead(ctx, token) while it holds
//	session, err := c.Open(ctx, client.SessionConfig{…})      // claims, waits, watches, kept alive
//	c.Leases().Claim(ctx, …)                                  // plain calls of the API
//
// A [Client] speaks to any of the members it is given and goes on with another
// when one is silent. Calls are repeated only where that is safe: reads, and
// mutations that carry an idempotency key.
//
// # Invariants
//
//   - A holder's deadline counts from the moment it *sent* the request that was
//     acknowledged, on a clock that counts suspended time, less the drift
//     margin. Past it, [Lease.Held] is false before any code of the user runs.
//   - An outcome that is not known is never reported as a failure.
//   - Who is refused does not make more load: of what members refuse for now, or are
//     silent about, a tenth is repeated, ten at once beyond that and one a second, by each
//     session, and by the plain calls and watches of a client; then the caller gets the refusal. Each pause
//     is spread at random, and is no shorter than the member asked for. A claim that was
//     refused for overload is never repeated here ([Elect] is for who wants that). Beats
//     and extensions go on until the deadline of what they keep.
package client

import (
	"bufio"
	"cmp"
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// Defaults of [Config].
const (
	DefaultSilentTimeout = time.Second
	DefaultDrift         = 0.01 // ρ: clocks run at rates within ±1 % of each other
)

// maxIndexAge is how old an index may be to be the base of a new key. Servers
// keep the results of keys for ten minutes, of the newest 100,000 keys, and refuse a base
// from before that: with more than 1,700 keys a second it may be too old sooner. A request
// that is refused for that, and of which no attempt may have been executed, is sent again
// with the base that the refusal names.
const maxIndexAge = time.Minute

// Config says where the members are and who the caller is.
type Config struct {
	// Servers are the URLs of members, such as http://127.0.0.1:7600. They are
	// tried in turn. Required.
	Servers []string
	// Credential is sent as a bearer token. Empty: none.
	Credential string
	// CAFile, CertFile and KeyFile are PEM files for TLS. Empty: the system's
	// authorities and no certificate.
	CAFile, CertFile, KeyFile string
	// TLS replaces what the files would give.
	TLS *tls.Config
	// Local is the address that connections come from, of [net.TCPAddr]. nil: the system
	// chooses. From one address to one member there are as many as there are ports.
	Local net.Addr
	// CallTimeout bounds one call with all its attempts. 0: no bound of its own.
	CallTimeout time.Duration
	// SilentTimeout is how long a member may be silent before another is tried.
	// It matters only with more than one server. 0: one second.
	SilentTimeout time.Duration
	// Spread has the client begin with any of the servers instead of the first, and its
	// sessions find other members by themselves, and go back, minutes later and each at a
	// time of its own, to the one that they began at or, of more members, would have.
	Spread bool
	// Drift is the margin for clocks of different rates, as a share of each
	// ttl. 0: one per cent.
	Drift float64
}

// Client speaks to a cluster. It is safe for concurrent use.
type Client struct {
	cfg      Config
	tls      *tls.Config
	http     *http.Client
	members  *members
	leases   incumbentv1connect.LeaseServiceClient
	sessions incumbentv1connect.SessionServiceClient
	keys     incumbentv1connect.KeyValueServiceClient
	policies incumbentv1connect.PolicyServiceClient
	catalog  incumbentv1connect.CatalogServiceClient
	tables   incumbentv1connect.TableServiceClient
	txns     incumbentv1connect.TransactionServiceClient
	cluster  incumbentv1connect.ClusterServiceClient
	settings incumbentv1connect.SettingsServiceClient
	trust    incumbentv1connect.TrustServiceClient
	creds    incumbentv1connect.CredentialServiceClient
	clock    func() time.Duration // boottime, or a test's
	index    atomic.Uint64        // newest index any answer has shown
	seen     atomic.Int64         // on clock: when the index was heard, or asked for

	streams func(context.Context, StreamOptions) (*Stream, *bufio.Reader, error) // DialStream, or a test's

	budget       budget // of what calls and watches repeat; a session has its own
	pace         pace
	watchSilence time.Duration // a member that says nothing in a watch for so long stands still
}

// New checks the configuration. It connects to nothing yet.
func New(cfg Config) (*Client, error) {
	if cfg.SilentTimeout == 0 {
		cfg.SilentTimeout = DefaultSilentTimeout
	}
	if cfg.Drift == 0 {
		cfg.Drift = DefaultDrift
	}
	if cfg.Drift < 0 || cfg.Drift >= 0.5 {
		return nil, incumbent.Errorf(incumbent.Invalid, "drift %v is outside 0 to 0.5", cfg.Drift)
	}
	members, err := newMembers(cfg.Servers)
	if err != nil {
		return nil, err
	}
	if cfg.Spread {
		members.preferred.Store(rand.Int32N(int32(len(members.urls()))))
		members.spread = rand.Int32()
	}
	c := &Client{cfg: cfg, pace: pace{minAway, awaySpan, findEvery}, members: members, clock: boottime, watchSilence: watchSpeaksEvery + 2*cfg.SilentTimeout}
	c.streams = c.DialStream
	if c.tls, err = tlsConfig(cfg); err != nil {
		return nil, err
	}
	c.http = &http.Client{Transport: newTransport(c)}
	opts := []connect.ClientOption{connect.WithInterceptors(&interceptor{c})}
	// The host part is replaced for each attempt by the member it goes to.
	const base = "http://member"
	c.leases = incumbentv1connect.NewLeaseServiceClient(c.http, base, opts...)
	c.sessions = incumbentv1connect.NewSessionServiceClient(c.http, base, opts...)
	c.keys = incumbentv1connect.NewKeyValueServiceClient(c.http, base, opts...)
	c.txns = incumbentv1connect.NewTransactionServiceClient(c.http, base, opts...)
	c.policies = incumbentv1connect.NewPolicyServiceClient(c.http, base, opts...)
	c.catalog = incumbentv1connect.NewCatalogServiceClient(c.http, base, opts...)
	c.tables = incumbentv1connect.NewTableServiceClient(c.http, base, opts...)
	c.cluster = incumbentv1connect.NewClusterServiceClient(c.http, base, opts...)
	c.settings = incumbentv1connect.NewSettingsServiceClient(c.http, base, opts...)
	c.trust = incumbentv1connect.NewTrustServiceClient(c.http, base, opts...)
	c.creds = incumbentv1connect.NewCredentialServiceClient(c.http, base, opts...)
	return c, nil
}

// Leases returns the plain calls on leases. Their errors are *incumbent.Error
// behind [AsError].
func (c *Client) Leases() incumbentv1connect.LeaseServiceClient { return c.leases }

// Sessions returns the plain calls on sessions.
func (c *Client) Sessions() incumbentv1connect.SessionServiceClient { return c.sessions }

// Cluster returns the operator's calls.
func (c *Client) Cluster() incumbentv1connect.ClusterServiceClient { return c.cluster }

// Trust returns the calls about what the members trust one another by.
func (c *Client) Trust() incumbentv1connect.TrustServiceClient { return c.trust }

// Index returns the newest index that any answer has shown this client.
func (c *Client) Index() incumbent.Index { return incumbent.Index(c.index.Load()) }

// saw remembers an index, so that keys chosen from now on name it as their base. Any
// index that a member has shown is one: what is sent from now on has a greater one. How
// old it is decides only whether the log may have forgotten results since.
func (c *Client) saw(index uint64) {
	for {
		old := c.index.Load()
		if index <= old {
			return
		}
		if c.index.CompareAndSwap(old, index) {
			c.seen.Store(int64(c.clock()))
			return
		}
	}
}

// base is an index to choose a key by; 0 if none is known that is new enough.
func (c *Client) base() uint64 {
	index := c.index.Load()
	if int64(c.clock())-c.seen.Load() > int64(maxIndexAge) {
		return 0
	}
	return index
}

// headerIndex is that of an error of a read: the index of what was read.
const headerIndex = "Incumbent-Index"

// learn asks for the present index. It is a read, so that it goes on with another
// member when one is silent; of a session that is not there, since that costs nothing
// and an operator is answered however much is refused.
func (c *Client) learn(ctx context.Context) error {
	asked := c.clock()
	_, err := c.sessions.GetSession(ctx, connect.NewRequest(&apiv1.GetSessionRequest{Id: incumbent.NewSessionID().String(), Stale: true}))
	var ce *connect.Error
	if !errors.As(err, &ce) || connect.CodeOf(err) != connect.CodeNotFound {
		return AsError(err)
	}
	index, err := strconv.ParseUint(ce.Meta().Get(headerIndex), 10, 64)
	if err != nil {
		return incumbent.Errorf(incumbent.Internal, "the answer has no index: %w", err)
	}
	c.learned(asked, index)
	return nil
}

// learned notes an index that was the newest when it was asked for.
func (c *Client) learned(asked time.Duration, index uint64) {
	c.saw(index)
	c.seen.Store(int64(asked))
}

// complete gives a key its base, if it has none yet: a request is sent only
// with an index from which on the servers know all results of keys. learn asks for the
// present one.
func (c *Client) complete(ctx context.Context, k *apiv1.Idempotency, learn func(context.Context) error) error {
	if len(k.GetKey()) == 0 || k.BaseIndex != 0 {
		return nil
	}
	if c.base() == 0 {
		if err := learn(ctx); err != nil {
			return err
		}
	}
	k.BaseIndex = c.index.Load()
	return nil
}

// NewKey returns a fresh idempotency key: use the same one for all attempts of
// one call. Its base is filled in when it is first sent, if this client has not
// heard of an index lately.
func (c *Client) NewKey() *apiv1.Idempotency {
	key := make([]byte, 16)
	crand.Read(key) // never fails: crypto/rand stops the process instead
	return &apiv1.Idempotency{Key: key, BaseIndex: c.base()}
}

// Close lets idle connections go. Calls under way are not waited for.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func tlsConfig(cfg Config) (*tls.Config, error) {
	if cfg.TLS != nil {
		return cfg.TLS, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, invalidFile("certificates", cfg.CAFile, err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, incumbent.Errorf(incumbent.Invalid, "%s holds no certificate in PEM form", cfg.CAFile)
		}
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, incumbent.Errorf(incumbent.Invalid, "a certificate needs its key, and a key its certificate: %q has none", cmp.Or(cfg.CertFile, cfg.KeyFile))
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, invalidFile("certificate and key", cfg.CertFile, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func invalidFile(what, path string, err error) error {
	return incumbent.Errorf(incumbent.Invalid, "cannot read %s from %q: %w", what, path, err)
}

// interceptor bounds a call in time, adds the credential, completes its key and
// says what may be repeated.
type interceptor struct{ c *Client }

func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if i.c.cfg.CallTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, i.c.cfg.CallTimeout)
			defer cancel()
		}
		i.authorize(req.Header())
		if m, ok := req.Any().(interface{ GetIdempotency() *apiv1.Idempotency }); ok {
			if err := i.c.complete(ctx, m.GetIdempotency(), i.c.learn); err != nil {
				return nil, connect.NewError(connect.CodeUnavailable, err)
			}
		}
		i.c.budget.first(1)
		res, err := i.send(ctx, next, req)
		if err != nil {
			return nil, err
		}
		if m, ok := res.Any().(interface{ GetIndex() uint64 }); ok {
			i.c.saw(m.GetIndex())
		}
		return res, nil
	}
}

// send sends a request whose key is complete. Refused for the base of a key that no request
// carried before, it is sent again with another.
func (i *interceptor) send(ctx context.Context, next connect.UnaryFunc, req connect.AnyRequest) (connect.AnyResponse, error) {
	for {
		call := safetyOfCall(req)
		res, err := next(context.WithValue(ctx, safetyKey{}, call), req)
		if err == nil {
			return res, nil
		}
		base := newBase(AsError(err))
		m, keyed := req.Any().(interface{ GetIdempotency() *apiv1.Idempotency })
		if base == 0 || !keyed || req.Header().Get(headerFirst) == "" || call.unsure.Load() {
			return nil, call.outcome(err)
		}
		m.GetIdempotency().BaseIndex = base
		if ctx.Err() != nil || !i.c.budget.repeat(i.c.clock()) {
			return nil, connect.NewError(connect.CodeUnavailable, notExecuted(AsError(err)))
		}
	}
}

func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		if ctx.Value(safetyKey{}) == nil { // else that of a watch which is repeated
			ctx = context.WithValue(ctx, safetyKey{}, watchSafety())
		}
		conn := next(ctx, spec)
		i.authorize(conn.RequestHeader())
		return conn
	}
}

func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (i *interceptor) authorize(h http.Header) {
	if i.c.cfg.Credential != "" {
		h.Set("Authorization", "Bearer "+i.c.cfg.Credential)
	}
}

type safetyKey struct{}

// safety is what is known of a call, for the transport below it.
type safety struct {
	read   bool // changes nothing: that it was executed does not matter
	repeat bool // may be sent again after an attempt whose outcome is unknown
	prompt bool // is answered at once: a member that does not is silent

	sent   atomic.Bool // some attempt may have been executed
	unsure atomic.Bool // one may have been before the last

	member atomic.Int32 // which the last attempt was for
}

// watchSafety is that of a stream: of a watch, or of events.
func watchSafety() *safety { return &safety{read: true, repeat: true} }

func safetyOfCall(req connect.AnyRequest) *safety {
	s := &safety{read: req.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects}
	s.repeat, s.prompt = s.read, s.read
	if m, ok := req.Any().(interface{ GetIdempotency() *apiv1.Idempotency }); ok && len(m.GetIdempotency().GetKey()) > 0 {
		s.repeat, s.prompt = true, true
	}
	switch m := req.Any().(type) {
	case *apiv1.TxnRequest:
		s.read = readsOnly(m)
		s.repeat, s.prompt = s.repeat || s.read, s.prompt || s.read
	case *apiv1.ExtendRequest:
		s.repeat, s.prompt = true, true // extending twice only lengthens
	case *apiv1.WaitReleasedRequest:
		s.read, s.repeat = true, true // and takes as long as it takes
	}
	return s
}

func safetyOf(ctx context.Context) *safety {
	if s, ok := ctx.Value(safetyKey{}).(*safety); ok {
		return s
	}
	return &safety{}
}

// outcome is the error of a call that no server answered: unknown, if it may
// have been executed and that matters.
func (s *safety) outcome(err error) error {
	var call *connect.Error
	if errors.As(err, &call) && len(call.Details()) > 0 {
		return err // a server says so
	}
	ended := connect.CodeOf(err) == connect.CodeDeadlineExceeded || connect.CodeOf(err) == connect.CodeCanceled
	switch {
	case ended && !s.read && s.sent.Load():
		return connect.NewError(connect.CodeUnknown, unknownOutcome(err))
	case !ended && s.read && incumbent.KindOf(AsError(err)) == incumbent.Unknown:
		return connect.NewError(connect.CodeUnavailable, incumbent.Errorf(incumbent.Unavailable, "no answer: %w", err))
	}
	return err
}

func unknownOutcome(cause error) error {
	return incumbent.Errorf(incumbent.Unknown, "no answer, the call may or may not have taken effect: %w", cause).
		WithHint("read what it was to change before it is repeated, or repeat it with the idempotency key that it had")
}

// String names the members, for logs.
func (c *Client) String() string { return fmt.Sprintf("client of %v", c.cfg.Servers) }
