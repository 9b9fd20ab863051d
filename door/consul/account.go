package consul

import (
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
)

// What callers change, and what they are not let do, is handed on to whoever counts and
// records it.

func (d *Door) note(who *caller, r audit.Record) {
	if d.cfg.Audit == nil {
		return
	}
	r.Door, r.Address, r.Principal = doorName, who.address, who.principal.String()
	d.cfg.Audit(r)
}

// noteDenied hands on that a caller may not do an action.
func (d *Door) noteDenied(who *caller, a auth.Action, subject string) {
	d.note(who, audit.Record{Action: a.String(), Subject: subject, Outcome: audit.Denied, Reason: audit.Permission})
}

// noteUnknown hands on that somebody brought what proves nobody.
func (d *Door) noteUnknown(who *caller, err error) {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.note(who, audit.Record{Action: audit.Login, Outcome: audit.Denied, Reason: audit.Identity})
	}
}

// changed hands on that the caller has changed something, at an index.
func (r *request) changed(a auth.Action, subject, detail string, index incumbent.Index) {
	r.door.note(r.who, audit.Record{Action: a.String(), Subject: subject, Detail: detail, Outcome: audit.Done, Index: uint64(index)})
}

// statusClasses are the hundreds of statuses, from 1xx.
const statusClasses = 5

// counts are the door's numbers. All are written from any goroutine.
type counts struct {
	connections atomic.Int64 // accepted and not closed
	blocked     atomic.Int64 // reads that wait
	refused     atomic.Uint64
	noTLS       atomic.Uint64
	malformed   atomic.Uint64 // connections that ended because of what came on them
	statuses    [statusClasses]atomic.Uint64
	nanoseconds atomic.Int64
}

func (n *counts) answered(status int, took time.Duration) {
	n.statuses[min(max(status/100-1, 0), statusClasses-1)].Add(1)
	n.nanoseconds.Add(int64(took))
}

// Stats are the door's numbers.
type Stats struct {
	Connections int                   // accepted and not closed
	Blocked     int                   // reads that wait
	Refused     uint64                // connections over MaxConnections
	NoTLS       uint64                // handshakes that did not succeed
	Malformed   uint64                // connections that ended because of what came on them
	Answered    [statusClasses]uint64 // requests, by the hundreds of their status, from 1xx
}

// Stats returns the numbers of the moment.
func (d *Door) Stats() Stats {
	n := &d.counts
	s := Stats{
		Connections: d.Connections(), Blocked: int(n.blocked.Load()), Refused: n.refused.Load(), NoTLS: n.noTLS.Load(), Malformed: n.malformed.Load(),
	}
	for i := range s.Answered {
		s.Answered[i] = n.statuses[i].Load()
	}
	return s
}
