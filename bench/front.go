package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/test/proxy"
)

// frontage is the proxy in front of a member's address for the others.
type frontage struct{ *proxy.Proxy }

func (f *frontage) close() {
	if f != nil {
		_ = f.Proxy.Close() // its listener was open
	}
}

// startFronted starts the members itself: each tells the others the address of
// its proxy.
func (l *Local) startFronted(ctx context.Context) error {
	if l.cfg.TLS {
		return incumbent.Errorf(incumbent.Invalid, "members are cut off from one another without TLS only")
	}
	for i := range l.cfg.Members + l.cfg.Learners {
		if err := l.addFronted(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) addFronted(ctx context.Context, i int) error {
	addresses, err := freeAddresses(4)
	if err != nil {
		return err
	}
	name := "n" + strconv.Itoa(i+1)
	m := &localMember{
		Name: name, URL: "http://" + addresses[0], Peer: addresses[1],
		DataDir: filepath.Join(l.cfg.Dir, name), Log: filepath.Join(l.cfg.Dir, name+".log"),
	}
	p, err := proxy.Open(proxy.Config{Target: m.Peer, Name: l.dialler})
	if err != nil {
		return err
	}
	m.front = &frontage{p}
	m.Command = append([]string{
		l.cfg.Binary, "server", "--data-dir", m.DataDir, "--name", name, "--listen", addresses[0],
		"--peer-listen", m.Peer, "--peer-advertise", p.Addr(), "--log-level", "warn",
	}, l.cfg.Args...)
	if l.cfg.Juju != "" {
		m.Command = append(m.Command, "--juju-listen", addresses[2], "--dev", "--juju-password", l.cfg.Juju)
	}
	if l.cfg.Consul {
		m.Command = append(m.Command, "--consul-listen", addresses[3])
	}
	if i >= l.cfg.Members {
		m.Command = append(m.Command, "--learner")
	}
	l.mu.Lock()
	l.members = append(l.members, m)
	l.mu.Unlock()
	var env []string
	if i > 0 {
		token, err := l.token(ctx, i)
		if err != nil {
			return err
		}
		env = []string{fmt.Sprintf(joinEnv, token)}
	}
	if err := l.spawn(m, m.Command, env); err != nil {
		return err
	}
	return l.awaitMember(ctx, m)
}

// awaitMember waits until the member serves in its role.
func (l *Local) awaitMember(ctx context.Context, m *localMember) error {
	c, err := client.New(client.Config{Servers: []string{m.URL}, CallTimeout: termsPatient})
	if err != nil {
		return err
	}
	defer c.Close()
	for standing(ctx, c, 0) != "" {
		if !alive(m.PID) {
			return incumbent.Errorf(incumbent.Unavailable, "%s ended before it served:\n%s", m.Name, m.child.said())
		}
		if err := sleep(ctx, localEvery); err != nil {
			return incumbent.Errorf(incumbent.Unavailable, "%s does not serve: %w\n%s", m.Name, err, m.child.said())
		}
	}
	return nil
}

// Cut implements Members. A connection is dialled by one side and used by both:
// what the member sends goes in through its own proxy and out through the others'.
func (l *Local) Cut(i int, out, in bool) error {
	me := l.members[i]
	if me.front == nil {
		return incumbent.Errorf(incumbent.Invalid, "the members of this cluster have no proxies")
	}
	for _, m := range l.members {
		if m == me {
			m.front.Set(proxy.Rule{HoldOut: in, HoldIn: out})
		} else {
			m.front.SetFor(me.Name, proxy.Rule{HoldOut: out, HoldIn: in})
		}
	}
	return nil
}

// dialler says which member a connection to a proxy comes from: the one whose
// process has its socket.
func (l *Local) dialler(remote net.Addr) string {
	inode := socketInode(remote.String())
	for _, s := range l.Servers() {
		if inode != "" && s.PID != 0 && sockets(s.PID)[inode] {
			return s.Name
		}
	}
	return ""
}

// socketInode finds the socket of this machine with the local IPv4 address, in
// the kernel's table (proc_net_tcp(5)); "" if there is none.
func socketInode(address string) string {
	host, port, err := net.SplitHostPort(address)
	ip := net.ParseIP(host).To4()
	n, perr := strconv.Atoi(port)
	table, rerr := os.ReadFile("/proc/net/tcp")
	if err != nil || perr != nil || rerr != nil || ip == nil {
		return ""
	}
	return inodeIn(string(table), fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], n))
}

// inodeIn finds the socket with a local address in the kernel's table. What is left
// of an earlier connection from the same port, in TIME_WAIT, has no inode (0).
func inodeIn(table, local string) string {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 9 && f[1] == local && f[9] != "0" {
			return f[9]
		}
	}
	return ""
}

// freeAddresses returns addresses nobody listens on at this moment.
func freeAddresses(n int) ([]string, error) {
	var all []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close() // all stay open until the last is chosen, so that none is chosen twice
		all = append(all, ln.Addr().String())
	}
	return all, nil
}

var _ Members = (*Local)(nil)
