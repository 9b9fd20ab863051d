//go:build !linux

package client

import "time"

// boottime uses the wall clock where no monotonic clock that counts suspended
// time is at hand.
//
// BUG(client): on systems other than Linux a wall clock that is set back makes
// a holder believe in its lease for longer than the server does.
func boottime() time.Duration { return time.Duration(time.Now().UnixNano()) }
