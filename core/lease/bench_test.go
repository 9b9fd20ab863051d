package lease

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

const (
	benchLeases = 100_000
	benchBatch  = 64
)

func benchName(i int) incumbent.Name {
	return incumbent.Name{Namespace: "application-leadership", Model: "0c1c2f7e-5e1f-4a5e-8f3c-4a1c9d6c0b11", Lease: fmt.Sprintf("application-%06d", i)}
}

var benchMeta = core.Meta{Origin: core.Origin{At: time.UnixMilli(1700000000000), Door: "native", Address: "127.0.0.1:17070", Principal: "agent"}}

// bench is a state with 100,000 leases and what to do with them all, in an order
// in which neighbours are far apart.
type bench struct {
	s       *state
	results []core.Result
	session incumbent.SessionID
}

func newBench(session incumbent.SessionID) *bench {
	s := New()
	s.t.limits.perSession = benchLeases
	if !session.IsZero() {
		s.Apply([][]byte{core.OpenSessionCommand{ID: session, TTL: time.Minute}.Encode(benchMeta)}, make([]core.Result, 1))
	}
	return &bench{s: s, results: make([]core.Result, benchLeases), session: session}
}

func (b *bench) all(c func(i int) core.Command, meta core.Meta) [][]byte {
	cmds := make([][]byte, benchLeases)
	for i := range cmds {
		cmds[i] = c(i * 7919 % benchLeases).Encode(meta)
	}
	return cmds
}

func (b *bench) claims(holder string) [][]byte {
	ttl := time.Minute
	if !b.session.IsZero() {
		ttl = 0
	}
	return b.all(func(i int) core.Command {
		return ClaimCommand{Name: benchName(i), Holder: holder, Session: b.session, TTL: ttl}
	}, benchMeta)
}

func (b *bench) releases(holder string) [][]byte {
	return b.all(func(i int) core.Command {
		return ReleaseCommand{Name: benchName(i), Holder: holder, Session: b.session}
	}, benchMeta)
}

// expiries end what the results of claims say is held.
func (b *bench) expiries() [][]byte {
	cmds := make([][]byte, benchLeases)
	for i, r := range b.results {
		cmds[i] = ExpireCommand{Token: AnswerOf(r).Lease.Token, Renewal: AnswerOf(r).Lease.Renewal, Late: time.Millisecond}.Encode(core.Meta{})
	}
	return cmds
}

func (b *bench) apply(cmds [][]byte) { b.s.Apply(cmds, b.results) }

// run times cmds in batches, with a view after each; prepare begins each round
// of all leases anew, untimed. One operation is one command.
func (b *bench) run(t *testing.B, want incumbent.Kind, prepare func() [][]byte) {
	t.ReportAllocs()
	t.ResetTimer()
	var cpu time.Duration // of this process, for machines that do other things
	for done := 0; done < t.N; {
		t.StopTimer()
		cmds := prepare()
		runtime.GC()
		began := cpuTime()
		t.StartTimer()
		for from := 0; from < len(cmds) && done < t.N; from += benchBatch {
			n := min(benchBatch, len(cmds)-from, t.N-done)
			b.s.Apply(cmds[from:from+n], b.results[from:from+n])
			b.s.View()
			done += n
			if r := b.results[from]; incumbent.KindOf(asError(r.Err)) != want {
				t.Fatalf("got %v, want %v", r.Err, want)
			}
		}
		cpu += cpuTime() - began
	}
	t.ReportMetric(float64(cpu.Nanoseconds())/float64(t.N), "cpu-ns/op")
}

func asError(e *incumbent.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// A claim of a free lease, among 100,000.
func BenchmarkApplyClaim(t *testing.B) { benchClaim(t, incumbent.SessionID{}) }

// The same through a session.
func BenchmarkApplyClaimSession(t *testing.B) { benchClaim(t, sessionID("s")) }

func benchClaim(t *testing.B, session incumbent.SessionID) {
	b := newBench(session)
	claims, releases := b.claims("unit-0"), b.releases("unit-0")
	b.run(t, incumbent.OK, func() [][]byte {
		b.apply(claims)
		b.apply(releases)
		return claims
	})
}

// A claim of a name that has no record yet.
func BenchmarkApplyClaimNew(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	claims := b.claims("unit-0")
	b.run(t, incumbent.OK, func() [][]byte {
		b.s = New()
		return claims
	})
}

// A session that is not open yet, among up to 100,000.
func BenchmarkApplyOpenSession(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	cmds := b.all(func(i int) core.Command {
		sum := sha256.Sum256([]byte(benchName(i).Lease))
		return core.OpenSessionCommand{ID: incumbent.SessionID(sum[:16]), TTL: time.Minute}
	}, benchMeta)
	b.run(t, incumbent.OK, func() [][]byte {
		b.s = New()
		return cmds
	})
}

// A claim that another's holding refuses.
func BenchmarkApplyClaimHeld(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	b.apply(b.claims("unit-0"))
	claims := b.claims("unit-1")
	b.run(t, incumbent.Held, func() [][]byte { return claims })
}

// An expiry, among 100,000 leases.
func BenchmarkApplyExpire(t *testing.B) { benchExpire(t, incumbent.SessionID{}) }

// The same of leases that a session owns.
func BenchmarkApplyExpireSession(t *testing.B) { benchExpire(t, sessionID("s")) }

func benchExpire(t *testing.B, session incumbent.SessionID) {
	b := newBench(session)
	claims := b.claims("unit-0")
	b.apply(claims)
	b.apply(b.releases("unit-0"))
	b.run(t, incumbent.OK, func() [][]byte {
		b.apply(b.releases("unit-0"))
		b.apply(claims)
		return b.expiries()
	})
}

// An expiry that is void.
func BenchmarkApplyExpireVoid(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	claims := b.claims("unit-0")
	b.apply(claims)
	expiries := b.expiries()
	b.apply(claims)
	b.run(t, incumbent.Conflict, func() [][]byte { return expiries })
}

// A claim of a name that has no record yet, through one session.
func BenchmarkApplyClaimNewSession(t *testing.B) {
	id := sessionID("s")
	b := newBench(id)
	claims := b.claims("unit-0")
	b.run(t, incumbent.OK, func() [][]byte {
		b.s = newBench(id).s
		return claims
	})
}

// A release, among 100,000.
func BenchmarkApplyRelease(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	claims, releases := b.claims("unit-0"), b.releases("unit-0")
	b.run(t, incumbent.OK, func() [][]byte {
		b.apply(claims)
		return releases
	})
}

// A logged extension, among 100,000.
func BenchmarkApplyExtend(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	claims := b.claims("unit-0")
	b.apply(claims)
	b.run(t, incumbent.OK, func() [][]byte { return claims })
}

// What a lease keeps in memory: held for the first time, and with a full history.
func BenchmarkMemory(t *testing.B) {
	for _, c := range []struct {
		name     string
		holdings int
	}{{"first", 0}, {"history", MaxHistory / 2}} {
		t.Run(c.name, func(t *testing.B) {
			var perLease float64
			for t.Loop() {
				before := heap()
				b := newBench(incumbent.SessionID{})
				for range c.holdings {
					b.apply(b.claims("unit-0"))
					b.apply(b.releases("unit-0"))
				}
				b.apply(b.claims("unit-0"))
				b.results = nil
				perLease = float64(heap()-before) / benchLeases
				runtime.KeepAlive(b)
			}
			t.ReportMetric(perLease, "B/lease")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What a batch costs besides its commands: with 64 in a batch, a sixty-fourth
// of it each.
func BenchmarkView(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	b.apply(b.claims("unit-0"))
	t.ReportAllocs()
	for t.Loop() {
		b.s.View()
	}
}

func BenchmarkLookup(t *testing.B) {
	b := newBench(incumbent.SessionID{})
	b.apply(b.claims("unit-0"))
	v := b.s.View()
	t.Run("name", func(t *testing.B) {
		names := make([]incumbent.Name, benchLeases)
		for i := range names {
			names[i] = benchName(i * 7919 % benchLeases)
		}
		t.ReportAllocs()
		for i := 0; t.Loop(); i++ {
			if Of(v).Lease(names[i%benchLeases]) == nil {
				t.Fatal("not found")
			}
		}
	})
	t.Run("token", func(t *testing.B) {
		t.ReportAllocs()
		for i := 0; t.Loop(); i++ {
			if Of(v).ByToken(incumbent.Token(i*7919%benchLeases+1)) == nil {
				t.Fatal("not found")
			}
		}
	})
}

func BenchmarkEncodeExpire(t *testing.B) {
	t.ReportAllocs()
	for t.Loop() {
		ExpireCommand{Token: 1 << 40, Renewal: 3, Late: time.Millisecond}.Encode(core.Meta{})
	}
}

func BenchmarkDecodeClaim(t *testing.B) {
	cmd := bodyOf(t, ClaimCommand{Name: benchName(1), Holder: "unit-0", TTL: time.Minute}.Encode(benchMeta))
	var c command
	t.ReportAllocs()
	for t.Loop() {
		if c.decode(cmd) != nil {
			t.Fatal("not decoded")
		}
	}
}

// 100,000 leases, claimed once or with all the history they can have, a whole snapshot to
// an operation.
func BenchmarkSnapshot(t *testing.B) {
	t.Run("new", func(t *testing.B) { benchSnapshot(t, 0) })
	t.Run("old", func(t *testing.B) { benchSnapshot(t, MaxHistory) })
}

func benchSnapshot(t *testing.B, changes int) {
	b := newBench(incumbent.SessionID{})
	for n := range changes {
		holder := fmt.Sprintf("unit-%d", n)
		b.apply(b.claims(holder))
		b.apply(b.releases(holder))
	}
	b.apply(b.claims("unit-0"))
	v := b.s.View()
	var buf bytes.Buffer
	if err := v.WriteSnapshot(&buf); err != nil {
		t.Fatal(err)
	}
	t.Run("write", func(t *testing.B) {
		for t.Loop() {
			if err := v.WriteSnapshot(io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		t.ReportMetric(float64(buf.Len())/benchLeases, "B/lease")
	})
	t.Run("hash", func(t *testing.B) {
		began := cpuTime()
		for t.Loop() {
			v.Hash()
		}
		t.ReportMetric(float64((cpuTime()-began).Nanoseconds())/float64(t.N)/benchLeases, "cpu-ns/lease")
	})
	t.Run("restore", func(t *testing.B) {
		for t.Loop() {
			if _, err := Restore(bytes.NewReader(buf.Bytes())); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// BenchmarkHistory: a change of a lease whose history is full, of so many leases that most
// are in no cache.
func BenchmarkHistory(b *testing.B) {
	origin := &core.Origin{At: core.AtMillis(1_700_000_000_000), Door: "native", Address: "127.0.0.1:34567"}
	all := make([]*Lease, 100_000)
	for i := range all {
		l := (*Lease)(nil).next()
		l.entry = &entry{}
		for n := range MaxHistory {
			l.remember(LeaseChange{Index: 1000, What: Released, Holder: fmt.Sprintf("flood-%d", i), Token: 999, Late: time.Duration(n), Origin: origin})
		}
		all[i] = l
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i * 7919 % len(all)
		n := all[at].next()
		n.Holder, n.Token, n.Origin = "flood-7", 1001, origin
		n.begin(1001)
		n.remember(LeaseChange{Index: 1002, What: Released, Holder: "flood-7", Token: 1001, Origin: origin})
		all[at] = n
	}
}
