package bench

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

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

	mu      sync.Mutex // one request at a time
	token   uint64
	leases  map[string]*fakeLease
	streams map[string]net.Conn // session → its stream
	refused map[string]bool     // releases that were refused once
	zero    int                 // releases without a token
}

type fakeLease struct {
	session, holder string
	token           uint64
	queue           []string
}

// start returns the server's URL.
func (f *fakeServer) start(t *testing.T) string {
	f.leases, f.streams, f.refused = map[string]*fakeLease{}, map[string]net.Conn{}, map[string]bool{}
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewLeaseServiceHandler(f))
	mux.HandleFunc("/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		conn, rw, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer conn.Close()
		f.serve(conn, rw)
	})
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func (f *fakeServer) serve(conn net.Conn, r io.Reader) {
	for {
		h, err := ws.ReadHeader(r)
		if err != nil || h.OpCode != ws.OpBinary || h.Length > maxFakeFrame {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		ws.Cipher(payload, h.Mask, 0)
		var m apiv1.ClientMessage
		if proto.Unmarshal(payload, &m) != nil {
			return
		}
		f.mu.Lock()
		for _, req := range m.Frames {
			a := f.answer(conn, req)
			f.send(conn, a)
			if f.twice {
				f.send(conn, a)
			}
			f.afterRelease(req, a)
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
		ext := &apiv1.TokensExtended{HeldMs: 60_000}
		if f.notHeld {
			ext.NotHeld = r.ExtendTokens.Tokens
		}
		a.Answer = &apiv1.ServerFrame_TokensExtended{TokensExtended: ext}
	case *apiv1.ClientFrame_Attach:
		f.streams[r.Attach.Session] = conn
		a.Answer = &apiv1.ServerFrame_Attached{Attached: &apiv1.Attached{HeldMs: 60_000}}
	case *apiv1.ClientFrame_Beat:
		a.Answer = &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{HeldMs: 60_000}}
	case *apiv1.ClientFrame_Operation:
		a.Answer = &apiv1.ServerFrame_Operation{Operation: f.operate(r.Operation)}
	}
	return a
}

func (f *fakeServer) operate(op *apiv1.Operation) *apiv1.OperationResult {
	res := &apiv1.OperationResult{}
	if f.refuse {
		res.Error = &apiv1.Error{Kind: "unavailable"}
		return res
	}
	switch o := op.Op.(type) {
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
	l := f.leases[c.Name.Name]
	if l == nil {
		l = &fakeLease{}
		f.leases[c.Name.Name] = l
	}
	if f.shared {
		l.holder = ""
	}
	if l.holder != "" && l.holder != c.Holder {
		l.queue = append(l.queue, c.Session)
		return &apiv1.ClaimResponse{Queued: true}
	}
	// One that is told it does not hold has a new holding.
	granted := l.holder == "" || f.notHeld
	if granted {
		l.token = f.nextToken()
	}
	l.holder, l.session = c.Holder, c.Session
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
	l.session, l.queue, l.token, l.holder = l.queue[0], l.queue[1:], f.nextToken(), "next"
	offer := &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Offer{Offer: &apiv1.Offer{Lease: &apiv1.Lease{Name: r.Name, Session: l.session, Token: l.token}}}}
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
