package peers

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// linkState is what became of the last connection of a class.
type linkState uint8

const (
	linkDown   linkState = iota // none yet, or it ended otherwise
	linkUp                      // it lives
	linkClosed                  // the other side closed it
)

// peer is one other member: a connection of each class, or the attempt at one.
type peer struct {
	set      *Set
	id       uint64
	member   atomic.Pointer[Member]
	slots    [2]atomic.Pointer[conn] // what to send on, by class
	dropped  [2]atomic.Uint64        // messages, by class
	answered atomic.Uint64           // when the ping was sent that it answered last, since the set was opened
	redial   [2]chan struct{}        // one token: open a new connection now, even if there is one
	knocked  [2]chan struct{}        // one token: the other is there, try at once if there is no connection
	ctx      context.Context         // ends when the member leaves the set
	cancel   context.CancelFunc

	// life makes beginnings and ends of connections one sequence. It is held
	// while Lost and Unreachable are called, and never by what Send does.
	life        sync.Mutex
	states      [2]linkState
	live        map[*conn]struct{} // the current ones, and replaced ones that still drain
	boot        bootNonce          // of the run of the other that the current ones belong to
	incarnation uint64
	schema      uint32
	trouble     string // why there is no connection, for people
}

func newPeer(s *Set, m Member) *peer {
	p := &peer{set: s, id: m.ID, live: map[*conn]struct{}{}}
	p.member.Store(&m)
	p.redial = [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	p.knocked = [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	return p
}

// answeredAt takes the answer to a ping that was sent at stamp.
func (p *peer) answeredAt(stamp uint64) {
	for {
		last := p.answered.Load()
		if stamp <= last || p.answered.CompareAndSwap(last, stamp) {
			return
		}
	}
}

// startDialing dials if it is on us to do so, else knocks.
func (p *peer) startDialing() {
	if !p.set.dials(p.id) {
		p.set.group.Go(p.knock)
		return
	}
	for _, class := range [...]node.Class{node.Control, node.Bulk} {
		p.set.group.Go(func() { p.dialLoop(class) })
	}
}

// redialAll opens new connections, which replace the old ones.
func (p *peer) redialAll() { signalAll(p.redial) }

func signalAll(tokens [2]chan struct{}) {
	for _, ch := range tokens {
		select {
		case ch <- struct{}{}:
		default: // asked for already
		}
	}
}

// answerKnock dials at once. Connections with an earlier run of the other are
// replaced; their ends may never arrive.
func (p *peer) answerKnock(boot bootNonce) {
	p.life.Lock()
	stale := p.boot != boot && len(p.live) > 0
	p.life.Unlock()
	if stale {
		p.redialAll()
	} else {
		signalAll(p.knocked)
	}
}

// dialLoop keeps one connection open.
func (p *peer) dialLoop(class node.Class) {
	attempts := 0
	for p.ctx.Err() == nil {
		select {
		case <-p.set.open():
		case <-p.ctx.Done():
			return
		}
		select {
		case <-p.knocked[class]: // what we are about to do
		default:
		}
		began := time.Now()
		c, err := p.connect(class)
		if err == nil {
			p.hold(c)
			if time.Since(began) >= settledAfter {
				attempts = 0
				continue
			}
			err = errNotUp
		}
		p.rest(class, backoff(attempts, err))
		attempts++
	}
}

// knock asks the other side to dial, as long as it has not.
func (p *peer) knock() {
	for attempts := 0; p.ctx.Err() == nil; attempts++ {
		select {
		case <-p.set.open():
		case <-p.ctx.Done():
			return
		}
		wait := backoffMax
		if p.slots[node.Control].Load() == nil {
			if _, err := p.connect(node.Control); err != nil {
				wait = backoff(attempts, err)
			}
		} else {
			attempts = 0
		}
		p.rest(node.Control, wait)
	}
}

// hold returns when the connection has ended or a new one is asked for.
func (p *peer) hold(c *conn) {
	select {
	case <-c.ended:
	case <-p.redial[c.class]:
	case <-p.ctx.Done():
	}
}

// rest waits before the next attempt.
func (p *peer) rest(class node.Class, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.redial[class]:
	case <-p.knocked[class]:
	case <-p.ctx.Done():
	}
}

// backoff doubles from backoffFirst, spread over the upper half of itself.
func backoff(attempts int, err error) time.Duration {
	limit := backoffMax
	var r *refusal
	switch {
	case errors.As(err, &r) && r.slow():
		return backoffSlow/2 + rand.N(backoffSlow/2)
	case errors.Is(err, syscall.ECONNREFUSED):
		limit = backoffRefused
	}
	d := min(backoffFirst<<min(attempts, 16), limit)
	return d/2 + rand.N(d/2)
}

// install makes c the connection of its class. The side that dials does so
// before it says ready, the other after. It reports false if c must not be used:
// this member is muted or the other is not wanted any more.
func (p *peer) install(c *conn) bool {
	p.awaitOldBoot(c)
	p.life.Lock()
	defer p.life.Unlock()
	if p.ctx.Err() != nil || p.set.muted.Load() || c.hello.shows.Incarnation < p.incarnation || !p.set.promote(c) {
		return false
	}
	if c.hello.boot != p.boot {
		p.newBoot(c.hello)
	}
	old := p.slots[c.class].Swap(c)
	if old != nil {
		old.stale.Store(true)
	}
	p.states[c.class] = linkUp
	p.live[c] = struct{}{}
	p.trouble = ""
	switch {
	case old == nil:
	case p.set.dials(p.id):
		// The other still sends on the old one until it has installed the new
		// one, which its first frame proves.
		c.replaces = old
	default:
		old.retire() // the other installed the new one before it said ready
	}
	p.set.cfg.Events.Connected(p.id, c.class)
	if p.states[node.Control] == linkUp && p.states[node.Bulk] == linkUp && old == nil {
		p.set.cfg.Logger.Info("member connected", "member", idText(p.id), "name", c.hello.name)
		p.set.settledDown(p.id)
	}
	return true
}

// awaitOldBoot lets connections of an earlier run of the other member drain: its
// process is gone, so their ends are about to be read.
func (p *peer) awaitOldBoot(c *conn) {
	var old []*conn
	p.life.Lock()
	for o := range p.live {
		if o.hello.boot != c.hello.boot {
			old = append(old, o)
		}
	}
	p.life.Unlock()
	if len(old) == 0 {
		return
	}
	t := time.NewTimer(newBootWait)
	defer t.Stop()
	for _, o := range old {
		select {
		case <-o.ended:
		case <-t.C:
			return
		}
	}
}

// newBoot ends what belongs to an earlier run of the other member. life is held.
func (p *peer) newBoot(h hello) {
	lost := p.states[node.Control] != linkDown && p.states[node.Bulk] != linkDown
	p.fenceLive(errReplaced)
	for i := range p.slots {
		if p.slots[i].Swap(nil) != nil {
			p.disconnected(node.Class(i), errReplaced)
		}
	}
	p.states = [2]linkState{}
	p.boot, p.incarnation, p.schema = h.boot, h.shows.Incarnation, h.schema
	if lost {
		p.set.cfg.Lost(p.id)
	}
}

// fenceLive closes every connection; nothing of them is delivered any more when
// it returns. life is held.
func (p *peer) fenceLive(err error) {
	for c := range p.live {
		c.fence()
		c.close(err)
	}
}

// over takes the end of a connection, after all it brought was delivered.
func (p *peer) over(c *conn, byOther bool, err error) {
	p.life.Lock()
	defer p.life.Unlock()
	delete(p.live, c)
	if c.replaces != nil {
		c.replaces.retire()
	}
	if !p.slots[c.class].CompareAndSwap(c, nil) {
		return // replaced, or closed by ourselves
	}
	p.states[c.class] = linkDown
	if byOther {
		p.states[c.class] = linkClosed
	}
	p.trouble = err.Error()
	p.disconnected(c.class, err)
	p.set.cfg.Logger.Info("member disconnected", "member", idText(p.id), "name", c.hello.name, "class", className(c.class), "error", err)
	p.set.cfg.Unreachable(p.id)
	if p.states[node.Control] == linkClosed && p.states[node.Bulk] == linkClosed {
		p.states = [2]linkState{}
		p.fenceLive(errReplaced) // those that were replaced and still drained
		p.set.cfg.Lost(p.id)
	}
}

// disconnected tells that the connection of a class has ended and no other has taken
// its place. life is held.
func (p *peer) disconnected(class node.Class, err error) {
	p.set.disconnections.Add(1)
	p.set.cfg.Events.Disconnected(p.id, class, err)
}

// closeAll closes every connection without telling that the other was lost.
func (p *peer) closeAll(err error) {
	p.life.Lock()
	defer p.life.Unlock()
	p.fenceLive(err)
	for i := range p.slots {
		if p.slots[i].Swap(nil) != nil {
			p.disconnected(node.Class(i), err)
		}
	}
	p.states = [2]linkState{}
	p.trouble = err.Error()
}

// remove ends everything with this member.
func (p *peer) remove() {
	p.cancel()
	p.closeAll(errRemoved)
}

// ping asks every connection for an answer and closes those that are silent.
func (p *peer) ping(shows Standing) {
	p.life.Lock()
	conns := make([]*conn, 0, len(p.live))
	for c := range p.live {
		conns = append(conns, c)
	}
	p.life.Unlock()
	for _, c := range conns {
		c.attend(shows)
	}
}

// put queues a frame on the connection of a class, in its lane for the user's
// frames or for all others, to leave with the next flush. If the connection was
// replaced meanwhile, the new one gets it.
func (p *peer) put(class node.Class, app bool, size int, encode func([]byte) []byte) error {
	c := p.slots[class].Load()
	for c != nil {
		l := &c.out.raft
		if app {
			l = &c.out.app
		}
		taken := c.out.put(l, size, encode)
		now := p.slots[class].Load()
		switch {
		case taken && now != c:
			c.out.nudge() // flush will not find it
			return nil
		case taken:
			return nil
		case now == c:
			return errFull
		}
		c = now
	}
	return errNotUp
}

// flush sends what was put.
func (p *peer) flush() {
	for i := range p.slots {
		if c := p.slots[i].Load(); c != nil {
			c.flush()
		}
	}
}

func className(c node.Class) string {
	if c == node.Bulk {
		return "bulk"
	}
	return "control"
}
