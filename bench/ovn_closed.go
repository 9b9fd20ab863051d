package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Closed loops over the protocol of Open vSwitch's databases: clients with a connection
// each, which monitor ports and bind them to their chassis as hypervisors do.

// ovnCaller is one client.
type ovnCaller struct {
	*ovnWorld
	id   int
	conn *ovnConn
	turn int // transactions begun
}

// ovnOp is what the clients of a closed loop do.
type ovnOp struct {
	// loop goes on until its context ends.
	loop func(ctx context.Context, c *ovnCaller, record *opRecord) error
	// bound: ports are bound before.
	bound bool
	// judge looks at the database at the end. May be nil.
	judge func(ctx context.Context, w *ovnWorld, callers []*ovnCaller) error
}

func playOVNClosed(ctx context.Context, r *run, op *closedOp) error {
	w, err := newOVNWorld(ctx, r, r.sc.Closed.Workers, r.sc.Ports.Count, op.ovn.bound)
	if err != nil {
		return err
	}
	callers := make([]*ovnCaller, r.sc.Closed.Workers)
	defer func() {
		for _, c := range callers {
			if c != nil && c.conn != nil {
				c.conn.close()
			}
		}
	}()
	r.setPhase("connecting")
	err = inParallel(ctx, len(callers), func(i int) error {
		conn, err := w.begin(ctx, i)
		callers[i] = &ovnCaller{ovnWorld: w, id: i, conn: conn}
		return err
	})
	if err != nil {
		return err
	}
	r.connected(len(callers))
	record := r.rec.op(op.ops[0])
	var loops []func(context.Context) error
	for _, c := range callers {
		loops = append(loops, func(ctx context.Context) error { return op.ovn.loop(ctx, c, record) })
	}
	term := w.term(ctx)
	var killed sync.WaitGroup
	if at := time.Duration(r.sc.Ports.Kill); at > 0 {
		killed.Go(func() {
			if sleep(ctx, at+time.Duration(r.sc.Closed.Warmup)) == nil {
				r.killLeader(ctx, func() { r.fact("killed_at_seconds", r.now().Seconds()) })
			}
		})
	}
	err = r.closed(ctx, loops)
	killed.Wait()
	if err != nil {
		return err
	}
	r.fact("elections", max(0, w.term(ctx)-term))
	if op.ovn.judge != nil {
		return op.ovn.judge(ctx, w, callers)
	}
	return nil
}

// bindPorts binds the client's ports to its chassis one after the other, then takes them
// off again, and so on. It has seen its own change before its answer comes.
func bindPorts(ctx context.Context, c *ovnCaller, record *opRecord) error {
	defer context.AfterFunc(ctx, c.conn.close)()
	var own []string
	for i := c.id; i < len(c.ports); i += len(c.chassis) {
		own = append(own, c.ports[i])
	}
	for ; ctx.Err() == nil; c.turn++ {
		to := fmt.Sprintf(`["uuid",%q]`, c.chassis[c.id])
		if c.turn/len(own)%2 == 1 {
			to = `["set",[]]`
		}
		began := c.now()
		results, err := c.conn.transact(fmt.Sprintf(`{"op":"update","table":"Port_Binding","where":[["_uuid","==",["uuid",%q]]],"row":{"chassis":%s}}`, own[c.turn%len(own)], to))
		c.outcome(ctx, record, began, err)
		if err != nil {
			return err
		}
		if results[0].Count != 1 {
			c.check.Violate("a binding changed %d rows", results[0].Count)
		}
		if c.conn.updates == 0 {
			c.check.Violate("client %d was answered before it was told of its own change", c.id)
		}
	}
	return nil
}

// count raises the client's number in its port's row, guarded by the one it expects
// there, as a client does that must not do anything twice. After a connection ended it
// goes on at another member, where it finds what became of its last transaction.
func count(ctx context.Context, c *ovnCaller, record *opRecord) error {
	port := c.ports[c.id]
	member, at := c.id, c.conn
	defer func() { at.close() }()
	due := c.now() // of the transaction under way: also while there is no connection
	for ctx.Err() == nil {
		stop := context.AfterFunc(ctx, at.close)
		err := c.raise(at, port)
		stop()
		if err == nil {
			c.turn++
			c.outcome(ctx, record, due, nil)
			due = c.now()
			continue
		}
		if isRefusal(err) {
			return err
		}
		at.close()
		for ctx.Err() == nil {
			member++
			next, err := dialOVN(ctx, c.addresses[member%len(c.addresses)], nil)
			if err == nil {
				at, c.conn = next, next
				break
			}
			if sleep(ctx, retryOVN) != nil {
				return nil
			}
		}
	}
	return nil
}

// retryOVN is how long a client waits before it tries the next member.
const retryOVN = 20 * time.Millisecond

// raise makes the client's number turn+1, unless it is already.
func (c *ovnCaller) raise(at *ovnConn, port string) error {
	where := fmt.Sprintf(`"where":[["_uuid","==",["uuid",%q]]]`, port)
	_, err := at.transact(fmt.Sprintf(`{"op":"wait","timeout":0,"table":"Port_Binding",%s,"columns":["tunnel_key"],"until":"==","rows":[{"tunnel_key":%d}]},`+
		`{"op":"update","table":"Port_Binding",%[1]s,"row":{"tunnel_key":%[3]d}}`, where, c.number(0), c.number(1)))
	if !isRefusal(err) {
		return err
	}
	has, err := readNumber(at, where)
	switch {
	case err != nil:
		return err
	case has == c.number(1): // by the attempt whose answer was lost
		return nil
	case has == c.number(0) && c.opts.Peer != "": // a follower of the peer reads what is older than what it wrote
		return c.raise(at, port)
	}
	c.check.Violate("client %d has %d acknowledged and reads %d", c.id, c.number(0), has)
	return refusedCall{incumbent.Errorf(incumbent.Corrupt, "client %d reads %d after %d", c.id, has, c.number(0))}
}

// number is the client's after so many more transactions: ports begin with their place.
func (c *ovnCaller) number(more int) int { return c.id + c.turn + more }

func readNumber(at *ovnConn, where string) (int, error) {
	results, err := at.transact(fmt.Sprintf(`{"op":"select","table":"Port_Binding",%s,"columns":["tunnel_key"]}`, where))
	if err != nil {
		return 0, err
	}
	var row struct {
		Key int `json:"tunnel_key"`
	}
	if len(results[0].Rows) != 1 || json.Unmarshal(results[0].Rows[0], &row) != nil {
		return 0, incumbent.Errorf(incumbent.Corrupt, "a port was read as %d rows", len(results[0].Rows))
	}
	return row.Key, nil
}

// judgeCounts looks for what was acknowledged and is not there, and for what is there twice.
func judgeCounts(ctx context.Context, w *ovnWorld, callers []*ovnCaller) error {
	for i := range w.addresses { // the first that lives
		at, err := dialOVN(ctx, w.addresses[i], nil)
		if err != nil {
			continue
		}
		defer at.close()
		defer context.AfterFunc(ctx, at.close)()
		for _, c := range callers {
			has, err := readNumber(at, fmt.Sprintf(`"where":[["_uuid","==",["uuid",%q]]]`, w.ports[c.id]))
			if err != nil {
				return err
			}
			if has != c.number(0) && has != c.number(1) { // the last may have had no answer
				w.check.Violate("client %d had %d acknowledged, and %d is stored", c.id, c.number(0), has)
			}
		}
		return nil
	}
	return incumbent.Errorf(incumbent.Unavailable, "no member answers at the end")
}
