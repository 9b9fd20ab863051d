package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
)

// Of the claims that flood the door for Juju's agents. They are for as long as Juju's own: of
// shorter ones those that wait in a flood lapse before they are claimed again, and are granted
// anew by an entry of the log each, or are not, as it happens: two loads, of which one is a
// tenth of the other.
const (
	jujuFloodClaims = 50 // of one request
	jujuFloodSets   = 4  // of applications that a client claims by turns
	jujuFloodUnits  = 3  // of each, that claim it by turns: as there are of Juju's applications
	jujuFloodFor    = time.Minute
)

// jujuClaimer claims the leadership of applications for one of their units after the
// other: it is granted what is free, and denied what the one before still has, as two of
// three of Juju's units are. It makes its requests once.
type jujuClaimer struct {
	conn  *tls.Conn
	id    uint64
	calls [][]byte // the params of its requests
	frame []byte
	judge func(payload []byte, id uint64) (done int, err error)
}

func openJujuClaims(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	conn, err := f.enterJuju(ctx, member, n, f.opts.JujuPassword)
	if err != nil {
		return nil, err
	}
	c := &jujuClaimer{conn: conn, id: jujuLoginID, judge: func(payload []byte, id uint64) (int, error) {
		granted, denied, err := judgeJujuClaims(payload, id)
		f.denied.Add(int64(denied))
		return granted + denied, err
	}}
	sets := f.sets(n, floodClients*jujuFloodSets)
	for unit := range jujuFloodUnits {
		for _, set := range sets {
			params := []byte(`{"params":[`)
			for k := range f.batch {
				app := fmt.Sprintf("flood%dx%d", set, k)
				if k > 0 {
					params = append(params, ',')
				}
				params = fmt.Appendf(params, `{"application-tag":"application-%s","unit-tag":"unit-%s-%d","duration":%v}`, app, app, unit, jujuFloodFor.Seconds())
			}
			c.calls = append(c.calls, append(params, `]}}`...))
		}
	}
	return c.client(), nil
}

func (c *jujuClaimer) client() *floodClient {
	return &floodClient{c.ask, func() { c.conn.NetConn().Close() }}
}

func (c *jujuClaimer) ask(ctx context.Context, i int) (done int, err error) {
	defer context.AfterFunc(ctx, func() { c.conn.NetConn().Close() })()
	c.id++
	c.frame = append(c.frame[:0], make([]byte, jujuFrameHeader)...)
	c.frame = appendCall(c.frame, c.id, "LeadershipService", 2, "ClaimLeadership")
	c.frame = append(c.frame, c.calls[i%len(c.calls)]...)
	if _, err := c.conn.Write(jujuFrame(c.frame, ws.OpText)); err != nil {
		return 0, broken(err)
	}
	payload, err := readJuju(c.conn)
	if err != nil {
		return 0, err
	}
	return c.judge(payload, c.id)
}

// readJuju reads the next text of a server. One that says good-bye has no room.
func readJuju(conn io.Reader) ([]byte, error) {
	for {
		h, err := ws.ReadHeader(conn)
		if err != nil {
			return nil, broken(err)
		}
		if h.Length > maxJujuMessage {
			return nil, fmt.Errorf("%w: a frame of %d bytes", errWire, h.Length)
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(conn, payload); err != nil {
			return nil, broken(err)
		}
		switch h.OpCode {
		case ws.OpText:
			return payload, nil
		case ws.OpClose:
			return nil, errGoodBye
		}
	}
}

// judgeJujuClaims counts the claims that have a certain answer: those that were granted, and
// those that were denied, for another unit leads, which costs the server no entry of its log.
func judgeJujuClaims(payload []byte, id uint64) (granted, denied int, err error) {
	var r struct {
		ID       uint64 `json:"request-id"`
		Error    string `json:"error"`
		Code     string `json:"error-code"`
		Response struct {
			Results []struct {
				Error *struct{ Message, Code string }
			}
		}
	}
	if err := json.Unmarshal(payload, &r); err != nil || r.ID != id {
		return 0, 0, fmt.Errorf("%w: request %d was answered with %.80q", errWire, id, payload)
	}
	if r.Error != "" {
		return 0, 0, jujuFailure(r.Error, r.Code)
	}
	for _, one := range r.Response.Results {
		switch {
		case one.Error == nil:
			granted++
		case one.Error.Code == jujuDenied:
			denied++
		default:
			err = jujuFailure(one.Error.Message, one.Error.Code)
		}
	}
	return granted, denied, err
}

// jujuFailure is an error of a call. A server that is overloaded has the client try again.
func jujuFailure(message, code string) error {
	if code == jujuTryAgain {
		e := incumbent.Errorf(incumbent.Overloaded, "%s", message)
		e.RetryAfter = jujuRetries[0]
		return e
	}
	return incumbent.Errorf(incumbent.Unavailable, "%s (%s)", message, strconv.Quote(code))
}
