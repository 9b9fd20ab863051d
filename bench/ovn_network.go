package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// OVN's databases, as its schemas name them.
const (
	ovnNorthbound = "OVN_Northbound"
	ovnSouthbound = "OVN_Southbound"
)

// Network is what the play network needs of OVN: ports are created in its northbound
// database, its own ovn-northd makes bindings of them in the southbound one, clients in
// the place of hypervisors bind these, and northd says northbound that the ports are up.
type Network struct {
	Northd     string `yaml:"northd"`     // the program
	Northbound string `yaml:"northbound"` // file of the schema
	Southbound string `yaml:"southbound"` // file of the schema
	Switches   int    `yaml:"switches"`   // logical switches that share the ports
	Batch      int    `yaml:"batch"`      // ports created in one transaction, 1 to 500
}

// errNotAllUp ends a run whose time is up.
var errNotAllUp = incumbent.Errorf(incumbent.DeadlineExceeded, "not all ports are up")

// ovnNetwork is a run of it.
//
// Concurrency: made before any client runs, and only read afterwards.
type ovnNetwork struct {
	*ovnWorld
	names   []string
	created []atomic.Int64 // when a port was first asked for, in ns since the run began
	claim   *opRecord      // a chassis set in bindings
	report  *opRecord      // bindings said to be up
	up      atomic.Int64   // ports that are
	again   atomic.Int64   // connections made again
}

// playOVNNetwork creates ports northbound until the last is up.
func playOVNNetwork(ctx context.Context, r *run) error {
	w, err := connectOVN(ctx, r)
	if err != nil {
		return err
	}
	n := &ovnNetwork{ovnWorld: w, created: make([]atomic.Int64, r.sc.Ports.Count), claim: r.rec.op("claim"), report: r.rec.op("report")}
	for i := range r.sc.Ports.Count {
		n.names = append(n.names, fmt.Sprintf("port-%d", i))
	}
	northd, err := n.startNorthd()
	if err != nil {
		return err
	}
	defer northd.stop()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(r.sc.Closed.Duration), errNotAllUp)
	defer cancel()
	chassis, err := n.startChassis(ctx)
	if err != nil {
		return err
	}
	return n.play(ctx, northd.pid(), chassis)
}

// startNorthd starts the real one at all members.
func (n *ovnNetwork) startNorthd() (*spawned, error) {
	program, err := exec.LookPath(n.sc.Ports.Network.Northd)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "no program %s", n.sc.Ports.Network.Northd).WithHint("Debian's package ovn-central has it; ports.network.northd names it")
	}
	dir, err := os.MkdirTemp("", "incumbent-northd-")
	if err != nil {
		return nil, err
	}
	remotes := "tcp:" + strings.Join(n.addresses, ",tcp:")
	child, err := startChild([]string{
		program, "--ovnnb-db=" + remotes, "--ovnsb-db=" + remotes, "--unixctl=" + filepath.Join(dir, "northd.ctl"), "-vconsole:warn",
	}, []string{"OVN_RUNDIR=" + dir}, nil, filepath.Join(dir, "northd.log"), syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	go func() {
		<-child.ended
		_ = os.RemoveAll(dir) // in a folder for temporary files
	}()
	return child, nil
}

// startChassis connects all clients, and returns how they end: one error each.
func (n *ovnNetwork) startChassis(ctx context.Context) (<-chan error, error) {
	n.setPhase("connecting")
	all := make([]*ovnChassis, n.sc.Closed.Workers)
	watching := make(chan struct{}, len(all))
	ended := make(chan error, len(all))
	err := inParallelOf(ctx, 64, len(all), func(i int) (err error) {
		if all[i], err = n.newChassis(ctx, i); err == nil {
			go func() { ended <- all[i].run(ctx, watching) }()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for range all {
		select {
		case <-watching:
		case err := <-ended:
			return nil, err
		}
	}
	n.connected(len(all))
	return ended, nil
}

// play creates the ports and waits until all are up.
func (n *ovnNetwork) play(ctx context.Context, northd int, chassis <-chan error) error {
	term, began, used, northdUsed := n.term(ctx), n.now(), n.meter.cpu(), readProcess(northd).CPU
	up := make(chan error, 1)
	go func() { up <- n.watchUp(ctx) }()
	n.setPhase("creating %d ports", len(n.names))
	err := n.create(ctx)
	if err != nil && !errors.Is(err, errNotAllUp) {
		return err
	}
	n.fact("created_seconds", (n.now() - began).Seconds())
	n.setPhase("waiting for the ports")
	for waiting := true; waiting; {
		select {
		case err = <-chassis: // nil of one whose ports are all bound
		case err = <-up:
			waiting = false
		}
		if err != nil && !errors.Is(err, errNotAllUp) {
			return err
		}
	}
	took := n.now() - began
	servers, program := n.meter.cpu()-used, readProcess(northd).CPU-northdUsed
	ready := int(n.up.Load())
	if ready < len(n.names) {
		n.check.Violate("%d of %d ports are up after %v", ready, len(n.names), took.Round(time.Second))
	}
	n.fact("network_seconds", took.Seconds())
	n.fact("ports_per_second", float64(ready)/took.Seconds())
	n.fact("server_cpu_seconds", servers.Seconds())
	n.fact("northd_cpu_seconds", program.Seconds())
	n.fact("elections", max(0, n.term(context.WithoutCancel(ctx))-term))
	n.fact("connections_made_again", float64(n.again.Load()))
	return nil
}

// create makes the switches and their ports, a batch of ports after the other.
func (n *ovnNetwork) create(ctx context.Context) error {
	var switches []string
	record := n.rec.op("create")
	from := 0
	return n.follow(ctx, 0, ovnNorthbound, func(c *ovnConn) (err error) {
		if switches == nil {
			switches, err = insertOVN(c, "Logical_Switch", n.sc.Ports.Network.Switches, func(i int) string { return fmt.Sprintf(`{"name":"switch-%d"}`, i) })
			if err != nil {
				return err
			}
		}
		for from < len(n.names) {
			to := min(len(n.names), from+n.sc.Ports.Network.Batch)
			began := n.now()
			_, err := c.transact(n.creation(from, to, began, switches[from/n.sc.Ports.Network.Batch%len(switches)]))
			if isRefusal(err) && n.again.Load() > 0 && strings.Contains(err.Error(), "constraint violation") {
				err = nil // names are unique: the attempt whose answer was lost was executed
			}
			n.outcome(ctx, record, began, err)
			if err != nil {
				return err
			}
			from = to
		}
		return nil
	})
}

// creation is a transaction that makes ports of a switch.
func (n *ovnNetwork) creation(from, to int, now time.Duration, of string) string {
	var ops, made []string
	for i := from; i < to; i++ {
		n.created[i].CompareAndSwap(0, int64(now))
		ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"Logical_Switch_Port","uuid-name":"p%d","row":{"name":%q,"addresses":"0a:00:00:00:%02x:%02x 10.%d.%d.%d"}}`,
			i, n.names[i], i>>8&0xff, i&0xff, 1+i>>16, i>>8&0xff, i&0xff))
		made = append(made, fmt.Sprintf(`["named-uuid","p%d"]`, i))
	}
	return strings.Join(append(ops, fmt.Sprintf(`{"op":"mutate","table":"Logical_Switch","where":[["_uuid","==",["uuid",%q]]],"mutations":[["ports","insert",["set",[%s]]]]}`,
		of, strings.Join(made, ","))), ",")
}

// watchUp returns once every port was said to be up.
func (n *ovnNetwork) watchUp(ctx context.Context) error {
	type port struct {
		Name string          `json:"name"`
		Up   json.RawMessage `json:"up"`
	}
	record := n.rec.op("up")
	places := make(map[string]int, len(n.names)) // by name
	for i, name := range n.names {
		places[name] = i
	}
	rows, up := make(map[string]int), make(map[int]bool) // places by uuid; those that are up
	return n.follow(ctx, 0, ovnNorthbound, func(c *ovnConn) error {
		err := follow(c, "Logical_Switch_Port", `{"columns":["name","up"]}`, func(uuid string, row port) {
			if place, known := places[row.Name]; known {
				rows[uuid] = place
			}
			place, known := rows[uuid]
			if known && string(row.Up) == "true" && !up[place] {
				up[place] = true
				n.up.Add(1)
				now := n.now()
				record.done(now, now-time.Duration(n.created[place].Load()), 1)
			}
		})
		if err != nil {
			return err
		}
		return c.hear(func() bool { return len(up) == len(n.names) })
	})
}

// follow keeps a client connected, from member i on: at the next one when a connection
// ended, as OVN's programs do. It returns when play does, with its error if the answer
// was wrong, or with the reason for which ctx ended.
func (n *ovnNetwork) follow(ctx context.Context, i int, database string, play func(c *ovnConn) error) error {
	for ; ; i++ {
		c, err := dialOVN(ctx, n.addresses[i%len(n.addresses)], n.source(i))
		if err == nil {
			c.database = database
			stop := context.AfterFunc(ctx, c.close)
			err = play(c)
			stop()
			c.close()
		}
		if err == nil || incumbent.KindOf(err) == incumbent.Corrupt {
			return err
		}
		if _, refused := errors.AsType[refusedMonitor](err); refused {
			n.monitors().failed(n.now(), 1)
		}
		if sleep(ctx, retryOVN) != nil {
			return context.Cause(ctx)
		}
		n.again.Add(1)
	}
}

// follow monitors a table and gives each row that is there, and each that comes or
// changes, to told: a row that changed has the columns that did.
func follow[T any](c *ovnConn, table, what string, told func(uuid string, row T)) error {
	give := func(tables json.RawMessage) error {
		var changes map[string]map[string]struct{ Initial, Insert, Modify *T }
		if err := json.Unmarshal(tables, &changes); err != nil {
			return incumbent.Errorf(incumbent.Corrupt, "changes of rows are %.200q: %w", tables, err)
		}
		for uuid, change := range changes[table] {
			if row := cmp.Or(change.Initial, change.Insert, change.Modify); row != nil {
				told(uuid, *row)
			}
		}
		return nil
	}
	c.told = func(m []byte) error {
		var said struct{ Params []json.RawMessage }
		if err := json.Unmarshal(m, &said); err != nil || len(said.Params) != 3 {
			return incumbent.Errorf(incumbent.Corrupt, "an update is %.200q: %w", m, err)
		}
		return give(said.Params[2])
	}
	seen, err := c.monitor(fmt.Sprintf(`{%q:[%s]}`, table, what), "", 0)
	if err != nil {
		return err
	}
	var said struct{ Result []json.RawMessage }
	if err := json.Unmarshal(seen.reply, &said); err != nil || len(said.Result) != 3 {
		return incumbent.Errorf(incumbent.Corrupt, "a monitor was answered with %.200q: %w", seen.reply, err)
	}
	return give(said.Result[2])
}

// hear reads what the server tells until enough has come.
func (c *ovnConn) hear(enough func() bool) error {
	for !enough() {
		_ = c.conn.SetReadDeadline(time.Now().Add(ovnPatience)) // a connection that is closed says so when it is read
		m, err := c.message()
		if err != nil {
			return err
		}
		if answer, err := c.handle(m); err != nil || answer {
			return incumbent.Errorf(incumbent.Corrupt, "was told %.80q, and nothing was asked: %w", m, err)
		}
	}
	return nil
}
