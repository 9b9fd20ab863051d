package core

import "github.com/incumbent-dev/incumbent"

// View is the state after one batch of commands. It never changes and any
// number of goroutines may read it. It keeps the records it shows in memory,
// so hold the newest one only.
type View struct {
	shared
	kinds    []Family     // by number
	families []FamilyView // the same
	terms    *Terms
	usage    *Usage
}

// Terms are what the settings of the cluster say in this state; never nil.
func (v *View) Terms() *Terms { return v.holding(v.terms) }

// Usage is what principals and namespaces have: by the newest command, not by the
// one of the view.
func (v *View) Usage() *Usage { return v.usage }

// Index is that of the newest command.
func (v *View) Index() incumbent.Index { return v.index }

// KeysFloor is the index below which a key's base is refused: results of
// commands up to it may have been forgotten.
func (v *View) KeysFloor() incumbent.Index { return v.keysFloor }

// SessionCount is the number of open sessions.
func (v *View) SessionCount() int { return v.sessions.Len() }

// KeptCount is the number of results kept for idempotency keys.
func (v *View) KeptCount() int { return v.kept.Len() }

// Keeps reports whether the result of a command with a key is kept. It looks at all
// that are, newest first: [MaxKeptResults] at most.
func (v *View) Keeps(key []byte) (found bool) {
	v.kept.Reverse(func(k kept) bool {
		found = k.id() == string(key)
		return !found
	})
	return found
}

// Held reports whether a lease is held under a token, or offered.
func (v *View) Held(name incumbent.Name, token incumbent.Token) bool {
	for _, f := range v.families {
		if h, ok := f.(Holding); ok {
			return h.Held(name, token)
		}
	}
	return false
}

// Session returns an open session, nil if it is not open.
func (v *View) Session(id incumbent.SessionID) *Session { return v.session(id) }

// Sessions calls fn with the open sessions that come behind an id, by id, until
// it returns false.
func (v *View) Sessions(after incumbent.SessionID, fn func(*Session) bool) {
	v.sessions.Ascend(&Session{ID: after}, func(s *Session) bool {
		return s.ID == after || fn(s)
	})
}
