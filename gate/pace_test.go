package gate

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// greets connects from an address and begins a handshake.
func (r *rig) greets(address string) net.Conn {
	r.t.Helper()
	c := r.dial(address)
	r.say(c, string(rune(handshakeRecord)))
	return c
}

// exhaust has so many of an address fail that the next one waits.
func (r *rig) exhaust(address string) {
	r.t.Helper()
	for range 10_000 {
		c := r.greets(address)
		in := r.next()
		if in == nil {
			c.Close()
			return
		}
		in.Close()
	}
	r.t.Fatal("whoever fails is served without end")
}

// Who fails is served at the rate that is set, and neither sooner for having waited
// nor more seldom for coming in a crowd.
func TestG47_WhoProvesNothingIsServedAtAPace(t *testing.T) {
	for _, plain := range []bool{false, true} {
		play(t, func(t *testing.T) {
			const rate, seconds, crowd = 20, 30, 5
			pace := NewPace()
			pace.SetRate(rate)
			r := newRig(t, Config{Pace: pace})
			come, want := r.greets, rate*seconds
			if plain {
				come, want = r.speak, want*plainShare
			}
			r.exhaust("192.0.2.1")
			for range crowd {
				come("192.0.2.1")
			}
			served := 0
			for range seconds * rate * 16 {
				time.Sleep(time.Second / rate / 16)
				for c := r.next(); c != nil; c = r.next() {
					served++
					c.Close()
					come("192.0.2.1")
				}
			}
			if served > want+1 || served < want*9/10 {
				t.Errorf("%d were served in %d seconds, %d may be; without TLS: %v", served, seconds, want, plain)
			}
			if got := pace.Stats(); got.Failed < uint64(served) || got.Failing != 1 {
				t.Errorf("%+v after %d", got, served)
			}
			time.Sleep(failingFor)
			if got := pace.Stats().Failing; got != 0 {
				t.Errorf("%d addresses are said to fail after all is over", got)
			}
		})
	}
}

// Who comes from another address does not wait for those who fail.
func TestG47_WhoFailsDoesNotHoldOthersUp(t *testing.T) {
	play(t, func(t *testing.T) {
		pace := NewPace()
		r := newRig(t, Config{Pace: pace})
		r.exhaust("192.0.2.1")
		r.greets("192.0.2.1")
		for i := range 1000 {
			r.greets(fmt.Sprintf("198.51.100.%d", i%250))
			if !Prove(r.mustLetIn(), false) {
				t.Fatalf("no place for %d", i)
			}
		}
	})
}

// A fleet of which somebody fails has all that there is: who proves who it is takes
// nothing from the others of its address.
func TestAFleetReturnsFromAnAddressThatFails(t *testing.T) {
	play(t, func(t *testing.T) {
		const agents, failEvery = 5000, 100
		pace := NewPace()
		r := newRig(t, Config{Pace: pace, Max: 2 * agents})
		began := time.Now()
		for i := range agents {
			r.greets("192.0.2.1")
			c := r.next()
			for c == nil {
				time.Sleep(time.Millisecond)
				c = r.next()
			}
			if i%failEvery == 0 {
				c.Close()
			} else if !Prove(c, false) {
				t.Fatalf("no place for agent %d", i)
			}
		}
		if took := time.Since(began); took != 0 { // fewer have failed than may at once
			t.Errorf("it took %v", took)
		}
	})
}

// Where failures come from addresses that have not failed before, all wait, and as soon
// as they are over nobody does.
func TestG47_NewAddressesDoNotGetAroundThePace(t *testing.T) {
	play(t, func(t *testing.T) {
		const rate = 10
		pace := NewPace()
		pace.SetRate(rate)
		r := newRig(t, Config{Pace: pace})
		served := 0
		for i := range 1000 {
			c := r.greets(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
			in := r.next()
			if in == nil {
				c.Close()
				break
			}
			served++
			in.Close()
		}
		if most := int((paceBurst+paceClean)/time.Second)*rate + 2; served > most {
			t.Errorf("%d of new addresses were served at once; %d may be", served, most)
		}
		time.Sleep(paceDebt)
		r.greets("203.0.113.1")
		r.mustLetIn()
	})
}

// Who waits for the pace is closed in time rather than left without an answer.
func TestG47_WhoWaitsForThePaceIsClosedInTime(t *testing.T) {
	play(t, func(t *testing.T) {
		pace := NewPace()
		pace.SetRate(1)
		r := newRig(t, Config{Pace: pace})
		r.exhaust("192.0.2.1")
		var crowd []net.Conn
		for range 100 {
			crowd = append(crowd, r.greets("192.0.2.1"))
		}
		wait(weary)
		if got := r.gate.Stats(); got.Closed[Failing] != 0 {
			t.Errorf("closed early: %+v", got)
		}
		wait(patience + oneSecond - weary)
		closed := 0
		for _, c := range crowd {
			if !open(c) {
				closed++
			}
		}
		if got := r.gate.Stats(); got.Waiting != 0 || got.Closed[Failing] != uint64(closed) || closed < 90 {
			t.Errorf("%d of %d are closed, %+v", closed, len(crowd), got)
		}
	})
}

// Those who came at once and wait for the pace are not closed at once: they would all come back
// at once, and would go on doing so.
func TestG47_ACrowdThatWaitsForThePaceIsDispersed(t *testing.T) {
	play(t, func(t *testing.T) {
		const rate, many = 97, 800 // at 100 one would be let in exactly when a tick looks, whichever comes first
		pace := NewPace()
		pace.SetRate(rate)
		r := newRig(t, Config{Pace: pace, Unproven: 2 * many})
		r.exhaust("192.0.2.1")
		for range many {
			r.greets("192.0.2.1")
		}
		most, before := uint64(0), uint64(0)
		for range patience + oneSecond {
			wait(1)
			closed := r.gate.Stats().Closed[Failing]
			most, before = max(most, closed-before), closed
		}
		if got := r.gate.Stats(); got.Waiting != 0 || before < many/2 || most > before/2 {
			t.Errorf("%d of %d are closed, %d of them at once: %+v", before, many, most, got)
		}
	})
}

// A visit is judged once: by what was brought, and else by how long it lasted.
func TestG47_WhatCountsAsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		does   func(c *Conn)
		failed uint64
	}{
		"proves":                      {func(c *Conn) { Prove(c, false); c.Close() }, 0},
		"leaves at once":              {func(c *Conn) { c.Close() }, 1},
		"leaves after a second":       {func(c *Conn) { time.Sleep(promptly); c.Close() }, 0},
		"brings what is nobody's":     {func(c *Conn) { time.Sleep(promptly); VisitOf(c).Failed(); c.Close() }, 1},
		"says so twice":               {func(c *Conn) { VisitOf(c).Failed(); VisitOf(c).Failed(); Prove(c, false) }, 1},
		"proves, then brings nothing": {func(c *Conn) { Prove(c, false); VisitOf(c).Failed() }, 0},
		"is sent away for the load":   {func(c *Conn) { VisitOf(c).Excused(); c.Close() }, 0},
		"is denied":                   {func(c *Conn) { VisitOf(c).Refused(incumbent.Errorf(incumbent.Denied, "no")) }, 1},
		"is told to try again":        {func(c *Conn) { VisitOf(c).Refused(incumbent.Errorf(incumbent.Unavailable, "no")); c.Close() }, 0},
		"is parked":                   {func(c *Conn) { Leave(c); c.Close() }, 0},
		"is parked as a stranger":     {func(c *Conn) { v := HandOver(c); c.Close(); v.Ended() }, 1},
		"needs no proof and stays":    {func(c *Conn) { v, _ := Welcome(c); time.Sleep(promptly); v.Ended() }, 0},
		"needs no proof and goes":     {func(c *Conn) { v, _ := Welcome(c); c.Close(); v.Ended() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				pace := NewPace()
				r := newRig(t, Config{Pace: pace})
				r.greets("192.0.2.1")
				in := r.mustLetIn()
				c.does(in)
				synctest.Wait()
				if got := pace.Stats().Failed; got != c.failed {
					t.Errorf("%d failures, want %d", got, c.failed)
				}
				in.Close()
			})
		})
	}
}

// While all wait for the pace, one is asked: who has not failed waits no longer than
// anybody else. While those who fail wait, the others are found behind them.
func TestThePaceIsAskedOnceForAll(t *testing.T) {
	play(t, func(t *testing.T) {
		const addresses = 500
		pace := NewPace()
		r := newRig(t, Config{Pace: pace})
		pace.full = pace.now() + paceDebt
		for i := range addresses {
			r.greets(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		}
		looked := r.looked()
		r.greets("192.0.2.1")
		if n := r.looked() - looked; n != 1 || r.next() != nil {
			t.Errorf("%d addresses were looked at, want 1", n)
		}
		pace.full = pace.now() + paceBurst + time.Second
		for i := range addresses {
			pace.mark(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)}), pace.now())
		}
		r.greets("192.0.2.2")
		for _, want := range []string{"192.0.2.1:1", "192.0.2.2:1"} {
			if c := r.mustLetIn(); c.RemoteAddr().String() != want {
				t.Errorf("let in %v, want %v", c.RemoteAddr(), want)
			}
		}
	})
}
