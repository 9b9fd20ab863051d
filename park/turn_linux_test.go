package park

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// reader is a handler that is one function.
type reader struct {
	read  func(data []byte)
	ended atomic.Bool
}

func (r *reader) Readable(c *Conn, data []byte) (int, error) {
	r.read(data)
	return len(data), nil
}

func (r *reader) Closed(*Conn, Reason, error) { r.ended.Store(true) }

// TestG47_TurnsAreBounded has a worker find a connection with very much to do and
// then another one: the other is heard after one turn of the first, and of that
// nothing is left lying although the kernel announces it no more.
func TestG47_TurnsAreBounded(t *testing.T) {
	const bytes, records = 4 << 10, 1000
	// A read of crypto/tls may go on for as many bytes as its buffer has room for.
	const slack = 16 << 10
	for name, flood := range map[string]func(w *tlsWriter) (all []byte, reads int){
		"small records": func(w *tlsWriter) (all []byte, reads int) {
			for range records {
				all = w.record(all, recordApplication, 'x')
			}
			return all, records
		},
		"key updates": func(w *tlsWriter) (all []byte, reads int) {
			for range records / 10 {
				all = w.updates(all)
			}
			return all, records / 10
		},
		// A message that is refused when it is whole, which ends the connection.
		"pieces of a message": func(w *tlsWriter) (all []byte, reads int) {
			const length = 2000
			for _, b := range append([]byte{messageTicket, 0, length >> 8, length & 0xff}, make([]byte, length)...) {
				all = w.record(all, recordHandshake, b)
			}
			return all, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := make(chan Handler, 1)
			r := newRig(t, variant{tls: true}, Config{Workers: 1, turnBytes: bytes, Ticks: still()}, func() Handler { return <-handlers })
			w := r.set.workers[0]
			var rawBefore, reads int // the worker's
			busy, goOn := make(chan struct{}), make(chan struct{})
			handlers <- &reader{read: func([]byte) {
				close(busy)
				<-goOn
				rawBefore = w.rawBytes
			}}
			blocker := r.dial()
			r.wantParked(1)
			var all atomic.Int64
			many := &reader{read: func([]byte) {
				reads++
				all.Add(1)
			}}
			handlers <- many
			conn, writer := r.dialTLSWriter(t)
			r.wantParked(2)
			type heard struct{ raw, reads int }
			others := make(chan heard, 1)
			handlers <- &reader{read: func([]byte) { others <- heard{w.rawBytes - rawBefore, reads} }}
			other := r.dial()
			r.wantParked(3)

			if _, err := blocker.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			receive(t, "the worker", busy)
			sent, want := flood(writer)
			_, manyErr := conn.Write(sent)
			mustArrive(t, conn)
			_, otherErr := other.Write([]byte{1})
			mustArrive(t, other)
			close(goOn)
			if err := errors.Join(manyErr, otherErr); err != nil {
				t.Fatal(err)
			}
			got := receive(t, "the other", others)
			if got.raw > bytes+slack || got.reads > turnReads {
				t.Errorf("the other was heard after %d bytes of %d and %d reads, want at most %d and %d", got.raw, len(sent), got.reads, bytes+slack, turnReads)
			}
			for end := time.Now().Add(patience); all.Load() < int64(want) || want == 0 && !many.ended.Load(); runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatalf("%d of %d bytes were handed over", all.Load(), want)
				}
			}
		})
	}
}

// TestScansReachTheEnd: however often a tick comes before a scan for deadlines is over, all
// connections are looked at, and those that were before the tick once more.
func TestScansReachTheEnd(t *testing.T) {
	w := &worker{set: &Set{}, slots: make([]slot, 2*scanSlots+1), cursor: -1}
	turn := func(tick bool, want int) {
		t.Helper()
		if w.readMail(&mail{tick: tick}); w.cursor != want {
			t.Fatalf("the next to be looked at is %d, want %d", w.cursor, want)
		}
	}
	for range 2 {
		turn(true, scanSlots)
		turn(true, 2*scanSlots)
		turn(true, 0)
		turn(false, scanSlots)
		turn(false, 2*scanSlots)
		turn(false, -1)
	}
	turn(false, -1)
}
