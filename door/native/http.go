package native

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/api/grpc/health/v1/healthv1connect"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/park"
)

// Listener is what connections to the door are counted under; see [tally.Tally.Count].
const Listener = doorName

// StreamPath is where a stream is opened.
const StreamPath = "/v1/stream"

// caller is who sends requests, and over what.
type caller struct {
	principal auth.Principal
	address   string
	control   *callControl                // of a call; nil for a stream
	rights    atomic.Pointer[auth.Rights] // by the policies of the last look; see Door.rights
	now       func() time.Time
	shared    *sharedAnswer // goes out in the place of what the call returns; nil: that does
}

// callControl is what a call has and a stream has not.
type callControl struct {
	*http.ResponseController

	timed   bool          // the caller says how long it waits for the answer
	size    int64         // of the request as it is sent, in bytes; negative: not known
	header  http.Header   // of the answer
	unsent  int64         // bytes of the answer that count until it has been sent
	message proto.Message // nil until it is there
	group   admit.Key     // of it
	place   *callPlace    // that it has now; nil: none
	said    said
	body    bodyShare
}

// arrived says that the message of the call is there.
func (c *callControl) arrived(m any) {
	c.body.give()
	c.message, _ = m.(proto.Message)
	c.group = groupOf(m)
	_ = c.SetReadDeadline(time.Time{})
}

// timed reports whether a call's headers say how long its caller waits for the answer, in
// Connect's protocol or in gRPC's.
func timed(h http.Header) bool {
	return h.Get("Connect-Timeout-Ms") != "" || h.Get("Grpc-Timeout") != ""
}

// name is what commands record of who sent them.
func (c *caller) name() string { return c.principal.String() }

// work says for whom work is done, and in which group, 0 if that is not known: see groupOf.
func (c *caller) work(group admit.Key) admit.Who {
	return admit.Who{Client: admit.ClientOf(c.principal.Name, c.address), Group: group}
}

// writeWithin bounds the next write of a streaming call. Where the connection
// has no deadlines, as in tests of handlers alone, there is none.
func (c *caller) writeWithin(d time.Duration) {
	_ = c.control.SetWriteDeadline(c.now().Add(d))
}

// writeAnyTime lifts the bound.
func (c *caller) writeAnyTime() { _ = c.control.SetWriteDeadline(time.Time{}) }

type callerKey struct{}

// callerOf returns who sends the request of a call's context.
func callerOf(ctx context.Context) *caller {
	return ctx.Value(callerKey{}).(*caller) //nolint:forcetypeassert // the door puts it there before any handler runs
}

// ServeHTTP serves the calls and the upgrade to a stream; other paths are not
// found. Mount it at Paths.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*d.handler.Load()).ServeHTTP(w, r) }

// services are the names of all that the door serves, but for the reflection that shows them.
var services = []string{
	incumbentv1connect.LeaseServiceName, incumbentv1connect.SessionServiceName, incumbentv1connect.KeyValueServiceName,
	incumbentv1connect.TransactionServiceName, incumbentv1connect.ClusterServiceName, incumbentv1connect.PolicyServiceName,
	incumbentv1connect.CatalogServiceName, incumbentv1connect.TableServiceName, incumbentv1connect.TrustServiceName,
	incumbentv1connect.SettingsServiceName, incumbentv1connect.CredentialServiceName, healthv1connect.HealthName,
}

// Paths are the patterns, for http.ServeMux, that the door serves.
func (d *Door) Paths() []string {
	paths := []string{"/" + grpcreflect.ReflectV1ServiceName + "/", "/" + grpcreflect.ReflectV1AlphaServiceName + "/", StreamPath}
	for _, name := range services {
		paths = append(paths, "/"+name+"/")
	}
	return paths
}

// compressMin is of how many bytes an answer is compressed where its caller takes that. To
// compress takes longer than a network of a gigabit a second takes to carry, and a processor
// that others need: only what is long enough to be worth it to a client far away is.
const compressMin = 1 << 20

// newHandler makes the handler for these limits.
func (d *Door) newHandler(l *Limits) http.Handler {
	most := maxInflated * l.MaxBodyBytes
	options := connect.WithHandlerOptions(
		codecs(),
		connect.WithReadMaxBytes(most), // boundedBody bounds what is sent
		d.bounding(most),
		connect.WithCompressMinBytes(compressMin),
		connect.WithRequestGate(d.gate),
		connect.WithInterceptors(timing{d}),
	)
	wide := *l // for values
	wide.MaxBodyBytes = max(l.MaxBodyBytes, keyBodyBytes)
	mux := http.NewServeMux()
	handle := func(path string, h http.Handler) { mux.Handle(path, d.bounded(h, l)) }
	handle(incumbentv1connect.NewLeaseServiceHandler(leaseService{d}, options))
	handle(incumbentv1connect.NewSessionServiceHandler(sessionService{d}, options))
	path, keys := incumbentv1connect.NewKeyValueServiceHandler(keyService{d}, options)
	mux.Handle(path, d.bounded(keys, &wide))
	path, txns := incumbentv1connect.NewTransactionServiceHandler(txnService{d}, options)
	widest := wide
	widest.MaxBodyBytes = max(l.MaxBodyBytes, txnBodyBytes)
	mux.Handle(path, d.bounded(txns, &widest))
	path, tables := incumbentv1connect.NewTableServiceHandler(tableService{d}, options)
	mux.Handle(path, d.bounded(tables, &widest))
	handle(incumbentv1connect.NewClusterServiceHandler(clusterService{d}, options))
	handle(incumbentv1connect.NewCatalogServiceHandler(catalogService{d}, options))
	handle(incumbentv1connect.NewPolicyServiceHandler(policyService{d}, options))
	handle(incumbentv1connect.NewSettingsServiceHandler(settingsService{d}, options))
	handle(incumbentv1connect.NewTrustServiceHandler(trustService{d}, options))
	handle(incumbentv1connect.NewCredentialServiceHandler(credentialService{d}, options))
	handle(healthv1connect.NewHealthHandler(healthService{d}, options))
	reflector := grpcreflect.NewStaticReflector(services...)
	handle(grpcreflect.NewHandlerV1(reflector, options))
	handle(grpcreflect.NewHandlerV1Alpha(reflector, options))
	mux.HandleFunc(StreamPath, d.upgrade)
	return mux
}

// bounded identifies the caller and bounds what it may send, and how slowly.
func (d *Door) bounded(h http.Handler, l *Limits) http.Handler {
	errors := connect.NewErrorWriter(codecs())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(err error) {
			w.Header().Set("Connection", "close") // the body is not read
			_ = errors.Write(w, r, d.callError(err))
		}
		if !d.calls.begin() {
			gate.VisitOfRequest(r.Context()).Refused(errDraining())
			refuse(errDraining())
			return
		}
		defer d.calls.end()
		who, err := d.identify(r)
		if err != nil {
			w.Header().Set("Connection", "close")
			_ = errors.Write(w, r, callError(d.deniedLogin(r.RemoteAddr, err), standing{}, nil)) // strangers are not told who is who here
			return
		}
		if r.ContentLength > int64(l.MaxBodyBytes)+bodySlack {
			refuse(tooLargeBody(l.MaxBodyBytes))
			return
		}
		who.control = &callControl{ResponseController: http.NewResponseController(w), timed: timed(r.Header), size: r.ContentLength, header: w.Header()}
		_ = who.control.SetReadDeadline(d.now().Add(l.WriteTimeout)) // lifted once the message is there
		who.writeWithin(l.WriteTimeout)                              // so is this
		who.control.body = bodyShare{door: d, who: who.work(0)}
		defer who.control.body.give()
		// In a request of our own: net/http sees by the body of its own whether it was read to
		// its end, and otherwise does not read the next request from the rest of it.
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
		r.Body = &boundedBody{
			ReadCloser: r.Body, left: int64(l.MaxBodyBytes) + bodySlack,
			err: func() error { return d.callError(tooLargeBody(l.MaxBodyBytes)) },
		}
		r.Body = &countedBody{r.Body, who.control}
		if r.ProtoMajor == 1 {
			r.Body = &wholeBody{ReadCloser: r.Body, header: w.Header()}
		}
		defer d.sent(who)
		h.ServeHTTP(w, r)
	})
}

// boundedBody ends a body that is too long with the error that its caller is told,
// in whichever protocol: Connect's own has no detail and no hint.
type boundedBody struct {
	io.ReadCloser
	left int64 // bytes that may still be read
	err  func() error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left+1)] // one more says that there is more
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n, err = int(b.left), b.err()
	}
	b.left -= int64(n)
	return n, err
}

// wholeBody ends the connection of HTTP/1.1 with the answer if the body could not be
// read to its end, as when it dribbled in for too long: what is left of it must not be
// waited for, nor be read as the next request. net/http sees to that of bodies of which
// it knows; of this the client is told. Over HTTP/2 the stream ends by itself.
type wholeBody struct {
	io.ReadCloser
	header http.Header // of the answer, which is not written before the body is read
}

// Read implements io.Reader.
func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.header.Set("Connection", "close")
	}
	return n, err
}

// timing is what happens around a call's own code: the message has arrived, so
// its sender may now be silent for as long as the call takes; and the answer
// must be taken in time.
type timing struct{ d *Door }

// WrapUnary implements connect.Interceptor.
func (t timing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		who := callerOf(ctx)
		who.control.arrived(r.Any())
		who.writeAnyTime()
		defer func() { who.writeWithin(t.d.limits.Load().WriteTimeout) }() // whatever it is answered with
		if err := t.d.mayAsk(who, r.Any()); err != nil {
			return nil, t.d.callError(err)
		}
		out, err := next(ctx, r)
		var said any
		if err == nil {
			said = out.Any()
		}
		t.d.settledCall(who, r.Spec().Procedure, r.Any(), said, err)
		t.d.slow(ctx, who, err)
		switch {
		case err != nil:
			return out, err
		case who.shared != nil: // each call's answer is a copy of what they share
			out, err = connect.NewResponse(who.shared), t.d.keepBytes(who, who.shared.size(), true)
		default:
			err = t.d.keep(who, r.Spec(), r.Any(), said)
		}
		if err != nil {
			return nil, t.d.callError(err)
		}
		return out, nil
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (timing) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. All streaming calls but
// reflection have one message from the client, which is read by then.
func (t timing) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		who := callerOf(ctx)
		timed := &timedConn{StreamingHandlerConn: conn, who: who, door: t.d}
		if conn.Spec().StreamType == connect.StreamTypeServer {
			conn = timed
		}
		err := next(ctx, conn)
		t.d.settledCall(who, conn.Spec().Procedure, timed.in, nil, err)
		t.d.slow(ctx, who, err)
		who.writeWithin(t.d.limits.Load().WriteTimeout)
		return err
	}
}

// timedConn lifts the deadline of reading with the first message, and bounds
// each write by itself: between two a call may be silent for as long as it
// likes. HTTP/2 resets a stream whose write deadline passes, written to or not.
type timedConn struct {
	connect.StreamingHandlerConn
	who  *caller
	door *Door
	in   any // the message, once it was read
}

// Send implements connect.StreamingHandlerConn.
func (c *timedConn) Send(m any) error {
	c.who.writeWithin(c.door.limits.Load().WriteTimeout)
	err := c.StreamingHandlerConn.Send(m)
	c.who.writeAnyTime()
	return err
}

// Receive implements connect.StreamingHandlerConn.
func (c *timedConn) Receive(m any) error {
	err := c.StreamingHandlerConn.Receive(m)
	if err == nil {
		c.in = m
		c.who.control.arrived(m)
		c.who.writeAnyTime()
	}
	return err
}

// untilDrained returns a context that also ends when the door drains, and when what
// the caller was known by is good no more.
func (d *Door) untilDrained(ctx context.Context) (context.Context, func()) {
	who, ofCall := ctx.Value(callerKey{}).(*caller) // a frame's stream ends as a whole
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.life, func() { cancel(context.Cause(d.life)) })
	if !ofCall || who.principal.Proof == (auth.Proof{}) {
		return ctx, func() { stop(); cancel(nil) }
	}
	b := &lastingCall{who: who.principal, cancel: cancel}
	d.blocked.Add(b)
	if known := d.known.Load(); known != nil && !(*known)(b.who) {
		cancel(errNotKnown()) // Recheck may have missed it
	}
	return ctx, func() { d.blocked.Remove(b); stop(); cancel(nil) }
}

// lastingCall is a call under way that may last.
type lastingCall struct {
	who    auth.Principal
	cancel context.CancelCauseFunc

	park.Link[*lastingCall] // in door.blocked
}

// callError is an error of a call, with what this member adds.
func (d *Door) callError(err error) *connect.Error { return callError(err, d.standing(), nil) }

func (d *Door) standing() standing {
	member, leader, url := d.operator.Standing()
	return standing{member, leader, url}
}

// callCount counts calls under way, and lets none begin once somebody waits
// for the last.
type callCount struct {
	mu      sync.Mutex // guards the rest
	n       int
	waiting chan struct{} // closed with the last call; nil while none waits
}

func (c *callCount) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != nil {
		return false
	}
	c.n++
	return true
}

func (c *callCount) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.waiting != nil {
		close(c.waiting)
	}
}

func (c *callCount) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// stop lets no call begin any more.
func (c *callCount) stop() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(chan struct{})
		if c.n == 0 {
			close(c.waiting)
		}
	}
	return c.waiting
}

// wait returns when the last call has ended, or with the error of ctx.
func (c *callCount) wait(ctx context.Context) error {
	last := c.stop()
	select {
	case <-last:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
