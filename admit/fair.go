package admit

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// Who says for whom work is done, so that those who send much leave room for those
// who send little. Zero means that it is not told apart.
type Who struct {
	Client Key // a principal, or an address
	Group  Key // a model, a namespace, a service, a database
}

// Key stands for a name. Names may share one: they share their room then, until the
// member is started again.
type Key uint32

var seed = maphash.MakeSeed() // nobody can choose names that share a key

// KeyOf returns the key of a name, never 0.
func KeyOf(name string) Key { return Key(maphash.String(seed, name)) | 1<<31 }

// Of returns the key of a name within what k stands for, as of a model in a namespace; never 0.
func (k Key) Of(name string) Key { return (k*31 ^ KeyOf(name)) | 1<<31 }

// ClientOf returns the key of a client: its principal's name, or, of one that says no
// name, its address without the port.
func ClientOf(principal, address string) Key {
	if principal != "" {
		return KeyOf(principal)
	}
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		address = address[:i]
	}
	return KeyOf(address)
}

const (
	levels = 2    // clients, and groups of them
	shares = 1024 // places in a lane's account of who has how much under way
)

// shareOfFree is how many times as much as the lane has free one client, and one group, may
// have under way: who sends too much leaves a fifth of the lane to others, two who do a
// ninth, and so on. A group may have twice as much, or one client would leave nothing to the
// others of its group, which all belong to where nobody names one. A lane that is refused
// work for that is taken for one at its limit, which grows if nothing waits: no room is lost.
var shareOfFree = [levels]int64{4, 8}

// account is how much of a lane each client and each group has under way.
type account [levels][shares]int64

func (w Who) keys() [levels]Key { return [levels]Key{w.Client, w.Group} }

// overShare says which of a client and its group have more than their share.
type overShare [levels]bool

func (e overShare) any() bool { return e != overShare{} }

// above says who has something under way and would have more than their share with so much
// more, where so much is free. (Dynamic thresholds: Choudhury and Hahne, 1998.)
func (a *account) above(w Who, cost, free int64) (e overShare) {
	for level, k := range w.keys() {
		has := a[level][k%shares]
		e[level] = k != 0 && has > 0 && has+cost > shareOfFree[level]*max(free, 0)
	}
	return e
}

func (a *account) add(w Who, cost int64) {
	for level, k := range w.keys() {
		if k != 0 {
			a[level][k%shares] += cost
		}
	}
}

// shutShares are until when ranks are shut for those who have more than their share of one:
// that one itself, and for a client those before it. They are for nobody else, or one client
// with much of what is refused late would keep everybody from what is refused before. To a
// group those before are not shut: most belong to it where nobody names one.
type shutShares struct {
	last   atomic.Int64 // of all: after that nobody is shut out
	own    [numRanks][levels][shares]atomic.Int64
	before [numRanks][shares]atomic.Int64 // by client
}

// shut shuts a rank for those in excess of their share, and those before it for a client.
func (s *shutShares) shut(rank int, w Who, e overShare, until int64) {
	for level, k := range w.keys() {
		if e[level] {
			raise(&s.own[rank][level][k%shares], until)
		}
	}
	if e[0] {
		raise(&s.before[rank][w.Client%shares], until)
	}
	raise(&s.last, until)
}

// itself reports whether someone is shut out of a rank for more than their share of it.
func (s *shutShares) itself(rank int, w Who, now int64) bool {
	if s.last.Load() <= now {
		return false
	}
	for level, k := range w.keys() {
		if k != 0 && s.own[rank][level][k%shares].Load() > now {
			return true
		}
	}
	return false
}

// behind reports whether someone is shut out of a rank for more than their share of one that
// is refused later.
func (s *shutShares) behind(rank int, w Who, now int64) bool {
	if w.Client == 0 || s.last.Load() <= now {
		return false
	}
	for r := rank + 1; r < numRanks; r++ {
		if s.before[r][w.Client%shares].Load() > now {
			return true
		}
	}
	return false
}
