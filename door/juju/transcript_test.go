package juju

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// The exchange as it is on the wire, message by message.
//
//	connect CLIENT [path=PATH]   TLS and the upgrade
//	ask CLIENT                   sends each line of the input, each followed by its reply
//	send CLIENT                  sends each line and reads nothing
//	read CLIENT [n=N]            reads N replies
//	leave CLIENT                 says good-bye without a reason, and reads the answer
//	vanish CLIENT                ends the connection without a word
//	free APPLICATION             ends the holding of its lease
//	expire APPLICATION           its lease runs out
//	freesingular UUID            ends the holding of a controller
//	blocked n=N                  waits until N calls wait
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		m := newMember(t, nil)
		clients := map[string]*client{}
		waits := 0
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			name := ""
			if len(d.CmdArgs) > 0 {
				name = d.CmdArgs[0].Key
			}
			c := clients[name]
			switch d.Cmd {
			case "connect":
				return connectTo(t, m, d, clients)
			case "ask":
				var out strings.Builder
				for line := range strings.Lines(d.Input) {
					c.send(messageOf(line))
					out.WriteString(c.read() + "\n")
				}
				return out.String()
			case "send":
				for line := range strings.Lines(d.Input) {
					c.send(messageOf(line))
				}
				return ""
			case "leave":
				if err := ws.WriteFrame(c.conn, ws.MaskFrameInPlace(ws.NewCloseFrame(nil))); err != nil {
					t.Fatal(err)
				}
				return c.read() + "\n"
			case "vanish":
				c.conn.Close()
				return ""
			case "read":
				n := 1
				d.MaybeScanArgs(t, "n", &n)
				var out strings.Builder
				for range n {
					out.WriteString(c.read() + "\n")
				}
				return out.String()
			case "blocked":
				d.ScanArgs(t, "n", &waits)
				eventually(t, "calls wait at the hub", func() bool { return m.group.Hub().Stats().Waiters == waits && m.door.Stats().Blocked == waits })
				return ""
			case "free":
				m.free(nameOf(testModel, name))
				return ""
			case "expire":
				l := leases.Of(m.group.View()).Lease(nameOf(testModel, name))
				if r := m.group.Do(leases.ExpireCommand{Token: l.Token, Renewal: l.Renewal}); r.Err != nil {
					t.Fatal(r.Err)
				}
				return ""
			case "freesingular":
				m.free(incumbent.Name{Namespace: singularNamespace, Model: testModel, Lease: name})
				return ""
			}
			t.Fatalf("no such command: %s", d.Cmd)
			return ""
		})
	})
}

// messageOf is a line as Juju's agents send it: their encoder ends each message so.
func messageOf(line string) string { return strings.TrimSpace(line) + "\n" }

func connectTo(t *testing.T, m *member, d *datadriven.TestData, clients map[string]*client) string {
	path := "/model/" + testModel + "/api"
	d.MaybeScanArgs(t, "path", &path)
	c, err := m.connect(path)
	var status ws.StatusError
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("HTTP %d\n", int(status))
	case err != nil:
		t.Fatal(err)
	}
	clients[d.CmdArgs[0].Key] = c
	return "HTTP 101\n"
}
