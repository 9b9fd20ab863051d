package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/client"
)

// encodedOnce returns a message whose encoding is made now, instead of each time it is sent:
// to encode hundreds of operations costs as much as to have them refused. Fields that are
// set afterwards are sent beside it.
func encodedOnce[M proto.Message](m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // a text is no UTF-8: of a program's own fault
	}
	n := m.ProtoReflect().New()
	n.SetUnknown(b)
	return n.Interface().(M)
}

// floodCaller makes calls of the native API for a client of a flood, over a connection of
// its own: a client that is meant for programs costs the load tool as much as it costs the
// servers to refuse what it asks.
type floodCaller struct {
	f         *flood
	member, n int
	headers   string
	conn      *callConn // nil: to be dialled
}

// call makes a call. What breaks it is another connection's to try.
func (c *floodCaller) call(ctx context.Context, procedure string, req, answer proto.Message) (err error) {
	if c.conn == nil {
		headers := c.headers
		if c.f.action.Rude {
			headers += fmt.Sprintf("Connect-Timeout-Ms: %d\r\n", rudePatience.Milliseconds())
		}
		if c.conn, err = c.f.dialCallsOf(ctx, c.member, c.n, c.f.credential, headers); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, c.conn.close)
	err = c.conn.call(procedure, req, answer)
	if refused := (refusedCall{}); !stop() || err != nil && !errors.As(err, &refused) {
		c.close()
	}
	return err
}

func (c *floodCaller) close() {
	if c.conn != nil {
		c.conn.close()
		c.conn = nil
	}
}

// claimer claims leases in bulk and releases them, by turns.
type claimer struct {
	floodCaller
	claim []*apiv1.BatchRequest // for each set of leases
	next  int                   // of the sets
	held  *apiv1.BatchRequest   // releases what was granted; nil: nothing was
}

func openClaims(_ context.Context, f *flood, member, n int) (*floodClient, error) {
	c := &claimer{floodCaller: floodCaller{f: f, member: member, n: n}}
	// Who shared a set would be answered that another holds it.
	for _, set := range f.sets(n, f.width) {
		all, holder := &apiv1.BatchRequest{}, fmt.Sprintf("flood-%d", set)
		for i := range f.batch {
			all.Operations = append(all.Operations, &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
				Name: &apiv1.LeaseName{Name: fmt.Sprintf("%s-%d", holder, i)}, Holder: holder, TtlMs: uint32(floodTTL.Milliseconds()),
			}}})
		}
		c.claim = append(c.claim, encodedOnce(all))
	}
	return &floodClient{c.ask, c.end}, nil
}

func (c *claimer) ask(ctx context.Context, _ int) (done int, err error) {
	req, releases := c.held, c.held != nil
	if !releases {
		req = c.claim[c.next]
	}
	var res apiv1.BatchResponse
	if err := c.call(ctx, incumbentv1connect.LeaseServiceBatchProcedure, req, &res); err != nil {
		return 0, err
	}
	if c.held = nil; releases {
		c.next = (c.next + 1) % len(c.claim)
	}
	granted := &apiv1.BatchRequest{}
	for _, one := range res.Results {
		if one.Error != nil {
			err = client.DetailError(one.Error)
			continue
		}
		done++
		if l := one.GetClaim().GetLease(); !releases {
			granted.Operations = append(granted.Operations, &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{Name: l.GetName(), Token: l.GetToken()}}})
		}
	}
	if len(granted.Operations) > 0 {
		c.held = encodedOnce(granted)
	}
	return done, err
}

// end releases what is held: leases that ran out later would be work for the servers
// that nobody measures.
func (c *claimer) end() {
	defer c.close()
	if c.held == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), floodPatience)
	defer cancel()
	_, _ = c.ask(ctx, 0) // they run out otherwise
}

// openWrites makes a client that stores keys in transactions, which are made once: see
// byTurns.
func openWrites(_ context.Context, f *flood, member, n int) (*floodClient, error) {
	// As [client.Client.Txn] has it: nothing with the key was sent before.
	c := &floodCaller{f: f, member: member, n: n, headers: "Idempotency-First: 1\r\n"}
	var txns byTurns[*apiv1.TxnRequest]
	for _, set := range f.sets(n, floodSets) {
		for turn := range txns.made {
			t := &apiv1.TxnRequest{}
			for k := range f.batch {
				t.Then = append(t.Then, &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Put{Put: &apiv1.PutRequest{
					Key: fmt.Sprintf("flood-%d/%d", set, k), Value: binary.BigEndian.AppendUint64(nil, uint64(2*(n/floodSets)+turn)),
				}}})
			}
			txns.made[turn] = append(txns.made[turn], encodedOnce(t))
		}
	}
	return &floodClient{ask: func(ctx context.Context, _ int) (int, error) {
		req := txns.request()
		req.Idempotency = f.clients[member].NewKey()
		// Its results are for nobody: they stay as they come, undecoded.
		err := c.call(ctx, incumbentv1connect.TransactionServiceTxnProcedure, req, new(emptypb.Empty))
		txns.answered(err)
		return doneIf(err, f.batch)
	}, close: c.close}, nil
}

// openRegistrations makes a client that registers services over Consul's protocol, and
// begins to watch them.
func openRegistrations(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	conn, err := httpServer{address: f.doors[member], token: f.credential}.dial(ctx, f.source(n), false)
	if err != nil {
		return nil, err
	}
	return &floodClient{f.registrar(conn, n), conn.close}, nil
}

// byTurns are requests that are made once: two for each set of what they change, one set
// after the other and then the other requests, so that each changes all of its set.
type byTurns[R any] struct {
	made [2][]R // by set
	next int
}

// set is which one the next request changes.
func (b *byTurns[R]) set() int { return b.next % len(b.made[0]) }

// request is the next one.
func (b *byTurns[R]) request() R { return b.made[b.next/len(b.made[0])%2][b.set()] }

// answered goes on, unless the request was refused: it comes again, or the next of its set
// might change nothing.
func (b *byTurns[R]) answered(err error) {
	if err == nil {
		b.next++
	}
}

// registrar has as many operations in a request as Consul's own transactions may have:
// registrations of one service's instances, one in ten times keys, and as often it watches the
// instances instead, for a moment. The requests are made once: see byTurns.
func (f *flood) registrar(conn *httpConn, n int) func(ctx context.Context, i int) (int, error) {
	var tags []string // of services
	var bodies byTurns[[]byte]
	keys, index := consulKeys(n, f.batch), uint64(0)
	for _, set := range f.sets(n, floodSets) {
		tag := fmt.Sprintf("flood-%d", set)
		tags = append(tags, tag)
		for turn := range bodies.made {
			ops := make([]string, f.batch)
			for k := range ops {
				ops[k] = fmt.Sprintf(`{"Service":{"Verb":"set","Node":"flood","Service":{"ID":"%s-%d","Service":%q,"Port":%d}}}`, tag, k, tag, 1000+2*(n/floodSets)+turn)
			}
			if len(tags) == 1 && turn == 0 { // with the first request
				ops[0] = `{"Node":{"Verb":"set","Node":{"Node":"flood","Address":"127.0.0.1"}}}`
			}
			bodies.made[turn] = append(bodies.made[turn], []byte("["+strings.Join(ops, ",")+"]"))
		}
	}
	return func(ctx context.Context, i int) (int, error) {
		defer context.AfterFunc(ctx, conn.close)()
		switch i % 10 {
		case 9: // the first time it is told at once what there is
			a, _, err := conn.ask(http.MethodGet, fmt.Sprintf("/v1/health/service/%s?index=%d&wait=%dms", tags[bodies.set()], index, floodWatches.Milliseconds()), nil)
			index = a.index
			return doneIf(err, 1)
		case 4:
			_, _, err := conn.ask(http.MethodPut, "/v1/txn", keys)
			return doneIf(err, f.batch)
		}
		_, _, err := conn.ask(http.MethodPut, "/v1/txn", bodies.request())
		bodies.answered(err)
		return doneIf(err, f.batch)
	}
}

// consulKeys is a request that sets the keys of a client.
func consulKeys(n, batch int) []byte {
	ops := make([]string, batch)
	for k := range ops {
		ops[k] = fmt.Sprintf(`{"KV":{"Verb":"set","Key":"flood/%d/%d","Value":"Zmxvb2Q="}}`, n, k)
	}
	return []byte("[" + strings.Join(ops, ",") + "]")
}

// openTableChanges makes a client that changes rows over the protocol of Open vSwitch's
// databases.
func openTableChanges(ctx context.Context, f *flood, member, n int) (*floodClient, error) {
	conn, err := dialOVN(ctx, f.doors[member], f.source(n))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, conn.close)()
	// Whoever is not let in finds out when something is read: not for the price of a
	// transaction, which would take the processors from the servers.
	if _, err := conn.ask("echo", "[]"); err != nil {
		conn.close()
		return nil, err
	}
	var tags []string // of sets of rows, by turns
	for _, set := range f.sets(n, floodSets) {
		tag := fmt.Sprintf("flood-%d", set)
		_, err := insertOVN(conn, "Port_Binding", f.batch, func(i int) string {
			return fmt.Sprintf(`{"logical_port":"%s-%d","tunnel_key":0}`, tag, i)
		})
		if err != nil && !strings.Contains(err.Error(), "constraint violation") { // they are there since an earlier flood
			conn.close()
			return nil, err
		}
		tags = append(tags, tag)
	}
	return &floodClient{f.changer(conn, tags), conn.close}, nil
}

// changer changes rows, and now and then begins a monitor and ends the one before it. The
// transactions are made once: see byTurns.
func (f *flood) changer(conn *ovnConn, tags []string) func(ctx context.Context, i int) (int, error) {
	var txns byTurns[string]
	for turn := range txns.made {
		for _, tag := range tags {
			ops := make([]string, f.batch)
			for k := range ops {
				ops[k] = fmt.Sprintf(`{"op":"update","table":"Port_Binding","where":[["logical_port","==","%s-%d"]],"row":{"tunnel_key":%d}}`, tag, k, turn+1)
			}
			txns.made[turn] = append(txns.made[turn], strings.Join(ops, ","))
		}
	}
	monitor := "" // the one that is open
	return func(ctx context.Context, i int) (int, error) {
		defer context.AfterFunc(ctx, conn.close)()
		switch i % 20 {
		case 9:
			if monitor == "" {
				break
			}
			_, err := conn.ask("monitor_cancel", "["+monitor+"]")
			monitor = ""
			return doneIf(err, 1)
		case 19:
			id := strconv.Itoa(i)
			_, err := conn.ask("monitor_cond", fmt.Sprintf(`[%q,%s,{"Port_Binding":[{"columns":["tunnel_key"],"where":[["logical_port","==","%s-%d"]]}]}]`, ovnDatabase, id, tags[txns.set()], i%f.batch))
			if err == nil {
				monitor = id
			}
			return doneIf(err, 1)
		}
		_, err := conn.transact(txns.request())
		txns.answered(err)
		return doneIf(err, f.batch)
	}
}
