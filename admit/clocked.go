package admit

// Clocked is a controller with its member's clock, as those want it who do not bring
// the time: the leader's clock, which tells other members the pressure and takes it
// (its options Pressure, Press and Busy).
type Clocked struct {
	*Controller
	Now func() int64 // monotonic nanoseconds, the ones with which doors enter
}

// Pressure is [Controller.Pressure] of now.
func (c Clocked) Pressure() uint8 { return c.Controller.Pressure(c.Now()) }

// Press is [Controller.Press] of now.
func (c Clocked) Press(rank uint8) { c.Controller.Press(rank, c.Now()) }

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
