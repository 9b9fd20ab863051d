package kv

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// commands has each verb and each field.
func commands() []Command {
	s := session("s")
	return []Command{
		{Verb: Put, Key: key("a"), Value: []byte("v"), Flags: 1 << 60, If: IfIndex, Index: 300},
		{Verb: Put, Key: key("a"), Value: []byte("v"), If: IfValue, Was: []byte("w")},
		{Verb: Acquire, Key: key("a/b"), Value: bytes.Repeat([]byte("v"), 200), Session: s, OnEnd: Delete, Delay: MaxDelay},
		{Verb: Release, Key: key("a"), Session: s},
		{Verb: Remove, Key: key("a"), If: IfIndex},
		{Verb: RemoveTree, Key: key("")},
		{Verb: EndDelay, Key: key("a"), Index: 7},
		{Verb: Put, Key: key("a"), Value: []byte("v")},
		{Verb: Put, Key: key("a"), Lazy: true, If: IfThere},
		{Verb: Get, Key: key("a"), Session: s, If: IfLocked},
		{Verb: Remove, Key: key("a"), If: IfStill, Index: 3},
		{Verb: Get, Key: key("a"), If: IfLocked, KeysOnly: true},
	}
}

// body is a command as core hands it to the family.
func body(t testing.TB, c Command) []byte {
	t.Helper()
	r := wire.Read(c.Encode(core.Meta{}))
	for {
		f, more := r.Next()
		if !more {
			t.Fatal("no command")
		}
		if f.Num == Number {
			return f.B
		}
	}
}

func (c Command) same(o Command) bool {
	values := bytes.Equal(c.Value, o.Value) && bytes.Equal(c.Was, o.Was)
	return values && c.Verb == o.Verb && c.Key == o.Key && c.Flags == o.Flags && c.If == o.If && c.Index == o.Index &&
		c.Session == o.Session && c.OnEnd == o.OnEnd && c.Delay == o.Delay && c.Lazy == o.Lazy && c.KeysOnly == o.KeysOnly
}

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	for _, c := range commands() {
		var got Command
		if !got.decode(body(t, c)) || !got.same(c) {
			t.Errorf("%+v is read as %+v", c, got)
		}
	}
}

// What cannot be is answered, and changes nothing.
func TestG27_WhatCannotBeIsRefused(t *testing.T) {
	s := core.New(Family{})
	do(t, s, core.OpenSessionCommand{ID: session("s"), TTL: time.Minute})
	large := bytes.Repeat([]byte("x"), MaxValueBytes+1)
	for _, c := range []struct {
		cmd  Command
		kind incumbent.Kind
	}{
		{Command{Verb: 0, Key: key("a")}, incumbent.Invalid},
		{Command{Verb: numVerbs, Key: key("a")}, incumbent.Invalid},
		{Command{Verb: Put, Key: key("a"), If: numIfs}, incumbent.Invalid},
		{Command{Verb: Acquire, Key: key("a"), Session: session("s"), OnEnd: Delete + 1}, incumbent.Invalid},
		{Command{Verb: Put, Key: Key{"", "a"}}, incumbent.Invalid},
		{Command{Verb: Put, Key: Key{"N o", "a"}}, incumbent.Invalid},
		{Command{Verb: Put, Key: key(strings.Repeat("k", MaxKeyBytes+1))}, incumbent.Invalid},
		{Command{Verb: RemoveTree, Key: key(strings.Repeat("k", MaxKeyBytes+1))}, incumbent.Invalid},
		{Command{Verb: Put, Key: key("a\xff")}, incumbent.Invalid},
		{Command{Verb: Put, Key: key("a"), Value: large}, incumbent.TooLarge},
		{Command{Verb: Put, Key: key("a"), If: IfValue, Was: large}, incumbent.TooLarge},
		{Command{Verb: Acquire, Key: key("a"), Session: session("s"), Delay: MaxDelay + 1}, incumbent.Invalid},
		{Command{Verb: Acquire, Key: key("a"), Session: session("s"), Delay: -1}, incumbent.Invalid},
		{Command{Verb: Put, Key: key("a"), Delay: 1}, incumbent.Invalid},
		{Command{Verb: Release, Key: key("a"), Session: session("s"), If: IfIndex}, incumbent.Invalid},
	} {
		results, changes := apply(t, s, c.cmd)
		if err := results[0].Err; err == nil || err.Kind != c.kind || len(changes) > 0 {
			t.Errorf("%.200v: %v, want %v", c.cmd, err, c.kind)
		}
	}
}

// FuzzDecode: no bytes make decode panic, and what it reads is written so that it
// is read alike.
func FuzzDecode(f *testing.F) {
	for _, c := range commands() {
		f.Add(body(f, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again Command
		if !c.decode(b) {
			return
		}
		if !again.decode(body(t, c)) || !again.same(c) {
			t.Fatalf("%x is read as %+v and then as %+v", b, c, again)
		}
	})
}

// FuzzApply lets any bytes follow, cut into commands by a length each, on a state
// that has one of everything.
func FuzzApply(f *testing.F) {
	for _, c := range commands() {
		b := body(f, c)
		f.Add(append([]byte{byte(len(b))}, b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := fullState(t)
		var cmds []core.Command
		for len(b) > 0 && len(cmds) < 64 {
			n := min(int(b[0]), len(b)-1)
			cmds = append(cmds, raw(b[1:1+n]))
			b = b[1+n:]
		}
		apply(t, s, cmds...)
		reload(t, s, Family{})
	})
}

// raw is a command of the family, whatever it says.
type raw []byte

// Encode implements core.Command.
func (r raw) Encode(meta core.Meta) []byte { return core.EncodeFamily(meta, Family{}, r) }

// fullState has one of everything.
func fullState(t testing.TB) *core.State {
	f := &smallFamily{limits: limits{10, 10, 10, 2}}
	s := core.New(leases.Family{}, f)
	// A member, by which a command of a later schema is refused.
	do(t, s, core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: core.SchemaVersion}})
	for _, id := range []string{"s", "x"} {
		do(t, s, core.OpenSessionCommand{ID: session(id), TTL: time.Minute})
	}
	for _, c := range []Command{
		{Verb: Put, Key: key("a"), Value: []byte("v"), Flags: 5},
		{Verb: Acquire, Key: key("b"), Value: []byte("v"), Session: session("s"), OnEnd: Delete, Delay: time.Second},
		{Verb: Acquire, Key: key("c"), Session: session("x"), Delay: time.Second},
		{Verb: Put, Key: key("d/1")},
		{Verb: Put, Key: key("d/2")},
		{Verb: Put, Key: key("d/3")},
		{Verb: RemoveTree, Key: key("d/")},
	} {
		do(t, s, c)
	}
	do(t, s, core.CloseSessionCommand{ID: session("x")})
	return s
}

// recordsOf are those of a state's section.
func recordsOf(s *core.State) (list [][]byte) {
	s.View().Family(Number).Write(func(b []byte) bool {
		list = append(list, bytes.Clone(b))
		return true
	})
	return list
}

// A record has one form, and its place: any other is refused.
func TestG29_RecordsHaveOneForm(t *testing.T) {
	records := recordsOf(fullState(t))
	kinds := map[byte]bool{}
	read := func(list ...[]byte) bool {
		tables := newTables()
		for _, b := range list {
			if !tables.ReadRecord(b) {
				return false
			}
		}
		return true
	}
	for i, b := range records {
		kinds[b[1]] = true
		if !read(b) {
			t.Errorf("record %x is refused", b)
		}
		for _, more := range [][]byte{
			{60 << 3 & 0x7f, 1}, // a field that nobody knows
			protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 0), // a zero
			protowire.AppendVarint(protowire.AppendTag(nil, 11, protowire.VarintType), 0),
			protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), []byte("value")), // not of this kind, or twice
		} {
			if read(append(bytes.Clone(b), more...)) {
				t.Errorf("record %x is taken with %x behind it", b, more)
			}
		}
		if read(b, b) {
			t.Errorf("record %x is taken twice", b)
		}
		if i > 0 && read(b, records[i-1]) {
			t.Errorf("record %x is taken behind %x", records[i-1], b)
		}
	}
	if len(kinds) != int(floorRecord) {
		t.Errorf("%d kinds of records are tried", len(kinds))
	}
}

// Of more tombstones than there may be none is taken: the state would be another.
func TestG29_TooManyTombstonesAreRefused(t *testing.T) {
	tables := newTables()
	tables.limits.tombstones = 1
	var w recordWriter
	if !tables.ReadRecord(w.write(tombstoneRecord, &Entry{Key: key("a"), Modified: 1})) {
		t.Fatal("the first is refused")
	}
	if tables.ReadRecord(w.write(tombstoneRecord, &Entry{Key: key("b"), Modified: 2})) {
		t.Error("one too many is taken")
	}
}

// What holds for no state is found when a snapshot is read.
func TestG30_BrokenTablesAreFound(t *testing.T) {
	s := session("s")
	good := Entry{Key: key("a"), Created: 1, Modified: 2}
	locked := Entry{Key: key("l"), Created: 1, Modified: 2, LockIndex: 1, Session: s}
	with := func(e Entry, change func(*Entry)) *Entry {
		change(&e)
		return &e
	}
	for _, c := range []struct {
		what string
		kind uint8
		e    *Entry
	}{
		{"an entry that is newer than the state", entryRecord, with(good, func(e *Entry) { e.Modified = 100 })},
		{"one that was modified before it was created", entryRecord, with(good, func(e *Entry) { e.Created = 3 })},
		{"one that was never created", entryRecord, with(good, func(e *Entry) { e.Created = 0 })},
		{"one without a name", entryRecord, with(good, func(e *Entry) { e.Name = "" })},
		{"one with an end of no lock", entryRecord, with(good, func(e *Entry) { e.OnEnd = Delete })},
		{"one with a delay of no lock", entryRecord, with(good, func(e *Entry) { e.Delay = time.Second })},
		{"a lock of a session that is not open", entryRecord, with(locked, func(e *Entry) { e.Session = session("x") })},
		{"a lock that was never taken", entryRecord, with(locked, func(e *Entry) { e.LockIndex = 0 })},
		{"a lock with an end of no kind", entryRecord, with(locked, func(e *Entry) { e.OnEnd = 9 })},
		{"a lock under a delay", entryRecord, with(locked, func(e *Entry) { e.Name = "z" })},
		{"a tombstone of what is there", tombstoneRecord, &Entry{Key: key("k"), Modified: 2}},
		{"a tombstone that is newer than the state", tombstoneRecord, &Entry{Key: key("t"), Modified: 100}},
		{"a tombstone without a name", tombstoneRecord, &Entry{Key: key(""), Modified: 2}},
		{"a delay of no length", delayRecord, &Entry{Key: key("d"), Modified: 2}},
		{"a delay that is newer than the state", delayRecord, &Entry{Key: key("d"), Modified: 100, Delay: time.Second}},
		{"a floor above the state", floorRecord, &Entry{Modified: 100}},
		{"a floor above a tombstone", floorRecord, &Entry{Modified: 9}},
	} {
		list := []struct {
			kind uint8
			e    *Entry
		}{
			{entryRecord, &Entry{Key: key("k"), Created: 1, Modified: 2}},
			{tombstoneRecord, &Entry{Key: key("u"), Modified: 5}},
			{delayRecord, &Entry{Key: key("z"), Modified: 5, Delay: time.Second}},
		}
		check := func() error {
			tables := newTables()
			var w recordWriter
			for kind := entryRecord; kind <= floorRecord; kind++ {
				var of []*Entry
				for _, r := range list {
					if r.kind == kind {
						of = append(of, r.e)
					}
				}
				if len(of) == 2 && of[0].Compare(of[1].Key) > 0 {
					of[0], of[1] = of[1], of[0]
				}
				for _, e := range of {
					if !tables.ReadRecord(w.write(kind, e)) {
						t.Fatalf("%s: not even read", c.what)
					}
				}
			}
			return tables.Check(func(id incumbent.SessionID) bool { return id == s }, 10)
		}
		if err := check(); err != nil {
			t.Fatal(err)
		}
		list = append(list, struct {
			kind uint8
			e    *Entry
		}{c.kind, c.e})
		if check() == nil {
			t.Errorf("%s is not found", c.what)
		}
	}
}

// FuzzReadRecord: no bytes make a reader panic, and records that are taken for a
// section are written just so.
func FuzzReadRecord(f *testing.F) {
	var all []byte
	for _, b := range recordsOf(fullState(f)) {
		all = append(append(all, byte(len(b))), b...)
		f.Add(append([]byte{byte(len(b))}, b...))
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		tables := newTables()
		var want [][]byte
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			record := b[1 : 1+n]
			b = b[1+n:]
			if !tables.ReadRecord(record) {
				return
			}
			want = append(want, record)
		}
		if tables.Check(func(incumbent.SessionID) bool { return true }, 1<<62) != nil {
			return
		}
		v := tables.View()
		if v.Records() != len(want) {
			t.Fatalf("%d records are taken and %d written", len(want), v.Records())
		}
		v.Write(func(record []byte) bool {
			if !bytes.Equal(record, want[0]) {
				t.Fatalf("%x is read and %x written", want[0], record)
			}
			want = want[1:]
			return true
		})
	})
}
