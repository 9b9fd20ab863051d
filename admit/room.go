package admit

import "sync"

// Room is room for so much of something, bytes or places, that is taken for as long as
// work is under way. Whoever has much of it is refused more before who has little, as in
// a lane: at four times what is free. The zero value has nothing taken. A mutex is held
// for a few additions.
type Room struct {
	mu      sync.Mutex // protects what follows
	taken   int64
	account account
}

// Take takes n where most is all there is, and reports whether there was so much, and
// enough of it left for others. It may be asked from anywhere.
func (r *Room) Take(w Who, n, most int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if free := most - r.taken; n > free || r.account.above(w, n, free).any() {
		return false
	}
	r.add(w, n)
	return true
}

// Give gives back what the same had taken.
func (r *Room) Give(w Who, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(w, -n)
}

// Move has what one had taken count for another, whatever is free.
func (r *Room) Move(from, to Who, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account.add(from, -n)
	r.account.add(to, n)
}

func (r *Room) add(w Who, n int64) {
	r.taken += n
	r.account.add(w, n)
}

// Taken is how much is taken.
func (r *Room) Taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}
