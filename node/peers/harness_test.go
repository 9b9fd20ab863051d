package peers

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// member is a Set with what it was told.
type member struct {
	t    *testing.T
	id   uint64
	set  *Set
	addr string
	cfg  Config

	mu          sync.Mutex
	changed     chan struct{} // closed at every change, then made anew
	got         []node.Message
	apps        []string
	lost        []uint64
	unreachable int
	refused     []error
	refusals    []Reason
	standing    Standing
	gone        map[uint64]bool
	block       chan struct{} // App waits for it, if it is set
}

type option func(*Config)

func newMember(t *testing.T, id uint64, opts ...option) *member {
	t.Helper()
	m := &member{t: t, id: id, changed: make(chan struct{}), gone: map[uint64]bool{}, standing: Standing{Incarnation: 1, Term: 1, Durable: 10, Commit: 10}}
	m.cfg = Config{
		Cluster: [16]byte{7}, Group: 3, Self: id, SelfName: "m", FS: vfs.NewMem(), Dir: "/peers",
		Standing: func() Standing { m.mu.Lock(); defer m.mu.Unlock(); return m.standing },
		Membership: func(id uint64) Membership {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.gone[id] {
				return Gone
			}
			return Current
		},
		Deliver:     func(ms []node.Message) { m.change(func() { m.got = append(m.got, ms...) }) },
		App:         m.app,
		Lost:        func(id uint64) { m.change(func() { m.lost = append(m.lost, id) }) },
		Unreachable: func(uint64) { m.change(func() { m.unreachable++ }) },
		Refused:     func(_ uint64, err error) { m.change(func() { m.refused = append(m.refused, err) }) },
		Events:      Events{Refused: func(r Reason) { m.change(func() { m.refusals = append(m.refusals, r) }) }},
	}
	for _, o := range opts {
		o(&m.cfg)
	}
	if m.cfg.Listener == nil {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m.cfg.Listener = ln
	}
	m.addr = m.cfg.Listener.Addr().String()
	m.open()
	return m
}

func (m *member) open() {
	m.t.Helper()
	set, err := Open(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.set = set
	m.t.Cleanup(func() { m.close() })
}

func (m *member) close() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.set.Close(ctx); err != nil {
		m.t.Error(err)
	}
}

// restart closes the set and opens another, as the next start of the process.
func (m *member) restart() {
	m.t.Helper()
	m.close()
	ln, err := net.Listen("tcp", m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.cfg.Listener = ln
	m.mu.Lock()
	m.standing.Incarnation++
	m.mu.Unlock()
	m.open()
}

func (m *member) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *member) app(_ uint64, frame []byte) {
	m.mu.Lock()
	block := m.block
	m.mu.Unlock()
	if block != nil {
		<-block
	}
	m.change(func() { m.apps = append(m.apps, string(frame)) })
}

// until waits until cond, which is called with mu held, holds.
func (m *member) until(what string, cond func() bool) {
	m.t.Helper()
	end := time.After(patience)
	for {
		m.mu.Lock()
		ok, changed := cond(), m.changed
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-end:
			m.t.Fatalf("member %d: not in time: %s", m.id, what)
		}
	}
}

// eventually waits for what nobody announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// know tells every member of all others.
func know(ms ...*member) {
	var all []Member
	for _, m := range ms {
		all = append(all, Member{ID: m.id, Name: "m", Address: m.addr})
	}
	for _, m := range ms {
		m.set.SetMembers(all)
	}
}

func connected(t *testing.T, ms ...*member) {
	t.Helper()
	for _, m := range ms {
		eventually(t, "all are connected", func() bool {
			for _, l := range m.set.Links() {
				if !l.Connected {
					return false
				}
			}
			return true
		})
	}
}

func pair(t *testing.T, opts ...option) (a, b *member) {
	t.Helper()
	a, b = newMember(t, 1, opts...), newMember(t, 2, opts...)
	know(a, b)
	connected(t, a, b)
	return a, b
}

func heartbeat(from, to, commit uint64) node.Message {
	return node.Message{From: from, To: to, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(from), To: new(to), Term: new(uint64(1)), Commit: new(commit),
	}}
}

func appendOf(from, to, index uint64, bytes int) node.Message {
	return node.Message{From: from, To: to, Raft: &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(from), To: new(to), Term: new(uint64(1)), Index: new(index), LogTerm: new(uint64(1)),
		Entries: []*pb.Entry{{Term: new(uint64(1)), Index: new(index + 1), Data: make([]byte, bytes)}},
	}}
}

func withTLS(server, client *tls.Config, verify func(tls.ConnectionState, uint64) error) option {
	return func(c *Config) {
		c.ServerTLS = func() *tls.Config { return server }
		c.ClientTLS = func() *tls.Config { return client }
		c.Verify = verify
	}
}
