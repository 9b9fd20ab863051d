package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// maxRefusalText is how many bytes of a refusal are kept.
const maxRefusalText = 512

// callConn is a connection that carries one call of the native API after the other:
// Connect's protocol, with protobuf.
type callConn struct {
	*httpConn
	said []byte // the newest answer
}

// dialCalls opens connection i, to the members in turn.
func (r *run) dialCalls(ctx context.Context, i int) (*callConn, error) {
	return r.dialCallsOf(ctx, i%len(r.urls), i, r.credential, "")
}

// dialCallsOf opens connection i to a member, of who brings a credential or none, with further
// headers of each request, each with the end of its line.
func (r *run) dialCallsOf(ctx context.Context, member, i int, credential, headers string) (*callConn, error) {
	u, err := url.Parse(r.urls[member])
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "target: %w", err)
	}
	to := httpServer{
		address: u.Host, client: r.clients[member], base: u.Path,
		headers: "Content-Type: application/proto\r\nConnect-Protocol-Version: 1\r\n" + headers,
	}
	if credential != "" {
		to.headers += "Authorization: Bearer " + credential + "\r\n"
	}
	conn, err := to.dial(ctx, r.source(i), false)
	if err != nil {
		return nil, err
	}
	return &callConn{httpConn: conn}, nil
}

// call does one unary call; a refusal is an error of the server's kind.
func (c *callConn) call(procedure string, req, answer proto.Message) error {
	body, err := (proto.MarshalOptions{}).MarshalAppend(c.said[:0], req)
	if err != nil {
		return err
	}
	if err := c.send(http.MethodPost, procedure, body); err != nil {
		return err
	}
	a, err := c.answer()
	if err == nil {
		c.said, err = c.body(a, body[:0])
	}
	switch {
	case err != nil:
		return err
	case a.status != http.StatusOK:
		return refusedCall{answeredError(a.status, c.said)}
	}
	return proto.Unmarshal(c.said, answer)
}

// answeredError reads the error that a call was answered with: the detail that our
// servers add, in the JSON of the Connect protocol, or whatever else there is.
func answeredError(status int, body []byte) error {
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
	return incumbent.Errorf(incumbent.Unknown, "status %d: %s", status, body[:min(len(body), maxRefusalText)])
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
