package ovsdb

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Clients leave a member that is not connected. It is while an election takes no longer than
// they do, and what it shows of the log is what others show.
func TestTheServerIsConnectedThroughAnElection(t *testing.T) {
	began, passed := time.Now(), atomic.Int64{}
	m := startMember(t, func(c *Config) {
		c.Now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	})
	m.define("T")
	c := m.dial()
	m.tick(1) // while there is a leader
	if a := c.call("monitor", `["_Server","m",{"Database":{"columns":["name","connected","leader","index"]}}]`); strings.Contains(a, "false") || !strings.Contains(a, `"index":0`) {
		t.Errorf("with a leader: %s", a)
	}
	m.cut.Store(true)
	passed.Store(int64(leaderless - time.Millisecond))
	m.tick(1)
	want(t, "an echo soon after", c.call("echo", `[1]`), `[1]`)
	passed.Store(int64(leaderless))
	m.tick(1)
	if a := c.read(); !strings.Contains(a, `"new":{"connected":false`) {
		t.Errorf("without one for long: %s", a)
	}
	m.cut.Store(false)
	m.tick(1)
	if a := c.read(); !strings.Contains(a, `"new":{"connected":true`) {
		t.Errorf("with one again: %s", a)
	}
}

// Who is about to begin with a state when changes are lost begins with a later one, and is
// told of what follows on it.
func TestG20_NobodyBeginsBeforeAGap(t *testing.T) {
	m := startMember(t, nil)
	m.define("T")
	f := m.door.feeds.of("T")
	type begun struct {
		again, follows bool
	}
	begins := make(chan begun, 1)
	f.do(func() {
		if err := f.follow(); err != nil {
			t.Error(err)
		}
		f.reached = 0 // nothing has been handed on
		gaps := f.gaps
		f.now(func(contents) { begins <- begun{f.gaps != gaps, f.reader != nil} })
		f.lost(incumbent.Errorf(incumbent.Compacted, "a snapshot was installed"))
	})
	if got := <-begins; !got.again || !got.follows {
		t.Errorf("it begins behind the gap: %v, and is followed: %v", got.again, got.follows)
	}
}

// Python's clients send the id of their monitor with the name of the database.
func TestASchemaIsThatOfTheFirstParameter(t *testing.T) {
	m := startMember(t, nil)
	m.define("T")
	c := m.dial()
	for _, db := range []string{"T", "_Server"} {
		if a := c.call("get_schema", `["`+db+`","x"]`); !strings.Contains(a, `"tables"`) {
			t.Errorf("the schema of %s: %s", db, a)
		}
	}
}
