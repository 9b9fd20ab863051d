package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Member is one member of the cluster as it described itself. Who votes is
// raft's own business; this is where to find a member and what it understands.
type Member struct {
	ID          uint64          // random, never 0, never used again once it is gone
	Name        string          // 1 to [MaxMemberName] letters, digits, dots, dashes and underscores; no two members share one
	PeerAddress string          // where other members reach it; "": it has no listener for them. At most [MaxMemberTextBytes]
	ClientURL   string          // where clients reach it, or "". At most [MaxMemberTextBytes]
	Schema      uint32          // newest version of commands and snapshots it knows, at least 2
	Learner     bool            // it wants no vote, and stays a learner until it is promoted: once false it stays false
	Version     string          // of its binary, or "". At most [MaxMemberTextBytes]
	Since       incumbent.Index // when it was added
}

// PutMemberCommand adds a member or says anew what it is; Since is the state's
// to fill in. Learner makes nobody a learner again who is none: a member describes
// itself from what it knew, and its promotion may have come in between. An id that
// is gone is refused with Conflict, a name that another member has with Exists, a
// member too many with TooLarge.
type PutMemberCommand struct{ Member Member }

// RemoveMemberCommand removes a member, known or not. Its id is gone for ever:
// after [MaxGoneMembers] of them no more can be removed (TooLarge). Removing one
// that is gone succeeds and does nothing.
type RemoveMemberCommand struct{ ID uint64 }

// Encode implements [Command].
func (c PutMemberCommand) Encode(meta Meta) []byte {
	return encode(memberSchema, meta, opPutMember, func(e *encoder) { e.member(&c.Member) })
}

// Encode implements [Command].
func (c RemoveMemberCommand) Encode(meta Meta) []byte {
	return encode(memberSchema, meta, opRemoveMember, func(e *encoder) { e.Fixed(1, c.ID) })
}

// member writes the fields that a command and a record have in common.
func (e *encoder) member(m *Member) {
	e.Fixed(1, m.ID)
	e.Text(2, m.Name)
	e.Text(3, m.PeerAddress)
	e.Text(4, m.ClientURL)
	e.Uint(5, uint64(m.Schema))
	e.Flag(6, m.Learner)
	e.Text(7, m.Version)
}

// Members returns the members of the cluster, by id.
func (v *View) Members() []Member {
	list := make([]Member, len(v.members))
	for i, m := range v.members {
		list[i] = *m
	}
	return list
}

// Member returns the member with an id, false if there is none.
func (v *View) Member(id uint64) (Member, bool) {
	if m := v.member(id); m != nil {
		return *m, true
	}
	return Member{}, false
}

// MemberGone reports whether an id was a member's that has been removed.
func (v *View) MemberGone(id uint64) bool { return v.gone(id) }

// GoneMemberCount is the number of ids that are gone.
func (v *View) GoneMemberCount() int { return v.goneMembers.Len() }

// ActiveSchema is the newest schema version that all members know; while no
// member is recorded, [SchemaVersion]: so the first to lead, alone or not, records
// itself before other commands. A command that needs a later one is refused: see
// [RequiredSchema].
func (v *View) ActiveSchema() uint32 { return v.activeSchema() }

func (t *shared) activeSchema() uint32 {
	if len(t.members) == 0 {
		return SchemaVersion
	}
	least := t.members[0].Schema
	for _, m := range t.members[1:] {
		least = min(least, m.Schema)
	}
	return least
}

func (t *shared) memberPlace(id uint64) (int, bool) {
	return slices.BinarySearchFunc(t.members, id, func(m *Member, id uint64) int {
		switch {
		case m.ID < id:
			return -1
		case m.ID > id:
			return 1
		}
		return 0
	})
}

func (t *shared) member(id uint64) *Member {
	if i, ok := t.memberPlace(id); ok {
		return t.members[i]
	}
	return nil
}

func (t *shared) gone(id uint64) bool {
	_, ok := t.goneMembers.Get(id)
	return ok
}

// putMember adds a member or replaces what is known of it. What it says already
// is no change.
func (s *State) putMember(c *command) Result {
	n := &Member{
		ID: c.id, Name: string(c.name), PeerAddress: string(c.peerAddress), ClientURL: string(c.clientURL),
		Schema: uint32(min(c.index, 1<<32-1)), Learner: c.learner, Version: string(c.text), Since: s.first,
	}
	i, known := s.memberPlace(n.ID)
	var o *Member
	if known {
		o = s.members[i]
		n.Since, n.Learner = o.Since, n.Learner && o.Learner
	}
	if err := n.Validate(); err != nil {
		return Result{Member: o, Err: invalid(err)}
	}
	if err := s.checkMember(n, known); err != nil {
		return Result{Member: o, Err: err}
	}
	if known && *o == *n {
		return Result{Member: o}
	}
	list := slices.Clone(s.members) // older views read the one there is
	if known {
		list[i] = n
	} else {
		list = slices.Insert(list, i, n)
	}
	s.members = list
	s.emit(Change{What: MemberPut, MemberBefore: o, Member: n})
	return Result{Member: n}
}

// checkMember checks a member against the others.
func (s *State) checkMember(n *Member, known bool) *incumbent.Error {
	if s.gone(n.ID) {
		return incumbent.Errorf(incumbent.Conflict, "member %d was removed; its id cannot come back", n.ID)
	}
	for _, m := range s.members {
		if m.ID != n.ID && m.Name == n.Name {
			return incumbent.Errorf(incumbent.Exists, "member %d is named %q already", m.ID, m.Name)
		}
	}
	if !known && len(s.members) >= s.limits.Members {
		return tooLarge("members", "MaxMembers", s.limits.Members)
	}
	return nil
}

// removeMember remembers the id also of a member that was never recorded: it may
// have been let in, and must not come back.
func (s *State) removeMember(c *command) Result {
	id := c.id
	switch {
	case id == 0:
		return Result{Err: fail(incumbent.Invalid, "a member needs an id")}
	case s.gone(id):
		return Result{}
	case s.goneMembers.Len() >= s.limits.Gone:
		return Result{Err: tooLarge("removed members", "MaxGoneMembers", s.limits.Gone)}
	}
	o := &Member{ID: id}
	if i, known := s.memberPlace(id); known {
		o = s.members[i]
		s.members = slices.Delete(slices.Clone(s.members), i, i+1)
	}
	s.goneMembers.Set(id)
	s.emit(Change{What: MemberGone, MemberBefore: o})
	return Result{}
}

// Validate returns an Invalid or TooLarge error for what is wrong with a member by itself.
func (m *Member) Validate() error {
	switch {
	case m.ID == 0:
		return fail(incumbent.Invalid, "a member needs an id")
	case !validMemberName(m.Name):
		return incumbent.Errorf(incumbent.Invalid, "member name %q is not 1 to %d letters, digits, dots, dashes and underscores", m.Name, MaxMemberName)
	case m.Schema < memberSchema:
		return incumbent.Errorf(incumbent.Invalid, "a member of schema %d does not know of members, which needs %d", m.Schema, memberSchema)
	}
	for _, f := range []struct{ what, text string }{
		{"peer address", m.PeerAddress}, {"client url", m.ClientURL}, {"version", m.Version},
	} {
		if len(f.text) > MaxMemberTextBytes {
			return tooLarge(f.what+" of the member", "MaxMemberTextBytes", MaxMemberTextBytes)
		}
		if !plainText(f.text) {
			return incumbent.Errorf(incumbent.Invalid, "%s %q of the member has white space, control, invisible or directional characters", f.what, f.text)
		}
	}
	return nil
}

func validMemberName(name string) bool {
	return name != "" && len(name) <= MaxMemberName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
}

func plainText(s string) bool {
	at, _ := incumbent.PlainText(s)
	return at < 0
}

// checkMembers verifies the family's own invariants.
func (s *State) checkMembers() error {
	names := make(map[string]bool)
	for i, m := range s.members {
		switch {
		case m.Validate() != nil:
			return m.Validate()
		case i > 0 && s.members[i-1].ID >= m.ID:
			return fmt.Errorf("member %d is out of order", m.ID)
		case names[m.Name]:
			return fmt.Errorf("member %d has the name %q of another", m.ID, m.Name)
		case s.gone(m.ID):
			return fmt.Errorf("member %d is gone, yet there", m.ID)
		case m.Since == 0 || m.Since > s.index:
			return fmt.Errorf("member %d since %d, newest index is %d", m.ID, m.Since, s.index)
		}
		names[m.Name] = true
	}
	if len(s.members) > MaxMembers || s.goneMembers.Len() > MaxGoneMembers || s.gone(0) {
		return fmt.Errorf("%d members, %d gone", len(s.members), s.goneMembers.Len())
	}
	return nil
}
