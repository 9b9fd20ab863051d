package admit

import (
	"testing"
	"time"
)

// TestG41_WhoSendsLittleIsServed: one client, or one model, that sends ten times what
// can be done does not take the place of others.
func TestG41_WhoSendsLittleIsServed(t *testing.T) {
	for name, who := range map[string]func(flood bool, i int) Who{
		"clients": func(flood bool, i int) Who {
			if flood {
				return Who{Client: 1 << 31}
			}
			return Who{Client: 1<<31 | Key(1+i%20)}
		},
		"models": func(flood bool, i int) Who { // the flood's clients are many
			if flood {
				return Who{Client: 1<<31 | Key(100+i%200), Group: 1<<31 | 500}
			}
			return Who{Client: 1<<31 | Key(i%20), Group: 1<<31 | Key(600+i%20)}
		},
		"models whose clients seldom ask": func(flood bool, i int) Who {
			if flood {
				return Who{Client: 1<<31 | Key(100_000+i%20_000), Group: 1<<31 | 500}
			}
			return Who{Client: 1<<31 | Key(i%20), Group: 1<<31 | Key(600+i%20)}
		},
	} {
		c := newController(t, Limits{})
		const each = ms // of the server's time: 1,000 a second
		var free int64
		var running []finish
		asked, refused, outOfOrder, done := 0, 0, 0, 0
		enter := func(w Who, now int64) bool {
			ticket, err := c.EnterFor(w, Claims, 1, now)
			if err != nil {
				return false
			}
			free = max(free, now) + each
			running = append(running, finish{free, ticket})
			return true
		}
		for i, now := 0, int64(0); now < int64(20*time.Second); i, now = i+1, now+ms/10 {
			for len(running) > 0 && running[0].at <= now {
				running[0].ticket.Done(running[0].at)
				running = running[1:]
				done++
			}
			enter(who(true, i), now) // 10,000 a second
			if i%100 == 0 {          // 100 a second, of all others together
				ok := enter(who(false, i/100), now)
				if now > int64(5*time.Second) { // the limit has been found
					if asked++; !ok {
						refused++
					}
					if login, err := c.EnterFor(who(false, i/100), Logins, 1, now); err != nil {
						outOfOrder++
					} else {
						login.Done(now)
					}
				}
			}
		}
		if refused > asked/20 {
			t.Errorf("%s: %d of %d requests of those who send little are refused", name, refused, asked)
		}
		if outOfOrder > asked/20 {
			t.Errorf("%s: %d of %d of their logins are refused", name, outOfOrder, asked)
		}
		if done < 18_000 {
			t.Errorf("%s: %d of 20,000 were done: room was left unused", name, done)
		}
		for l := range c.lanes {
			for _, ticket := range running {
				ticket.ticket.Done(int64(time.Minute))
			}
			running = nil
			if c.lanes[l].account != (account{}) {
				t.Errorf("%s: something is under way after all was given back", name)
			}
		}
	}
}

// Who has more than their share of what is refused late is refused it, and what is refused
// before it: others are not.
func TestG41_WhoHasMuchKeepsNobodyOut(t *testing.T) {
	for i, cost := range []int{1, 1 << 20, 1} {
		c := newController(t, Limits{})
		heavy, light := Who{Client: 1<<31 | 1}, Who{Client: 1<<31 | 2}
		if i > 0 { // both are of one group
			heavy.Group, light.Group = 1<<31|9, 1<<31|9
		}
		refused := 0
		for i := range 2 * DefaultStart {
			if _, err := c.EnterFor(heavy, Releases, cost, int64(i)); err != nil {
				refused++
			}
		}
		if refused < DefaultStart {
			t.Fatalf("cost %d: %d refused", cost, refused)
		}
		if n := c.Stats()[Releases].Refused[Share]; cost == 1 && n != uint64(refused) {
			t.Errorf("%d of %d releases are refused for their client's share", n, refused)
		}
		for range 2 { // who has little is refused nothing of the lane either
			if _, err := c.EnterFor(light, Releases, 1, int64(DefaultStart)); cost == 1 && err != nil {
				t.Errorf("a release of who has little: %v", err)
			}
		}
		for l := range Releases {
			_, err := c.EnterFor(heavy, l, 1, ms)
			if ReasonOf(l, err) != Share && ReasonOf(l, err) != Order {
				t.Errorf("cost %d: %s of who has much: %v", cost, l, err)
			}
			if _, err = c.EnterFor(light, l, 1, ms); cost == 1 && err != nil {
				t.Errorf("%s of who has little: %v", l, err)
			}
			if _, err = c.EnterFor(heavy, l, 1, 2*int64(DefaultInterval)); err != nil {
				t.Errorf("cost %d: %s of who had much, after two intervals: %v", cost, l, err)
			}
		}
		// Extensions are refused to nobody while claims are let in.
		for i := range 2 * DefaultStart {
			_, _ = c.EnterFor(heavy, Extensions, 1, int64(time.Second)+int64(i))
		}
		if _, err := c.EnterFor(light, Claims, 1, int64(time.Second)+ms); ReasonOf(Claims, err) != Order {
			t.Errorf("cost %d: a claim while extensions are refused: %v", cost, err)
		}
	}
}

// TestG40_TheLeadersPressureIsPassedOn: what the leader refuses, a member that
// forwards to it refuses, until two intervals have passed without another word; nothing
// else.
func TestG40_TheLeadersPressureIsPassedOn(t *testing.T) {
	leader, follower := newController(t, Limits{}), newController(t, Limits{})
	if p := leader.Pressure(0); p != 0 {
		t.Fatalf("pressure %d while nothing is refused", p)
	}
	leader.SetMemory(85, 100) // logins, watches, reads and claims
	follower.Press(leader.Pressure(0), 0)
	for l := range NumLanes {
		ticket, err := follower.Enter(l, 1, 1)
		if (err != nil) != (rankOf[l] < rankOf[Transactions]) {
			t.Errorf("%s: %v", l, err)
		}
		if err == nil {
			ticket.Done(1)
		}
	}
	if _, err := follower.Enter(Claims, 1, 2*int64(DefaultInterval)-1); err == nil {
		t.Error("let in while the leader's word holds")
	}
	if _, err := follower.Enter(Claims, 1, 2*int64(DefaultInterval)); err != nil {
		t.Errorf("after two intervals: %v", err)
	}
	follower.Press(255, 0)
	if _, err := follower.Enter(Extensions, 1, 1); err != nil {
		t.Errorf("an extension, by what the leader said: %v", err)
	}
	leader.SetMode(Observe)
	if p := leader.Pressure(0); p != 0 {
		t.Errorf("pressure %d of a leader that refuses nothing", p)
	}
}
