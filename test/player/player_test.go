// Package player plays random calls, valid and invalid, of every door against the
// real binary, on one member and on three that are killed now and then, and checks
// every answer.
//
// A long watch of each scope is the record of what happened: it is checked against
// the rules of a lease itself (timeline), and every answer must have been true at
// some index between what was known before the call and what was known after it
// (book, window). A process that ends by itself fails the run.
//
// What is called is decided by INCUMBENT_PLAYER_SEED, the player and its step;
// INCUMBENT_PLAYER_TIME is for how long each of the tests plays.
package player

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

const (
	unaryPlayers  = 3
	streamPlayers = 2
	jujuPlayers   = 2
	noisePlayers  = 1
	tablePlayers  = 2
	consulPlayers = 2
	ovsdbPlayers  = 2

	defaultTime = 10 * time.Second
	roundTime   = 20 * time.Second // between two times when all is quiet and compared
	maxRest     = 12 * time.Millisecond
	maxFaults   = 20 // that are reported
)

// play is one run.
type play struct {
	t       *testing.T
	c       *processes
	seed    uint64
	table   *table
	book    *book
	lines   map[scope]*timeline // what everything is compared with
	second  *timeline           // of the native scope, by another way
	callers [][]*caller
	stolen  *credential // the attacker's
	calls   *tableCalls
	monitor ovsdbMonitor

	stop   context.CancelFunc
	mu     sync.Mutex // guards the rest; held for a change
	faults []string
}

func TestRandomCallsOnOneMember(t *testing.T)    { start(t, 1).run() }
func TestRandomCallsOnThreeMembers(t *testing.T) { start(t, 3).run() }
func TestRandomCallsOverTLS(t *testing.T)        { start(t, 3, "--tls").run() }

// start starts a cluster and what follows it.
func start(t *testing.T, members int, args ...string) *play {
	t.Helper()
	p := &play{t: t, seed: seed(t), calls: newTableCalls(), c: startProcesses(t, members, args...), lines: map[scope]*timeline{}}
	t.Logf("INCUMBENT_PLAYER_SEED=%d", p.seed)
	p.table, p.book = newTable(p.seed), newBook(p.fail)
	p.table.keys, p.book.keys.count = p.book.keys, p.book.count
	for _, s := range scopes {
		p.lines[s] = newTimeline(s, p.fail)
		p.lines[s].count = p.book.count
	}
	p.second = newTimeline(native, p.fail)
	var closeAll func()
	p.callers, closeAll = callersOf(p.c)
	t.Cleanup(closeAll)
	p.stolen = letIn(t, p.c)
	return p
}

func seed(t *testing.T) uint64 {
	text := os.Getenv("INCUMBENT_PLAYER_SEED")
	if text == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("INCUMBENT_PLAYER_SEED: %v", err)
	}
	return n
}

func playTime(t *testing.T) time.Duration {
	text := os.Getenv("INCUMBENT_PLAYER_TIME")
	if text == "" {
		return defaultTime
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("INCUMBENT_PLAYER_TIME: %v", err)
	}
	return d
}

// fail notes a fault and ends the run.
func (p *play) fail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) < maxFaults {
		p.faults = append(p.faults, fmt.Sprintf(format, args...))
	}
	if p.stop != nil {
		p.stop()
	}
}

// failed reports whether a fault was noted.
func (p *play) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.faults) > 0
}

// run plays rounds until the time is over or something is wrong.
func (p *play) run() {
	ctx, cancel := context.WithCancel(p.t.Context())
	var following sync.WaitGroup
	p.mu.Lock()
	p.stop = cancel
	p.mu.Unlock()
	defer func() {
		cancel()
		following.Wait()
		for _, f := range p.faults {
			p.t.Error(f)
		}
		if len(p.faults) > 0 {
			p.t.Logf("again: INCUMBENT_PLAYER_SEED=%d", p.seed)
		}
		for _, what := range []string{"change granted", "key put", "key locked", "attack denied", "attacker looked", "transaction on tables done", "Consul: put", "Consul: lock", "Consul: list", "Consul: service read", "OVSDB: transaction done", "OVSDB: lock", "OVSDB: update", "OVSDB: read as a whole"} {
			if p.book.counted[what] == 0 {
				p.t.Errorf("there was no %s: that proves nothing", what)
			}
		}
		p.t.Log(p.book.tally())
	}()
	following.Go(func() { p.guard(ctx) })
	for _, t := range p.lines {
		following.Go(func() { p.follow(ctx, t) })
	}
	following.Go(func() { p.followByStream(ctx, p.second) })
	following.Go(func() { p.followKeys(ctx, p.book.keys) })
	following.Go(func() { p.followTables(ctx) })
	following.Go(func() { p.followOVSDB(ctx, &p.monitor) })
	p.watched(ctx)
	end := time.Now().Add(playTime(p.t))
	for round := 0; !p.failed() && time.Now().Before(end); round++ {
		p.round(ctx, round, min(time.Until(end), roundTime))
		if p.failed() {
			return
		}
		p.quiet(ctx)
	}
}

// guard fails the run if a process ends that nobody has killed.
func (p *play) guard(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, m := range p.c.Members {
			if m.missing() {
				p.fail("the process of %s ended by itself; it said at last:\n%s", m.Name, m.lastWords())
				return
			}
		}
	}
}

// round lets all players play for a while.
func (p *play) round(ctx context.Context, round int, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	number := round * 100
	next := func() int { number++; return number }
	for range unaryPlayers {
		u := &unaryPlayer{p, next()}
		all.Go(func() { u.run(ctx) })
	}
	for range streamPlayers {
		s := &streamPlayer{play: p, number: next()}
		all.Go(func() { s.run(ctx) })
	}
	for range jujuPlayers {
		j := &jujuPlayer{play: p, number: next()}
		all.Go(func() { j.run(ctx) })
	}
	for range noisePlayers {
		n := &noisePlayer{p, next()}
		all.Go(func() { n.run(ctx) })
	}
	a := &attacker{p, number + 99 - number%100, p.stolen} // the others keep their numbers, and with a seed their calls
	all.Go(func() { a.run(ctx) })
	killer := next()
	for i := range tablePlayers { // behind the others, for the same reason
		n := &tablePlayer{p, number + 98 - number%100 - i}
		all.Go(func() { n.run(ctx) })
	}
	for i := range consulPlayers {
		n := &consulPlayer{play: p, number: number + 98 - tablePlayers - number%100 - i}
		all.Go(func() { n.run(ctx) })
	}
	locks := newOVSDBLocks()
	for i := range ovsdbPlayers {
		n := &ovsdbPlayer{play: p, number: number + 98 - tablePlayers - consulPlayers - number%100 - i, locks: locks}
		all.Go(func() { n.run(ctx) })
	}
	all.Go(func() { p.kills(ctx, killer) })
	all.Wait()
}

// rest is the pause between two steps.
func (p *play) rest(ctx context.Context, d dice) {
	timer := time.NewTimer(time.Duration(d.Int64N(int64(maxRest))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// kills kills members and starts them again, one at a time or all.
func (p *play) kills(ctx context.Context, number int) {
	for step := 0; ; step++ {
		d := p.table.dice(number, step)
		if !pause(ctx, time.Second+time.Duration(d.Int64N(int64(3*time.Second)))) {
			return
		}
		first, n := d.IntN(len(p.c.Members)), 1
		if d.oneIn(4) {
			n = len(p.c.Members)
		}
		var killed []*member
		for i := range n {
			m := p.c.Members[(first+i)%len(p.c.Members)]
			if m.missing() {
				return // the guard says so
			}
			m.kill()
			killed = append(killed, m)
		}
		pause(ctx, time.Duration(d.Int64N(int64(time.Second))))
		for _, m := range killed {
			m.again(p.t)
		}
	}
}

// pause waits; false if the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// follow keeps a watch of a scope open, at whichever member answers.
func (p *play) follow(ctx context.Context, t *timeline) {
	for i := 0; ctx.Err() == nil; i++ {
		k := p.callers[i%len(p.callers)][0]
		in := &pb.WatchRequest{Name: (&place{t.scope, ""}).pb(), Prefix: true, AfterIndex: t.resume()}
		stream, err := k.leases.Watch(ctx, connect.NewRequest(in))
		if err == nil {
			var whole client.Whole
			for stream.Receive() {
				if m := whole.Add(stream.Msg()); m != nil {
					t.add(m)
				}
			}
			err = stream.Err()
			stream.Close()
		}
		t.broken(errorOf(err))
		pause(ctx, lookEvery)
	}
}
