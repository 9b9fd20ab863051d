package lease

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/corepb"
)

// generic returns what the generated reader makes of a command, as our own one
// would store it. ok is false if it takes the bytes for no command.
func generic(b []byte) (c command, ok bool) {
	var p corepb.LeaseCommand
	if proto.Unmarshal(b, &p) != nil {
		return c, false
	}
	m := p.ProtoReflect()
	op := m.WhichOneof(m.Descriptor().Oneofs().ByName("op"))
	if op == nil {
		return c, true
	}
	c.verb = op.Number()
	m.Get(op).Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		c.setGeneric(f.Name(), v)
		return true
	})
	return c, true
}

// setGeneric stores a field by its name in lease.proto.
func (c *command) setGeneric(field protoreflect.Name, v protoreflect.Value) {
	switch field {
	case "name":
		n := v.Message().Interface().(*corepb.Name)
		c.namespace, c.model, c.lease = text(n.Namespace), text(n.Model), text(n.Lease)
	case "holder":
		c.holder = text(v.String())
	case "to_holder":
		c.toHolder = text(v.String())
	case "entity", "by":
		c.text = text(v.String())
	case "session":
		copy(c.session[:], v.Bytes())
	case "absent":
		c.absent = v.Bytes()
	case "next", "to_session":
		copy(c.other[:], v.Bytes())
	case "ttl_ms":
		c.ttl = v.Int()
	case "late_ms":
		c.late = v.Int()
	case "token":
		c.token = v.Uint()
	case "renewal":
		c.renewal = v.Uint()
	case "wait", "waiting":
		c.wait = v.Bool()
	case "critical":
		c.critical = v.Bool()
	case "at_deadline":
		c.atEnd = v.Bool()
	default:
		panic("lease.proto has a field that this test does not know: " + string(field))
	}
}

func text(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// blank makes empty and missing texts the same.
func (c command) blank() command {
	for _, b := range []*[]byte{&c.namespace, &c.model, &c.lease, &c.holder, &c.toHolder, &c.text, &c.absent} {
		if len(*b) == 0 {
			*b = nil
		}
	}
	return c
}

var sameCommand = cmp.AllowUnexported(command{})

// Every field of every command of lease.proto arrives where it belongs, and the
// bytes are those of the generated writer: neither was forgotten when the schema
// grew.
func TestDecodeKnowsEveryField(t *testing.T) {
	fields := (&corepb.LeaseCommand{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	if fields.Len() == 0 {
		t.Fatal("no commands")
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		p := &corepb.LeaseCommand{}
		op := p.ProtoReflect().NewField(f)
		fill(op.Message())
		p.ProtoReflect().Set(f, op)
		b, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := generic(b)
		var got command
		if err := got.decode(b); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
			continue
		}
		if d := cmp.Diff(want.blank(), got.blank(), sameCommand); d != "" {
			t.Errorf("%s: %s", f.Name(), d)
		}
	}
}

// fill gives every field of a message a value of its own.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		n := byte(i + 1)
		switch f.Kind() {
		case protoreflect.MessageKind:
			fill(m.Mutable(f).Message())
		case protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("text"+string('a'+rune(i))))
		case protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes(bytes.Repeat([]byte{n}, 16)))
		case protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(-int64(n)))
		case protoreflect.Uint32Kind:
			m.Set(f, protoreflect.ValueOfUint32(uint32(n)))
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			m.Set(f, protoreflect.ValueOfUint64(uint64(n)<<40))
		default:
			panic("core.proto has a kind of field that this test does not know")
		}
	}
}

// commandsOfAllKinds has each field of each command set.
func commandsOfAllKinds() []core.Command {
	n, x, y := parseName("n2/m2/a"), sessionID("x"), sessionID("y")
	absent := []incumbent.SessionID{x, y}
	return []core.Command{
		ClaimCommand{n, "ann", x, time.Minute, true, true, 300},
		AcceptCommand{1 << 40},
		ReleaseCommand{n, "ann", x, 300, y, absent},
		RevokeCommand{n, 300, "op", y, true, absent},
		TransferCommand{n, "ann", x, 300, y, "bob", true},
		ExpireCommand{1 << 40, 300, time.Second, y, absent},
		PinCommand{n, "e"},
		UnpinCommand{n, "e"},
		LeaveQueueCommand{n, x, "ann"},
		core.OpenSessionCommand{ID: x, TTL: time.Minute},
		core.CloseSessionCommand{ID: x, Reason: string(bytes.Repeat([]byte("r"), 200)), Absent: absent, Others: true},
		core.ExpireSessionCommand{ID: x, Renewal: 300, Late: time.Second, Absent: absent},
		core.ExtendSessionCommand{ID: x, TTL: time.Minute},
		core.TrimKeysCommand{Through: 300},
		core.RaiseIndexCommand{To: 1 << 50},
		core.EpochCommand{},
		core.CheckpointCommand{},
		core.PutMemberCommand{Member: core.Member{ID: 1 << 63, Name: "m1", PeerAddress: "host:1", ClientURL: "https://host:2", Schema: 2, Learner: true, Version: "v1"}},
		core.RemoveMemberCommand{ID: 1 << 63},
	}
}

// bodyOf is what a command says as the family reads it.
func bodyOf(t fatal, cmd []byte) []byte {
	for len(cmd) > 0 {
		num, typ, n := protowire.ConsumeTag(cmd)
		size := protowire.ConsumeFieldValue(num, typ, cmd[max(n, 0):])
		if n < 0 || size < 0 {
			t.Fatalf("malformed command")
		}
		if num == Number {
			body, _ := protowire.ConsumeBytes(cmd[n:])
			return body
		}
		cmd = cmd[n+size:]
	}
	return nil
}

// The writers by hand give the bytes that the generated ones give.
func TestEncodeIsCanonicalProtobuf(t *testing.T) {
	seen := make(map[verb]bool)
	for _, c := range commandsOfAllKinds() {
		b := bodyOf(t, c.Encode(core.Meta{}))
		if b == nil {
			continue // it is core's
		}
		remarshal(t, b, new(corepb.LeaseCommand))
		var d command
		if err := d.decode(b); err != nil {
			t.Errorf("%T: %v", c, err)
		}
		seen[d.verb] = true
	}
	for v := range numVerbs {
		if layouts[v] != nil && !seen[v] {
			t.Errorf("command %d is not tried", v)
		}
	}
	records := 0
	Of(fullState(t).View()).Write(func(record []byte) bool {
		remarshal(t, record, new(corepb.Lease))
		records++
		return true
	})
	if records == 0 {
		t.Error("no record is tried")
	}
	for _, a := range []Answer{{Lease: Of(fullState(t).View()).Lease(parseName("a")), Queued: true, Position: 3}, {Lease: Of(fullState(t).View()).Lease(parseName("b")), Granted: true}} {
		b := Family{}.Keep(a.Record())
		remarshal(t, b, new(corepb.LeaseAnswer))
		if back, ok := (Family{}).Kept(b); !ok || !bytes.Equal(Family{}.Keep(back), b) {
			t.Errorf("%x is not what is kept", b)
		}
	}
}

func remarshal(t *testing.T, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, again) {
		t.Errorf("got  %s\nwant %s\n%v", hex.EncodeToString(b), hex.EncodeToString(again), m)
	}
}

// An expiry is what there may be a hundred thousand of in one second.
func TestExpireIsSmall(t *testing.T) {
	b := ExpireCommand{Token: 1 << 50, Renewal: 100, Late: 200 * time.Millisecond}.Encode(core.Meta{})
	if len(b) > 24 { // 4 of them are the frame that the commands of all families have
		t.Errorf("%d bytes, want at most 24", len(b))
	}
}

// Decoding costs no memory.
func TestDecodeDoesNotAllocate(t *testing.T) {
	b := bodyOf(t, ClaimCommand{Name: parseName("a"), Holder: "ann", TTL: time.Minute}.Encode(core.Meta{Origin: core.Origin{Door: "native"}}))
	var c command
	if n := testing.AllocsPerRun(100, func() {
		if c.decode(b) != nil {
			t.Fatal("not decoded")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode holds our reader of commands against the generated one: whatever
// ours takes, the other reads alike.
func FuzzDecode(f *testing.F) {
	for _, c := range commandsOfAllKinds() {
		if b := bodyOf(f, c.Encode(core.Meta{})); b != nil {
			f.Add(b)
		}
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got command
		if got.decode(b) != nil {
			return
		}
		want, ok := generic(b)
		if !ok {
			t.Fatalf("ours reads %x, the generated one does not", b)
		}
		if d := cmp.Diff(want.blank(), got.blank(), sameCommand); d != "" {
			t.Fatal(d)
		}
	})
}

// FuzzApply lets any bytes follow on a state that has one of everything. The
// bytes are cut into commands by a length each.
func FuzzApply(f *testing.F) {
	var all []byte
	for _, c := range commandsOfAllKinds() {
		b := c.Encode(core.Meta{})
		all = append(append(all, byte(len(b))), b...)
		f.Add(append([]byte{byte(len(b))}, b...))
	}
	for _, c := range []core.Command{
		AcceptCommand{Token: 9},
		ClaimCommand{Name: parseName("b"), Holder: "ann", TTL: time.Minute},
		core.CloseSessionCommand{ID: sessionID("y")},
		ExpireCommand{Token: 9, Renewal: 2},
		TransferCommand{Name: parseName("a"), Holder: "bob", Session: sessionID("y"), ToSession: sessionID("x"), ToHolder: "z"},
		core.RaiseIndexCommand{To: 1000},
		core.TrimKeysCommand{Through: 1000},
		ClaimCommand{Name: parseName("a"), Holder: "eve", Session: sessionID("x"), Wait: true},
	} {
		b := c.Encode(core.Meta{KeyID: []byte("k"), KeyBase: 1})
		all = append(append(all, byte(len(b))), b...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := fullState(t)
		var cmds [][]byte
		for len(b) > 0 && len(cmds) < 64 {
			n := min(int(b[0]), len(b)-1)
			if known(b[1 : 1+n]) {
				cmds = append(cmds, b[1:1+n])
			}
			b = b[1+n:]
		}
		before := s.Index()
		s.Apply(cmds, make([]core.Result, len(cmds)))
		if got := s.Index(); got < before+incumbent.Index(len(cmds)) {
			t.Fatalf("index %d after %d commands at %d", got, len(cmds), before)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		restart(t, s)
	})
}

// FuzzRestore: bytes that are taken for a snapshot are one, the only one of
// their state.
func FuzzRestore(f *testing.F) {
	f.Add(snapshotBytes(f, fullState(f)))
	f.Add(snapshotBytes(f, New()))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(bytes.NewReader(b))
		if err != nil {
			if k := incumbent.KindOf(err); k != incumbent.Corrupt && k != incumbent.Invalid {
				t.Fatal(err)
			}
			return
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		restart(t, s)
		s.Apply([][]byte{core.CheckpointCommand{}.Encode(core.Meta{})}, make([]core.Result, 1))
	})
}
