package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// ovnAsk is how long a server of the peer may take to say what it is.
const ovnAsk = 2 * time.Second

// OVSDBConfig says which of Open vSwitch's database servers to start.
type OVSDBConfig struct {
	Binary  string // ovsdb-server; "": the one on the path
	Dir     string // of all data and logs; removed by Stop
	Members int    // 1: stand-alone, without its replication
	Schemas [][]byte
}

// ovnPeer is a cluster of Open vSwitch's database servers on this machine. The URLs of
// its servers are where their clients connect.
type ovnPeer struct {
	peerServers
	databases []ovnSchemaHead
}

// StartOVSDB starts Open vSwitch's database servers and returns once all serve. They are
// run as OVN runs them; ovsdb-tool, from the same package, makes their databases.
func StartOVSDB(ctx context.Context, cfg OVSDBConfig) (Cluster, error) {
	p := &ovnPeer{peerServers: peerServers{dir: cfg.Dir}}
	return p, p.starting(ctx, &cfg.Binary, "ovsdb-server", func(ctx context.Context) error {
		for i, schema := range cfg.Schemas {
			head, err := readSchemaHead(cfg.Dir, i, schema)
			if err != nil {
				return err
			}
			p.databases = append(p.databases, head)
		}
		cfg.Members = max(1, cfg.Members)
		clients, err := freeAddresses(cfg.Members * (1 + len(p.databases)))
		if err != nil {
			return err
		}
		peers := clients[cfg.Members:] // of each database, its members in order
		for i, address := range clients[:cfg.Members] {
			if err := p.startMember(ctx, cfg, i, address, peers); err != nil {
				return err
			}
		}
		return nil
	})
}

// ovnSchemaHead is what the load tool looks at in a schema.
type ovnSchemaHead struct {
	path   string
	Name   string                     `json:"name"`
	Tables map[string]json.RawMessage `json:"tables"`
}

func readSchemaHead(dir string, i int, schema []byte) (head ovnSchemaHead, err error) {
	if head.path, err = writeSchema(dir, i, schema); err != nil {
		return head, err
	}
	if err := json.Unmarshal(schema, &head); err != nil || head.Name == "" || len(head.Tables) == 0 {
		return head, incumbent.Errorf(incumbent.Invalid, "schema %d has no name and tables: %w", i, err)
	}
	return head, nil
}

// control is the i-th server's control socket.
func (p *ovnPeer) control(i int) string {
	return filepath.Join(p.dir, p.servers[i].Name+".ctl")
}

// startMember makes the files of the i-th member's databases and starts its server.
func (p *ovnPeer) startMember(ctx context.Context, cfg OVSDBConfig, i int, address string, peers []string) error {
	_, port, _ := net.SplitHostPort(address) // as it was made just now
	name := "o" + strconv.Itoa(i+1)
	argv := []string{
		cfg.Binary, "--remote=ptcp:" + port + ":127.0.0.1", "--unixctl=" + filepath.Join(p.dir, name+".ctl"),
		"--log-file=" + filepath.Join(cfg.Dir, name+".log"), "-vconsole:off",
	}
	for d, database := range p.databases {
		file := filepath.Join(cfg.Dir, name+"-"+database.Name+".db")
		if err := createOVSDB(ctx, cfg, i, file, database, peers[d*cfg.Members:][:cfg.Members]); err != nil {
			return err
		}
		argv = append(argv, file)
	}
	if err := p.start(Server{Name: name, URL: address}, argv, []string{"OVS_RUNDIR=" + cfg.Dir}); err != nil {
		return err
	}
	// A cluster is joined one by one.
	return p.await(ctx, "ovsdb-server", func(ctx context.Context) error { return p.serves(ctx, address) })
}

// createOVSDB makes the file of the i-th member's database.
func createOVSDB(ctx context.Context, cfg OVSDBConfig, i int, db string, database ovnSchemaHead, peers []string) error {
	tool := filepath.Join(filepath.Dir(cfg.Binary), "ovsdb-tool")
	if path, err := exec.LookPath("ovsdb-tool"); err == nil {
		tool = path
	}
	argv := []string{"create", db, database.path}
	switch {
	case cfg.Members > 1 && i == 0:
		argv = []string{"create-cluster", db, database.path, "tcp:" + peers[0]}
	case cfg.Members > 1:
		argv = []string{"join-cluster", db, database.Name, "tcp:" + peers[i], "tcp:" + peers[0]}
	}
	if said, err := exec.CommandContext(ctx, tool, argv...).CombinedOutput(); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "ovsdb-tool %s: %w: %s", argv[0], err, said)
	}
	return nil
}

// serves is nil once a server has its databases and answers transactions.
func (p *ovnPeer) serves(ctx context.Context, address string) error {
	c, err := dialOVN(ctx, address, nil)
	if err != nil {
		return err
	}
	defer c.close()
	defer time.AfterFunc(ovnAsk, c.close).Stop()
	for _, d := range p.databases {
		c.database = d.Name
		if _, err := c.transact(fmt.Sprintf(`{"op":"select","table":%q,"where":[],"columns":["_uuid"]}`, slices.Min(slices.Collect(maps.Keys(d.Tables))))); err != nil {
			return err
		}
	}
	return nil
}

// ask asks the i-th server's control socket, empty if it does not answer.
func (p *ovnPeer) ask(ctx context.Context, i int, command, argument string) (said string) {
	d := net.Dialer{Timeout: ovnAsk}
	conn, err := d.DialContext(ctx, "unix", p.control(i))
	if err != nil {
		return ""
	}
	c := &ovnConn{wireConn: newWireConn(conn, ovnBuffer)}
	defer c.close()
	defer time.AfterFunc(ovnAsk, c.close).Stop()
	arguments := `[]`
	if argument != "" {
		arguments = `["` + argument + `"]`
	}
	result, err := c.ask(command, arguments)
	if err != nil || json.Unmarshal(result, &said) != nil {
		return ""
	}
	return said
}

// status is a line of what a server says of a database's cluster: its Term, its Role.
func (p *ovnPeer) status(ctx context.Context, i int, database, name string) string {
	for line := range strings.Lines(p.ask(ctx, i, "cluster/status", database)) {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// leader is the place of who leads the first database, or -1.
func (p *ovnPeer) leader(ctx context.Context) int {
	for i := range p.servers {
		if p.status(ctx, i, p.databases[0].Name, "Role") == "leader" {
			return i
		}
	}
	return -1
}

// term is the newest one that a server knows of each database, in all, 0 of one that is alone.
func (p *ovnPeer) term(ctx context.Context) (sum float64) {
	for _, d := range p.databases {
		newest := 0.0
		for i := range p.servers {
			n, _ := strconv.ParseFloat(p.status(ctx, i, d.Name, "Term"), 64) // 0 if it does not say
			newest = max(newest, n)
		}
		sum += newest
	}
	return sum
}

// ovsdbVersion is the program's.
func ovsdbVersion(ctx context.Context, cl Cluster) string {
	p, ok := cl.(*ovnPeer)
	if !ok {
		return ""
	}
	words := strings.Fields(p.ask(ctx, 0, "version", ""))
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}
