package kv

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

func leaseName(s string) incumbent.Name {
	return incumbent.Name{Namespace: "n", Model: "m", Lease: s}
}

// heldLease is a lease, its token 0 if nobody holds it.
type heldLease struct {
	Name  incumbent.Name
	Token incumbent.Token
}

// world draws commands, and transactions of them, that mean something to a state.
type world struct{ s *core.State }

func (w *world) lease(t *rapid.T) heldLease {
	name := leaseName(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "lease"))
	if l := leases.Of(w.s.View()).Lease(name); l != nil {
		return heldLease{name, l.Token}
	}
	return heldLease{Name: name}
}

func drawSession(t *rapid.T) incumbent.SessionID {
	return session(rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "session"))
}

func drawKey(t *rapid.T) Key {
	return key(rapid.SampledFrom([]string{"a", "a/b", "a/c", "b", "c"}).Draw(t, "key"))
}

// step draws an operation of a transaction.
func (w *world) step(t *rapid.T) core.Command {
	c := Command{Key: drawKey(t), Value: []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"))}
	switch rapid.IntRange(0, 10).Draw(t, "step") {
	case 0, 1, 2:
		c.Verb, c.Lazy = Put, rapid.Bool().Draw(t, "lazy")
	case 3:
		c.Verb = Put
		if c.If, c.Index = IfIndex, 0; rapid.Bool().Draw(t, "there") {
			if e := Of(w.s.View()).Entry(c.Key); e != nil {
				c.Index = e.Modified
			}
		}
	case 4:
		c.Verb = Remove
	case 5:
		c.Verb, c.Key = RemoveTree, key(rapid.SampledFrom([]string{"", "a"}).Draw(t, "prefix"))
	case 6:
		c.Verb, c.Session, c.Delay = Acquire, drawSession(t), time.Second
	case 7:
		c.Verb, c.Session = Release, drawSession(t)
	case 8, 9:
		l := w.lease(t)
		return leases.ClaimCommand{Name: l.Name, Holder: "h", Session: drawSession(t)}
	default:
		l := w.lease(t)
		if l.Token == 0 {
			return leases.ReleaseCommand{Name: l.Name, Holder: "h", Session: drawSession(t)}
		}
		return leases.ReleaseCommand{Name: l.Name, Token: l.Token}
	}
	return c
}

// other draws a command that is no part of a transaction.
func (w *world) other(t *rapid.T) core.Command {
	switch rapid.IntRange(0, 5).Draw(t, "other") {
	case 0, 1:
		return core.OpenSessionCommand{ID: drawSession(t), TTL: time.Minute}
	case 2:
		return core.CloseSessionCommand{ID: drawSession(t)}
	case 3:
		return leases.ClaimCommand{Name: w.lease(t).Name, Holder: "w", Session: drawSession(t), Wait: true}
	case 4:
		return leases.AcceptCommand{Token: w.lease(t).Token}
	}
	return w.step(t)
}

// condition draws a condition, and says whether it holds for the state.
func (w *world) condition(t *rapid.T) (core.Condition, bool) {
	v := w.s.View()
	near := func(i incumbent.Index) incumbent.Index {
		return max(i+rapid.SampledFrom([]incumbent.Index{0, 0, 0, 1, 2}).Draw(t, "off"), 1) - rapid.SampledFrom([]incumbent.Index{0, 1}).Draw(t, "less")
	}
	c := Condition{Key: drawKey(t)}
	e := Of(v).Entry(c.Key)
	at := incumbent.Index(0)
	if e != nil {
		at = e.Modified
	}
	switch rapid.IntRange(0, 7).Draw(t, "condition") {
	case 0, 1, 2:
		c.Test, c.Index, c.Compare = Modified, near(at), Compare(rapid.IntRange(0, 3).Draw(t, "compare"))
		return c, [...]bool{at == c.Index, at != c.Index, at < c.Index, at > c.Index}[c.Compare]
	case 3:
		c.Test, c.Value, c.Compare = HasValue, []byte("x"), Compare(rapid.IntRange(0, 1).Draw(t, "compare"))
		return c, (e != nil && string(e.Value) == "x") == (c.Compare == Equal)
	case 4:
		c.Test, c.Session = LockedBy, drawSession(t)
		return c, e != nil && e.Session == c.Session
	case 5:
		c.Test, c.Key = None, key("a/")
		n := 0
		Of(v).Ascend(c.Key, Key{}, func(*Entry) bool { n++; return true })
		return c, n == 0
	case 6:
		c.Test, c.Key = Unchanged, key("a")
		last := listIndex(Of(v), c.Key)
		c.Index = near(last)
		return c, last <= c.Index
	}
	if rapid.Bool().Draw(t, "of session") {
		id := drawSession(t)
		return core.IfOpen{ID: id}, v.Session(id) != nil
	}
	l := w.lease(t)
	token := max(l.Token, 1) + rapid.SampledFrom([]incumbent.Token{0, 0, 0, 1}).Draw(t, "off")
	return leases.IfHeld{Name: l.Name, Token: token}, l.Token == token
}

func (w *world) txn(t *rapid.T) (c core.TxnCommand, unmet int) {
	for n := range rapid.IntRange(0, 3).Draw(t, "conditions") {
		is, holds := w.condition(t)
		if c.If = append(c.If, is); !holds && unmet == 0 {
			unmet = n + 1
		}
	}
	for range rapid.IntRange(0, 5).Draw(t, "then") {
		c.Then = append(c.Then, w.step(t))
	}
	for range rapid.IntRange(0, 3).Draw(t, "else") {
		c.Else = append(c.Else, w.step(t))
	}
	c.All = rapid.Bool().Draw(t, "all")
	return c, unmet
}

// plainText is a state without its indexes and tokens: what a transaction makes of it
// is what its operations make of it one after the other.
func plainText(v *core.View) string {
	var b strings.Builder
	Of(v).Ascend(key(""), Key{}, func(e *Entry) bool {
		fmt.Fprintf(&b, "%s=%s by %s, locked %d times\n", e.Name, e.Value, sessionText(e.Session), e.LockIndex)
		return true
	})
	leases.Of(v).All(func(l *leases.Lease) bool {
		fmt.Fprintf(&b, "%s by %s of %s offered=%v history=%d", l.Name.Lease, l.Holder, sessionText(l.Session), l.Offered, len(l.History()))
		for p := range leases.Of(v).Queue(l.Name) {
			fmt.Fprintf(&b, " then %s", sessionText(p.Session))
		}
		b.WriteString("\n")
		return true
	})
	return b.String()
}

func kindOf(r core.Result) incumbent.Kind {
	if r.Err == nil {
		return incumbent.OK
	}
	return r.Err.Kind
}

// A transaction does what its operations do one after the other, if its conditions
// hold, and all is told under one index that no other command has; or, if one of them
// fails, what a command does that changes nothing: the bytes of the states are the same.
func TestG24_ATransactionIsItsOperationsOrNothing(t *testing.T) {
	failed, done, otherwise := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := &smallFamily{limits: limits{perSession: 2, locks: 4, deleted: 3, tombstones: 3}}
		w := &world{core.New(leases.Family{}, f)}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				apply(t, w.s, w.other(t))
				continue
			}
			c, unmet := w.txn(t)
			alone, nothing := reload(t, w.s, f), reload(t, w.s, f)
			before := w.s.View()
			tried, idle := before.Try(c.Pack())
			results, changes := apply(t, w.s, c)
			r, after := results[0], w.s.View()
			if r.Txn == nil || r.Txn.Unmet != unmet {
				t.Fatalf("%+v: %+v, want condition %d not to hold", c, r.Txn, unmet)
			}
			if idle && (len(changes) > 0 || kindOf(tried) != kindOf(r) || tried.Txn.Unmet != unmet || tried.Txn.Failed != r.Txn.Failed) {
				t.Fatalf("%+v: a view says that nothing happens, and %+v; it was %+v, with %d changes", c, tried.Txn, r.Txn, len(changes))
			}
			checkTold(t, changes, r.Index, after)
			ops := c.Then
			if unmet > 0 {
				ops = c.Else
			}
			fails, kind := 0, incumbent.OK
			failures := map[int]incumbent.Kind{}
			for i, op := range ops {
				got, _ := apply(t, alone, op)
				k := kindOf(got[0])
				if k == incumbent.OK {
					continue
				}
				if fails == 0 {
					fails, kind = i+1, k
				}
				if !c.All {
					break
				}
				failures[i+1] = k
			}
			told := map[int]incumbent.Kind{}
			for _, f := range r.Txn.Failures {
				told[f.Operation] = kindOf(f.Result)
			}
			if !maps.Equal(told, failures) {
				t.Fatalf("%+v: operations %v fail, want %v", c, told, failures)
			}
			if r.Txn.Failed != fails || kindOf(r) != kind {
				t.Fatalf("%+v: operation %d fails with %v, want %d with %v", c, r.Txn.Failed, kindOf(r), fails, kind)
			}
			if fails > 0 {
				apply(t, nothing, core.CheckpointCommand{})
				if len(changes) > 0 || len(r.Txn.Results) > 0 || after.Hash() != nothing.View().Hash() {
					t.Fatalf("%+v failed and left something", c)
				}
				failed++
				continue
			}
			if got, want := plainText(after), plainText(alone.View()); got != want {
				t.Fatalf("%+v:\n%swant\n%s", c, got, want)
			}
			if len(r.Txn.Results) != len(ops) {
				t.Fatalf("%d results of %d operations", len(r.Txn.Results), len(ops))
			}
			done++
			if unmet > 0 {
				otherwise++
			}
		}
	})
	if failed == 0 || done == 0 || otherwise == 0 {
		t.Errorf("%d failed, %d were done, %d of them otherwise", failed, done, otherwise)
	}
}

// checkTold verifies that a command's changes are whole, and its tokens its own.
func checkTold(t *rapid.T, changes []core.Change, index incumbent.Index, after *core.View) {
	tokens := map[incumbent.Token]bool{}
	for i := range changes {
		c := &changes[i]
		if c.Index != index {
			t.Fatalf("change %v is told at %d, the command answers %d", c.What, c.Index, index)
		}
		l, _ := leases.ChangeOf(c)
		if l.What != leases.Granted && l.What != leases.Offered {
			continue
		}
		if token := l.Lease.Token; tokens[token] || token > incumbent.Token(index) {
			t.Fatalf("token %d was given before, or is beyond %d", token, index)
		}
		tokens[l.Lease.Token] = true
	}
	if after.Index() != index {
		t.Fatalf("the state has index %d, its newest command %d", after.Index(), index)
	}
}

// Whoever accepted an offer works under its token, whether the log has been told of
// that or not, and nobody ever again under an old one.
func TestG24_TheTokenOfAnOfferIsThatOfAHolding(t *testing.T) {
	s := core.New(leases.Family{}, Family{})
	for _, id := range []string{"s1", "s2"} {
		do(t, s, core.OpenSessionCommand{ID: session(id), TTL: time.Minute})
	}
	name := leaseName("p")
	old := leases.AnswerOf(do(t, s, leases.ClaimCommand{Name: name, Holder: "a", Session: session("s1")})).Lease.Token
	do(t, s, leases.ClaimCommand{Name: name, Holder: "b", Session: session("s2"), Wait: true})
	held := func(token incumbent.Token) bool {
		return do(t, s, core.TxnCommand{If: []core.Condition{leases.IfHeld{Name: name, Token: token}}}).Txn.Unmet == 0
	}
	if !held(old) {
		t.Error("it is not held by who claimed it")
	}
	offer := leases.AnswerOf(do(t, s, core.TxnCommand{Then: []core.Command{leases.ReleaseCommand{Name: name, Token: old}, Command{Verb: Put, Key: key("a")}}}).Txn.Results[0]).Lease
	if !offer.Offered || !held(offer.Token) || held(old) {
		t.Errorf("offered: %v; held under its token: %v, under the old one: %v", offer.Offered, held(offer.Token), held(old))
	}
	do(t, s, leases.AcceptCommand{Token: offer.Token})
	if !held(offer.Token) || held(old) {
		t.Error("once it is accepted it is held under that token, and no other")
	}
}

// FuzzTxn lets any bytes be a transaction on a state that has one of everything: what
// is refused has done nothing, and a view tells what happens.
func FuzzTxn(f *testing.F) {
	name := leaseName("p")
	for _, c := range []core.TxnCommand{
		{},
		{
			If:   []core.Condition{core.IfOpen{ID: session("s")}, Condition{Test: Modified, Key: key("a"), Index: 3}},
			Then: []core.Command{Command{Verb: Put, Key: key("b")}, leases.ClaimCommand{Name: name, Holder: "h", Session: session("s")}},
			Else: []core.Command{Command{Verb: Get, Key: key("b")}, Command{Verb: List, Key: key("")}},
		},
		{
			If:   []core.Condition{leases.IfHeld{Name: name, Token: 5}, Condition{Test: None, Key: key("d/")}},
			Then: []core.Command{leases.ReleaseCommand{Name: name, Token: 5}, Command{Verb: RemoveTree, Key: key("")}, Command{Verb: EndDelay, Key: key("c")}},
		},
		{Then: []core.Command{Command{Verb: Release, Key: key("b"), Session: session("s")}, leases.ClaimCommand{Name: name, Holder: "h", TTL: time.Second, Wait: true}}},
	} {
		f.Add([]byte(c.Pack()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := fullState(t)
		do(t, s, leases.ClaimCommand{Name: name, Holder: "w", TTL: time.Minute})
		before := s.View()
		nothing, err := core.Restore(snapshotOf(t, before), leases.Family{}, &smallFamily{limits: Of(before).limits})
		if err != nil {
			t.Fatal(err)
		}
		tried, idle := before.Try(b)
		results, changes := apply(t, s, core.Txn(b))
		r := results[0]
		if idle && (kindOf(tried) != kindOf(r) || len(changes) > 0) {
			t.Fatalf("%x: a view says %v and that nothing changes; it was %v with %d changes", b, tried.Err, r.Err, len(changes))
		}
		if r.Err == nil {
			return
		}
		apply(t, nothing, core.CheckpointCommand{})
		if len(changes) > 0 || s.View().Hash() != nothing.View().Hash() {
			t.Fatalf("%x was refused, %v, and left something", b, r.Err)
		}
	})
}

func snapshotOf(t *testing.T, v *core.View) *bytes.Buffer {
	var b bytes.Buffer
	if err := v.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// What a transaction is answered is kept with its key, by numbers, and a repeated one
// does nothing.
func TestG25_ATransactionAppliesOnce(t *testing.T) {
	f := ample()
	s := core.New(leases.Family{}, f)
	put := Command{Verb: Put, Key: key("a"), Value: []byte("v"), If: IfIndex}
	for i, c := range []struct {
		txn           core.TxnCommand
		kind          incumbent.Kind
		unmet, failed int
	}{
		{core.TxnCommand{Then: []core.Command{put}}, incumbent.OK, 0, 0},
		{core.TxnCommand{Then: []core.Command{Command{Verb: Put, Key: key("b")}, put}}, incumbent.Conflict, 0, 2},
		{core.TxnCommand{If: []core.Condition{Condition{Test: None, Key: key("")}}, Else: []core.Command{Command{Verb: Get, Key: key("a")}}}, incumbent.OK, 1, 0},
	} {
		b := c.txn.Encode(core.Meta{KeyID: []byte{byte(i)}, KeyBase: s.Index()})
		var first core.Result
		for n := range 3 {
			results := make([]core.Result, 1)
			changes := s.Apply([][]byte{b}, results)
			r := results[0]
			if kindOf(r) != c.kind || r.Txn == nil || r.Txn.Unmet != c.unmet || r.Txn.Failed != c.failed {
				t.Fatalf("%d: %v, %+v", i, r.Err, r.Txn)
			}
			if n == 0 {
				first = r
			} else if !r.Replayed || r.Index != first.Index || len(changes) > 0 || len(r.Txn.Results) > 0 {
				t.Errorf("%d: again: %+v with %d changes", i, r, len(changes))
			}
			s = reload(t, s, f)
		}
	}
}

// A transaction that is too large in any way is refused, and has done nothing.
func TestTransactionsAreBounded(t *testing.T) {
	s := core.New(leases.Family{}, Family{})
	big := make([]byte, MaxValueBytes)
	for i := range 9 {
		do(t, s, Command{Verb: Put, Key: key(fmt.Sprint("big/", i)), Value: big})
	}
	many := func(n int, c core.Command) []core.Command { return slices.Repeat([]core.Command{c}, n) }
	for i := range 20 {
		var puts []core.Command
		for k := range core.MaxTxnSteps / 10 {
			puts = append(puts, Command{Verb: Put, Key: key(fmt.Sprintf("small/%d/%d", i, k))})
		}
		do(t, s, core.TxnCommand{Then: puts})
	}
	put := Command{Verb: Put, Key: key("x")}
	list := Command{Verb: List, Key: key("small/"), KeysOnly: true}
	unchanged := Condition{Test: Unchanged, Key: key("small/"), Index: s.Index()}
	for _, c := range []struct {
		what string
		txn  core.TxnCommand
		want incumbent.Kind
	}{
		{"as many operations as may be", core.TxnCommand{Then: many(core.MaxTxnSteps, put)}, incumbent.OK},
		{"one more", core.TxnCommand{Then: many(core.MaxTxnSteps+1, put)}, incumbent.TooLarge},
		{"one more that is not executed", core.TxnCommand{Else: many(core.MaxTxnSteps+1, put)}, incumbent.TooLarge},
		{"as many records as may be", core.TxnCommand{Then: many(5, list)}, incumbent.OK},
		{"more", core.TxnCommand{Then: append([]core.Command{put}, many(6, list)...)}, incumbent.TooLarge},
		{"more for conditions", core.TxnCommand{If: slices.Repeat([]core.Condition{unchanged}, 6)}, incumbent.TooLarge},
		{"more bytes than may be", core.TxnCommand{Then: []core.Command{put, Command{Verb: List, Key: key("big/")}}}, incumbent.TooLarge},
		{"their keys only", core.TxnCommand{Then: []core.Command{Command{Verb: List, Key: key("big/"), KeysOnly: true}}}, incumbent.OK},
		{"a limit", core.TxnCommand{Then: []core.Command{Command{Verb: List, Key: key("big/"), Limit: 3}}}, incumbent.OK},
	} {
		was := Of(s.View()).Entry(put.Key)
		results, changes := apply(t, s, c.txn)
		if got := kindOf(results[0]); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, results[0].Err, c.want)
		}
		if c.want != incumbent.OK && (len(changes) > 0 || Of(s.View()).Entry(put.Key) != was) {
			t.Errorf("%s: it was refused and has done something", c.what)
		}
	}
}
