package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Limits of what a server answers.
const (
	maxCallAnswer  = 4 << 20 // bytes
	maxRefusalText = 512     // bytes of a refusal that are kept
)

// callConn is a connection that carries one call of the native API after the other:
// Connect's protocol, HTTP/1.1 and protobuf. It is written by hand since the load
// tool shares its cores with what it measures.
//
// Concurrency: one goroutine at a time; close may be called from any.
type callConn struct {
	conn net.Conn
	in   *bufio.Reader
	path string // before a procedure's
	head string // of every request, behind its first line
	out  []byte
	body bytes.Buffer
}

// dialCalls opens connection i, to the members in turn.
func (r *run) dialCalls(ctx context.Context, i int) (*callConn, error) {
	u, err := url.Parse(r.urls[i%len(r.urls)])
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "target: %w", err)
	}
	conn, err := r.clients[i%len(r.clients)].DialHTTP(ctx, client.StreamOptions{Local: r.source(i)})
	if err != nil {
		return nil, err
	}
	c := &callConn{conn: conn, in: bufio.NewReaderSize(conn, readBuffer), path: u.Path, head: "Host: " + u.Host + "\r\n"}
	if r.credential != "" {
		c.head += "Authorization: Bearer " + r.credential + "\r\n"
	}
	return c, nil
}

// close ends what is under way.
func (c *callConn) close() { c.conn.Close() }

// begin appends the head of a request up to where its body begins.
func (c *callConn) begin(procedure, kind string, size int) {
	c.out = append(c.out[:0], "POST "...)
	c.out = append(append(c.out, c.path...), procedure...)
	c.out = append(append(c.out, " HTTP/1.1\r\n"...), c.head...)
	c.out = append(append(c.out, "Content-Type: "...), kind...)
	c.out = append(c.out, "\r\nConnect-Protocol-Version: 1\r\nContent-Length: "...)
	c.out = append(strconv.AppendInt(c.out, int64(size), 10), "\r\n\r\n"...)
}

// send writes the request and returns the answer's head; a refusal is an error of
// the server's kind, and leaves the connection as it was.
func (c *callConn) send(req proto.Message) (*http.Response, error) {
	var err error
	if c.out, err = (proto.MarshalOptions{}).MarshalAppend(c.out, req); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, broken(err)
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, broken(err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	if err := c.read(res); err != nil {
		return nil, err
	}
	return nil, refusedCall{answeredError(res.Status, c.body.Bytes())}
}

// refusedCall is a call that a server has answered with an error: the connection goes on.
type refusedCall struct{ error }

func (c refusedCall) Unwrap() error { return c.error }

// answeredError reads the error that a call was answered with: the detail that our
// servers add, in the JSON of the Connect protocol, or whatever else there is.
func answeredError(status string, body []byte) error {
	var answer struct {
		Details []struct {
			Type  string `json:"type"`
			Value string `json:"value"`
		} `json:"details"`
	}
	if json.Unmarshal(body, &answer) == nil {
		for _, d := range answer.Details {
			var detail apiv1.Error
			value, err := base64.RawStdEncoding.DecodeString(d.Value)
			if err == nil && d.Type == string(detail.ProtoReflect().Descriptor().FullName()) && proto.Unmarshal(value, &detail) == nil {
				return client.DetailError(&detail)
			}
		}
	}
	return incumbent.Errorf(incumbent.Unknown, "%s: %s", status, body[:min(len(body), maxRefusalText)])
}

func broken(err error) error {
	return incumbent.Errorf(incumbent.Unavailable, "a connection for calls ended: %w", err)
}

// read takes the whole body.
func (c *callConn) read(res *http.Response) error {
	c.body.Reset()
	defer res.Body.Close()
	if _, err := c.body.ReadFrom(io.LimitReader(res.Body, maxCallAnswer)); err != nil {
		return broken(err)
	}
	return nil
}

// call does one unary call.
func (c *callConn) call(procedure string, req, answer proto.Message) error {
	c.begin(procedure, "application/proto", proto.Size(req))
	res, err := c.send(req)
	if err != nil {
		return err
	}
	if err := c.read(res); err != nil {
		return err
	}
	return proto.Unmarshal(c.body.Bytes(), answer)
}

// closed runs the workers of a closed loop through the scenario's warm-up and
// measurement, as [PeerRun.Closed] says.
func (r *run) closed(ctx context.Context, workers []func(context.Context) error) error {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	errs := make(chan error, len(workers))
	for _, work := range workers {
		running.Go(func() {
			if err := work(load); err != nil && load.Err() == nil {
				errs <- err
			}
		})
	}
	err := r.measure(ctx, r.sc.Closed, errs)
	stop()
	running.Wait()
	return err
}

// timed does one operation and records it, unless the end of the run cut it short.
func (r *run) timed(ctx context.Context, op *opRecord, do func() error) error {
	began := r.now()
	err := do()
	r.outcome(ctx, op, began, err)
	return err
}

// outcome records an operation that was due at intended.
func (r *run) outcome(ctx context.Context, op *opRecord, intended time.Duration, err error) {
	switch now := r.now(); {
	case err == nil:
		op.done(now, now-intended, 1)
	case ctx.Err() == nil:
		op.failed(now, 1)
	}
}
