package ovsdb

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/calls"
)

func TestEchoAndWhatIsUnknown(t *testing.T) {
	m := startMember(t, nil)
	for network, at := range map[string]string{"tcp": m.addr, "unix": m.path} {
		c := m.dialAt(network, at)
		want(t, "echo", c.call("echo", `[1,{"a":"b"},null]`), `[1,{"a":"b"},null]`)
		want(t, "an echo of nothing", c.call("echo", `[]`), `[]`)
		want(t, "a method that there is not", c.call("frobnicate", `[]`), `error "unknown method"`)
		c.write(`{"id":null,"method":"nothing","params":[]}{"id":"x","result":[],"error":null}`)
		c.write(`{"method":"echo","params":["a"],"id":"one"}{"method":"echo","params":["b"],"id":{"two":2}}`)
		want(t, "the first of two", c.read(), `{"error":null,"id":"one","result":["a"]}`)
		want(t, "the second of two", c.read(), `{"error":null,"id":{"two":2},"result":["b"]}`)
	}
}

// A message may come in any pieces, and many in one.
func TestMessagesInPieces(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	text := `{"method":"echo","params":["` + strings.Repeat("x", 3000) + `\"}{"],"id":7}`
	for _, n := range []int{1, 7, 1000, len(text)} {
		for rest := text; rest != ""; {
			k := min(n, len(rest))
			c.write(rest[:k])
			rest = rest[k:]
		}
		if got := c.answer(); len(got) != 3008 {
			t.Fatalf("pieces of %d: %d bytes", n, len(got))
		}
	}
	if n := m.door.PartialBytes(); n != 0 {
		t.Errorf("%d bytes are still counted as part of messages", n)
	}
}

func TestWhatIsNoMessageEndsTheConnection(t *testing.T) {
	m := startMember(t, func(c *Config) { c.MaxMessageBytes = 1000 })
	for what, text := range map[string]string{
		"an array": `[]`, "no JSON": `{"a":}`, "too long": `{"a":"` + strings.Repeat("x", 1000) + `"}`, "too deep": `{"a":` + strings.Repeat("[", maxDepth+1),
	} {
		c := m.dial()
		c.write(text)
		t.Log(what)
		c.ended()
	}
	if n := m.door.Stats().Malformed; n != 4 {
		t.Errorf("%d are counted", n)
	}
}

// Who is silent is asked for an echo, and closed if none comes.
func TestProbes(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Probe = 5 * time.Second })
	silent, awake := m.dial(), m.dial()
	for _, c := range []*client{silent, awake} {
		c.call("echo", `[]`)
	}
	m.tick(6)
	for _, c := range []*client{silent, awake} {
		want(t, "the probe", c.read(), `{"id":"echo","method":"echo","params":[]}`)
	}
	awake.write(`{"id":"echo","result":[],"error":null}`)
	awake.call("echo", `[]`)
	m.tick(5)
	silent.ended()
	want(t, "an echo", awake.call("echo", `[2]`), `[2]`)
	await(t, "it is counted", func() bool { return m.door.Stats().Silent == 1 })
	if st := m.door.Stats(); st.Probes != 2 {
		t.Errorf("counted: %+v", st)
	}
}

// Who is connected by a socket of the machine is not asked for an echo, however busy it is,
// unless the row that it is listened by says so.
func TestSocketsAreNotProbed(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Probe = time.Second })
	c := m.dialAt("unix", m.path)
	c.call("echo", `[1]`)
	m.tick(10)
	want(t, "an echo", c.call("echo", `[2]`), `[2]`)
	m.door.conns.All()[0].who.remote.Set(Options{Probe: time.Second})
	m.tick(2)
	want(t, "the probe", c.read(), `{"id":"echo","method":"echo","params":[]}`)
}

// Who is not read while what it has asked for is under way is not silent.
func TestWhoIsHeldUpIsNotSilent(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.Schemas, c.Probe, c.MaxUnderWay = [][]byte{[]byte(testSchema)}, time.Second, 1
	})
	c := m.dial()
	c.call("list_dbs", `[]`)
	conn := m.door.conns.All()[0]
	m.group.Hold()
	c.write(ask("1", "transact", insertA) + ask("2", "echo", `[]`))
	await(t, "what is behind it is not read", conn.heldUp)
	const unread = 1 << 30
	conn.out.unread.Add(unread)
	if conn.heldUp() {
		t.Error("who does not read its answers counts as held up")
	}
	conn.out.unread.Add(-unread)
	m.tick(10)
	m.group.Release()
	wantIDs(t, "the answer", c.read(), `{"error":null,"id":1,"result":[{"uuid":["uuid","ID"]}]}`)
	want(t, "what is behind it", c.read(), `{"error":null,"id":2,"result":[]}`)
	m.tick(2)
	want(t, "the probe afterwards", c.read(), `{"id":"echo","method":"echo","params":[]}`)
}

// What comes while nothing is served is answered afterwards, however much it is.
func TestWhatComesWhileNothingIsServedIsNotRefused(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("without epoll who sends more than 1 MiB is cut off")
	}
	m := startMember(t, func(c *Config) { c.Schemas, c.MaxUnderWay = [][]byte{[]byte(testSchema)}, 1 })
	c := m.dial()
	c.call("list_dbs", `[]`)
	m.group.Hold()
	c.write(ask("1", "transact", insertA))
	const n = 128 // which together have 4 MiB
	word := strings.Repeat("x", 32<<10)
	go func() { _, _ = io.WriteString(c.conn, strings.Repeat(ask("2", "echo", `["`+word+`"]`), n)) }() // it is answered below, or not
	await(t, "what is behind it is not read", func() bool { return m.park.Stats().Unread == 1 })
	m.group.Release()
	wantIDs(t, "the answer", c.read(), `{"error":null,"id":1,"result":[{"uuid":["uuid","ID"]}]}`)
	for range n {
		want(t, "what is behind it", c.read(), `{"error":null,"id":2,"result":["`+word+`"]}`)
	}
}

// A connection that is cut off for its silence counts once, however long it takes to close.
func TestSilentConnectionCountsOnce(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Probe = time.Second })
	c := m.dial()
	c.call("echo", `[]`)
	m.tick(2)
	want(t, "the probe", c.read(), `{"id":"echo","method":"echo","params":[]}`)
	conn := m.door.conns.All()[0]
	conn.out.mu.Lock() // the probe is under way no more, and it does not close
	m.tick(10)
	conn.out.mu.Unlock()
	c.ended()
	await(t, "it is closed", func() bool { return len(m.door.conns.All()) == 0 })
	if n := m.door.Stats().Silent; n != 1 {
		t.Errorf("one connection counts as %d", n)
	}
}

// Every method has a row in the table of calls, and every row of this door's is served.
func TestG12_EveryMethodHasARow(t *testing.T) {
	ways := map[string]bool{}
	for name := range methods {
		ways[doorName+"."+name] = true
	}
	for c := range calls.NumCalls {
		for _, w := range c.Row().Ways {
			if strings.HasPrefix(w, "ovsdb.control ") {
				continue // of the socket that the server has
			}
			if strings.HasPrefix(w, doorName+".") && !ways[w] {
				t.Errorf("nobody serves %s", w)
			}
		}
	}
}

// Who waits for the rows of a monitor is not silent, however long they take: it may read
// nothing but the answer.
func TestWhoWaitsForAMonitorIsNotSilent(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Probe = time.Second })
	c := m.dial()
	c.call("echo", `[]`)
	busy, let := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(let) })
	defer goOn()
	m.door.feeds.of(serverName).do(func() {
		close(busy)
		<-let
	})
	<-busy
	c.write(`{"method":"monitor_cond","params":["_Server","m",{"Database":{}}],"id":7}`)
	await(t, "the request is taken", func() bool { return m.door.conns.All()[0].owed.Load() == 1 })
	m.tick(10)
	goOn()
	if got := c.answer(); !strings.Contains(got, `"_Server"`) {
		t.Errorf("the answer: %s", got)
	}
	await(t, "it is answered", func() bool { return m.door.conns.All()[0].owed.Load() == 0 })
	m.tick(2)
	want(t, "the probe behind it", c.read(), `{"id":"echo","method":"echo","params":[]}`)
	m.tick(2)
	c.ended()
}

// Nor is who still takes what it has asked for; who takes nothing of it is.
func TestWhoReadsSlowlyIsNotSilent(t *testing.T) {
	m := startMember(t, nil)
	c := m.dialAt("unix", m.path)
	c.call("echo", `[]`)
	m.door.conns.All()[0].who.remote.Set(Options{Probe: 2 * time.Second})
	text := strings.Repeat("x", 8<<20)
	c.write(`{"method":"echo","params":["` + text + `"],"id":7}`)
	first := make([]byte, 1)
	if _, err := c.conn.Read(first); err != nil { // the answer is on its way
		t.Fatal(err)
	}
	conn, take := m.door.conns.All()[0], make([]byte, 1<<20) // more than a socket holds
	for range 5 {
		at := m.door.ticks.Load() + 2
		m.tick(2)
		await(t, "time has passed", func() bool { return m.door.ticks.Load() == at })
		if _, err := io.ReadFull(c.conn, take); err != nil {
			t.Fatal(err)
		}
		await(t, "it was noticed that more was taken", func() bool { return conn.heard.Load() == at })
	}
	if st := m.door.Stats(); st.Probes != 0 {
		t.Errorf("counted: %+v", st)
	}
	await(t, "who takes nothing is cut off", func() bool {
		m.tick(1)
		return m.door.Stats().Silent > 0
	})
}
