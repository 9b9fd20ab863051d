package ovsdb

import (
	"strings"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

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
		return len(f.tasks.list) > 0
	})
	w.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":5}}]`)
	close(release)
	for _, c := range []*client{follows, c} {
		want(t, "the wait", c.read(), `{"error":null,"id":1,"result":[{}]}`)
	}
}

const forSeven = `["T",{"op":"wait","table":"Q","where":[],"columns":["n"],"until":"==","rows":[{"n":7}]}]`

// waiting returns how many transactions wait for a change of the database.
func (m *member) waiting() int {
	f, n := m.door.feeds.of("T"), make(chan int)
	f.do(func() { n <- len(f.waits) })
	return <-n
}

// crowdedWithSchema is a member with a schema whose lanes the test shuts.
func crowdedWithSchema(t *testing.T) (*member, *admit.Controller) {
	t.Helper()
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Schemas, c.Admission = [][]byte{[]byte(testSchema)}, lanes })
	m.dial().call("echo", `[]`)
	return m, lanes
}

// A transaction that waits is of the lane of what waits: while that is shut it neither
// begins to wait nor looks again, and is answered all the same when its time is over; what
// does not wait is served meanwhile.
func TestG40_WaitsAreOfTheLaneOfWatches(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	early, late, timed, c := m.dial(), m.dial(), m.dial(), m.dial()
	for _, of := range []*client{late, timed, c} {
		of.call("echo", `[]`) // they were accepted while there was memory
	}
	early.write(ask("1", "transact", forSeven))
	c.until("it waits", func() bool { return m.waiting() == 1 })
	deferred := func() uint64 { return lanes.Stats()[admit.Watches].Deferred }
	lanes.SetMemory(81, 100) // new watches are refused, and nothing that goes after them
	late.write(ask("1", "transact", forSeven))
	c.until("the late one is put off", func() bool { return lanes.Stats()[admit.Watches].Refused[admit.Memory] > 0 })
	if n := m.waiting(); n != 1 {
		t.Errorf("%d wait while new ones are put off", n)
	}
	timed.write(ask("1", "transact", `["T",{"op":"wait","timeout":20,"table":"Q","where":[],"columns":["n"],"until":"==","rows":[{"n":8}]}]`))
	if a := timed.read(); !strings.Contains(a, "timed out") {
		t.Errorf("whose time is over: %s", a)
	}
	if a := c.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":7}}]`); !strings.Contains(a, "uuid") {
		t.Errorf("a transaction: %s", a)
	}
	before := deferred()
	c.until("who waited asks for a place to look again", func() bool { return m.waiting() == 0 && deferred() > before+1 })
	lanes.SetMemory(0, 100)
	for _, c := range []*client{early, late} {
		want(t, "the wait", c.read(), `{"error":null,"id":1,"result":[{}]}`)
	}
	if s := lanes.Stats(); s[admit.Watches].Inflight != 0 || s[admit.Transactions].Inflight != 0 {
		t.Errorf("places are held: %+v", s)
	}
}

// When many are woken at once, what has been asked for meanwhile does not wait for all of
// them.
func TestG40_WakesDoNotGoBeforeOtherWork(t *testing.T) {
	const waits = 40
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	for range waits {
		m.dial().write(ask("1", "transact", forSeven))
	}
	c.until("they wait", func() bool { return m.waiting() == waits })
	looked := func() uint64 { return lanes.Stats()[admit.Watches].Admitted }
	started, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo) // before the door is closed, which waits for its workers
	for range workers - 1 {
		m.door.work.Put(func() { started <- struct{}{}; <-release })
		<-started // one after the other: a worker takes several jobs at once
	}
	f := m.door.feeds.of("T")
	f.do(func() { f.retryAll(); started <- struct{}{}; <-release }) // nobody is left to look
	<-started
	await(t, "some are about to look", func() bool {
		n := 0 // the first that were woken when the queue was looked at
		for _, c := range m.door.conns.All() {
			c.mu.Lock()
			n += len(c.tasks.list)
			c.mu.Unlock()
		}
		if n > wokenAtOnce {
			t.Fatalf("%d are about to look at once", n)
		}
		return n > 0
	})
	before, asked := looked(), make(chan uint64, 1)
	m.door.work.Put(func() { asked <- looked() })
	letGo()
	if n := <-asked - before; n > wokenAtOnce+workers {
		t.Errorf("%d of %d looked before what was asked for behind the first of them", n, waits)
	}
	c.until("all have looked", func() bool { return looked() == before+waits && m.waiting() == waits })
}
