package core

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
	"github.com/incumbent-dev/incumbent/core/corepb"
)

// generic returns what the generated reader makes of a command, as our own one
// would store it. ok is false if it takes the bytes for no command.
func generic(b []byte) (c command, ok bool) {
	var p corepb.Command
	if proto.Unmarshal(b, &p) != nil {
		return c, false
	}
	c.schema = uint64(p.Schema)
	c.at = p.GetOrigin().GetAtUnixMs()
	c.door, c.address, c.principal = text(p.GetOrigin().GetDoor()), text(p.GetOrigin().GetAddress()), text(p.GetOrigin().GetPrincipal())
	c.keyID, c.keyBase, c.judged = p.GetKey().GetId(), p.GetKey().GetBase(), p.Judged
	m := p.ProtoReflect()
	op := m.WhichOneof(m.Descriptor().Oneofs().ByName("op"))
	if unknown := m.GetUnknown(); op == nil && len(unknown) > 0 {
		num, _, n := protowire.ConsumeTag(unknown)
		if num >= firstFamily {
			c.op = num
			c.body, _ = protowire.ConsumeBytes(unknown[n:])
		}
	}
	if op == nil {
		return c, true
	}
	c.op = op.Number()
	m.Get(op).Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		c.setGeneric(f.Name(), v)
		return true
	})
	return c, true
}

// setGeneric stores a field by its name in core.proto.
func (c *command) setGeneric(field protoreflect.Name, v protoreflect.Value) {
	switch field {
	case "name":
		c.name = text(v.String())
	case "reason", "version":
		c.text = text(v.String())
	case "id":
		if c.op == opPutMember || c.op == opRemoveMember {
			c.id = v.Uint()
		} else {
			copy(c.session[:], v.Bytes())
		}
	case "absent":
		c.absent = v.Bytes()
	case "peer_address":
		c.peerAddress = text(v.String())
	case "client_url":
		c.clientURL = text(v.String())
	case "schema":
		c.index = v.Uint()
	case "epoch":
		c.epoch = v.Bool()
	case "learner":
		c.learner = v.Bool()
	case "ttl_ms":
		c.ttl = v.Int()
	case "late_ms":
		c.late = v.Int()
	case "renewal":
		c.renewal = v.Uint()
	case "through", "to":
		c.index = v.Uint()
	case "others":
		c.others = v.Bool()
	default:
		panic("core.proto has a field that this test does not know: " + string(field))
	}
}

// needsOf says what of a command version 2 brought.
func needsOf(c command) uint64 {
	if c.judged != 0 {
		return JudgedSchema
	}
	if c.op >= firstFamily {
		return familySchema
	}
	if c.op >= opPutMember || len(c.absent) > 0 || c.epoch {
		return 2
	}
	return 0
}

func text(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// blank makes empty and missing texts the same.
func (c command) blank() command {
	for _, b := range []*[]byte{&c.door, &c.address, &c.principal, &c.keyID, &c.name, &c.text, &c.absent, &c.peerAddress, &c.clientURL, &c.body} {
		if len(*b) == 0 {
			*b = nil
		}
	}
	c.needs = needsOf(c) // a field that says nothing needs nothing
	return c
}

var sameCommand = cmp.AllowUnexported(command{})

// Every field of every command of core.proto arrives where it belongs, and the
// bytes are those of the generated writer: neither was forgotten when the schema
// grew.
func TestDecodeKnowsEveryField(t *testing.T) {
	fields := (&corepb.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	if fields.Len() == 0 {
		t.Fatal("no commands")
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		p := &corepb.Command{
			Schema: SchemaVersion,
			Origin: &corepb.Origin{AtUnixMs: 5, Door: "d", Address: "a", Principal: "p"},
			Key:    &corepb.Key{Id: []byte("k"), Base: 7},
			Judged: 6,
		}
		op := p.ProtoReflect().NewField(f)
		fill(op.Message())
		p.ProtoReflect().Set(f, op)
		b, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := generic(b)
		var got command
		if err := got.decode(b, MaxFamilyBytes); err != nil {
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
func commandsOfAllKinds() []Command {
	x, y := sessionID("x"), sessionID("y")
	absent := []incumbent.SessionID{x, y}
	return []Command{
		OpenSessionCommand{x, time.Minute},
		CloseSessionCommand{x, string(bytes.Repeat([]byte("r"), 200)), absent, true},
		ExpireSessionCommand{x, 300, time.Second, absent},
		ExtendSessionCommand{x, time.Minute},
		TrimKeysCommand{300},
		RaiseIndexCommand{1 << 50},
		EpochCommand{},
		CheckpointCommand{},
		PutMemberCommand{Member{1 << 63, "m1", "host:1", "https://host:2", 2, true, "v1", 0}},
		RemoveMemberCommand{1 << 63},
	}
}

// The writers by hand give the bytes that the generated ones give.
func TestEncodeIsCanonicalProtobuf(t *testing.T) {
	meta := Meta{Origin: Origin{time.UnixMilli(1700000000000), "native", "127.0.0.1:1", "p"}, KeyID: []byte("key"), KeyBase: 300, Judged: 301}
	seen := make(map[opcode]bool)
	for _, c := range commandsOfAllKinds() {
		b := c.Encode(meta)
		var p corepb.Command
		remarshal(t, b, &p)
		var d command
		if err := d.decode(b, MaxFamilyBytes); err != nil {
			t.Errorf("%T: %v", c, err)
		}
		seen[d.op] = true
	}
	for op, layout := range layouts {
		if layout != nil && !seen[opcode(op)] {
			t.Errorf("command %d is not tried", op)
		}
	}
	whole := snapshotBytes(t, fullState(t))
	for len(whole) > 0 {
		record, n := protowire.ConsumeBytes(whole)
		remarshal(t, record, new(corepb.Record))
		whole = whole[n:]
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

// Decoding costs no memory.
func TestDecodeDoesNotAllocate(t *testing.T) {
	b := OpenSessionCommand{ID: sessionID("x"), TTL: time.Minute}.Encode(Meta{Origin: Origin{Door: "native"}})
	var c command
	if n := testing.AllocsPerRun(100, func() {
		if c.decode(b, MaxFamilyBytes) != nil {
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
		f.Add(c.Encode(Meta{Origin: Origin{time.UnixMilli(5), "d", "a", "p"}, KeyID: []byte("k"), KeyBase: 1}))
	}
	f.Add([]byte{})
	f.Add([]byte{1 << 3, SchemaVersion + 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got command
		if got.decode(b, MaxFamilyBytes) != nil || got.schema > SchemaVersion {
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
