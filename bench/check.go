package bench

import (
	"fmt"
	"sync"
	"time"
)

// maxViolationsKept bounds the texts; the count goes on.
const maxViolationsKept = 100

// Clock assumption and grace of the servers, as they default to.
const (
	drift       = 0.01
	grace       = 500 * time.Millisecond
	lateAllowed = time.Second // a lease freed later breaks a guarantee; a scenario may say otherwise
)

// Checker holds what agents believe against one another. All agents of a run
// share one process and so one clock; times count from the run's start.
type Checker struct {
	mu         sync.Mutex // held for a few map operations
	leases     map[string]*belief
	lost       uint64
	lapsed     uint64
	violations uint64
	texts      []string
	late       time.Duration // a lease freed later than this after it was due is a violation
}

// belief is the newest holding of one lease.
type belief struct {
	token    uint64
	holder   int
	until    time.Duration // the holder's own deadline
	released bool
}

// NewChecker returns an empty one.
func NewChecker() *Checker { return &Checker{leases: make(map[string]*belief), late: lateAllowed} }

func (c *Checker) violate(format string, args ...any) {
	c.violations++
	if len(c.texts) < maxViolationsKept {
		c.texts = append(c.texts, fmt.Sprintf(format, args...))
	}
}

// Granted says that holder heard at time heard that it holds lease until its own
// deadline.
func (c *Checker) Granted(lease string, holder int, token uint64, heard, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.leases[lease]
	if b == nil {
		c.leases[lease] = &belief{token: token, holder: holder, until: until}
		return
	}
	switch {
	case token == b.token && holder == b.holder: // its own claim again
		b.until = max(b.until, until)
		return
	case token <= b.token:
		c.violate("%s: token %d of agent %d does not exceed token %d of agent %d", lease, token, holder, b.token, b.holder)
		return
	case !b.released && b.until > heard:
		c.lost++
		c.violate("%s: granted to agent %d (token %d) while agent %d (token %d) held it for another %v",
			lease, holder, token, b.holder, b.token, b.until-heard)
	}
	*b = belief{token: token, holder: holder, until: until}
}

// Extended says that the holder's own deadline moved on.
func (c *Checker) Extended(lease string, token uint64, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.leases[lease]
	switch {
	case b == nil || token > b.token:
		c.violate("%s: token %d was extended that nobody was granted", lease, token)
	case token < b.token:
		c.violate("%s: token %d was extended although token %d was granted", lease, token, b.token)
	default:
		b.until = max(b.until, until)
	}
}

// Released says that the holder sent a release, and so no longer counts on the lease.
func (c *Checker) Released(lease string, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.leases[lease]; b != nil && b.token == token {
		b.released = true
	}
}

// Lapsed says that the holder's own deadline passed before an extension was
// acknowledged. It may go on with the same token if nobody else was granted.
func (c *Checker) Lapsed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapsed++
}

// NotHolder says that a holder was told that it does not hold. It lost the lease if the
// extension was sent before its own deadline, until, whoever holds it meanwhile: an
// extension that waits for so long that another is granted the lease was in time.
func (c *Checker) NotHolder(lease string, token uint64, sent, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent >= until {
		return
	}
	c.lost++
	c.violate("%s: token %d was told it does not hold, %v before its own deadline", lease, token, until-sent)
}

// Freed says that a watcher heard at time heard that the holding has expired, latest
// being the time of its last extension's send and of its answer.
func (c *Checker) Freed(lease string, heard, lastSent, lastHeard, ttl time.Duration) (lateness time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := lastSent + holdFor(ttl); heard < own {
		c.violate("%s: freed %v before its holder's own deadline", lease, own-heard)
	}
	lateness = heard - (lastHeard + dueAfter(ttl))
	if lateness > c.late {
		c.violate("%s: freed %v after its due time", lease, lateness)
	}
	return lateness
}

// Lost counts a loss that a play found by itself.
func (c *Checker) Lost(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost++
	c.violate(format, args...)
}

// Violate counts what a play found by itself.
func (c *Checker) Violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violate(format, args...)
}

// Counts returns what was found so far.
func (c *Checker) Counts() (lost, lapsed, violations uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost, c.lapsed, c.violations
}

// findings is what was found, for a checker in another process.
type findings struct {
	Lost       uint64   `json:"lost,omitempty"`
	Lapsed     uint64   `json:"lapsed,omitempty"`
	Violations uint64   `json:"violations,omitempty"`
	Texts      []string `json:"texts,omitempty"`
}

// drain returns what was found since the last call.
func (c *Checker) drain() findings {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := findings{c.lost, c.lapsed, c.violations, c.texts}
	c.lost, c.lapsed, c.violations, c.texts = 0, 0, 0, nil
	return found
}

// add counts what another process has found.
func (c *Checker) add(found findings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += found.Lost
	c.lapsed += found.Lapsed
	c.violations += found.Violations
	room := max(0, maxViolationsKept-len(c.texts))
	c.texts = append(c.texts, found.Texts[:min(room, len(found.Texts))]...)
}

// Texts returns the first violations.
func (c *Checker) Texts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.texts...)
}

// holdFor is how long a holder may count on a ttl from its send.
func holdFor(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl) * (1 - drift))
}

// dueAfter is when the leader frees what is not extended.
func dueAfter(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*(1+drift)) + grace
}
