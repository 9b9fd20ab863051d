package core

// remember adds what the command under way does to the history of a record that
// no table has yet.
func (s *State) remember(n *Lease, ch LeaseChange) {
	ch.Index, ch.Origin = s.at, s.origin()
	n.remember(ch)
}

// remember adds a change to the history of a record that no table has yet and
// drops the oldest ones beyond the limits.
//
// The array may be shared with the predecessor: only the newest record of a
// lease is ever appended to, and readers of older ones see no further than
// their own length.
func (l *Lease) remember(ch LeaseChange) {
	if len(l.History) == cap(l.History) {
		size := min(2*len(l.History)+1, MaxHistory+maxHistorySlack)
		l.History = append(make([]LeaseChange, 0, size), l.History...)
	}
	l.History = append(l.History, ch)
	l.HistoryBytes += ch.size()
	for len(l.History) > MaxHistory || l.HistoryBytes > MaxHistoryBytes {
		l.HistoryBytes -= l.History[0].size()
		l.History = l.History[1:]
	}
}

// size is what a change counts against MaxHistoryBytes.
func (c *LeaseChange) size() int {
	o := c.Origin
	return historyOverhead + len(c.Holder) + len(c.By) + len(o.Door) + len(o.Address) + len(o.Principal)
}
