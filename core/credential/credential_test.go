package credential

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// fewer is the family with limits that a test can reach.
type fewer struct {
	Family
	limits limits
}

// New implements core.Family.
func (f fewer) New() core.Tables { return newTables(f.limits) }

// fatal is what testing and rapid have in common.
type fatal interface{ Fatalf(string, ...any) }

var at = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// do applies commands as one batch, by an operator.
func do(t fatal, s *core.State, cmds ...core.Command) ([]core.Result, []core.Change) {
	encoded := make([][]byte, len(cmds))
	for i, c := range cmds {
		encoded[i] = c.Encode(core.Meta{Origin: core.Origin{At: at, Principal: "operator:ops"}})
	}
	results := make([]core.Result, len(cmds))
	changes := s.Apply(encoded, results)
	if err := s.Check(); err != nil {
		t.Fatalf("broken invariant: %v", err)
	}
	return results, changes
}

// apply applies a command and returns its record, or the kind of its error.
func apply(t fatal, s *core.State, c Command) (*Credential, incumbent.Kind) {
	r, _ := do(t, s, c)
	kind := incumbent.OK
	if r[0].Err != nil {
		kind = r[0].Err.Kind
	}
	rec, _ := r[0].Record.(*Credential)
	return rec, kind
}

// reload returns the state as a snapshot of it gives it, which must be the same.
func reload(t fatal, s *core.State, f core.Family) *core.State {
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatalf("writing a snapshot: %v", err)
	}
	n, err := core.Restore(&b, f)
	if err != nil {
		t.Fatalf("restoring a snapshot: %v", err)
	}
	if n.View().Hash() != s.View().Hash() {
		t.Fatalf("the restored state has another hash")
	}
	return n
}

func sum(s string) []byte { return bytes.Repeat([]byte(s), TokenBytes)[:TokenBytes] }

func token(secret, who string) Command {
	return Command{Verb: Create, Method: Token, Principal: who, Secret: sum(secret)}
}

func password(secret, scope, tag string) Command {
	return Command{Verb: Create, Method: Password, Principal: "agent:" + tag, Scope: scope, Secret: []byte(secret), Grants: 1}
}

// A token lets its bearer in from its creation to its end, whoever ends it, and is
// known by its hash alone.
func TestG12_ATokenFromItsCreationToItsEnd(t *testing.T) {
	s := core.New(Family{})
	c := token("a", "agent:db/1")
	c.Ends = MomentOf(at.Add(time.Hour))
	made, kind := apply(t, s, c)
	if kind != incumbent.OK || made.CreatedBy != "operator:ops" || !made.Created.Time().Equal(at) {
		t.Fatalf("%v, %+v", kind, made)
	}
	v := Of(s.View())
	if got := v.Token(sum("a")); got != made || v.Token(sum("b")) != nil || !v.Tokens() {
		t.Errorf("the token leads to %+v", got)
	}
	if !made.LetsIn(at) || !made.LetsIn(at.Add(time.Hour-time.Millisecond)) || made.LetsIn(at.Add(time.Hour)) {
		t.Error("its end is not the end")
	}
	if found, kind := apply(t, s, token("a", "agent:db/2")); kind != incumbent.Conflict || found != made {
		t.Errorf("the same token again: %v, %+v", kind, found)
	}
	gone, kind := apply(t, s, Command{Verb: End, ID: made.ID})
	if kind != incumbent.OK || gone.EndedBy != "operator:ops" || gone.Expired || gone.Closing || len(gone.Secret) > 0 || gone.LetsIn(at) {
		t.Errorf("%v, %+v", kind, gone)
	}
	if now := Of(s.View()); now.Token(sum("a")) != nil || now.Tokens() || v.Token(sum("a")) == nil {
		t.Error("the token is known afterwards, or the view has changed")
	}
	if again, kind := apply(t, s, Command{Verb: End, ID: made.ID, Expired: true}); kind != incumbent.OK || again != gone {
		t.Errorf("ended again: %v, %+v", kind, again)
	}
	if _, kind := apply(t, s, token("a", "agent:db/2")); kind != incumbent.OK {
		t.Errorf("a token whose record has no secret any more: %v", kind)
	}
	if _, kind := apply(t, s, Command{Verb: End, ID: 77}); kind != incumbent.NotFound {
		t.Errorf("no such id: %v", kind)
	}
	reload(t, s, Family{})
}

// What has ended is marked until its sessions are closed, and stays until then.
func TestSessionsThatEndWithIt(t *testing.T) {
	s := core.New(Family{})
	c := token("a", "agent:a")
	c.EndSessions = true
	a, _ := apply(t, s, c)
	b, _ := apply(t, s, token("b", "agent:b"))
	for _, cmd := range []Command{{Verb: End, ID: a.ID, Expired: true}, {Verb: End, ID: b.ID}, {Verb: End, ID: b.ID, EndSessions: true}} {
		if _, kind := apply(t, s, cmd); kind != incumbent.OK {
			t.Fatal(kind)
		}
	}
	closing := func() (ids []incumbent.Index) {
		Of(s.View()).Closing(func(c *Credential) bool { ids = append(ids, c.ID); return true })
		return ids
	}
	if got := closing(); len(got) != 2 {
		t.Fatalf("closing are %v", got)
	}
	s = reload(t, s, Family{})
	if _, kind := apply(t, s, Command{Verb: Forget, ID: a.ID}); kind != incumbent.Conflict {
		t.Errorf("forgotten before its sessions are closed: %v", kind)
	}
	for _, verb := range []Verb{Settled, Settled, Forget} {
		if _, kind := apply(t, s, Command{Verb: verb, ID: a.ID}); kind != incumbent.OK {
			t.Error(verb, kind)
		}
	}
	if got := closing(); len(got) != 1 || got[0] != b.ID || Of(s.View()).Get(a.ID) != nil {
		t.Errorf("closing are %v", got)
	}
	if _, kind := apply(t, s, Command{Verb: End, ID: b.ID, EndSessions: true}); kind != incumbent.OK || len(closing()) != 1 {
		t.Error("said twice")
	}
	live, _ := apply(t, s, token("c", "agent:c"))
	if _, kind := apply(t, s, Command{Verb: Forget, ID: live.ID}); kind != incumbent.Conflict {
		t.Errorf("a live one is forgotten: %v", kind)
	}
}

// A certificate is taken back by its serial number, once, and for good.
func TestG12_ARevokedCertificate(t *testing.T) {
	s := core.New(Family{})
	serial := []byte{0x0a, 0xff}
	gone, kind := apply(t, s, Command{Verb: Revoke, Secret: serial, Ends: MomentOf(at)})
	if kind != incumbent.OK || gone.Live() || gone.LetsIn(at) || Of(s.View()).Certificate(serial) != gone || Of(s.View()).Certificate([]byte{0x0a}) != nil {
		t.Fatalf("%v, %+v", kind, gone)
	}
	for _, ends := range []time.Time{at, at.Add(-time.Hour)} {
		if again, kind := apply(t, s, Command{Verb: Revoke, Secret: serial, Ends: MomentOf(ends)}); kind != incumbent.OK || again != gone {
			t.Errorf("again: %v, %+v", kind, again)
		}
	}
	if again, kind := apply(t, s, Command{Verb: Revoke, Secret: serial, Principal: "agent:a", EndSessions: true}); kind != incumbent.OK || !again.Closing || again.Principal != "agent:a" {
		t.Errorf("with its sessions: %v, %+v", kind, again)
	}
	s = reload(t, s, Family{})
	if _, n := Of(s.View()).Len(); n != 1 || Of(s.View()).Certificate(serial) == nil {
		t.Error("it is not read back")
	}
}

// Another revocation of a serial number makes the record stay for longer where it says a
// later end, and never for less; not before all members do so.
func TestG12_G49_ALaterEndOfARevokedCertificate(t *testing.T) {
	s := core.New(Family{})
	serial := []byte{0x0a, 0xff}
	old := core.Member{ID: 1, Name: "old", Schema: laterSchema - 1}
	do(t, s, core.PutMemberCommand{Member: old})
	revoked := func(ends Moment) Moment {
		t.Helper()
		if _, kind := apply(t, s, Command{Verb: Revoke, Secret: serial, Ends: ends}); kind != incumbent.OK {
			t.Fatal(kind)
		}
		s = reload(t, s, Family{})
		return Of(s.View()).Certificate(serial).Ends
	}
	first, second := MomentOf(at), MomentOf(at.Add(time.Hour))
	revoked(first)
	for _, ends := range []Moment{second, 0} {
		if got := revoked(ends); got != first {
			t.Errorf("it ends at %d while a member does not do so, want %d", got, first)
		}
	}
	old.Schema = laterSchema
	do(t, s, core.PutMemberCommand{Member: old})
	for _, tt := range []struct{ says, want Moment }{{first - 1, first}, {second, second}, {first, second}, {0, 0}, {second, 0}} {
		if got := revoked(tt.says); got != tt.want {
			t.Errorf("after one that says %d it ends at %d, want %d", tt.says, got, tt.want)
		}
	}
	var ending int
	Of(s.View()).Ending(func(*Credential) bool { ending++; return true })
	if ending != 0 {
		t.Errorf("%d records have an end", ending)
	}
}

// Passwords of one tag are found by model and tag; few there are.
func TestPasswordsOfATag(t *testing.T) {
	s := core.New(Family{})
	for i, c := range []Command{password("a", "*", "unit-a-0"), password("b", "*", "unit-a-0"), password("a", "m", "unit-a-0"), password("a", "*", "unit-a-01")} {
		if _, kind := apply(t, s, c); kind != incumbent.OK {
			t.Fatal(i, kind)
		}
	}
	if _, kind := apply(t, s, password("b", "*", "unit-a-0")); kind != incumbent.Conflict {
		t.Errorf("the same again: %v", kind)
	}
	list := Of(s.View()).Passwords("*", "agent:unit-a-0")
	if len(list) != 2 || string(list[0].Secret) != "a" || string(list[1].Secret) != "b" {
		t.Errorf("%d passwords", len(list))
	}
	for i := range MaxPerAccount - 2 {
		if _, kind := apply(t, s, password(fmt.Sprint(i), "*", "unit-a-0")); kind != incumbent.OK {
			t.Fatal(kind)
		}
	}
	if _, kind := apply(t, s, password("x", "*", "unit-a-0")); kind != incumbent.TooLarge {
		t.Errorf("one more: %v", kind)
	}
}

// What is full refuses, or gives the room of what ended first.
func TestG39_CredentialsAreBounded(t *testing.T) {
	f := fewer{limits: limits{2, 1}}
	s := core.New(f)
	a, _ := apply(t, s, token("a", "agent:a"))
	b, _ := apply(t, s, token("b", "agent:b"))
	if _, kind := apply(t, s, token("c", "agent:c")); kind != incumbent.TooLarge {
		t.Fatalf("beyond the limit: %v", kind)
	}
	for _, id := range []incumbent.Index{b.ID, a.ID} {
		if _, kind := apply(t, s, Command{Verb: End, ID: id}); kind != incumbent.OK {
			t.Fatal(kind)
		}
	}
	if _, kind := apply(t, s, token("c", "agent:c")); kind != incumbent.OK || Of(s.View()).Get(b.ID) != nil || Of(s.View()).Get(a.ID) == nil {
		t.Errorf("%v: not the one that ended first has gone", kind)
	}
	for i, want := range []incumbent.Kind{incumbent.OK, incumbent.TooLarge} {
		if _, kind := apply(t, s, Command{Verb: Revoke, Secret: []byte{byte(i + 1)}}); kind != want {
			t.Errorf("revocation %d: %v", i, kind)
		}
	}
	reload(t, s, f)
}

// commands has each verb and each field.
func commands() []Command {
	long := password("pbkdf2-sha256:1:00:11", "deadbeef", "unit-a-0")
	long.Ends = MomentOf(at)
	own := token("t", "operator:o")
	own.Ends, own.EndSessions = MomentOf(at), true
	return []Command{
		own, long,
		{Verb: End, ID: 300, EndSessions: true},
		{Verb: End, ID: 1, Expired: true},
		{Verb: Revoke, Secret: []byte{1, 2}, Principal: "agent:a", Ends: MomentOf(at), EndSessions: true},
		{Verb: Settled, ID: 1},
		{Verb: Forget, ID: 1},
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

func said(c Command) string { return fmt.Sprintf("%+v", c) }

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	for _, c := range commands() {
		var got Command
		if !got.decode(body(t, c)) || said(got) != said(c) || got.Validate() != nil {
			t.Errorf("%+v is read as %+v, %v", c, got, got.Validate())
		}
	}
}

// What cannot be is answered, and changes nothing.
func TestG27_WhatCannotBeIsRefused(t *testing.T) {
	s := core.New(Family{})
	secret := token("a", "agent:a")
	with := func(c Command, change func(*Command)) Command { change(&c); return c }
	for name, c := range map[string]Command{
		"no verb":                   {},
		"another verb":              {Verb: numVerbs},
		"no method":                 with(secret, func(c *Command) { c.Method = 0 }),
		"a certificate made":        with(secret, func(c *Command) { c.Method = Certificate }),
		"no kind":                   with(secret, func(c *Command) { c.Principal = "a" }),
		"an empty kind":             with(secret, func(c *Command) { c.Principal = ":a" }),
		"a kind in capitals":        with(secret, func(c *Command) { c.Principal = "Agent:a" }),
		"a long kind":               with(secret, func(c *Command) { c.Principal = strings.Repeat("a", maxKindBytes+1) + ":a" }),
		"no name":                   with(secret, func(c *Command) { c.Principal = "agent:" }),
		"a name with space":         with(secret, func(c *Command) { c.Principal = "agent:a b" }),
		"a short hash":              with(secret, func(c *Command) { c.Secret = c.Secret[1:] }),
		"a token with a scope":      with(secret, func(c *Command) { c.Scope = "*" }),
		"a token with grants":       with(secret, func(c *Command) { c.Grants = 1 }),
		"a new one with an id":      with(secret, func(c *Command) { c.ID = 1 }),
		"a new one that expired":    with(secret, func(c *Command) { c.Expired = true }),
		"a password without scope":  password("x", "", "a"),
		"a scope with space":        password("x", "a b", "a"),
		"a long scope":              password("x", strings.Repeat("m", incumbent.MaxNamespaceBytes+1), "a"),
		"no secret":                 password("", "*", "a"),
		"a secret with space":       password("a b", "*", "a"),
		"a long secret":             password(strings.Repeat("x", MaxSecretBytes+1), "*", "a"),
		"a password's sessions":     with(password("x", "*", "a"), func(c *Command) { c.EndSessions = true }),
		"no id":                     {Verb: End},
		"an end that is described":  {Verb: End, ID: 1, Principal: "agent:a"},
		"expired with its sessions": {Verb: End, ID: 1, Expired: true, EndSessions: true},
		"settled with sessions":     {Verb: Settled, ID: 1, EndSessions: true},
		"no serial number":          {Verb: Revoke},
		"a serial number with zero": {Verb: Revoke, Secret: []byte{0, 1}},
		"a long serial number":      {Verb: Revoke, Secret: bytes.Repeat([]byte{1}, MaxSerialBytes+1)},
		"nobody's sessions":         {Verb: Revoke, Secret: []byte{1}, EndSessions: true},
		"a method of a revocation":  {Verb: Revoke, Method: Certificate, Secret: []byte{1}},
	} {
		results, changes := do(t, s, c)
		if err := results[0].Err; err == nil || err.Kind != incumbent.Invalid || len(changes) > 0 {
			t.Errorf("%s: %v", name, err)
		}
		if c.Validate() == nil {
			t.Errorf("%s: the door lets it through", name)
		}
	}
}

// raw is a command of the family, whatever it says.
type raw []byte

// Encode implements core.Command.
func (r raw) Encode(meta core.Meta) []byte { return core.EncodeFamily(meta, Family{}, r) }

// FuzzDecode: no bytes make decode panic, and what it reads is written so that it is
// read alike.
func FuzzDecode(f *testing.F) {
	for _, c := range commands() {
		f.Add(body(f, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again Command
		if !c.decode(b) {
			return
		}
		if !again.decode(body(t, c)) || said(again) != said(c) {
			t.Fatalf("%x is read as %+v and then as %+v", b, c, again)
		}
	})
}

// FuzzApply lets any bytes follow, cut into commands by a length each, on a state that
// has one of everything.
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
		do(t, s, cmds...)
		reload(t, s, Family{})
	})
}

// fullState has one of everything: ids are 1 to 5.
func fullState(t testing.TB) *core.State {
	s := core.New(Family{})
	ending := token("b", "agent:b")
	ending.Ends, ending.EndSessions = MomentOf(at), true
	for _, c := range []Command{
		token("a", "agent:a"), ending, password("x", "*", "unit-a-0"),
		{Verb: Revoke, Secret: []byte{7}, Principal: "agent:c", EndSessions: true, Ends: MomentOf(at)},
		token("d", "observer:d"),
		{Verb: End, ID: 2, Expired: true},
		{Verb: End, ID: 5},
	} {
		if _, kind := apply(t, s, c); kind != incumbent.OK {
			t.Fatal(kind)
		}
	}
	return s
}

// A record has one form, and its place: any other is refused.
func TestG29_RecordsHaveOneForm(t *testing.T) {
	var records [][]byte
	Of(fullState(t).View()).Write(func(b []byte) bool { records = append(records, bytes.Clone(b)); return true })
	if len(records) != 5 {
		t.Fatalf("%d records", len(records))
	}
	read := func(list ...[]byte) bool {
		tables := newTables(limits{10, 10})
		for _, b := range list {
			if !tables.ReadRecord(b) {
				return false
			}
		}
		return tables.Check(nil, 100) == nil
	}
	for i, b := range records {
		if !read(b) {
			t.Errorf("record %x is refused", b)
		}
		for _, more := range [][]byte{
			{60 << 3 & 0x7f, 1}, // a field that nobody knows
			protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 0), // a zero, or twice
			protowire.AppendVarint(protowire.AppendTag(nil, 8, protowire.VarintType), 2), // no flag
		} {
			if read(append(bytes.Clone(b), more...)) {
				t.Errorf("record %x is taken with %x behind it", b, more)
			}
		}
		if read(b, b) || i > 0 && read(b, records[i-1]) {
			t.Errorf("record %x is taken out of place", b)
		}
	}
	if !read(records...) {
		t.Error("all of them are refused")
	}
	for name, c := range map[string]Credential{
		"a live one with an end":            {ID: 1, Method: Token, Principal: "agent:a", Secret: sum("a"), EndedBy: "x"},
		"ended before it was made":          {ID: 3, Method: Token, Principal: "agent:a", Ended: 2},
		"ended with its secret":             {ID: 1, Method: Token, Principal: "agent:a", Ended: 2, Secret: sum("a")},
		"a certificate that lives":          {ID: 1, Method: Certificate, Secret: []byte{1}},
		"closing what does not end":         {ID: 1, Method: Token, Principal: "agent:a", Ended: 2, Closing: true},
		"made by somebody with a long name": {ID: 1, Method: Token, Principal: "agent:a", Secret: sum("a"), CreatedBy: strings.Repeat("x", core.MaxOriginBytes+1)},
		"no id":                             {Method: Token, Principal: "agent:a", Secret: sum("a")},
	} {
		if read(c.write(new(wire.Writer))) {
			t.Errorf("%s is taken", name)
		}
	}
	twice := Credential{ID: 9, Method: Token, Principal: "agent:z", Secret: sum("a")}
	if read(records[0], twice.write(new(wire.Writer))) {
		t.Error("two records of one token are taken")
	}
}
