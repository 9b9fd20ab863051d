package engine

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/watch"
)

// randomCommands is how many commands one seed plays.
const randomCommands = 400

// TestG15_G28_RandomCommandsThroughTheComposition plays random commands of all
// kinds, over a few names and sessions that meet each other, through the whole
// composition. Whatever they are, nothing panics, what a reader is told composes
// to the state, and a second member that gets the same commands in other batches,
// and is restored from snapshots, has the same state. INCUMBENT_RANDOM_SEEDS
// says how many seeds, from INCUMBENT_RANDOM_FIRST on.
func TestG15_G28_RandomCommandsThroughTheComposition(t *testing.T) {
	first := setting(t, "INCUMBENT_RANDOM_FIRST", 0)
	for seed := range setting(t, "INCUMBENT_RANDOM_SEEDS", 60) {
		seed += first
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { newPlay(t, seed).run() })
	}
}

func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// play is one seed: two members, and a reader of the first.
type play struct {
	*testing.T
	rng        *rand.Rand
	one, other *Engine
	reader     *watch.Reader
	keys       map[string]*kv.Entry             // what the reader's changes of keys compose to
	told       map[incumbent.Name]*leases.Lease // what the reader's changes compose to
	deadlines  map[string]core.Deadline         // what the changes compose to that the leader's clock is told of
	last       incumbent.Index
	behind     [][]byte // what the other has not applied yet
}

func newPlay(t *testing.T, seed uint64) *play {
	p := &play{T: t, rng: rand.New(rand.NewPCG(seed, 0xe1)), told: map[incumbent.Name]*leases.Lease{}, keys: map[string]*kv.Entry{}}
	p.one, p.other = newManual(t), newManual(t)
	p.deadlines = map[string]core.Deadline{}
	p.one.cfg.Applied = p.composeDeadlines
	var err error
	if p.reader, err = p.one.Hub().Subscribe(0, func() {}, watch.All(watch.Kind(leases.Number)), watch.All(watch.Kind(kv.Number))); err != nil {
		t.Fatal(err)
	}
	return p
}

func newManual(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Config{Watch: watch.Config{Manual: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.CloseWatches)
	return e
}

func (p *play) run() {
	for n := 0; n < randomCommands; {
		batch := make([][]byte, 1+p.rng.IntN(6))
		for i := range batch {
			batch[i] = p.command()
			n++
		}
		p.apply(p.one, batch)
		p.follow()
		p.behind = append(p.behind, batch...)
		if p.rng.IntN(4) == 0 {
			p.catchUp()
		}
	}
	p.catchUp()
}

func (p *play) apply(e *Engine, batch [][]byte) {
	p.Helper()
	before := e.View().Index()
	results := make([]any, len(batch))
	e.Apply(batch, results)
	e.Hub().Turn()
	for i, r := range results {
		if r, ok := r.(*core.Result); !ok || r.Index <= before && !r.Replayed {
			p.Fatalf("the result of command %x is %+v", batch[i], results[i])
		}
	}
	if err := e.Check(); err != nil {
		p.Fatal(err)
	}
}

// follow composes what the reader is told to the state.
func (p *play) follow() {
	p.Helper()
	for {
		b, err := p.reader.Pull(nil, 8, 1<<20)
		if err != nil {
			p.Fatal(err)
		}
		for _, e := range b.Events {
			if e.Index < p.last {
				p.Fatalf("a change at index %d after one at %d", e.Index, p.last)
			}
			p.last = e.Index
			p.compose(e.Payload.(*core.Change))
		}
		if !b.More {
			break
		}
	}
	view := p.one.View()
	p.checkKeys(kv.Of(view))
	leases.Of(view).Below("", "", "", incumbent.Name{}, func(l *leases.Lease) bool {
		if p.told[l.Name] != l {
			p.Fatalf("at index %d: the changes compose to %+v, the state has %+v", view.Index(), p.told[l.Name], l)
		}
		return true
	})
}

// checkKeys compares what the changes of keys compose to with the state.
func (p *play) checkKeys(view *kv.View) {
	p.Helper()
	n := 0
	view.Ascend(kv.Key{Namespace: "n"}, kv.Key{}, func(e *kv.Entry) bool {
		n++
		if p.keys[e.Name] != e {
			p.Fatalf("key %s: the changes compose to %+v, the state has %+v", e.Name, p.keys[e.Name], e)
		}
		return true
	})
	if n != len(p.keys) {
		p.Fatalf("the changes compose to %d keys, the state has %d", len(p.keys), n)
	}
}

func (p *play) composeDeadlines(a *Applied) {
	p.Helper()
	for i := range a.Changes {
		f := a.Changes[i].Family
		switch {
		case f == nil || f.Deadline == nil:
		case f.Deadline.After > 0:
			p.deadlines[f.Deadline.ID] = *f.Deadline
		default:
			delete(p.deadlines, f.Deadline.ID)
		}
	}
	want := map[string]core.Deadline{}
	a.View.Deadlines(func(d *core.Deadline) bool {
		want[d.ID] = *d
		return true
	})
	if !maps.Equal(p.deadlines, want) {
		p.Fatalf("the changes compose to the deadlines %v, the state has %v", p.deadlines, want)
	}
}

func (p *play) composeKey(c *core.Change) {
	p.Helper()
	name := c.Family.Topic.Name
	before, _ := c.Family.Before.(*kv.Entry)
	after, _ := c.Family.After.(*kv.Entry)
	if p.keys[name] != before {
		p.Fatalf("the change at index %d goes from %+v, the last one went to %+v", c.Index, before, p.keys[name])
	}
	if before == after { // the end of a delay
		return
	}
	if p.keys[name] = after; after == nil {
		delete(p.keys, name)
	} else if after.Modified != c.Index {
		p.Fatalf("the change at index %d tells of an entry of index %d", c.Index, after.Modified)
	}
}

func (p *play) compose(of *core.Change) {
	p.Helper()
	c, ok := leases.ChangeOf(of)
	if !ok {
		p.composeKey(of)
		return
	}
	if got := p.told[c.Lease.Name]; got != c.LeaseBefore && (got == nil || c.LeaseBefore != nil || !got.Free()) {
		p.Fatalf("the change at index %d goes from %+v, the last one went to %+v", c.Index, c.LeaseBefore, got)
	}
	if c.Lease.Modified > c.Index {
		p.Fatalf("the change at index %d tells of a record of index %d", c.Index, c.Lease.Modified)
	}
	p.told[c.Lease.Name] = c.Lease
}

// catchUp has the other member apply what it lacks, in batches of its own, now
// and then through a snapshot.
func (p *play) catchUp() {
	p.Helper()
	for len(p.behind) > 0 {
		n := 1 + p.rng.IntN(len(p.behind))
		p.apply(p.other, p.behind[:n])
		p.behind = p.behind[n:]
		if p.rng.IntN(5) == 0 {
			var b bytes.Buffer
			if err := p.other.Snapshot()(&b); err != nil {
				p.Fatal(err)
			}
			if err := p.other.Restore(&b); err != nil {
				p.Fatal(err)
			}
		}
	}
	if a, b := p.one.View(), p.other.View(); a.Hash() != b.Hash() || a.Index() != b.Index() {
		p.Fatalf("at index %d: the states differ (index %d)", a.Index(), b.Index())
	}
}

// command draws one. What it says of tokens and renewals is mostly true, for
// else nothing would ever happen.
func (p *play) command() []byte {
	meta := core.Meta{Origin: core.Origin{At: time.UnixMilli(int64(p.rng.IntN(1000))), Door: "native", Principal: "p" + p.digit(3)}}
	if p.rng.IntN(5) == 0 {
		meta.KeyID = []byte{byte(p.rng.IntN(20))}
		meta.KeyBase = p.one.View().Index() - min(p.one.View().Index(), incumbent.Index(p.rng.IntN(30)))
	}
	if p.rng.IntN(25) == 0 {
		b := make([]byte, p.rng.IntN(12))
		for i := range b {
			b[i] = byte(p.rng.IntN(256))
		}
		if core.RequiredSchema(b) <= core.SchemaVersion {
			return b
		}
	}
	cmd := p.drawn().Encode(meta)
	if p.rng.IntN(3) == 0 {
		cmd = p.key().Encode(meta)
	}
	switch p.rng.IntN(400) {
	default:
		return cmd
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		return parts.Part{Member: p.rng.Uint64N(3), Whole: cmd}.Encode(core.Meta{})
	case 10:
		return p.part().Encode(core.Meta{})
	}
}

// part draws the first part of a command, the next one, or the end of one.
func (p *play) part() core.Command {
	put := kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "n", Name: "large"}, Value: make([]byte, parts.PartBytes+1)}
	c := parts.Part{Member: 1, Whole: put.Encode(core.Meta{})}
	for _, w := range parts.Of(p.one.View()).Waiting() {
		if p.rng.IntN(3) == 0 {
			return parts.Drop{Member: w.Member, Newest: w.Newest}
		}
		c.Began, c.Offset = w.Began, w.Bytes()
	}
	return c
}

// key draws a command of the family of keys.
func (p *play) key() core.Command {
	view := kv.Of(p.one.View())
	c := kv.Command{Verb: kv.Verb(1 + p.rng.IntN(6)), Key: kv.Key{Namespace: "n", Name: p.letter(3) + "/" + p.letter(3)}, Flags: p.rng.Uint64N(3)}
	c.Value = []byte(p.letter(4))
	switch c.Verb {
	case kv.Put, kv.Remove:
		c.If, c.Was = kv.If(p.rng.IntN(3)), []byte(p.letter(4))
		if e := view.Entry(c.Key); e != nil && p.rng.IntN(4) > 0 {
			c.Index = e.Modified
		}
	case kv.Acquire, kv.Release:
		c.Session = p.session()
		if e := view.Entry(c.Key); e != nil && p.rng.IntN(2) > 0 {
			c.Session = e.Session
		}
	case kv.RemoveTree:
		c.Key.Name = c.Key.Name[:p.rng.IntN(len(c.Key.Name)+1)]
	case kv.EndDelay:
		view.Delays(func(d *kv.Delay) bool {
			c.Key, c.Index = d.Key, d.Since+incumbent.Index(p.rng.IntN(4)/3)
			return p.rng.IntN(2) == 0
		})
	}
	if c.Verb == kv.Acquire {
		c.OnEnd, c.Delay = kv.OnEnd(p.rng.IntN(2)), time.Duration(p.rng.IntN(3))*time.Second
	}
	return c
}

func (p *play) drawn() core.Command {
	view := p.one.View()
	name := incumbent.Name{Namespace: "n", Model: "m", Lease: p.letter(4)}
	l := leases.Of(view).Lease(name)
	if l == nil {
		l = new(leases.Lease)
	}
	holder, session, known := p.letter(3), p.session(), p.session()
	if p.rng.IntN(5) == 0 {
		session = incumbent.SessionID{}
	}
	if !l.Free() && p.rng.IntN(2) == 0 {
		holder, session = l.Holder, l.Session
	}
	token := l.Token + incumbent.Token(p.rng.IntN(4)/3)
	var absent []incumbent.SessionID
	for p.rng.IntN(3) == 0 {
		absent = append(absent, p.session())
	}
	renewal := func(n uint64) uint64 { return n + uint64(p.rng.IntN(4)/3) }
	switch p.rng.IntN(20) {
	case 0, 1, 2, 3, 4:
		c := leases.ClaimCommand{Name: name, Holder: holder, Session: session, Wait: p.rng.IntN(3) > 0, Critical: p.rng.IntN(3) == 0}
		if session.IsZero() {
			c.TTL = time.Duration(1+p.rng.IntN(3)) * time.Minute
		}
		if p.rng.IntN(6) == 0 {
			c.Token = token
		}
		return c
	case 5:
		return leases.AcceptCommand{Token: token}
	case 6:
		return leases.ReleaseCommand{Name: name, Holder: holder, Session: session, Next: known, Absent: absent, Token: token * incumbent.Token(p.rng.IntN(2))}
	case 7:
		return leases.RevokeCommand{Name: name, Token: token * incumbent.Token(p.rng.IntN(2)), By: "op", Next: known, Absent: absent, AtDeadline: p.rng.IntN(2) == 0}
	case 8:
		return leases.TransferCommand{Name: name, Holder: holder, Session: session, Token: token, ToSession: known, ToHolder: p.letter(3)}
	case 9:
		return leases.ExpireCommand{Token: token, Renewal: renewal(l.Renewal), Late: time.Millisecond, Next: known, Absent: absent}
	case 10:
		return leases.PinCommand{Name: name, Entity: p.letter(2)}
	case 11:
		return leases.UnpinCommand{Name: name, Entity: p.letter(2)}
	case 12:
		return leases.LeaveQueueCommand{Name: name, Session: known, Holder: p.letter(3)}
	case 13, 14, 15:
		return core.OpenSessionCommand{ID: known, TTL: time.Duration(p.rng.IntN(3)) * time.Minute}
	case 16:
		return core.CloseSessionCommand{ID: known, Reason: "done", Absent: absent}
	case 17:
		var n uint64
		if s := view.Session(known); s != nil {
			n = s.Renewal
		}
		return core.ExpireSessionCommand{ID: known, Renewal: renewal(n), Late: time.Second, Absent: absent}
	case 18:
		return core.ExtendSessionCommand{ID: known, TTL: time.Duration(1+p.rng.IntN(3)) * time.Minute}
	}
	return p.aside()
}

// aside draws a command that is about no lease.
func (p *play) aside() core.Command {
	switch p.rng.IntN(5) {
	case 0:
		return core.TrimKeysCommand{Through: incumbent.Index(p.rng.Uint64N(uint64(p.one.View().Index()) + 2))}
	case 1:
		return core.RaiseIndexCommand{To: p.one.View().Index() + incumbent.Index(p.rng.IntN(5))}
	case 2:
		return core.PutMemberCommand{Member: core.Member{ID: uint64(p.rng.IntN(4)), Name: "m" + p.digit(3), PeerAddress: "host:1", Schema: core.SchemaVersion}}
	case 3:
		return core.RemoveMemberCommand{ID: uint64(p.rng.IntN(4))}
	}
	return core.CheckpointCommand{}
}

func (p *play) letter(n int) string { return string(rune('a' + p.rng.IntN(n))) }
func (p *play) digit(n int) string  { return fmt.Sprint(p.rng.IntN(n)) }

func (p *play) session() (id incumbent.SessionID) {
	id[0], id[15] = byte(1+p.rng.IntN(4)), 1
	return id
}
