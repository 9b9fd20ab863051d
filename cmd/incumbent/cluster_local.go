package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
)

// Limits and times of a cluster on this machine.
const (
	maxLocalMembers   = 32
	localPortStep     = 10               // between the ports of two members: room for their doors
	localReadyTimeout = 60 * time.Second // until all serve and vote
	localStopTimeout  = 15 * time.Second // until a member that was asked to end is killed
	localPollEvery    = 20 * time.Millisecond
)

func clusterLocal(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "local",
		Short: "start a whole cluster on this machine",
		Long: `Local starts a cluster of processes of this binary, for trying, testing and
benchmarks. It prints addresses and process ids once all members serve, supervises
nothing, and ends them all when it is interrupted. What is in --data-dir from an
earlier run goes on; a member whose folder is gone joins anew.

Member i listens on --port + 10·(i-1) and, for the others, on the port after it;
with --per-address all use the same two ports on 127.0.0.1, 127.0.0.2 and so on.
--port 0 takes free ports, for a new --data-dir. What follows -- goes to each server.

--juju-listen opens the door for Juju's agents on every member: on the address
given for the first, its port counted up by 10 for each other; with --per-address
on that one port. How agents log in is given after --. --consul-listen opens the door
for Consul's clients in the same way, --consul-dns-listen that for names of services,
and --ovsdb-listen that for clients of Open vSwitch's databases, which --ovsdb-schema
gives. --ovsdb-ctl PATH opens a control socket for ovs-appctl at PATH.NAME of each member.`,
		Example: `  incumbent cluster local --members 3 --data-dir ./cluster
  incumbent cluster local --members 3 --learners 2 --port 0 --data-dir "$(mktemp -d)" -o json -- --log-level warn
  incumbent cluster local --per-address --juju-listen 127.0.0.1:17070 --data-dir ./cluster -- --dev --juju-password secret`,
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			l, err := newLocal(c, args)
			if err != nil {
				return err
			}
			return l.run(c.Context(), env, form)
		},
	}
	f := c.Flags()
	f.String("members", "3", "voting members")
	f.Int("learners", 0, "members that never vote")
	f.String("data-dir", "incumbent.cluster", "folder of the members' data and logs")
	f.Int("port", 7600, "first port, 0 for free ones")
	f.Bool("per-address", false, "the same ports on 127.0.0.1, 127.0.0.2, …")
	f.String("juju-listen", "", "address for Juju's agents of the first member, "+jujuAddress+" by convention (default none)")
	f.String("consul-listen", "", "address for Consul's clients of the first member, "+consulAddress+" by convention (default none)")
	f.String("consul-dns-listen", "", "address for DNS of the first member, "+consulDNSAddress+" by convention (default none)")
	f.StringSlice("ovsdb-listen", nil, "one address for clients of Open vSwitch's databases of the first member, "+ovsdbAddress+" by convention (default none)")
	f.StringSlice("ovsdb-schema", nil, "files with schemas of these databases")
	f.String("ovsdb-ctl", "", "path of the members' control sockets for ovs-appctl, each with its name behind it (default none)")
	f.Bool("tls", false, "TLS between members and for clients, with an authority of the cluster's own")
	addOutput(c)
	return c
}

// local is a cluster of processes on this machine.
type local struct {
	dir     string
	self    string // this binary
	tls     bool
	extra   []string
	schemas []string // files, of databases
	members []*localMember
}

// localMember is one process.
type localMember struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	URL     string   `json:"url"`
	Peer    string   `json:"peer"`
	Juju    string   `json:"juju,omitempty"`   // where Juju's agents connect
	Consul  string   `json:"consul,omitempty"` // where Consul's clients do
	DNS     string   `json:"dns,omitempty"`    // where names of services are asked for
	OVSDB   string   `json:"ovsdb,omitempty"`  // where clients of Open vSwitch's databases do
	Control string   `json:"ovsdb_ctl,omitempty"`
	PID     int      `json:"pid"`
	DataDir string   `json:"data_dir"`
	Log     string   `json:"log"`
	Command []string `json:"command"` // starts it again

	listen  string
	held    []net.Listener // on the ports chosen for it, until it starts
	learner bool
	cmd     *exec.Cmd
	named   chan error // told once it serves or has ended
	ended   chan struct{}
}

// localJSON is what is printed for scripts.
type localJSON struct {
	ClusterID string         `json:"cluster_id"`
	Leader    string         `json:"leader"`
	Members   []*localMember `json:"members"`
	Servers   string         `json:"servers"` // for --server
	CA        string         `json:"ca,omitempty"`
	Cert      string         `json:"cert,omitempty"`
	Key       string         `json:"key,omitempty"`
}

func newLocal(c *cobra.Command, args []string) (*local, error) {
	f := c.Flags()
	voters, err := strconv.Atoi(text(c, "members"))
	if err != nil {
		return nil, usageError{fmt.Sprintf("--members %q is no number", text(c, "members"))}
	}
	learners, _ := f.GetInt("learners")
	port, _ := f.GetInt("port")
	perAddress, _ := f.GetBool("per-address")
	l := &local{extra: args}
	l.tls, _ = f.GetBool("tls")
	ovsdbListens, _ := f.GetStringSlice("ovsdb-listen") // a list, as it is of a server
	ovsdbListen := strings.Join(ovsdbListens, "")
	schemas, _ := f.GetStringSlice("ovsdb-schema")
	control := text(c, "ovsdb-ctl")
	if control != "" {
		if control, err = filepath.Abs(control); err != nil {
			return nil, err
		}
	}
	for _, path := range schemas {
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		l.schemas = append(l.schemas, path)
	}
	switch {
	case len(args) > 0 && c.ArgsLenAtDash() != 0:
		return nil, usageError{fmt.Sprintf("what is %q? flags for the servers follow --", args[0])}
	case len(ovsdbListens) > 1:
		return nil, usageError{fmt.Sprintf("%d addresses with --ovsdb-listen: give one, the members count on from there", len(ovsdbListens))}
	case voters < 1 || learners < 0 || voters+learners > maxLocalMembers:
		return nil, usageError{fmt.Sprintf("%d members and %d learners: at least one and no more than %d in all", voters, learners, maxLocalMembers)}
	case port < 0 || port+localPortStep*(voters+learners) > 65_535:
		return nil, usageError{fmt.Sprintf("--port %d leaves no room for %d members", port, voters+learners)}
	}
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if l.dir, err = filepath.Abs(text(c, "data-dir")); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	for i := range voters + learners {
		m, err := l.newMember(i, port, perAddress)
		if err != nil {
			return nil, err
		}
		if m.Juju, err = m.doorListen("juju-listen", text(c, "juju-listen"), i, perAddress); err != nil {
			return nil, err
		}
		if m.Consul, err = m.doorListen("consul-listen", text(c, "consul-listen"), i, perAddress); err != nil {
			return nil, err
		}
		if m.DNS, err = m.doorListen("consul-dns-listen", text(c, "consul-dns-listen"), i, perAddress); err != nil {
			return nil, err
		}
		if m.OVSDB, err = m.doorListen("ovsdb-listen", ovsdbListen, i, perAddress); err != nil {
			return nil, err
		}
		if control != "" {
			m.Control = control + "." + m.Name
		}
		m.learner = i >= voters
		l.members = append(l.members, m)
	}
	return l, nil
}

func (l *local) newMember(i, port int, perAddress bool) (*localMember, error) {
	name := "n" + strconv.Itoa(i+1)
	m := &localMember{
		Name: name, DataDir: filepath.Join(l.dir, name), Log: filepath.Join(l.dir, name+".log"),
		named: make(chan error, 1), ended: make(chan struct{}),
	}
	host := "127.0.0.1"
	if perAddress {
		host = "127.0.0." + strconv.Itoa(i+1)
	}
	for k, listen := range []*string{&m.listen, &m.Peer} {
		port := port
		switch {
		case port == 0:
			var err error
			if port, err = m.holdPort(host); err != nil {
				return nil, err
			}
		case !perAddress:
			port += i*localPortStep + k
		default:
			port += k
		}
		*listen = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return m, nil
}

// Ports that are chosen: below those that systems give to connections that name none,
// of which one may take a port between the look at it and its server's start.
const (
	firstChosenPort = 10_000
	chosenPorts     = 20_000
	maxPortTries    = 100
)

// holdPort chooses a port on which nobody listens, and holds it for the member: a cluster starts
// its members one after the other, and neither another member nor another cluster is to
// choose the same meanwhile.
func (m *localMember) holdPort(host string) (port int, err error) {
	for range maxPortTries {
		var ln net.Listener
		port = firstChosenPort + rand.N(chosenPorts)
		if ln, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			m.held = append(m.held, ln)
			return port, nil
		}
	}
	return 0, err
}

// letGo lets the member have the ports that are held for it.
func (m *localMember) letGo() {
	for _, ln := range m.held {
		ln.Close()
	}
	m.held = nil
}

// doorListen is where the member, the i-th, opens the door of a flag; "" for no such door.
func (m *localMember) doorListen(flag, first string, i int, perAddress bool) (string, error) {
	if first == "" {
		return "", nil
	}
	host, word, err := net.SplitHostPort(first)
	port, portErr := strconv.Atoi(word)
	if err != nil || portErr != nil || port < 0 || port+maxLocalMembers*localPortStep > 65_535 {
		return "", usageError{fmt.Sprintf("--%s %q is not HOST:PORT with room for all members", flag, first)}
	}
	if perAddress {
		host = "127.0.0." + strconv.Itoa(i+1)
	}
	switch {
	case port == 0:
		if port, err = m.holdPort(host); err != nil {
			return "", err
		}
	case !perAddress:
		port += i * localPortStep
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// known reports whether the member has data from an earlier run.
func (m *localMember) known() bool {
	names, err := os.ReadDir(m.DataDir)
	return err == nil && len(names) > 0
}

// run starts the cluster, prints it, and ends it with ctx.
func (l *local) run(ctx context.Context, env *environment, form string) error {
	// The children die with the thread that started them: see start.
	runtime.LockOSThread()
	defer l.stop()
	if err := l.startAll(ctx); err != nil {
		return err
	}
	out, err := l.ready(ctx)
	if err != nil {
		return err
	}
	if form != formTable {
		err = printJSON(env.stdout, form, out)
	} else {
		err = l.print(env.stdout, out)
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// startAll starts the members that have data together, since they may need one
// another to serve, and then lets the others join.
func (l *local) startAll(ctx context.Context) error {
	first := l.members[0]
	if l.tls && !first.known() {
		if _, err := cluster.Init(cluster.InitConfig{DataDir: first.DataDir, Name: first.Name, TLS: true, Hosts: l.hosts()}); err != nil {
			return err
		}
	}
	var fresh []*localMember
	for _, m := range l.members {
		if m != first && !m.known() {
			fresh = append(fresh, m)
			continue
		}
		if err := l.start(m, ""); err != nil {
			return err
		}
	}
	if err := l.awaitServing(ctx); err != nil || len(fresh) == 0 {
		return err
	}
	for _, m := range fresh {
		token, err := l.token(ctx, m.Name)
		if err != nil {
			return err
		}
		if err := l.start(m, token); err != nil {
			return err
		}
	}
	return l.awaitServing(ctx)
}

func (l *local) hosts() []string {
	var hosts []string
	for _, m := range l.members {
		host, _, _ := net.SplitHostPort(m.listen)
		hosts = append(hosts, host)
	}
	return hosts
}

// start starts a process. The kernel ends it when this one dies.
func (l *local) start(m *localMember, token string) error {
	m.Command = append([]string{l.self, "server", "--data-dir", m.DataDir, "--name", m.Name, "--listen", m.listen, "--peer-listen", m.Peer}, l.extra...)
	if m.learner {
		m.Command = append(m.Command, "--learner")
	}
	if m.Juju != "" {
		m.Command = append(m.Command, "--juju-listen", m.Juju)
	}
	if m.Consul != "" {
		m.Command = append(m.Command, "--consul-listen", m.Consul)
	}
	if m.DNS != "" {
		m.Command = append(m.Command, "--consul-dns-listen", m.DNS)
	}
	if m.OVSDB != "" {
		m.Command = append(m.Command, "--ovsdb-listen", m.OVSDB)
	}
	if m.Control != "" {
		m.Command = append(m.Command, "--ovsdb-ctl", m.Control)
	}
	for _, path := range l.schemas {
		m.Command = append(m.Command, "--ovsdb-schema", path)
	}
	log, err := os.OpenFile(m.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has it
	m.letGo()
	m.cmd = exec.Command(m.Command[0], m.Command[1:]...)
	m.cmd.Stderr = log
	if token != "" {
		m.cmd.Env = append(os.Environ(), envPrefix+joinVariable+"="+token)
	}
	m.cmd.SysProcAttr = childOfLocal()
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	m.PID = m.cmd.Process.Pid
	go m.follow(out)
	return nil
}

// follow reads what the process prints until it ends.
func (m *localMember) follow(out io.Reader) {
	defer close(m.ended)
	url, err := firstURL(context.Background(), out)
	m.URL = url
	m.named <- err
	_, _ = io.Copy(io.Discard, out) // so that it never waits for us
	_ = m.cmd.Wait()                // whoever stopped it knows why
}

// awaitServing waits until every process started so far serves.
func (l *local) awaitServing(ctx context.Context) error {
	for _, m := range l.members {
		if m.cmd == nil || m.URL != "" {
			continue
		}
		select {
		case err := <-m.named:
			if err != nil {
				said, _ := os.ReadFile(m.Log)
				return incumbent.Errorf(incumbent.Unavailable, "%s did not start: %w\n%s", m.Name, err, lastLines(said))
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lastLines is the end of a log: what a person needs of it.
func lastLines(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// client returns a client of all members that serve.
func (l *local) client() (*client.Client, error) {
	cfg := client.Config{CallTimeout: 10 * time.Second}
	for _, m := range l.members {
		if m.URL != "" {
			cfg.Servers = append(cfg.Servers, m.URL)
		}
	}
	if l.tls {
		cfg.CAFile, cfg.CertFile, cfg.KeyFile = l.operatorFiles()
	}
	return client.New(cfg)
}

func (l *local) operatorFiles() (ca, cert, key string) {
	dir := filepath.Join(l.members[0].DataDir, "tls")
	return filepath.Join(dir, "ca.crt"), filepath.Join(dir, "operator.crt"), filepath.Join(dir, "operator.key")
}

func (l *local) token(ctx context.Context, name string) (string, error) {
	cl, err := l.client()
	if err != nil {
		return "", err
	}
	defer cl.Close()
	res, err := cl.Cluster().CreateToken(ctx, connect.NewRequest(&apiv1.CreateTokenRequest{Name: name, Signer: true}))
	if err != nil {
		return "", client.AsError(err)
	}
	return res.Msg.Token, nil
}

// ready waits until every member has the role it is to have, and says who is who.
func (l *local) ready(ctx context.Context) (*localJSON, error) {
	cl, err := l.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, localReadyTimeout)
	defer cancel()
	var last error
	for {
		res, err := cl.Cluster().Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
		if err == nil && l.settled(res.Msg) {
			return l.describe(res.Msg), nil
		}
		last = client.AsError(err)
		select {
		case <-time.After(localPollEvery):
		case <-ctx.Done():
			return nil, incumbent.Errorf(incumbent.Unavailable, "the members did not find together in %v: %w", localReadyTimeout, last)
		}
	}
}

// settled reports whether all are members in their final roles.
func (l *local) settled(got *apiv1.MembersResponse) bool {
	if got.Leader == "" || len(got.Members) < len(l.members) {
		return false
	}
	roles := make(map[string]string)
	for _, m := range got.Members {
		roles[m.Name] = m.Role
	}
	for _, m := range l.members {
		switch role := roles[m.Name]; {
		case m.learner && role != "learner", !m.learner && role != "leader" && role != "follower":
			return false
		}
	}
	return true
}

func (l *local) describe(got *apiv1.MembersResponse) *localJSON {
	out := &localJSON{ClusterID: got.ClusterId, Leader: got.Leader, Members: l.members}
	var urls []string
	for _, m := range l.members {
		urls = append(urls, m.URL)
		for _, is := range got.Members {
			if is.Name == m.Name {
				m.ID = is.Id
			}
		}
	}
	out.Servers = strings.Join(urls, ",")
	if l.tls {
		out.CA, out.Cert, out.Key = l.operatorFiles()
	}
	return out
}

func (l *local) print(w io.Writer, out *localJSON) error {
	t := &table{header: []string{"member", "id", "process", "address", "peer address"}}
	first := out.Members[0]
	if first.Juju != "" {
		t.header = append(t.header, "juju's agents")
	}
	if first.Consul != "" {
		t.header = append(t.header, "consul's clients")
	}
	if first.DNS != "" {
		t.header = append(t.header, "dns")
	}
	if first.OVSDB != "" {
		t.header = append(t.header, "ovsdb's clients")
	}
	for _, m := range out.Members {
		row := []string{m.Name, m.ID, strconv.Itoa(m.PID), m.URL, m.Peer}
		for _, door := range []string{m.Juju, m.Consul, m.DNS, m.OVSDB} {
			if door != "" {
				row = append(row, door)
			}
		}
		t.row(row...)
	}
	if err := t.print(w); err != nil {
		return err
	}
	flags := "--server " + out.Servers
	if l.tls {
		flags += " --ca " + out.CA + " --cert " + out.Cert + " --key " + out.Key
	}
	_, err := fmt.Fprintf(w, "\n%s leads. Try, in another terminal:\n\n  %[4]s cluster ls %[2]s\n  %[4]s lease claim db/primary --holder me --ttl 1m %[2]s\n\nData and logs are in %[3]s. Ctrl-C ends them all.\n", out.Leader, flags, l.dir, l.self)
	return err
}

// stop ends all processes, in order if they will.
func (l *local) stop() {
	var all sync.WaitGroup
	for _, m := range l.members {
		if m.cmd == nil || m.cmd.Process == nil {
			continue
		}
		all.Go(func() {
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
			_ = m.cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(localStopTimeout, func() { _ = m.cmd.Process.Kill() })
			defer kill.Stop()
			<-m.ended
		})
	}
	all.Wait()
}
