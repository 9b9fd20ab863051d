package ovsdb

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A database whose rows say what to listen at.
const listeningSchema = `{"name":"T","version":"1.0.0","tables":{
"G":{"isRoot":true,"columns":{"connections":{"type":{"key":{"type":"uuid","refTable":"Connection"},"min":0,"max":"unlimited"}}}},
"Connection":{"columns":{"target":{"type":"string"},"status":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}`

// failing is a listener that accepts nobody.
type failing struct {
	asked  chan struct{} // has room for one
	closed atomic.Bool
}

func (f *failing) Accept() (net.Conn, error) {
	f.asked <- struct{}{}
	return nil, errors.New("not here")
}

func (*failing) Addr() net.Addr { return &net.TCPAddr{} }

func (f *failing) Close() error {
	f.closed.Store(true)
	return nil
}

// A listener of a row that fails is opened again after a while, and the row says so.
func TestListenersOfRowsAreOpenedAgain(t *testing.T) {
	var opened atomic.Int32
	first := &failing{asked: make(chan struct{}, 1)}
	m := startMember(t, func(c *Config) {
		c.Schemas, c.Sources, c.Probe = [][]byte{[]byte(listeningSchema)}, []Source{{"T", "G", "connections"}}, -1
		c.Standing = func() Standing { return Standing{Connected: true, Leads: true} }
		c.Listen = func(string) (net.Listener, bool, error) {
			if opened.Add(1) == 1 {
				return first, false, nil
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			return ln, false, err
		}
	})
	c := m.dial()
	if got := c.call("transact", `["T",{"op":"insert","table":"Connection","uuid-name":"c","row":{"target":"ptcp:0"}},{"op":"insert","table":"G","row":{"connections":["named-uuid","c"]}}]`); strings.Contains(got, "error") {
		t.Fatal(got)
	}
	c.call("monitor", `["T","m",{"Connection":{"columns":["status"],"select":{"initial":false}}}]`)
	ticks := 0
	for end := time.Now().Add(patience); opened.Load() < 2; ticks++ {
		if time.Now().After(end) {
			t.Fatal("it is not opened again")
		}
		m.tick(1)
		if ticks == 0 {
			<-first.asked
			time.Sleep(50 * time.Millisecond) // what it says is noted behind that
		}
	}
	if ticks < retryRemote {
		t.Errorf("it was opened again after %d ticks", ticks)
	}
	if !first.closed.Load() {
		t.Error("the first one is not closed")
	}
	if got := c.read(); !strings.Contains(got, `["last_error","not here"],["state","BACKOFF"]`) {
		t.Errorf("meanwhile the row says %s", got)
	}
	for end := time.Now().Add(patience); m.door.writing.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what the row says is written for ever")
		}
	}
	m.tick(int(tellEvery/tickEvery) + 1) // one of them is a look, which is passed over while the one before is written
	if got := c.read(); !strings.Contains(got, `"bound_port"`) {
		t.Errorf("then the row says %s", got)
	}
}
