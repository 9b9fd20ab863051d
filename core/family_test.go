package core

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/btree"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// counters is a family as small as one can be: a number for each session, that
// its commands raise and its end drops.
type counters struct{}

func (counters) Number() wire.Number { return 63 }
func (counters) Schema() uint32      { return familySchema }
func (counters) Name() string        { return "counters" }

func (counters) New() Tables {
	return &countersTables{tree: btree.NewBTreeG(func(a, b counter) bool { return compareID(&a.session, &b.session) < 0 })}
}

type counter struct {
	session incumbent.SessionID
	n       uint64
}

type countersTables struct {
	tree  *btree.BTreeG[counter]
	asked string // who did last
}

// raise is the only command of the family.
type raise struct{ session incumbent.SessionID }

func (c raise) Encode(meta Meta) []byte {
	var w wire.Writer
	w.Session(1, c.session)
	return EncodeFamily(meta, counters{}, w.B)
}

func (t *countersTables) Apply(x *Exec, b []byte) Result {
	t.asked = x.Principal()
	r := wire.Read(b)
	f, ok := r.Next()
	var id incumbent.SessionID
	switch {
	case !ok || !f.Session(&id):
		return Result{Err: fail(incumbent.Invalid, "malformed")}
	case x.Session(id) == nil:
		return Result{Err: fail(incumbent.Expired, "not open")}
	}
	o, _ := t.tree.Get(counter{session: id})
	n := counter{id, o.n + 1}
	t.tree.Set(n)
	x.Tell(counters{}, FamilyChange{Topic: Topic{Name: id.String()}, Before: o.n, After: n.n, Size: 8})
	return Result{Record: n.n}
}

func (t *countersTables) EndSession(x *Exec, s *Ending) {
	if o, ok := t.tree.Delete(counter{session: s.ID}); ok {
		x.Tell(counters{}, FamilyChange{Topic: Topic{Name: s.ID.String()}, Before: o.n, Size: 8})
	}
}

func (t *countersTables) View() FamilyView { return &countersTables{tree: t.tree.Copy()} }
func (t *countersTables) Records() int     { return t.tree.Len() }

func (t *countersTables) Write(record func([]byte) bool) {
	t.tree.Scan(func(c counter) bool {
		var w wire.Writer
		w.Session(1, c.session)
		w.Uint(2, c.n)
		return record(w.B)
	})
}

func (t *countersTables) ReadRecord(b []byte) bool {
	var c counter
	r := wire.Read(b)
	for {
		f, more := r.Next()
		switch {
		case !more:
			last, some := t.tree.Max()
			t.tree.Set(c)
			return !r.Bad() && c.n > 0 && (!some || compareID(&last.session, &c.session) < 0)
		case f.Num == 1 && f.Session(&c.session), f.Num == 2 && f.Uint(&c.n):
		default:
			return false
		}
	}
}

func (t *countersTables) Check(open func(incumbent.SessionID) bool, _ incumbent.Index) (err error) {
	t.tree.Scan(func(c counter) bool {
		if !open(c.session) {
			err = fmt.Errorf("session %v is not open", c.session)
		}
		return err == nil
	})
	return err
}

func applyAll(t *testing.T, s *State, cmds ...Command) ([]Result, []Change) {
	t.Helper()
	encoded := make([][]byte, len(cmds))
	for i, c := range cmds {
		encoded[i] = c.Encode(Meta{})
	}
	results := make([]Result, len(cmds))
	return results, s.Apply(encoded, results)
}

// A family is known to core by its interface alone: its commands, its changes, its
// section of a snapshot, its invariants, and its part in the end of a session.
func TestAFamilyIsOneFolderAndOneLine(t *testing.T) {
	s := New(counters{})
	one, two := sessionID("s1"), sessionID("s2")
	results, changes := applyAll(t, s,
		OpenSessionCommand{ID: one}, OpenSessionCommand{ID: two}, raise{one}, raise{two}, raise{one}, raise{sessionID("s3")},
	)
	if r := results[4]; r.Err != nil || r.Record != uint64(2) || r.Index != 5 {
		t.Errorf("the second raise: %+v", r)
	}
	if err := results[5].Err; err == nil || err.Kind != incumbent.Expired {
		t.Errorf("for a session that is not open: %v", err)
	}
	if c := changes[4]; c.What != FamilyChanged || c.Family == nil || c.Family.Family != 63 || c.Family.Before != uint64(1) || c.Family.After != uint64(2) || c.Index != 5 {
		t.Errorf("the change: %+v %+v", c, c.Family)
	}

	view := s.View()
	var b bytes.Buffer
	if err := view.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	again, err := Restore(bytes.NewReader(b.Bytes()), counters{})
	if err != nil {
		t.Fatal(err)
	}
	if again.View().Hash() != view.Hash() {
		t.Error("the restored state is another")
	}
	if _, err := Restore(bytes.NewReader(b.Bytes())); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("restored without the family: %v", err)
	}

	// A view stays as it was.
	_, changes = applyAll(t, s, CloseSessionCommand{ID: one})
	last := changes[len(changes)-1]
	if last.Family == nil || last.Family.Before != uint64(2) || last.Family.After != nil {
		t.Errorf("the end of the session tells last of %+v", last)
	}
	if n := view.Family(63).Records(); n != 2 {
		t.Errorf("the old view has %d records", n)
	}
	if n := s.View().Family(63).Records(); n != 1 {
		t.Errorf("the new view has %d records", n)
	}
	if s.View().Family(62) != nil {
		t.Error("there is a family that nobody registered")
	}
}

// A family without records leaves no trace in the bytes that are compared, so that
// members that know it and members that do not agree.
func TestG27_AnEmptyFamilyIsNotHashed(t *testing.T) {
	with, without := New(counters{}), New()
	for _, s := range []*State{with, without} {
		applyAll(t, s, OpenSessionCommand{ID: sessionID("s1")})
	}
	if with.View().Hash() != without.View().Hash() {
		t.Error("the hashes differ")
	}
	results, _ := applyAll(t, without, raise{sessionID("s1")})
	if err := results[0].Err; err == nil || err.Kind != incumbent.Invalid {
		t.Errorf("a command of a family that is not kept: %v", err)
	}
}

// What does not hold together in a section is refused.
func TestG30_BrokenSectionsAreRefused(t *testing.T) {
	s := New(counters{})
	applyAll(t, s, OpenSessionCommand{ID: sessionID("s1")}, OpenSessionCommand{ID: sessionID("s2")}, raise{sessionID("s1")}, raise{sessionID("s2")})
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for n := range len(whole) {
		if _, err := Restore(bytes.NewReader(whole[:n]), counters{}); err == nil {
			t.Errorf("cut off after %d of %d bytes it is restored", n, len(whole))
		}
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1
		got, err := Restore(bytes.NewReader(flipped), counters{})
		if err == nil && got.View().Hash() == s.View().Hash() {
			t.Errorf("with byte %d flipped it is restored to the same", i)
		}
	}
}

// A section has one form: what its own records could be taken for besides is
// refused, as is what comes behind it.
func TestG29_ASectionHasOneForm(t *testing.T) {
	s := New(counters{})
	applyAll(t, s, OpenSessionCommand{ID: sessionID("s1")}, raise{sessionID("s1")})
	records := func(change func(list [][]byte) [][]byte) []byte {
		var b bytes.Buffer
		if err := s.View().WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		var list [][]byte
		for rest := b.Bytes(); len(rest) > 0; {
			record, n := protowire.ConsumeBytes(rest)
			list, rest = append(list, record), rest[n:]
		}
		var out []byte
		for _, record := range change(list) {
			out = protowire.AppendBytes(out, record)
		}
		return out
	}
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 60, protowire.VarintType), 1)
	const header, session, section, family = 0, 1, 2, 3
	for _, c := range []struct {
		what   string
		change func(list [][]byte) [][]byte
	}{
		{"a field that nobody knows beside a record", func(l [][]byte) [][]byte { l[family] = slices.Concat(l[family], unknown); return l }},
		{"a field that nobody knows beside a section", func(l [][]byte) [][]byte { l[section] = slices.Concat(l[section], unknown); return l }},
		{"a session behind the families", func(l [][]byte) [][]byte { return [][]byte{l[header], l[section], l[family], l[session]} }},
	} {
		if _, err := Restore(bytes.NewReader(records(c.change)), counters{}); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if _, err := Restore(bytes.NewReader(records(func(l [][]byte) [][]byte { return l })), counters{}); err != nil {
		t.Fatal(err)
	}
}

// later is a family that a version brought which this program is not.
type later struct{ counters }

func (later) Schema() uint32 { return SchemaVersion + 1 }

// raiseAs is a raise that names a schema, with a key.
type raiseAs struct {
	raise
	schema uint64
}

func (c raiseAs) bytes() []byte {
	var w wire.Writer
	w.Session(1, c.session)
	return encode(c.schema, Meta{KeyID: []byte("k")}, counters{}.Number(), func(e *encoder) { e.B = append(e.B, w.B...) })
}

// A family that a version brought is refused alike by members that have it and by
// members that do not: under the schema that brought it while some member does not
// know that, and under an earlier one always. What is kept for the key is the same.
func TestG49_AFamilyOfALaterSchemaIsRefusedAlike(t *testing.T) {
	session := sessionID("s1")
	apply := func(s *State, cmds ...[]byte) (kinds []incumbent.Kind) {
		results := make([]Result, len(cmds))
		s.Apply(cmds, results)
		for _, r := range results {
			kinds = append(kinds, incumbent.KindOf(asError(r.Err)))
		}
		return kinds
	}
	cmds := [][]byte{
		OpenSessionCommand{ID: session}.Encode(Meta{}),
		PutMemberCommand{Member{ID: 1, Name: "a", Schema: SchemaVersion}}.Encode(Meta{}),
		raiseAs{raise{session}, SchemaVersion + 1}.bytes(),
		raiseAs{raise{session}, SchemaVersion}.bytes(),
		raiseAs{raise{session}, familySchema - 1}.bytes(),
	}
	want := []incumbent.Kind{incumbent.OK, incumbent.OK, incumbent.Invalid, incumbent.Invalid, incumbent.Invalid}
	with, without := New(later{}), New()
	if got := apply(with, cmds...); !slices.Equal(got, want) {
		t.Errorf("with the family: %v, want %v", got, want)
	}
	if got := apply(without, cmds...); !slices.Equal(got, want) {
		t.Errorf("without it: %v, want %v", got, want)
	}
	if n := with.View().Family(63).Records(); n != 0 {
		t.Errorf("%d records", n)
	}
	if with.View().Hash() != without.View().Hash() {
		t.Error("the states differ")
	}
}

// A rule may ask who wants the command, and is told all of it: a name that were cut
// would be another's.
func TestAFamilyKnowsWhoAsked(t *testing.T) {
	s := New(counters{})
	longest := "controller:" + strings.Repeat("x", incumbent.MaxHolderBytes)
	applyAll(t, s, OpenSessionCommand{ID: sessionID("s1")})
	for _, who := range []string{longest, "agent:db-1", ""} {
		s.Apply([][]byte{raise{sessionID("s1")}.Encode(Meta{Origin: Origin{Door: "d", Principal: who}})}, make([]Result, 1))
		if got := s.families[0].tables.(*countersTables).asked; got != who {
			t.Errorf("told %q, want %q", got, who)
		}
	}
}
