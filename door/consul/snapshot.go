package consul

import (
	"bufio"
	"context"
	"net/http"
	"strconv"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/overload"
	"github.com/incumbent-dev/incumbent/park"
)

// snapshotRoutes are about the whole state.
func snapshotRoutes() []route {
	return []route{
		{"/v1/snapshot", methods{"GET": snapshotSave, "PUT": snapshotRestore}},
	}
}

// snapshotSave sends a snapshot: a backup, archived as tools for Consul's know it.
func snapshotSave(d *Door, r *request) {
	if d.cfg.Snapshot == nil {
		r.failFor(incumbent.Errorf(incumbent.Unavailable, "this member makes no snapshots"))
		return
	}
	r.fresh(func() {
		if !d.snapshot.CompareAndSwap(false, true) {
			r.failFor(overload.Errorf("this member has a snapshot under way already"))
			return
		}
		v := d.view()
		d.goroutines.Go(func() {
			end := r.sendSnapshot(v)
			d.snapshot.Store(false) // before who got it whole asks for the next
			end()
		})
	})
}

// sendSnapshot writes the snapshot of a state as it is made, for it may be large, and
// returns what ends the answer.
func (r *request) sendSnapshot(v *core.View) (end func()) {
	ctx, cancel := context.WithCancel(r.door.life)
	defer cancel()
	r.whenGone(cancel)
	r.setHeader("X-Consul-Index", formatIndex(v.Index()))
	r.consistencyHeaders()
	r.setHeader("Content-Type", "application/x-gzip")
	s := &stream{ctx: ctx, r: r}
	out := bufio.NewWriterSize(s, sendBytes)
	err := r.door.cfg.Snapshot(ctx, out, v)
	if err == nil {
		err = out.Flush()
	}
	r.operated("snapshot", r.method+" "+r.path, v.Index(), err)
	if err != nil {
		return func() { s.abort(err) }
	}
	return s.end
}

// stream is an answer whose length is not known when it begins.
type stream struct {
	ctx    context.Context
	r      *request
	parked *park.Conn // nil: it has not begun
}

// Write implements [io.Writer]. It waits until the client has taken what it was given
// before.
func (s *stream) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, s.ctx.Err()
	}
	if s.parked == nil {
		if err := s.begin(); err != nil {
			return 0, err
		}
	}
	s.r.door.counts.bytes.Add(uint64(len(p)))
	piece := append([]byte(nil), p...)
	if !s.r.http10 {
		piece = append(append(strconv.AppendInt(nil, int64(len(p)), 16), "\r\n"...), p...)
		piece = append(piece, "\r\n"...)
	}
	if err := s.parked.Send(piece); err != nil {
		return 0, err
	}
	drained := make(chan struct{})
	if s.parked.WhenDrained(func() { close(drained) }) {
		select {
		case <-drained:
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
	return len(p), nil
}

// begin sends the head.
func (s *stream) begin() error {
	if s.r.done.Swap(true) {
		return context.Canceled
	}
	s.parked = s.r.conn.parked.Load()
	s.r.door.counts.answered(s.r, http.StatusOK, 0, s.r.door.now().Sub(s.r.began))
	return s.parked.Send(s.r.appendHead(make([]byte, 0, 512), http.StatusOK, -1))
}

// end ends the answer.
func (s *stream) end() {
	if !s.r.http10 && s.parked.Send([]byte("0\r\n\r\n")) != nil {
		return
	}
	s.r.conn.answered(s.parked, s.r, !s.r.ends() && !s.r.http10)
}

// abort ends the connection, so that nobody takes for whole what is not.
func (s *stream) abort(err error) {
	if s.parked == nil {
		s.r.failFor(err)
		return
	}
	s.parked.Close(err)
}
