package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"

	"github.com/incumbent-dev/incumbent"
)

// markText precedes a change's number in the output of a check.
const (
	markText   = `"change-`
	markDigits = 9
)

// registry is the instances of one service, and how they change.
type registry struct {
	*run
	how     *Catalog
	service string
	servers []httpServer
	home    int // member where changes are made; -1: at all in turn
	have    int // instances so far
	base    int // number of the next step's first change
}

func (g *registry) node(i int) string { return fmt.Sprintf("%s-node-%05d", g.service, i) }

func (g *registry) id(i int) string { return fmt.Sprintf("%s-%05d", g.service, i) }

// shard is what the filters choose by.
func (g *registry) shard(i int) int { return i % max(1, g.how.Filters) }

// visible is how many instances watcher i sees.
func (g *registry) visible(i int) int {
	if g.how.Filters == 0 {
		return g.have
	}
	return (g.have + g.how.Filters - 1 - i%g.how.Filters) / g.how.Filters
}

// path is what watcher i asks for.
func (g *registry) path(i int) string {
	p := "/v1/health/service/" + g.service
	if g.how.Filters == 0 {
		return p + "?"
	}
	return p + "?filter=" + url.QueryEscape(fmt.Sprintf(`Service.Meta.shard == "s%d"`, i%g.how.Filters)) + "&"
}

// grow registers instances until there are n.
func (g *registry) grow(ctx context.Context, n int) error {
	g.setPhase("registering %d instances", n)
	conns, err := g.dialAll(ctx, min(16, n))
	defer closeAll(conns)
	if err != nil {
		return err
	}
	free := make(chan *httpConn, len(conns))
	for _, c := range conns {
		free <- c
	}
	from := g.have
	err = inParallel(ctx, n-from, func(i int) error {
		c := <-free
		defer func() { free <- c }()
		return g.register(c, from+i, 0)
	})
	g.have = n
	return err
}

// dialAll opens connections to where changes are made.
func (g *registry) dialAll(ctx context.Context, n int) ([]*httpConn, error) {
	conns := make([]*httpConn, n)
	return conns, inParallel(ctx, n, func(i int) (err error) {
		conns[i], err = g.dial(ctx, i)
		return err
	})
}

func (g *registry) dial(ctx context.Context, i int) (*httpConn, error) {
	at := g.home
	if at < 0 {
		at = i % len(g.servers)
	}
	return g.servers[at].dial(ctx, g.source(i), false)
}

// stateOf is what the check of an instance says after a change: each change of one
// instance differs from the one before.
func (g *registry) stateOf(change int) string {
	if change/g.have%2 == 0 {
		return "critical"
	}
	return "passing"
}

// register registers an instance: a node, its service, the node's check and its own. The
// node's is not called serfHealth: Consul would look for the node among its own members.
func (g *registry) register(c *httpConn, i, number int) error {
	if g.how.Change == changeTTL {
		return done(c, "/v1/agent/service/register", fmt.Appendf(nil,
			`{"ID":%q,"Name":%q,"Tags":["v1","rack-%02d"],"Address":"10.%d.%d.%d","Port":8080,"Meta":{"version":"1.17.3","shard":"s%d"},`+
				`"Check":{"CheckID":"service:%[1]s","Name":"Service '%[2]s' check","TTL":"30m","Status":"passing"}}`,
			g.id(i), g.service, i%40, i>>16&255, i>>8&255, i&255, g.shard(i)))
	}
	return done(c, "/v1/catalog/register", fmt.Appendf(nil,
		`{"Node":%q,"Address":"10.%d.%d.%d","NodeMeta":{"rack":"rack-%02d"},`+
			`"Service":{"ID":%q,"Service":%q,"Tags":["v1","rack-%02[5]d"],"Address":"10.%[2]d.%[3]d.%[4]d","Port":8080,"Meta":{"version":"1.17.3","shard":"s%[8]d"}},`+
			`"Checks":[{"Node":%[1]q,"CheckID":"host","Name":"Health of the host","Status":"passing","Output":"Agent alive and reachable"},`+
			`{"Node":%[1]q,"CheckID":"service:%[6]s","Name":"Service '%[7]s' check","Status":"passing","Output":%[9]s,"ServiceID":%[6]q,"ServiceName":%[7]q}]}`,
		g.node(i), i>>16&255, i>>8&255, i&255, i%40, g.id(i), g.service, g.shard(i), mark(number)))
}

// mark is a check's output with a change's number, as JSON.
func mark(number int) string { return fmt.Sprintf("%s%0*d\"", markText, markDigits, number) }

// done makes a request that is to be answered with 200.
func done(c *httpConn, path string, body []byte) error {
	_, _, err := c.ask("PUT", path, body)
	return err
}

// change makes change n of a step over a connection.
func (g *registry) change(c *httpConn, n int) error {
	number := g.base + n + 1
	i := (g.base + n) % g.have
	switch g.how.Change {
	case changeTTL:
		return done(c, "/v1/agent/check/update/service:"+g.id(i), fmt.Appendf(nil, `{"Status":%q,"Output":%s}`, g.stateOf(number-1), mark(number)))
	case changeReplace:
		// The next one comes before the oldest goes, as a redeployment has it.
		if err := g.register(c, g.base+g.have+n, number); err != nil {
			return err
		}
		return done(c, "/v1/catalog/deregister", fmt.Appendf(nil, `{"Node":%q}`, g.node(g.base+n)))
	}
	return done(c, "/v1/catalog/register", fmt.Appendf(nil,
		`{"Node":%q,"Address":"10.%d.%d.%d","SkipNodeUpdate":true,"Check":{"Node":%[1]q,"CheckID":"service:%[5]s","Name":"Service '%[6]s' check","Status":%[7]q,"Output":%[8]s,"ServiceID":%[5]q,"ServiceName":%[6]q}}`,
		g.node(i), i>>16&255, i>>8&255, i&255, g.id(i), g.service, g.stateOf(number-1), mark(number)))
}

// concerns reports whether change n of a step is of an instance that watcher i sees.
func (g *registry) concerns(i, n int) bool {
	return g.how.Filters == 0 || g.shard((g.base+n)%g.have) == i%g.how.Filters
}

// marks finds the newest change in an answer, and how many marks it has: one for each
// instance.
func marks(body []byte) (newest, count int, err error) {
	for {
		_, after, found := bytes.Cut(body, []byte(markText))
		if !found {
			return newest, count, nil
		}
		number, err := strconv.Atoi(string(after[:min(markDigits, len(after))]))
		if err != nil {
			return 0, 0, incumbent.Errorf(incumbent.Corrupt, "%.20q is no change's number", after)
		}
		newest, count, body = max(newest, number), count+1, after
	}
}

// numberOf is the change's number in a value that is stored.
func numberOf(value []byte) int { return int(binary.BigEndian.Uint64(value)) }
