package admit

import "time"

// Clocked is a controller with its member's clock, as those want it who do not bring
// the time: doors, whose work enters, and the leader's clock, which tells other members
// the pressure and takes it (its options Pressure, Press and Busy). Without a controller
// everything is admitted.
type Clocked struct {
	*Controller
	Now func() int64 // monotonic nanoseconds, the same for all
}

// Pressure is [Controller.Pressure] of now.
func (c Clocked) Pressure() uint8 { return c.Controller.Pressure(c.Now()) }

// Press is [Controller.Press] of now.
func (c Clocked) Press(rank uint8) { c.Controller.Press(rank, c.Now()) }

// Applied is [Controller.Applied] of now.
func (c Clocked) Applied(waited time.Duration) {
	if c.Controller != nil {
		c.Controller.Applied(int64(waited), c.Now())
	}
}

// Bound is [Controller.Bound].
func (c Clocked) Bound(most int64) int64 {
	if c.Controller == nil {
		return most
	}
	return c.Controller.Bound(most)
}

// Busy reports whether work is under way in any lane.
func (c Clocked) Busy() bool {
	for l := range c.lanes {
		if !c.lanes[l].isEmpty() {
			return true
		}
	}
	return false
}

// Refusing is [Controller.Refusing] of now.
func (c Clocked) Refusing() []Lane { return c.Controller.Refusing(c.Now()) }

// Place is admitted work's place in its lane. The zero Place is none.
type Place struct {
	ticket Ticket
	now    func() int64 // nil: it is none, or was given back
}

// Enter gives work of a cost a place in its lane, or refuses it: see
// [Controller.EnterFor]. It neither blocks nor waits.
func (c Clocked) Enter(w Who, l Lane, cost int) (Place, error) {
	if c.Controller == nil {
		return Place{}, nil
	}
	t, err := c.Controller.EnterFor(w, l, cost, c.Now())
	return c.place(t, err)
}

// EnterNext is [Controller.EnterNext].
func (c Clocked) EnterNext(w Who, l Lane, cost int) (Place, Reason) {
	if c.Controller == nil {
		return Place{}, NumReasons
	}
	t, why := c.Controller.EnterNext(w, l, cost, c.Now())
	if why != NumReasons {
		return Place{}, why
	}
	return Place{t, c.Now}, why
}

// EnterExtensions is [Controller.EnterExtensions].
func (c Clocked) EnterExtensions(n int, critical func(i int) bool) (p Place, refused []error, err error) {
	if c.Controller == nil {
		return Place{}, nil, nil
	}
	t, refused, err := c.Controller.EnterExtensions(n, c.Now(), critical)
	p, err = c.place(t, err)
	return p, refused, err
}

func (c Clocked) place(t Ticket, err error) (Place, error) {
	if err != nil {
		return Place{}, err
	}
	return Place{t, c.Now}, nil
}

// Holds is [Controller.Holds].
func (c Clocked) Holds(l Lane) error {
	if c.Controller == nil {
		return nil
	}
	return c.Controller.Holds(l)
}

// Passes is [Controller.Passes] of now.
func (c Clocked) Passes(w Who, l Lane) error {
	if c.Controller == nil {
		return nil
	}
	return c.Controller.Passes(w, l, c.Now())
}

// Refuses is [Controller.Refuses].
func (c Clocked) Refuses(w Who, lanes []Lane) error {
	if c.Controller == nil {
		return nil
	}
	return c.Controller.Refuses(w, lanes, c.Now())
}

// Slow is [Controller.Slow] of now.
func (c Clocked) Slow(p *Pace, bytes int) time.Duration {
	if c.Controller == nil || bytes <= 0 {
		return 0 // most ask for something
	}
	return c.Controller.Slow(p, bytes, c.Now())
}

// Behind is [Pace.Behind] of now.
func (c Clocked) Behind(p *Pace) bool {
	return c.Controller != nil && c.Mode() == Enforce && p.Behind(c.Now())
}

// Take hands the place over to other work. false: it is none, or was handed over or given
// back before. p may be nil, which is none.
func (p *Place) Take() (Place, bool) {
	if p == nil || p.now == nil {
		return Place{}, false
	}
	taken := *p
	*p = Place{}
	return taken, true
}

// Drop gives the place back of work that was not done after all, or that goes on without it:
// see [Ticket.Drop]. If it was given back already nothing happens.
func (p *Place) Drop() {
	if p.now != nil {
		p.ticket.Drop()
		*p = Place{}
	}
}

// Leave gives the place back, once the work has been answered. If it was given back
// already nothing happens.
func (p *Place) Leave() {
	if p.now != nil {
		p.ticket.Done(p.now())
		*p = Place{}
	}
}
