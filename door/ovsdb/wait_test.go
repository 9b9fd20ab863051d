package ovsdb

import "testing"

// What would change nothing is answered by a state that has been confirmed, not by what
// the member shows.
func TestG22_WhatChangesNothingIsConfirmed(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	c.call("transact", insertA)
	m.group.Hold() // nothing is confirmed
	c.write(ask("1", "transact", `["T",{"op":"wait","timeout":0,"table":"P","where":[],"columns":["name"],"until":"==","rows":[{"name":"a"}]}]`) + ask("2", "echo", `[]`))
	want(t, "before it is confirmed", c.read(), `{"error":null,"id":2,"result":[]}`)
	m.group.Release()
	want(t, "the wait", c.read(), `{"error":null,"id":1,"result":[{}]}`)
}

// A wait that did not hold sees what has changed before it was known to wait.
func TestWaitsSeeWhatCameMeanwhile(t *testing.T) {
	m := startWithSchema(t)
	const forFive = `["T",{"op":"wait","table":"Q","where":[],"columns":["n"],"until":"==","rows":[{"n":5}]}]`
	follows, c, w := m.dial(), m.dial(), m.dial()
	f := m.door.feeds.of("T")
	follows.write(ask("1", "transact", forFive))
	c.until("the database is followed", func() bool {
		waits := make(chan int)
		f.do(func() { waits <- len(f.waits) })
		return <-waits == 1
	})
	held, release := make(chan struct{}), make(chan struct{})
	f.do(func() { close(held); <-release })
	<-held
	c.write(ask("1", "transact", forFive))
	w.until("the other is about to wait", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.tasks) > 0
	})
	w.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":5}}]`)
	close(release)
	for _, c := range []*client{follows, c} {
		want(t, "the wait", c.read(), `{"error":null,"id":1,"result":[{}]}`)
	}
}
