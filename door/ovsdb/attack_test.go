package ovsdb

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// ask is a request with an id, to be sent together with others.
func ask(id, method, params string) string {
	return `{"method":"` + method + `","params":` + params + `,"id":` + id + `}`
}

// Who gives up a lock before it was told of it is answered both.
func TestUnlockBehindLock(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	for range 20 {
		c.write(ask("1", "lock", `["l"]`) + ask("2", "unlock", `["l"]`))
		if got := c.read(); !strings.HasPrefix(got, `{"error":null,"id":1,"result":{"locked":`) {
			t.Fatalf("lock: %s", got)
		}
		want(t, "unlock", c.read(), `{"error":null,"id":2,"result":{}}`)
	}
	d := m.dial()
	want(t, "another's lock", d.call("lock", `["other"]`), `{"locked":true}`)
}

// What is asked of a monitor right behind the request for it comes after that.
func TestMonitorsArePipelined(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	c.call("transact", insertA)
	c.write(ask("1", "monitor_cond", `["T","m",{"P":{"columns":["name"],"where":[false]}}]`) +
		ask("2", "monitor_cond_change", `["m","n",{"P":[{"where":[["name","==","a"]]}]}]`) +
		ask("3", "monitor_cancel", `["n"]`))
	want(t, "the monitor", c.read(), `{"error":null,"id":1,"result":{}}`)
	wantIDs(t, "its change", c.read(), `{"id":null,"method":"update2","params":["n",{"P":{"ID":{"insert":{"name":"a"}}}}]}`)
	want(t, "its answer", c.read(), `{"error":null,"id":2,"result":{}}`)
	want(t, "its end", c.read(), `{"error":null,"id":3,"result":{}}`)
}

// However many changes of its conditions a client asks for at once, they are done one at a
// time: what others have the feed do meanwhile goes between the first and the second. They
// are answered in their order, and what is asked of monitors behind them comes behind them.
func TestChangesOfConditionsTakeTurnsWithOthers(t *testing.T) {
	const n = 50
	m := startWithSchema(t)
	c := m.dial()
	c.call("transact", insertA)
	want(t, "the monitor", c.call("monitor_cond", `["T","m0",{"P":{"columns":["name"],"where":[false]}}]`), `{}`)
	f, x := m.door.feeds.of("T"), m.door.conns.All()[0]
	let, changed, between := make(chan struct{}), make(chan *monitor, 1), make(chan string, 1)
	goOn := sync.OnceFunc(func() { close(let) })
	defer goOn()
	x.do(func() {
		changed <- x.session.monitors.get(`"m0"`)
		f.do(func() { <-let })
	})
	mon := <-changed
	var all strings.Builder
	for i := 1; i <= n; i++ {
		all.WriteString(ask(strconv.Itoa(i), "monitor_cond_change", fmt.Sprintf(`["m%d","m%d",{"P":[{"where":[%t]}]}]`, i-1, i, i%2 == 1)))
	}
	last := fmt.Sprintf(`"m%d"`, n)
	c.write(all.String() + ask("100", "monitor_cancel", `[`+last+`]`) + ask("101", "monitor_cond", `["T",`+last+`,{"P":{"columns":["name"]}}]`))
	await(t, "all are taken", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.queued == 0 && x.busy == n+2
	})
	x.do(func() { // behind the last of them
		f.do(func() { between <- mon.id })
		goOn()
	})
	want(t, "the id of the monitor then", <-between, `"m1"`)
	for i := 1; i <= n; i++ {
		told := fmt.Sprintf(`{"id":null,"method":"update2","params":["m%d",{"P":{"ID":{"%s`, i, [...]string{`delete":null`, `insert":{"name":"a"}`}[i%2])
		if got := ids.ReplaceAllString(c.read(), "ID"); !strings.HasPrefix(got, told) {
			t.Fatalf("the update by change %d: %s", i, got)
		}
		want(t, "its answer", c.read(), fmt.Sprintf(`{"error":null,"id":%d,"result":{}}`, i))
	}
	want(t, "the end", c.read(), `{"error":null,"id":100,"result":{}}`)
	wantIDs(t, "another by its id", c.read(), `{"error":null,"id":101,"result":{"P":{"ID":{"initial":{"name":"a"}}}}}`)
}

// A change of conditions that is refused leaves the monitor its id, and one that was
// refused leaves its id free.
func TestRefusedMonitorsLeaveIDs(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	for range 20 {
		want(t, "a bad one", c.call("monitor_cond", `["T","m",{"R":{}}]`), `error {"details":"no table named R","error":"syntax error"}`)
	}
	want(t, "a good one", c.call("monitor_cond", `["T","m",{"P":{"columns":["name"]}}]`), `{}`)
	want(t, "a bad change", c.call("monitor_cond_change", `["m","n",{"R":[{"where":[]}]}]`), `error {"details":"the monitor has no table R","error":"syntax error"}`)
	want(t, "another by the id that was refused", c.call("monitor_cond", `["T","n",{"Q":{"columns":["n"]}}]`), `{}`)
	want(t, "a change to the id of another", c.call("monitor_cond_change", `["m","n",{}]`), `error {"details":"duplicate monitor ID","error":"syntax error"}`)
	want(t, "a change of nobody", c.call("monitor_cond_change", `["x","y",{}]`), `error {"details":"unknown monitor session","error":"syntax error"}`)
	c.write(ask("7", "transact", `["T",{"op":"insert","table":"P","row":{"name":"b"}}]`))
	wantIDs(t, "an update by the id that stayed", c.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"insert":{"name":"b"}}}}]}`)
	c.answer()
	want(t, "its end", c.call("monitor_cancel", `["m"]`), `{}`)
}

// What a monitor begins with is what is there, also where others that want the same are
// not told of all kinds of changes.
func TestG20_SnapshotsFollowChangesThatNobodyIsToldOf(t *testing.T) {
	m := startWithSchema(t)
	w := m.dial()
	w.call("transact", insertA)
	const want20 = `["T","m",{"P":{"columns":["name","chassis"],"select":{"modify":false,"delete":false}}}]`
	wantIDs(t, "the first", m.dial().call("monitor_cond", want20), `{"P":{"ID":{"initial":{"chassis":"c1","name":"a"}}}}`)
	w.call("transact", `["T",{"op":"update","table":"P","where":[],"row":{"chassis":"c2"}}]`)
	wantIDs(t, "behind a change", m.dial().call("monitor_cond", want20), `{"P":{"ID":{"initial":{"chassis":"c2","name":"a"}}}}`)
	w.call("transact", `["T",{"op":"delete","table":"P","where":[]}]`)
	want(t, "behind the end", m.dial().call("monitor_cond", want20), `{}`)
}

// The first version of monitors takes more parameters than it has, which mean nothing; the others
// are refused with another number.
func TestMonitorsHaveTheirParameters(t *testing.T) {
	const zero = `"00000000-0000-0000-0000-000000000000"`
	m := startWithSchema(t)
	c := m.dial()
	for i, tt := range []struct {
		method, more string
		taken        bool
	}{
		{"monitor", `,7`, true},
		{"monitor", `,` + zero + `,null,{}`, true},
		{"monitor_cond", `,7`, false},
		{"monitor_cond", `,` + zero, false},
		{"monitor_cond_since", ``, false},
		{"monitor_cond_since", `,` + zero + `,7`, false},
	} {
		got := c.call(tt.method, fmt.Sprintf(`["T",%d,{"Q":{}}%s]`, i, tt.more))
		if tt.taken {
			want(t, tt.method+tt.more, got, `{}`)
		} else if !strings.Contains(got, `"error":"syntax error"`) {
			t.Errorf("%s%s: %s", tt.method, tt.more, got)
		}
	}
	for _, params := range []string{`[]`, `["T"]`, `["T","n"]`} {
		if got := c.call("monitor", params); !strings.Contains(got, `"error":"syntax error"`) {
			t.Errorf("%s: %s", params, got)
		}
	}
}

// Of a wait that is canceled, or whose connection ends, nothing stays.
func TestWaitsLeaveNothing(t *testing.T) {
	m := startWithSchema(t)
	const forEver = `["T",{"op":"wait","table":"Q","where":[],"columns":["n"],"until":"==","rows":[{"n":5}]}]`
	c := m.dial()
	for range 50 {
		c.write(ask("1", "transact", forEver) + `{"id":null,"method":"cancel","params":[1]}`)
		want(t, "a canceled one", c.read(), `{"error":"canceled","id":1,"result":null}`)
	}
	gone := m.dial()
	gone.write(ask("1", "transact", forEver))
	want(t, "an echo", gone.call("echo", `[]`), `[]`)
	gone.conn.Close()
	f := m.door.feeds.of("T")
	c.until("nobody waits", func() bool {
		left := make(chan int)
		f.do(func() { left <- len(f.waits) })
		return <-left == 0 && m.door.Connections() == 2
	})
}

// A transaction that has the id of one that is not answered is refused, and the other goes on
// and can be canceled.
func TestTransactionsHaveDifferentIDs(t *testing.T) {
	const forEver = `["T",{"op":"wait","table":"Q","where":[],"columns":["n"],"until":"==","rows":[{"n":5}]}]`
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) {
		c.Schemas, c.Admission, c.Limits.Patience = [][]byte{[]byte(testSchema)}, lanes, time.Hour
	})
	c := m.dial()
	c.write(ask("1", "transact", forEver) + ask("1", "transact", insertA) + ask("1", "transact", `["_Server"]`) + ask("1", "echo", `[]`))
	const refused = `{"error":{"details":"duplicate request ID","error":"syntax error"},"id":1,"result":null}`
	want(t, "the second", c.read(), refused)
	want(t, "the third, of another database", c.read(), refused)
	want(t, "what is no transaction", c.read(), `{"error":null,"id":1,"result":[]}`)
	c.write(`{"id":null,"method":"cancel","params":[1]}`)
	want(t, "the first", c.read(), `{"error":"canceled","id":1,"result":null}`)
	want(t, "what the second would have done", c.call("transact", `["T",{"op":"select","table":"P","where":[]}]`), `[{"rows":[]}]`)
	want(t, "its id again", c.call("transact", `["T",{"op":"comment","comment":"x"}]`), `[{}]`)

	lanes.SetMemory(2, 1) // beyond all bounds
	c.write(ask("1", "transact", `["_Server"]`) + ask("1", "transact", `["_Server"]`))
	want(t, "one behind what waits for a place", c.read(), refused)
	lanes.SetMemory(0, 1)
	want(t, "what has waited", c.read(), `{"error":null,"id":1,"result":[]}`)
}

// Each wait has its own time, and says how long it was.
func TestWaitsEnd(t *testing.T) {
	m := startWithSchema(t)
	got := m.dial().call("transact", `["T",{"op":"wait","table":"Q","timeout":30,"where":[],"columns":["n"],"until":"==","rows":[{"n":5}]},`+
		`{"op":"wait","table":"Q","timeout":600000,"where":[],"columns":["n"],"until":"==","rows":[{"n":6}]}]`)
	if !strings.HasPrefix(got, `[{"details":"\"wait\" timed out after `) || !strings.HasSuffix(got, ` ms","error":"timed out"},null]`) {
		t.Errorf("a wait that is over: %s", got)
	}
}

// The database about the server has its rows also before anybody has monitored it.
func TestServerDatabaseAtOnce(t *testing.T) {
	m := startMember(t, nil)
	want(t, "its rows", m.dial().call("transact", `["_Server",{"op":"select","table":"Database","where":[["name","==","_Server"]],"columns":["name","model"]}]`),
		`[{"rows":[{"model":"standalone","name":"_Server"}]}]`)
}

// Who does not read answers is not read from any more, until it does.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const limit, atATime = 1 << 20, 16
	m := startMember(t, func(c *Config) {
		c.Schemas = [][]byte{[]byte(testSchema)}
		c.MaxBacklogBytes, c.MaxUnderWay = limit, atATime
	})
	c := m.dial()
	c.until("the database is there", func() bool { return c.call("list_dbs", `[]`) == `["T","_Server"]` })
	text := strings.Repeat("x", 64<<10)
	c.call("transact", `["T",{"op":"insert","table":"P","row":{"name":"`+text+`"}}]`)
	const n = 300
	for i := range n { // the socket takes some of the answers, the queue the others
		c.write(ask(strconv.Itoa(100+i), "transact", `["T",{"op":"select","table":"P","where":[],"columns":["name"]}]`))
	}
	var unread int64
	m.dial().until("it is not read from any more", func() bool {
		for _, x := range m.door.conns.All() {
			x.mu.Lock()
			stands := x.held && x.busy == 0
			x.mu.Unlock()
			if unread = x.out.unread.Load(); stands && unread > limit {
				return true
			}
		}
		return false
	})
	if unread > limit+atATime*int64(len(text)+100) {
		t.Errorf("%d bytes of answers wait, the limit is %d", unread, limit)
	}
	answer := make([]byte, len(`{"id":100,"result":[{"rows":[{"name":""}]}],"error":null}`)+len(text))
	for range n { // all come once it reads; parsing them would take longer than the rest
		if _, err := io.ReadFull(c.conn, answer); err != nil {
			t.Fatal(err)
		}
		if answer[0] != '{' || answer[len(answer)-1] != '}' {
			t.Fatalf("no answer: %.60s", answer)
		}
	}
}

// Aware clients are told that a database has another schema, the others who monitor it
// are disconnected.
func TestConvertEndsMonitors(t *testing.T) {
	m := startWithSchema(t)
	aware, unaware, other := m.dial(), m.dial(), m.dial()
	want(t, "aware", aware.call("set_db_change_aware", `[true]`), `{}`)
	for _, c := range []*client{aware, unaware} {
		want(t, "the monitor", c.call("monitor_cond", `["T","m",{"Q":{}}]`), `{}`)
	}
	schema := strings.Replace(testSchema, `"n":{"type":"integer"}`, `"n":{"type":"integer"},"o":{"type":"string"}`, 1)
	want(t, "convert", other.call("convert", `["T",`+schema+`]`), `{}`)
	want(t, "who is aware", aware.read(), `{"id":null,"method":"monitor_canceled","params":["m"]}`)
	unaware.ended()
	want(t, "the monitor again", aware.call("monitor_cond", `["T","m",{"Q":{"columns":["o"]}}]`), `{}`)
	aware.write(ask("7", "transact", `["T",{"op":"insert","table":"Q","row":{"o":"x"}}]`))
	wantIDs(t, "a row with the new column", aware.read(), `{"id":null,"method":"update2","params":["m",{"Q":{"ID":{"insert":{"o":"x"}}}}]}`)
}

// Who does not read updates is cut off, alone.
func TestSlowReadersAreCutOff(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.Schemas = [][]byte{[]byte(testSchema)}
		c.MaxBacklogBytes = 64 << 10
	})
	slow, w := m.dial(), m.dial()
	w.until("the database is there", func() bool { return w.call("list_dbs", `[]`) == `["T","_Server"]` })
	slow.call("monitor_cond", `["T","m",{"P":{}}]`)
	w.call("transact", insertA)
	long := strings.Repeat("x", 200_000)
	w.until("it is cut off", func() bool {
		for _, tag := range []string{"a", "b"} {
			w.call("transact", `["T",{"op":"update","table":"P","where":[],"row":{"tags":"`+tag+long+`"}}]`)
		}
		return m.door.Stats().Slow == 1
	})
}

// Who leaves much unfinished does not have others cut off who send little.
func TestG47_UnfinishedMessagesKeepNobodyOut(t *testing.T) {
	m := startMember(t, func(c *Config) { c.MaxPartialBytes = 2 * smallMessage })
	large, small := m.dial(), m.dial()
	large.write(`{"id":1,"method":"echo","params":["` + strings.Repeat("x", 5*smallMessage/2))
	await(t, "the large one", func() bool { return m.door.PartialBytes() > 3*smallMessage/2 })
	small.write(`{"id":1,"method":"echo","params":["` + strings.Repeat("x", smallMessage/2))
	small.write(`"]}`)
	if got := small.read(); !strings.HasPrefix(got, `{"error":null,"id":1,`) {
		t.Errorf("a small message: %.100s", got)
	}
	large.write(strings.Repeat("x", smallMessage))
	await(t, "the end of the large one", func() bool { return m.door.PartialBytes() == 0 })
}

// On a machine with little memory messages have less of it, before they are there whole and
// after.
func TestG39_MessagesHaveAPartOfTheMemory(t *testing.T) {
	const room = 16 << 20
	m := startMember(t, func(c *Config) { c.Admission = withRoom(t, room) })
	large, c := m.dial(), m.dial()
	_, _ = io.WriteString(large.conn, `{"id":1,"method":"echo","params":["`+strings.Repeat("x", room/2+smallMessage)) // it is cut off meanwhile
	large.ended()
	large = m.dial()
	large.write(ask("1", "echo", `["`+strings.Repeat("x", room/2-smallMessage)+`"]`))
	if got := large.read(); !strings.HasPrefix(got, `{"error":null,"id":1,`) {
		t.Errorf("as large as one may be: %.100s", got)
	}
	large.conn.Close()
	want(t, "a small message", c.call("echo", `[]`), `[]`)
	await(t, "nothing is under way", func() bool { return m.door.PartialBytes() == 0 && len(m.door.conns.All()) == 1 })
	many := m.dial()
	_, _ = io.WriteString(many.conn, ask("1", "echo", `[`+strings.TrimSuffix(strings.Repeat("1,", 2*room/valueBytes), ",")+`]`)) // it is cut off meanwhile
	many.ended()
}

// What is not answered counts as what has not come whole does: a client that has much of
// it under way is read no further, who sends something large is cut off, who sends little
// is served. What waits is read once something is answered. None of it counts once the
// connections are gone.
func TestG47_MessagesUnderWayAreBounded(t *testing.T) {
	const limit, small = 4 * smallMessage, smallMessage / 2
	m := startMember(t, func(c *Config) { c.Schemas, c.MaxPartialBytes = [][]byte{[]byte(testSchema)}, limit })
	insert := func(id string, bytes int) string {
		return ask(id, "transact", `["T",{"op":"insert","table":"P","row":{"name":"`+id+strings.Repeat("x", bytes)+`"}}]`)
	}
	gone, many, large, other := m.dial(), m.dial(), m.dial(), m.dial()
	want(t, "the database is there", many.call("echo", `[]`), `[]`)
	m.group.Hold()
	gone.write(insert("1", 2*smallMessage))
	await(t, "a large one", func() bool { return m.door.PartialBytes() > smallMessage })
	const n = 20
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			_, _ = io.WriteString(many.conn, insert(strconv.Itoa(10+i), small))
		}
	}()
	await(t, "many small ones", func() bool { return m.door.PartialBytes() > 3*smallMessage })
	want(t, "one that asks for little", other.call("echo", `[]`), `[]`)
	if at := m.door.PartialBytes(); at > limit {
		t.Errorf("%d bytes are under way, limit %d", at, limit)
	}
	large.write(insert("2", 2*smallMessage))
	large.ended()
	gone.conn.Close()
	m.group.Release()
	<-sent
	for range n {
		if got := many.read(); !strings.HasPrefix(got, `{"error":null,`) || !strings.Contains(got, `"uuid"`) {
			t.Errorf("one that waited: %.200s", got)
		}
	}
	await(t, "nothing counts", func() bool { return m.door.PartialBytes() == 0 })
}

// A small message that waits for room is read once there is some, whoever has given it back.
func TestWhoWaitsForRoomOfOthersIsReadOn(t *testing.T) {
	m := startWithSchema(t)
	waits := m.dial()
	waits.write(ask("1", "transact", `["T",{"op":"wait","table":"P","where":[],"columns":["name"],"until":"==","rows":[{"name":"`+strings.Repeat("x", 2*smallMessage)+`"}]}]`))
	want(t, "what is behind an endless wait", waits.call("echo", `[]`), `[]`)
	conn := m.door.conns.All()[0] // the last
	waits.write(`{"method":"echo",`)
	await(t, "a part of the next message", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.busy == 1 && conn.bytes > 0
	})
	taken := m.door.PartialBytes()
	large := m.dial()
	half := `{"id":1,"method":"echo","params":["` + strings.Repeat("x", 2*smallMessage)
	large.write(half)
	await(t, "half a message", func() bool { return m.door.PartialBytes() == taken+int64(len(half)-smallMessage) })
	m.door.SetLimits(Limits{MaxPartialBytes: m.door.PartialBytes()})

	waits.write(`"params":[2],"id":7}`)
	await(t, "there is no room for what is behind it", conn.heldUp)
	quiet := make(chan struct{})
	m.park.Barrier(func() { close(quiet) })
	<-quiet
	if conn.slow != nil {
		t.Error("who is not read is to send faster")
	}
	m.tick(2)
	await(t, "nor at the next tick", conn.heldUp)
	large.conn.Close()
	await(t, "there is room", func() bool { return m.door.PartialBytes() == taken })
	m.tick(2)
	want(t, "it is answered", waits.answer(), `[2]`)
}

// One principal that sends all it can, over as many connections as it likes, leaves room for
// the large messages of others.
func TestG47_NobodyTakesAllRoomForMessages(t *testing.T) {
	const limit = 20 * smallMessage
	insert := func(id string, bytes int) string {
		return ask(id, "transact", `["T",{"op":"insert","table":"P","row":{"name":"`+strings.Repeat("x", bytes)+`"}}]`)
	}
	for name, greed := range map[string]func(g *guarded, crowd func() *client){
		"unfinished": func(g *guarded, crowd func() *client) {
			for range 8 {
				_, _ = io.WriteString(crowd().conn, `{"x":"`+strings.Repeat("x", 4*smallMessage)) // it may be cut off
			}
			await(g.tb, "those are cut off for whom there is no room", func() bool { return g.door.Stats().Malformed >= 3 })
			for range 40 {
				crowd().write(`{"x":"` + strings.Repeat("x", smallMessage-100))
			}
		},
		"not answered": func(g *guarded, crowd func() *client) {
			for range 30 {
				crowd().write(insert("1", 7*smallMessage/10) + insert("2", 7*smallMessage/10) + insert("3", 7*smallMessage/10))
			}
			await(g.tb, "much is under way", func() bool { return g.door.PartialBytes() > 15*smallMessage })
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGuarded(t)
			g.door.SetLimits(Limits{MaxPartialBytes: limit})
			victim := g.as(agentOf("victim"))
			victim.until("the database is there", func() bool { return victim.call("list_dbs", `[]`) == `["T","_Server"]` })
			var crowd []*client
			for range 50 {
				crowd = append(crowd, g.as(agentOf("greedy")))
			}
			g.group.Hold()
			release := sync.OnceFunc(g.group.Release)
			defer release()
			greed(g, func() *client {
				c := crowd[0]
				crowd = crowd[1:]
				return c
			})
			if at := g.door.PartialBytes(); at > limit*4/5+smallMessage {
				t.Errorf("one has %d bytes under way, limit %d", at, limit)
			}
			victim.write(insert("7", 2*smallMessage) + ask("8", "echo", `[]`))
			want(t, "what comes behind its message", victim.read(), `{"error":null,"id":8,"result":[]}`)
			release()
			wantIDs(t, "its message", victim.answer(), `[{"uuid":["uuid","ID"]}]`)
		})
	}
}

// A text that is no UTF-8 is an error of where it stands, and no end of the connection: one
// of a column is a constraint violation, in a comment it does no harm.
func TestTextsThatAreNoUTF8(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	const violation, fails = `[{"details":"not a valid UTF-8 string","error":"constraint violation"}]`, `"error":"syntax error"`
	for _, x := range []struct{ method, params, answer, has string }{
		{"transact", "[\"T\",{\"op\":\"insert\",\"table\":\"P\",\"row\":{\"name\":\"a\xffb\"}}]", violation, ""},
		{"transact", "[\"T\",{\"op\":\"insert\",\"table\":\"P\",\"row\":{\"tags\":[\"set\",[\"a\",\"\xff\"]]}}]", violation, ""},
		{"transact", "[\"T\",{\"op\":\"select\",\"table\":\"P\",\"where\":[[\"name\",\"==\",\"\xff\"]]}]", violation, ""},
		{"transact", "[\"T\",{\"op\":\"mutate\",\"table\":\"P\",\"where\":[],\"mutations\":[[\"tags\",\"insert\",\"\xff\"]]}]", violation, ""},
		{"transact", "[\"T\",{\"op\":\"comment\",\"comment\":\"\xff\"},{\"op\":\"delete\",\"table\":\"P\",\"where\":[]}]", `[{},{"count":0}]`, ""},
		{"transact", "[\"T\",{\"op\":\"comment\",\"comment\":\"\xff\"},{\"op\":\"insert\",\"table\":\"P\",\"row\":{\"name\":\"n\"}}]", "", `[{},{"uuid":`},
		{"transact", "[\"T\",{\"op\":\"select\",\"table\":\"\xff\",\"where\":[]}]", "", fails},
		{"transact", "[\"T\",{\"op\":\"\xff\"}]", "", fails},
		{"transact", "[\"T\",{\"op\":\"assert\",\"lock\":\"\xff\"}]", "", fails},
		{"transact", "[\"T\",{\"op\":\"insert\",\"table\":\"P\",\"uuid-name\":\"\xff\",\"row\":{}}]", "", fails},
		{"transact", "[\"T\",{\"op\":\"insert\",\"table\":\"P\",\"row\":{\"\xff\":1}}]", "", `"error":"unknown column"`},
		{"transact", "[\"\xff\"]", "", "error {"},
		{"lock", "[\"\xff\"]", "", fails},
		{"get_schema", "[\"\xff\"]", "", "error {"},
		{"monitor", "[\"T\",null,{\"\xff\":{}}]", "", "error {"},
		{"monitor", "[\"T\",null,{\"P\":{\"columns\":[\"\xff\"]}}]", "", "error {"},
		{"convert", "[\"T\",{\"name\":\"T\",\"version\":\"1.0.0\",\"tables\":{\"P\":{\"columns\":{\"name\":{\"type\":{\"key\":{\"type\":\"string\",\"enum\":\"\xff\"}}}}}}}]", "", fails},
		{"\xff", "[]", "error \"unknown method\"", ""},
		{"echo", "[\"\xff\"]", `["?"]`, ""},
	} {
		got := c.call(x.method, x.params)
		if x.answer != "" && got != x.answer || !strings.Contains(got, x.has) {
			t.Errorf("%s %q: %s", x.method, x.params, got)
		}
		want(t, "the connection", c.call("echo", `[1]`), `[1]`)
	}
}
