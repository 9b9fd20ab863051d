package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// claimer claims leases in bulk and releases them, by turns. It makes its requests once,
// since making them costs as much as having them refused.
type claimer struct {
	c     *client.Client
	claim []*apiv1.BatchRequest // for each set of leases
	next  int                   // of the sets
	held  []*apiv1.Operation    // releases of what was granted
}

func openClaims(_ context.Context, f *flood, member, n int) (floodClient, error) {
	c := &claimer{c: f.clients[member]}
	for _, set := range f.sets(n) {
		all, holder := &apiv1.BatchRequest{}, fmt.Sprintf("flood-%d", set)
		for i := range f.batch {
			all.Operations = append(all.Operations, &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
				Name: &apiv1.LeaseName{Name: fmt.Sprintf("%s-%d", holder, i)}, Holder: holder, TtlMs: uint32(floodTTL.Milliseconds()),
			}}})
		}
		c.claim = append(c.claim, all)
	}
	return c, nil
}

func (c *claimer) ask(ctx context.Context, _ int) (done int, err error) {
	req := c.claim[c.next]
	if len(c.held) > 0 {
		req = &apiv1.BatchRequest{Operations: c.held}
	}
	releases := len(c.held) > 0
	res, err := c.c.Leases().Batch(ctx, connect.NewRequest(req))
	if err != nil {
		return 0, client.AsError(err)
	}
	if c.held = nil; releases {
		c.next = (c.next + 1) % len(c.claim)
	}
	for _, one := range res.Msg.Results {
		if one.Error != nil {
			err = client.DetailError(one.Error)
			continue
		}
		done++
		if l := one.GetClaim().GetLease(); !releases {
			c.held = append(c.held, &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{Name: l.GetName(), Token: l.GetToken()}}})
		}
	}
	return done, err
}

// close releases what is held: leases that ran out later would be work for the servers
// that nobody measures.
func (c *claimer) close() {
	if len(c.held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), floodPatience)
	defer cancel()
	_, _ = c.ask(ctx, 0) // they run out otherwise
}

// putter stores keys in transactions.
type putter struct {
	c     *client.Client
	sets  []int // of keys, by turns
	batch int
}

func openWrites(_ context.Context, f *flood, member, n int) (floodClient, error) {
	return &putter{c: f.clients[member], sets: f.sets(n), batch: f.batch}, nil
}

func (p *putter) ask(ctx context.Context, i int) (int, error) {
	t := p.c.Txn("")
	value := []byte(fmt.Sprint(i))
	for k := range p.batch {
		t.Put(fmt.Sprintf("flood-%d/%d", p.sets[i%len(p.sets)], k), value)
	}
	if _, err := t.Commit(ctx); err != nil {
		return 0, err
	}
	return p.batch, nil
}

func (*putter) close() {}

// registrar registers services over Consul's protocol, and begins to watch them.
type registrar struct {
	conn  *httpConn
	sets  []int // of instances, by turns: one service each
	batch int
}

func openRegistrations(ctx context.Context, f *flood, member, n int) (floodClient, error) {
	conn, err := httpServer{address: f.doors[member], token: f.credential}.dial(ctx, f.source(n), false)
	if err != nil {
		return nil, err
	}
	return &registrar{conn: conn, sets: f.sets(n), batch: f.batch}, nil
}

func (c *registrar) ask(ctx context.Context, i int) (done int, err error) {
	defer context.AfterFunc(ctx, c.conn.close)()
	// As many operations as Consul's own transactions may have: registrations of one
	// service's instances in one request, then a read that waits for them, for a moment.
	tag := fmt.Sprintf("flood-%d", c.sets[i%len(c.sets)])
	if i%10 == 9 {
		_, _, err := c.conn.ask(http.MethodGet, fmt.Sprintf("/v1/health/service/%s?index=1&wait=10ms", tag), nil)
		return 1, err
	}
	var ops []string
	for k := range c.batch {
		ops = append(ops, fmt.Sprintf(`{"Service":{"Verb":"set","Node":"flood","Service":{"ID":"%s-%d","Service":%q,"Port":%d}}}`, tag, k, tag, 1000+i%1000))
	}
	if i == 0 {
		ops[0] = `{"Node":{"Verb":"set","Node":{"Node":"flood","Address":"127.0.0.1"}}}`
	}
	_, _, err = c.conn.ask(http.MethodPut, "/v1/txn", []byte("["+strings.Join(ops, ",")+"]"))
	return c.batch, err
}

func (c *registrar) close() { c.conn.close() }

// changer changes rows over the protocol of Open vSwitch's databases.
type changer struct {
	conn  *ovnConn
	tags  []string // of sets of rows, by turns
	batch int
}

func openTableChanges(ctx context.Context, f *flood, member, n int) (floodClient, error) {
	conn, err := dialOVN(ctx, f.doors[member], f.source(n))
	if err != nil {
		return nil, err
	}
	c := &changer{conn: conn, batch: f.batch}
	defer context.AfterFunc(ctx, conn.close)()
	for _, set := range f.sets(n) {
		tag := fmt.Sprintf("flood-%d", set)
		_, err := insertOVN(conn, "Port_Binding", f.batch, func(i int) string {
			return fmt.Sprintf(`{"logical_port":"%s-%d","tunnel_key":0}`, tag, i)
		})
		if err != nil && !strings.Contains(err.Error(), "constraint violation") { // they are there since an earlier flood
			conn.close()
			return nil, err
		}
		c.tags = append(c.tags, tag)
	}
	return c, nil
}

func (c *changer) ask(ctx context.Context, i int) (int, error) {
	defer context.AfterFunc(ctx, c.conn.close)()
	tag := c.tags[i%len(c.tags)]
	if i%20 == 19 { // a new monitor
		_, err := c.conn.ask("monitor_cond", fmt.Sprintf(`[%q,%d,{"Port_Binding":[{"columns":["tunnel_key"],"where":[["logical_port","==","%s-%d"]]}]}]`, ovnDatabase, i, tag, i%c.batch))
		return 1, err
	}
	var ops []string
	for k := range c.batch {
		ops = append(ops, fmt.Sprintf(`{"op":"update","table":"Port_Binding","where":[["logical_port","==","%s-%d"]],"row":{"tunnel_key":%d}}`, tag, k, i+1))
	}
	if _, err := c.conn.transact(strings.Join(ops, ",")); err != nil {
		return 0, err
	}
	return c.batch, nil
}

func (c *changer) close() { c.conn.close() }

// guesser tries one wrong credential after the other.
type guesser struct{ c *client.Client }

func openGuesses(_ context.Context, f *flood, member, n int) (floodClient, error) {
	cfg := f.cluster.Client()
	cfg.Servers, cfg.Credential = []string{f.urls[member]}, fmt.Sprintf("wrong-%d", n)
	c, err := client.New(cfg)
	return &guesser{c}, err
}

func (g *guesser) ask(ctx context.Context, _ int) (int, error) {
	if _, err := statusOf(ctx, g.c); incumbent.KindOf(err) != incumbent.Denied {
		return 0, err
	}
	return 1, nil
}

func (g *guesser) close() { g.c.Close() }
