package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
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

// ovnPeer is a cluster of Open vSwitch's database servers on this machine.
type ovnPeer struct {
	dir       string
	databases []ovnSchemaHead
	members   []*ovnMember
}

type ovnMember struct {
	server    Server // its URL is where its clients connect
	control   string // its control socket
	databases []ovnSchemaHead
	child     *spawned
}

// StartOVSDB starts Open vSwitch's database servers and returns once all serve. They are
// run as OVN runs them; ovsdb-tool, from the same package, makes their databases.
func StartOVSDB(ctx context.Context, cfg OVSDBConfig) (_ Cluster, err error) {
	if cfg.Binary == "" {
		if cfg.Binary, err = exec.LookPath("ovsdb-server"); err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "no program named ovsdb-server is on the path").WithHint("name it with --peer-binary")
		}
	}
	p := &ovnPeer{dir: cfg.Dir}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, localReady)
	defer cancel()
	for i, schema := range cfg.Schemas {
		head, err := readSchemaHead(cfg.Dir, i, schema)
		if err != nil {
			return nil, err
		}
		p.databases = append(p.databases, head)
	}
	cfg.Members = max(1, cfg.Members)
	clients, err := freeAddresses(cfg.Members * (1 + len(p.databases)))
	if err != nil {
		return nil, err
	}
	peers := clients[cfg.Members:] // of each database, its members in order
	for i, address := range clients[:cfg.Members] {
		m := &ovnMember{server: Server{Name: "o" + strconv.Itoa(i+1), URL: address}, databases: p.databases}
		m.control = filepath.Join(cfg.Dir, m.server.Name+".ctl")
		p.members = append(p.members, m)
		if err := m.start(ctx, cfg, i, peers); err != nil {
			return nil, err
		}
	}
	return p, nil
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

// start makes the files of the i-th member's databases and starts its server.
func (m *ovnMember) start(ctx context.Context, cfg OVSDBConfig, i int, peers []string) (err error) {
	_, port, _ := net.SplitHostPort(m.server.URL) // as it was made just now
	argv := []string{
		cfg.Binary, "--remote=ptcp:" + port + ":127.0.0.1", "--unixctl=" + m.control,
		"--log-file=" + filepath.Join(cfg.Dir, m.server.Name+".log"), "-vconsole:off",
	}
	for d, database := range m.databases {
		file := filepath.Join(cfg.Dir, m.server.Name+"-"+database.Name+".db")
		if err := createOVSDB(ctx, cfg, i, file, database, peers[d*cfg.Members:][:cfg.Members]); err != nil {
			return err
		}
		argv = append(argv, file)
	}
	m.child, err = startChild(argv, []string{"OVS_RUNDIR=" + cfg.Dir}, nil, filepath.Join(cfg.Dir, m.server.Name+".err"), syscall.SIGKILL)
	if err != nil {
		return err
	}
	m.server.PID = m.child.pid()
	return m.await(ctx) // a cluster is joined one by one
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

// await waits until a server has its databases and answers transactions.
func (m *ovnMember) await(ctx context.Context) error {
	for {
		err := m.serves(ctx)
		if err == nil {
			return nil
		}
		if !alive(m.server.PID) {
			return incumbent.Errorf(incumbent.Unavailable, "ovsdb-server ended before it served:\n%s", m.child.said())
		}
		if sleep(ctx, localEvery) != nil {
			return incumbent.Errorf(incumbent.Unavailable, "ovsdb-server did not start: %w\n%s", err, m.child.said())
		}
	}
}

func (m *ovnMember) serves(ctx context.Context) error {
	c, err := dialOVN(ctx, m.server.URL, nil)
	if err != nil {
		return err
	}
	defer c.close()
	defer time.AfterFunc(ovnAsk, c.close).Stop()
	for _, d := range m.databases {
		c.database = d.Name
		if _, err := c.transact(fmt.Sprintf(`{"op":"select","table":%q,"where":[],"columns":["_uuid"]}`, slices.Min(slices.Collect(maps.Keys(d.Tables))))); err != nil {
			return err
		}
	}
	return nil
}

// ask asks a server's control socket, empty if it does not answer.
func (m *ovnMember) ask(ctx context.Context, command, argument string) (said string) {
	d := net.Dialer{Timeout: ovnAsk}
	conn, err := d.DialContext(ctx, "unix", m.control)
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
func (m *ovnMember) status(ctx context.Context, database, name string) string {
	for line := range strings.Lines(m.ask(ctx, "cluster/status", database)) {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// leader is the place of who leads the first database, or -1.
func (p *ovnPeer) leader(ctx context.Context) int {
	for i, m := range p.members {
		if m.status(ctx, p.databases[0].Name, "Role") == "leader" {
			return i
		}
	}
	return -1
}

// term is the newest one that a server knows of each database, in all, 0 of one that is alone.
func (p *ovnPeer) term(ctx context.Context) (sum float64) {
	for _, d := range p.databases {
		newest := 0.0
		for _, m := range p.members {
			n, _ := strconv.ParseFloat(m.status(ctx, d.Name, "Term"), 64) // 0 if it does not say
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
	words := strings.Fields(p.members[0].ask(ctx, "version", ""))
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

// Servers implements Cluster.
func (p *ovnPeer) Servers() []Server {
	var all []Server
	for _, m := range p.members {
		all = append(all, m.server)
	}
	return all
}

// Signal implements Cluster.
func (p *ovnPeer) Signal(i int, sig syscall.Signal) error {
	return syscall.Kill(p.members[i].server.PID, sig)
}

// Client implements Cluster.
func (*ovnPeer) Client() client.Config { return client.Config{} }

// Kill ends a server.
func (p *ovnPeer) Kill(i int, sig syscall.Signal) error { return kill(p.members[i].server.PID, sig) }

// Stop ends all, in order if they will, and removes their data.
func (p *ovnPeer) Stop() {
	for _, m := range p.members {
		m.child.stop()
	}
	_ = os.RemoveAll(p.dir) // in a folder for temporary files
}
