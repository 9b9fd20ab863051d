//go:build linux

// Package etcdpeer runs etcd beside Incumbent, so that both are measured on one
// machine in one run: members are child processes on 127.0.0.1 with etcd's
// defaults, which include an fsync for every batch of its log.
//
// A child is killed by the kernel when the process that started it dies, so
// that an interrupted measurement leaves nothing behind.
//
// Concurrency: a Cluster is for one goroutine, except that Usage may be called
// from any while the cluster is up.
package etcdpeer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Limits of a cluster. Durations are what a loaded machine may need.
const (
	MaxMembers   = 7
	startTimeout = 30 * time.Second // until every member says it is healthy
	pollEvery    = 50 * time.Millisecond
	stopTimeout  = 10 * time.Second // from SIGTERM to SIGKILL
)

// Config says what to start.
type Config struct {
	Binary  string   // path of etcd
	Members int      // 1 to MaxMembers; 0 is 1
	Dir     string   // where data and logs go; "" is a new folder below os.TempDir, removed by Stop
	TLS     bool     // clients and members speak TLS, with a certificate made for the run
	Args    []string // further flags for every member
}

// Validate returns an error that names the first setting that cannot be used.
func (c Config) Validate() error {
	if c.Binary == "" {
		return errors.New("no etcd binary given: build one with `make peers`")
	}
	if c.Members < 0 || c.Members > MaxMembers {
		return fmt.Errorf("%d members, allowed are 1 to %d", c.Members, MaxMembers)
	}
	return nil
}

// Cluster is a set of running members.
type Cluster struct {
	members []*member
	dir     string
	ownDir  bool
	tls     *tls.Config // of clients; nil: plaintext
	cert    string      // files of the members' certificate
	key     string
}

type member struct {
	name      string
	clientURL string
	peerURL   string
	cmd       *exec.Cmd
	log       *os.File
	exited    chan struct{} // closed once the process has been waited for
}

// Start starts the members and returns when each of them serves. A context that
// ends before that stops them again; afterwards it has no effect.
func Start(ctx context.Context, c Config) (*Cluster, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	cl := &Cluster{dir: c.Dir}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			return nil, err
		}
	} else {
		dir, err := os.MkdirTemp("", "etcd-peer-")
		if err != nil {
			return nil, err
		}
		cl.dir, cl.ownDir = dir, true
	}
	if c.TLS {
		if err := cl.certify(); err != nil {
			return nil, errors.Join(err, cl.Stop())
		}
	}
	if err := cl.launch(c); err != nil {
		return nil, errors.Join(err, cl.Stop())
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, m := range cl.members {
		if err := m.awaitHealth(ctx, cl.http()); err != nil {
			return nil, errors.Join(err, cl.Stop())
		}
	}
	return cl, nil
}

func (cl *Cluster) launch(c Config) error {
	count := max(c.Members, 1)
	addresses, err := freeAddresses(2 * count)
	if err != nil {
		return err
	}
	var initial []string
	for i := range count {
		m := &member{
			name:      fmt.Sprintf("m%d", i+1),
			clientURL: cl.scheme() + addresses[2*i],
			peerURL:   cl.scheme() + addresses[2*i+1],
		}
		cl.members = append(cl.members, m)
		initial = append(initial, m.name+"="+m.peerURL)
	}
	for _, m := range cl.members {
		if err := m.start(c, cl, strings.Join(initial, ",")); err != nil {
			return err
		}
	}
	return nil
}

func (m *member) start(c Config, cl *Cluster, initial string) error {
	log, err := os.Create(filepath.Join(cl.dir, m.name+".log"))
	if err != nil {
		return err
	}
	args := append([]string{
		"--name", m.name,
		"--data-dir", filepath.Join(cl.dir, m.name),
		"--listen-client-urls", m.clientURL, "--advertise-client-urls", m.clientURL,
		"--listen-peer-urls", m.peerURL, "--initial-advertise-peer-urls", m.peerURL,
		"--initial-cluster", initial, "--initial-cluster-state", "new",
	}, append(cl.tlsArgs(), c.Args...)...)
	cmd := exec.Command(c.Binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	m.cmd, m.log, m.exited = cmd, log, make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // how it ended is in its log and its ProcessState
		close(m.exited)
	}()
	return nil
}

func (m *member) awaitHealth(ctx context.Context, c *http.Client) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if m.healthy(ctx, c) {
			return nil
		}
		select {
		case <-tick.C:
		case <-m.exited:
			return fmt.Errorf("%s ended before it served, see %s", m.name, m.log.Name())
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve, see %s: %w", m.name, m.log.Name(), ctx.Err())
		}
	}
}

func (m *member) healthy(ctx context.Context, c *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.clientURL+"/health", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Endpoints returns the client URLs, one per member.
func (cl *Cluster) Endpoints() []string {
	var urls []string
	for _, m := range cl.members {
		urls = append(urls, m.clientURL)
	}
	return urls
}

// PIDs returns the process ids of the members.
func (cl *Cluster) PIDs() []int {
	var pids []int
	for _, m := range cl.members {
		if m.cmd != nil {
			pids = append(pids, m.cmd.Process.Pid)
		}
	}
	return pids
}

// Signal sends a signal to member i, counted as Endpoints.
func (cl *Cluster) Signal(i int, s syscall.Signal) error { return cl.members[i].cmd.Process.Signal(s) }

// TLS is how clients speak to the members; nil: in plaintext.
func (cl *Cluster) TLS() *tls.Config { return cl.tls }

// Usage returns what all members use together.
func (cl *Cluster) Usage() (Usage, error) { return UsageOf(cl.PIDs()...) }

// Stop ends the members, politely first, and removes their data if Start chose
// the folder. Calling it again does nothing.
func (cl *Cluster) Stop() error {
	var errs []error
	for _, m := range cl.members {
		if m.cmd != nil {
			m.signal(syscall.SIGCONT) // one that is stopped cannot end
			m.signal(syscall.SIGTERM)
		}
	}
	deadline := time.After(stopTimeout)
	for _, m := range cl.members {
		if m.cmd == nil {
			continue
		}
		select {
		case <-m.exited:
		case <-deadline:
			for _, left := range cl.members {
				left.signal(syscall.SIGKILL)
			}
			<-m.exited
		}
		errs = append(errs, m.log.Close())
	}
	cl.members = nil
	if cl.ownDir {
		errs = append(errs, os.RemoveAll(cl.dir))
	}
	return errors.Join(errs...)
}

// signal does nothing for a member that was never started or has ended: its
// process id may be another's by now.
func (m *member) signal(s syscall.Signal) {
	if m.cmd != nil {
		m.cmd.Process.Signal(s) //nolint:errcheck // fails only for a process that has ended
	}
}

// freeAddresses finds ports that are free now. Another process may take one
// before etcd does; etcd then says so and Start fails.
func freeAddresses(count int) ([]string, error) {
	var addresses []string
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all stay open until the last is chosen, so that none is chosen twice
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
