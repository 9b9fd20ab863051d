//go:build linux

// Command etcd-bench measures etcd with etcd's own Go client, in the shapes in
// which Incumbent's load tool measures Incumbent, and prints JSON. It starts the
// servers itself, fresh ones for each kind of operation, or drives servers that
// run already. See README.md two folders up.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// maxConnections leaves room below the 20,000 files that a process may open.
const maxConnections = 19000

// options are the flags. Counts are at least 1, except idle.
type options struct {
	etcd      string
	dir       string
	endpoints string
	pids      string
	ops       string
	members   int
	tls       bool
	workers   int
	conns     int
	streams   int

	pipelineStreams int
	pipelineDepth   int
	valueBytes      int
	idle            int

	load   settings
	ttl    time.Duration
	settle time.Duration
}

func (o options) ttlSeconds() int64 { return int64(o.ttl / time.Second) }
func (o options) value() string     { return strings.Repeat("v", o.valueBytes) }

func (o options) validate() error {
	for name, n := range map[string]int{
		"members": o.members, "workers": o.workers, "conns": o.conns, "streams": o.streams,
		"pipeline-streams": o.pipelineStreams, "pipeline-depth": o.pipelineDepth,
	} {
		if n < 1 || n > maxConnections {
			return fmt.Errorf("--%s is %d, allowed are 1 to %d", name, n, maxConnections)
		}
	}
	switch {
	case o.idle < 0 || o.idle > maxConnections:
		return fmt.Errorf("--idle is %d, allowed are 0 to %d", o.idle, maxConnections)
	case o.valueBytes < 0 || o.valueBytes > 1<<20:
		return fmt.Errorf("--value-bytes is %d, allowed are 0 to %d", o.valueBytes, 1<<20)
	case o.ttl < time.Second:
		return fmt.Errorf("--ttl is %v, at least 1s", o.ttl)
	case o.load.duration <= 0 || o.load.warmup < 0 || o.load.rate < 0 || o.settle < 0:
		return errors.New("--duration is to be positive; --warmup, --rate and --settle may not be negative")
	case (o.endpoints == "") != (o.pids == ""):
		return errors.New("--endpoints and --pids go together: CPU and memory are read from the processes")
	case o.endpoints != "" && o.idle > 0:
		return errors.New("--idle needs fresh servers: leave --endpoints out")
	}
	return nil
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("etcd-bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.etcd, "etcd", besideThis("etcd"), "etcd `binary` to start")
	f.StringVar(&o.dir, "dir", "", "`folder` for the servers' data, removed afterwards (default: the system's for temporary files)")
	f.IntVar(&o.members, "members", 1, "members to start")
	f.BoolVar(&o.tls, "tls", false, "members that are started speak TLS")
	f.StringVar(&o.endpoints, "endpoints", "", "drive running servers at these client `URLs` instead, separated by commas")
	f.StringVar(&o.pids, "pids", "", "their process `ids`")
	f.StringVar(&o.ops, "ops", "all", "`operations`, separated by commas: "+names())
	f.IntVar(&o.workers, "workers", 64, "workers of grant, create and put, one in flight each")
	f.IntVar(&o.conns, "conns", 16, "connections that these workers share")
	f.IntVar(&o.streams, "streams", 256, "streams of keepalive, a connection each")
	f.IntVar(&o.pipelineStreams, "pipeline-streams", 16, "streams of keepalive-pipelined")
	f.IntVar(&o.pipelineDepth, "pipeline-depth", 16, "keepalives in flight on each of them")
	f.IntVar(&o.valueBytes, "value-bytes", 64, "length of values")
	f.DurationVar(&o.load.duration, "duration", 10*time.Second, "measured time of each operation")
	f.DurationVar(&o.load.warmup, "warmup", 2*time.Second, "time before that, not counted")
	f.Float64Var(&o.load.rate, "rate", 0, "open loop: operations per second in all; 0 is closed loop")
	f.DurationVar(&o.ttl, "ttl", time.Hour, "ttl of leases; a long one keeps expiry out of the figures")
	f.IntVar(&o.idle, "idle", 0, "measure memory with this many idle connections too")
	f.DurationVar(&o.settle, "settle", 2*time.Minute, "time from the last connection to the reading of memory")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.validate()
}

func names() string {
	var all []string
	for _, op := range operations {
		all = append(all, op.name)
	}
	return strings.Join(all, ", ")
}

func besideThis(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// report is what goes to stdout.
type report struct {
	Peer    string            `json:"peer"`
	Version string            `json:"version"`
	Members int               `json:"members"`
	Ops     map[string]result `json:"ops"`
	Idle    *idleResult       `json:"rss_per_connection_bytes,omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd-bench:", err)
		os.Exit(2) //nolint:gocritic // nothing is left to undo
	}
	rep, err := run(ctx, o, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd-bench:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(rep); err != nil {
		os.Exit(1)
	}
}

// run measures what the options ask for and tells progress line by line.
func run(ctx context.Context, o options, progress io.Writer) (report, error) {
	picked, err := pick(o.ops)
	if err != nil {
		return report{}, err
	}
	rep := report{Peer: "etcd", Version: version.Version, Members: o.members, Ops: map[string]result{}}
	for _, op := range picked {
		res, err := runOperation(ctx, o, op)
		if err != nil {
			return report{}, fmt.Errorf("%s: %w", op.name, err)
		}
		rep.Ops[op.name] = res
		fmt.Fprintf(progress, "%-20s %8.0f/s  p50 %.2f ms  p99 %.2f ms  %.1f us cpu each\n",
			op.name, res.Rate, res.P50, res.P99, res.CPUEach)
		if res.firstError != nil {
			fmt.Fprintf(progress, "%-20s %d errors, the first: %v\n", "", res.Errors, res.firstError)
		}
	}
	if o.idle > 0 {
		if rep.Idle, err = measureIdle(ctx, o); err != nil {
			return report{}, fmt.Errorf("idle: %w", err)
		}
		fmt.Fprintf(progress, "%-20s %d bytes plain, %d with a watch\n", "idle connection", rep.Idle.Plain, rep.Idle.Watch)
	}
	return rep, nil
}

func runOperation(ctx context.Context, o options, op operation) (res result, err error) {
	err = withServers(ctx, o, func(s servers) error {
		clients, err := etcdload.Connect(ctx, s.members, op.clients(o))
		if err != nil {
			return err
		}
		defer etcdload.Disconnect(clients) //nolint:errcheck // measured already
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the streams that the runners were given
		runners, err := op.runners(ctx, o, clients)
		if err != nil {
			return err
		}
		res, err = drive(ctx, o.load, runners, cancel, s.cpu)
		return err
	})
	return res, err
}
