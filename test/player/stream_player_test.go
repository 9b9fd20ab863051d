package player

import (
	"context"
	"fmt"
	"math"
	"sync"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// streamPlayer sends frames without waiting for answers.
type streamPlayer struct {
	*play
	number int
	open   *stream
	reads  sync.WaitGroup
}

func (p *streamPlayer) run(ctx context.Context) {
	defer func() {
		if p.open != nil {
			p.open.close()
		}
		p.reads.Wait()
	}()
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		p.step(d, step)
		p.rest(ctx, d)
		p.rest(ctx, d)
	}
}

func (p *streamPlayer) step(d dice, step int) {
	m := pick(d, p.c.Members)
	leave := d.oneIn(60)
	if p.open == nil {
		if p.open = p.openStream(m); p.open == nil {
			return
		}
		s := p.open
		p.reads.Go(s.read)
	}
	var list []*asked
	for range 1 + d.IntN(4) {
		frame, want := d.frame(p.open)
		begin := func(f *pb.ClientFrame, want expectation) *asked {
			c := p.book.begin(fmt.Sprintf("player %d, step %d, stream of %s", p.number, step, p.open.m.Name))
			return &asked{c: c, frame: f, want: want}
		}
		a := begin(frame, want)
		for _, then := range frame.GetStart().GetThen() {
			hangs := begin(then, valid)
			hangs.hangs = true
			a.then = append(a.then, hangs)
		}
		list = append(list, a)
	}
	if !p.open.send(list) || leave {
		p.open.close()
		p.open = nil
		return
	}
	p.open.late()
}

// frame makes a frame of any sort.
func (d dice) frame(s *stream) (*pb.ClientFrame, expectation) {
	f := &pb.ClientFrame{}
	if d.oneIn(20) {
		f.TimeoutMs = uint32(1 + d.IntN(20))
	}
	want := valid
	switch n := d.IntN(125); {
	case n >= 100:
		d.keyFrame(f)
	case n < 40:
		f.Request = &pb.ClientFrame_Operation{Operation: d.operation()}
	case n < 46:
		f.Request, want = &pb.ClientFrame_Operation{Operation: d.invalid()}, mustFail
	case n < 60:
		f.Request = &pb.ClientFrame_ExtendTokens{ExtendTokens: &pb.ExtendTokens{Tokens: d.tokens()}}
	case n < 68:
		f.Request = &pb.ClientFrame_Beat{Beat: &pb.Beat{}}
	case n < 72:
		f.Request = d.start()
		if d.oneIn(2) {
			f.TimeoutMs = uint32(1 + d.IntN(5000))
		}
	case n < 76:
		f.Request = &pb.ClientFrame_Attach{Attach: &pb.Attach{Session: d.session(), Counter: uint64(d.IntN(50))}}
	case n < 78:
		f.Request, want = &pb.ClientFrame_Attach{Attach: &pb.Attach{Session: pick(d, wrongSessions)}}, mustFail
	case n < 80:
		f.Request = &pb.ClientFrame_Detach{Detach: &pb.Detach{Session: d.session()}}
	case n < 84:
		scope := pick(d, scopes)
		w := &pb.WatchRequest{Name: (&place{scope, ""}).pb(), Prefix: true}
		if d.oneIn(2) {
			w.AfterIndex = s.book.recent(d.IntN(300))
		}
		f.Request = &pb.ClientFrame_Watch{Watch: &pb.StreamWatch{Watch: w}}
	case n < 87:
		f.Request = &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: s.someID(d)}}
	case n < 90:
		p := d.place()
		w := &pb.WaitReleasedRequest{Name: p.pb(), WaitMs: uint32(1 + d.IntN(300))}
		if d.oneIn(2) {
			w.AfterToken = d.token(p)
		}
		f.Request = &pb.ClientFrame_WaitReleased{WaitReleased: w}
	case n < 95:
		f.Request = &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: d.place().pb(), Stale: d.oneIn(4)}}
	case n < 98:
		f.Request = &pb.ClientFrame_GetSession{GetSession: d.getSession()}
	case n < 99:
		// What is cancelled is not answered: only a wait that there is not.
		f.Request = &pb.ClientFrame_Cancel{Cancel: &pb.Cancel{Id: math.MaxUint64 - uint64(d.IntN(10))}}
	default: // asks for nothing
		want = mustFail
	}
	return f, want
}

// start makes a start, which opens the session half of the time.
func (d dice) start() *pb.ClientFrame_Start {
	r := &pb.Start{Session: d.session(), Counter: uint64(d.IntN(50))}
	if d.oneIn(2) {
		r.TtlMs = d.ttl()
	}
	for range d.IntN(3) {
		f := &pb.ClientFrame{}
		d.keyFrame(f)
		r.Then = append(r.Then, f)
	}
	return &pb.ClientFrame_Start{Start: r}
}

// tokens lists tokens that are or were held, some of them twice, and some never.
func (d dice) tokens() []uint64 {
	var out []uint64
	for range d.IntN(12) {
		t := d.token(d.place())
		if out = append(out, t); d.oneIn(5) {
			out = append(out, t)
		}
	}
	if d.oneIn(10) {
		out = append(out, d.Uint64()|1<<63)
	}
	return out
}

// someID is that of one of the last frames.
func (s *stream) someID(d dice) uint64 {
	back := uint64(d.IntN(20))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last - min(s.last, back)
}

// recent is an index of a little while ago.
func (b *book) recent(back int) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen - min(b.seen, uint64(back))
}
