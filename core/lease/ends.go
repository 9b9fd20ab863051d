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
	switch c.verb {
	case doClaim, doAccept, doPin, doUnpin, doLeaveQueue:
		return true
	case doExpire, doRelease, doTransfer:
		if c.verb == doExpire || c.token != 0 {
			tell(&core.End{Token: incumbent.Token(c.token)})
		} else {
			tell(&core.End{Namespace: c.namespace, Model: c.model, Lease: c.lease})
		}
		return true
	}
	return false // a revocation, or something of which nothing is known here
}
