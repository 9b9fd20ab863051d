package admit

// EnterExtensions is [Controller.Enter] for extensions. Those of critical leases are
// never refused: critical, which may be costly, is asked only when the lane has refused.
func (c *Controller) EnterExtensions(cost int, now int64, critical func() bool) (Ticket, error) {
	t, err := c.Enter(Extensions, cost, now)
	if err != nil && critical() {
		return c.Enter(Critical, cost, now)
	}
	return t, err
}
