package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
)

// The states of all members are equal at equal index. Members check it at the
// checkpoints in the log: each hashes its state there and tells the others, and
// each judges for itself what it has heard:
//
//   - a hash that more than half of the voters have is right. A member that has
//     another one, voter or learner, stops: nothing it says can be relied on
//   - if no hash can have a majority, nobody is right, the leader neither:
//     no grants until a person has looked
//
// Whatever is lost on the way costs this checkpoint's verdict, not the next
// one's.

const (
	checkpointsKept = 8   // whose reports are remembered, the newest ones
	reportersKept   = 128 // members heard about one of them: more than there can be
)

// stateHash is the SHA-256 of a snapshot.
type stateHash [sha256.Size]byte

// finding is what reports of one checkpoint say.
type finding uint8

const (
	undecided finding = iota // more reports are needed
	agreed                   // this member, if it has reported, is with the majority
	differs                  // a majority has another state than this member
	split                    // no state can have a majority
)

// compare judges the reports of one checkpoint, by member. Reports of others than
// voters decide nothing. right is the majority's hash, if there is one.
func compare(self uint64, voters []uint64, reports map[uint64]stateHash) (f finding, right stateHash, votes int) {
	count := make(map[stateHash]int)
	missing, most := 0, 0
	for _, v := range voters {
		h, ok := reports[v]
		if !ok {
			missing++
			continue
		}
		if count[h]++; count[h] > most {
			most, right = count[h], h
		}
	}
	if quorum := len(voters)/2 + 1; most < quorum {
		if len(voters) > 0 && most+missing < quorum {
			return split, stateHash{}, 0
		}
		return undecided, stateHash{}, 0
	}
	if own, ok := reports[self]; ok && own != right {
		return differs, right, most
	}
	return agreed, right, most
}

// Frames between members: what a report says, behind a byte that no frame of
// another kind begins with.
//
//	'H'  index (8, little endian)  hash (32)
const (
	reportKind  = 'H'
	reportBytes = 1 + 8 + sha256.Size
)

func encodeReport(at incumbent.Index, h stateHash) []byte {
	b := append(make([]byte, 0, reportBytes), reportKind)
	return append(binary.LittleEndian.AppendUint64(b, uint64(at)), h[:]...)
}

// isReport reports whether a frame from another member is for
// [consistency.receive].
func isReport(frame []byte) bool { return len(frame) > 0 && frame[0] == reportKind }

// consistencyConfig is what a consistency works with. All of it is needed. The
// functions are called from the goroutine that hashes and from those that call
// receive, without a lock, and must not block; of differs and split at most one
// is called, and once.
type consistencyConfig struct {
	self    uint64
	voters  func() []uint64                    // who votes now
	members func() []uint64                    // all members there are now, learners too, self or not
	send    func(to uint64, frame []byte) bool // [lease.Peers]; a frame not taken is lost
	differs func(err error)                    // this member's state is wrong (Corrupt): it must stop
	split   func(err error)                    // nobody knows the right state (Corrupt): refuse grants and alarm
	logger  *slog.Logger
}

// consistency compares this member's state with the others'. Make it with
// newConsistency, give it every checkpoint that is applied and every frame that
// isReport, and close it.
type consistency struct {
	cfg  consistencyConfig
	ctx  context.Context
	stop context.CancelFunc
	next chan *core.View // the newest view that waits to be hashed
	done chan struct{}

	mu      sync.Mutex // protects what follows; held for map operations only
	reports map[incumbent.Index]map[uint64]stateHash
	agreed  incumbent.Index // greatest at which this member was found to be right
	over    bool            // a verdict was told that needs a person
}

// newConsistency starts the goroutine that hashes; close ends it.
func newConsistency(cfg consistencyConfig) *consistency {
	c := &consistency{
		cfg: cfg, next: make(chan *core.View, 1), done: make(chan struct{}),
		reports: make(map[incumbent.Index]map[uint64]stateHash),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	go c.run()
	return c
}

// close stops hashing and waits for it. No callback begins after it, save by a
// receive that is under way.
func (c *consistency) close() {
	c.stop()
	<-c.done
}

// checkpoint takes the state right after a CheckpointCommand, from the
// goroutine that applied it: the View of its result. It never blocks. Where
// checkpoints come faster than they are hashed, only the newest one is.
func (c *consistency) checkpoint(v *core.View) {
	for {
		select {
		case c.next <- v:
			return
		default:
		}
		select {
		case <-c.next: // an older one
		default:
		}
	}
}

// receive takes a report of another member, from any goroutine. It does not
// block. One that is malformed is dropped.
func (c *consistency) receive(from uint64, frame []byte) {
	if len(frame) != reportBytes || !isReport(frame) || c.ctx.Err() != nil {
		return
	}
	at := incumbent.Index(binary.LittleEndian.Uint64(frame[1:]))
	own, known := c.note(at, from, stateHash(frame[9:]))
	if known {
		// It may not have been there when this member told everybody. Once for each
		// member and checkpoint, so that two do not answer each other for ever.
		c.cfg.send(from, encodeReport(at, own))
	}
	c.judge(at)
}

func (c *consistency) run() {
	defer close(c.done)
	for {
		select {
		case <-c.ctx.Done():
			return
		case v := <-c.next:
			c.report(v)
		}
	}
}

// report hashes a state and tells all members.
func (c *consistency) report(v *core.View) {
	began := time.Now()
	h := sha256.New()
	if err := v.WriteSnapshot(engine.Paced(c.ctx, h)); err != nil {
		return // closed meanwhile: a hash refuses nothing itself
	}
	sum := stateHash(h.Sum(nil))
	c.cfg.logger.Debug("state hashed", "index", v.Index(), "hash", sum[:8], "took", time.Since(began))
	c.note(v.Index(), c.cfg.self, sum)
	for _, to := range c.cfg.members() {
		if to != c.cfg.self {
			c.cfg.send(to, encodeReport(v.Index(), sum))
		}
	}
	c.judge(v.Index())
}

// note remembers a report. The first one of a member counts; own is this
// member's, known whether it is there and the report was the first.
func (c *consistency) note(at incumbent.Index, member uint64, h stateHash) (own stateHash, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.reports[at]
	if of == nil {
		of = make(map[uint64]stateHash)
		c.reports[at] = of
		c.dropOldest()
	}
	if _, again := of[member]; again || len(of) >= reportersKept {
		return own, false
	}
	of[member] = h
	own, known = of[c.cfg.self]
	return own, known
}

func (c *consistency) dropOldest() {
	if len(c.reports) <= checkpointsKept {
		return
	}
	oldest := ^incumbent.Index(0)
	for at := range c.reports {
		oldest = min(oldest, at)
	}
	delete(c.reports, oldest)
}

// judge tells what the reports of a checkpoint come to, once.
func (c *consistency) judge(at incumbent.Index) {
	voters := c.cfg.voters()
	c.mu.Lock()
	reports := c.reports[at]
	own, reported := reports[c.cfg.self]
	f, right, votes := compare(c.cfg.self, voters, reports)
	if f == agreed && reported {
		c.agreed = max(c.agreed, at)
	}
	if c.over || c.ctx.Err() != nil || f == agreed || f == undecided {
		c.mu.Unlock()
		return
	}
	c.over = true
	heard := hashesText(reports)
	c.mu.Unlock()
	if f == differs {
		c.cfg.differs(incumbent.Errorf(incumbent.Corrupt, "the state of this member at index %d has hash %x, that of %d of %d voters %x",
			at, own, votes, len(voters), right))
		return
	}
	c.cfg.split(incumbent.Errorf(incumbent.Corrupt, "no majority of the %d voters has the same state at index %d; the hashes are %s", len(voters), at, heard))
}

// agreedAt is the greatest index at which this member's state was found to be
// that of a majority, 0 if none was: for status and metrics.
func (c *consistency) agreedAt() incumbent.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agreed
}

// hashesText lists reports by member.
func hashesText(reports map[uint64]stateHash) string {
	var list []string
	for _, m := range slices.Sorted(maps.Keys(reports)) {
		list = append(list, fmt.Sprintf("%x of member %x", reports[m], m))
	}
	return strings.Join(list, ", ")
}
