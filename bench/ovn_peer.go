package bench

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
}

// ovnPeer is a cluster of Open vSwitch's database servers on this machine.
type ovnPeer struct {
	dir     string
	members []*ovnMember
}

type ovnMember struct {
	server  Server // its URL is where its clients connect
	control string // its control socket
	child   *spawned
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
	schema, err := WriteSchema(cfg.Dir, ovnSchema)
	if err != nil {
		return nil, err
	}
	addresses, err := freeAddresses(2 * max(1, cfg.Members))
	if err != nil {
		return nil, err
	}
	for i := range max(1, cfg.Members) {
		name := "o" + strconv.Itoa(i+1)
		db := filepath.Join(cfg.Dir, name+".db")
		if err := createOVSDB(ctx, cfg, i, db, schema, addresses); err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(addresses[2*i]) // as it was made just now
		m := &ovnMember{server: Server{Name: name, URL: addresses[2*i]}, control: filepath.Join(cfg.Dir, name+".ctl")}
		p.members = append(p.members, m)
		m.child, err = startChild([]string{
			cfg.Binary, "--remote=ptcp:" + port + ":127.0.0.1", "--unixctl=" + m.control, "--log-file=" + filepath.Join(cfg.Dir, name+".log"), "-vconsole:off", db,
		}, []string{"OVS_RUNDIR=" + cfg.Dir}, nil, filepath.Join(cfg.Dir, name+".err"), syscall.SIGKILL)
		if err != nil {
			return nil, err
		}
		m.server.PID = m.child.pid()
		if err := m.await(ctx); err != nil { // a cluster is joined one by one
			return nil, err
		}
	}
	return p, nil
}

// createOVSDB makes the database file of a server.
func createOVSDB(ctx context.Context, cfg OVSDBConfig, i int, db, schema string, addresses []string) error {
	tool := filepath.Join(filepath.Dir(cfg.Binary), "ovsdb-tool")
	if path, err := exec.LookPath("ovsdb-tool"); err == nil {
		tool = path
	}
	argv := []string{"create", db, schema}
	switch {
	case cfg.Members > 1 && i == 0:
		argv = []string{"create-cluster", db, schema, "tcp:" + addresses[1]}
	case cfg.Members > 1:
		argv = []string{"join-cluster", db, ovnDatabase, "tcp:" + addresses[2*i+1], "tcp:" + addresses[1]}
	}
	if said, err := exec.CommandContext(ctx, tool, argv...).CombinedOutput(); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "ovsdb-tool %s: %w: %s", argv[0], err, said)
	}
	return nil
}

// await waits until a server has the database and answers transactions.
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
	_, err = c.transact(`{"op":"select","table":"Chassis","where":[],"columns":["name"]}`)
	return err
}

// ask asks a server's control socket, empty if it does not answer.
func (m *ovnMember) ask(ctx context.Context, command, argument string) (said string) {
	d := net.Dialer{Timeout: ovnAsk}
	conn, err := d.DialContext(ctx, "unix", m.control)
	if err != nil {
		return ""
	}
	c := &ovnConn{conn: conn, buf: make([]byte, ovnBuffer)}
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

// status is a line of what a server says of its cluster: its Term, its Role.
func (m *ovnMember) status(ctx context.Context, name string) string {
	for line := range strings.Lines(m.ask(ctx, "cluster/status", ovnDatabase)) {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// leader is the place of who leads, or -1.
func (p *ovnPeer) leader(ctx context.Context) int {
	for i, m := range p.members {
		if m.status(ctx, "Role") == "leader" {
			return i
		}
	}
	return -1
}

// term is the newest one that a server knows, 0 of one that is alone.
func (p *ovnPeer) term(ctx context.Context) (newest float64) {
	for _, m := range p.members {
		n, _ := strconv.ParseFloat(m.status(ctx, "Term"), 64) // 0 if it does not say
		newest = max(newest, n)
	}
	return newest
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
