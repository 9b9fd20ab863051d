package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// memberModel is the family once more, in maps.
type memberModel struct {
	index   incumbent.Index
	members map[uint64]Member
	gone    map[uint64]bool
}

func (m *memberModel) apply(c Command) incumbent.Kind {
	m.index++
	switch c := c.(type) {
	case PutMemberCommand:
		return m.put(c.Member)
	case RemoveMemberCommand:
		switch {
		case c.ID == 0:
			return incumbent.Invalid
		case m.gone[c.ID]:
			return incumbent.OK
		}
		delete(m.members, c.ID)
		m.gone[c.ID] = true
	}
	return incumbent.OK
}

func (m *memberModel) put(n Member) incumbent.Kind {
	if n.ID == 0 || n.Schema < 2 {
		return incumbent.Invalid
	}
	if m.gone[n.ID] {
		return incumbent.Conflict
	}
	for id, o := range m.members {
		if o.Name == n.Name && id != n.ID {
			return incumbent.Exists
		}
	}
	n.Since = m.index
	if o, ok := m.members[n.ID]; ok {
		n.Since, n.Learner = o.Since, n.Learner && o.Learner
	}
	m.members[n.ID] = n
	return incumbent.OK
}

func (m *memberModel) text() string {
	var b strings.Builder
	active := uint32(SchemaVersion)
	for i, id := range slices.Sorted(maps.Keys(m.members)) {
		n := m.members[id]
		fmt.Fprintln(&b, formatMember(&n))
		if i == 0 || n.Schema < active {
			active = n.Schema
		}
	}
	fmt.Fprintln(&b, slices.Sorted(maps.Keys(m.gone)), active)
	return b.String()
}

func membersText(v *View) string {
	var b strings.Builder
	for _, m := range v.Members() {
		fmt.Fprintln(&b, formatMember(&m))
	}
	var gone []uint64
	for id := range uint64(10) {
		if v.MemberGone(id) {
			gone = append(gone, id)
		}
	}
	fmt.Fprintln(&b, gone, v.ActiveSchema())
	return b.String()
}

// What is known of members is what they said last; who is gone stays gone, also
// across snapshots.
func TestG33_MembersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := New(), &memberModel{members: make(map[uint64]Member), gone: make(map[uint64]bool)}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			var c Command = RemoveMemberCommand{ID: rapid.Uint64Range(0, 4).Draw(t, "removed")}
			if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
				c = drawMember(t)
			}
			before := s.View()
			results := make([]Result, 1)
			changes := s.Apply([][]byte{c.Encode(Meta{})}, results)
			if got, want := incumbent.KindOf(asError(results[0].Err)), m.apply(c); got != want {
				t.Fatalf("%#v: got %v, want %v", c, got, want)
			}
			if g, w := membersText(s.View()), m.text(); g != w {
				t.Fatalf("%#v:\ngot\n%swant\n%s", c, g, w)
			}
			if told := len(changes) > 0; told != (before.Hash() != hashAt(s, before.Index())) {
				t.Fatalf("%#v: %d changes", c, len(changes))
			}
			if rapid.Bool().Draw(t, "restart") {
				s = restart(t, s)
			}
		}
	})
}

// hashAt is the state's hash, were its index another.
func hashAt(s *State, i incumbent.Index) [32]byte {
	v := s.View()
	v.index = i
	return v.Hash()
}

// A view of before keeps the members it had.
func TestViewKeepsMembers(t *testing.T) {
	s := New()
	put := func(m Member) *View {
		s.Apply([][]byte{PutMemberCommand{m}.Encode(Meta{})}, make([]Result, 1))
		return s.View()
	}
	one := put(Member{ID: 5, Name: "a", Schema: 2})
	two := put(Member{ID: 4, Name: "b", Schema: 3})
	put(Member{ID: 4, Name: "c", Schema: 2})
	s.Apply([][]byte{RemoveMemberCommand{ID: 5}.Encode(Meta{})}, make([]Result, 1))
	a, b := Member{ID: 5, Name: "a", Schema: 2, Since: 1}, Member{ID: 4, Name: "b", Schema: 3, Since: 2}
	if d := cmp.Diff([]Member{a}, one.Members()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Member{b, a}, two.Members()); d != "" {
		t.Error(d)
	}
	if m, ok := s.View().Member(5); ok || two.MemberGone(5) || !s.View().MemberGone(5) {
		t.Errorf("member 5 is %+v, gone before: %v", m, two.MemberGone(5))
	}
}

// Ids of removed members take some ten bytes each, and a snapshot takes them all.
func TestManyGoneMembers(t *testing.T) {
	s := New()
	for id := range uint64(MaxGoneMembers) {
		s.goneMembers.Set(^id)
	}
	s.index = 1
	results := make([]Result, 1)
	s.Apply([][]byte{RemoveMemberCommand{ID: 1}.Encode(Meta{})}, results)
	if incumbent.KindOf(asError(results[0].Err)) != incumbent.TooLarge {
		t.Errorf("one more: %v", results[0].Err)
	}
	n := restart(t, s)
	if got := n.View().GoneMemberCount(); got != MaxGoneMembers || !n.View().MemberGone(^uint64(0)) || n.View().MemberGone(1) {
		t.Errorf("%d are gone after a restart", got)
	}
	if size := len(snapshotBytes(t, s)); size > 9*MaxGoneMembers {
		t.Errorf("the snapshot has %d bytes", size)
	}
}

// A command that others may know and this member does not stops it: to skip it
// would part the states.
func TestUnknownSchemaIsFatal(t *testing.T) {
	newer := []byte{1 << 3, SchemaVersion + 1, 50<<3&0x7f | 0x80 | 2, 3, 0}
	applied := func(members ...Member) (err *incumbent.Error, panicked any) {
		s := New()
		for _, m := range members {
			s.Apply([][]byte{PutMemberCommand{m}.Encode(Meta{})}, make([]Result, 1))
		}
		defer func() { panicked = recover() }()
		results := make([]Result, 1)
		s.Apply([][]byte{newer}, results)
		return results[0].Err, nil
	}
	knows, lags := Member{ID: 1, Name: "a", Schema: SchemaVersion + 1}, Member{ID: 2, Name: "b", Schema: SchemaVersion}
	const want = "core: command 2 has schema 15, this member knows 1 to 14: it needs a newer version of the program"
	if _, got := applied(knows); got != want {
		t.Errorf("all know it: got %v, want %q", got, want)
	}
	if _, got := applied(); got == nil {
		t.Error("without members it was skipped")
	}
	if err, got := applied(knows, lags); got != nil || incumbent.KindOf(asError(err)) != incumbent.Invalid {
		t.Errorf("one does not know it: %v, %v", err, got)
	}
}

// Each command asks for the lowest schema that has what it says, so that members
// of an older one take all that they know.
func TestRequiredSchema(t *testing.T) {
	x := sessionID("x")
	for _, c := range []struct {
		cmd  Command
		want uint32
	}{
		{CloseSessionCommand{ID: x}, 1},
		{CloseSessionCommand{ID: x, Absent: []incumbent.SessionID{x}}, 2},
		{ExpireSessionCommand{ID: x, Absent: []incumbent.SessionID{x}}, 2},
		{RaiseIndexCommand{To: 7}, 1},
		{EpochCommand{}, 2},
		{CheckpointCommand{}, 1},
		{RemoveMemberCommand{ID: 1}, 2},
	} {
		b := c.cmd.Encode(Meta{KeyID: []byte("k")})
		if got := RequiredSchema(b); got != c.want {
			t.Errorf("%#v: got %d, want %d", c.cmd, got, c.want)
		}
		var d command
		if err := d.decode(b, MaxFamilyBytes); err != nil || uint32(max(d.needs, 1)) != c.want {
			t.Errorf("%#v: %v, read as needing %d", c.cmd, err, d.needs)
		}
		if b[1]--; c.want > 1 && d.decode(b, MaxFamilyBytes) == nil {
			t.Errorf("%#v: taken under a schema that does not have it", c.cmd)
		}
	}
	for _, b := range [][]byte{nil, {8}, {8, 0x80}, {9, 1}, {8, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		if got := RequiredSchema(b); got != 0 {
			t.Errorf("%x: got %d", b, got)
		}
	}
}
