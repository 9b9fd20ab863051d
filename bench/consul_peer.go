package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
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
	peerServers
	rafts []string // where the members reach one another
}

// Ports of a server, in the order in which they are chosen.
const (
	consulHTTP = iota
	consulRaft
	consulGossip
	consulPorts
)

// StartConsul starts servers of Consul and returns once all are there and one leads.
func StartConsul(ctx context.Context, cfg ConsulConfig) (Cluster, error) {
	p := &consulPeer{peerServers: peerServers{dir: cfg.Dir}}
	return p, p.starting(ctx, &cfg.Binary, "consul", func(ctx context.Context) error {
		first := ""
		for i := range max(1, cfg.Members) {
			gossip, err := p.startMember(cfg, i, first)
			if err != nil {
				return err
			}
			first = cmp.Or(first, gossip)
		}
		return p.await(ctx, "consul", p.ready)
	})
}

// startMember starts the i-th, which joins the first, and returns where it is to be joined.
func (p *consulPeer) startMember(cfg ConsulConfig, i int, first string) (gossip string, err error) {
	addresses, err := freeAddresses(consulPorts)
	if err != nil {
		return "", err
	}
	port := func(which int) string { _, p, _ := net.SplitHostPort(addresses[which]); return p }
	name := "c" + strconv.Itoa(i+1)
	// As one would run it: its raft at full speed, and none of its limits on connections,
	// which are for other purposes than this.
	command := []string{
		cfg.Binary, "agent", "-server", "-bootstrap-expect", strconv.Itoa(max(1, cfg.Members)), "-node", name,
		"-data-dir", filepath.Join(cfg.Dir, name), "-bind", "127.0.0.1", "-client", "127.0.0.1", "-log-level", "warn",
		"-http-port", port(consulHTTP), "-server-port", port(consulRaft), "-serf-lan-port", port(consulGossip), "-serf-wan-port", "-1",
		"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1", "-disable-host-node-id",
		"-hcl", fmt.Sprintf("performance { raft_multiplier = 1 } limits { http_max_conns_per_client = %d rpc_max_conns_per_client = %[1]d } disable_update_check = true", maxConnections),
	}
	if first != "" {
		command = append(command, "-retry-join", first)
	}
	p.rafts = append(p.rafts, addresses[consulRaft])
	return addresses[consulGossip], p.start(Server{Name: name, URL: "http://" + addresses[consulHTTP]}, command, nil)
}

// ready is nil once a leader knows all members.
func (p *consulPeer) ready(ctx context.Context) error {
	var nodes []struct{ Node string }
	err := consulGet(ctx, p.servers[0].URL+"/v1/catalog/service/consul", &nodes)
	if err == nil && (len(nodes) != len(p.servers) || p.leader(ctx) < 0) {
		err = incumbent.Errorf(incumbent.Unavailable, "%d of %d servers are known", len(nodes), len(p.servers))
	}
	return err
}

// leader is the place of who leads among the members, as one that runs has it, or -1.
func (p *consulPeer) leader(ctx context.Context) int {
	for _, s := range p.servers {
		var address string
		if consulGet(ctx, s.URL+"/v1/status/leader", &address) == nil && address != "" {
			return slices.Index(p.rafts, address)
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
