package consul

import (
	"testing"
)

// Who asks with an index that it had from another member is told no less, once this one
// has got that far: what it shows is right at that index. Of one that has not, the index
// is that of what is shown: to say more would have its client miss what comes between.
func TestG14_AnIndexOfAnotherMember(t *testing.T) {
	m := startMember(t, nil)
	m.instance("a", "web", "passing")
	changed := m.get("/v1/health/service/web").index()
	m.ok("PUT /v1/kv/k 1", "PUT /v1/kv/k 2")
	now := m.group.View().Index()
	const wait = "&stale&wait=1ms"
	for _, tt := range []struct{ name, asks, want string }{
		{"what it was told here", changed, changed},
		{"a later one, which is here", formatIndex(now), formatIndex(now)},
		{"one that is not here yet", formatIndex(now + 100), changed},
	} {
		if got := m.get("/v1/health/service/web?index=" + tt.asks + wait).index(); got != tt.want {
			t.Errorf("%s: index %s, want %s", tt.name, got, tt.want)
		}
	}
	c := m.dial()
	c.get("/v1/health/service/web?stale&index=" + formatIndex(now+1))
	m.blocked(1)
	m.instance("b", "web", "passing") // of the index that it has
	m.blocked(1)
	m.instance("c", "web", "passing")
	if a := c.read("GET"); a.index() != formatIndex(m.group.View().Index()) {
		t.Errorf("woken with index %s, want %d", a.index(), m.group.View().Index())
	}
}
