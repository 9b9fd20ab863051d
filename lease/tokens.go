package lease

import "github.com/incumbent-dev/incumbent"

// tokenTable finds the slot of a token: open addressing with linear probing,
// token and slot side by side, so that finding one of a million costs one miss
// of the cache where Go's map has two or three. An extension is hardly more
// than this.
type tokenTable struct {
	entries []tokenEntry // a power of two of them, at most three quarters used
	shift   uint         // 64 - log2 of their number
	n       int
}

// tokenEntry is free if its token is 0, which no lease has.
type tokenEntry struct {
	token incumbent.Token
	slot  int32
}

const minTokenTable = 16

// newTokenTable returns a table with room for n tokens.
func newTokenTable(n int) tokenTable {
	size, shift := minTokenTable, uint(60)
	for size/4*3 < n {
		size, shift = size*2, shift-1
	}
	return tokenTable{entries: make([]tokenEntry, size), shift: shift}
}

// home is where a token stands if nobody is in its way. Tokens are mostly
// close to one another; the multiplication (2^64 divided by the golden ratio)
// spreads them.
func (t *tokenTable) home(token incumbent.Token) int {
	return int(uint64(token) * 0x9E3779B97F4A7C15 >> t.shift)
}

func (t *tokenTable) len() int { return t.n }

// get returns the slot of a token.
func (t *tokenTable) get(token incumbent.Token) (int32, bool) {
	mask := len(t.entries) - 1
	for i := t.home(token); ; i = (i + 1) & mask {
		e := &t.entries[i&mask]
		if e.token == token {
			return e.slot, token != 0
		}
		if e.token == 0 {
			return 0, false
		}
	}
}

// put adds a token that is not there.
func (t *tokenTable) put(token incumbent.Token, slot int32) {
	if token == 0 {
		panic("lease: a lease without a token has no slot")
	}
	if t.n >= len(t.entries)/4*3 {
		t.grow()
	}
	t.insert(tokenEntry{token, slot})
	t.n++
}

func (t *tokenTable) insert(e tokenEntry) {
	mask := len(t.entries) - 1
	i := t.home(e.token)
	for t.entries[i].token != 0 {
		i = (i + 1) & mask
	}
	t.entries[i] = e
}

func (t *tokenTable) grow() {
	old := t.entries
	t.entries, t.shift = make([]tokenEntry, 2*len(old)), t.shift-1
	for _, e := range old {
		if e.token != 0 {
			t.insert(e)
		}
	}
}

// remove takes a token out and closes the gap: whatever stands behind and
// belongs at or before the gap moves into it. So there are no tombstones, and a
// table through which tokens pass for years stays as fast as on its first day.
func (t *tokenTable) remove(token incumbent.Token) {
	mask := len(t.entries) - 1
	gap := t.home(token)
	for t.entries[gap].token != token {
		if t.entries[gap].token == 0 {
			return
		}
		gap = (gap + 1) & mask
	}
	t.n--
	for i := (gap + 1) & mask; t.entries[i].token != 0; i = (i + 1) & mask {
		home := t.home(t.entries[i].token)
		if (i-home)&mask >= (i-gap)&mask {
			t.entries[gap] = t.entries[i]
			gap = i
		}
	}
	t.entries[gap] = tokenEntry{}
}
