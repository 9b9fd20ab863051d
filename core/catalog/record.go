package catalog

import (
	"bytes"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Kinds of records, in the order in which they stand in a section.
const (
	nodeRecord uint8 = iota + 1
	serviceRecord
	checkRecord
	sessionRecord
	markRecord
	floorRecord // one, unless the floor is 0
)

// Records implements [core.FamilyView].
func (v *View) Records() int {
	n := v.records() + v.marks.Len()
	if v.floor > 0 {
		n++
	}
	return n
}

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	w := recordWriter{}
	going := true
	v.hosts.Scan(func(h *host) bool {
		going = record(w.write(nodeRecord, h.node))
		return going
	})
	if going {
		v.services.Scan(func(s *Service) bool {
			going = record(w.write(serviceRecord, s))
			return going
		})
	}
	if going {
		v.checks.Scan(func(c *Check) bool {
			going = record(w.write(checkRecord, c))
			return going
		})
	}
	if going {
		v.sessions.Scan(func(s *Session) bool {
			going = record(w.write(sessionRecord, s))
			return going
		})
	}
	if going {
		v.marks.Scan(func(m mark) bool {
			going = record(w.write(markRecord, &m))
			return going
		})
	}
	if going && v.floor > 0 {
		record(w.write(floorRecord, &mark{at: v.floor}))
	}
}

// recordWriter writes records, one after the other into the same bytes.
type recordWriter struct{ writer }

func (w *recordWriter) write(kind uint8, of message) []byte {
	w.B = w.B[:0]
	w.Uint(1, uint64(kind))
	if n := furtherOf(of); n != nil {
		w.Uint(2, *n)
	}
	switch r := of.(type) {
	case *Node:
		w.node(r)
	case *Service:
		w.service(r)
	case *Check:
		w.check(r)
	case *Session:
		w.session(r)
	case *mark:
		w.Text(10, r.namespace)
		w.Uint(11, uint64(r.of))
		w.Text(12, r.name)
		w.Uint(13, uint64(r.at))
	}
	return w.B
}

func (m *mark) set(f *wire.Field) bool {
	switch f.Num {
	case 10:
		return f.CopyString(&m.namespace)
	case 11:
		return wire.Small(f, &m.of)
	case 12:
		return f.CopyString(&m.name)
	case 13:
		return f.Uint((*uint64)(&m.at))
	}
	return false
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	kind, of, ok := readRecord(b)
	if !ok || kind < t.part {
		return false
	}
	t.part = kind
	// What is kept is written as it was read, or the bytes are refused: so states
	// that are equal have equal bytes, and damage shows.
	return bytes.Equal(t.again.write(kind, of), b) && t.take(kind, of)
}

func readRecord(b []byte) (kind uint8, of message, ok bool) {
	r := wire.Read(b)
	f, more := r.Next()
	if !more || f.Num != 1 || !wire.Small(&f, &kind) {
		return 0, nil, false
	}
	switch kind {
	case nodeRecord:
		of = new(Node)
	case serviceRecord:
		of = new(Service)
	case checkRecord:
		of = new(Check)
	case sessionRecord:
		of = new(Session)
	case markRecord, floorRecord:
		of = new(mark)
	default:
		return 0, nil, false
	}
	for {
		f, more := r.Next()
		if !more {
			return kind, of, !r.Bad()
		}
		if f.Num == 2 {
			if n := furtherOf(of); n == nil || !f.Uint(n) {
				return 0, nil, false
			}
			continue
		}
		if !of.set(&f) {
			return 0, nil, false
		}
	}
}

// take stores a record that is read. Those of one kind come by their keys.
func (t *tables) take(kind uint8, of message) bool {
	switch r := of.(type) {
	case *Node:
		return t.takeNode(r)
	case *Service:
		return t.takeService(r)
	case *Check:
		return t.takeCheck(r)
	case *Session:
		return t.takeSession(r)
	case *mark:
		if kind == floorRecord {
			ok := t.floor == 0 && *r == (mark{at: r.at}) && r.at > 0
			t.floor = r.at
			return ok
		}
		return t.takeMark(*r)
	}
	return false
}

func (t *tables) takeNode(n *Node) bool {
	if last, ok := t.hosts.Max(); ok && compare(last.node.Namespace, n.Namespace, last.node.Name, n.Name) >= 0 {
		return false
	}
	if t.hostByID(n.Namespace, n.ID) != nil {
		return false
	}
	t.setHost(nil, &host{node: n})
	t.charge(n.Owner, n.Namespace, n.registrations())
	return true
}

func (t *tables) takeService(s *Service) bool {
	if last, ok := t.services.Max(); ok && compareServices(last, s) >= 0 {
		return false
	}
	h := t.host(s.Namespace, s.Node)
	if h == nil {
		return false
	}
	t.store(s, h)
	return true
}

// store stores a service that has no check yet, and is not there.
func (t *tables) store(s *Service, h *host) {
	next := *h
	next.services++
	t.setHost(h, &next)
	t.services.Set(s)
	t.instances.Set(&Instance{Node: h.node, Service: s, NodeChecks: h.checks})
	if !s.Session.IsZero() {
		t.tenants.Set(tenancy{s.Session, s.Namespace, s.Node, s.ID})
	}
	t.charge(s.Owner, s.Namespace, s.registrations())
}

func (t *tables) takeCheck(c *Check) bool {
	if last, ok := t.checks.Max(); ok && compareChecks(last, c) >= 0 {
		return false
	}
	s := t.service(c.Namespace, c.Node, c.ServiceID)
	if t.host(c.Namespace, c.Node) == nil || s == nil && c.ServiceID != "" {
		return false
	}
	if s != nil {
		c.ServiceID, c.ServiceName, c.ServiceTags = s.ID, s.Name, s.Tags
	}
	t.checks.Set(c)
	t.attach(c, 0, false)
	t.charge(c.Owner, c.Namespace, c.registrations())
	return true
}

func (t *tables) takeSession(s *Session) bool {
	if last, ok := t.sessions.Max(); ok && bytes.Compare(last.ID[:], s.ID[:]) >= 0 {
		return false
	}
	if t.host(s.Namespace, s.Node) == nil {
		return false
	}
	t.addSession(s)
	return true
}

// takeMark stores a mark. What it is of has been read.
func (t *tables) takeMark(m mark) bool {
	if last, ok := t.marks.Max(); ok && last.compare(m) >= 0 {
		return false
	}
	t.touch(m, t.isDead(m))
	return t.floor == incumbent.Index(0) // else there were too many
}
