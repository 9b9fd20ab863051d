package dns

import (
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Whoever sends datagrams may write another's address on them: the answers go there.
// So no network gets more answers over UDP than a bound, wherever the questions come
// from. Who is really there and asks that much is told now and then to come by TCP,
// where an address cannot be another's.

// verdict is what becomes of a datagram.
type verdict uint8

const (
	send verdict = iota
	slip         // an empty answer that says to come by TCP
	drop
	numVerdicts
)

// Networks share buckets by chance; with so many, hardly ever.
const buckets = 8192

// limiter bounds the answers to a network, IPv4 /24 or IPv6 /56. Its memory does not
// grow with the addresses that are forged.
type limiter struct {
	rate float64 // a second; below 0: any
	seed maphash.Seed

	locks [64]sync.Mutex // each protects its share of cells; held for a few steps
	cells [buckets]bucket
}

// bucket is one of tokens.
type bucket struct {
	tokens float64
	at     time.Time
	refuse uint // how many were refused in a row
}

func newLimiter(rate int) *limiter {
	return &limiter{rate: float64(rate), seed: maphash.MakeSeed()}
}

// take says what becomes of a datagram from an address.
func (l *limiter) take(from netip.Addr, now time.Time) verdict {
	if l.rate < 0 || from.IsLoopback() {
		return send
	}
	bits := 24
	if from.Is6() {
		bits = 56
	}
	p, err := from.Prefix(bits)
	if err != nil {
		return drop
	}
	i := maphash.Comparable(l.seed, p) % buckets
	mu := &l.locks[i%uint64(len(l.locks))]
	mu.Lock()
	defer mu.Unlock()
	return l.cells[i].take(l.rate, now)
}

// take takes a token. There are at most those of a second.
func (b *bucket) take(rate float64, now time.Time) verdict {
	if b.at.IsZero() {
		b.tokens = rate
	}
	b.tokens = min(rate, b.tokens+rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
		b.refuse = 0
		return send
	}
	if b.refuse++; b.refuse%2 == 1 {
		return slip
	}
	return drop
}

func addressOf(a net.Addr) netip.Addr {
	if u, ok := a.(*net.UDPAddr); ok {
		return u.AddrPort().Addr().WithZone("").Unmap()
	}
	return netip.Addr{}
}

// isRefused reports an error that tells of an earlier answer, which nobody took.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EMSGSIZE)
}
