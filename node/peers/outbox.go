package peers

import (
	"sync"

	"github.com/incumbent-dev/incumbent/node"
)

// chunk is a buffer of whole frames.
type chunk struct {
	b       []byte
	written int // bytes at the front that have left
	frames  int
	pooled  bool
}

var chunkPool = sync.Pool{New: func() any { return &chunk{b: make([]byte, 0, chunkBytes), pooled: true} }}

func (c *chunk) unwritten() []byte { return c.b[c.written:] }

func (c *chunk) release() {
	if c.pooled {
		c.b, c.written, c.frames = c.b[:0], 0, 0
		chunkPool.Put(c)
	}
}

// lane is a bounded queue of frames.
type lane struct {
	chunks    []*chunk
	bytes     int
	frames    int
	maxBytes  int
	maxFrames int
}

// room reports whether a frame of at most size bytes fits. An empty lane takes
// any.
func (l *lane) room(size int) bool {
	return l.frames == 0 || l.frames < l.maxFrames && l.bytes+size <= l.maxBytes
}

// tail returns a chunk with room for size bytes.
func (l *lane) tail(size int) *chunk {
	if n := len(l.chunks); n > 0 {
		if c := l.chunks[n-1]; cap(c.b)-len(c.b) >= size {
			return c
		}
	}
	c := chunkPool.Get().(*chunk)
	l.chunks = append(l.chunks, c)
	return c
}

// take moves chunks of at most limit bytes, but at least one, to dst.
func (l *lane) take(dst []*chunk, limit int) []*chunk {
	n, bytes := 0, 0
	for n < len(l.chunks) && (n == 0 || bytes+len(l.chunks[n].b) <= limit) {
		bytes += len(l.chunks[n].b)
		l.frames -= l.chunks[n].frames
		n++
	}
	l.bytes -= bytes
	dst = append(dst, l.chunks[:n]...)
	rest := copy(l.chunks, l.chunks[n:])
	clear(l.chunks[rest:])
	l.chunks = l.chunks[:rest]
	return dst
}

// outbox is what a connection still has to write: raft's frames, and behind
// them the user's. Putting never blocks, and wakes nobody: flush or nudge does.
type outbox struct {
	wake chan struct{} // one token: there is something for the writer, or it is closed

	mu        sync.Mutex // guards what follows, for as long as a small frame takes to encode
	rest      []*chunk   // what a sender has taken and could not write: it leaves first
	raft      lane
	app       lane
	writing   bool // somebody writes what he has taken
	closed    bool
	abandoned bool
}

func newOutbox(class node.Class) *outbox {
	o := &outbox{wake: make(chan struct{}, 1)}
	if class == node.Bulk {
		o.raft = lane{maxBytes: MaxBulkBytes, maxFrames: MaxBulkQueue}
		return o
	}
	o.raft = lane{maxBytes: MaxControlBytes, maxFrames: MaxControlQueue}
	o.app = lane{maxBytes: MaxControlBytes, maxFrames: MaxControlQueue}
	return o
}

// put encodes a frame of at most size bytes into a lane and reports false if it
// is full or closed.
func (o *outbox) put(l *lane, size int, encode func([]byte) []byte) bool {
	var own *chunk
	if size > ownBufferBytes {
		if !o.fits(l, size) {
			return false
		}
		own = &chunk{b: encode(make([]byte, 0, size))}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || !l.room(size) {
		return false
	}
	c := own
	if c != nil {
		l.chunks = append(l.chunks, c)
		l.bytes += len(c.b)
	} else {
		c = l.tail(size)
		before := len(c.b)
		c.b = encode(c.b)
		l.bytes += len(c.b) - before
	}
	c.frames++
	l.frames++
	return true
}

// fits saves the work of encoding what would be dropped.
func (o *outbox) fits(l *lane, size int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.closed && l.room(size)
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default: // the writer will look anyway
	}
}

// nudge wakes the writer if there is something for it.
func (o *outbox) nudge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing && o.waits() {
		o.signal()
	}
}

// waits reports whether anything is queued. mu is held.
func (o *outbox) waits() bool {
	return len(o.rest)+len(o.raft.chunks)+len(o.app.chunks) > 0
}

// take moves the next write to dst: raft's frames first, then a little of the
// user's. Whoever gets something is alone in writing until it says wrote. Closed
// reports that nothing will come any more.
func (o *outbox) take(dst []*chunk) (_ []*chunk, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		return dst, false // who writes wakes the writer afterwards
	}
	return o.next(dst), o.closed
}

// takeSmall is take for a sender. What is not for it is left to the writer.
func (o *outbox) takeSmall(dst []*chunk) []*chunk {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.writing || !o.waits():
		return nil
	case len(o.rest) > 0 || o.raft.bytes+o.app.bytes > maxDirectWrite:
		o.signal()
		return nil
	}
	return o.next(dst)
}

// next takes what leaves next. mu is held.
func (o *outbox) next(dst []*chunk) []*chunk {
	if len(o.rest) > 0 {
		dst, o.rest = append(dst, o.rest...), nil
	} else {
		dst = o.raft.take(dst, maxWrite)
		if len(o.raft.chunks) == 0 {
			dst = o.app.take(dst, maxAppWrite)
		}
	}
	o.writing = len(dst) > 0
	return dst
}

// wrote ends what take began. The rest leaves before anything else.
func (o *outbox) wrote(rest []*chunk) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	if !o.abandoned {
		o.rest = append(o.rest, rest...)
	}
	if o.waits() || o.closed {
		o.signal()
	}
}

// close turns new frames away. What is queued may still be taken.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.signal()
}

// abandon closes and forgets what was never written.
func (o *outbox) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.abandoned = true, true
	o.signal()
	o.rest, o.raft.chunks, o.app.chunks = nil, nil, nil
	o.raft.frames, o.raft.bytes, o.app.frames, o.app.bytes = 0, 0, 0, 0
}

// queued returns how much waits.
func (o *outbox) queued() (bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.rest {
		bytes += len(c.unwritten())
	}
	return bytes + o.raft.bytes + o.app.bytes
}
