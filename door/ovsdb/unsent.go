package ovsdb

import (
	"sync"
	"unsafe"

	"github.com/incumbent-dev/incumbent/admit"
)

// unsent is what waits for readers, beyond a little of each connection. What waits for many
// is kept once, and counts once: in the name of one of those for whom it still waits. Whoever
// has much of it waiting is cut off before who has little.
type unsent struct {
	room admit.Room // bytes

	mu     sync.Mutex       // guards pieces; held to look one up
	pieces map[*byte]*keeps // by where they begin
}

// keeps is for whom a piece is kept.
type keeps struct {
	readers map[admit.Who]int // how many of each
	who     admit.Who         // of them, in whose name it counts
	bytes   int64
}

// take counts a piece for one more reader; false: there is no room for it.
func (u *unsent) take(who admit.Who, piece []byte, most int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, n := unsafe.SliceData(piece), int64(len(piece))
	if k := u.pieces[at]; k != nil {
		k.readers[who]++
		return true
	}
	if !u.room.Take(who, n, most) {
		return false
	}
	if u.pieces == nil {
		u.pieces = map[*byte]*keeps{}
	}
	u.pieces[at] = &keeps{map[admit.Who]int{who: 1}, who, n}
	return true
}

// give says that a reader has been sent a piece, or will never be.
func (u *unsent) give(who admit.Who, piece []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := unsafe.SliceData(piece)
	k := u.pieces[at]
	if k.readers[who]--; k.readers[who] > 0 {
		return
	}
	delete(k.readers, who)
	switch {
	case len(k.readers) == 0:
		delete(u.pieces, at)
		u.room.Give(k.who, k.bytes)
	case k.who == who:
		for k.who = range k.readers { // any of them
			break
		}
		u.room.Move(who, k.who, k.bytes)
	}
}
