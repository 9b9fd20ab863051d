package parts

import (
	"bytes"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// small is the family with limits that a test reaches.
type small struct{ Family }

var few = limits{part: 16, total: 160, waiting: 400, commands: 3}

func (small) New() core.Tables { return &tables{limits: few} }

// blobs is a family that keeps the newest text that it was given, and who gave it.
type blobs struct{}

type blobTables struct{ blob }

type blob struct {
	text, by string
	at       incumbent.Index
}

// put is its only command.
type put struct{ text string }

func (blobs) Number() wire.Number { return 60 }
func (blobs) Schema() uint32      { return schema }
func (blobs) Name() string        { return "blobs" }
func (blobs) New() core.Tables    { return new(blobTables) }

func (c put) Encode(meta core.Meta) []byte {
	var w wire.Writer
	w.Text(1, c.text)
	return core.EncodeFamily(meta, blobs{}, w.B)
}

func (t *blobTables) Apply(x *core.Exec, b []byte) core.Result {
	r := wire.Read(b)
	f, _ := r.Next()
	t.blob = blob{string(f.B), x.Principal(), x.Index()}
	x.Tell(blobs{}, core.FamilyChange{After: t.blob})
	return core.Result{Record: len(f.B)}
}

func (t *blobTables) EndSession(*core.Exec, *core.Ending)                         {}
func (t *blobTables) View() core.FamilyView                                       { return &blobTables{t.blob} }
func (t *blobTables) Check(func(incumbent.SessionID) bool, incumbent.Index) error { return nil }

func (t *blobTables) Records() int {
	if t.at == 0 {
		return 0
	}
	return 1
}

func (t *blobTables) Write(record func([]byte) bool) {
	if t.at != 0 {
		var w wire.Writer
		w.Text(1, t.text)
		w.Text(2, t.by)
		w.Uint(3, uint64(t.at))
		record(w.B)
	}
}

func (t *blobTables) ReadRecord(b []byte) bool {
	r := wire.Read(b)
	for {
		f, more := r.Next()
		switch {
		case !more:
			return !r.Bad()
		case f.Num == 1:
			t.text = string(f.B)
		case f.Num == 2:
			t.by = string(f.B)
		case f.Num == 3:
			t.at = incumbent.Index(f.N)
		}
	}
}

// world is a state of both families.
type world struct {
	t failer
	s *core.State
}

// failer is a test, of testing's or of rapid's.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newWorld(t failer) *world { return &world{t, core.New(small{}, blobs{})} }

func (w *world) apply(cmd []byte) (core.Result, []core.Change) {
	w.t.Helper()
	results := make([]core.Result, 1)
	changes := w.s.Apply([][]byte{cmd}, results)
	if err := w.s.Check(); err != nil {
		w.t.Fatal(err)
	}
	return results[0], changes
}

func (w *world) do(cmd []byte, want incumbent.Kind) core.Result {
	w.t.Helper()
	r, _ := w.apply(cmd)
	kind := incumbent.OK
	if r.Err != nil {
		kind = r.Err.Kind
	}
	if kind != want {
		w.t.Fatalf("%v, want %v", r.Err, want)
	}
	return r
}

func (w *world) blob() blob { return w.s.View().Family(60).(*blobTables).blob }

func (w *world) waiting() []*Waiting { return Of(w.s.View()).Waiting() }

// piece is the part of a whole that begins at an offset.
func piece(member uint64, began incumbent.Index, whole []byte, offset int) []byte {
	p := part{member: member, began: began, total: len(whole), offset: offset, data: whole[offset:min(offset+few.part, len(whole))]}
	return p.encode(core.Meta{Origin: core.Origin{Principal: "member"}}, core.RequiredSchema(whole))
}

// send applies the parts of a whole up to an offset, and returns the index of the
// first and the answer to the last.
func (w *world) send(member uint64, whole []byte, end int) (began incumbent.Index, last core.Result) {
	w.t.Helper()
	for offset := 0; offset < end; offset += few.part {
		last = w.do(piece(member, began, whole, offset), incumbent.OK)
		if offset == 0 {
			began = last.Index
		}
	}
	return began, last
}

var (
	text  = "one that is larger than an entry of the log may be, here"
	meta  = core.Meta{Origin: core.Origin{Principal: "agent:a"}, KeyID: []byte("k")}
	whole = put{text}.Encode(meta)
)

// Nothing of a command has happened before its last part; then all of it has,
// under the index of that part, with what the whole says of origin and key.
func TestACommandInPartsIsAppliedAsOne(t *testing.T) {
	w := newWorld(t)
	tail := (len(whole) - 1) / few.part * few.part
	began, _ := w.send(1, whole, tail)
	w.do(core.OpenSessionCommand{ID: incumbent.SessionID{1}}.Encode(core.Meta{}), incumbent.OK)
	if b := w.blob(); b.at != 0 {
		t.Fatalf("half of it is applied: %+v", b)
	}
	if l := w.waiting(); len(l) != 1 || l[0].Bytes() != tail || l[0].Total != len(whole) {
		t.Fatalf("%+v waits", l)
	}
	r := w.do(piece(1, began, whole, tail), incumbent.OK)
	if r.Record != len(text) || r.Index != w.s.Index() {
		t.Errorf("answered %+v at %d", r, w.s.Index())
	}
	if b := w.blob(); b != (blob{text, "agent:a", r.Index}) {
		t.Errorf("%+v, want that of index %d", b, r.Index)
	}
	if l := w.waiting(); len(l) != 0 {
		t.Errorf("%+v still waits", l)
	}
	if _, again := w.send(2, whole, len(whole)); !again.Replayed || again.Index != r.Index {
		t.Errorf("with the same key: %+v", again)
	}
}

// A part is taken only behind those before it.
func TestAPartWaitsOnlyBehindItsPredecessors(t *testing.T) {
	w := newWorld(t)
	began, _ := w.send(1, whole, 2*few.part)
	longer := append(bytes.Clone(whole), 0)
	for name, cmd := range map[string][]byte{
		"of another member":       piece(2, began, whole, 2*few.part),
		"of another beginning":    piece(1, began+1, whole, 2*few.part),
		"of another whole":        piece(1, began, longer, 2*few.part),
		"again":                   piece(1, began, whole, few.part),
		"with one left out":       piece(1, began, whole, 3*few.part),
		"the last one, too early": piece(1, began, whole, (len(whole)-1)/few.part*few.part),
	} {
		if r, changes := w.apply(cmd); r.Err == nil || r.Err.Kind != incumbent.Unavailable || len(changes) != 0 {
			t.Errorf("%s: %+v, %v", name, r, changes)
		}
	}
	short := part{member: 1, began: began, total: len(whole), offset: 2 * few.part, data: whole[:1]}
	w.do(short.encode(core.Meta{}, schema), incumbent.Invalid)
	if l := w.waiting(); len(l) != 1 || l[0].Bytes() != 2*few.part {
		t.Errorf("%+v waits", l)
	}
}

// What waits is discarded by a command that names its newest part, by nothing that
// was said before that came, and by the next command of its member.
func TestWhatDoesNotGoOnIsDiscarded(t *testing.T) {
	w := newWorld(t)
	began, first := w.send(1, whole, few.part)
	second := w.do(piece(1, began, whole, few.part), incumbent.OK)
	w.do(Drop{Member: 1, Newest: first.Index}.Encode(core.Meta{}), incumbent.Conflict)
	w.do(Drop{Member: 2, Newest: second.Index}.Encode(core.Meta{}), incumbent.Conflict)
	if l := w.waiting(); len(l) != 1 {
		t.Fatalf("%+v waits", l)
	}
	w.do(Drop{Member: 1, Newest: second.Index}.Encode(core.Meta{}), incumbent.OK)
	w.do(piece(1, began, whole, 2*few.part), incumbent.Unavailable)
	if l := w.waiting(); len(l) != 0 {
		t.Fatalf("%+v waits", l)
	}
	began, _ = w.send(1, whole, few.part)
	next, _ := w.send(1, whole, few.part)
	if l := w.waiting(); len(l) != 1 || l[0].Began != next || l[0].Bytes() != few.part {
		t.Errorf("%+v waits, want what began at %d", l, next)
	}
	w.do(piece(1, began, whole, few.part), incumbent.Unavailable)
}

// Room for the whole is found with the first part.
func TestWhatWaitsIsBounded(t *testing.T) {
	w := newWorld(t)
	big := put{string(make([]byte, few.total-20))}.Encode(core.Meta{})
	over := make([]byte, few.total+1)
	w.do(piece(1, 0, over, 0), incumbent.Invalid)
	w.send(1, big, few.part)
	w.send(2, big, few.part)
	if r, _ := w.apply(piece(3, 0, big, 0)); r.Err == nil || r.Err.Kind != incumbent.Overloaded || r.Err.RetryAfter <= 0 {
		t.Fatalf("bytes: %+v", r)
	}
	w.send(3, whole[:20], few.part)
	w.do(piece(4, 0, whole[:20], 0), incumbent.Overloaded)
	w.send(1, whole, few.part) // in the place of its own
	w.do(piece(2, 0, big, 0), incumbent.OK)
	if l := w.waiting(); len(l) != 3 {
		t.Errorf("%d wait", len(l))
	}
}

// A whole is a command by itself: not one of this family, not with a second key,
// and of no schema that its parts did not name.
func TestWhatTravelsInPartsIsACommand(t *testing.T) {
	for name, c := range map[string]struct {
		whole []byte
		meta  core.Meta
		needs uint32
	}{
		"a part":          {piece(1, 0, whole[:20], 0), core.Meta{}, schema},
		"no command":      {[]byte("this is none, in some bytes more than one part"), core.Meta{}, schema},
		"a key of a part": {whole, core.Meta{KeyID: []byte("p")}, schema},
		"a later schema":  {append([]byte{8, core.SchemaVersion + 1}, whole[2:]...), core.Meta{}, schema},
	} {
		w := newWorld(t)
		p := part{member: 1, total: len(c.whole)}
		for p.offset < p.total {
			m := core.Meta{}
			p.data = c.whole[p.offset:min(p.offset+few.part, p.total)]
			want, last := incumbent.OK, p.offset+len(p.data) == p.total
			if last {
				want, m = incumbent.Invalid, c.meta
			}
			r, _ := w.apply(p.encode(m, c.needs))
			if kind := incumbent.KindOf(asError(r.Err)); kind != want {
				t.Fatalf("%s, at %d: %v", name, p.offset, r.Err)
			}
			p.began = max(p.began, 1)
			p.offset += len(p.data)
		}
		if l := w.waiting(); len(l) != 0 || w.blob().at != 0 {
			t.Errorf("%s: %+v waits", name, l)
		}
	}
	// What the parts need the whole needs.
	newer := append([]byte{8, core.SchemaVersion + 1}, whole[2:]...)
	if got := core.RequiredSchema(Part{Member: 1, Whole: newer}.Encode(core.Meta{})); got != core.SchemaVersion+1 {
		t.Errorf("a part of a command of schema %d names %d", core.SchemaVersion+1, got)
	}
}

func asError(e *incumbent.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// A snapshot between any two parts has what waits: with the rest it gives the same.
func TestG29_ASnapshotHasThePartsThatWait(t *testing.T) {
	want := newWorld(t)
	want.send(9, whole, 2*few.part)
	want.send(1, whole, len(whole))
	for cutoff := few.part; cutoff < len(whole); cutoff += few.part {
		w := newWorld(t)
		w.send(9, whole, 2*few.part)
		began, _ := w.send(1, whole, cutoff)
		var b bytes.Buffer
		if err := w.s.View().WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		again, err := core.Restore(bytes.NewReader(b.Bytes()), small{}, blobs{})
		if err != nil {
			t.Fatal(err)
		}
		if again.View().Hash() != w.s.View().Hash() {
			t.Errorf("after %d bytes: the restored state is another", cutoff)
		}
		w.s = again
		for offset := cutoff; offset < len(whole); offset += few.part {
			w.do(piece(1, began, whole, offset), incumbent.OK)
		}
		if w.s.View().Hash() != want.s.View().Hash() {
			t.Errorf("after %d bytes: what became of the rest is another", cutoff)
		}
		if _, err := core.Restore(bytes.NewReader(b.Bytes()), blobs{}); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("restored by a member that knows no parts: %v", err)
		}
	}
}

// Every byte of the records counts, and their order.
func TestG30_BrokenPartsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.send(1, whole, 3*few.part)
	w.send(2, whole, few.part)
	var b bytes.Buffer
	if err := w.s.View().WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	for i := range b.Bytes() {
		flipped := bytes.Clone(b.Bytes())
		flipped[i] ^= 1
		got, err := core.Restore(bytes.NewReader(flipped), small{}, blobs{})
		if err == nil && got.View().Hash() == w.s.View().Hash() {
			t.Errorf("with byte %d flipped it is restored to the same", i)
		}
	}
}

// The bytes of a part are the log's, which may be reused.
func TestPartsAreCopied(t *testing.T) {
	w := newWorld(t)
	cmd := piece(1, 0, whole, 0)
	w.do(cmd, incumbent.OK)
	clear(cmd)
	if p := w.waiting()[0].parts[0]; !bytes.Equal(p, whole[:few.part]) {
		t.Errorf("%q waits", p)
	}
}
