package native

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
)

// sight is of which sessions somebody is shown the ids. The zero sight is of none.
type sight struct {
	all bool
	of  auth.Sight
}

// sightOf is what a caller is shown by the policies of now; nil is nobody.
func (d *Door) sightOf(who *caller) sight {
	if who == nil {
		return sight{}
	}
	of := d.rights(who).Sight(auth.SessionRead)
	return sight{all: of.All(), of: of}
}

// sees reports whether a session is shown as what it is; nil is one that is over.
func (s sight) sees(o *core.Session) bool { return s.all || o != nil && s.of.SeesOf(o.Owner()) }

// hiddenPrefix begins what stands for the id of a session that is not shown.
const hiddenPrefix = "hidden:"

// hidden stands for a session's id: the same for all who may not see it, so that
// they can tell sessions apart, and know their own again.
func hidden(id incumbent.SessionID) string {
	sum := sha256.Sum256(append([]byte("incumbent session "), id[:]...))
	return hiddenPrefix + hex.EncodeToString(sum[:8])
}

// sessionID writes the id of a session, as far as it is shown.
func (f *former) sessionID(id incumbent.SessionID) string {
	if id.IsZero() || f.sight.sees(f.view.Session(id)) {
		return id.String()
	}
	return hidden(id)
}
