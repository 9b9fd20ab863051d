package native

import (
	"slices"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/websocket"
)

// The hot path: what a fleet sends all day.
//
//	worker: Readable, Readable, …  ──▶ gather: one lease.Batch for all connections of the wake-up
//	worker: end of batch           ──▶ lease.Service.Extend
//	lease loop: Done               ──▶ queue of answers
//	responder                      ──▶ one message for each connection, encoded by hand, sent
//
// A gather goes round this circle and comes back to a free list: nothing is
// allocated for an extension once the memory has grown to what a wake-up needs.

// gather collects the extensions of one wake-up of one worker.
type gather struct {
	batch  lease.Batch
	frames []gathered
	place  admit.Place // in its lane, until the answers are sent

	// Of a gather that its lane has refused, what keeps critical leases is asked for alone.
	critical lease.Batch
	from     []int32 // where in batch its items are from, and their answers go

	handedOn bool // counts for the standstill, until the answers are sent
}

// gathered is one frame whose answer is in the batch.
type gathered struct {
	s     *stream
	id    uint64
	kind  frameKind
	first int32 // of its items
	count int32
}

// weight is what a frame counts in its stream until it is answered.
func (f *gathered) weight() int32 {
	if f.kind == beatFrame {
		return 1 + f.count // its client has sent none of these
	}
	return 1
}

// bench is what one worker of park needs; only that worker uses it.
type bench struct {
	decoder decoder
	gather  *gather
	turn    uint32 // of the gather, to know which streams are in it
	refused outbox // answers to what was refused at once
}

// newGather returns an empty gather whose answers go to the responders.
func (d *Door) newGather() *gather {
	g := &gather{}
	g.batch.Done = func(*lease.Batch) { d.answers.Put(g) }
	g.critical.Done = g.batch.Done
	return g
}

// room makes sure that one more frame with n items fits into the worker's gather. There are
// no more frames than there may be items: a gather is let in or refused as a whole.
func (d *Door) room(w *bench, n int) *gather {
	if g := w.gather; len(g.batch.Items)+n > lease.MaxBatchItems || len(g.frames) == lease.MaxBatchItems {
		d.flush(w)
	}
	return w.gather
}

// endBatch hands on what a wake-up gathered; park calls it when its work is done.
func (d *Door) endBatch(w *bench) {
	d.flush(w)
	w.refused.send()
}

// flush hands the gather on.
func (d *Door) flush(w *bench) {
	g := w.gather
	if len(g.frames) == 0 {
		return
	}
	w.turn++
	w.gather = d.emptyGather()
	var err error
	if g.place, err = d.lanes.Enter(admit.Who{}, admit.Extensions, g.cost()); err != nil {
		d.refuse(g, d.still.explain(asError(err), d.monotonic()))
		return
	}
	d.handOn(g)
}

// beatPatience is how long beats wait for those of other streams on their way to the
// leader. What they keep lasts for many times that.
const beatPatience = 50 * time.Millisecond

func (d *Door) handOn(g *gather) {
	asked := g.asked()
	asked.Patience = 0
	if !slices.ContainsFunc(g.frames, func(f gathered) bool { return f.kind != beatFrame }) {
		asked.Patience = beatPatience
	}
	if d.lanes.Controller != nil { // else nothing is ever refused
		d.still.begin(d.monotonic())
		g.handedOn = true
	}
	d.leases.Extend(asked)
}

// asked is what the lease service is asked for.
func (g *gather) asked() *lease.Batch {
	if len(g.from) > 0 {
		return &g.critical
	}
	return &g.batch
}

// itemsPerCost is how many extensions or frames that share a message cost about as much as
// a message itself: 0.04 µs each, or 0.09, against some 5 µs for reading and answering one.
const itemsPerCost = 128

// cost is what a gather asks of its lane. Frames of one stream that stand together share a
// message: were each counted as one, a stream with thousands of empty frames would have
// more of the lane than all others.
func (g *gather) cost() int {
	messages := 0
	for i := range g.frames {
		if i == 0 || g.frames[i].s != g.frames[i-1].s {
			messages++
		}
	}
	return messages + (len(g.frames)+len(g.asked().Items))/itemsPerCost
}

func (d *Door) emptyGather() *gather {
	return d.gathers.Get().(*gather) //nolint:forcetypeassert // the pool holds nothing else
}

// refuse answers a gather that found no place, but for what keeps critical leases: that is
// never refused.
func (d *Door) refuse(g *gather, err *incumbent.Error) {
	view := d.view()
	kept := d.emptyGather()
	refused := g.frames[:0]
	for _, f := range g.frames {
		items := g.batch.Items[f.first : f.first+f.count]
		critical := false
		for i := range items {
			if lease.KeepsCritical(view, &items[i]) {
				critical = true
			} else {
				items[i].Kind = err.Kind
			}
		}
		if critical {
			kept.keep(f, items)
		} else {
			refused = append(refused, f)
		}
	}
	clear(g.frames[len(refused):])
	g.frames, g.batch.RetryAfter = refused, err.RetryAfter
	d.answers.Put(g)
	if len(kept.frames) == 0 {
		d.gathers.Put(kept)
		return
	}
	kept.batch.RetryAfter = err.RetryAfter
	kept.place, _ = d.lanes.Enter(admit.Who{}, admit.Critical, kept.cost())
	d.handOn(kept)
}

// keep takes a frame over of which some items keep critical leases: those that are not
// refused are asked for. Of a beat all are, for it has one answer for all of its sessions.
func (g *gather) keep(f gathered, items []lease.Extension) {
	f.first = int32(len(g.batch.Items))
	for _, e := range items {
		if f.kind == beatFrame {
			e.Kind = incumbent.OK
		}
		if e.Kind == incumbent.OK {
			g.from = append(g.from, int32(len(g.batch.Items)))
			g.critical.Items = append(g.critical.Items, e)
		}
		g.batch.Items = append(g.batch.Items, e)
	}
	g.frames = append(g.frames, f)
}

// answerCritical puts the answers to what was asked for alone among the others.
func (g *gather) answerCritical() {
	for i, at := range g.from {
		g.batch.Items[at] = g.critical.Items[i]
	}
	g.batch.RetryAfter = max(g.batch.RetryAfter, g.critical.RetryAfter)
}

// addTokens gathers an extend_tokens. What its caller may not extend is answered beside the rest;
// where nothing else is left, the frame is refused.
func (s *stream) addTokens(w *bench, f *clientFrame) {
	g := s.door.room(w, f.count)
	first := len(g.batch.Items)
	for _, t := range w.decoder.tokens[f.first : f.first+f.count] {
		g.batch.Items = append(g.batch.Items, lease.Extension{Token: incumbent.Token(t)})
	}
	if s.who.principal.Kind != auth.Operator {
		if err := s.refuseTokens(g.batch.Items[first:]); err != nil {
			g.batch.Items = g.batch.Items[:first]
			s.refuseNow(w, f.id, err)
			return
		}
	}
	s.gathered(w, g, gathered{s: s, id: f.id, kind: tokensFrame, first: int32(first), count: int32(f.count)})
}

// refuseTokens marks what the stream's caller may not extend. Where that is all, it returns why.
// To judge what is denied takes longer than to read it: its bytes count for the pace.
func (s *stream) refuseTokens(items []lease.Extension) error {
	rights := s.door.rights(s.who)
	var first error
	refused, denied := 0, 0
	for i := range items {
		err := s.door.allowToken(rights, items[i].Token)
		if err == nil {
			continue
		}
		if refused++; refused == 1 {
			first = err
		}
		if items[i].Refused = incumbent.KindOf(err); items[i].Refused == incumbent.Denied {
			if denied++; denied == 1 {
				_ = s.door.denied(s.who, auth.Extend, "", err)
			}
		}
	}
	s.spent.Add(int32(denied * tokenBytes))
	if refused < len(items) {
		return nil
	}
	return first
}

// addBeat gathers a beat: an extension of every attached session.
func (s *stream) addBeat(w *bench, f *clientFrame) {
	// Sessions come and go meanwhile, but never more than a stream may have.
	g := s.door.room(w, MaxSessionsPerStream)
	first := len(g.batch.Items)
	s.mu.Lock()
	s.sessions.each(func(a *attached) {
		g.batch.Items = append(g.batch.Items, lease.Extension{Session: a.id, Beat: true})
	})
	s.mu.Unlock()
	s.gathered(w, g, gathered{s: s, id: f.id, kind: beatFrame, first: int32(first), count: int32(len(g.batch.Items) - first)})
}

func (s *stream) gathered(w *bench, g *gather, f gathered) {
	s.extending.Add(f.weight())
	g.frames = append(g.frames, f)
	s.turn = w.turn
	if s.turn == 0 {
		s.turn = 1
	}
}

// respond is the life of a responder.
func (d *Door) respond() {
	var got []*gather
	var buf []byte
	for {
		got = d.answers.Take(got, 1)
		if len(got) == 0 {
			return
		}
		buf = got[0].respond(buf)
		got[0].recycle(d)
		if cap(buf) > keepBufferBytes {
			buf = nil
		}
	}
}

// respond sends the answers; those of one stream that stand together go into
// one message.
func (g *gather) respond(buf []byte) []byte {
	g.answerCritical()
	for i := 0; i < len(g.frames); {
		s := g.frames[i].s
		buf = websocket.Start(buf[:0])
		for ; i < len(g.frames) && g.frames[i].s == s; i++ {
			buf = g.appendAnswer(buf, &g.frames[i])
		}
		if len(buf) > websocket.MaxHeader {
			s.write(buf[websocket.Finish(buf, ws.OpBinary):])
		}
	}
	return buf
}

func (g *gather) appendAnswer(b []byte, f *gathered) []byte {
	items := g.batch.Items[f.first : f.first+f.count]
	f.s.extending.Add(-f.weight()) // before its client can send the next
	if f.kind == beatFrame {
		return g.appendBeat(b, f, items)
	}
	if f.id == 0 {
		return b
	}
	return appendTokensExtended(b, f.id, len(items),
		func(i int) uint64 { return uint64(items[i].Token) },
		func(i int) outcome { return g.outcome(&items[i]) })
}

func (g *gather) outcome(e *lease.Extension) outcome {
	o := outcome{kind: e.Kind, held: e.Held}
	switch {
	case e.Kind.Transient():
		o.retry = g.batch.RetryAfter
	case e.Kind == incumbent.Denied:
		o.retry = deniedRetry
	}
	return o
}

// appendBeat answers a beat with the least time that a session is held for.
// Where one could not be extended for now, the answer is an error and the
// client goes on as if it had none; what is over is told apart. So is, by session_lost,
// what is attached elsewhere: as long as this stream was not told, the answer is an error.
func (g *gather) appendBeat(b []byte, f *gathered, items []lease.Extension) []byte {
	var a beaten
	var refused incumbent.Kind
	held := time.Duration(-1)
	for i := range items {
		o := g.outcome(&items[i])
		switch {
		case o.over():
			a.lost = append(a.lost, items[i].Session)
		case o.kind == incumbent.Conflict && !f.s.owns(items[i].Session):
			continue // nothing of it is told here any more
		case o.kind != incumbent.OK:
			refused = o.kind
		case held < 0 || o.held < held:
			held = o.held
		}
		a.revoking = append(a.revoking, items[i].RevokingTokens...)
	}
	for _, id := range a.lost {
		f.s.drop(id)
	}
	if f.id == 0 {
		return b
	}
	if refused != incumbent.OK {
		return f.s.door.appendError(b, f.id, extensionError(&g.batch, refused))
	}
	a.held = max(held, 0)
	return appendBeaten(b, f.id, &a)
}

// recycle puts the gather back without its references.
func (g *gather) recycle(d *Door) {
	if g.handedOn {
		d.still.end(d.monotonic(), judged(&g.batch))
	}
	g.place.Leave()
	g.handedOn, g.batch.RetryAfter, g.critical.RetryAfter = false, 0, 0
	clear(g.frames)
	clear(g.batch.Items)
	clear(g.critical.Items)
	g.frames, g.batch.Items, g.critical.Items, g.from = g.frames[:0], g.batch.Items[:0], g.critical.Items[:0], g.from[:0]
	d.gathers.Put(g)
}
