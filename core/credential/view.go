package credential

import (
	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// View is the family after one batch of commands. It never changes and any number
// of goroutines may read it.
type View struct{ shared }

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView {
	if t.view == nil {
		c := t.shared
		for _, tree := range []**btree.BTreeG[*Credential]{&c.records, &c.ending, &c.ended, &c.closing} {
			*tree = (*tree).Copy()
		}
		c.known = c.known.Copy()
		t.view = &View{c}
	}
	return t.view
}

// Len is the number of records, of tokens and passwords and of certificates.
func (v *View) Len() (credentials, certificates int) {
	return v.records.Len() - v.certificates, v.certificates
}

// Get returns the record of an id, nil if there is none.
func (v *View) Get(id incumbent.Index) *Credential { return v.of(id) }

// Token returns the live credential of a token by its SHA-256, nil if there is none.
func (v *View) Token(sum []byte) *Credential { return v.first(keyOf(Token, "", "", sum)) }

// Tokens reports whether there is a live token.
func (v *View) Tokens() (found bool) {
	v.known.Ascend(known{by: string([]byte{byte(Token)})}, func(k known) bool {
		found = k.c.Method == Token
		return false
	})
	return found
}

// Certificate returns the record of a certificate that was taken back, by its serial
// number, nil if there is none.
func (v *View) Certificate(serial []byte) *Credential { return v.certificate(serial) }

// Passwords are the live records of a principal's passwords in a scope, at most
// [MaxPerAccount], by id.
func (v *View) Passwords(scope, principal string) (list []*Credential) {
	key := keyOf(Password, scope, principal, nil)
	v.known.Ascend(known{by: key}, func(k known) bool {
		if k.by == key {
			list = append(list, k.c)
		}
		return k.by == key
	})
	return list
}

// Ascend calls fn with the records behind an id, by id, until it returns false.
func (v *View) Ascend(after incumbent.Index, fn func(*Credential) bool) {
	v.records.Ascend(&Credential{ID: after + 1}, fn)
}

// Ending calls fn with the records that have an end, and whose end has a meaning
// yet, the first one first, until it returns false: those that are live, and those of
// certificates.
func (v *View) Ending(fn func(*Credential) bool) { v.ending.Scan(fn) }

// Closing calls fn with the records of which sessions are to be closed, by id, until
// it returns false.
func (v *View) Closing(fn func(*Credential) bool) { v.closing.Scan(fn) }

// Ended calls fn with the records of tokens and passwords that have ended and have
// nothing left to do, in the order in which they ended, until it returns false.
func (v *View) Ended(fn func(*Credential) bool) { v.ended.Scan(fn) }

// first returns the first record that a key leads to.
func (t *shared) first(key string) (c *Credential) {
	t.known.Ascend(known{by: key}, func(k known) bool {
		if k.by == key {
			c = k.c
		}
		return false
	})
	return c
}

func (t *shared) certificate(serial []byte) *Credential {
	return t.first(keyOf(Certificate, "", "", serial))
}
