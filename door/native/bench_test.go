package native

import (
	"testing"
	"time"
	"unsafe"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/websocket"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// willing extends whatever it is asked to.
type willing struct{ Leases }

func (willing) Extend(b *lease.Batch) {
	for i := range b.Items {
		b.Items[i].Kind, b.Items[i].Held = incumbent.OK, 15*time.Second
	}
	b.Done(b)
}

// hotDoor is as much of a door as the hot path needs, and a stream of it.
func hotDoor() (*Door, *bench, *stream) {
	d := &Door{leases: willing{}, answers: workqueue.New[*gather](), now: time.Now}
	d.gathers.New = func() any { return d.newGather() }
	w := &bench{gather: d.newGather(), turn: 1}
	return d, w, &stream{door: d, who: &caller{principal: admin}}
}

// turnHot is one wake-up: messages in, bytes out.
func turnHot(d *Door, w *bench, s *stream, wire [][]byte, scratch []byte, answers []*gather) ([]byte, []*gather) {
	for _, m := range wire {
		in := append(scratch[:0], m...) // unmasking spoils it
		msg, bad := websocket.Reader{Op: ws.OpBinary, Limit: DefaultMaxMessageBytes}.Next(in)
		if bad == nil {
			bad = s.message(nil, w, &msg)
		}
		if bad != nil {
			panic(bad)
		}
	}
	d.flush(w)
	answers = d.answers.Take(answers, 1)
	scratch = answers[0].respond(scratch)
	answers[0].recycle(d)
	return scratch, answers
}

func hotMessages(tb testing.TB, streams, tokens int, beat bool) [][]byte {
	var wire [][]byte
	for i := range streams {
		f := beatMessage(uint64(i + 1))
		if !beat {
			list := make([]uint64, tokens)
			for k := range list {
				list[k] = uint64(1000*i + k + 1)
			}
			f = tokensMessage(uint64(i+1), 0, list...)
		}
		wire = append(wire, clientFrameBytes(ws.OpBinary, true, marshal(tb, &pb.ClientMessage{Frames: []*pb.ClientFrame{f}})))
	}
	return wire
}

// Messages of 64 connections in one wake-up, from the bytes that arrived to
// the bytes that are sent; without sockets and lease loop. The time is that of
// one message.
func BenchmarkHotPath(b *testing.B) {
	for _, c := range []struct {
		name   string
		tokens int
		beat   bool
	}{{"token", 1, false}, {"tokens=100", 100, false}, {"beat", 0, true}} {
		b.Run(c.name, func(b *testing.B) {
			const streams = 64
			d, w, s := hotDoor()
			s.sessions.set(attached{id: incumbent.SessionID{1}})
			wire := hotMessages(b, streams, c.tokens, c.beat)
			var answers []*gather
			scratch := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				scratch, answers = turnHot(d, w, s, wire, scratch, answers)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*streams), "ns/message")
		})
	}
}

// In steady state an extension costs no allocation.
func TestHotPathAllocatesNothing(t *testing.T) {
	d, w, s := hotDoor()
	s.sessions.set(attached{id: incumbent.SessionID{1}})
	wire := append(hotMessages(t, 64, 3, false), hotMessages(t, 64, 0, true)...)
	var answers []*gather
	scratch := make([]byte, 0, 1<<16)
	scratch, answers = turnHot(d, w, s, wire, scratch, answers)
	got := testing.AllocsPerRun(100, func() { scratch, answers = turnHot(d, w, s, wire, scratch, answers) })
	// sync.Pool may drop what it holds when the collector runs, and does on
	// purpose under the race detector.
	if got > 8 {
		t.Errorf("%v allocations for %d messages", got, len(wire))
	}
}

// An idle stream is this struct and what net/http knew of its caller.
func TestIdleStreamIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(stream{}); n > 192 {
		t.Errorf("a stream takes %d bytes", n)
	}
	if n := unsafe.Sizeof(caller{}); n > 112 {
		t.Errorf("its caller takes %d bytes", n)
	}
}

var _ Leases = (*lease.Service)(nil)
