package native

import (
	"io"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/overload"
)

// Bounds of the bodies of calls that have not come whole.
const (
	MaxBodiesBytes = 256 << 20 // of all callers, beyond smallBody of each call
	smallBody      = 64 << 10  // of one call: not counted, nor refused for what others send
)

// BodyBytes is how much of calls is kept whose bodies have not come whole, beyond 64 KiB of
// each, with what is being inflated of them. At most [MaxBodiesBytes].
func (d *Door) BodyBytes() int64 { return d.bodies.Taken() }

// bodyShare is what one body takes of the room for those that have not come whole. A call is
// read before it has a place in a lane, and may be sent as slowly as the time for it allows:
// some thousands of a few megabytes each are more than a machine has. It belongs to whoever
// reads the body.
type bodyShare struct {
	door  *Door
	who   admit.Who
	read  int64 // bytes
	taken int64 // of them, of the room
}

// take counts n bytes more, or returns an Overloaded error: there is no room, or only for others.
func (b *bodyShare) take(n int) error {
	b.read += int64(n)
	more := b.read - smallBody - b.taken
	if more <= 0 {
		return nil
	}
	if !b.door.bodies.Take(b.who, more, b.door.lanes.Bound(MaxBodiesBytes)) {
		return b.door.callError(errBodiesFull())
	}
	b.taken += more
	return nil
}

// give gives back all that it has taken.
func (b *bodyShare) give() {
	if b.taken > 0 {
		b.door.bodies.Give(b.who, b.taken)
	}
	b.read, b.taken = 0, 0
}

func errBodiesFull() error {
	return overload.Errorf("requests of more than %d bytes that have not come whole take as much memory as they may", smallBody).
		WithHint("come back after the given time, and send fewer large requests at once")
}

// countedBody counts what has come of a body until the message is there: see [timing].
type countedBody struct {
	io.ReadCloser
	control *callControl
}

// bodyRest is how long the rest of a body that is refused may take: net/http reads some of it
// before the answer goes out, so that its sender sees that.
const bodyRest = 250 * time.Millisecond

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	share := &b.control.body
	if refusal := share.take(n); refusal != nil {
		share.give()
		_ = b.control.SetReadDeadline(share.door.now().Add(bodyRest))
		return 0, refusal
	}
	return n, err
}
