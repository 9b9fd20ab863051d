package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Closed loops over Consul's protocol: workers with a connection each, which wait for
// their answer before they ask again.

// consulCaller has one request under way.
type consulCaller struct {
	*run
	*httpConn
	calls   []consulCall // made in turn
	name    string       // of its key, its service and its session
	session string
	value   []byte
	n       int
	sample  []byte // its newest answer
}

// consulCall is one request of a worker.
type consulCall func(*consulCaller) error

// overConsul is a loop of calls that are made in turn, one for each of the names; setup
// makes what a worker needs, and may be nil.
func overConsul(names string, setup consulCall, calls ...consulCall) *closedOp {
	return &closedOp{ops: strings.Fields(names), door: doorConsul, callers: func(ctx context.Context, r *run) (*callers, error) {
		set := &callers{all: make([]caller, r.sc.Closed.Workers), conns: r.sc.Closed.Workers}
		servers, err := r.consulDoors(ctx)
		if err != nil {
			return set, err
		}
		if r.sc.Bare != nil {
			set.after = func(ctx context.Context) error {
				sample := set.all[0].(*consulCaller).sample
				return r.besideBareLoop(ctx, set.conns, sample, r.noted("ops_per_second"), r.noted("cpu_us_per_op"))
			}
		}
		tag := newTag()
		return set, inParallel(ctx, set.conns, func(i int) error {
			conn, err := servers[i%len(servers)].dial(ctx, r.source(i), false)
			if err != nil {
				return err
			}
			c := &consulCaller{run: r, httpConn: conn, calls: calls, name: fmt.Sprintf("%s-%d", tag, i), value: bytes.Repeat([]byte("v"), r.sc.Closed.ValueBytes)}
			set.all[i] = c
			if setup != nil {
				return setup(c)
			}
			return nil
		})
	}}
}

func (c *consulCaller) call(_ context.Context, i int) error { return c.calls[i](c) }

// request makes a request and keeps its answer.
func (c *consulCaller) request(method, path string, body []byte) error {
	_, said, err := c.ask(method, path, body)
	if err == nil {
		c.sample = said
	}
	return err
}

// want is a change whose answer is known.
func (c *consulCaller) want(answer, path string, body []byte) error {
	err := c.request("PUT", path, body)
	if err == nil && !bytes.HasPrefix(c.sample, []byte(answer)) {
		return refusedCall{incumbent.Errorf(incumbent.Conflict, "%s was answered with %.40q", path, c.sample)}
	}
	return err
}

// stamp makes the value one that nobody has put before.
func (c *consulCaller) stamp() []byte {
	c.n++
	binary.BigEndian.PutUint64(c.value, uint64(c.n))
	return c.value
}

func (c *consulCaller) key() string { return "/v1/kv/bench/" + c.name }

func (c *consulCaller) put() error { return c.want("true", c.key(), c.stamp()) }

// getAs reads the worker's key.
func getAs(query string) consulCall {
	return func(c *consulCaller) error {
		if err := c.request("GET", c.key()+query, nil); err != nil {
			return err
		}
		if !bytes.Contains(c.sample, []byte(c.name)) {
			c.check.Violate("%s was read as %.80q", c.name, c.sample)
		}
		return nil
	}
}

// open creates a session.
func (c *consulCaller) open() error {
	err := c.request("PUT", "/v1/session/create", []byte(`{"TTL":"3600s","LockDelay":"0s"}`))
	if err != nil {
		return err
	}
	var made struct{ ID string }
	if err := json.Unmarshal(c.sample, &made); err != nil || made.ID == "" {
		return incumbent.Errorf(incumbent.Corrupt, "a session was created with %.80q", c.sample)
	}
	c.session = made.ID
	return nil
}

func (c *consulCaller) renew() error {
	return c.want("[", "/v1/session/renew/"+c.session, nil)
}

func (c *consulCaller) acquire() error {
	return c.want("true", c.key()+"?acquire="+c.session, c.stamp())
}

func (c *consulCaller) release() error {
	return c.want("true", c.key()+"?release="+c.session, c.stamp())
}

// holdFirst has another session hold the worker's key.
func (c *consulCaller) holdFirst() error {
	if err := c.open(); err != nil {
		return err
	}
	if err := c.acquire(); err != nil {
		return err
	}
	return c.open()
}

func (c *consulCaller) contend() error {
	return c.want("false", c.key()+"?acquire="+c.session, c.stamp())
}

// register changes the output of a check, with its node and its service.
func (c *consulCaller) register() error {
	c.n++
	return c.want("true", "/v1/catalog/register", fmt.Appendf(nil,
		`{"Node":"node-%s","Address":"10.0.0.1","Service":{"ID":"%[1]s","Service":"service-%[1]s","Tags":["v1"],"Port":8080},`+
			`"Check":{"Node":"node-%[1]s","CheckID":"service:%[1]s","Name":"check","Status":"passing","Output":"%[2]d","ServiceID":"%[1]s"}}`, c.name, c.n))
}

// registerTTL registers a service with a TTL check.
func (c *consulCaller) registerTTL() error {
	err := c.request("PUT", "/v1/agent/service/register", fmt.Appendf(nil,
		`{"ID":"%s","Name":"service-%[1]s","Port":8080,"Check":{"CheckID":"service:%[1]s","TTL":"%[2]s","Status":"passing"}}`, c.name, time.Hour))
	if err != nil {
		return err
	}
	return c.pass()
}

func (c *consulCaller) pass() error {
	return c.request("PUT", "/v1/agent/check/pass/service:"+c.name, nil)
}
