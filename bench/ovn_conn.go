package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Limits and times of a connection in the protocol of Open vSwitch's databases.
const (
	ovnBuffer   = 4096 // bytes
	maxOVNBytes = 256 << 20
	ovnDial     = 10 * time.Second
	ovnKept     = 64 << 10 // bytes of buffer that a connection keeps between messages
)

// ovnConn is a client of a database with one request under way, over JSON-RPC. Of what
// it is told it looks for the ends of messages and at what it asked for, no more.
type ovnConn struct {
	wireConn
	database string // that it works on
	buf      []byte // the newest message
	next     int    // id of the next request
	// updates is how many messages told of changes since the last answer, and heard how
	// many bytes all messages had.
	updates int
	heard   int64
	// told, if it is set, is given each of these messages, which is valid until it returns.
	told func(m []byte) error
}

func dialOVN(ctx context.Context, address string, local net.Addr) (*ovnConn, error) {
	d := net.Dialer{Timeout: ovnDial, LocalAddr: local}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, broken(err)
	}
	return &ovnConn{wireConn: newWireConn(conn, ovnBuffer), database: ovnDatabase}, nil
}

// message returns the next message; it is valid until the next one is asked for.
func (c *ovnConn) message() ([]byte, error) {
	if c.buf = c.buf[:0]; cap(c.buf) > ovnKept {
		c.buf = nil
	}
	for ends := (jsonEnd{}); ; {
		b, err := c.there(1)
		if err != nil {
			return nil, err
		}
		end := ends.find(b)
		if end >= 0 {
			b = b[:end]
		}
		if len(c.buf)+len(b) > maxOVNBytes {
			return nil, incumbent.Errorf(incumbent.TooLarge, "a message has more than %d bytes", maxOVNBytes)
		}
		c.buf = append(c.buf, b...)
		c.heard += int64(len(b))
		_, _ = c.in.Discard(len(b)) // they are there
		if end >= 0 {
			return c.buf, nil
		}
	}
}

// there is what has come and is not used yet, n bytes at least.
func (c *ovnConn) there(n int) ([]byte, error) {
	if _, err := c.in.Peek(n); err != nil {
		return nil, broken(err)
	}
	return c.in.Peek(c.in.Buffered())
}

// answer waits for the answer to the request under way, counts the updates before it and
// says to a server that asks whether the client lives that it does.
func (c *ovnConn) answer() ([]byte, error) {
	c.updates = 0
	for {
		m, err := c.message()
		if err != nil {
			return nil, err
		}
		mine, err := c.handle(m)
		if err != nil || mine {
			return m, err
		}
	}
}

// handle takes a message that may be none's answer, and reports whether it is one.
func (c *ovnConn) handle(m []byte) (answer bool, err error) {
	switch head := m[:min(len(m), 256)]; {
	case bytes.Contains(head, []byte(`"method":"update`)) || bytes.HasPrefix(tail(m), []byte(`"method":"update`)):
		c.updates++
		if c.told != nil {
			return false, c.told(m)
		}
		return false, nil
	case bytes.Contains(head, []byte(`"method":"echo"`)):
		var asked struct {
			ID json.RawMessage `json:"id"`
		}
		if err := json.Unmarshal(m, &asked); err != nil {
			return false, incumbent.Errorf(incumbent.Corrupt, "an echo was asked for with %.80q", m)
		}
		if _, err := fmt.Fprintf(c.conn, `{"id":%s,"result":[],"error":null}`, asked.ID); err != nil {
			return false, broken(err)
		}
		return false, nil
	}
	return true, nil
}

// tail is where a server that writes the members of an object in the order of their
// names has the method of an update: {"id":null,"method":…}.
func tail(m []byte) []byte {
	_, after, _ := bytes.Cut(m[:min(len(m), 32)], []byte(`"id":null,`))
	return after
}

// ask makes a request and returns its result.
func (c *ovnConn) ask(method, params string) (json.RawMessage, error) {
	if err := c.send(method, params); err != nil {
		return nil, err
	}
	m, err := c.answer()
	if err != nil {
		return nil, err
	}
	var said struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(m, &said); err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s was answered with %.80q", method, m)
	}
	if string(said.ID) != strconv.Itoa(c.next) {
		return nil, incumbent.Errorf(incumbent.Corrupt, "request %d was answered as %s", c.next, said.ID)
	}
	if len(said.Error) > 0 && string(said.Error) != "null" {
		return nil, refusedCall{incumbent.Errorf(refusalOf(said.Error), "%s: %.200s", method, said.Error)}
	}
	return bytes.Clone(said.Result), nil
}

// refusalOf is the kind of an error that a server answers a request with.
func refusalOf(said json.RawMessage) incumbent.Kind {
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(said, &e) == nil && e.Error == exhausted {
		return incumbent.Overloaded
	}
	return incumbent.Invalid
}

const exhausted = "resources exhausted"

func (c *ovnConn) send(method, params string) error {
	c.next++
	c.out = append(append(c.out[:0], `{"method":"`...), method...)
	c.out = append(append(append(c.out, `","params":`...), params...), `,"id":`...)
	c.out = append(strconv.AppendInt(c.out, int64(c.next), 10), '}')
	_ = c.conn.SetReadDeadline(time.Now().Add(ovnPatience)) // a connection that is closed says so when it is read
	return c.flush()
}

// transact commits operations and returns their results; one that failed is an error.
func (c *ovnConn) transact(operations string) ([]ovnResult, error) {
	said, err := c.ask("transact", `["`+c.database+`",`+operations+`]`)
	if err != nil {
		return nil, err
	}
	var results []ovnResult
	if err := json.Unmarshal(said, &results); err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "a transaction was answered with %.80q", said)
	}
	for _, r := range results {
		kind := incumbent.Conflict
		if r.Error == exhausted {
			kind = incumbent.Overloaded
		}
		if r.Error != "" {
			return nil, refusedCall{incumbent.Errorf(kind, "%s: %s", r.Error, r.Details)}
		}
	}
	return results, nil
}

// ovnSnapshot is what a client was told when it began to monitor.
type ovnSnapshot struct {
	bytes int64
	found bool   // it was told what changed since what it brought
	last  string // the last transaction in it
	reply []byte // valid until the next message
}

// refusedMonitor is the answer to who may not monitor, yet: refusals of transactions are
// none of these.
type refusedMonitor struct{ error }

// Unwrap has it be a [refusedCall] as well.
func (r refusedMonitor) Unwrap() error { return refusedCall(r) }

// monitor begins to monitor, and returns once all that is there has come. Of an answer
// of the size that is known it does not look for the end; size 0: none is.
func (c *ovnConn) monitor(tables, last string, size int64) (*ovnSnapshot, error) {
	if last == "" {
		last = "00000000-0000-0000-0000-000000000000"
	}
	before := c.heard
	if err := c.send("monitor_cond_since", fmt.Sprintf(`[%q,null,%s,%q]`, c.database, tables, last)); err != nil {
		return nil, err
	}
	m, err := c.skimmed(size)
	if err != nil {
		return nil, err
	}
	s := &ovnSnapshot{bytes: c.heard - before, reply: m}
	// The result is [found, last transaction, differences]: its beginning says the first two.
	_, result, ok := bytes.Cut(m, []byte(`"result":[`))
	if !ok {
		return nil, refusedMonitor{incumbent.Errorf(incumbent.Invalid, "a monitor was answered with %.200q", m)}
	}
	found, rest, _ := bytes.Cut(result, []byte(`,`))
	id, _, ok := bytes.Cut(bytes.TrimPrefix(rest, []byte(`"`)), []byte(`"`))
	if !ok {
		return nil, incumbent.Errorf(incumbent.Corrupt, "a monitor was answered with %.200q", m)
	}
	s.found, s.last = string(found) == "true", string(id)
	return s, nil
}

// rows is how many rows of the ports a snapshot has.
func (s *ovnSnapshot) rows() (int, error) {
	var said struct{ Result []json.RawMessage }
	var tables struct {
		Ports map[string]json.RawMessage `json:"Port_Binding"`
	}
	err := json.Unmarshal(s.reply, &said)
	if err == nil && len(said.Result) == 3 {
		err = json.Unmarshal(said.Result[2], &tables)
	}
	return len(tables.Ports), err
}

// jsonEnd finds the end of an object in bytes that come in pieces.
type jsonEnd struct {
	depth   int
	quoted  bool
	escaped bool
}

// find returns how many bytes of b belong to the object that is looked for, -1 if it
// does not end in them.
func (e *jsonEnd) find(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case e.escaped:
			e.escaped = false
		case e.quoted:
			if c == '\\' {
				e.escaped = true
			} else if c == '"' {
				e.quoted = false
			} else if next := bytes.IndexAny(b[i:min(len(b), i+16)], `"\`); next < 0 {
				i = min(len(b), i+16) - 1
			}
		case c == '"':
			e.quoted = true
		case c == '{':
			e.depth++
		case c == '}':
			if e.depth--; e.depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}
