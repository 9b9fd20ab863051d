package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// A storm of requests that come to nothing: clients that are known ask, as fast as they are
// answered, for what is refused whatever the load, or for what changes nothing. No lane sees what
// that costs.

// What one request of them has.
const (
	deniedClaims = 400      // of Juju's claims: as many as fit into what its door reads
	deniedFrames = 200      // of a stream's message
	deniedEcho   = 32 << 10 // bytes of an echo
)

// openForeign makes a client that claims the leadership of an application for a unit of another,
// which nobody may.
func openForeign(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	conn, err := f.enterJuju(ctx, member, n, f.opts.JujuPassword)
	if err != nil {
		return nil, err
	}
	one := fmt.Sprintf(`{"application-tag":"application-denied%d","unit-tag":"unit-of%d-0","duration":%v}`, n, n, jujuFloodFor.Seconds())
	params := `{"params":[` + strings.TrimSuffix(strings.Repeat(one+",", f.batch), ",") + `]}}`
	return (&jujuClaimer{conn: conn, id: jujuLoginID, calls: [][]byte{[]byte(params)}, judge: f.judgeForeign}).client(), nil
}

// judgeForeign counts the claims that were answered: none may be granted.
func (f *flood) judgeForeign(payload []byte, id uint64) (done int, err error) {
	r, err := readReply(payload)
	if err != nil {
		return 0, err
	}
	var said struct {
		Results []struct{ Error *struct{ Code string } }
	}
	if err := json.Unmarshal(r.Response, &said); err != nil || r.ID != id || len(said.Results) != f.batch {
		return 0, fmt.Errorf("%w: request %d was answered with %.80q", errWire, id, payload)
	}
	for _, one := range said.Results {
		if one.Error == nil {
			f.check.Violate("a unit was granted the leadership of an application that is not its own")
		}
	}
	return f.batch, nil
}

// openMisspelt makes a client whose messages on a stream have frames that are refused for what
// they say.
func openMisspelt(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	s, err := f.dialKeyStream(ctx, member, n)
	if err != nil {
		return nil, err
	}
	bad := &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{Name: &apiv1.LeaseName{Name: strings.Repeat("x", incumbent.MaxNameBytes+1)}, Holder: "x"}}}
	c := &misspeller{keyStream: s}
	for range f.batch {
		c.frames = append(c.frames, &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Operation{Operation: bad}})
	}
	return &floodClient{func(ctx context.Context, _ int) (int, error) { return c.askAll(ctx) }, s.close}, nil
}

// misspeller sends the same frames again and again.
type misspeller struct {
	*keyStream
	frames []*apiv1.ClientFrame
}

// askAll sends all frames as one message, and waits until each is answered.
func (c *misspeller) askAll(ctx context.Context) (done int, err error) {
	defer context.AfterFunc(ctx, c.close)()
	answers := make(chan *apiv1.ServerFrame, len(c.frames))
	c.mu.Lock()
	for _, f := range c.frames {
		c.next++
		f.Id = c.next
		c.pending[f.Id] = answers
	}
	c.mu.Unlock()
	if err := c.stream.Send(c.frames...); err != nil {
		return 0, broken(err)
	}
	for range c.frames {
		select {
		case a := <-answers:
			if a.Error == nil {
				return done, fmt.Errorf("%w: a name that is too long was answered with %v", errWire, a)
			}
			done++
		case <-c.done:
			return done, c.err
		}
	}
	return done, nil
}

// openLost makes a client that asks for what Consul's API does not have.
func openLost(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	conn, err := httpServer{address: f.doors[member], token: f.credential}.dial(ctx, f.source(n), false)
	if err != nil {
		return nil, err
	}
	return &floodClient{func(ctx context.Context, _ int) (int, error) {
		defer context.AfterFunc(ctx, conn.close)()
		a, _, err := conn.ask(http.MethodGet, "/v1/of-nobody", nil)
		if a.status == http.StatusNotFound {
			err = nil
		}
		return doneIf(err, f.batch)
	}, conn.close}, nil
}

// openEchoes makes a client that asks for echoes.
func openEchoes(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	conn, err := dialOVN(ctx, f.doors[member], f.source(n))
	if err != nil {
		return nil, err
	}
	params := `["` + strings.Repeat("x", deniedEcho) + `"]`
	return &floodClient{func(ctx context.Context, _ int) (int, error) {
		defer context.AfterFunc(ctx, conn.close)()
		_, err := conn.ask("echo", params)
		return doneIf(err, f.batch)
	}, conn.close}, nil
}
