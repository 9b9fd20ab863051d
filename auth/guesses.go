package auth

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// What may be guessed. Who guesses the password of one tag from one address soon
// waits, as does who guesses those of many; the tag's owner, who is elsewhere, does
// not: no failure counts for a tag alone. Only what takes time to check counts, for
// nobody guesses what does not.
const (
	guessesAtOnce   = 5                // wrong passwords of one tag from one address
	guessEvery      = 30 * time.Second // one more of them
	guessesFromOne  = 50               // wrong passwords of all tags from one address
	guessFromEvery  = 2 * time.Second  // one more of them
	maxGuessers     = 32_768           // tags and addresses in each of two generations, some 64 B each
	guessPrefixBits = 64               // of an IPv6 address: a network is one guesser
)

// GuessLimits are how much may be guessed from one address: so many passwords at once,
// and then one more each time that Every has passed.
type GuessLimits struct {
	Tag, Address           int           // wrong passwords of one tag, and of all tags
	TagEvery, AddressEvery time.Duration // until one of them is forgiven
}

// DefaultGuessLimits are those that hold where nothing else is said.
var DefaultGuessLimits = GuessLimits{Tag: guessesAtOnce, Address: guessesFromOne, TagEvery: guessEvery, AddressEvery: guessFromEvery}

// guesses counts wrong passwords by tag and address, and by address. For each it
// keeps the moment at which all would be forgotten: one guess moves it by the time
// in which one is forgiven. What was not touched for a generation of maxGuessers
// others is forgotten.
type guesses struct {
	seed   maphash.Seed
	now    func() time.Time
	limits func() GuessLimits

	mu         sync.Mutex // guards the rest; held to look up
	young, old map[guesser]time.Time
}

// guesser is an address, and perhaps whose password it guesses.
type guesser struct {
	from    netip.Addr
	account uint64 // hash of scope and tag; 0: any
}

func newGuesses(now func() time.Time, limits func() GuessLimits) *guesses {
	return &guesses{seed: maphash.MakeSeed(), now: now, limits: limits, young: map[guesser]time.Time{}, old: map[guesser]time.Time{}}
}

// guesserOf is who counts as one: all addresses of an IPv6 network do.
func guesserOf(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		if p, err := from.Prefix(guessPrefixBits); err == nil {
			return p.Addr()
		}
	}
	return from
}

func (g *guesses) pair(from netip.Addr, scope, tag string) (account, address guesser) {
	from = guesserOf(from)
	return guesser{from, maphash.String(g.seed, scope+"\x00"+tag) | 1}, guesser{from: from}
}

// wait is how long somebody has to wait for the next guess; 0: it may.
func (g *guesses) wait(from netip.Addr, scope, tag string) time.Duration {
	account, address := g.pair(from, scope, tag)
	g.mu.Lock()
	defer g.mu.Unlock()
	now, l := g.now(), g.limits()
	return max(0,
		g.get(account).Add(-time.Duration(l.Tag-1)*l.TagEvery).Sub(now),
		g.get(address).Add(-time.Duration(l.Address-1)*l.AddressEvery).Sub(now))
}

// failed counts a wrong guess.
func (g *guesses) failed(from netip.Addr, scope, tag string) {
	account, address := g.pair(from, scope, tag)
	g.mu.Lock()
	defer g.mu.Unlock()
	now, l := g.now(), g.limits()
	g.add(account, now, l.TagEvery)
	g.add(address, now, l.AddressEvery)
}

func (g *guesses) get(k guesser) time.Time {
	if at, ok := g.young[k]; ok {
		return at
	}
	return g.old[k]
}

func (g *guesses) add(k guesser, now time.Time, forgiven time.Duration) {
	at := g.get(k)
	if at.Before(now) {
		at = now
	}
	if len(g.young) >= maxGuessers {
		g.old, g.young = g.young, map[guesser]time.Time{}
	}
	g.young[k] = at.Add(forgiven)
}

// forget forgets all: the passwords are others now.
func (g *guesses) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.young)
	clear(g.old)
}
