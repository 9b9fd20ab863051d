package consul

import (
	"net/http"
	"runtime"
	"testing"
)

// What renews a session is heard before an expiry, also where it waits behind other requests
// for a goroutine of the door's: the barrier passes once it has been handed on.
func TestG07_TheBarrierHearsRenewals(t *testing.T) {
	m := startMember(t, nil)
	id := m.create(`{"TTL":"10s"}`)
	began, release := make(chan struct{}), make(chan struct{})
	for range changers {
		m.door.changes.Put(func() { began <- struct{}{}; <-release })
		<-began
	}
	renewed := make(chan int, 1)
	go func() { renewed <- m.do("PUT", "/v1/session/renew/"+id, "").StatusCode }()
	u := &m.door.unheard
	waiting := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.out)
	}
	for waiting() == 0 {
		runtime.Gosched()
	}
	passed := make(chan struct{})
	m.door.Barrier(func() { close(passed) })
	select {
	case <-passed:
		t.Error("the barrier passed before the renewal was handed on")
	default:
	}
	close(release)
	<-passed
	if got := <-renewed; got != http.StatusOK {
		t.Errorf("renewed: %d", got)
	}
	if waiting() != 0 {
		t.Error("what was answered counts as not heard")
	}
	m.door.Barrier(func() { passed = nil })
	if passed != nil {
		t.Error("with nothing to wait for it does not pass at once")
	}
}

func TestWhatKeepsAlive(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/session/renew/a": true, "/v1/agent/check/pass/a": true, "/v1/agent/check/update/a": true, "/v1/agent/check/warn/a": true, "/v1/agent/check/fail/a": true,
		"/v1/agent/check/register": false, "/v1/session/create": false, "/v1/kv/a": false,
	} {
		if keepsAlive(http.MethodPut, path) != want || keepsAlive(http.MethodGet, path) {
			t.Errorf("%s: want %v, and never of a read", path, want)
		}
	}
}
