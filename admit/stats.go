package admit

// LaneStats is what a lane has done since the start and has under way.
type LaneStats struct {
	Lane     Lane
	Limit    int64 // of cost under way
	Inflight int64 // cost under way
	Admitted uint64
	Refused  [NumReasons]uint64
	Deferred uint64 // times that work which waits asked again, and found no room yet
}

// Stats returns the numbers of all lanes, in order. All are there from the
// start.
func (c *Controller) Stats() [NumLanes]LaneStats {
	var s [NumLanes]LaneStats
	for i := range s {
		s[i] = c.lanes[i].stats()
		s[i].Lane = Lane(i)
	}
	return s
}

// Refusing returns the lanes that admit nothing at now, or are at their limit:
// what status shows. None while what is refused is let in all the same.
func (c *Controller) Refusing(now int64) []Lane {
	if Mode(c.mode.Load()) != Enforce {
		return nil
	}
	shut := int(c.Pressure(now))
	var ls []Lane
	for l := range NumLanes {
		if rankOf[l] < shut || rankOf[l] < numRanks-1 && c.lanes[l].isFull() {
			ls = append(ls, l)
		}
	}
	return ls
}
