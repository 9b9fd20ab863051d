package server

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// hanging is a disk whose flushes of the log do not return while it hangs.
type hanging struct {
	on    atomic.Bool
	out   chan struct{} // has room for one: a flush hangs
	again chan struct{} // closed when it answers again
	once  sync.Once
}

func newHanging(t testing.TB) *hanging {
	h := &hanging{out: make(chan struct{}, 1), again: make(chan struct{})}
	t.Cleanup(h.answer)
	return h
}

func (h *hanging) answer() { h.once.Do(func() { close(h.again) }) }

func (h *hanging) fs() vfs.FS {
	return vfs.Inject(vfs.OS{}, func(c vfs.Call) vfs.Fault {
		if h.on.Load() && c.Op == vfs.OpSync && filepath.Base(filepath.Dir(c.Name)) == "log" {
			select {
			case h.out <- struct{}{}:
			default:
			}
			<-h.again
		}
		return vfs.Fault{}
	})
}

// breakInvariant has a member's raft hear that more is committed than there is.
func breakInvariant(s *Server) {
	st := s.node.Status()
	from := st.Member + 1
	for _, v := range st.Voters {
		if v != st.Member {
			from = v
		}
	}
	s.node.Step(node.Message{From: from, To: st.Member, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: proto.Uint64(from), To: proto.Uint64(st.Member), Term: proto.Uint64(st.Term + 1), Commit: proto.Uint64(1 << 40),
	}})
}

// A fault inside the node is known, and so ends the process, while a flush of the
// log hangs and will not return.
func TestG31_AFaultIsToldWhileAFlushHangs(t *testing.T) {
	for _, members := range []int{1, 3} {
		disk := newHanging(t)
		var s *Server
		if members == 1 {
			cfg := testConfig(t)
			cfg.fs = disk.fs()
			s = open(t, cfg)
		} else {
			first := open(t, memberConfig(t, "n1"))
			cfg := memberConfig(t, "n2")
			cfg.fs = disk.fs()
			s = join(t, first, cfg)
			join(t, first, memberConfig(t, "n3"))
		}
		c := clientOf(t, s)
		disk.on.Store(true)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			_, _ = claim(t, c, "somebody", "h") // it may never be answered
		}()
		<-disk.out
		breakInvariant(s)

		told := make(chan error, 1)
		go func() { told <- s.Wait() }()
		select {
		case err := <-told:
			if incumbent.KindOf(err) != incumbent.Internal || !strings.Contains(err.Error(), "loop goroutine") {
				t.Errorf("%d members: the fault is %v", members, err)
			}
		case <-testContext(t).Done():
			disk.answer() // or closing would wait for it
			t.Fatalf("%d members: nobody was told", members)
		}
		if got := eventsOf(s, "stopped by a fault"); len(got) != 1 {
			t.Errorf("%d members: the timeline has %v", members, got)
		}
		disk.answer()
		c.Close()
		<-asked
	}
}
