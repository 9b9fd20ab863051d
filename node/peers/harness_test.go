package peers

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// secret is that of the tests' cluster.
var secret = Key{Secret: []byte("the secret of the tests' cluster")}

// member is a Set with what it was told.
type member struct {
	t    *testing.T
	id   uint64
	set  *Set
	addr string
	cfg  Config

	mu      sync.Mutex
	changed chan struct{} // closed at every change, then made anew
	told
	standing Standing
	gone     map[uint64]bool
	block    chan struct{} // App waits for it, if it is set
	onLost   func()        // called with mu held
}

// told is what a member's callbacks were called with.
type told struct {
	got         []node.Message
	apps        []string
	lost        []uint64
	unreachable int
	refused     []error
	refusals    []Reason
}

// now returns what was told until now.
func (m *member) now() told {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told
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
		Keys:        func() []Key { return []Key{secret} },
		Deliver:     func(ms []node.Message) { m.change(func() { m.got = append(m.got, ms...) }) },
		App:         m.app,
		Lost:        func(id uint64) { m.change(func() { m.lose(id) }) },
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
		// By the real clock, in which the machine may stand still for seconds.
		m.cfg.waits = waits{dial: patience, handshake: patience, write: patience, retire: patience}
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
	var ln net.Listener
	eventually(m.t, "its port is free", func() (ok bool) { // another process may have got it for a moment
		var err error
		ln, err = net.Listen("tcp", m.addr)
		return err == nil
	})
	m.startOn(ln)
}

// startOn opens a set after one that was closed, as the next start of the process.
func (m *member) startOn(ln net.Listener) {
	m.t.Helper()
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

func (m *member) lose(id uint64) {
	m.lost = append(m.lost, id)
	if m.onLost != nil {
		m.onLost()
	}
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

// hold makes frames of the user's wait until the returned function is called.
func (m *member) hold() (release func()) {
	block := make(chan struct{})
	m.mu.Lock()
	m.block = block
	m.mu.Unlock()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		m.block = nil
		m.mu.Unlock()
		close(block)
	})
}

// relay is a member's address behind which connections can be cut one by one.
type relay struct {
	ln net.Listener
	to string

	mu    sync.Mutex
	conns []*net.TCPConn // of those who dial, in order
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, to: to}
	t.Cleanup(func() { ln.Close() })
	go r.run()
	return r
}

func (r *relay) run() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", r.to)
		if err != nil {
			c.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, c.(*net.TCPConn))
		r.mu.Unlock()
		go func() { io.Copy(up, c); up.Close() }()
		go func() { io.Copy(c, up); c.Close() }()
	}
}

// cut ends the i-th connection on both sides.
func (r *relay) cut(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[i].Close()
}

func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}
