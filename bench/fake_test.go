package bench

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// maxFakeFrame is the largest message from a client, in bytes.
const maxFakeFrame = 1 << 20

// fakeServer speaks the stream and grants: leases with a queue, tokens that
// rise. Its switches make it lie.
type fakeServer struct {
	incumbentv1connect.UnimplementedLeaseServiceHandler

	notHeld   bool // every extension is told that nothing is held
	refuse    bool // every operation is answered with an error
	twice     bool // every answer is sent twice
	sameToken bool // every grant has the same token
	offerMore bool // every offer is sent twice
	shared    bool // a lease that is held is granted to the next
	noResults bool // bulk calls are answered with nothing
	forgets   bool // it knows nothing of what is held
	expires   bool // what nobody extends is freed when it is due, or so much earlier:
	early     time.Duration
	// extendError is the kind of error the first extensions get, or unconfirmed.
	extendError string
	excuses     int  // how many did
	cutOff      bool // every extension is told that it could not be confirmed
	// backsUp has backups come to their end.
	backsUp bool
	models  map[string]int // claims by model, if they are counted
	// cutsAttach has the next attachment refused, and its stream ended.
	cutsAttach bool

	incumbentv1connect.UnimplementedClusterServiceHandler
	*fakeState // of all members of its cluster
	name       string
	standing   *apiv1.Member // what it says of itself, if not that it is a follower and serves
	juju       *fakeJujuDoor // its door for Juju's agents, if it has one

	gate  sync.RWMutex      // locked while it stands still
	conns map[net.Conn]bool // open streams; nil while it is down
}

// unconfirmed are extensions of which an answer says that they were not, without an error.
const unconfirmed = "unconfirmed"

// maxExcuses is how many extensions get extendError.
const maxExcuses = 20

// fakeState is what the members of a cluster agree on.
type fakeState struct {
	leader atomic.Pointer[string]
	term   atomic.Uint64

	mu       sync.Mutex // one request at a time, and the members' connections
	ttl      time.Duration
	extended chan struct{} // closed with the first extension
	token    uint64
	leases   map[string]*fakeLease
	streams  map[string]net.Conn // session → its stream
	counters map[string]uint64   // session → that of its attachment
	refused  map[string]bool     // releases that were refused once
	zero     int                 // releases without a token
	frees    bool                // what a session held and nobody extends for the ttl and the grace goes to the next in its queue
	held     []*fakeLease        // those that a session has claimed
	lasts    time.Duration       // the ttl of the newest session
}

type fakeLease struct {
	session, holder string
	token           uint64
	queue           []string
	name            *apiv1.LeaseName
	heard           time.Time // of the newest claim, extension or beat that keeps it
}

// start returns the server's URL.
func (f *fakeServer) start(t *testing.T) string {
	if f.fakeState == nil {
		f.fakeState = &fakeState{}
	}
	f.conns = map[net.Conn]bool{}
	f.mu.Lock()
	if f.leases == nil {
		f.term.Store(1)
		f.extended = make(chan struct{})
		f.leases, f.streams, f.refused = map[string]*fakeLease{}, map[string]net.Conn{}, map[string]bool{}
		f.counters = map[string]uint64{}
	}
	f.mu.Unlock()
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewLeaseServiceHandler(f))
	mux.Handle(incumbentv1connect.NewClusterServiceHandler(f))
	mux.Handle(incumbentv1connect.NewSettingsServiceHandler(fakeSettings{}))
	mux.Handle(incumbentv1connect.NewSessionServiceHandler(fakeSessions{}))
	mux.HandleFunc("/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		f.goOn()
		conn, rw, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer conn.Close()
		if f.take(conn) {
			f.serve(conn, rw)
		}
	})
	// A stranger is refused before its body is read, as servers do: it is 256 MiB once it is
	// decompressed.
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			http.Error(w, "who is that", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	srv.Config.ReadHeaderTimeout = 5 * time.Second // who says nothing is closed
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// fakeSettings takes every setting.
type fakeSettings struct {
	incumbentv1connect.UnimplementedSettingsServiceHandler
}

func (fakeSettings) SetSetting(context.Context, *connect.Request[apiv1.SetSettingRequest]) (*connect.Response[apiv1.SetSettingResponse], error) {
	return connect.NewResponse(&apiv1.SetSettingResponse{}), nil
}

// fakeSessions lists none.
type fakeSessions struct {
	incumbentv1connect.UnimplementedSessionServiceHandler
}

func (fakeSessions) ListSessions(context.Context, *connect.Request[apiv1.ListSessionsRequest]) (*connect.Response[apiv1.ListSessionsResponse], error) {
	return connect.NewResponse(&apiv1.ListSessionsResponse{Index: 1}), nil
}

// Events tells of none.
func (f *fakeServer) Events(context.Context, *connect.Request[apiv1.EventsRequest], *connect.ServerStream[apiv1.EventsResponse]) error {
	return nil
}

// Get finds nothing.
func (f *fakeServer) Get(context.Context, *connect.Request[apiv1.GetRequest]) (*connect.Response[apiv1.GetResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, errors.New("no such lease"))
}

// Members says that there is this one.
func (f *fakeServer) Members(context.Context, *connect.Request[apiv1.MembersRequest]) (*connect.Response[apiv1.MembersResponse], error) {
	return connect.NewResponse(&apiv1.MembersResponse{}), nil
}

// Backup sends a backup in two pieces, the second of which may never come.
func (f *fakeServer) Backup(ctx context.Context, _ *connect.Request[apiv1.BackupRequest], out *connect.ServerStream[apiv1.BackupResponse]) error {
	for range 2 {
		if err := out.Send(&apiv1.BackupResponse{Data: make([]byte, 100)}); err != nil {
			return err
		}
		if !f.backsUp {
			<-ctx.Done()
		}
	}
	return nil
}

// goOn returns once the member does not stand still.
func (f *fakeServer) goOn() {
	f.gate.RLock()
	defer f.gate.RUnlock()
}

// pause has the member stand still, or go on.
func (f *fakeServer) pause(still bool) {
	if still {
		f.gate.Lock()
	} else {
		f.gate.Unlock()
	}
}

// take reports whether the member is up, and notes the stream.
func (f *fakeServer) take(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns != nil {
		f.conns[conn] = true
	}
	return f.conns != nil
}

// down ends the member's streams and takes no more, or takes them again.
func (f *fakeServer) down(down bool) {
	if f.juju != nil {
		f.juju.down(down)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		conn.Close()
	}
	if f.conns = nil; !down {
		f.conns = map[net.Conn]bool{}
	}
}

// Status says who leads.
func (f *fakeServer) Status(context.Context, *connect.Request[apiv1.StatusRequest]) (*connect.Response[apiv1.StatusResponse], error) {
	f.goOn()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil || f.leader.Load() == nil {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("down"))
	}
	st := &apiv1.StatusResponse{
		Term: f.term.Load(), Leader: *f.leader.Load(), Members: []*apiv1.Member{{Name: f.name, Ready: true, Role: "follower", Self: true}},
	}
	if f.standing != nil {
		st.Members = []*apiv1.Member{f.standing}
	}
	if f.juju != nil {
		st.Doors = []*apiv1.Door{{Name: "native"}, {Name: "juju", Address: f.juju.address}}
	}
	return connect.NewResponse(st), nil
}

// Watch tells of every lease that it is free, once it is due.
func (f *fakeServer) Watch(ctx context.Context, _ *connect.Request[apiv1.WatchRequest], to *connect.ServerStream[apiv1.WatchResponse]) error {
	if !f.expires {
		return connect.NewError(connect.CodeUnimplemented, errors.New("nothing expires"))
	}
	if err := to.Send(&apiv1.WatchResponse{}); err != nil {
		return err
	}
	select {
	case <-f.extended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := sleep(ctx, dueAfter(f.ttl)-f.early); err != nil {
		return err
	}
	f.mu.Lock()
	m := &apiv1.WatchResponse{}
	for name := range f.leases {
		e := &apiv1.LeaseEvent{What: "expired", Lease: &apiv1.Lease{Name: &apiv1.LeaseName{Name: name}}}
		m.Events = append(m.Events, e)
		if f.offerMore {
			m.Events = append(m.Events, e)
		}
	}
	f.mu.Unlock()
	if err := to.Send(m); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// readMessage reads a message of a client.
func readMessage(r io.Reader) (*apiv1.ClientMessage, error) {
	h, err := ws.ReadHeader(r)
	if err != nil {
		return nil, err
	}
	if h.OpCode != ws.OpBinary || h.Length > maxFakeFrame {
		return nil, errors.New("not a message")
	}
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, err
	}
	ws.Cipher(payload, h.Mask, 0)
	m := new(apiv1.ClientMessage)
	return m, proto.Unmarshal(payload, m)
}

func (f *fakeServer) serve(conn net.Conn, r io.Reader) {
	for {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		f.goOn()
		f.mu.Lock()
		for _, req := range m.Frames {
			a := f.answer(conn, req)
			f.send(conn, a)
			if f.twice {
				f.send(conn, a)
			}
			f.afterRelease(req, a)
			if a.Error.GetKind() == attachCut {
				conn.Close()
			}
		}
		f.mu.Unlock()
	}
}

func (f *fakeServer) send(conn net.Conn, a *apiv1.ServerFrame) {
	data, err := proto.Marshal(&apiv1.ServerMessage{Frames: []*apiv1.ServerFrame{a}})
	if err == nil {
		_ = ws.WriteFrame(conn, ws.NewBinaryFrame(data)) // a client that went reads nothing
	}
}

func (f *fakeServer) answer(conn net.Conn, req *apiv1.ClientFrame) *apiv1.ServerFrame {
	a := &apiv1.ServerFrame{Id: req.Id}
	switch r := req.Request.(type) {
	case *apiv1.ClientFrame_ExtendTokens:
		if f.expires && f.extended != nil {
			select {
			case <-f.extended:
			default:
				close(f.extended)
			}
		}
		if f.extendError != "" && f.excuses < maxExcuses {
			f.excuses++
			if f.extendError == unconfirmed {
				a.Answer = &apiv1.ServerFrame_TokensExtended{TokensExtended: &apiv1.TokensExtended{Unavailable: r.ExtendTokens.Tokens}}
				return a
			}
			a.Error = &apiv1.Error{Kind: f.extendError}
			return a
		}
		if f.cutOff {
			a.Error = &apiv1.Error{Kind: "unavailable"}
			return a
		}
		f.kept(func(l *fakeLease) bool { return slices.Contains(r.ExtendTokens.Tokens, l.token) })
		ext := &apiv1.TokensExtended{HeldMs: uint32(cmp.Or(f.ttl, time.Minute).Milliseconds())}
		if f.notHeld || f.forgets {
			ext.NotHeld = r.ExtendTokens.Tokens
		}
		a.Answer = &apiv1.ServerFrame_TokensExtended{TokensExtended: ext}
	case *apiv1.ClientFrame_Attach:
		f.attach(conn, r.Attach, a)
	case *apiv1.ClientFrame_Beat:
		f.kept(func(l *fakeLease) bool { return l.session != "" && f.streams[l.session] == conn })
		a.Answer = &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{HeldMs: 60_000}}
	case *apiv1.ClientFrame_Operation:
		a.Answer = &apiv1.ServerFrame_Operation{Operation: f.operate(r.Operation)}
	}
	return a
}

// attachCut is the error of an attachment whose stream ends with it, and afterCut is
// how long the agent is to wait, in ms: longer than the next stream takes to open.
const (
	attachCut = "unknown"
	afterCut  = 300
)

func (f *fakeServer) attach(conn net.Conn, req *apiv1.Attach, a *apiv1.ServerFrame) {
	switch {
	case f.cutsAttach:
		f.cutsAttach = false
		a.Error = &apiv1.Error{Kind: attachCut, RetryAfterMs: afterCut}
	case req.Counter <= f.counters[req.Session]:
		a.Error = &apiv1.Error{Kind: "conflict", Message: "the session is attached with a counter as high"}
	default:
		f.streams[req.Session], f.counters[req.Session] = conn, req.Counter
		a.Answer = &apiv1.ServerFrame_Attached{Attached: &apiv1.Attached{HeldMs: 60_000}}
	}
}

func (f *fakeServer) operate(op *apiv1.Operation) *apiv1.OperationResult {
	res := &apiv1.OperationResult{}
	if f.refuse {
		res.Error = &apiv1.Error{Kind: "unavailable"}
		return res
	}
	switch o := op.Op.(type) {
	case *apiv1.Operation_OpenSession:
		f.ttl = time.Duration(o.OpenSession.TtlMs) * time.Millisecond
		f.lasts = f.ttl
	case *apiv1.Operation_Claim:
		l := f.leases[o.Claim.Name.Name]
		if l != nil && l.holder != "" && l.holder != o.Claim.Holder && o.Claim.Session == "" && !f.shared {
			res.Error = &apiv1.Error{Kind: "held"}
			return res
		}
		res.Result = &apiv1.OperationResult_Claim{Claim: f.claim(o.Claim)}
	case *apiv1.Operation_Release:
		l := f.leases[o.Release.Name.Name]
		if o.Release.Session != "" && !f.refused[o.Release.Name.Name] {
			f.refused[o.Release.Name.Name] = true
			res.Error = &apiv1.Error{Kind: "unavailable"}
			return res
		}
		if o.Release.Session != "" && o.Release.Token == 0 {
			f.zero++
		}
		if l != nil && (o.Release.Token == 0 || o.Release.Token == l.token) {
			l.holder, l.session = "", ""
		}
		res.Result = &apiv1.OperationResult_Release{Release: &apiv1.ReleaseResponse{Released: true}}
	}
	return res
}

func (f *fakeServer) claim(c *apiv1.ClaimRequest) *apiv1.ClaimResponse {
	if c.TtlMs > 0 {
		f.ttl = time.Duration(c.TtlMs) * time.Millisecond
	}
	if f.models != nil {
		f.models[c.Name.Model]++
	}
	l := f.leases[c.Name.Name]
	if l == nil {
		l = &fakeLease{name: c.Name}
		f.leases[c.Name.Name] = l
		if c.Session != "" {
			f.held = append(f.held, l)
		}
	}
	if f.shared {
		l.holder = ""
	}
	if l.holder != "" && l.holder != c.Holder {
		l.queue = append(l.queue, c.Session)
		return &apiv1.ClaimResponse{Queued: true}
	}
	// One that is told it does not hold has a new holding.
	granted := l.holder == "" || f.notHeld || f.forgets
	if granted {
		l.token = f.nextToken()
	}
	l.holder, l.session, l.heard = c.Holder, c.Session, time.Now()
	return &apiv1.ClaimResponse{Granted: granted, Lease: &apiv1.Lease{Token: l.token}}
}

func (f *fakeServer) nextToken() uint64 {
	if f.token == 0 || !f.sameToken {
		f.token++
	}
	return f.token
}

// afterRelease offers what was released to the first in its queue.
func (f *fakeServer) afterRelease(req *apiv1.ClientFrame, a *apiv1.ServerFrame) {
	r := req.GetOperation().GetRelease()
	if r == nil || a.GetOperation().GetError() != nil {
		return
	}
	l := f.leases[r.Name.Name]
	if l == nil || l.holder != "" || len(l.queue) == 0 {
		return
	}
	f.handOn(l)
}

// kept notes that those leases are extended.
func (f *fakeServer) kept(is func(*fakeLease) bool) {
	for _, l := range f.held {
		if is(l) {
			l.heard = time.Now()
		}
	}
}

// free hands on what nobody has extended, every now and then.
func (f *fakeServer) free(ctx context.Context) {
	for sleep(ctx, 20*time.Millisecond) == nil {
		f.mu.Lock()
		for _, l := range f.held {
			if f.frees && len(l.queue) > 0 && time.Since(l.heard) > dueAfter(f.lasts) {
				f.handOn(l)
			}
		}
		f.mu.Unlock()
	}
}

// handOn offers a lease to the first in its queue.
func (f *fakeServer) handOn(l *fakeLease) {
	l.session, l.queue, l.token, l.holder, l.heard = l.queue[0], l.queue[1:], f.nextToken(), "next", time.Now()
	offer := &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Offer{Offer: &apiv1.Offer{Lease: &apiv1.Lease{Name: l.name, Session: l.session, Token: l.token}}}}
	f.send(f.streams[l.session], offer)
	if f.offerMore {
		f.send(f.streams[l.session], offer)
	}
}

// Batch is the bulk call that prepares a closed loop.
func (f *fakeServer) Batch(_ context.Context, req *connect.Request[apiv1.BatchRequest]) (*connect.Response[apiv1.BatchResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &apiv1.BatchResponse{}
	for _, op := range req.Msg.Operations {
		if !f.noResults {
			res.Results = append(res.Results, f.operate(op))
		}
	}
	return connect.NewResponse(res), nil
}
