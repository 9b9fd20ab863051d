package native

import (
	"context"
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
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/watch"
)

const testLeases watch.Kind = 1

// log is a replicated log without the log: one goroutine applies proposals and
// answers confirmations, in order. Everything above it is real.
type log struct {
	state *core.State
	view  atomic.Pointer[core.View]
	tell  func(*core.View, []core.Change)
	in    chan func()
	held  sync.Mutex   // a test that holds it stops the log
	asked atomic.Int64 // proposals that were handed in
	done  chan struct{}
}

func newLog() *log {
	l := &log{state: core.New(), in: make(chan func(), 1<<16), done: make(chan struct{})}
	l.view.Store(l.state.View())
	go func() {
		defer close(l.done)
		for f := range l.in {
			l.held.Lock()
			f()
			l.held.Unlock()
		}
	}()
	return l
}

func (l *log) Propose(ps ...node.Proposal) {
	ps = append([]node.Proposal(nil), ps...)
	l.asked.Add(int64(len(ps)))
	l.in <- func() {
		for _, p := range ps {
			if !p.Deadline.IsZero() && time.Now().After(p.Deadline) {
				p.Done(nil, incumbent.Errorf(incumbent.DeadlineExceeded, "deadline passed before the command was appended"))
				continue
			}
			results := make([]core.Result, 1)
			changes := l.state.Apply([][]byte{p.Command}, results)
			view := l.state.View()
			l.view.Store(view)
			l.tell(view, changes)
			if p.Done != nil {
				p.Done(results[0], nil)
			}
		}
	}
}

func (l *log) Confirm(done func(term uint64, err error)) { l.in <- func() { done(1, nil) } }

// Alone it has no other member's questions to answer.
func (l *log) ConfirmFor(_, _ uint64, done func(uint64, error)) { l.Confirm(done) }

func (*log) Leader() (leader, term uint64) { return 0, 0 }

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

func (o *operator) Settings(context.Context) (*pb.SettingsResponse, error) {
	return &pb.SettingsResponse{Settings: []*pb.Setting{{Name: "listen", Value: "x", Source: "flag"}}}, nil
}

func (o *operator) EventsLast(n int) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return uint64(max(len(o.events)-n, 0))
}

func (o *operator) EventsAfter(from uint64, limit int) ([]*pb.Event, uint64, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := min(int(from)+limit, len(o.events))
	return o.events[from:end], uint64(end), o.more
}

func (o *operator) happen(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, &pb.Event{What: what})
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

// member is a door on a real engine, listening on a port of its own.
type member struct {
	tb       testing.TB
	log      *log
	leases   *lease.Service
	hub      *watch.Hub
	park     *park.Set
	guard    *known
	operator *operator
	door     *Door
	url      string
	http     *http.Server
	stop     func()
}

func newMember(tb testing.TB, change ...func(*Config)) *member {
	tb.Helper()
	m := &member{tb: tb, log: newLog(), guard: &known{admin}, operator: &operator{more: make(chan struct{})}}
	var err error
	// Who reads nothing is cut off by what a test sets, not because it takes so long.
	if m.park, err = park.New(park.Config{Limits: park.Limits{WriteTimeout: time.Hour}}); err != nil {
		tb.Fatal(err)
	}
	if m.leases, err = lease.New(lease.Options{Barrier: m.park.Barrier}); err != nil {
		tb.Fatal(err)
	}
	m.hub = watch.New(watch.Config{}, m.log.view.Load(), 0)
	m.log.tell = func(view *core.View, changes []core.Change) {
		m.leases.Applied(view, changes)
		m.hub.Publish(view, view.Index(), eventsOf(changes))
	}
	cfg := Config{
		Leases: m.leases, View: m.log.view.Load, Hub: m.hub, LeaseKind: testLeases, Park: m.park,
		Operator: m.operator, Guard: m.guard,
		Confirm: func(done func(error)) { m.log.Confirm(func(_ uint64, err error) { done(err) }) },
	}
	for _, f := range change {
		f(&cfg)
	}
	if m.door, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	loop := make(chan struct{})
	go func() { m.leases.Run(ctx, m.log); close(loop) }()
	m.log.in <- func() { m.leases.Lead(1) }
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
		m.hub.Close()
		cancel()
		<-loop
		close(m.log.in)
		<-m.log.done
	})
	tb.Cleanup(m.stop)
	return m
}

func eventsOf(changes []core.Change) []*watch.Event {
	var events []*watch.Event
	for i := range changes {
		c := &changes[i]
		l := c.Lease
		if l == nil {
			l = c.LeaseBefore
		}
		if l == nil {
			continue
		}
		events = append(events, &watch.Event{
			Index: c.Index, Topics: []watch.Topic{LeaseTopic(testLeases, l.Name)}, Payload: c, Size: 500,
		})
	}
	return events
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
