package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Closed loops over the protocol of Open vSwitch's databases: clients with a connection
// each, which monitor ports and bind them to their chassis as hypervisors do.

// ovnCaller is one client.
type ovnCaller struct {
	*ovnWorld
	id     int
	member int // where it is connected
	conn   atomic.Pointer[ovnConn]
	own    []string // its ports
	does   func(*ovnCaller, context.Context) error
	turn   int // transactions that were answered
}

// ovnCallers are clients that monitor ports, which are bound before if they are to be.
// What they count is judged at the end.
func ovnCallers(does func(*ovnCaller, context.Context) error, counts bool) func(context.Context, *run) (*callers, error) {
	return func(ctx context.Context, r *run) (*callers, error) {
		set := &callers{all: make([]caller, r.sc.Closed.Workers), conns: r.sc.Closed.Workers}
		w, err := newOVNWorld(ctx, r, set.conns, r.sc.Ports.Count, counts)
		if err != nil {
			return set, err
		}
		r.setPhase("connecting")
		err = inParallel(ctx, set.conns, func(i int) error {
			conn, err := w.begin(ctx, i)
			if err != nil {
				return err
			}
			c := &ovnCaller{ovnWorld: w, id: i, member: i, does: does}
			c.conn.Store(conn)
			for p := i; p < len(w.ports); p += len(w.chassis) {
				c.own = append(c.own, w.ports[p])
			}
			set.all[i] = c
			return nil
		})
		term, killed := w.term(ctx), func() {}
		if kill := r.sc.Ports.Kill; kill > 0 && err == nil {
			killed = r.killAfter(ctx, time.Duration(kill+r.sc.Closed.Warmup), func() { r.fact("killed_at_seconds", r.now().Seconds()) })
		}
		set.after = func(ctx context.Context) error {
			killed()
			r.fact("elections", max(0, w.term(ctx)-term))
			if counts {
				return w.judgeCounts(ctx, set.all)
			}
			return nil
		}
		return set, err
	}
}

// call makes a transaction. What is refused ends the run.
func (c *ovnCaller) call(ctx context.Context, _ int) error {
	err := c.does(c, ctx)
	if refused, ok := errors.AsType[refusedCall](err); ok {
		return refused.error
	}
	if err == nil {
		c.turn++
	}
	return err
}

func (c *ovnCaller) close() { c.conn.Load().close() }

// bind binds the client's ports to its chassis one after the other, then takes them
// off again, and so on. It has seen its own change before its answer comes.
func (c *ovnCaller) bind(context.Context) error {
	to := fmt.Sprintf(`["uuid",%q]`, c.chassis[c.id])
	if c.turn/len(c.own)%2 == 1 {
		to = `["set",[]]`
	}
	conn := c.conn.Load()
	results, err := conn.transact(fmt.Sprintf(`{"op":"update","table":"Port_Binding","where":[["_uuid","==",["uuid",%q]]],"row":{"chassis":%s}}`, c.own[c.turn%len(c.own)], to))
	if err != nil {
		return err
	}
	if results[0].Count != 1 {
		c.check.Violate("a binding changed %d rows", results[0].Count)
	}
	if conn.updates == 0 {
		c.check.Violate("client %d was answered before it was told of its own change", c.id)
	}
	return nil
}

// count raises the client's number in its port's row, guarded by the one it expects
// there, as a client does that must not do anything twice. After a connection ended it
// goes on at another member, where it finds what became of its last transaction: that
// has not been answered while there is no connection.
func (c *ovnCaller) count(ctx context.Context) error {
	for at := c.conn.Load(); ctx.Err() == nil; {
		stop := context.AfterFunc(ctx, at.close)
		err := c.raise(at, c.ports[c.id])
		stop()
		if err == nil || isRefusal(err) {
			return err
		}
		at.close()
		c.member++
		next, err := dialOVN(ctx, c.addresses[c.member%len(c.addresses)], nil)
		if err != nil {
			_ = sleep(ctx, retryOVN) // the loop's condition says whether it is over
			continue
		}
		c.conn.Store(next)
		at = next
	}
	return ctx.Err()
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
func (w *ovnWorld) judgeCounts(ctx context.Context, all []caller) error {
	for i := range w.addresses { // the first that lives
		at, err := dialOVN(ctx, w.addresses[i], nil)
		if err != nil {
			continue
		}
		defer at.close()
		defer context.AfterFunc(ctx, at.close)()
		for _, one := range all {
			c := one.(*ovnCaller) //nolint:forcetypeassert // all of this loop's are
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
