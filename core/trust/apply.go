package trust

import (
	"bytes"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Apply implements [core.Tables]. What changes nothing succeeds and is not told.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var c Command
	if !c.decode(b) {
		return refused(incumbent.Invalid, "malformed command")
	}
	if err := c.validate(); err != nil {
		return core.Result{Err: err}
	}
	if c.Verb == Found {
		if t.found(x, &c) {
			return t.told(x, core.Result{})
		}
		return core.Result{}
	}
	if t.Cluster == ([16]byte{}) {
		return refused(incumbent.Unavailable, "the cluster's trust has not been founded")
	}
	switch c.Verb {
	case Offer:
		return t.told(x, t.offer(&c))
	case Spend:
		return t.told(x, t.spend(&c))
	case Withdraw:
		return t.told(x, t.withdraw(&c))
	case Say:
		return t.told(x, t.say(&c))
	case Forget:
		t.forget(&c)
		return t.told(x, core.Result{})
	case Begin:
		return t.told(x, t.begin(&c))
	case Finish:
		return t.told(x, t.finish(&c))
	case Abandon:
		return t.told(x, t.abandon(&c))
	default:
		t.Epoch++
		return t.told(x, core.Result{})
	}
}

func refused(k incumbent.Kind, message string) core.Result {
	return core.Result{Err: &incumbent.Error{Kind: k, Message: message}}
}

// told tells that something may have changed, unless the command was refused.
func (t *tables) told(x *core.Exec, r core.Result) core.Result {
	if r.Err == nil {
		x.Tell(Family{}, core.FamilyChange{})
	}
	return r
}

// found makes the cluster's trust, and reports whether that changed anything. A cluster without
// an authority, whose first member was alone until now, is given the one that it was prepared
// with.
func (t *tables) found(x *core.Exec, c *Command) bool {
	if t.Cluster == c.Cluster {
		if len(t.Authority.Current) > 0 || len(c.Authority) == 0 || x.ActiveSchema() < AuthoritySchema {
			return false
		}
		t.Authority = Turn{Current: c.Authority}
		signer := Member{ID: c.Member}
		if m := t.member(c.Member); m != nil {
			signer = *m
		}
		signer.Signer = true
		t.putMember(&signer)
		return true
	}
	*t = tables{shared{Root: Root{
		Cluster: c.Cluster, Secret: Turn{Current: bytes.Clone(c.Secret[:])}, Authority: Turn{Current: c.Authority},
	}}}
	t.putMember(&Member{ID: c.Member, Signer: true})
	return true
}

// ended lets go of tokens that are over.
func (t *tables) ended(now time.Time) {
	over := func(k *Token) bool { return !now.Before(k.Expires) && !t.waiting(k) }
	if slices.ContainsFunc(t.tokens, over) {
		t.tokens = slices.DeleteFunc(slices.Clone(t.tokens), over)
	}
}

// waiting reports whether a token's spender has not come up yet: until it has, it
// proves by the token who it is.
func (t *shared) waiting(k *Token) bool {
	m := t.member(k.Spender)
	return k.Spender != 0 && m != nil && m.Token == k.ID && m.Secret == Hash{}
}

func (t *tables) offer(c *Command) core.Result {
	t.ended(c.Now)
	if t.token(c.Token.ID) != nil {
		return refused(incumbent.Exists, "there is a join token of this id")
	}
	if len(t.tokens) >= MaxTokens {
		return refused(incumbent.TooLarge, "too many join tokens: limit MaxTokens")
	}
	k := c.Token
	t.putToken(&k)
	return core.Result{}
}

func (t *tables) spend(c *Command) core.Result {
	if err := t.refusal(&c.Token, c.Now); err != nil {
		return core.Result{Err: err}
	}
	k := t.token(c.Token.ID)
	switch {
	case k.Spender != 0:
		return core.Result{}
	case t.member(c.Token.Spender) != nil:
		return refused(incumbent.Denied, "this id belongs to a member that has joined already")
	case len(t.members) >= MaxMembers:
		return refused(incumbent.TooLarge, "too many members are remembered: limit MaxMembers")
	}
	n := *k
	n.Spender, n.Key = c.Token.Spender, c.Token.Key
	t.putToken(&n)
	t.putMember(&Member{ID: n.Spender, Signer: n.Signer, Token: n.ID})
	return core.Result{}
}

// refusal is why a member cannot join with a token (ID, Name, Spender and Key); nil: it
// can, or has and has not come up yet.
func (t *shared) refusal(by *Token, now time.Time) *incumbent.Error {
	k, why := t.token(by.ID), ""
	switch {
	case k == nil:
		why = "this join token is not outstanding"
	case k.Name != by.Name:
		why = "this join token is for a member of another name"
	case k.Spender != 0 && (k.Spender != by.Spender || k.Key != by.Key || !t.waiting(k)):
		why = "this join token has been used"
	case k.Spender == 0 && !now.Before(k.Expires):
		why = "this join token has ended"
	default:
		return nil
	}
	return &incumbent.Error{Kind: incumbent.Denied, Message: why}
}

func (t *tables) withdraw(c *Command) core.Result {
	i, ok := tokenPlace(t.tokens, c.Token.ID)
	if !ok || t.tokens[i].Spender != 0 {
		return refused(incumbent.NotFound, "no such join token is outstanding")
	}
	t.tokens = slices.Delete(slices.Clone(t.tokens), i, i+1)
	return core.Result{}
}

func (t *tables) say(c *Command) core.Result {
	n := &Member{ID: c.Member}
	if o := t.member(c.Member); o != nil {
		*n = *o
	} else if len(t.members) >= MaxMembers {
		return refused(incumbent.TooLarge, "too many members are remembered: limit MaxMembers")
	}
	n.Report = c.Report
	t.putMember(n)
	return core.Result{}
}

func (t *tables) forget(c *Command) {
	if i, ok := memberPlace(t.members, c.Member); ok {
		t.members = slices.Delete(slices.Clone(t.members), i, i+1)
	}
}

func (t *tables) turn(w What) *Turn {
	if w == Secret {
		return &t.Secret
	}
	return &t.Authority
}

func (t *tables) begin(c *Command) core.Result {
	turn := t.turn(c.What)
	switch {
	case bytes.Equal(turn.Next, c.Value):
		return core.Result{}
	case len(turn.Next) > 0:
		return refused(incumbent.Conflict, "an exchange is under way")
	case len(turn.Current) == 0 || !bytes.Equal(turn.Current, c.Was):
		return refused(incumbent.Conflict, "what is to be replaced is not current")
	}
	turn.Next = c.Value
	if c.What == Authority {
		t.Cross = c.Cross
	}
	return core.Result{}
}

func (t *tables) finish(c *Command) core.Result {
	turn := t.turn(c.What)
	if bytes.Equal(turn.Current, c.Value) {
		return core.Result{}
	}
	if !bytes.Equal(turn.Next, c.Value) {
		return refused(incumbent.Conflict, "another exchange is under way, or none")
	}
	*turn = Turn{Current: turn.Next}
	if c.What == Authority {
		t.Cross = nil
	}
	return core.Result{}
}

func (t *tables) abandon(c *Command) core.Result {
	turn := t.turn(c.What)
	if !bytes.Equal(turn.Next, c.Value) {
		return refused(incumbent.Conflict, "another exchange is under way, or none")
	}
	turn.Next = nil
	if c.What == Authority {
		t.Cross = nil
	}
	return core.Result{}
}
