package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// doorOVSDB is the door that speaks the protocol of Open vSwitch's databases, as
// scenarios and servers name it, and the peer that speaks it itself.
const doorOVSDB = "ovsdb"

// ovnDatabase is the database of these scenarios: hypervisors and the ports that are
// bound to them, as OVN's southbound database has them, without the rest.
const ovnDatabase = "Bench_Southbound"

//go:embed ovn_schema.json
var ovnSchema []byte

// Limits of what these scenarios fill a database with.
const (
	maxPorts    = 100_000
	portsAtOnce = 500 // inserted in one transaction
)

// Where the clients of a scenario connect.
const (
	atAll      = ""         // spread over the members
	atLeader   = "leader"   // all at the leader
	atFollower = "follower" // all at one that does not lead
)

// Ports is what a scenario over the protocol of Open vSwitch's databases fills the
// database with and watches. The clients are the workers of closed, or of the last stage.
type Ports struct {
	Count int    `yaml:"count"`         // ports, 1 to 100,000
	All   bool   `yaml:"all,omitempty"` // each client monitors all ports, not only those bound to its own chassis
	At    string `yaml:"at,omitempty"`  // leader or follower: where all connect; empty: spread over the members
	// Resume: who returns brings the last transaction it saw.
	Resume bool `yaml:"resume,omitempty"`
	// Kill is when, after the measurement began, the leader is killed; 0: never.
	Kill Duration `yaml:"kill,omitempty"`
	// Network is OVN's part in the play network: the ports are created northbound.
	Network *Network `yaml:"network,omitempty"`
	// Sizes is what is large in the play sizes: there the ports are inserted by one transaction.
	Sizes *Sizes `yaml:"sizes,omitempty"`
}

func (sc *Scenario) ovsdb() bool {
	return sc.speaks(doorOVSDB)
}

func (sc *Scenario) validateOVN() error {
	p := sc.Ports
	switch {
	case sc.ovsdb() != (p != nil):
		return fmt.Errorf("ports are for the door ovsdb, which needs them")
	case p == nil:
		return nil
	case p.Count < 1 || p.Count > maxPorts:
		return fmt.Errorf("ports.count must be 1 to %d", maxPorts)
	case !slices.Contains([]string{atAll, atLeader, atFollower}, p.At):
		return fmt.Errorf("ports.at %q is neither %s nor %s", p.At, atLeader, atFollower)
	case (sc.Play == "network") != (p.Network != nil):
		return fmt.Errorf("ports.network is for the play network, which needs it")
	case p.Network != nil && (sc.Closed == nil || p.Network.Switches < 1 || p.Network.Batch < 1 || p.Network.Batch > portsAtOnce):
		return fmt.Errorf("the play network needs closed.workers, ports.network.switches from 1 on and ports.network.batch of 1 to %d", portsAtOnce)
	case (sc.Play == "sizes") != (p.Sizes != nil):
		return fmt.Errorf("ports.sizes is for the play sizes, which needs it")
	case p.Sizes != nil:
		return p.Sizes.validate()
	case (sc.Play == "closed" || p.Network != nil) && p.Count < sc.Closed.Workers:
		return fmt.Errorf("ports.count must not be below closed.workers: each binds its own")
	case sc.Play == "closed" && p.Kill >= sc.Closed.Duration && p.Kill > 0:
		return fmt.Errorf("ports.kill must come before closed.duration is over")
	}
	return nil
}

// ovnWorld is the database of a run: who serves it, and what it was filled with.
type ovnWorld struct {
	*run
	addresses []string // of the members, in the order of the run's URLs
	chassis   []string // uuids, one for each client
	ports     []string // uuids
	// size is that of the answer to who is sent all ports, so that others need not look
	// for its end; 0: not known.
	size int64
}

// connectOVN finds the members.
func connectOVN(ctx context.Context, r *run) (*ovnWorld, error) {
	w := &ovnWorld{run: r}
	r.setPhase("connecting")
	for i, u := range r.urls {
		if r.opts.Peer != "" {
			w.addresses = append(w.addresses, u)
			continue
		}
		address, err := doorAddress(ctx, r.clients[i], u, doorOVSDB)
		if err != nil {
			return nil, err
		}
		w.addresses = append(w.addresses, address)
	}
	return w, nil
}

// newOVNWorld finds the members and fills the database: a chassis for each client,
// then the ports, each bound to the chassis of the client that has it if bound is set.
func newOVNWorld(ctx context.Context, r *run, clients, ports int, bound bool) (*ovnWorld, error) {
	w, err := connectOVN(ctx, r)
	if err != nil {
		return nil, err
	}
	c, err := dialOVN(ctx, w.addresses[0], nil)
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	r.setPhase("filling the database")
	if err := w.empty(c); err != nil {
		return nil, err
	}
	w.chassis, err = insertOVN(c, "Chassis", clients, func(i int) string { return fmt.Sprintf(`{"name":"chassis-%d"}`, i) })
	if err != nil {
		return nil, err
	}
	w.ports, err = insertOVN(c, "Port_Binding", ports, func(i int) string {
		if !bound {
			return fmt.Sprintf(`{"logical_port":"port-%d","tunnel_key":%[1]d}`, i)
		}
		return fmt.Sprintf(`{"logical_port":"port-%d","tunnel_key":%[1]d,"chassis":["uuid","%s"],"mac":["set",["0a:00:00:00:%02x:%02x 10.0.%d.%d"]]}`,
			i, w.chassis[i%clients], i>>8&0xff, i&0xff, i>>8&0xff, i&0xff)
	})
	return w, err
}

// empty removes what an earlier run left at servers that this one did not start.
func (w *ovnWorld) empty(c *ovnConn) error {
	_, err := c.transact(`{"op":"delete","table":"Port_Binding","where":[]},{"op":"delete","table":"Chassis","where":[]}`)
	return err
}

// insertOVN inserts rows and returns their uuids in order.
func insertOVN(c *ovnConn, table string, n int, row func(i int) string) ([]string, error) {
	var all []string
	for from := 0; from < n; from += portsAtOnce {
		var ops []string
		for i := from; i < min(n, from+portsAtOnce); i++ {
			ops = append(ops, fmt.Sprintf(`{"op":"insert","table":%q,"row":%s}`, table, row(i)))
		}
		results, err := c.transact(strings.Join(ops, ","))
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if r.UUID[1] == "" {
				return nil, incumbent.Errorf(incumbent.Corrupt, "an insertion was answered without a uuid")
			}
			all = append(all, r.UUID[1])
		}
	}
	return all, nil
}

// address is where client i connects.
func (w *ovnWorld) address(ctx context.Context, i int) (string, error) {
	if w.sc.Ports.At == atAll || len(w.addresses) == 1 {
		return w.addresses[i%len(w.addresses)], nil
	}
	lead, err := w.leads(ctx)
	if err != nil {
		return "", err
	}
	if w.sc.Ports.At == atFollower {
		lead = (lead + 1) % len(w.addresses)
	}
	return w.addresses[lead], nil
}

// dial connects client i and has it monitor what it is to see, which is read to its end.
func (w *ovnWorld) dial(ctx context.Context, i int, last string) (*ovnConn, *ovnSnapshot, error) {
	address, err := w.address(ctx, i)
	if err != nil {
		return nil, nil, err
	}
	c, err := dialOVN(ctx, address, w.source(i))
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	size := w.size
	if i%resyncParsed == 0 {
		size = 0
	}
	seen, err := c.monitor(w.monitored(i), last, size)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return c, seen, nil
}

// monitors is the row that counts monitors and those that were refused.
func (w *ovnWorld) monitors() *opRecord { return w.rec.earlyOp("monitor") }

// begin is dial of a client that is to work afterwards: a monitor that is refused is
// counted, and asked for again for a while.
func (w *ovnWorld) begin(ctx context.Context, i int) (*ovnConn, error) {
	first := w.now()
	for {
		began := w.now()
		c, _, err := w.dial(ctx, i, "")
		w.outcome(ctx, w.monitors(), began, err)
		if _, refused := errors.AsType[refusedMonitor](err); !refused || w.now()-first > monitorPatience {
			return c, err
		}
		if err := sleep(ctx, retryOVN); err != nil {
			return nil, err
		}
	}
}

// monitorPatience is how long a client asks again that may not monitor.
const monitorPatience = 10 * time.Second

// monitored is what client i asks to see of the ports.
func (w *ovnWorld) monitored(i int) string {
	where := ""
	if !w.sc.Ports.All {
		where = fmt.Sprintf(`,"where":[["chassis","==",["uuid",%q]]]`, w.chassis[i])
	}
	return `{"Port_Binding":[{"columns":["logical_port","tunnel_key","chassis","mac"]` + where + `}]}`
}

// OVSDBFlags puts schemas where a server can read them, and returns the flags that open a
// door to databases with them; none for no schema.
func OVSDBFlags(dir string, schemas [][]byte) ([]string, error) {
	if len(schemas) == 0 {
		return nil, nil
	}
	flags := []string{"--ovsdb-listen", "127.0.0.1:0"}
	for i, schema := range schemas {
		path, err := writeSchema(dir, i, schema)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "--ovsdb-schema", path)
	}
	return flags, nil
}

func writeSchema(dir string, i int, schema []byte) (string, error) {
	path := filepath.Join(dir, fmt.Sprintf("%d.ovsschema", i))
	return path, os.WriteFile(path, schema, 0o600)
}

// ovnSchemas are those of the databases of a run, none of another kind of run.
func (sc *Scenario) ovnSchemas() (all [][]byte, err error) {
	if !sc.ovsdb() {
		return nil, nil
	}
	if sc.Ports.Sizes != nil {
		schema, err := sc.Ports.Sizes.schema()
		return [][]byte{schema}, err
	}
	if sc.Ports.Network == nil {
		return [][]byte{ovnSchema}, nil
	}
	for _, path := range []string{sc.Ports.Network.Northbound, sc.Ports.Network.Southbound} {
		schema, err := os.ReadFile(path)
		if err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "read OVN's schema: %w", err).WithHint("Debian's package ovn-common has it; ports.network names where")
		}
		all = append(all, schema)
	}
	return all, nil
}

// term is the newest that a member knows: it grows by one with each election at least.
func (w *ovnWorld) term(ctx context.Context) float64 {
	if peer, ok := w.cluster.(*ovnPeer); ok {
		return peer.term(ctx)
	}
	if len(w.clients) == 0 {
		return 0
	}
	var newest uint64
	for _, c := range w.clients {
		ctx, cancel := context.WithTimeout(ctx, termsPatient)
		st, err := statusOf(ctx, c)
		cancel()
		if err == nil { // one that does not answer says nothing
			newest = max(newest, st.GetTerm())
		}
	}
	return float64(newest)
}

// ovnResult is the result of one operation of a transaction.
type ovnResult struct {
	UUID    [2]string         `json:"uuid"`
	Count   int               `json:"count"`
	Rows    []json.RawMessage `json:"rows"`
	Error   string            `json:"error"`
	Details string            `json:"details"`
}

// ovnPatience is how long a client waits for an answer.
const ovnPatience = 5 * time.Minute
