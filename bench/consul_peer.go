package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// consulAsk is how long a server of the peer may take to say what it is.
const consulAsk = 2 * time.Second

// ConsulConfig says which servers of Consul to start.
type ConsulConfig struct {
	Binary  string // of Consul; "": the one on the path
	Dir     string // of all data and logs; removed by Stop
	Members int
}

// consulPeer is a cluster of Consul's servers on this machine.
type consulPeer struct {
	dir     string
	members []*consulMember
}

type consulMember struct {
	server  Server
	raft    string // where the others reach it
	command []string
	log     string
	child   *spawned
}

// Ports of a server, in the order in which they are chosen.
const (
	consulHTTP = iota
	consulRaft
	consulGossip
	consulPorts
)

// StartConsul starts servers of Consul and returns once all are there and one leads.
func StartConsul(ctx context.Context, cfg ConsulConfig) (_ Cluster, err error) {
	if cfg.Binary == "" {
		if cfg.Binary, err = exec.LookPath("consul"); err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "no program named consul is on the path").WithHint("name it with --peer-binary, or a server that runs with --target")
		}
	}
	p := &consulPeer{dir: cfg.Dir}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, localReady)
	defer cancel()
	first := ""
	for i := range max(1, cfg.Members) {
		m, gossip, err := newConsulMember(cfg, i, first)
		if err != nil {
			return nil, err
		}
		if first == "" {
			first = gossip
		}
		p.members = append(p.members, m)
		if m.child, err = startChild(m.command, nil, nil, m.log, syscall.SIGKILL); err != nil {
			return nil, err
		}
		m.server.PID = m.child.pid()
	}
	return p, p.await(ctx)
}

func newConsulMember(cfg ConsulConfig, i int, first string) (m *consulMember, gossip string, err error) {
	addresses, err := freeAddresses(consulPorts)
	if err != nil {
		return nil, "", err
	}
	port := func(which int) string { _, p, _ := net.SplitHostPort(addresses[which]); return p }
	name := "c" + strconv.Itoa(i+1)
	m = &consulMember{
		server: Server{Name: name, URL: "http://" + addresses[consulHTTP]}, raft: addresses[consulRaft], log: filepath.Join(cfg.Dir, name+".log"),
	}
	// As one would run it: its raft at full speed, and none of its limits on connections,
	// which are for other purposes than this.
	m.command = []string{
		cfg.Binary, "agent", "-server", "-bootstrap-expect", strconv.Itoa(max(1, cfg.Members)), "-node", name,
		"-data-dir", filepath.Join(cfg.Dir, name), "-bind", "127.0.0.1", "-client", "127.0.0.1", "-log-level", "warn",
		"-http-port", port(consulHTTP), "-server-port", port(consulRaft), "-serf-lan-port", port(consulGossip), "-serf-wan-port", "-1",
		"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1", "-disable-host-node-id",
		"-hcl", fmt.Sprintf("performance { raft_multiplier = 1 } limits { http_max_conns_per_client = %d rpc_max_conns_per_client = %[1]d } disable_update_check = true", maxConnections),
	}
	if first != "" {
		m.command = append(m.command, "-retry-join", first)
	}
	return m, addresses[consulGossip], nil
}

// await waits until a leader knows all members.
func (p *consulPeer) await(ctx context.Context) error {
	for {
		var nodes []struct{ Node string }
		if err := consulGet(ctx, p.members[0].server.URL+"/v1/catalog/service/consul", &nodes); err == nil && len(nodes) == len(p.members) && p.leader(ctx) >= 0 {
			return nil
		}
		for _, m := range p.members {
			if !alive(m.server.PID) {
				return incumbent.Errorf(incumbent.Unavailable, "consul ended before it served:\n%s", m.child.said())
			}
		}
		if err := sleep(ctx, localEvery); err != nil {
			return incumbent.Errorf(incumbent.Unavailable, "consul did not start: %w\n%s", err, p.members[0].child.said())
		}
	}
}

// leader is the place of who leads among the members, as one that runs has it, or -1.
func (p *consulPeer) leader(ctx context.Context) int {
	for _, m := range p.members {
		var address string
		if consulGet(ctx, m.server.URL+"/v1/status/leader", &address) == nil && address != "" {
			return slices.IndexFunc(p.members, func(m *consulMember) bool { return m.raft == address })
		}
	}
	return -1
}

// consulGet asks a server of the peer.
func consulGet(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, consulAsk)
	defer cancel()
	failed := error(incumbent.Errorf(incumbent.Unavailable, "%s does not answer", url))
	lookAt(ctx, url, func(body io.Reader) { failed = json.NewDecoder(body).Decode(into) })
	return failed
}

// consulVersion is the peer's, empty where it does not say.
func consulVersion(ctx context.Context, url string) string {
	var self struct{ Config struct{ Version string } }
	_ = consulGet(ctx, strings.TrimSuffix(url, "/")+"/v1/agent/self", &self) // empty is what is known then
	return self.Config.Version
}

// Servers implements Cluster.
func (p *consulPeer) Servers() []Server {
	var all []Server
	for _, m := range p.members {
		all = append(all, m.server)
	}
	return all
}

// Signal implements Cluster.
func (p *consulPeer) Signal(i int, sig syscall.Signal) error {
	return syscall.Kill(p.members[i].server.PID, sig)
}

// Client implements Cluster.
func (*consulPeer) Client() client.Config { return client.Config{} }

// Kill ends a server.
func (p *consulPeer) Kill(i int, sig syscall.Signal) error { return kill(p.members[i].server.PID, sig) }

// Stop ends all, in order if they will, and removes their data.
func (p *consulPeer) Stop() {
	for _, m := range p.members {
		m.child.stop()
	}
	_ = os.RemoveAll(p.dir) // in a folder for temporary files
}
