package catalog

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

var (
	_ core.Ender    = Family{}
	_ core.Chaining = (*View)(nil)
)

// MayFollow implements [core.Chaining]: a service ends with its session, its checks with the
// service, or with another that they come to belong to, and with them who depends on them, as
// on checks that follow a session.
func (v *View) MayFollow(id incumbent.SessionID) bool {
	s := v.session(id)
	return s != nil && len(s.NodeChecks)+len(s.ServiceChecks) > 0
}

// Ends implements [core.Ender]. A session ends with its node, and with a check that it
// depends on, once that is critical or gone; else what is registered, or said of a check,
// ends none. A node that comes with an id may be one that had another name: that goes.
func (Family) Ends(command []byte, _ func(*core.End)) bool {
	var c glance
	if !readInto(command, &c) {
		return false
	}
	switch c.verb {
	case Register:
		return !c.identified && !c.critical
	case UpdateCheck:
		return c.status != Critical
	case OpenSession, Get:
		return true
	}
	return false
}

// glance is what a command says by which it is known whether it may end a session. It is
// looked at for each that is not applied yet, so that nothing is copied.
type glance struct {
	verb       Verb
	identified bool   // it has a node with an id
	critical   bool   // or a check that is critical
	status     Status // it says of a check
}

func (c *glance) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return wire.Small(f, &c.verb)
	case 6:
		var n glancedNode
		ok := nested(f, &n)
		c.identified = n.identified
		return ok
	case 8:
		return f.Each(MaxChecksInCommand, func(b []byte) bool {
			var k glancedCheck
			ok := readInto(b, &k)
			c.critical = c.critical || k.status == Critical
			return ok
		})
	case 12:
		return wire.Small(f, &c.status)
	}
	return true
}

type glancedNode struct{ identified bool }

func (n *glancedNode) set(f *wire.Field) bool {
	n.identified = n.identified || f.Num == 12 && len(f.B) > 0
	return true
}

type glancedCheck struct{ status Status }

func (c *glancedCheck) set(f *wire.Field) bool { return f.Num != 14 || wire.Small(f, &c.status) }
