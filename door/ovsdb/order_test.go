package ovsdb

import (
	"strings"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

const (
	insertK = `["T",{"op":"insert","table":"P","row":{"name":"k"}}]`
	mutateK = `["T",{"op":"mutate","table":"P","where":[["name","==","k"]],"mutations":[["tags","insert","x"]]}]`
)

// inOrder fails unless an insert is answered before the mutation of its row that the client
// has sent behind it, and that finds the row.
func inOrder(t *testing.T, c *client) {
	t.Helper()
	wantIDs(t, "the first", c.read(), `{"error":null,"id":1,"result":[{"uuid":["uuid","ID"]}]}`)
	want(t, "the second", c.read(), `{"error":null,"id":2,"result":[{"count":1}]}`)
}

// Transactions of a connection are executed in the order in which they came, though the
// first may have to wait for a place in its lane.
func TestTransactionsWaitForWhatIsPutOff(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	c.call("echo", `[]`) // it was accepted while there was memory
	lanes.SetMemory(2, 1)
	c.write(ask("1", "transact", insertK))
	refused := func() uint64 { return lanes.Stats()[admit.Transactions].Refused[admit.Memory] }
	await(t, "the first is put off", func() bool { return refused() > 0 })
	lanes.SetMemory(0, 1)
	c.write(ask("2", "transact", mutateK))
	for m.due() != 0 {
		if held := lanes.Stats()[admit.Transactions].Inflight; held != 0 && m.due() == 2 {
			t.Fatal("what waits for the first takes its place")
		}
	}
	inOrder(t, c)
	if s := lanes.Stats(); s[admit.Transactions].Inflight != 0 {
		t.Errorf("places are held: %+v", s[admit.Transactions])
	}
}

// So they are where the first finds no leader and those behind it do.
func TestTransactionsWaitForWhatIsTriedAgain(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	c.call("echo", `[]`)
	m.group.Refuse(true)
	before := m.group.Proposed()
	c.write(ask("1", "transact", insertK))
	await(t, "the first is refused", func() bool { return m.group.Proposed() > before && m.due() == 1 })
	m.group.Refuse(false)
	c.write(ask("2", "transact", mutateK))
	inOrder(t, c)
}

// So they are where all are to be tried again, each after a time of its own.
func TestTransactionsAreTriedAgainInOrder(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	for range 10 {
		m.group.Refuse(true)
		c.write(ask("1", "transact", insertK) + ask("2", "transact", insertK))
		await(t, "both are refused", func() bool { return m.due() == 2 })
		m.group.Refuse(false)
		wantIDs(t, "the first", c.read(), `{"error":null,"id":1,"result":[{"uuid":["uuid","ID"]}]}`)
		if got := c.read(); !strings.Contains(got, `"id":2`) || !strings.Contains(got, "constraint violation") {
			t.Errorf("the second, of the same name: %s", got)
		}
		want(t, "the end of the row", c.call("transact", `["T",{"op":"delete","table":"P","where":[]}]`), `[{"count":1}]`)
	}
}

// What comes behind one that was put off is on its way through the log with it.
func TestTransactionsGoThroughTheLogTogether(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	c.call("echo", `[]`)
	lanes.SetMemory(2, 1)
	c.write(ask("1", "transact", insertK) + ask("2", "transact", mutateK))
	await(t, "both are put off", func() bool { return m.due() == 2 })
	before := m.group.Proposed()
	m.group.Hold()
	release := sync.OnceFunc(m.group.Release)
	defer release()
	lanes.SetMemory(0, 1)
	await(t, "both are on their way", func() bool { return m.group.Proposed() == before+2 })
	release()
	inOrder(t, c)
}

// due is how many transactions are still to be executed, of all connections.
func (m *member) due() (n int) {
	for _, c := range m.door.conns.All() {
		got := make(chan int, 1)
		if !c.do(func() {
			n := 0
			for _, t := range c.session.order {
				if t.stage == due {
					n++
				}
			}
			got <- n
		}) {
			continue
		}
		n += <-got
	}
	return n
}

// What is found to change nothing is executed before what comes behind it, too, and what
// comes behind that looks at a state with both.
func TestTransactionsWaitForWhatIsConfirmed(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	for range 50 {
		m.group.Hold()
		before := m.group.Proposed()
		c.write(ask("1", "transact", mutateK) + ask("2", "transact", insertK) +
			ask("3", "transact", `["T",{"op":"select","table":"P","where":[],"columns":["name"]}]`) +
			ask("4", "transact", `["T",{"op":"delete","table":"P","where":[]}]`) + ask("5", "echo", `[]`))
		want(t, "an echo", c.read(), `{"error":null,"id":5,"result":[]}`)
		if m.group.Proposed() != before {
			t.Error("the insert is on its way before the mutation is confirmed to change nothing")
		}
		m.group.Release()
		want(t, "the mutation", c.read(), `{"error":null,"id":1,"result":[{"count":0}]}`)
		wantIDs(t, "the insert", c.read(), `{"error":null,"id":2,"result":[{"uuid":["uuid","ID"]}]}`)
		want(t, "the select", c.read(), `{"error":null,"id":3,"result":[{"rows":[{"name":"k"}]}]}`)
		want(t, "the end", c.read(), `{"error":null,"id":4,"result":[{"count":1}]}`)
	}
}

// A transaction that waits for a change holds up nobody, and of those that are held up and
// of the first, whichever is canceled or fails, the others go on.
func TestTransactionsGoOn(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	c.write(ask("1", "transact", forSeven))
	await(t, "it waits", func() bool { return m.waiting() == 1 })
	lanes.SetMemory(2, 1)
	c.write(ask("2", "transact", insertK) + ask("3", "transact", mutateK) + ask("4", "transact", mutateK) + ask("5", "echo", `[]`))
	want(t, "an echo", c.read(), `{"error":null,"id":5,"result":[]}`)
	for _, id := range []string{"3", "2"} {
		c.write(`{"id":null,"method":"cancel","params":[` + id + `]}`)
		want(t, "one that is canceled", c.read(), `{"error":"canceled","id":`+id+`,"result":null}`)
	}
	lanes.SetMemory(0, 1)
	want(t, "the last", c.read(), `{"error":null,"id":4,"result":[{"count":0}]}`)
	c.write(ask("6", "transact", `["T",{"op":"insert","table":"Q","row":{"n":7}}]`))
	got := c.read() + c.read()
	if !strings.Contains(got, `"id":1,"result":[{}]`) || !strings.Contains(got, `"id":6`) {
		t.Errorf("the wait and what ended it: %s", got)
	}
}
