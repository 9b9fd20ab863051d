package admit

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// checkOrder checks a record as [Record] does.
func checkOrder(record []Decision, interval int64) error {
	var o Record
	for _, d := range record {
		if err := o.Next(d, interval); err != nil {
			return err
		}
	}
	return nil
}

// recorded asks a controller and writes down what it decided.
func (c *Controller) recorded(record *[]Decision, l Lane, now int64) (Ticket, bool) {
	ticket, err := c.Enter(l, 1, now)
	why := ReasonOf(l, err)
	if (why == NumReasons) != (err == nil) {
		panic("a refusal says no reason: " + err.Error())
	}
	*record = append(*record, Decision{now, l, why})
	return ticket, err == nil
}

// Whatever comes, at whatever rates, and however short memory becomes: the record shows
// no lane that refuses while one before it lets in.
func TestG40_TheRecordShowsTheOrder(t *testing.T) {
	refusals := 0
	rapid.Check(t, func(t *rapid.T) {
		c, err := New(Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		each := int64(rapid.IntRange(500, 2000).Draw(t, "service µs")) * ms / 1000
		var weights [NumLanes]int
		sum := 0
		for l := range weights {
			weights[l] = rapid.IntRange(0, 10).Draw(t, Lane(l).String())
			sum += weights[l]
		}
		times := rapid.IntRange(1, 6).Draw(t, "times what can be done")
		var record []Decision
		var free int64
		var running []finish
		for now := int64(0); now < 800*ms && sum > 0; now += 1 + int64(rng.ExpFloat64()*float64(each)/float64(times)) {
			for len(running) > 0 && running[0].at <= now {
				running[0].ticket.Done(running[0].at)
				running = running[1:]
			}
			if rng.IntN(2000) == 0 {
				c.SetMemory(int64(rng.IntN(110)), 100)
			}
			pick, lane := rng.IntN(sum), 0
			for ; pick >= weights[lane]; lane++ {
				pick -= weights[lane]
			}
			if ticket, ok := c.recorded(&record, Lane(lane), now); ok {
				free = max(free, now) + each
				running = append(running, finish{free, ticket})
			} else {
				refusals++
			}
		}
		if err := checkOrder(record, int64(DefaultInterval)); err != nil {
			t.Fatal(err)
		}
		if n := c.Disorder(); n != 0 {
			t.Fatalf("%d are said to have been let in out of order", n)
		}
	})
	if refusals == 0 {
		t.Error("nothing was refused at all")
	}
}

func TestCheckOrder(t *testing.T) {
	const in, wide = NumReasons, int64(DefaultInterval)
	for name, record := range map[string][]Decision{
		"a claim while extensions wait too long":    {{0, Extensions, Delay}, {wide - 1, Claims, in}},
		"a login while small work is out of memory": {{5, Small, Memory}, {5, Logins, in}},
		"critical work": {{0, Critical, Memory}},
	} {
		if checkOrder(record, wide) == nil {
			t.Errorf("%s: nothing is found", name)
		}
	}
	fine := []Decision{{0, Extensions, Delay}, {1, Critical, in}, {1, Extensions, in}, {2, Claims, Order}, {wide, Claims, in}, {wide, Reads, Delay}, {wide, Logins, in}}
	if err := checkOrder(fine, wide); err != nil {
		t.Error(err)
	}
}

// TestG40_DisorderIsCounted: what is let in while a lane behind it refuses is counted, by
// what was done and not by what was to keep the order.
func TestG40_DisorderIsCounted(t *testing.T) {
	early := func(l *Controller, now int64) error { return l.Refuses(Who{}, []Lane{Small}, now) }
	late := func(l *Controller, now int64) error { _, err := l.Enter(Small, 1, now); return err }
	for name, c := range map[string]struct {
		refuse  func(*Controller, int64) error
		lane    Lane
		refused []int64 // when
		at      int64
		want    uint64
	}{
		"before it in the order":   {late, Claims, []int64{1}, 80, 1},
		"and it goes on to refuse": {late, Claims, []int64{1, 30, 60, 79}, 80, 1},
		"by a look at its head":    {early, Claims, []int64{1, 79}, 80, 1},
		"callers may overtake":     {late, Claims, []int64{1}, 40, 0},
		"an interval later":        {late, Claims, []int64{1}, 101, 0},
		"behind it":                {late, Releases, []int64{1}, 80, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(Limits{Min: 1, Max: 1}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range c.refused {
				l.shut[rankOf[Small]].Store(at*ms + 1) // so that it may refuse
				for c.refuse(l, at*ms) == nil {
					if _, err := l.Enter(Small, 1, at*ms); err != nil {
						break
					}
				}
			}
			for r := range l.shut {
				l.shut[r].Store(0)
			}
			if _, err := l.Enter(c.lane, 1, c.at*ms); err != nil {
				t.Fatal(err)
			}
			if n := l.Disorder(); n != c.want {
				t.Errorf("counted %d, want %d", n, c.want)
			}
		})
	}
}
