package engine

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// largeKey is the key of these tests, and large a put of it that no entry takes.
var (
	largeKey = kv.Key{Namespace: "n", Name: "large"}
	was      = bytes.Repeat([]byte("w"), kv.MaxValueBytes)
	is       = bytes.Repeat([]byte("i"), kv.MaxValueBytes)
	large    = kv.Command{Verb: kv.Put, Key: largeKey, Value: is, If: kv.IfValue, Was: was}
)

// execute calls Execute and returns where the answer comes.
func (a *alone) execute(c Call, cmd core.Command) <-chan core.Result {
	got := make(chan core.Result, 1)
	a.Execute(c, cmd, func(r core.Result) { got <- r })
	return got
}

// between lets a test see and stop what passes to the node.
type between struct {
	lease.Raft
	propose func(p node.Proposal, pass func(node.Proposal))
}

func (b between) Propose(ps ...node.Proposal) {
	for _, p := range ps {
		b.propose(p, func(p node.Proposal) { b.Raft.Propose(p) })
	}
}

func startBetween(t *testing.T, fs vfs.FS, propose func(p node.Proposal, pass func(node.Proposal))) *alone {
	t.Helper()
	return startWith(t, fs, Config{Between: func(r lease.Raft) lease.Raft { return between{r, propose} }})
}

// isPart tells the parts of commands without an origin from all else.
func isPart(cmd []byte) bool {
	const aDrop = 24 // bytes that the end of a command does not have
	head := parts.Drop{Member: 1, Newest: 1}.Encode(core.Meta{})[:4]
	return bytes.HasPrefix(cmd, head) && len(cmd) > aDrop
}

// A command that is larger than an entry may be is applied as one, with what it
// answers; what is proposed meanwhile does not wait for it.
func TestG44_ALargeCommandTravelsInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tooLarge, sent atomic.Int64  // proposed; sent: of parts
		meanwhile := make(chan struct{}) // closed once something else is
		a := startBetween(t, vfs.NewMem(), func(p node.Proposal, pass func(node.Proposal)) {
			if len(p.Command) > parts.PartBytes+1<<10 {
				tooLarge.Add(1)
			}
			if isPart(p.Command) && sent.Add(1) == 2 {
				go func() {
					<-meanwhile
					pass(p)
				}()
				return
			}
			pass(p)
		})
		defer a.stop()
		a.must(kv.Command{Verb: kv.Put, Key: largeKey, Value: was})
		tooLarge.Store(0)
		first, second := a.execute(Call{}, large), a.execute(Call{}, large)
		small := a.do(kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "n", Name: "small"}})
		close(meanwhile)
		r := <-first
		if r.Err != nil || !bytes.Equal(kv.Of(a.View()).Entry(largeKey).Value, is) {
			t.Fatalf("%v", r.Err)
		}
		if small.Index >= r.Index {
			t.Errorf("what came behind it has index %d, the large one %d", small.Index, r.Index)
		}
		if r := <-second; r.Err == nil || r.Err.Kind != incumbent.Conflict {
			t.Errorf("the second: %v", r.Err)
		}
		if n := tooLarge.Load(); n != 0 {
			t.Errorf("%d commands were proposed that are larger than a part", n)
		}
		if l := parts.Of(a.View()).Waiting(); len(l) != 0 {
			t.Errorf("%+v still waits", l)
		}
	})
}

// A retry with the same key, by whatever way, gets what the first attempt did.
func TestG25_TheKeyOfALargeCommandIsThatOfTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAlone(t, vfs.NewMem())
		defer a.stop()
		a.must(kv.Command{Verb: kv.Put, Key: largeKey, Value: was})
		call := Call{Meta: core.Meta{KeyID: []byte("k"), KeyBase: a.View().Index()}}
		first, again := <-a.execute(call, large), <-a.execute(call, large)
		if first.Err != nil || again.Err != nil || !again.Replayed || again.Index != first.Index {
			t.Errorf("%+v, then %+v", first, again)
		}
	})
}

// A command that cannot go on is answered as what it is, certainly not applied, and
// what has come of it is discarded at once, or by the leader's clock where that
// cannot be said.
func TestG25_ALargeCommandIsNeverHalfApplied(t *testing.T) {
	refused := incumbent.Errorf(incumbent.NotLeader, "another leads")
	unknown := incumbent.Errorf(incumbent.Unknown, "not seen applied")
	for name, c := range map[string]struct {
		at       int // the part that fails, from 1
		err      *incumbent.Error
		passes   bool // it is applied all the same
		want     incumbent.Kind
		lingers  bool // until the clock discards it
		complete bool
	}{
		"the first is refused":           {at: 1, err: refused, want: incumbent.NotLeader},
		"the second is refused":          {at: 2, err: refused, want: incumbent.NotLeader},
		"the last is refused":            {at: 5, err: refused, want: incumbent.NotLeader},
		"the first is not seen":          {at: 1, err: unknown, passes: true, want: incumbent.Unavailable, lingers: true},
		"the third is not seen":          {at: 3, err: unknown, want: incumbent.Unavailable, lingers: true},
		"the last is not seen":           {at: 5, err: unknown, want: incumbent.Unknown, lingers: true},
		"the last is not seen, but done": {at: 5, err: unknown, passes: true, want: incumbent.Unknown, complete: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				a := startBetween(t, vfs.NewMem(), func(p node.Proposal, pass func(node.Proposal)) {
					if !isPart(p.Command) {
						pass(p)
						return
					}
					if n++; n != c.at {
						pass(p)
						return
					}
					done := p.Done
					p.Done = func(any, error) { done(nil, c.err) }
					if c.passes {
						pass(p)
						return
					}
					p.Done(nil, nil)
				})
				defer a.stop()
				a.must(kv.Command{Verb: kv.Put, Key: largeKey, Value: was})
				r := <-a.execute(Call{}, large)
				if r.Err == nil || r.Err.Kind != c.want {
					t.Fatalf("%v, want %v", r.Err, c.want)
				}
				a.must(kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "n", Name: "x"}}) // behind a Drop
				if got := len(parts.Of(a.View()).Waiting()) > 0; got != c.lingers {
					t.Errorf("parts wait: %v, want %v", got, c.lingers)
				}
				time.Sleep(parts.Patience + parts.Patience/100 + lease.DefaultGrace + late)
				if l := parts.Of(a.View()).Waiting(); len(l) != 0 {
					t.Errorf("%+v still waits", l)
				}
				if got := bytes.Equal(kv.Of(a.View()).Entry(largeKey).Value, is); got != c.complete {
					t.Errorf("applied: %v, want %v", got, c.complete)
				}
				if r := <-a.execute(Call{}, large); (r.Err == nil) == c.complete {
					t.Errorf("the next attempt: %v", r.Err)
				}
			})
		})
	}
}

// What a member has begun before it was restarted is discarded once its part has
// waited for as long as one may; what it begins itself takes its place at once.
func TestG25_PartsOfAnEarlierLifeAreDiscarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		n := 0
		a := startBetween(t, fs, func(p node.Proposal, pass func(node.Proposal)) {
			if isPart(p.Command) {
				n++
			}
			if n <= 2 {
				pass(p)
			}
		})
		a.must(kv.Command{Verb: kv.Put, Key: largeKey, Value: was})
		a.execute(Call{}, large)
		synctest.Wait()
		waits := parts.Of(a.View()).Waiting()
		if len(waits) != 1 || waits[0].Bytes() != 2*parts.PartBytes {
			t.Fatalf("%+v waits", waits)
		}
		a.stop()
		a = startAlone(t, fs)
		defer a.stop()
		if l := parts.Of(a.View()).Waiting(); len(l) != 1 || l[0].Newest != waits[0].Newest {
			t.Fatalf("%+v waits", l)
		}
		time.Sleep(parts.Patience - time.Second)
		if l := parts.Of(a.View()).Waiting(); len(l) != 1 {
			t.Fatalf("%+v waits", l)
		}
		time.Sleep(parts.Patience)
		if l := parts.Of(a.View()).Waiting(); len(l) != 0 {
			t.Fatalf("%+v still waits", l)
		}
		if r := <-a.execute(Call{}, large); r.Err != nil {
			t.Errorf("the next attempt: %v", r.Err)
		}
	})
}

// Large commands that wait for their turn are bounded, and a deadline counts for
// each part.
func TestG39_LargeCommandsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		a := startBetween(t, vfs.NewMem(), func(p node.Proposal, pass func(node.Proposal)) {
			if isPart(p.Command) {
				go func() { <-held; pass(p) }()
				return
			}
			pass(p)
		})
		defer a.stop()
		n := maxLargeBytes / len(large.Encode(core.Meta{}))
		var answers []<-chan core.Result
		deadline := Call{Deadline: time.Now().Add(time.Second)}
		for range n {
			answers = append(answers, a.execute(deadline, large))
		}
		if r := <-a.execute(Call{}, large); r.Err == nil || r.Err.Kind != incumbent.Overloaded || r.Err.RetryAfter <= 0 {
			t.Errorf("one more: %v", r.Err)
		}
		time.Sleep(2 * time.Second)
		close(held)
		for i, c := range answers {
			if r := <-c; r.Err == nil || r.Err.Kind != incumbent.DeadlineExceeded {
				t.Errorf("command %d: %v", i, r.Err)
			}
		}
		if r := <-a.execute(Call{}, tooLarge{}); r.Err == nil || r.Err.Kind != incumbent.TooLarge {
			t.Errorf("larger than any may be: %v", r.Err)
		}
	})
}

// One client whose large commands wait leaves room for others', however often it asks; who has
// no name is told apart by the address.
func TestG39_LargeCommandsOfOneLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := make(chan struct{})
		a := startBetween(t, vfs.NewMem(), func(p node.Proposal, pass func(node.Proposal)) {
			if len(p.Command) > parts.PartBytes { // with an origin: isPart knows those without
				go func() { <-held; pass(p) }()
				return
			}
			pass(p)
		})
		defer a.stop()
		var taken []<-chan core.Result
		took := func(o core.Origin) bool {
			c := a.execute(Call{Meta: core.Meta{Origin: o}}, large)
			if len(c) > 0 {
				if r := <-c; r.Err == nil || r.Err.Kind != incumbent.Overloaded || r.Err.RetryAfter <= 0 || r.Err.Hint == "" {
					t.Errorf("%+v: %v", o, r.Err)
				}
				return false
			}
			taken = append(taken, c)
			return true
		}
		clients := []core.Origin{{Principal: "agent:flood", Address: "192.0.2.1:1"}}
		for i := 1; len(clients) < 3; i++ {
			o := core.Origin{Principal: "anonymous", Address: fmt.Sprintf("192.0.2.%d:1", i)}
			if !slices.ContainsFunc(clients, func(c core.Origin) bool { return shareAPlace(c, o) }) {
				clients = append(clients, o)
			}
		}
		flood, nameless, other := clients[0], clients[1], clients[2]
		for took(flood) {
			continue
		}
		if got := a.LargeBytes(); got > maxLargeBytes*4/5 {
			t.Errorf("%d bytes are one client's, of %d", got, maxLargeBytes)
		}
		if !took(nameless) {
			t.Error("another client finds no room")
		}
		for took(nameless) {
			continue
		}
		if took(flood) {
			t.Error("who has most of it is let in again")
		}
		if !took(other) {
			t.Error("a third client finds no room")
		}
		close(held)
		for _, c := range taken {
			<-c
		}
		synctest.Wait()
		if got := a.LargeBytes(); got != 0 {
			t.Errorf("%d bytes wait after all was answered", got)
		}
	})
}

// shareAPlace reports whether two are taken for one client, as few are by chance.
func shareAPlace(a, b core.Origin) bool {
	var r admit.Room
	return !r.Take(whoOf(&a), 9, 10) || !r.Take(whoOf(&b), 1, 10)
}

// tooLarge is larger than any command may be.
type tooLarge struct{}

func (tooLarge) Encode(core.Meta) []byte { return make([]byte, parts.MaxBytes+1) }
