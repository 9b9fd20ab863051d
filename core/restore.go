package core

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/corepb"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Restore reads what [View.WriteSnapshot] wrote. Whatever does not hold
// together is a Corrupt error; a schema this code does not know is Invalid.
func Restore(r io.Reader, families ...Family) (*State, error) {
	d := restorer{in: bufio.NewReaderSize(r, 64<<10), s: New(families...), origin: noOrigin}
	if err := d.run(); err != nil {
		return nil, err
	}
	return d.s, nil
}

// restorer reads one snapshot. Records must come in the order they are
// written, so that none can come twice.
type restorer struct {
	in  *bufio.Reader
	rec []byte  // the record
	own []byte  // where it lies if it is large
	e   encoder // the record, written again
	s   *State
	n   int // records read

	origin      *Origin // the last one
	lastSession *Session
	lastKept    incumbent.Index

	sections uint64
	schema   uint64 // the newest of their families
	section  string // of the family whose records come
	tables   Tables
	left     uint64 // records of it that are still to come
}

func (d *restorer) run() error {
	if _, err := d.next(); err != nil {
		return err
	}
	rec, err := d.parse()
	if err != nil {
		return err
	}
	h := rec.GetHeader()
	switch {
	case h == nil:
		return d.corrupt("the first record is not a header")
	case h.Schema < oldestSchema || h.Schema > SchemaVersion:
		return incumbent.Errorf(incumbent.Invalid, "snapshot has schema %d, this member reads %d to %d", h.Schema, oldestSchema, SchemaVersion)
	}
	d.s.index, d.s.keysFloor = incumbent.Index(h.Index), incumbent.Index(h.KeysFloor)
	n := sizes{sessions: h.Sessions, kept: h.Kept, members: h.Members, gone: h.GoneMembers, sections: h.Sections, families: uint64(h.Schema)}
	if err := d.same(func(e *encoder) { e.header(&d.s.shared, n) }); err != nil {
		return err
	}
	if err := d.records(); err != nil {
		return err
	}
	s := d.s
	s.govern()
	if d.left > 0 {
		return d.corrupt("%d records of family %s are missing", d.left, d.section)
	}
	got := s.sizes()
	if got.sections, got.families = d.sections, max(d.schema, oldestSchema); got != n {
		return d.corrupt("it has %+v, its header says %+v", got, n)
	}
	if err := s.checkRecords(); err != nil {
		return d.corrupt("%v", err)
	}
	return nil
}

func (d *restorer) records() error {
	for {
		more, err := d.next()
		if !more || err != nil {
			return err
		}
		if record, ok := only(d.rec, recordFamily); ok {
			err = d.family(record)
		} else {
			err = d.other()
		}
		spoil(d.rec) // the next one comes where it lies
		if err != nil {
			return err
		}
	}
}

// only returns the contents of a message that has one field, and that of a number.
// What families say is read by hand: there are millions of them.
func only(b []byte, num protowire.Number) ([]byte, bool) {
	got, typ, n := protowire.ConsumeTag(b)
	if n < 0 || got != num || typ != protowire.BytesType {
		return nil, false
	}
	body, m := protowire.ConsumeBytes(b[n:])
	return body, m == len(b)-n
}

// other takes a record that is no family's.
func (d *restorer) other() error {
	rec, err := d.parse()
	if err != nil {
		return err
	}
	if r, ok := rec.Record.(*corepb.Record_Section); ok {
		return d.begin(r.Section)
	}
	return d.shared(rec)
}

// shared takes a record of what all families share.
func (d *restorer) shared(rec *corepb.Record) error {
	if d.sections > 0 {
		return d.corrupt("it comes behind the families")
	}
	switch r := rec.Record.(type) {
	case *corepb.Record_Session:
		return d.session(r.Session)
	case *corepb.Record_Kept:
		return d.kept(r.Kept)
	case *corepb.Record_Member:
		return d.member(r.Member)
	case *corepb.Record_GoneMembers:
		return d.gone(r.GoneMembers)
	}
	return d.corrupt("unexpected kind of record")
}

// begin takes the head of a family's section. Sections come in the order of their
// families.
func (d *restorer) begin(p *corepb.Section) error {
	at := slices.IndexFunc(d.s.families, func(f family) bool { return f.Name() == p.Name })
	before := slices.IndexFunc(d.s.families, func(f family) bool { return f.Name() == d.section })
	switch {
	case at < 0:
		return incumbent.Errorf(incumbent.Invalid, "snapshot has records of family %q, which this member does not know", p.Name)
	case d.left > 0, at <= before, p.Records == 0:
		return d.corrupt("the section of family %s is out of place", p.Name)
	}
	if err := d.same(func(e *encoder) { e.section(p.Name, int(p.Records)) }); err != nil {
		return err
	}
	f := &d.s.families[at]
	d.sections++
	d.schema = max(d.schema, uint64(f.Schema()))
	d.section, d.tables, d.left = p.Name, f.tables, p.Records
	return nil
}

func (d *restorer) family(record []byte) error {
	if d.left == 0 || !d.tables.ReadRecord(record) {
		return d.corrupt("it is no record of family %s, or out of place", d.section)
	}
	d.left--
	d.s.records++
	return d.same(func(e *encoder) { e.familyRecord(record) })
}

func (d *restorer) corrupt(format string, args ...any) error {
	e := incumbent.Errorf(incumbent.Corrupt, format, args...)
	return incumbent.Errorf(incumbent.Corrupt, "snapshot record %d: %s", d.n, e.Message)
}

// next reads a record, false at the end. A length is believed only as far as bytes
// follow.
func (d *restorer) next() (more bool, err error) {
	n, err := d.length()
	if d.n > 0 && errors.Is(err, io.EOF) {
		return false, nil
	}
	d.n++
	if err != nil {
		return false, d.unreadable(err)
	}
	if n > maxRecordBytes {
		return false, d.corrupt("its length is over %d", maxRecordBytes)
	}
	if err := d.take(int(n)); err != nil {
		return false, d.unreadable(err)
	}
	return true, nil
}

// take reads so many bytes: a large record into a buffer that grows as they come, a
// small one where it lies.
func (d *restorer) take(n int) (err error) {
	if n <= d.in.Size() {
		if d.rec, err = d.in.Peek(n); err == nil {
			_, err = d.in.Discard(n) // which leaves the bytes where they are
		}
		return err
	}
	d.own = d.own[:0]
	for len(d.own) < n {
		part := min(n-len(d.own), d.in.Size())
		d.own = slices.Grow(d.own, part)
		got, err := io.ReadFull(d.in, d.own[len(d.own):len(d.own)+part])
		if d.own = d.own[:len(d.own)+got]; err != nil {
			return err
		}
	}
	d.rec = d.own
	return nil
}

// parse reads the record by its schema.
func (d *restorer) parse() (*corepb.Record, error) {
	rec := new(corepb.Record)
	if err := proto.Unmarshal(d.rec, rec); err != nil {
		return nil, d.corrupt("%v", err)
	}
	return rec, nil
}

// length reads a varint, of as many bytes as a record's length has; io.EOF if
// nothing is there.
func (d *restorer) length() (n uint64, err error) {
	for shift := 0; n <= maxRecordBytes; shift += 7 {
		b, err := d.in.ReadByte()
		switch {
		case err != nil && shift > 0 && errors.Is(err, io.EOF):
			return 0, io.ErrUnexpectedEOF
		case err != nil:
			return 0, err
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n, nil
		}
		if shift >= 28 {
			return maxRecordBytes + 1, nil
		}
	}
	return n, nil
}

// unreadable tells bytes that end too soon from a reader that failed.
func (d *restorer) unreadable(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.corrupt("ends too soon")
	}
	return incumbent.Errorf(incumbent.Internal, "reading snapshot record %d: %w", d.n, err)
}

// same verifies that a record as read would be written just so: no field that
// this code does not know, none twice, none in another form. So damage shows,
// and members whose states are equal have equal hashes.
func (d *restorer) same(write func(*encoder)) error {
	d.e.B = d.e.B[:0]
	write(&d.e)
	if !bytes.Equal(d.e.B, d.rec) {
		return d.corrupt("it is not in the one form that is written")
	}
	return nil
}

func (d *restorer) session(p *corepb.Session) error {
	s, err := d.toSession(p)
	if err != nil {
		return err
	}
	if d.lastKept != 0 || d.membership() || d.lastSession != nil && compareID(&d.lastSession.ID, &s.ID) >= 0 {
		return d.corrupt("session %v is out of order", s.ID)
	}
	if err := d.same(func(e *encoder) { e.sessionRecord(recordSession, s) }); err != nil {
		return err
	}
	d.lastSession = s
	d.s.putSession(s)
	return nil
}

func (d *restorer) kept(p *corepb.KeptResult) error {
	r, err := d.result(p)
	if err != nil {
		return err
	}
	if r.Index <= d.lastKept || d.membership() {
		return d.corrupt("result with index %d is out of order", r.Index)
	}
	if n := len(p.Id); n == 0 || n > MaxKeyBytes {
		return d.corrupt("key of %d bytes", n)
	}
	if d.s.keptByID[string(p.Id)] != 0 {
		return d.corrupt("key %x comes twice", p.Id)
	}
	var e encoder
	e.keptResult(string(p.Id), &r, wire.Number(p.Family), p.Record)
	k := kept{r.Index, string(e.B)}
	if err := d.same(func(e *encoder) { e.keptRecord(k) }); err != nil {
		return err
	}
	d.lastKept = k.at
	d.s.keptByID[k.id()] = k.at
	d.s.kept.Set(k)
	return nil
}

// result is what a kept one says.
func (d *restorer) result(p *corepb.KeptResult) (r Result, err error) {
	r.Index = incumbent.Index(p.Index)
	if p.Kind > 255 {
		return r, d.corrupt("error of kind %d", p.Kind)
	}
	if p.Kind != 0 {
		r.Err = keptError(incumbent.Kind(p.Kind))
	}
	if p.Txn != nil {
		r.Txn = &TxnResult{Unmet: int(p.Txn.Unmet), Failed: int(p.Txn.Failed)}
	}
	if f, known := d.s.kind(wire.Number(p.Family)).(Remembering); known {
		if r.Record, known = f.Kept(p.Record); !known {
			return r, d.corrupt("it is nothing that family %s keeps", f.Name())
		}
	} else if p.Family != 0 {
		return r, incumbent.Errorf(incumbent.Invalid, "snapshot has a result of family %d, which this member does not know", p.Family)
	}
	if p.Session != nil {
		r.Session, err = d.toSession(p.Session)
	}
	return r, err
}

// membership reports whether the last records, those of members, have begun.
func (d *restorer) membership() bool { return len(d.s.members) > 0 || d.s.goneMembers.Len() > 0 }

func (d *restorer) member(p *corepb.Member) error {
	m := &Member{
		ID: p.Id, Name: p.Name, PeerAddress: p.PeerAddress, ClientURL: p.ClientUrl,
		Schema: p.Schema, Learner: p.Learner, Version: p.Version, Since: incumbent.Index(p.Since),
	}
	if i, known := d.s.memberPlace(m.ID); known || i < len(d.s.members) || d.s.goneMembers.Len() > 0 {
		return d.corrupt("member %d is out of order", m.ID)
	}
	d.s.members = append(d.s.members, m)
	return d.same(func(e *encoder) { e.memberRecord(m) })
}

func (d *restorer) gone(p *corepb.GoneMembers) error {
	if d.s.goneMembers.Len() > 0 || len(p.Ids) == 0 {
		return d.corrupt("unexpected list of removed members")
	}
	for _, id := range p.Ids {
		d.s.goneMembers.Set(id)
	}
	return d.same(func(e *encoder) { e.goneRecord(&d.s.shared) })
}

func (d *restorer) toSession(p *corepb.Session) (*Session, error) {
	s := &Session{Renewal: p.Renewal, Opened: incumbent.Index(p.Opened)}
	var err error
	if s.ID, err = d.toID(p.Id); err != nil {
		return nil, err
	}
	if s.TTL, err = d.toDuration(p.TtlMs, incumbent.MaxTTL.Milliseconds()); err != nil {
		return nil, err
	}
	s.Origin, err = d.toOrigin(p.Origin)
	return s, err
}

// toOrigin returns the one before if they are equal.
func (d *restorer) toOrigin(p *corepb.Origin) (*Origin, error) {
	if p == nil {
		return noOrigin, nil
	}
	if p.AtUnixMs < 0 || p.AtUnixMs > maxAtMillis {
		return noOrigin, d.corrupt("time %d", p.AtUnixMs)
	}
	if o := d.origin; atMillis(o.At) != p.AtUnixMs || o.Door != p.Door || o.Address != p.Address || o.Principal != p.Principal {
		d.origin = &Origin{At: atTime(p.AtUnixMs), Door: p.Door, Address: p.Address, Principal: p.Principal}
	}
	return d.origin, nil
}

func (d *restorer) toID(b []byte) (incumbent.SessionID, error) {
	var id incumbent.SessionID
	if len(b) != 0 && len(b) != len(id) {
		return id, d.corrupt("session id of %d bytes", len(b))
	}
	copy(id[:], b)
	return id, nil
}

func (d *restorer) toDuration(ms, limit int64) (time.Duration, error) {
	if ms < 0 || ms > limit {
		return 0, d.corrupt("duration of %d ms", ms)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
