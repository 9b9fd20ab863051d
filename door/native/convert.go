package native

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Between the protocol's words and the module's. What comes in is checked
// here, and an error names the field as the .proto file does.

// inField names the field that an error is about.
func inField(field string, err error) *incumbent.Error {
	e := *asError(err)
	if !strings.HasPrefix(e.Message, field+" ") {
		e.Message = field + ": " + e.Message
	}
	return &e
}

func invalid(field, format string, args ...any) *incumbent.Error {
	return inField(field, incumbent.Errorf(incumbent.Invalid, format, args...))
}

// leaseName reads a name; empty namespace and model mean the default ones.
func leaseName(n *pb.LeaseName) (incumbent.Name, error) {
	if n == nil {
		return incumbent.Name{}, invalid("name", "is missing")
	}
	name := inScope(n)
	name.Lease = n.Name
	if err := name.Validate(); err != nil {
		return name, inField("name", err)
	}
	return name, nil
}

// inScope reads namespace and model only.
func inScope(n *pb.LeaseName) incumbent.Name {
	return incumbent.Name{
		Namespace: cmp.Or(n.GetNamespace(), incumbent.DefaultNamespace),
		Model:     cmp.Or(n.GetModel(), incumbent.DefaultModel),
	}
}

// verbatim reads the name that ended a page: what is empty is empty.
func verbatim(n *pb.LeaseName) incumbent.Name {
	return incumbent.Name{Namespace: n.GetNamespace(), Model: n.GetModel(), Lease: n.GetName()}
}

func holderOf(field, h string) error {
	if err := incumbent.ValidateHolder(h); err != nil {
		return inField(field, err)
	}
	return nil
}

// sessionOf reads a session's id; none gives the zero id.
func sessionOf(field, s string) (incumbent.SessionID, error) {
	id, err := incumbent.ParseSessionID(s)
	if err != nil {
		return id, inField(field, err)
	}
	return id, nil
}

func neededSession(field, s string) (incumbent.SessionID, error) {
	if s == "" {
		return incumbent.SessionID{}, invalid(field, "is missing")
	}
	return sessionOf(field, s)
}

// ttlOf reads a time to live that must be there.
func ttlOf(field string, ms uint32) (time.Duration, error) {
	d := time.Duration(ms) * time.Millisecond
	if err := incumbent.ValidateTTL(d); err != nil {
		return 0, inField(field, err)
	}
	return d, nil
}

func namePB(n incumbent.Name) *pb.LeaseName {
	return &pb.LeaseName{Namespace: n.Namespace, Model: n.Model, Name: n.Lease}
}

// leasePB writes a lease, but for the id of its session. ttl is the one it lives by: its own or its
// session's. Only who asks for one lease in full gets its history (and queue:
// see former.kept), which may be a thousand times as large as all else.
func leasePB(l *leases.Lease, ttl time.Duration, full bool) *pb.Lease {
	p := &pb.Lease{
		Name:            namePB(l.Name),
		Holder:          l.Holder,
		Token:           uint64(l.Token),
		TtlMs:           ms(ttl),
		Pins:            l.Pins,
		PreviousHolder:  l.PreviousHolder,
		Reason:          reasonOf(l),
		Offered:         l.Offered,
		Critical:        l.Critical,
		Revoking:        l.Revoking,
		LastToken:       uint64(l.LastToken),
		ModifiedIndex:   uint64(l.Modified),
		LastExtendMsAgo: -1,
	}
	if !l.Free() {
		p.SinceUnixMs = unixMS(l.Since())
		p.Door, p.Address, p.Principal = l.Origin.Door, l.Origin.Address, l.Origin.Principal
	}
	if full {
		p.History = historyPB(l.History())
	}
	return p
}

// reasonOf says why the lease last changed hands.
func reasonOf(l *leases.Lease) string {
	what := l.Newest(func(w leases.What) bool {
		switch w {
		case leases.Granted, leases.Offered, leases.Released, leases.Expired, leases.Revoked, leases.SessionGone,
			leases.Transferred, leases.Declined:
			return true
		}
		return false
	})
	if what == 0 {
		return ""
	}
	return what.String()
}

func (f *former) queue(q iter.Seq[leases.Waiter]) (out []*pb.Waiter) {
	for w := range q {
		out = append(out, &pb.Waiter{Session: f.sessionID(w.Session), Holder: w.Holder, SinceIndex: uint64(w.Since)})
	}
	return out
}

func historyPB(h []leases.LeaseChange) []*pb.LeaseChange {
	out := make([]*pb.LeaseChange, len(h))
	for i, c := range h {
		out[i] = &pb.LeaseChange{
			Index:     uint64(c.Index),
			What:      c.What.String(),
			Holder:    c.Holder,
			Token:     uint64(c.Token),
			AtUnixMs:  unixMS(c.Origin.At),
			Door:      c.Origin.Door,
			Address:   c.Origin.Address,
			Principal: c.Origin.Principal,
			LateMs:    ms(c.Late),
			By:        c.By,
		}
	}
	return out
}

func sessionPB(s *core.Session, leases int) *pb.Session {
	return &pb.Session{
		Id:           s.ID.String(),
		TtlMs:        ms(s.TTL),
		OpenedIndex:  uint64(s.Opened),
		Door:         s.Origin.Door,
		Address:      s.Origin.Address,
		Principal:    s.Origin.Principal,
		OpenedUnixMs: unixMS(s.Origin.At),
		Leases:       uint32(leases),
	}
}

func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
