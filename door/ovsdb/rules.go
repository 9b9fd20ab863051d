package ovsdb

import (
	"maps"
	"slices"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// What is open follows the policies: monitors, transactions that wait, and locks are
// judged again when one changes. What is asked anew is judged by the view of that moment
// anyway. The protocol has no word for a right that is gone, so who has something open
// that it may not have any more is sent away, and is told when it asks again; of monitors,
// clients that are aware of what happens to databases are told that they are canceled.

// rejudge has all that is open looked at again. It does not wait.
func (d *Door) rejudge() {
	for _, f := range d.feeds.all() {
		f.do(f.rejudge)
	}
	for _, c := range d.keeper.conns() {
		c.do(c.rejudgeLocks)
	}
}

// rulesIn are the policies of a view.
func rulesIn(v *core.View) *auth.Rules { return policy.Of(v).Rules() }

// rejudge ends, once for each change of policies, the monitors that their clients may not
// have any more, and tries transactions again that wait.
func (f *feed) rejudge() {
	rules := rulesIn(f.door.view())
	if rules == f.rules {
		return
	}
	f.rules = rules
	for _, g := range slices.Collect(maps.Values(f.groups)) {
		for _, m := range slices.Clone(g.members.list) {
			if f.name == serverName {
				m.move(g.wishes(), serverContents{f.door.feeds.server})
			} else if m.judge() != nil {
				m.over = true
				m.leave()
				m.conn.do(m.canceled)
			}
		}
	}
	f.retryAll()
}

// judge returns nil if its client may have the monitor by the policies of now.
func (m *monitor) judge() error {
	if m.feed.name == serverName {
		return nil
	}
	_, err := m.conn.who.may(calls.OvsdbMonitor.Action(), m.conn.door.named(m.feed.name))
	return err
}

// rejudgeLocks ends the locks that the client may not have any more.
func (c *conn) rejudgeLocks() {
	for _, l := range c.session.locks.byName {
		if l.over { // with another of them
			continue
		}
		if _, err := l.judge(); err != nil {
			l.denied(err)
		}
	}
}
