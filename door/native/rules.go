package native

import "github.com/incumbent-dev/incumbent/calls"

// What is open follows the policies: whoever waits or watches is looked at again
// when one changes. What is asked anew is judged by the view of that moment anyway.

// rulesChanged returns a channel that is closed at the next change of a policy.
func (d *Door) rulesChanged() <-chan struct{} { return *d.rules.Load() }

// newRules tells those who wait for a change of policies, and returns the channel of
// the next one.
func (d *Door) newRules() {
	next := make(chan struct{})
	if last := d.rules.Swap(&next); last != nil {
		close(*last)
	}
}

// recheckRules has all that is open looked at again: watches by those who show them,
// waits here.
func (d *Door) recheckRules() {
	d.newRules()
	d.watches.kickAll()
	for _, s := range d.streams.All() {
		s.recheckWaits()
	}
}

// recheckWaits ends the waits whose lease their client may not follow any more.
func (s *stream) recheckWaits() {
	type denied struct {
		id  uint64
		w   *waiting
		err error
	}
	var all []denied
	s.mu.Lock()
	if s.open != nil {
		for id, w := range s.open.waits {
			if err := s.door.allowRead(s.who, calls.WaitReleased.Action(), w.name); err != nil {
				all = append(all, denied{id, w, err})
				delete(s.open.waits, id)
			}
		}
	}
	s.mu.Unlock()
	for _, d := range all {
		if d.w.cancel() { // else it has ended, and is answered as that
			s.refuse(d.id, d.err)
		}
	}
}
