package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// peerServers are servers of another system on this machine.
type peerServers struct {
	dir      string // of all data and logs; removed by Stop
	servers  []Server
	children []*spawned
}

// starting runs what starts the servers, of a program that is on the path unless one is
// named, and stops those that did when not all do.
func (p *peerServers) starting(ctx context.Context, program *string, name string, start func(ctx context.Context) error) (err error) {
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	if *program == "" {
		if *program, err = exec.LookPath(name); err != nil {
			return incumbent.Errorf(incumbent.Invalid, "no program named %s is on the path", name).WithHint("name it with --peer-binary, or a server that runs with --target")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, localReady)
	defer cancel()
	return start(ctx)
}

// start starts a server.
func (p *peerServers) start(s Server, argv, env []string) error {
	child, err := startChild(argv, env, nil, filepath.Join(p.dir, s.Name+".err"), syscall.SIGKILL)
	if err != nil {
		return err
	}
	s.PID = child.pid()
	p.servers, p.children = append(p.servers, s), append(p.children, child)
	return nil
}

// await waits until the servers are ready.
func (p *peerServers) await(ctx context.Context, name string, ready func(ctx context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for i, s := range p.servers {
			if !alive(s.PID) {
				return incumbent.Errorf(incumbent.Unavailable, "%s ended before it served:\n%s", name, p.children[i].said())
			}
		}
		if sleep(ctx, localEvery) != nil {
			return incumbent.Errorf(incumbent.Unavailable, "%s did not start: %w\n%s", name, err, p.children[len(p.children)-1].said())
		}
	}
}

// Servers implements Cluster.
func (p *peerServers) Servers() []Server { return slices.Clone(p.servers) }

// Signal implements Cluster.
func (p *peerServers) Signal(i int, sig syscall.Signal) error {
	return syscall.Kill(p.servers[i].PID, sig)
}

// Client implements Cluster.
func (*peerServers) Client() client.Config { return client.Config{} }

// Kill ends a server.
func (p *peerServers) Kill(i int, sig syscall.Signal) error { return kill(p.servers[i].PID, sig) }

// Stop ends all, in order if they will, and removes their data.
func (p *peerServers) Stop() {
	for _, c := range p.children {
		c.stop()
	}
	_ = os.RemoveAll(p.dir) // in a folder for temporary files
}
