package ovsdb

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// version is that of the method by which a client monitors.
type version uint8

const (
	plain version = iota // monitor
	cond                 // monitor_cond
	since                // monitor_cond_since
)

var updateNames = [...]string{"update", "update2", "update3"}

// group is monitors that want the same: each change is told to all in the same bytes.
// It belongs to its feed.
type group struct {
	feed    *feed
	key     string
	version version
	specs   []*spec // by table
	members members[*monitor]

	// Of the change under way.
	hits []*spec
}

// wish is what a monitor wants of a table.
type wish struct {
	table   int
	columns []shown
	selects selects         // of all that it asks for of the table: also where that is no column
	where   []ovs.Condition // in order
	all     bool
	known   known // of the database about the server; the zero value elsewhere
}

// spec returns the spec of a wish, which it makes if need be.
func (f *feed) spec(w *wish, v version) *spec {
	enc, key := f.keys(w, v)
	if s := f.matcher.specs[key]; s != nil {
		return s
	}
	e := f.matcher.encs[enc]
	if e == nil {
		e = &encoder{key: enc, shape: f.shape, table: w.table, columns: w.columns, selects: w.selects, old: v == plain}
		f.matcher.encs[enc] = e
	}
	e.specs++
	f.matcher.made++
	s := &spec{id: f.matcher.made, key: key, table: w.table, encoder: e, where: w.where, all: w.all, known: w.known}
	f.matcher.add(s)
	return s
}

// keys tell encoders and specs apart: wishes that mean the same have the same.
func (f *feed) keys(w *wish, v version) (enc, key string) {
	b := binary.AppendUvarint(nil, uint64(w.table)) //nolint:gosec // it is not negative
	if v == plain {
		b = append(b, 1)
	} else {
		b = append(b, 2)
	}
	b = append(b, byte(w.selects))
	b = binary.AppendUvarint(b, uint64(len(w.columns)))
	for _, c := range w.columns {
		b = append(binary.AppendVarint(b, int64(c.column)), byte(c.selects))
	}
	enc = string(b)
	var out strings.Builder
	out.WriteString(enc)
	if !w.known.all() {
		out.Write(binary.AppendUvarint([]byte{'?'}, uint64(len(w.known.key))))
		out.WriteString(w.known.key)
	}
	if w.all {
		out.WriteByte('*')
		return enc, out.String()
	}
	for i := range w.where {
		c := &w.where[i]
		b = binary.AppendVarint(b[:0], int64(c.Column))
		b = append(b, byte(c.Function))
		b = c.Arg.AppendBinary(b)
		out.Write(binary.AppendUvarint(nil, uint64(len(b))))
		out.Write(b)
	}
	return enc, out.String()
}

// wishes are those that the group's monitors have.
func (g *group) wishes() []wish {
	out := make([]wish, len(g.specs))
	for i, s := range g.specs {
		out[i] = wish{table: s.table, columns: s.encoder.columns, selects: s.encoder.selects, where: s.where, all: s.all, known: s.known}
	}
	return out
}

// join makes a monitor a member of the group of wishes.
func (f *feed) join(m *monitor, wishes []wish) {
	specs := make([]*spec, len(wishes))
	b := []byte{byte(m.version)}
	for i := range wishes {
		specs[i] = f.spec(&wishes[i], m.version)
		b = binary.AppendUvarint(b, specs[i].id)
	}
	g := f.groups[string(b)]
	if g == nil {
		g = &group{feed: f, key: string(b), version: m.version, specs: specs}
		f.groups[g.key] = g
		for _, s := range specs {
			s.groups.add(g)
		}
	}
	g.members.add(m)
	m.group = g
	f.door.counts.monitors.Add(1)
}

// leave takes a monitor out of its group.
func (m *monitor) leave() {
	if m.group == nil {
		return
	}
	m.group.drop(m)
	m.group = nil
	_ = m.keeps(nil)
}

// drop takes a monitor out of the group, which ends with its last one.
func (g *group) drop(m *monitor) {
	g.feed.door.counts.monitors.Add(-1)
	g.members.remove(m)
	if len(g.members.list) > 0 {
		return
	}
	delete(g.feed.groups, g.key)
	for _, s := range g.specs {
		s.groups.remove(g)
		if len(s.groups.list) == 0 {
			g.feed.matcher.remove(s)
		}
	}
}

// deliver tells the monitors of specs what was found for them.
func deliver(hits []*spec, c *change) {
	var groups []*group
	for _, s := range hits {
		for _, g := range s.groups.list {
			if len(g.hits) == 0 {
				groups = append(groups, g)
			}
			g.hits = append(g.hits, s)
		}
	}
	bodies := map[string][]byte{} // by what they are made of: groups that differ elsewhere share them
	var key []byte
	for _, g := range groups {
		key = append(key[:0], byte(g.version))
		for _, s := range g.hits {
			key = binary.AppendUvarint(key, s.id)
		}
		body := bodies[string(key)]
		if body == nil {
			body = g.body(c.txn)
			bodies[string(key)] = body
			g.feed.door.counts.encoded.Add(1)
		}
		g.hits = g.hits[:0]
		for _, m := range g.members.list {
			m.conn.tell(m.head, body)
		}
		g.feed.door.counts.updates.Add(uint64(len(g.members.list)))
	}
}

// body is what the members of a group are told of a change, behind the id of their
// monitor.
func (g *group) body(txn ovs.UUID) []byte {
	var b []byte
	if g.version == since {
		b = append(append(append(b, '"'), g.feed.shared(txn).String()...), `",`...)
	}
	b = append(b, '{')
	for i, s := range g.hits {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, s.encoder.shape.tables[s.table]...), '{')
		b = append(append(b, s.found...), '}')
	}
	return append(b, `}]}`...)
}

// snapshot is the rows that members of the group see: pieces of which most are shared
// with other groups.
func (g *group) snapshot(state contents) [][]byte {
	bufs := [][]byte{opening}
	n := 0
	for _, s := range g.specs {
		rows := s.snapshot(state)
		if len(rows) == 0 {
			continue
		}
		if n++; n > 1 {
			bufs = append(bufs, comma)
		}
		bufs = append(bufs, s.encoder.shape.tables[s.table], opening)
		bufs = append(append(bufs, rows...), ending)
	}
	return append(bufs, ending)
}

var opening, comma, ending = []byte{'{'}, []byte{','}, []byte{'}'}

// snapshot is the rows of a spec. From the second time on that they are asked for they are
// kept until they change: many who return at once ask for the same, and who is alone with
// its conditions for what nobody asks for again.
func (s *spec) snapshot(state contents) [][]byte {
	if s.kept != nil {
		return s.kept
	}
	out := s.encoded(state)
	if s.asked {
		s.kept = out
	}
	s.asked = true
	return out
}

// encoded is the rows of a spec in pieces: one slice of them all would be copied again and
// again while it grows, and a database may have hundreds of megabytes.
func (s *spec) encoded(state contents) [][]byte {
	out := [][]byte{}
	b, behind := make([]byte, 0, 64), false
	s.each(state, func(r *ovs.Row) {
		start := len(b)
		if behind {
			b = append(b, ',')
		}
		at := len(b)
		if b = s.encoder.append(b, nil, r, initial); len(b) == at {
			b = b[:start]
			return
		}
		if behind = true; len(b) >= sendBytes {
			out = append(out, b)
			b = make([]byte, 0, sendBytes+sendBytes/8)
		}
	})
	if len(b) > 0 {
		out = append(out, b)
	}
	return out
}

// each calls f with the rows of a state that the spec has: those that an index leads to, if
// one does for each of its conditions, else those that it finds among all.
func (s *spec) each(state contents, f func(*ovs.Row)) {
	unindexed := func(c ovs.Condition) bool { return !state.Indexed(s.table, &c) }
	if s.all || slices.ContainsFunc(s.where, unindexed) {
		state.Find(s.table, nil, func(r *ovs.Row) bool {
			if s.holds(r) {
				f(r)
			}
			return true
		})
		return
	}
	for i := range s.where {
		state.Find(s.table, s.where[i:i+1], func(r *ovs.Row) bool {
			if s.known.shows(r) && !holdsAny(s.where[:i], r) { // else it was found before
				f(r)
			}
			return true
		})
	}
}
