package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// Times of a cluster on this machine: what two busy cores may need.
const (
	localReady = 2 * time.Minute       // until every member serves and votes
	localStop  = 20 * time.Second      // from asking a process to end to killing it
	localEvery = 50 * time.Millisecond // between two looks
	localToken = 30 * time.Second      // one call of the command line
	mostOutput = 1 << 20               // bytes of a cluster's description
	strace     = "strace"              // what slows a member's disk
	taskset    = "taskset"             // what gives servers some of the processors
	joinEnv    = "INCUMBENT_JOIN=%s"   // how a member that starts anew is let in
)

// LocalConfig says which cluster to start.
type LocalConfig struct {
	Binary string // of Incumbent
	Dir    string // of all data and logs; removed by Stop
	Launch
}

// Local is a cluster of processes of the binary on this machine: it starts them
// with 'incumbent cluster local', or, where members are to be cut off from one
// another, itself, each behind a proxy.
type Local struct {
	cfg    LocalConfig
	client client.Config
	parent *spawned // 'cluster local'; nil if the members are children of this process

	mu      sync.Mutex // protects the members, held for field accesses
	members []*localMember
}

// localMember is one server. What it needs to be started again is kept.
type localMember struct {
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Peer    string   `json:"peer"`
	Juju    string   `json:"juju"`
	Consul  string   `json:"consul"`
	DNS     string   `json:"dns"`
	OVSDB   string   `json:"ovsdb"`
	PID     int      `json:"pid"`
	DataDir string   `json:"data_dir"`
	Log     string   `json:"log"`
	Command []string `json:"command"`

	child *spawned  // nil while it is a child of another process
	front *frontage // nil without a proxy
}

// StartLocal starts a cluster and returns once every member serves.
func StartLocal(ctx context.Context, cfg LocalConfig) (_ *Local, err error) {
	l := &Local{cfg: cfg}
	defer func() {
		if err != nil {
			l.Stop()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, localReady)
	defer cancel()
	if cfg.Cuts {
		return l, l.startFronted(ctx)
	}
	return l, l.startParent(ctx)
}

// startParent has 'cluster local' start the members.
func (l *Local) startParent(ctx context.Context) error {
	argv := []string{
		l.cfg.Binary, "cluster", "local", "--members", fmt.Sprint(l.cfg.Members), "--learners", fmt.Sprint(l.cfg.Learners), "--port", "0",
		"--data-dir", filepath.Join(l.cfg.Dir, "data"), "-o", "json",
	}
	if l.cfg.TLS {
		argv = append(argv, "--tls")
	}
	if l.cfg.Juju != "" {
		argv = append(argv, "--juju-listen", "127.0.0.1:0")
	}
	if l.cfg.Consul {
		argv = append(argv, "--consul-listen", "127.0.0.1:0")
	}
	if l.cfg.DNS {
		argv = append(argv, "--consul-dns-listen", "127.0.0.1:0")
	}
	flags, err := OVSDBFlags(l.cfg.Dir, l.cfg.OVSDB)
	if err != nil {
		return err
	}
	argv = append(argv, flags...)
	argv = append(append(argv, "--", "--log-level", "warn"), l.cfg.Args...)
	if l.cfg.Juju != "" {
		argv = append(argv, "--dev", "--juju-password", l.cfg.Juju)
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	l.parent, err = startChild(l.cfg.pinned(argv), nil, in, filepath.Join(l.cfg.Dir, "log"), syscall.SIGTERM)
	in.Close() // the child has it
	if err != nil {
		return err
	}
	var said struct {
		Members       []*localMember
		CA, Cert, Key string
	}
	read := make(chan error, 1)
	go func() { read <- json.NewDecoder(io.LimitReader(out, mostOutput)).Decode(&said) }()
	select {
	case err = <-read:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "the cluster did not start: %w\n%s", err, l.parent.said())
	}
	l.members = said.Members
	l.client = client.Config{CAFile: said.CA, CertFile: said.Cert, KeyFile: said.Key}
	return nil
}

// others are the addresses of the member's other listeners.
func (m *localMember) others() (list []string) {
	for _, address := range []string{m.Peer, m.Juju, m.Consul, m.DNS, m.OVSDB} {
		if address != "" {
			list = append(list, address)
		}
	}
	return list
}

// Servers implements Cluster.
func (l *Local) Servers() []Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Server
	for _, m := range l.members {
		all = append(all, Server{Name: m.Name, URL: m.URL, PID: m.PID, Others: m.others()})
	}
	return all
}

// Client implements Cluster.
func (l *Local) Client() client.Config { return l.client }

// DiskBytes is what the members' files have.
func (l *Local) DiskBytes() (sum int64) {
	_ = filepath.WalkDir(filepath.Join(l.cfg.Dir, "data"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what goes meanwhile has no bytes
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// Logged is how many bytes and lines the members have said in their logs.
func (l *Local) Logged() (size, lines int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.members {
		said, _ := os.ReadFile(m.Log) // who has said nothing may have none
		size += int64(len(said))
		lines += int64(bytes.Count(said, []byte("\n")))
	}
	return size, lines
}

// Signal implements Cluster.
func (l *Local) Signal(i int, sig syscall.Signal) error {
	return syscall.Kill(l.Servers()[i].PID, sig)
}

// Kill implements Members.
func (l *Local) Kill(i int, sig syscall.Signal) error { return kill(l.Servers()[i].PID, sig) }

// kill sends the signal and returns once the process has ended.
func kill(pid int, sig syscall.Signal) error {
	if alive(pid) {
		if err := syscall.Kill(pid, sig); err != nil {
			return err
		}
	}
	for end := time.Now().Add(localStop); alive(pid); {
		if time.Now().After(end) {
			return incumbent.Errorf(incumbent.DeadlineExceeded, "process %d does not end", pid)
		}
		time.Sleep(localEvery)
	}
	return nil
}

// Start implements Members.
func (l *Local) Start(ctx context.Context, i int, how Start) error {
	m := l.members[i]
	var env []string
	if how.Wiped {
		token, err := l.token(ctx, i)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(m.DataDir); err != nil {
			return err
		}
		env = append(env, fmt.Sprintf(joinEnv, token))
	}
	return l.spawn(m, slowed(m.Command, how.SyncDelay), env)
}

// spawn starts the member's process.
func (l *Local) spawn(m *localMember, argv, env []string) error {
	c, err := startChild(l.cfg.pinned(argv), env, nil, m.Log, syscall.SIGKILL)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.child, m.PID = c, c.pid()
	return nil
}

// pinned is the command with the processors that the servers have. It becomes the server,
// and so keeps its process id.
func (l *Launch) pinned(argv []string) []string {
	if l.CPUs == "" {
		return argv
	}
	return append([]string{taskset, "-c", l.CPUs}, argv...)
}

// slowed is the command under strace, which adds the delay to each sync. The
// tracer steps aside (-D), so that the process that is started is the server.
func slowed(argv []string, delay time.Duration) []string {
	if delay == 0 {
		return argv
	}
	return append([]string{
		strace, "-D", "-f", "--seccomp-bpf", "-qq", "-o", os.DevNull, "-e", "trace=fdatasync,fsync",
		"-e", fmt.Sprintf("inject=fdatasync,fsync:delay_enter=%d", delay.Microseconds()),
	}, argv...)
}

// token asks the others for a token with which this member joins.
func (l *Local) token(ctx context.Context, but int) (string, error) {
	out, err := l.command(ctx, but, "cluster", "token", l.Servers()[but].Name, "--signer")
	return strings.TrimSpace(out), err
}

// Lead implements Members.
func (l *Local) Lead(ctx context.Context, i int) error {
	_, err := l.command(ctx, -1, "cluster", "transfer-leader", l.Servers()[i].Name)
	return err
}

// command runs a verb of the binary against the members, save one that is down.
func (l *Local) command(ctx context.Context, but int, verb ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, localToken)
	defer cancel()
	var urls []string
	for i, s := range l.Servers() {
		if i != but {
			urls = append(urls, s.URL)
		}
	}
	argv := append(verb, "--server", strings.Join(urls, ","))
	if l.client.CAFile != "" {
		argv = append(argv, "--ca", l.client.CAFile, "--cert", l.client.CertFile, "--key", l.client.KeyFile)
	}
	cmd := exec.CommandContext(ctx, l.cfg.Binary, argv...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", incumbent.Errorf(incumbent.Unavailable, "incumbent %s: %w: %s", strings.Join(verb, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

// Stop ends all processes, in order if they will, and removes their data.
func (l *Local) Stop() {
	for _, s := range l.Servers() {
		_ = syscall.Kill(s.PID, syscall.SIGCONT) // one that is stopped cannot end
	}
	var all sync.WaitGroup
	for _, m := range l.members {
		all.Go(func() {
			m.child.stop()
			m.front.close()
		})
	}
	all.Go(l.parent.stop)
	all.Wait()
	_ = os.RemoveAll(l.cfg.Dir) // in a folder for temporary files
}
