package blackbox

import (
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// What the end of a session of 9,900 leases changes is more than a connection may
// queue.
func TestG15_G18_TheEndOfALargeSession(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	outside.EndsForAll(t, 9_900, m.client())
}
