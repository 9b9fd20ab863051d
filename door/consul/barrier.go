package consul

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// unheard are requests that may keep something alive, from when they are there whole until
// they have been handed on: meanwhile they wait behind others for a goroutine of the door's.
type unheard struct {
	mu    sync.Mutex // held for moments
	next  uint64
	out   []uint64 // numbers of those, in order
	waits []hearing
}

// hearing waits for all requests whose numbers are lower.
type hearing struct {
	upTo uint64
	done func()
}

// keepsAlive reports whether a request renews a session or says how a check is.
func keepsAlive(method, path string) bool {
	if method != http.MethodPut {
		return false
	}
	rest, check := strings.CutPrefix(path, "/v1/agent/check/")
	if check {
		verb, _, _ := strings.Cut(rest, "/")
		return verb == "pass" || verb == "warn" || verb == "fail" || verb == "update"
	}
	return strings.HasPrefix(path, "/v1/session/renew/")
}

// came counts a request; left is called once with what it returns.
func (u *unheard) came() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next++
	u.out = append(u.out, u.next)
	return u.next
}

func (u *unheard) left(n uint64) {
	u.mu.Lock()
	if i, ok := slices.BinarySearch(u.out, n); ok {
		u.out = slices.Delete(u.out, i, i+1)
	}
	var over []hearing
	u.waits = slices.DeleteFunc(u.waits, func(h hearing) bool {
		heard := len(u.out) == 0 || u.out[0] > h.upTo
		if heard {
			over = append(over, h)
		}
		return heard
	})
	u.mu.Unlock()
	for _, h := range over {
		h.done()
	}
}

// Barrier calls done, once, when every request that was there whole before and may keep a
// session or a check alive has been handed on or answered. done is called from within Barrier
// or from a goroutine of the door's, and must not block.
func (d *Door) Barrier(done func()) {
	u := &d.unheard
	u.mu.Lock()
	wait := len(u.out) > 0
	if wait {
		u.waits = append(u.waits, hearing{u.next, done})
	}
	u.mu.Unlock()
	if !wait {
		done()
	}
}
