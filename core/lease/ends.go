package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Ends implements [core.Ender]. Claims end no holding, nor do pins or what becomes of
// places in queues. A revocation is for all: extensions of a session say which of its
// leases are being revoked.
func (Family) Ends(b []byte, tell func(*core.End)) bool {
	var c command
	if c.decode(b) != nil {
		return false
	}
	switch {
	case c.verb == doRevoke:
		return false
	case c.verb == doExpire, c.verb == doRelease && c.token != 0, c.verb == doTransfer && c.token != 0:
		tell(&core.End{Token: incumbent.Token(c.token)})
	case c.verb == doRelease, c.verb == doTransfer:
		tell(&core.End{Namespace: c.namespace, Model: c.model, Lease: c.lease})
	}
	return true
}
