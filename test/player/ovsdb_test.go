package player

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// ovsdbPlayer is a client of Open vSwitch's databases: it adds to the counter as tablePlayer
// does, takes locks, and sends what is invalid.
type ovsdbPlayer struct {
	*play
	number int
	locks  *ovsdbLocks
	on     *ovsdbConn // nil: it is not connected
}

// ovsdbConn is a connection. It belongs to whoever has opened it.
type ovsdbConn struct {
	net.Conn
	m    *member
	life int
	in   *json.Decoder
	last int
	told func(method string, params []json.RawMessage) // a notification

	locked map[string]uint64 // the locks it has, and their numbers; asked for and not had: 0
}

// ovsdbMessage is what a server sends.
type ovsdbMessage struct {
	ID     json.RawMessage
	Method string
	Params []json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

var lockNames = []string{"l0", "l1"}

// ovsdbLocks is who believes to have which lock. Of each there is one at most: a connection stops
// believing when it asks for the end, is told of a thief or is closed, all of which is before
// another is told that it has it.
type ovsdbLocks struct {
	mu   sync.Mutex // guards the rest; held for a change
	last uint64
	held map[string]map[uint64]string // of each lock, by number: who has it
}

func newOVSDBLocks() *ovsdbLocks { return &ovsdbLocks{held: map[string]map[uint64]string{}} }

func (l *ovsdbLocks) got(name, who string) (number uint64, others []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] == nil {
		l.held[name] = map[uint64]string{}
	}
	others = slices.Collect(maps.Keys(l.held[name]))
	l.last++
	l.held[name][l.last] = who
	return l.last, others
}

func (l *ovsdbLocks) lost(name string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held[name], number)
}

func (l *ovsdbLocks) has(name string, number uint64) (who string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	who, ok = l.held[name][number]
	return who, ok
}

// dialOVSDB connects to a member; nil: it was killed, or does not accept.
func (p *play) dialOVSDB(ctx context.Context, m *member) *ovsdbConn {
	c := &ovsdbConn{m: m, life: m.life(), locked: map[string]uint64{}}
	d := net.Dialer{Timeout: patience}
	var err error
	if p.c.tls == nil {
		c.Conn, err = d.DialContext(ctx, "tcp", m.OVSDB)
	} else {
		c.Conn, err = (&tls.Dialer{NetDialer: &d, Config: p.c.tls}).DialContext(ctx, "tcp", m.OVSDB)
	}
	if err != nil {
		return nil
	}
	c.in = json.NewDecoder(c.Conn)
	return c
}

// read returns the next answer, and hands on what is told before it. Echoes are answered.
func (c *ovsdbConn) read() (*ovsdbMessage, error) {
	for {
		m := &ovsdbMessage{}
		if err := c.in.Decode(m); err != nil {
			return nil, err
		}
		switch {
		case m.Method == "echo":
			if _, err := fmt.Fprintf(c.Conn, `{"id":%s,"result":[],"error":null}`, m.ID); err != nil {
				return nil, err
			}
		case m.Method != "":
			c.told(m.Method, m.Params)
		default:
			return m, nil
		}
	}
}

// ask sends a request and returns its answer; nil: the connection ended.
func (c *ovsdbConn) ask(call *call, method, params string) *ovsdbMessage {
	c.last++
	id := fmt.Sprint(c.last)
	m, err := func() (*ovsdbMessage, error) {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintf(c.Conn, `{"id":%s,"method":%q,"params":%s}`, id, method, params); err != nil {
			return nil, err
		}
		return c.read()
	}()
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout() && c.m.life() == c.life:
		call.fail("%s %s is not answered in %v", method, params, patience)
	case err == nil && string(m.ID) != id:
		call.fail("request %s is answered as %s: %s", id, m.ID, m.Result)
	}
	if err != nil {
		return nil
	}
	return m
}

// lock takes note that the connection has a lock.
func (p *ovsdbPlayer) has(name string) {
	number, others := p.locks.got(name, fmt.Sprintf("player %d at %s", p.number, p.on.m.Name))
	p.on.locked[name] = number
	p.book.count("OVSDB: lock")
	for _, o := range others {
		p.disputed(name, number, o)
	}
}

// disputed waits until another connection that had the lock knows that it is over: it may have
// been closed, which its player has not read yet.
func (p *ovsdbPlayer) disputed(name string, number, other uint64) {
	who := p.on.m.Name
	go func() {
		for end := time.Now().Add(patience / 4); time.Now().Before(end); time.Sleep(lookEvery) {
			if _, still := p.locks.has(name, other); !still {
				return
			}
			if _, still := p.locks.has(name, number); !still {
				return
			}
		}
		other, _ := p.locks.has(name, other)
		p.fail("lock %s is had by player %d at %s and by %s", name, p.number, who, other)
	}()
}

// lose takes note that the connection does not have a lock any more.
func (p *ovsdbPlayer) lose(name string) {
	p.locks.lost(name, p.on.locked[name])
	p.on.locked[name] = 0
}

// hangUp closes the connection.
func (p *ovsdbPlayer) hangUp() {
	if p.on == nil {
		return
	}
	for name := range p.on.locked {
		p.lose(name)
	}
	p.on.Close()
	p.on = nil
}

func (p *ovsdbPlayer) run(ctx context.Context) {
	defer p.hangUp()
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		if p.on == nil {
			if p.on = p.dialOVSDB(ctx, pick(d, p.c.Members)); p.on == nil {
				p.rest(ctx, d)
				continue
			}
			p.on.told = p.told
		}
		c := p.book.begin(fmt.Sprintf("player %d, step %d, OVSDB's client at %s", p.number, step, p.on.m.Name))
		ok := false
		switch d.IntN(10) {
		case 0, 1, 2, 3:
			ok = p.add(c, d, step)
		case 4, 5, 6:
			ok = p.lock(c, d)
		case 7:
			ok = p.invalid(c, d)
		case 8:
			ok = p.on.ask(c, "echo", `["played"]`) != nil
		default:
			ok = p.look(c)
		}
		if !ok || d.oneIn(60) {
			p.hangUp()
		}
		p.rest(ctx, d)
	}
}

// told is called for each notification.
func (p *ovsdbPlayer) told(method string, params []json.RawMessage) {
	var name string
	if len(params) == 0 || json.Unmarshal(params[0], &name) != nil {
		p.fail("player %d is told %s %s", p.number, method, params)
		return
	}
	number, asked := p.on.locked[name]
	switch {
	case method == "locked" && asked && number == 0:
		p.has(name)
	case method == "stolen" && asked:
		p.lose(name)
	default:
		p.fail("player %d at %s is told %s of lock %s, which it has under number %d (asked for: %v)", p.number, p.on.m.Name, method, name, number, asked)
	}
}

// add adds to the counter, once.
func (p *ovsdbPlayer) add(c *call, d dice, step int) bool {
	id, by := fmt.Sprintf("%d/%d", p.number, step), 1+d.IntN(9)
	m := p.on.ask(c, "transact", fmt.Sprintf(`[%q,
{"op":"wait","timeout":0,"table":"Counter","where":[["name","==","all"]],"columns":["name"],"until":"==","rows":[{"name":"all"}]},
{"op":"insert","table":"Call","row":{"id":%q,"by":%d}},
{"op":"mutate","table":"Counter","where":[["name","==","all"]],"mutations":[["by","+=",%d]]}]`, playedDatabase, id, by, by))
	switch {
	case m == nil:
		p.calls.note(p.calls.unknown, id, by)
		return false
	case m.failed("unknown database", "timed out"):
		p.calls.note(p.calls.never, id, by)
	case m.failed("I/O error", "resources exhausted"): // nobody leads, or it is not known
		p.calls.note(p.calls.unknown, id, by)
	case m.Error != nil && string(m.Error) != "null" || strings.Contains(string(m.Result), `"error"`):
		c.fail("a transaction is answered %s, %s", m.Result, m.Error)
	default:
		p.book.count("OVSDB: transaction done")
		p.calls.note(p.calls.done, id, by)
	}
	return true
}

// failed reports whether the answer is one of these errors.
func (m *ovsdbMessage) failed(errors ...string) bool {
	return slices.ContainsFunc(errors, func(text string) bool {
		return strings.Contains(string(m.Error), text) || strings.Contains(string(m.Result), `"error":"`+text)
	})
}

// lock asks for a lock, steals it, or gives it up.
func (p *ovsdbPlayer) lock(c *call, d dice) bool {
	name := pick(d, lockNames)
	if _, asked := p.on.locked[name]; asked {
		if d.oneIn(3) {
			return p.owns(c, name)
		}
		p.locks.lost(name, p.on.locked[name]) // from now on
		p.on.locked[name] = 0
		m := p.on.ask(c, "unlock", fmt.Sprintf("[%q]", name))
		if m == nil {
			return false
		}
		if string(m.Result) != "{}" {
			c.fail("unlock of %s is answered %s, %s", name, m.Result, m.Error)
		}
		p.lose(name) // which it may have got meanwhile
		delete(p.on.locked, name)
		return true
	}
	verb := "lock"
	if d.oneIn(3) {
		verb = "steal"
	}
	p.on.locked[name] = 0
	m := p.on.ask(c, verb, fmt.Sprintf("[%q]", name))
	var out struct{ Locked bool }
	switch {
	case m == nil:
		return false
	case m.failed("I/O error", "resources exhausted"):
		delete(p.on.locked, name)
	case json.Unmarshal(m.Result, &out) != nil || string(m.Error) != "null" || verb == "steal" && !out.Locked:
		c.fail("%s of %s is answered %s, %s", verb, name, m.Result, m.Error)
	case out.Locked:
		p.has(name)
	default:
		p.book.count("OVSDB: lock waited for")
	}
	return true
}

// owns has a transaction succeed only if the connection has a lock.
func (p *ovsdbPlayer) owns(c *call, name string) bool {
	m := p.on.ask(c, "transact", fmt.Sprintf(`[%q,{"op":"assert","lock":%q}]`, playedDatabase, name))
	if m == nil {
		return false
	}
	owned := !strings.Contains(string(m.Result), `"error"`) && string(m.Error) == "null"
	if owned && p.on.locked[name] == 0 {
		c.fail("the transaction owns lock %s, of which the client has not been told", name)
	}
	return true
}

// invalid sends what is refused.
func (p *ovsdbPlayer) invalid(c *call, d dice) bool {
	x := pick(d, []struct{ method, params, want string }{
		{"fly", `[]`, "unknown method"},
		{"get_schema", `["none"]`, "unknown database"},
		{"transact", `["none"]`, "unknown database"},
		{"transact", `[7]`, "syntax error"},
		{"transact", `["_Server",{"op":"delete","table":"Database","where":[]}]`, "not allowed"},
		{"monitor", `["Played"]`, "syntax error"},
		{"monitor_cancel", `["none"]`, "unknown monitor"},
		{"unlock", `["none"]`, "syntax error"},
		{"lock", `[7]`, "syntax error"},
		{"convert", `["Played",{"name":"Other","version":"1.0.0","tables":{}}]`, ""},
	})
	m := p.on.ask(c, x.method, x.params)
	if m == nil {
		return false
	}
	if text := string(m.Result) + string(m.Error); (!strings.Contains(text, x.want) || !strings.Contains(text, "error") && string(m.Error) == "null") && !m.failed("I/O error") {
		c.fail("%s %s is answered %s, %s", x.method, x.params, m.Result, m.Error)
	}
	p.book.count("OVSDB: invalid")
	return true
}

// look reads all in one transaction: the counter has what calls have added.
func (p *ovsdbPlayer) look(c *call) bool {
	m := p.on.ask(c, "transact", fmt.Sprintf(`[%q,{"op":"select","table":"Call","where":[]},{"op":"select","table":"Counter","where":[]}]`, playedDatabase))
	switch {
	case m == nil:
		return false
	case m.failed("unknown database", "I/O error", "resources exhausted"):
		return true
	}
	var out []struct{ Rows []playedRow }
	if err := json.Unmarshal(m.Result, &out); err != nil || len(out) != 2 {
		c.fail("what is there: %s, %s", m.Result, m.Error)
		return true
	}
	if calls, counter := sumOf(out[0].Rows), sumOf(out[1].Rows); calls != counter {
		c.fail("transactions have added %d, and the counter has %d", calls, counter)
	}
	p.book.count("OVSDB: read as a whole")
	return true
}

func sumOf(rows []playedRow) (sum int) {
	for _, r := range rows {
		sum += r.By
	}
	return sum
}

// ovsdbMonitor is what the updates of a monitor compose to, over all connections.
type ovsdbMonitor struct {
	mu   sync.Mutex // guards the rest; held for an update
	last string     // id of the transaction that it has seen last
	rows map[string]playedRow
}

// followOVSDB keeps a monitor of the database open, at whichever member answers, and goes on
// behind what it has seen.
func (p *play) followOVSDB(ctx context.Context, f *ovsdbMonitor) {
	for i := 0; ctx.Err() == nil; i++ {
		if c := p.dialOVSDB(ctx, p.c.Members[i%len(p.c.Members)]); c != nil {
			stop := context.AfterFunc(ctx, func() { c.Close() })
			p.monitorOVSDB(c, f)
			stop()
			c.Close()
		}
		pause(ctx, lookEvery)
	}
}

func (p *play) monitorOVSDB(c *ovsdbConn, f *ovsdbMonitor) {
	c.told = func(method string, params []json.RawMessage) {
		if method == "update3" && len(params) == 3 {
			p.updated(f, params[1], params[2])
		}
	}
	last := f.last
	if last == "" {
		last = "00000000-0000-0000-0000-000000000000"
	}
	m := c.ask(p.book.begin("OVSDB's monitor at "+c.m.Name), "monitor_cond_since",
		fmt.Sprintf(`[%q,"all",{"Call":[{"columns":["id","by"]}],"Counter":[{"columns":["name","by"]}]},%q]`, playedDatabase, last))
	if m == nil || m.failed("unknown database", "I/O error", "resources exhausted") {
		return
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(m.Result, &parts); err != nil || len(parts) != 3 {
		p.fail("the monitor of OVSDB begins with %s, %s", m.Result, m.Error)
		return
	}
	if string(parts[0]) == "false" {
		f.mu.Lock()
		f.rows = map[string]playedRow{}
		f.mu.Unlock()
	} else {
		p.book.count("OVSDB: monitor resumed")
	}
	p.updated(f, parts[1], parts[2])
	_ = c.SetDeadline(time.Time{}) // a connection that is closed reads nothing
	_, _ = c.read()                // until it ends
}

// updated takes in an update: the counter has what calls have added behind each.
func (p *play) updated(f *ovsdbMonitor, id, text json.RawMessage) {
	var tables map[string]map[string]struct {
		Initial, Insert *playedRow
		Modify          *struct{ By *int }
		Delete          json.RawMessage
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(json.Unmarshal(id, &f.last), json.Unmarshal(text, &tables)); err != nil {
		p.fail("an update of OVSDB's monitor: %v: %s", err, text)
		return
	}
	for _, rows := range tables {
		for uuid, u := range rows {
			was, there := f.rows[uuid]
			switch {
			case u.Initial != nil && !there:
				f.rows[uuid] = *u.Initial
			case u.Insert != nil && !there:
				f.rows[uuid] = *u.Insert
			case u.Modify != nil && u.Modify.By != nil && there:
				was.By = *u.Modify.By
				f.rows[uuid] = was
			case u.Delete != nil && there:
				delete(f.rows, uuid)
			default:
				p.fail("an update of OVSDB's monitor that does not fit %+v (there: %v): %s", was, there, text)
			}
		}
	}
	calls, counter := 0, 0
	for _, r := range f.rows {
		if r.Name != "" {
			counter += r.By
		} else {
			calls += r.By
		}
	}
	if calls != counter {
		p.fail("OVSDB's monitor shows %d added by transactions, and %d in the counter, behind %s", calls, counter, text)
	}
	p.book.count("OVSDB: update")
}

// monitored reports whether the monitor shows what there is.
func (f *ovsdbMonitor) shows(rows map[string]playedRow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(rows) != len(f.rows) {
		return false
	}
	for uuid, r := range rows {
		if is := f.rows[uuid]; is.ID != r.ID || is.Name != r.Name || is.By != r.By {
			return false
		}
	}
	return true
}
