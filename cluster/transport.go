package cluster

import (
	"sync/atomic"

	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// Transport is the way to the other members. The node and the lease loop are made
// before the connections are: what is sent until then is lost.
type Transport struct{ set atomic.Pointer[peers.Set] }

// Send implements node.Transport.
func (t *Transport) Send(ms []node.Message) {
	if s := t.set.Load(); s != nil {
		s.Send(ms)
	}
}

// SendApp sends a frame that is not for the lease loop.
func (t *Transport) SendApp(to uint64, frame []byte) bool {
	return t.SendApps(to, [][]byte{frame}) == 1
}

// SendApps implements lease.Peers.
func (t *Transport) SendApps(to uint64, frames [][]byte) int {
	s := t.set.Load()
	if s == nil {
		return 0
	}
	return s.SendApps(to, frames)
}

// Mute closes the peers' sockets, or lets them speak again.
func (t *Transport) Mute(muted bool) {
	if s := t.set.Load(); s != nil {
		s.Mute(muted)
	}
}

// Use makes a set of connections the way, nil none, and returns what was before.
func (t *Transport) Use(set *peers.Set) (before *peers.Set) { return t.set.Swap(set) }

// Barrier calls done once every frame of another member that had arrived before was
// handed on.
func (t *Transport) Barrier(done func()) {
	s := t.set.Load()
	if s == nil {
		done()
		return
	}
	s.Barrier(done)
}
