package admit

// EnterExtensions is [Controller.Enter] for n extensions that come together. Those of
// critical leases are never refused: critical, which may be costly, is asked of each only
// when the lane has refused them, and they are let in without the others. refused is why
// each of the others is not (nil: all are let in); an error: none is.
func (c *Controller) EnterExtensions(n int, now int64, critical func(i int) bool) (t Ticket, refused []error, err error) {
	if t, err = c.Enter(Extensions, n, now); err == nil {
		return t, nil, nil
	}
	kept := 0
	refused = make([]error, n)
	for i := range refused {
		if critical(i) {
			kept++
		} else {
			refused[i] = err
		}
	}
	if kept > 0 {
		t, err = c.Enter(Critical, kept, now)
	}
	return t, refused, err
}
