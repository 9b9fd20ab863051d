package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Of clients that begin in a flood.
const (
	openEvery    = 200 * time.Millisecond // between two, through each door
	openPatience = 6 * time.Second        // a second more than the door for Juju's agents has who comes wait; until one that was neither served nor refused counts as unanswered
)

// opener has the n-th client of a flood begin at a member.
type opener func(ctx context.Context, f *flood, member, n int) error

// openers begin as a client of a door does: each opens a connection, says who it is and
// asks for the first time. An error is a refusal, if it comes in time.
var openers = map[string]opener{
	"native": openNative, doorJuju: openJuju, doorConsul: openConsul, doorOVSDB: openOVSDB,
}

// opens counts what came of the clients that began.
type opens struct{ served, refused, unanswered atomic.Int64 }

// keepOpening has clients begin, at the native door and at that of the flood, until ctx
// ends.
func (f *flood) keepOpening(ctx context.Context, who []int) {
	var all sync.WaitGroup
	all.Go(func() { f.openAt(ctx, "native", who, openers["native"]) })
	if f.door != "" {
		all.Go(func() { f.openAt(ctx, f.door, who, openers[f.door]) })
	}
	all.Wait()
}

// openAt has clients begin at a door, on one member after the other. Who begins is
// answered, whatever comes besides: each is served or refused in time.
func (f *flood) openAt(ctx context.Context, door string, who []int, open opener) {
	record := f.rec.op("open " + door)
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; sleep(ctx, openEvery) == nil; n++ {
		all.Go(func() {
			// The last ones come to their end, too.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openPatience)
			defer cancel()
			began := f.now()
			err := open(ctx, f, who[n%len(who)], n)
			switch now := f.now(); {
			case err == nil:
				f.opens.served.Add(1)
				record.done(now, now-began, 1)
			case ctx.Err() == nil && now-began < openPatience:
				f.opens.refused.Add(1)
			default:
				f.opens.unanswered.Add(1)
				record.failed(now, 1)
				f.check.Violate("a client that began in a flood through the door %s was neither served nor refused within %v: %v", door, openPatience, err)
			}
		})
	}
}

// openNative opens a stream and a session on it.
func openNative(ctx context.Context, f *flood, member, n int) error {
	s, err := f.dialKeyStream(ctx, member, n)
	if err != nil {
		return err
	}
	defer s.close()
	defer context.AfterFunc(ctx, s.close)()
	open := &apiv1.OpenSessionRequest{Id: incumbent.NewSessionID().String(), TtlMs: uint32(time.Duration(f.sc.TTL).Milliseconds())}
	a, err := s.ask(&apiv1.ClientFrame{Request: &apiv1.ClientFrame_Operation{
		Operation: &apiv1.Operation{Op: &apiv1.Operation_OpenSession{OpenSession: open}},
	}})
	if refusal := a.GetOperation().GetError(); refusal != nil {
		return client.DetailError(refusal)
	}
	return err
}

// openJuju connects and logs a unit in.
func openJuju(ctx context.Context, f *flood, member, n int) error {
	conn, err := f.enterJuju(ctx, member, n, f.opts.JujuPassword)
	if err != nil {
		return err
	}
	return conn.Close()
}

// enterJuju connects a unit of the flood's model to a member's door for Juju's agents, and
// logs it in. The connection ends with ctx until then.
func (f *flood) enterJuju(ctx context.Context, member, n int, password string) (*tls.Conn, error) {
	conn, err := dialTLS(ctx, jujuTLS(), f.source(n), f.doors[member])
	if err != nil {
		return nil, err
	}
	login := jujuLogin{Model: f.model, Agent: f.opts.JujuAgent, Password: password}
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	said, err := login.enter(conn, &unit{lease: n}, conn.RemoteAddr().String())
	if err == nil {
		err = login.judge(said)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.NetConn().Close()
		return nil, err
	}
	return conn, nil
}

// openConsul connects and waits for a service that there is not, for a moment.
func openConsul(ctx context.Context, f *flood, member, n int) error {
	conn, err := httpServer{address: f.doors[member], token: f.credential}.dial(ctx, f.source(n), false)
	if err != nil {
		return err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	_, _, err = conn.ask(http.MethodGet, "/v1/health/service/of-nobody?index=1&wait=10ms", nil)
	return err
}

// openOVSDB connects and begins to monitor a row that there is not.
func openOVSDB(ctx context.Context, f *flood, member, n int) error {
	conn, err := dialOVN(ctx, f.doors[member], f.source(n))
	if err != nil {
		return err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	_, err = conn.ask("monitor_cond", fmt.Sprintf(`[%q,null,{"Port_Binding":[{"columns":["tunnel_key"],"where":[["logical_port","==","of-nobody"]]}]}]`, ovnDatabase))
	return err
}
