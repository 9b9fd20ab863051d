package core

import (
	"time"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// encoder writes what commands and records of core have in common, besides what
// those of families have.
type encoder struct{ wire.Writer }

func (e *encoder) origin(num wire.Number, o *Origin) { o.Encode(&e.Writer, num) }

// Encode writes an origin as a field, unless it says nothing.
func (o *Origin) Encode(w *wire.Writer, num wire.Number) {
	if *o == (Origin{}) {
		return
	}
	m := w.Begin(num)
	w.Uint(1, uint64(o.Millis()))
	w.Text(2, o.Door)
	w.Text(3, o.Address)
	w.Text(4, o.Principal)
	w.End(m)
}

// Millis is when the command was sent, in Unix milliseconds, as commands and snapshots
// say it; 0 is "never".
func (o *Origin) Millis() int64 { return atMillis(o.At) }

// AtMillis returns the time that [Origin.Millis] says.
func AtMillis(ms int64) time.Time { return atTime(ms) }

// atMillis is the form of a wall clock in commands and snapshots; 0 is "none".
// It never makes a command fail: what does not fit is cut.
func atMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return min(max(t.UnixMilli(), 0), maxAtMillis)
}

func atTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
