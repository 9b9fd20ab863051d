package native

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/park"
)

// known lets everybody in as whom the test says.
type known struct{ principal auth.Principal }

func (k *known) Identify(auth.Peer) (auth.Principal, error) { return k.principal, nil }

var admin = auth.Principal{Name: "admin", Kind: auth.Operator}

// operator is a member that has nothing to tell.
type operator struct {
	Membership // none of it is called

	mu     sync.Mutex
	events []*pb.Event
	more   chan struct{}
	ready  atomic.Pointer[incumbent.Error]
}

func (o *operator) Status(context.Context) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Verdict: "all is well"}, nil
}

func (o *operator) Snapshot(context.Context) (*pb.SnapshotResponse, error) {
	return nil, incumbent.Errorf(incumbent.Unavailable, "no disk")
}

func (o *operator) StateHash(context.Context) (*pb.StateHashResponse, error) {
	return &pb.StateHashResponse{Index: 7, Hash: "00"}, nil
}

func (o *operator) Backup(_ context.Context, w io.Writer) error {
	for _, piece := range []string{"a back", "up"} {
		if _, err := io.WriteString(w, piece); err != nil {
			return err
		}
	}
	return nil
}

func (o *operator) Settings(context.Context) (*pb.SettingsResponse, error) {
	return &pb.SettingsResponse{Settings: []*pb.Setting{{Name: "listen", Value: "x", Source: "flag"}}}, nil
}

func (o *operator) EventsLast(n int) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return uint64(max(len(o.events)-n, 0))
}

func (o *operator) EventsAfter(from uint64, limit int, sees func(incumbent.Name) bool) ([]*pb.Event, uint64, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := min(int(from)+limit, len(o.events))
	var shown []*pb.Event
	for _, e := range o.events[from:end] {
		if e.Subject == "" || sees(incumbent.Name{Namespace: "default", Model: "default", Lease: e.Subject}) {
			shown = append(shown, e)
		}
	}
	return shown, uint64(end), o.more
}

func (o *operator) happen(what string) { o.happenTo(what, "") }

// happenTo happens to a lease.
func (o *operator) happenTo(what, lease string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, &pb.Event{What: what, Subject: lease})
	close(o.more)
	o.more = make(chan struct{})
}

func (o *operator) Standing() (member, leader, leaderURL string) { return "n1", "n1", "http://n1:7600" }

func (o *operator) Ready() error {
	if e := o.ready.Load(); e != nil {
		return e
	}
	return nil
}

// member is a door on an engine, listening on a port of its own.
type member struct {
	tb       testing.TB
	group    *enginetest.Group
	park     *park.Set
	guard    *known
	operator *operator
	door     *Door
	url      string
	http     *http.Server
	stop     func()
	origin   atomic.Pointer[core.Origin] // of the newest change
}

func (m *member) applied(a *engine.Applied) {
	if n := len(a.Changes); n > 0 {
		m.origin.Store(a.Changes[n-1].Origin)
	}
}

// ownReaders are the readers of changes that a member has by itself: for offers, and policies.
const ownReaders = 2

func newMember(tb testing.TB, change ...func(*Config)) *member {
	tb.Helper()
	m := &member{tb: tb, guard: &known{admin}, operator: &operator{more: make(chan struct{})}}
	var err error
	// Who reads nothing is cut off by what a test sets, not because it takes so long.
	if m.park, err = park.New(park.Config{Limits: park.Limits{WriteTimeout: time.Hour}}); err != nil {
		tb.Fatal(err)
	}
	m.group = enginetest.Start(tb, engine.Config{Lease: lease.Options{Barrier: m.park.Barrier}, Applied: m.applied})
	cfg := Config{Engine: m.group.Engine, Leases: m.group.Leases(), Park: m.park, Operator: m.operator, Guard: m.guard}
	for _, f := range change {
		f(&cfg)
	}
	if m.door, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "the member's own readers are there", func() bool { return m.group.Hub().Stats().Readers == ownReaders })
	m.serve()
	m.stop = sync.OnceFunc(func() {
		m.door.Drain()
		end, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := m.http.Shutdown(end); err != nil {
			tb.Errorf("http: %v", err)
		}
		if err := m.park.Close(end); err != nil {
			tb.Errorf("park: %v", err)
		}
		if err := m.door.Close(end); err != nil {
			tb.Errorf("door: %v", err)
		}
		m.group.Stop()
	})
	tb.Cleanup(m.stop)
	return m
}

func (m *member) serve() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.tb.Fatal(err)
	}
	m.url = "http://" + ln.Addr().String()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	m.http = &http.Server{Handler: m.door, Protocols: protocols, ReadHeaderTimeout: patience}
	go func() { _ = m.http.Serve(park.Listen(ln, 0)) }()
}
