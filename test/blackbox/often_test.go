package blackbox

import (
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// One Extend that names the same session over and over costs its member no more than
// the session's leases do once.
func TestG40_ASessionNamedOftenOnOneMember(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	outside.ExtendOften(t, m.client(), m.url)
}
