package trust

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

var (
	now    = time.Unix(1_800_000_000, 0).UTC()
	origin = core.Meta{Origin: core.Origin{At: now}}
	secret = Hash{1}
)

// world is a state with the family, and its log.
type world struct {
	t testing.TB
	s *core.State
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t, core.New(Family{})}
	w.want(incumbent.OK, Command{Verb: Found, Cluster: [16]byte{9}, Secret: secret, Authority: []byte("a"), Member: 1})
	return w
}

// run applies a command and returns of what kind its answer was.
func (w *world) run(c core.Command) incumbent.Kind {
	w.t.Helper()
	results := make([]core.Result, 1)
	w.s.Apply([][]byte{c.Encode(origin)}, results)
	if results[0].Err == nil {
		return incumbent.OK
	}
	return results[0].Err.Kind
}

func (w *world) want(kind incumbent.Kind, c Command) {
	w.t.Helper()
	if got := w.run(c); got != kind {
		w.t.Errorf("%+v: %v, want %v", c, got, kind)
	}
}

func (w *world) view() *View { return Of(w.s.View()) }

func offer(id byte, name string) Command {
	return Command{Verb: Offer, Now: now, Token: Token{ID: TokenID{id}, Name: name, Expires: now.Add(time.Hour), Signer: id%2 == 0, Maker: "operator:alice"}}
}

func spend(id byte, name string, by uint64, key byte) Command {
	return Command{Verb: Spend, Now: now, Token: Token{ID: TokenID{id}, Name: name, Spender: by, Key: Hash{key}}}
}

func TestATokenIsSpentOnce(t *testing.T) {
	w := newWorld(t)
	w.want(incumbent.OK, offer(2, "n2"))
	w.want(incumbent.Exists, offer(2, "n3"))
	w.want(incumbent.Denied, spend(3, "n2", 7, 1)) // there is none
	w.want(incumbent.Denied, spend(2, "n3", 7, 1)) // for another name
	w.want(incumbent.Denied, spend(2, "n2", 1, 1)) // the founder's id
	w.want(incumbent.OK, spend(2, "n2", 7, 1))
	w.want(incumbent.OK, spend(2, "n2", 7, 1))     // it did not hear the answer
	w.want(incumbent.Denied, spend(2, "n2", 8, 1)) // as somebody else
	w.want(incumbent.Denied, spend(2, "n2", 7, 2)) // for another key
	w.want(incumbent.NotFound, Command{Verb: Withdraw, Token: Token{ID: TokenID{2}}})
	if m := w.view().Member(7); m == nil || !m.Signer || m.Token != (TokenID{2}) {
		t.Errorf("the member is %+v", m)
	}
	w.want(incumbent.OK, Command{Verb: Say, Member: 7, Report: Report{Secret: secret}})
	w.want(incumbent.Denied, spend(2, "n2", 7, 1)) // it has come up
	w.want(incumbent.OK, Command{Verb: Forget, Member: 7})
	w.want(incumbent.Denied, spend(2, "n2", 7, 1))
	w.want(incumbent.OK, offer(4, "n4"))
	w.want(incumbent.OK, Command{Verb: Withdraw, Token: Token{ID: TokenID{4}}})
	w.want(incumbent.Denied, spend(4, "n4", 9, 1))
}

func TestATokenEnds(t *testing.T) {
	w := newWorld(t)
	for id := range byte(3) {
		w.want(incumbent.OK, offer(id+1, "n"))
	}
	w.want(incumbent.OK, spend(1, "n", 7, 1)) // and it does not come up
	w.want(incumbent.OK, spend(2, "n", 8, 1))
	w.want(incumbent.OK, Command{Verb: Say, Member: 8, Report: Report{Secret: secret}})
	late := spend(3, "n", 9, 1)
	late.Now = now.Add(time.Hour)
	w.want(incumbent.Denied, late)
	next := offer(9, "n9")
	next.Now, next.Token.Expires = now.Add(time.Hour), now.Add(2*time.Hour)
	w.want(incumbent.OK, next)
	v := w.view()
	if len(v.Tokens()) != 2 || v.Token(TokenID{1}) == nil || v.Token(TokenID{9}) == nil {
		t.Errorf("%d tokens are left: want the one whose member has not come up, and the new one", len(v.Tokens()))
	}
	over := next
	over.Token.ID, over.Token.Expires = TokenID{10}, next.Now
	w.want(incumbent.Invalid, over)
}

func TestTokensAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range MaxTokens {
		c := offer(0, "n")
		c.Token.ID = TokenID{1, byte(i >> 8), byte(i)}
		w.want(incumbent.OK, c)
	}
	w.want(incumbent.TooLarge, offer(2, "n"))
}

func TestAnExchange(t *testing.T) {
	next, other := Hash{2}, Hash{3}
	for _, c := range []struct {
		what       What
		was        []byte
		next, more []byte
		of         func(*View) Turn
	}{
		{Secret, secret[:], next[:], other[:], func(v *View) Turn { return v.Secret }},
		{Authority, []byte("a"), []byte("b"), []byte("c"), func(v *View) Turn { return v.Authority }},
	} {
		w := newWorld(t)
		w.want(incumbent.Conflict, Command{Verb: Begin, What: c.what, Was: c.next, Value: c.more})
		w.want(incumbent.OK, Command{Verb: Begin, What: c.what, Was: c.was, Value: c.next})
		w.want(incumbent.OK, Command{Verb: Begin, What: c.what, Was: c.was, Value: c.next})
		w.want(incumbent.Conflict, Command{Verb: Begin, What: c.what, Was: c.was, Value: c.more})
		w.want(incumbent.Conflict, Command{Verb: Finish, What: c.what, Value: c.more})
		w.want(incumbent.Conflict, Command{Verb: Abandon, What: c.what, Value: c.more})
		if got := c.of(w.view()); !reflect.DeepEqual(got, Turn{c.was, c.next}) {
			t.Errorf("under way: %v", got)
		}
		w.want(incumbent.OK, Command{Verb: Finish, What: c.what, Value: c.next})
		w.want(incumbent.OK, Command{Verb: Finish, What: c.what, Value: c.next})
		w.want(incumbent.OK, Command{Verb: Begin, What: c.what, Was: c.next, Value: c.more})
		w.want(incumbent.OK, Command{Verb: Abandon, What: c.what, Value: c.more})
		if got := c.of(w.view()); !reflect.DeepEqual(got, Turn{Current: c.next}) {
			t.Errorf("over: %v", got)
		}
	}
	w := newWorld(t)
	w.want(incumbent.Invalid, Command{Verb: Begin, What: Secret, Was: secret[:], Value: []byte("short")})
	w.want(incumbent.OK, Command{Verb: Begin, What: Authority, Was: []byte("a"), Value: []byte("b"), Cross: []byte("x")})
	w.want(incumbent.OK, Command{Verb: Renew})
	if v := w.view(); string(v.Cross) != "x" || v.Epoch != 1 {
		t.Errorf("cross %q, epoch %d", v.Cross, v.Epoch)
	}
	w.want(incumbent.OK, Command{Verb: Finish, What: Authority, Value: []byte("b")})
	if v := w.view(); v.Cross != nil {
		t.Errorf("cross %q is left", v.Cross)
	}
}

// A cluster that was founded without an authority is given that which it is prepared with later,
// once; nothing else that it trusts changes.
func TestAnAuthorityComesLater(t *testing.T) {
	w := &world{t, core.New(Family{})}
	found := Command{Verb: Found, Cluster: [16]byte{9}, Secret: secret, Member: 1}
	w.want(incumbent.OK, found)
	w.want(incumbent.OK, Command{Verb: Say, Member: 1, Report: Report{Secret: secret}})
	w.want(incumbent.OK, offer(2, "n2"))
	found.Secret, found.Authority = Hash{8}, []byte("a")
	w.want(incumbent.OK, found)
	v := w.view()
	if string(v.Authority.Current) != "a" || v.Token(TokenID{2}) == nil || !bytes.Equal(v.Secret.Current, secret[:]) || !v.Member(1).Signer || v.Member(1).Secret != secret {
		t.Errorf("it trusts %+v, and has %+v", v.Root, v.Member(1))
	}
	found.Authority = []byte("b")
	w.want(incumbent.OK, found)
	if v := w.view(); string(v.Authority.Current) != "a" {
		t.Errorf("the authority was replaced by %q", v.Authority.Current)
	}
}

// A cluster that was restored is another one: nothing that its source trusted counts.
func TestAnotherClusterBeginsAnew(t *testing.T) {
	w := newWorld(t)
	w.want(incumbent.OK, offer(2, "n2"))
	found := Command{Verb: Found, Cluster: [16]byte{9}, Secret: Hash{8}, Member: 5}
	w.want(incumbent.OK, found)
	if v := w.view(); v.Member(5) != nil || v.Token(TokenID{2}) == nil {
		t.Error("it was founded twice")
	}
	found.Cluster[0]++
	w.want(incumbent.OK, found)
	v := w.view()
	if len(v.Tokens()) != 0 || v.Member(1) != nil || !v.Member(5).Signer || !bytes.Equal(v.Secret.Current, found.Secret[:]) || v.Authority.Current != nil {
		t.Errorf("it begins with %+v", v)
	}
	if got := (&world{t, core.New(Family{})}).run(offer(2, "n2")); got != incumbent.Unavailable {
		t.Errorf("before it was founded: %v", got)
	}
}

// commands are of all kinds, with few ids, so that they meet.
func commands(t *rapid.T) Command {
	some := func(label string) (h Hash) { h[0] = rapid.ByteRange(0, 2).Draw(t, label); return h }
	id := func(label string) uint64 { return rapid.Uint64Range(0, 3).Draw(t, label) }
	at := func(label string) time.Time {
		return now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, label)) * time.Second)
	}
	c := Command{
		Verb: Verb(rapid.ByteRange(1, byte(numVerbs)-1).Draw(t, "verb")), Cluster: [16]byte{rapid.ByteRange(0, 2).Draw(t, "cluster")},
		Secret: some("secret"), Now: at("now"), Member: id("member"), What: What(rapid.ByteRange(0, 1).Draw(t, "what")),
		Token: Token{
			ID: TokenID{rapid.ByteRange(0, 3).Draw(t, "token")}, Name: rapid.SampledFrom([]string{"", "a", "b", "é"}).Draw(t, "name"),
			Expires: at("expires"), Signer: rapid.Bool().Draw(t, "signer"), Spender: id("spender"), Key: some("key"),
		},
		Report: Report{Secret: some("has"), Trusts: some("trusts"), Shows: some("shows"), Epoch: id("epoch"), Signs: rapid.Bool().Draw(t, "signs")},
	}
	value := func(label string) []byte {
		h := some(label)
		return h[:]
	}
	c.Value, c.Was = value("value"), value("was")
	if rapid.Bool().Draw(t, "certificate") {
		c.Authority, c.Cross = []byte("authority"), []byte("cross")
	}
	return c
}

// What any commands leave is read back from a snapshot as it was, and of no token
// ever come two members.
func TestSnapshotsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := core.New(Family{})
		spent := map[TokenID]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			c := commands(t)
			results := make([]core.Result, 1)
			s.Apply([][]byte{c.Encode(origin)}, results)
			if c.Verb == Found && results[0].Err == nil {
				clear(spent)
			}
			for _, k := range Of(s.View()).Tokens() {
				if by, ok := spent[k.ID]; ok && by != k.Spender {
					t.Fatalf("token %x was spent by %d, then by %d", k.ID, by, k.Spender)
				} else if k.Spender != 0 {
					spent[k.ID] = k.Spender
				}
			}
			if c.Verb == Offer && results[0].Err == nil {
				for id := range spent { // gone: it had ended
					if Of(s.View()).Token(id) == nil || id == c.Token.ID {
						delete(spent, id)
					}
				}
			}
		}
		var b bytes.Buffer
		if err := s.View().WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		back, err := core.Restore(&b, Family{})
		if err != nil {
			t.Fatal(err)
		}
		if back.View().Hash() != s.View().Hash() {
			t.Fatalf("%+v came back as %+v", Of(s.View()), Of(back.View()))
		}
	})
}

// FuzzTrust reads any bytes as a command and as a record.
func FuzzTrust(f *testing.F) {
	for _, c := range []Command{offer(2, "n2"), spend(2, "n2", 7, 1), {Verb: Begin, What: Authority, Was: []byte("a"), Value: []byte("b"), Cross: []byte("x")}} {
		var w wire.Writer
		c.Token.write(&w)
		f.Add(w.B)
		f.Add((&Root{Cluster: [16]byte{1}, Authority: Turn{Current: c.Was}}).record())
		f.Add(c.Token.record())
	}
	f.Add((&Member{ID: 1, Signer: true, Report: Report{Secret: secret}}).record())
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Command
		if c.decode(b) && c.validate() == nil {
			s := core.New(Family{})
			s.Apply([][]byte{Command{Verb: Found, Cluster: [16]byte{9}, Secret: secret, Member: 1}.Encode(origin), c.Encode(origin)}, make([]core.Result, 2))
			if err := s.Check(); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		}
		in := new(tables)
		in.Root.Cluster = [16]byte{1}
		if in.ReadRecord(b) {
			again := false
			(&View{in.shared}).Write(func(r []byte) bool { again = again || bytes.Equal(r, b); return true })
			if !again {
				t.Fatalf("%x is not written as it was read", b)
			}
		}
	})
}
