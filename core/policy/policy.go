// Package policy is the family of policies: who may do what. A policy has a name,
// and is stored and deleted as a whole, if wanted only as long as it was last
// modified at a given index. What policies mean is package auth's; here they are
// kept, in the order of their names, with who changed them last.
//
// # Invariants
//
//   - Every policy is valid ([auth.Policy.Validate]), and all together have no more
//     than [MaxPolicies] and [MaxBytes].
//   - Changed is the index of the newest change: it is no lower than any policy's
//     Modified, and moves with a deletion too. Rights that were looked up are good
//     for as long as it stays.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package policy

import (
	"fmt"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family, and schema the version that brought it.
const (
	Number wire.Number = 44
	schema uint32      = 5
)

// Limits of the family. They decide what a command does: changing one is a new
// schema version. Those of one policy are package auth's.
const (
	MaxPolicies    = 10_000
	MaxPolicyBytes = 256 << 10 // one policy as it is stored
	MaxBytes       = 16 << 20  // all of them
	treeDegree     = 16
)

// Policy is one policy. A *Policy reached through a [View] never changes.
type Policy struct {
	auth.Policy
	Created  incumbent.Index
	Modified incumbent.Index
	By       string    // principal that modified it
	At       time.Time // when that was, by the clock of the member that was asked: for people
}

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return schema }

// Name implements [core.Family].
func (Family) Name() string { return "policies" }

// New implements [core.Family].
func (Family) New() core.Tables { return newTables() }

// limits are those that a test needs smaller.
type limits struct{ policies, bytes int }

type tables struct {
	policies *btree.BTreeG[*Policy]
	bytes    int             // that all of them have as they are stored
	changed  incumbent.Index // the newest change
	view     *View           // nil: something has changed since
	limits   limits
}

func newTables() *tables {
	return &tables{
		policies: btree.NewBTreeGOptions(func(a, b *Policy) bool { return a.Name < b.Name }, btree.Options{NoLocks: true, Degree: treeDegree}),
		limits:   limits{MaxPolicies, MaxBytes},
	}
}

func named(name string) *Policy { return &Policy{Policy: auth.Policy{Name: name}} }

// put stores n in the place of o; either may be nil.
func (t *tables) put(o, n *Policy) {
	t.view = nil
	if o != nil {
		t.bytes -= o.size()
		t.policies.Delete(o)
	}
	if n != nil {
		t.bytes += n.size()
		t.policies.Set(n)
	}
}

func (p *Policy) size() int {
	var w recordWriter
	return len(w.policy(p))
}

// Changed implements [core.Judging].
func (t *tables) Changed() incumbent.Index { return t.changed }

// EndSession implements [core.Tables].
func (*tables) EndSession(*core.Exec, *core.Ending) {}

// Check implements [core.Tables].
func (t *tables) Check(_ func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	bytes := 0
	t.policies.Scan(func(p *Policy) bool {
		bytes += p.size()
		switch e := p.Validate(); {
		case e != nil:
			err = fmt.Errorf("policy %.80q: %w", p.Name, e)
		case p.Created == 0 || p.Created > p.Modified || p.Modified > t.changed:
			err = fmt.Errorf("policy %.80q: created at %d and modified at %d, the newest change is of %d", p.Name, p.Created, p.Modified, t.changed)
		}
		return err == nil
	})
	switch n := t.policies.Len(); {
	case err != nil:
		return err
	case bytes != t.bytes || n > t.limits.policies || bytes > t.limits.bytes:
		return fmt.Errorf("%d policies of %d bytes, %d are counted", n, bytes, t.bytes)
	case t.changed > index:
		return fmt.Errorf("the newest change is of %d, the state's index is %d", t.changed, index)
	}
	return nil
}

// View is the family after one batch of commands. It never changes and any number
// of goroutines may read it. As long as no policy changes it is the same View.
type View struct {
	policies *btree.BTreeG[*Policy]
	changed  incumbent.Index
	bytes    int

	once  sync.Once // compiles rules
	rules *auth.Rules
}

// Of is the family's view of a state; nil if that has none.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// JudgedBy is what goes with a command whose caller is judged by the policies of a
// view, or of a later one: see [core.Meta]. It is asked for before they are looked at.
func JudgedBy(v *core.View) incumbent.Index {
	return v.Index() + 1
}

// Outlived reports whether policies have changed in a view since a caller was judged by those
// of an index, see JudgedBy: what an older view shows, too, is then for nobody who was let see
// it before. Apply judges commands alike.
func Outlived(v *core.View, judged incumbent.Index) bool {
	return judged != 0 && Of(v).Changed() >= judged
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView {
	if t.view == nil {
		t.view = &View{policies: t.policies.Copy(), changed: t.changed, bytes: t.bytes}
	}
	return t.view
}

// Rules are the policies, compiled when they are first asked for; nil: there are
// none. A view that is nil has none.
func (v *View) Rules() *auth.Rules {
	if v == nil {
		return nil
	}
	v.once.Do(func() {
		list := make([]*auth.Policy, 0, v.policies.Len())
		v.policies.Scan(func(p *Policy) bool {
			list = append(list, &p.Policy)
			return true
		})
		v.rules = auth.Compile(list, v.changed)
	})
	return v.rules
}

// Len is how many policies there are.
func (v *View) Len() int { return v.policies.Len() }

// Changed is the index of the newest change, 0: there never was one.
func (v *View) Changed() incumbent.Index { return v.changed }

// Policy returns the policy of a name, nil if there is none.
func (v *View) Policy(name string) *Policy {
	p, _ := v.policies.Get(named(name))
	return p
}

// Ascend calls fn with the policies behind a name, in their order, until it returns
// false.
func (v *View) Ascend(after string, fn func(*Policy) bool) {
	v.policies.Ascend(named(after), func(p *Policy) bool { return p.Name == after || fn(p) })
}
