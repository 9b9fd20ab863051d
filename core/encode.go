package core

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// encoder writes what commands and records of core have in common, besides what
// those of families have.
type encoder struct{ wire.Writer }

// ids writes sessions one behind the other.
func (e *encoder) ids(num wire.Number, list []incumbent.SessionID) {
	if len(list) == 0 {
		return
	}
	m := e.Begin(num)
	for i := range list {
		e.B = append(e.B, list[i][:]...)
	}
	e.End(m)
}

// name is the first field wherever there is one, also when it is empty.
func (e *encoder) name(n incumbent.Name) {
	m := e.Begin(1)
	e.Text(1, n.Namespace)
	e.Text(2, n.Model)
	e.Text(3, n.Lease)
	e.End(m)
}

func (e *encoder) origin(num wire.Number, o *Origin) {
	if *o == (Origin{}) {
		return
	}
	m := e.Begin(num)
	e.Uint(1, uint64(atMillis(o.At)))
	e.Text(2, o.Door)
	e.Text(3, o.Address)
	e.Text(4, o.Principal)
	e.End(m)
}

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
