// Package trust is the family of what the members of a cluster trust: the tokens
// with which others may join, which secret and which certificate authority are the
// cluster's, and what each member has of them.
//
// Nothing secret is kept here. Of a token there is what it is good for, of a secret
// its SHA-256, of an authority its certificate: whoever reads a backup can do
// nothing with them. Secrets and keys stay in members' data directories and travel
// between members.
//
// A secret and an authority are exchanged in the same way. [Begin] puts the next
// one beside the current one. Every member reports what it has ([Report]), and goes
// on to the next step when all members of the cluster have done the one before.
// [Finish] puts the next one in the place of the current one. So a member that is
// down holds the exchange up, and is not locked out by it.
//
// # Invariants
//
//   - A token is spent by one member, with one key, for ever: what is spent is kept
//     until the token would have ended anyway.
//   - There is at most one next secret, and one next authority.
//   - A trust belongs to one cluster: [Found] of another cluster's, as after a
//     restore, begins with nothing.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package trust

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family, and schema the version that brought it.
const (
	Number wire.Number = 52
	schema uint32      = 5

	// AuthoritySchema brought that a cluster which was founded without an authority is given one.
	AuthoritySchema uint32 = 11
)

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	MaxTokens         = 1024                // outstanding, or spent and not ended
	MaxMembers        = 4 * core.MaxMembers // that are remembered; those that are gone make room
	MaxNameBytes      = core.MaxMemberName
	MaxMakerBytes     = core.MaxOriginBytes // of who made a token
	MaxAuthorityBytes = 8 << 10             // a certificate in DER
	HashBytes         = 32
	TokenIDBytes      = 8
)

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return schema }

// Name implements [core.Family].
func (Family) Name() string { return "trust" }

// New implements [core.Family].
func (Family) New() core.Tables { return new(tables) }

// Hash is a SHA-256. Zero: of nothing.
type Hash [HashBytes]byte

// TokenID names a token. It is no secret.
type TokenID [TokenIDBytes]byte

// Turn is what is current, and what is to take its place; nil: nothing is. Of a
// secret both are hashes, of an authority certificates in DER. They are not to be
// changed.
type Turn struct{ Current, Next []byte }

// Root is what the whole cluster trusts. The zero value is that of a cluster that
// has not been founded.
type Root struct {
	Cluster   [16]byte
	Secret    Turn
	Authority Turn
	// Cross is the next authority's key certified by the current one, in DER: who
	// trusts the current one alone follows it. nil: there was no key to make it.
	Cross []byte
	Epoch uint64 // how often all members' keys and certificates were asked to be made anew
}

// Token lets one member join. It never changes.
type Token struct {
	ID      TokenID
	Name    string    // of the member that it is for
	Expires time.Time // to the second
	Signer  bool      // that member is to have the authority's key
	Maker   string    // who asked for it
	Spender uint64    // id of the member that joined with it; 0: it is outstanding
	Key     Hash      // of the spender's public key
}

// Member is what a member has of the cluster's trust, as it says itself. It never
// changes.
type Member struct {
	ID     uint64
	Signer bool    // it is to have the authority's key
	Token  TokenID // it joined with; zero: with none
	Report
}

// Report is what a member says that it has.
type Report struct {
	Secret Hash   // newest that it accepts; zero: it has said nothing yet
	Trusts Hash   // of the certificate of the newest authority that it trusts
	Shows  Hash   // of that which signed the certificate it shows
	Epoch  uint64 // of its key
	Signs  bool   // it has the key of an authority that it trusts
}

// shared is what a View sees; lists are never changed in place.
type shared struct {
	Root
	tokens  []*Token  // by id
	members []*Member // by id
}

// View is the family after one batch of commands. It never changes and any number
// of goroutines may read it.
type View struct{ shared }

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// Tokens returns the tokens, by id. The list is not to be changed.
func (v *View) Tokens() []*Token { return v.tokens }

// Token returns a token; nil if there is none.
func (v *View) Token(id TokenID) *Token { return v.token(id) }

// Refusal is the error that a Spend of a token (ID, Name, Spender and Key) would answer
// for the token's sake; nil: none.
func (v *View) Refusal(by *Token, now time.Time) error {
	if err := v.refusal(by, now); err != nil {
		return err
	}
	return nil
}

// Member returns what is known of a member; nil: nothing is.
func (v *View) Member(id uint64) *Member { return v.member(id) }

// Members returns what is known of members, by id. The list is not to be changed.
func (v *View) Members() []*Member { return v.members }

type tables struct{ shared }

// View implements [core.Tables].
func (t *tables) View() core.FamilyView { return &View{t.shared} }

// EndSession implements [core.Tables]: a session has nothing here.
func (t *tables) EndSession(*core.Exec, *core.Ending) {}

func (t *shared) token(id TokenID) *Token {
	if i, ok := tokenPlace(t.tokens, id); ok {
		return t.tokens[i]
	}
	return nil
}

func (t *shared) member(id uint64) *Member {
	if i, ok := memberPlace(t.members, id); ok {
		return t.members[i]
	}
	return nil
}

func tokenPlace(list []*Token, id TokenID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(t *Token, id TokenID) int { return slices.Compare(t.ID[:], id[:]) })
}

func memberPlace(list []*Member, id uint64) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(m *Member, id uint64) int { return cmp.Compare(m.ID, id) })
}

// putToken stores a token in the place of the one with its id.
func (t *tables) putToken(n *Token) {
	i, ok := tokenPlace(t.tokens, n.ID)
	t.tokens = replaced(t.tokens, i, ok, n)
}

// putMember stores what is known of a member.
func (t *tables) putMember(n *Member) {
	i, ok := memberPlace(t.members, n.ID)
	t.members = replaced(t.members, i, ok, n)
}

// replaced returns a new list with n at i, in the place of what is there if there is.
func replaced[T any](list []T, i int, there bool, n T) []T {
	list = slices.Clone(list)
	if there {
		list[i] = n
		return list
	}
	return slices.Insert(list, i, n)
}

// Check implements [core.Tables].
func (t *tables) Check(_ func(incumbent.SessionID) bool, _ incumbent.Index) error {
	if t.Cluster == ([16]byte{}) && (t.Records() > 0 || t.Epoch > 0) {
		return fmt.Errorf("a cluster that was not founded has %d records", t.Records())
	}
	if err := t.Root.check(); err != nil {
		return err
	}
	for i, k := range t.tokens {
		if i > 0 && slices.Compare(t.tokens[i-1].ID[:], k.ID[:]) >= 0 || !validName(k.Name) || len(k.Maker) > MaxMakerBytes {
			return fmt.Errorf("token %x is out of order, or has no name", k.ID)
		}
	}
	for i, m := range t.members {
		if m.ID == 0 || i > 0 && t.members[i-1].ID >= m.ID {
			return fmt.Errorf("member %d is out of order", m.ID)
		}
	}
	if len(t.tokens) > MaxTokens || len(t.members) > MaxMembers {
		return fmt.Errorf("%d tokens and %d members, limits are %d and %d", len(t.tokens), len(t.members), MaxTokens, MaxMembers)
	}
	return nil
}

func (r *Root) check() error {
	for _, h := range [][]byte{r.Secret.Current, r.Secret.Next} {
		if len(h) != 0 && len(h) != HashBytes {
			return fmt.Errorf("a secret's hash has %d bytes", len(h))
		}
	}
	for _, c := range [][]byte{r.Authority.Current, r.Authority.Next, r.Cross} {
		if len(c) > MaxAuthorityBytes {
			return fmt.Errorf("an authority's certificate has %d bytes", len(c))
		}
	}
	if len(r.Authority.Next) == 0 && len(r.Cross) > 0 {
		return fmt.Errorf("a cross certificate, and no authority that it is for")
	}
	return nil
}

func validName(name string) bool {
	return name != "" && len(name) <= MaxNameBytes && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
}
