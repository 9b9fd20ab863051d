package blackbox

import (
	"strconv"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

func TestKeysOfOneMember(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	outside.Keys(t, m.url, m.client())
}

// A watch of keys goes on when its member is killed and started again: each change
// once, in order.
func TestG16_WatchOfKeysResumesAfterAKill(t *testing.T) {
	dir := t.TempDir()
	m := start(t, dir, nil)
	address := strings.TrimPrefix(m.url, "http://")
	const changes, rounds = 20, 3
	put := func(i int) {
		t.Helper()
		if _, err := m.client().KV("").Put(t.Context(), "w/0", []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	put(-1)
	w := outside.WatchKeys(t, m.url, "w/")
	for i := range changes * rounds {
		if i > 0 && i%changes == 0 {
			m.kill()
			m = start(t, dir, nil, "--listen", address)
		}
		put(i)
		w.Expect(strconv.Itoa(i))
	}
	w.End()
}
