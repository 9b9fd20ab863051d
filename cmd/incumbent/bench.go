package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/client"
)

func benchCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "the load tool",
		Long: `Bench plays scenarios: fleets of agents in open loop, with correctness as a
metric. It starts servers of its own (--members local:1, the default) or drives
what --target names.`,
		Example: `  incumbent bench ls
  incumbent bench run juju-leases --set scale=play
  incumbent bench compare results/a results/b`,
	}
	c.AddCommand(benchList(env), benchDescribe(env), benchRun(env), benchReport(env), benchCompare(env), benchEcho(env), benchBare(env), benchWorker(env))
	return c
}

func benchList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the built-in scenarios", Example: "  incumbent bench ls", Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			t := &table{header: []string{"scenario", "presets", "what it plays"}}
			type row struct {
				Name        string   `json:"name"`
				Description string   `json:"description"`
				Presets     []string `json:"presets"`
			}
			rows := []row{}
			for _, name := range bench.List() {
				sc, err := bench.Load(name, nil)
				if err != nil {
					return err
				}
				presets := []string{}
				for p := range sc.Presets {
					presets = append(presets, p)
				}
				sort.Strings(presets)
				rows = append(rows, row{name, strings.TrimSpace(sc.Description), presets})
				t.row(name, orDash(strings.Join(presets, " ")), firstSentence(sc.Description))
			}
			if form != formTable {
				return printList(env.stdout, form, rows)
			}
			return t.print(env.stdout)
		},
	}
	addOutput(c)
	return c
}

func firstSentence(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), ". ")
	return strings.TrimSuffix(first, ".")
}

func benchDescribe(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "describe SCENARIO", Short: "print a scenario's YAML", Example: "  incumbent bench describe juju-leases > mine.yaml",
		Args: exactArgs("SCENARIO"),
		RunE: func(_ *cobra.Command, args []string) error {
			src, err := bench.Source(args[0])
			if err != nil {
				return err
			}
			_, err = env.stdout.Write(src)
			return err
		},
	}
}

func benchRun(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "play a scenario",
		Long: `Run plays a built-in scenario or a YAML file, shows progress on standard error,
and prints the result. Results go to --dir: summary.json, samples.jsonl, one
.hgrm an operation, report.html. A run that is interrupted (Ctrl-C) writes what it
measured up to then, marked so, and ends with 1. Exit code 99: a threshold failed
or something was violated.

Agents are spread over several members round robin, and go on at another when
theirs is silent or gone. Faults are played on servers that the run starts.

Scenarios that speak to the door for Juju's agents ask each server where it is.
Agents log in as themselves with --juju-password, or all as --juju-agent, who then
needs the grant claim-any. More connections than one process may open are spread
over several, which the run starts.

--peer etcd hands over to '` + peerTool + `' ('make peers' builds it), which drives
other systems through their own clients. --peer consul has the scenarios over
Consul's protocol drive Consul instead, from a program that is on the path or that
--peer-binary names.`,
		Example: `  incumbent bench run juju-leases
  incumbent bench run extend-single --set closed.workers=64 -o json
  incumbent bench run idle-fleet --tls --set scale=tls
  incumbent bench run leader-stall --members local:1 --dir results/stall
  incumbent bench run leader-kill --members local:3 --set fault=stop
  incumbent bench run juju-leases --set door=juju --members local:3
  incumbent bench run consul-watchers --set scale=gzip --members local:3
  incumbent bench run consul-watchers --peer consul
  incumbent bench run juju-run --log-format juju --set scale=smoke`,
		Args: exactArgs("SCENARIO"),
		RunE: func(c *cobra.Command, args []string) error { return runBench(c, env, args[0]) },
	}
	f := c.Flags()
	f.String("members", "local:1", "start so many servers on this machine: local:3, or local:3+1 with a learner")
	f.StringSlice("target", nil, "URLs of servers to drive instead")
	f.IntSlice("pid", nil, "their process ids, for memory and CPU, when they run on this machine")
	f.Bool("tls", false, "servers that are started speak TLS")
	f.StringToString("set", nil, "change a scenario: key=value by dotted path, or scale=PRESET")
	f.String("dir", "", "folder for the results (default results/SCENARIO-TIME)")
	f.String("data-dir", "", "folder for the data of servers that are started (default: a temporary one)")
	f.String("log-format", "", "juju: print Juju's own lines instead of progress")
	f.String("juju-agent", "", "tag that Juju's agents log in as (default: each as itself)")
	f.String("juju-password", "", "password they log in with, at servers that --target names")
	f.String("peer", "", "drive another system: etcd, consul or ovsdb")
	f.String("peer-binary", "", "its program, of consul or ovsdb (default: the one on the path)")
	f.String("echo", "", "URL of a bare echo ('incumbent bench echo'), for the scenario echo (default: one is started)")
	addOutput(c)
	return c
}

func runBench(c *cobra.Command, env *environment, scenario string) error {
	if peer := text(c, "peer"); peer != "" && peer != consulPeer && peer != ovsdbPeer {
		return runPeer(c, env, scenario, peer)
	}
	form := formOf(c)
	f := c.Flags()
	opts := bench.Options{
		Scenario: scenario, Out: env.stderr, Terminal: term.IsTerminal(int(env.stderr.Fd())) && os.Getenv("NO_COLOR") == "",
		LogFormat: text(c, "log-format"), Version: version, Command: "incumbent " + strings.Join(os.Args[1:], " "), Dir: text(c, "dir"), EchoURL: text(c, "echo"),
	}
	opts.Set, _ = f.GetStringToString("set")
	opts.Targets, _ = f.GetStringSlice("target")
	opts.PIDs, _ = f.GetIntSlice("pid")
	opts.TLS, _ = f.GetBool("tls")
	opts.JujuAgent, opts.JujuPassword = text(c, "juju-agent"), text(c, "juju-password")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opts.Worker = []string{self, "bench", workerName}
	if opts.LogFormat == "juju" {
		opts.Out = env.stdout
	} else if opts.LogFormat != "" {
		return usageError{fmt.Sprintf("log format %q is not juju", opts.LogFormat)}
	}
	if opts.Members, opts.Learners, err = localMembers(text(c, "members")); err != nil {
		return err
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Join("results", strings.TrimSuffix(filepath.Base(scenario), ".yaml")+"-"+time.Now().Format("20060102-150405"))
	}
	dataDir := text(c, "data-dir")
	if len(opts.Targets) == 0 {
		opts.Restore = func(ctx context.Context, file string) (bench.Cluster, error) {
			return launchRestored(ctx, dataDir, file)
		}
	}
	opts.Import = func(ctx context.Context, c *client.Client, file string) error {
		all, err := readSource(ctx, []string{file})
		if err != nil {
			return err
		}
		return loadContent(ctx, c.Tables(""), all, true)
	}
	opts.Launch = func(ctx context.Context, what bench.Launch) (bench.Cluster, error) {
		return launchServers(ctx, dataDir, what)
	}
	opts.LaunchEcho, opts.LaunchBare, opts.Peer = launchEcho, launchBare, text(c, "peer")
	opts.LaunchPeer = func(ctx context.Context, what bench.Launch) (bench.Cluster, error) {
		return launchDoorPeer(ctx, dataDir, text(c, "peer"), text(c, "peer-binary"), what)
	}
	summary, err := bench.Run(c.Context(), opts)
	if err != nil {
		return err
	}
	if form == formTable {
		err = summary.Print(env.stdout)
	} else {
		err = printJSON(env.stdout, form, summary)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(env.stderr, "report: %s\n", filepath.Join(opts.Dir, "report.html"))
	if summary.Interrupted && summary.Lost+summary.Violations == 0 {
		return statusError{exitOther, "interrupted; what was measured up to then is in " + opts.Dir}
	}
	if !summary.Passed() {
		return statusError{exitThreshold, "a threshold failed or a guarantee was violated"}
	}
	return nil
}

// mostLocalMembers is how many servers a run starts at most.
const mostLocalMembers = 16

// localMembers reads "local:3", or "local:3+1" with a learner besides.
func localMembers(s string) (members, learners int, err error) {
	counts, ok := strings.CutPrefix(s, "local:")
	voters, more, plus := strings.Cut(counts, "+")
	members, err = strconv.Atoi(voters)
	if plus && err == nil {
		learners, err = strconv.Atoi(more)
	}
	if !ok || err != nil || members < 1 || learners < 0 || members+learners > mostLocalMembers {
		return 0, 0, usageError{fmt.Sprintf("--members %q is not local:N or local:N+LEARNERS, %d in all at most", s, mostLocalMembers)}
	}
	return members, learners, nil
}

// workerName is the verb that serves as a process of Juju's agents.
const workerName = "worker"

// benchWorker is what a run starts when one process is not enough.
func benchWorker(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: workerName, Short: "be a process of a run's agents", Hidden: true, Args: exactArgs(),
		Example: "  incumbent bench worker # started by 'bench run', which calls it over standard input",
		RunE:    func(c *cobra.Command, _ []string) error { return bench.Work(c.Context(), env.stdin, env.stdout) },
	}
}

func benchReport(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use: "report RESULTS", Short: "print a run's result again", Example: "  incumbent bench report results/juju-leases-20260101-120000",
		Args: exactArgs("RESULTS"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			s, err := bench.ReadSummary(args[0])
			if err != nil {
				return usageError{err.Error()}
			}
			if form != formTable {
				return printJSON(env.stdout, form, s)
			}
			return s.Print(env.stdout)
		},
	}
	addOutput(c)
	return c
}

func benchCompare(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "compare A B", Short: "print two runs side by side", Example: "  incumbent bench compare results/etcd results/ours",
		Args: exactArgs("A", "B"),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := bench.ReadSummary(args[0])
			if err != nil {
				return usageError{err.Error()}
			}
			b, err := bench.ReadSummary(args[1])
			if err != nil {
				return usageError{err.Error()}
			}
			return bench.Compare(env.stdout, a, b)
		},
	}
}

// playFleet plays a small fleet against a server of this process's own.
func playFleet(ctx context.Context, env *environment, url string) error {
	fmt.Fprintln(env.stdout, "\nA fleet of 1,000 leases with three candidates each, for a few seconds:")
	s, err := bench.Run(ctx, bench.Options{
		Scenario: "juju-leases", Set: map[string]string{"scale": "play"}, Targets: []string{url}, PIDs: []int{os.Getpid()},
		Client: client.Config{}, Out: env.stdout, Terminal: term.IsTerminal(int(env.stdout.Fd())), Version: version,
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(env.stdout)
	return s.Print(env.stdout)
}
