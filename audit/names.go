package audit

import (
	"strconv"

	"github.com/incumbent-dev/incumbent"
)

// maxNames bounds what [Names] makes of several names, in bytes. Who reads a log wants to
// know what a change was about, not all of it.
const maxNames = 512

// Names is the subject of a record of what is done to several things at once: their names,
// as far as there is room for them, and how many there are besides. The zero value has none.
type Names struct {
	text []byte
	last string
	more int
}

// Add adds a name, unless it was the last one, too.
func (n *Names) Add(name string) {
	again := name == n.last
	n.last = name
	switch {
	case len(n.text) == 0:
		n.text = append(n.text, cut(name)...)
	case again:
	case n.more > 0 || len(n.text)+len(name) > maxNames:
		n.more++
	default:
		n.text = append(append(n.text, ", "...), name...)
	}
}

// AddOf is Add of what name returns, which is not asked once there is no more room.
func (n *Names) AddOf(name func() string) {
	if n.more > 0 {
		n.more++
		return
	}
	n.Add(name())
}

// None reports whether no name was added.
func (n *Names) None() bool { return len(n.text) == 0 }

// String returns the subject; "": there is none.
func (n *Names) String() string {
	if n.more == 0 {
		return string(n.text)
	}
	return string(n.text) + " and " + strconv.Itoa(n.more) + " more"
}

// In is the subject of a record about a name of a namespace: of a key, a node, a service or
// a database.
func In(namespace, name string) string { return namespace + ":" + name }

// Session is the subject of a record about a session.
func Session(id incumbent.SessionID) string { return "session " + id.String() }
