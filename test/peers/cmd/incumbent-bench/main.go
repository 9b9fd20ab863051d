//go:build linux

// Command incumbent-bench plays scenarios of Incumbent's load tool against other
// systems, through their own clients: `incumbent bench run SCENARIO --peer etcd`
// hands its command line over to it. A program of its own, so that the clients'
// dependencies are not those of the product's binary. See README.md two folders
// up.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
	"github.com/incumbent-dev/incumbent/test/peers/etcdpeer"
)

// Exit codes as the product's: 2 is a mistake on the command line.
const (
	exitOther = 1
	exitUsage = 2
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// options are the flags of run.
type options struct {
	peer    string
	etcd    string
	members string
	targets []string
	pids    []int
	set     map[string]string
	dir     string
	dataDir string
	tls     bool
	output  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	root := newRoot(os.Stdout, os.Stderr)
	err := root.ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "incumbent-bench:", err)
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(exitUsage)
	}
	os.Exit(exitOther)
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: "incumbent-bench", Short: "Incumbent's load tool for other systems",
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(runCommand(stdout, stderr))
	return root
}

func runCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "run SCENARIO", Short: "play a scenario against a peer",
		Example: `  incumbent-bench run create-closed --peer etcd
  incumbent-bench run extend-single --peer etcd --set closed.workers=64 --dir results/etcd -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("run takes one SCENARIO, not %d", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c.Context(), args[0], stdout, stderr) },
	}
	f := c.Flags()
	f.StringVar(&o.peer, "peer", "etcd", "the system to drive: etcd")
	f.StringVar(&o.etcd, "etcd", besideThis("etcd"), "etcd `binary` to start")
	f.StringVar(&o.members, "members", "local:1", "start so many servers on this machine")
	f.StringSliceVar(&o.targets, "target", nil, "client `URLs` of servers to drive instead")
	f.IntSliceVar(&o.pids, "pid", nil, "their process ids, for memory and CPU, when they run on this machine")
	f.BoolVar(&o.tls, "tls", false, "servers that are started speak TLS")
	f.StringToStringVar(&o.set, "set", nil, "change a scenario: key=value by dotted path, or scale=PRESET")
	f.StringVar(&o.dir, "dir", "", "folder for the results (default results/SCENARIO-etcd-TIME)")
	f.StringVar(&o.dataDir, "data-dir", "", "folder for the data of servers that are started (default: a temporary one)")
	f.StringVarP(&o.output, "output", "o", "table", "output form: table, json or jsonl")
	return c
}

func besideThis(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// validate checks the flags and returns how many members to start.
func (o *options) validate() (members int, err error) {
	if o.peer != "etcd" {
		return 0, usagef("--peer %q is not etcd", o.peer)
	}
	if !slices.Contains([]string{"table", "json", "jsonl"}, o.output) {
		return 0, usagef("output form %q is none of table, json, jsonl", o.output)
	}
	text, ok := strings.CutPrefix(o.members, "local:")
	members, err = strconv.Atoi(text)
	if !ok || err != nil || members < 1 || members > etcdpeer.MaxMembers {
		return 0, usagef("--members %q is not local:N with N from 1 to %d", o.members, etcdpeer.MaxMembers)
	}
	return members, nil
}

func (o *options) run(ctx context.Context, scenario string, stdout, stderr io.Writer) (err error) {
	members, err := o.validate()
	if err != nil {
		return err
	}
	sc, err := bench.Load(scenario, o.set)
	if err != nil {
		return usageError{err}
	}
	if err := playable(sc); err != nil {
		return usageError{err}
	}
	var signal func(int, syscall.Signal) error
	var secure *tls.Config
	if len(o.targets) == 0 {
		cl, err := o.start(ctx, members)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cl.stop()) }()
		o.targets, o.pids, signal, secure = cl.Endpoints(), cl.PIDs(), cl.Signal, cl.TLS()
	}
	to := etcdload.Members{Endpoints: o.targets, TLS: secure}
	version, err := etcdload.Version(ctx, to)
	if err != nil {
		return fmt.Errorf("etcd at %s: %w", o.targets[0], err)
	}
	if o.dir == "" {
		o.dir = filepath.Join("results", strings.TrimSuffix(filepath.Base(scenario), ".yaml")+"-etcd-"+time.Now().Format("20060102-150405"))
	}
	summary, err := bench.RunPeer(ctx, bench.Options{
		Scenario: scenario, Set: o.set, PIDs: o.pids, Dir: o.dir, Out: stderr, Terminal: isTerminal(stderr),
		Command: "incumbent bench " + strings.Join(os.Args[1:], " "),
	}, bench.Peer{
		Versions: map[string]string{"etcd": version},
		Play:     func(ctx context.Context, r *bench.PeerRun) error { return playEtcd(ctx, r, to, signal) },
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "report: %s\n", filepath.Join(o.dir, "report.html"))
	if err := o.print(stdout, summary); err != nil {
		return err
	}
	if summary.Interrupted {
		return errors.New("interrupted; what was measured up to then is in " + o.dir)
	}
	return nil
}

func (o *options) print(w io.Writer, s *bench.Summary) error {
	if o.output == "table" {
		return s.Print(w)
	}
	enc := json.NewEncoder(w)
	if o.output == "json" {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(s)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}

// cluster is etcd started for one run, with the folder of its data.
type cluster struct {
	*etcdpeer.Cluster
	dir string
}

func (o *options) start(ctx context.Context, members int) (*cluster, error) {
	if o.dataDir != "" {
		if err := os.MkdirAll(o.dataDir, 0o700); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(o.dataDir, "incumbent-bench-etcd-")
	if err != nil {
		return nil, err
	}
	cl, err := etcdpeer.Start(ctx, etcdpeer.Config{Binary: o.etcd, Members: members, Dir: dir, TLS: o.tls})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &cluster{cl, dir}, nil
}

// stop ends the members and removes their data.
func (c *cluster) stop() error { return errors.Join(c.Stop(), os.RemoveAll(c.dir)) }
