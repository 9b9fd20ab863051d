package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent/door/consul"
	"github.com/incumbent-dev/incumbent/door/dns"
	"github.com/incumbent-dev/incumbent/door/ovsdb"
	"github.com/incumbent-dev/incumbent/server"
)

func serverCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "run a server",
		Long: `Server runs one member. --dev needs nothing else: one node on loopback, its data
in ./incumbent.data. Otherwise give --data-dir and a --name.

With --peer-listen other members can join: 'incumbent cluster token NAME' on this one
prints a token for 'incumbent server --join-file FILE' on the other. A member with
data goes on as who it is, so --join-file may stay where it is; one that lost its
data comes back by another token, as a new member with the old one's name.
INCUMBENT_JOIN in the environment may hold the token instead.

A listener on any other address than loopback needs --tls-cert and --tls-key,
and --client-ca or --credential-file; or the cluster's own authority, which
'incumbent cluster init' makes and which --peer-listen needs there.

SIGTERM and SIGINT: stop accepting, hand leadership over, answer blocked calls,
leave within 10 s; a second one leaves now. SIGHUP: reload certificates,
credentials, passwords of Juju's agents, --max-connections, --memory-limit and
log level, and go on in a new file of --audit-log.

Exit code 2: a setting is wrong. Exit code 5: the data directory or the address
is in use. Exit code 6: this member was removed from its cluster, or its name is
another's. Exit code 7: the token is not for that cluster. Exit code 1: the server
stopped because of a fault, which it names.`,
		Example: `  incumbent server --dev
  incumbent server --data-dir /var/lib/incumbent --name n1 --peer-listen 127.0.0.1:7601
  incumbent cluster token n2 > token
  incumbent server --data-dir ./n2 --listen 127.0.0.1:7610 --peer-listen 127.0.0.1:7611 --join-file token`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error { return runServer(c, env) },
	}
	f := c.Flags()
	f.Bool("dev", false, "one node for trying, data in ./"+server.DefaultDevDir)
	f.Bool("play", false, "with --dev: play a small fleet against it first and show the result")
	f.String("data-dir", "", "folder of log and snapshots")
	f.String("name", "", "name of this member (default: the host's)")
	f.String("listen", server.DefaultListen, "address of the native API, metrics and health")
	f.String("advertise", "", "address others see, when it is another")
	f.String("peer-listen", "", "address for other members (default none; after 'cluster init' and with --join-file "+server.DefaultPeerListen+")")
	f.String("peer-advertise", "", "address other members see, when it is another")
	f.String("join-file", "", "file with a token of the cluster to join, when the data directory is empty")
	f.Bool("learner", false, "with --join-file: never vote")
	f.String("tls-cert", "", "PEM file with the certificate of --listen")
	f.String("tls-key", "", "PEM file with its key")
	f.String("client-ca", "", "PEM file with the authorities that sign clients' certificates")
	f.String("credential-file", "", "file with bearer credentials")
	f.String("trust-loopback", "auto", "whoever connects from this machine without TLS is an operator: on, off or auto, which is on where nobody else can connect")
	f.StringSlice("proxy-from", nil, "addresses or networks of proxies, whose connections begin with a PROXY header (default none)")
	f.String("juju-listen", "", "address for Juju's agents, "+jujuAddress+" by convention (default none)")
	f.String("juju-credential-file", "", "file with the passwords of Juju's agents: see 'incumbent credential create'")
	f.String("juju-password", "", "with --dev, on loopback: lets any of Juju's agents in, and claim for any unit")
	f.String("consul-listen", "", "address for Consul's clients, "+consulAddress+" by convention (default none)")
	f.String("consul-namespace", "", "namespace of everything they see (default the default one)")
	f.String("consul-node", server.DefaultConsulNode, "name of the node that the agent they talk to is")
	f.String("consul-node-id", "", "its id, a UUID (default the cluster's id)")
	f.String("consul-node-address", "", "its address, which services have that are registered without one (default where the door listens)")
	f.String("consul-datacenter", consul.DefaultDatacenter, "name of the datacenter they see")
	f.String("consul-anonymous", "", "KIND:NAME of whom requests come from that bring nothing (default nobody)")
	f.Bool("consul-checks-anywhere", false, "checks of services may connect to link-local addresses and those of machines' metadata, too")
	f.String("consul-dns-listen", "", "address for questions by DNS, UDP and TCP, "+consulDNSAddress+" by convention (default none)")
	f.String("consul-dns-domain", dns.DefaultDomain, "domain that is answered for")
	f.Duration("consul-dns-node-ttl", 0, "how long answers about nodes may be kept")
	f.String("consul-dns-service-ttl", "", "how long those about services may be: NAME=DURATION, joined by commas; a name may end in * (default 0s)")
	f.Bool("consul-dns-only-passing", false, "leave instances out that warn, too")
	f.Duration("consul-dns-max-age", dns.DefaultMaxAge, "what is answered from may be so old while no leader is heard of")
	f.Bool("consul-plaintext", false, "no TLS there, also where the native listener has it; on loopback only")
	f.StringSlice("ovsdb-listen", nil, "addresses for clients of Open vSwitch's databases, "+ovsdbAddress+" by convention, unix:PATH, or db:DATABASE,TABLE,COLUMN for what rows there say (default none)")
	f.String("ovsdb-cert", "", "file with the certificate that clients there see (default that of the native listener)")
	f.String("ovsdb-key", "", "file with its key")
	f.String("ovsdb-ca", "", "file with the authority of their certificates: whose common name is NAME is agent:NAME")
	f.StringSlice("ovsdb-schema", nil, "files with schemas of databases: one that is not there is defined, one of an earlier version converted")
	f.String("ovsdb-namespace", "", "namespace of the databases (default the default one)")
	f.String("ovsdb-anonymous", "", "KIND:NAME of who connects there and brings nothing (default nobody)")
	f.String("ovsdb-ctl", "", "path of a socket for the commands of ovs-appctl -t PATH, which only this user may open (default none)")
	f.Bool("ovsdb-plaintext", false, "no TLS there, also where the native listener has it; on loopback only")
	f.Duration("ovsdb-probe", ovsdb.DefaultProbe, "a client that was silent for so long is asked for an echo, and closed after as long again")
	bytesFlag(f, "log-segment-bytes", 0, "size of a log segment (default 64 MiB, with --dev 8 MiB)")
	bytesFlag(f, "snapshot-bytes", 0, "log between two snapshots, at most (default four segments)")
	bytesFlag(f, "disk-reserve-bytes", server.DefaultDiskReserve, "free space below which growth is refused")
	f.String("audit-log", server.AuditNone, "file for who changed what or was denied it, a JSON object a line; or "+server.AuditStderr+" (default none)")
	bytesFlag(f, "audit-log-bytes", server.DefaultAuditLogBytes, "size at which another file is begun")
	f.Int("audit-log-keep", server.DefaultAuditLogKeep, "how many older ones stay")
	bytesFlag(f, "history-bytes", server.DefaultHistoryBytes, "changes kept for resuming watches")
	bytesFlag(f, "memory-limit", 0, "resident memory, in bytes, that admission defends (default three quarters of what the control group or the machine has)")
	f.Int("max-connections", server.DefaultMaxConnections, "connections accepted at once, by each listener")
	f.Duration("grace", server.DefaultGrace, "how much longer than a ttl the leader waits")
	f.Float64("drift", server.DefaultDrift, "clocks run at rates within ± this share of each other")
	f.Duration("return-time", server.DefaultReturnTime, "after a start no lease expires sooner than this")
	f.Duration("checkpoint-interval", server.DefaultCheckpointInterval, "how often members compare their states")
	f.Duration("cut-off-after", server.DefaultCutOffAfter, "a member that hears a leader and confirms nothing for so long sends its clients to the others")
	f.String("backup-dir", "", "folder into which one of the members that have one writes backups (default none)")
	f.Duration("backup-every", server.DefaultBackupEvery, "how often")
	f.Int("backup-keep", server.DefaultBackupKeep, "how many of the newest stay there")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	return c
}

// consulAddress is where Consul's clients look, by convention.
const consulAddress = "127.0.0.1:8500"

// consulDNSAddress is where they ask by DNS.
const consulDNSAddress = "127.0.0.1:8600"

// ovsdbAddress is where clients of OVN's northbound database look, by convention.
const ovsdbAddress = "127.0.0.1:6641"

// jujuAddress is where Juju's agents are expected, by convention.
const jujuAddress = "127.0.0.1:17070"

// serverConfig reads the flags.
func serverConfig(c *cobra.Command, logger *slog.Logger) (server.Config, error) {
	f := c.Flags()
	cfg := server.Config{
		DataDir: text(c, "data-dir"), Name: text(c, "name"), Listen: text(c, "listen"), Advertise: text(c, "advertise"),
		TLSCert: text(c, "tls-cert"), TLSKey: text(c, "tls-key"), ClientCA: text(c, "client-ca"), CredentialFile: text(c, "credential-file"),
		PeerListen: text(c, "peer-listen"), PeerAdvertise: text(c, "peer-advertise"), JoinFile: text(c, "join-file"),
		LogLevel: text(c, "log-level"), Version: version, Logger: logger,
	}
	cfg.Juju = server.Juju{Listen: text(c, "juju-listen"), CredentialFile: text(c, "juju-credential-file"), Password: text(c, "juju-password")}
	if text(c, "consul-listen") != "" {
		cfg.Consul = server.Consul{
			Listen: text(c, "consul-listen"), Namespace: text(c, "consul-namespace"), Node: text(c, "consul-node"),
			Datacenter: text(c, "consul-datacenter"), NodeID: text(c, "consul-node-id"), NodeAddress: text(c, "consul-node-address"), Anonymous: text(c, "consul-anonymous"),
		}
		cfg.Consul.Plaintext, _ = f.GetBool("consul-plaintext")
		cfg.Consul.ChecksAnywhere, _ = f.GetBool("consul-checks-anywhere")
	}
	cfg.OVSDB = server.OVSDB{Namespace: text(c, "ovsdb-namespace"), Anonymous: text(c, "ovsdb-anonymous"), Cert: text(c, "ovsdb-cert"), Key: text(c, "ovsdb-key"), CA: text(c, "ovsdb-ca"), Control: text(c, "ovsdb-ctl")}
	listens, _ := f.GetStringSlice("ovsdb-listen")
	cfg.OVSDB.Listen = server.JoinSources(listens)
	cfg.OVSDB.Schemas, _ = f.GetStringSlice("ovsdb-schema")
	cfg.OVSDB.Plaintext, _ = f.GetBool("ovsdb-plaintext")
	if f.Changed("ovsdb-probe") || len(cfg.OVSDB.Listen) > 0 {
		cfg.OVSDB.Probe, _ = f.GetDuration("ovsdb-probe")
	}
	if text(c, "consul-dns-listen") != "" {
		cfg.Consul.DNS = server.ConsulDNS{Listen: text(c, "consul-dns-listen"), Domain: text(c, "consul-dns-domain"), ServiceTTL: text(c, "consul-dns-service-ttl")}
		cfg.Consul.DNS.NodeTTL, _ = f.GetDuration("consul-dns-node-ttl")
		cfg.Consul.DNS.MaxAge, _ = f.GetDuration("consul-dns-max-age")
		cfg.Consul.DNS.OnlyPassing, _ = f.GetBool("consul-dns-only-passing")
	}
	var err error
	if cfg.TrustLoopback, err = server.ParseTrust(text(c, "trust-loopback")); err != nil {
		return cfg, err
	}
	proxies, _ := f.GetStringSlice("proxy-from")
	if cfg.Proxies, err = server.ParseProxies(proxies); err != nil {
		return cfg, err
	}
	cfg.Learner, _ = f.GetBool("learner")
	cfg.Dev, _ = f.GetBool("dev")
	cfg.SegmentBytes, _ = f.GetInt64("log-segment-bytes")
	cfg.SnapshotBytes, _ = f.GetInt64("snapshot-bytes")
	cfg.DiskReserve, _ = f.GetInt64("disk-reserve-bytes")
	cfg.HistoryBytes, _ = f.GetInt64("history-bytes")
	cfg.MemoryLimit, _ = f.GetInt64("memory-limit")
	cfg.MaxConnections, _ = f.GetInt("max-connections")
	cfg.AuditLog = text(c, "audit-log")
	cfg.AuditLogBytes, _ = f.GetInt64("audit-log-bytes")
	cfg.AuditLogKeep, _ = f.GetInt("audit-log-keep")
	cfg.BackupDir = text(c, "backup-dir")
	cfg.BackupEvery, _ = f.GetDuration("backup-every")
	cfg.BackupKeep, _ = f.GetInt("backup-keep")
	cfg.CheckpointInterval, _ = f.GetDuration("checkpoint-interval")
	cfg.CutOffAfter, _ = f.GetDuration("cut-off-after")
	cfg.Grace, cfg.ReturnTime = really(c, "grace"), really(c, "return-time")
	if cfg.Drift, _ = f.GetFloat64("drift"); cfg.Drift == 0 {
		cfg.Drift = server.ZeroDrift
	}
	for _, name := range []string{
		"disk-reserve-bytes", "history-bytes", "max-connections", "audit-log-bytes", "audit-log-keep",
		"backup-every", "backup-keep", "checkpoint-interval", "cut-off-after",
	} {
		if v := f.Lookup(name).Value.String(); v == "0" || v == "0s" { // which a Config takes for the default
			return cfg, usageError{fmt.Sprintf("%s: 0 is out of its range: leave it out for the default, %s", name, f.Lookup(name).DefValue)}
		}
	}
	if play, _ := f.GetBool("play"); play && !cfg.Dev {
		return cfg, usageError{"--play goes with --dev"}
	}
	return cfg, nil
}

// really is a duration of which 0 was meant: the flag has the default already.
func really(c *cobra.Command, name string) time.Duration {
	d, _ := c.Flags().GetDuration(name)
	if d == 0 {
		return server.Zero
	}
	return d
}

// openLog returns a log on standard error whose level can change.
func openLog(c *cobra.Command, env *environment) (*server.Log, *slog.LevelVar, error) {
	var level slog.LevelVar
	if err := level.UnmarshalText([]byte(text(c, "log-level"))); err != nil {
		return nil, nil, usageError{fmt.Sprintf("log level %q is none of debug, info, warn, error", text(c, "log-level"))}
	}
	form, err := logFormat(c)
	if err != nil {
		return nil, nil, err
	}
	return server.NewLog(env.stderr, form, &level), &level, nil
}

func logFormat(c *cobra.Command) (form string, err error) {
	if form = text(c, "log-format"); form != server.LogText && form != server.LogJSON {
		return "", usageError{fmt.Sprintf("log format %q is neither text nor json", form)}
	}
	return form, nil
}

// logFlush is how long a server that ends waits for its log to be written, and
// again for its last word. Together they are less than the two seconds within
// which a server that met a fault is gone.
const logFlush = 700 * time.Millisecond

func runServer(c *cobra.Command, env *environment) error {
	// Whoever reads the log may go, and the server stays: a write fails instead.
	signal.Ignore(syscall.SIGPIPE)
	log, level, err := openLog(c, env)
	if err != nil {
		return err
	}
	err = runLogged(c, env, log, level)
	log.Close(logFlush)
	if err == nil {
		return nil
	}
	// What main would say, but not for ever: the process has to end, also where
	// nobody reads why.
	writeWithin(logFlush, env.stderr, "incumbent: "+errorText(err)+"\n")
	return statusError{code: exitCode(err)}
}

// writeWithin writes text, and does not wait longer for whoever is to read it.
func writeWithin(limit time.Duration, to *os.File, text string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = to.WriteString(text) // nobody is left to tell
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

func runLogged(c *cobra.Command, env *environment, log *server.Log, level *slog.LevelVar) error {
	logger := log.Logger()
	cfg, err := serverConfig(c, logger)
	if err != nil {
		return err
	}
	cfg.JoinToken = joinToken(env)
	cfg.DroppedLines, cfg.Level = log.Dropped, level
	settings, err := resolveSettings(c, env)
	if err != nil {
		return err
	}
	for _, one := range settings {
		cfg.Settings = append(cfg.Settings, server.Setting(one))
	}
	// A member may wait for others as long as it takes before it is open: SIGHUP must not
	// end it meanwhile. One that came is obeyed once there is something to reload.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	s, err := server.OpenContext(c.Context(), cfg)
	if err != nil {
		return err
	}
	stopHangups := onHangup(hangups, func() {
		taken, stale := reloadSettings(c, env, logger, level, s.SetLimits)
		s.TookSettings(taken)
		s.Reload(stale...)
	})
	defer stopHangups()
	if err := welcome(c.Context(), env, s); err != nil {
		if c.Context().Err() != nil {
			return serve(c.Context(), s) // told to stop before the others had come
		}
		return giveUp(s, err)
	}
	play, _ := c.Flags().GetBool("play")
	if play {
		if err := playFleet(c.Context(), env, s.URL()); err != nil && c.Context().Err() == nil {
			return giveUp(s, err)
		}
	}
	if cfg.Dev {
		firstCommand(env, s)
	}
	return serve(c.Context(), s)
}

// reloadSettings takes the log level and the limits that the settings name by now.
// What is wrong with them is logged, the old stays in force, and its names are
// returned, as is what was taken. While the settings as a whole cannot be read, nothing of them is.
func reloadSettings(c *cobra.Command, env *environment, logger *slog.Logger, level *slog.LevelVar, setLimits func(server.Limits) error) (taken []server.Setting, stale []string) {
	settings, err := resolveSettings(c, env)
	if err != nil {
		logger.Warn("settings not reloaded", "cause", err)
		return nil, []string{"settings"}
	}
	take := func(names ...string) {
		for _, one := range settings {
			if slices.Contains(names, one.Name) {
				taken = append(taken, server.Setting(one))
			}
		}
	}
	if err := level.UnmarshalText([]byte(text(c, "log-level"))); err != nil {
		logger.Warn("log level not changed", "cause", err)
		stale = append(stale, "log level")
	} else {
		take("log-level")
	}
	var limits server.Limits
	limits.MaxConnections, _ = c.Flags().GetInt("max-connections")
	limits.MemoryLimit, _ = c.Flags().GetInt64("memory-limit")
	if err := setLimits(limits); err != nil {
		logger.Warn("limits not changed", "cause", err)
		stale = append(stale, "--max-connections and --memory-limit")
	} else {
		take("max-connections", "memory-limit")
	}
	return taken, stale
}

// serve waits for a signal, a fault, or until the member has left its cluster,
// and leaves in order; a second signal leaves at once. A fault ends it at once, also
// one met while leaving: nothing is left to be done in order.
func serve(ctx context.Context, s *server.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- s.Wait() }()
	select {
	case err := <-failed:
		if err != nil {
			return err
		}
	case <-ctx.Done():
	}
	again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	leave, cancel := context.WithTimeout(again, server.DefaultStopTimeout)
	defer cancel()
	left := make(chan error, 1)
	go func() { left <- s.Close(leave) }()
	for {
		select {
		case err := <-left:
			if again.Err() != nil && !s.Failed() {
				return nil // it was told to leave at once, which loses nothing
			}
			return err
		case err := <-failed:
			if err != nil {
				return err
			}
			failed = nil // it has left: Close is about to say so
		}
	}
}

// giveUp ends a server that did not come to serve, because of err. One that met a
// fault has nothing left to be done in order, and may wait for its disk for ever.
func giveUp(s *server.Server, err error) error {
	if s.Failed() {
		return err
	}
	leave, cancel := context.WithTimeout(context.Background(), server.DefaultStopTimeout)
	defer cancel()
	_ = s.Close(leave) // err says more
	return err
}

// onHangup calls reload for each hangup until stopped.
func onHangup(hangups <-chan os.Signal, reload func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-hangups:
				reload()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// aloneReadyTimeout is how long a member that is alone may take to serve.
const aloneReadyTimeout = 30 * time.Second

// welcome says where the server is once it serves. A member of several waits for
// the others as long as it takes.
func welcome(ctx context.Context, env *environment, s *server.Server) error {
	if s.PeerAddr() == "" {
		alone, cancel := context.WithTimeout(ctx, aloneReadyTimeout)
		defer cancel()
		ctx = alone
	}
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	// Where nobody reads it there is more to do than to wait.
	writeWithin(logFlush, env.stdout, fmt.Sprintf("incumbent %s serves %s (data in %s)\n", version, s.URL(), s.DataDir()))
	return nil
}

// firstCommand prints something to paste into another terminal.
func firstCommand(env *environment, s *server.Server) {
	self, err := os.Executable()
	if err != nil || !strings.HasSuffix(self, "incumbent") {
		self = "incumbent"
	}
	flag := ""
	if s.URL() != defaultServer {
		flag = " --server " + s.URL()
	}
	fmt.Fprintf(env.stdout, `
  native API   %[1]s   (metrics %[1]s/metrics, health %[1]s/readyz)

Try, in another terminal:

  %[2]s lease claim db/primary --holder me --ttl 1m%[3]s
  %[2]s lease explain db/primary%[3]s
  %[2]s status%[3]s

Ctrl-C stops the server.
`, s.URL(), self, flag)
}
