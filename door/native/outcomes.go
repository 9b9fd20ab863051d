package native

import (
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/websocket"
)

// The answers to operations of streams. One entry of the log settles hundreds of
// them, and most of those came over a few streams: what is there for one stream
// goes into one message, and so into one system call and one wake-up of the
// client.
//
//	lease loop: settled        ──▶ queue of outcomes
//	goroutine of the door      ──▶ all that wait: outbox, one message for each stream

// streamOp is a request of a stream on its way.
type streamOp struct {
	s      *stream
	id     uint64
	place  admit.Place
	result core.Result
	op     *operation // on a lease or session; else nil
	about  *operation // what is handed on of it as changed or denied: op, or of keys; nil: it reads
	// form writes the answer, of what is not about a lease or session.
	form func(f *former, r core.Result) *pb.ServerFrame
}

// settled takes the outcome. The lease loop calls it.
func (o *streamOp) settled(r core.Result) {
	o.result = r
	o.s.door.outcomes.Put(o)
}

// tell is the life of a goroutine that answers operations.
func (d *Door) tell() {
	var ops []*streamOp
	out := newOutbox()
	for {
		ops = d.outcomes.Take(ops, maxOutcomes)
		if len(ops) == 0 {
			return
		}
		f := d.former(nil) // after taking: its view is at least as new as all outcomes
		for _, o := range ops {
			if notProposed(o.result) {
				o.place.Drop()
			}
			o.place.Leave()
			o.s.underWay.Add(-1)
			if o.about != nil {
				d.settledOp(o.s.who, o.about, &o.result)
			}
			if o.id != 0 {
				f.forget()
				f.sight = d.sightOf(o.s.who)
				out.add(o.s, o.frame(f))
			}
		}
		out.send()
	}
}

// frame is the answer.
func (o *streamOp) frame(f *former) *pb.ServerFrame {
	if o.op != nil {
		return answerFrame(o.id, f.result(o.op, o.result))
	}
	out := o.form(f, o.result)
	out.Id = o.id
	if o.result.Err != nil {
		out.Error = errorPB(o.result.Err, f.d.standing(), nil)
	}
	return out
}

// answerFrame answers an operation. Its error is that of the frame.
func answerFrame(id uint64, r *pb.OperationResult) *pb.ServerFrame {
	if r.Error != nil {
		return &pb.ServerFrame{Id: id, Error: r.Error}
	}
	return &pb.ServerFrame{Id: id, Answer: &pb.ServerFrame_Operation{Operation: r}}
}

// outbox gathers frames by stream. Its memory is used again.
type outbox struct {
	places map[*stream]int // in letters
	used   int             // letters of this round
	all    []letter
}

func newOutbox() outbox { return outbox{places: map[*stream]int{}} }

// letter is one message under way.
type letter struct {
	to   *stream
	body []byte
}

// add appends a frame to the message of its stream, and sends that when it has
// become large.
func (o *outbox) add(to *stream, f *pb.ServerFrame) {
	to.refused(f.GetError().GetKind())
	i, ok := o.places[to]
	if !ok {
		i = o.open(to)
	}
	l := &o.all[i]
	l.body = appendFrame(l.body, f)
	if len(l.body) >= maxLetterBytes {
		l.send()
	}
}

func (o *outbox) open(to *stream) int {
	if o.used == len(o.all) {
		o.all = append(o.all, letter{})
	}
	i := o.used
	o.used++
	o.places[to] = i
	o.all[i].to = to
	o.all[i].body = websocket.Start(o.all[i].body[:0])
	return i
}

// send sends all messages and forgets whom they went to.
func (o *outbox) send() {
	if o.used == 0 {
		return
	}
	for i := range o.all[:o.used] {
		l := &o.all[i]
		l.send()
		l.to = nil
		if cap(l.body) > keepBufferBytes || i >= maxLetters {
			l.body = nil
		}
	}
	o.used = 0
	clear(o.places)
}

func (l *letter) send() {
	if len(l.body) > websocket.MaxHeader {
		l.to.write(l.body[websocket.Finish(l.body, ws.OpBinary):])
	}
	l.body = websocket.Start(l.body[:0])
}

// appendFrame appends a frame of a ServerMessage.
func appendFrame(b []byte, f *pb.ServerFrame) []byte {
	b = appendBytesHead(b, fieldFrames, proto.Size(f))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, f)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode an answer: %w", err))
	}
	return b
}
