package ovsdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// message is what a server sends: an answer, or a notification, whose id is null.
type message struct {
	ID     any
	Method string
	Params []any
	Result any
	Error  any
}

// session is a connection to a server of OVSDB's protocol.
type session struct {
	conn net.Conn
	in   *json.Decoder
	last int       // id of the last request
	told []message // notifications that nobody has looked at
}

// dial connects to network:address, as it is given to programs: unix:PATH, tcp:HOST:PORT.
func dial(remote string) (*session, error) {
	network, address, _ := strings.Cut(remote, ":")
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	return sessionOn(c), nil
}

func sessionOn(c net.Conn) *session {
	s := &session{conn: c, in: json.NewDecoder(c)}
	s.in.UseNumber()
	return s
}

func connect(t testing.TB, remote string) *session {
	t.Helper()
	s, err := dial(remote)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// send sends a request, and returns its id.
func (s *session) send(method string, params []any) (string, error) {
	s.last++
	id := fmt.Sprintf("r%d", s.last)
	return id, s.write(map[string]any{"id": id, "method": method, "params": params})
}

func (s *session) write(m any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return err
	}
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := s.conn.Write(b.Bytes())
	return err
}

// read returns the next message. The server's own requests are answered.
func (s *session) read() (m message, err error) {
	for {
		m = message{}
		if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return m, err
		}
		if err := s.in.Decode(&m); err != nil {
			return m, err
		}
		if m.Method != "echo" || m.ID == nil {
			return m, nil
		}
		if err := s.write(map[string]any{"id": m.ID, "result": m.Params, "error": nil}); err != nil {
			return m, err
		}
	}
}

// answer reads up to the answer of a request, and keeps what is told before it.
func (s *session) answer(id string) (message, error) {
	for {
		m, err := s.read()
		if err != nil {
			return m, err
		}
		switch {
		case m.ID == nil && m.Method != "":
			s.told = append(s.told, m)
		case m.ID != id:
			return m, fmt.Errorf("an answer of %v, and not of %s", m.ID, id)
		default:
			return m, nil
		}
	}
}

// ask sends a request and returns its answer.
func (s *session) ask(method string, params ...any) (message, error) {
	id, err := s.send(method, params)
	if err != nil {
		return message{}, err
	}
	return s.answer(id)
}

// object is one of JSON.
type object = map[string]any
