package server

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
	"github.com/incumbent-dev/incumbent/vfs"
)

// peerSet is the connections of member id, on a port of their own.
func peerSet(t *testing.T, id uint64, app func(from uint64, frame []byte)) (*peers.Set, peers.Member) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	set, err := peers.Open(peers.Config{
		Cluster: [16]byte{1}, Self: id, SelfName: "n", Listener: ln, FS: vfs.NewMem(), Dir: "/peers",
		Standing:   func() peers.Standing { return peers.Standing{Incarnation: 1} },
		Membership: func(uint64) peers.Membership { return peers.Current },
		Keys:       func() []peers.Key { return []peers.Key{{Secret: []byte("the secret of a test")}} },
		Deliver:    func([]node.Message) {}, App: app, Lost: func(uint64) {}, Unreachable: func(uint64) {}, Refused: func(uint64, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close(context.Background()) })
	return set, peers.Member{ID: id, Name: "n", Address: ln.Addr().String()}
}

// An extension that another member has gathered counts before an expiry, as one
// from a client of this member does: the barrier waits for frames of members that
// were read and not handed on.
func TestG07_TheBarrierAsksClientsAndMembers(t *testing.T) {
	reading, release := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	other, first := peerSet(t, 1, func(uint64, []byte) {})
	own, second := peerSet(t, 2, func(uint64, []byte) { close(reading); <-release })
	t.Cleanup(free) // before the sets are closed
	other.SetMembers([]peers.Member{first, second})
	own.SetMembers([]peers.Member{first, second})
	until(t, "a frame is on its way", func() bool { return other.SendApp(2, []byte("x")) })
	<-reading
	s := &Server{park: parkSet(t), arrivals: newArrivals()}
	s.transport.Use(own)
	passed := make(chan struct{})
	s.barrier(func() { close(passed) })
	for range 100 {
		runtime.Gosched()
	}
	select {
	case <-passed:
		t.Fatal("the barrier passed before the frame of a member was handed on")
	default:
	}
	free()
	<-passed
}
