package server

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Defaults of [Config].
const (
	DefaultListen         = "127.0.0.1:7600"
	DefaultPeerListen     = "127.0.0.1:7601"
	DefaultDevDir         = "incumbent.data"
	DefaultSegmentBytes   = 64 << 20
	DefaultDevSegment     = 8 << 20
	DefaultGrace          = 500 * time.Millisecond
	DefaultDrift          = 0.01
	DefaultReturnTime     = 10 * time.Second
	DefaultMaxConnections = 16_000
	DefaultHistoryBytes   = 16 << 20
	DefaultDiskReserve    = 256 << 20
	DefaultStopTimeout    = 10 * time.Second
	DefaultBackupEvery    = 24 * time.Hour
	DefaultBackupKeep     = 7
	DefaultAuditLogBytes  = 64 << 20
	DefaultAuditLogKeep   = 10

	// DefaultCheckpointInterval is how often members compare their states.
	DefaultCheckpointInterval = time.Minute

	maxDrift = 0.1 // the lease loop takes no more

	minBackupEvery, maxBackupEvery = time.Minute, 30 * 24 * time.Hour
	maxBackupKeep                  = 10_000
	maxAuditLogKeep                = 10_000

	minCheckpointInterval = time.Second // hashing a large state takes longer
	maxCheckpointInterval = 24 * time.Hour
)

// Values that really mean 0, where 0 means the default.
const (
	Zero      = time.Duration(math.MinInt64) // of a duration
	ZeroDrift = -1.0
)

// Config says how one member runs. The zero value of a field means its
// default, given beside it.
type Config struct {
	DataDir string // required
	Name    string // as the data directory says, else the host's
	Listen  string // DefaultListen: native API, console, metrics, health
	Dev     bool   // one node for trying: smaller segments

	TLSCert, TLSKey string // PEM files; empty: plaintext, loopback only
	ClientCA        string // PEM file; clients then show a certificate it signed
	CredentialFile  string // bearer credentials
	Advertise       string // address others see; the listener's

	// Proxies are addresses whose connections begin with a PROXY header, at every
	// listener for clients: see package gate.
	Proxies []netip.Prefix
	// TrustLoopback says whether who connects from this machine, without TLS, is an
	// operator: see guard.go.
	TrustLoopback Trust

	Juju   Juju   // the door for Juju's agents
	Consul Consul // the door for Consul's clients
	OVSDB  OVSDB  // the door for clients of Open vSwitch's databases

	// PeerListen is where other members connect; DefaultPeerListen if the data
	// directory was made by init or join or a JoinToken is given, else no
	// address: the member stays alone. Any other address than loopback needs
	// the cluster's own authority (see Init).
	PeerListen    string
	PeerAdvertise string // HOST:PORT that other members see; the listener's
	// JoinToken lets a member with an empty data directory join the cluster that
	// made it, once, and is of no account later. A member of the same name that is not
	// connected is replaced: so one comes back that lost its disk. JoinFile holds one,
	// and need not be there where the directory is a member's.
	JoinToken string
	JoinFile  string
	Learner   bool // joining, stay a learner; of no account where the directory is a member's
	member    bool // it is: see named

	SegmentBytes  int64         // of one log segment; DefaultSegmentBytes, with Dev DefaultDevSegment
	SnapshotBytes int64         // of log between two snapshots, at most; four segments
	DiskReserve   int64         // free bytes below which growth is refused; DefaultDiskReserve
	Grace         time.Duration // the leader waits so much longer than a ttl; DefaultGrace; Zero: none
	Drift         float64       // clocks run at rates within ±Drift; DefaultDrift; ZeroDrift: the same rate
	ReturnTime    time.Duration // after a restart no lease expires sooner; DefaultReturnTime; Zero: as usual
	// CheckpointInterval is how often the members compare their states, if anything
	// was written since; 1 s to 24 h; DefaultCheckpointInterval.
	CheckpointInterval time.Duration

	// CutOffAfter is how long a member that knows a leader may confirm nothing
	// before it sends its clients to the others; 1 s to 1 h; DefaultCutOffAfter.
	CutOffAfter time.Duration

	// BackupDir is the folder into which one member of those that have one writes a
	// backup now and then: see schedule.go; "": this member writes none.
	BackupDir   string
	BackupEvery time.Duration // 1 min to 30 days; DefaultBackupEvery
	BackupKeep  int           // newest ones that stay in the folder; 1 to 10,000; DefaultBackupKeep

	// AuditLog is the file into which this member writes who changed what, or was not
	// let do it; AuditStderr, or AuditNone.
	AuditLog      string
	AuditLogBytes int64 // of one file, after which another is begun; DefaultAuditLogBytes
	AuditLogKeep  int   // older files that stay; 1 to 10,000; DefaultAuditLogKeep

	HistoryBytes   int64  // of changes kept for resuming watches; DefaultHistoryBytes
	MemoryLimit    int64  // resident ceiling that admission defends; 0: three quarters of what the control group may use, or the machine has
	MaxConnections int    // accepted at once; DefaultMaxConnections
	LogLevel       string // debug, info, warn, error; info

	Version  string
	Settings []Setting    // as resolved, for `config show --effective`
	Logger   *slog.Logger // discarded if nil
	// Level is that of the log, for who changes it while running; nil: nobody can.
	Level *slog.LevelVar
	// DroppedLines is how many lines of the log were dropped, as of Log; nil: none.
	DroppedLines func() uint64

	// What only tests set: the filesystem of log and snapshots (nil: the system's),
	// and the entries kept in memory behind a snapshot (0: the node's own default).
	fs vfs.FS
	// And how often the lease of backups is claimed (0: backupTick).
	tailEntries uint64
	backupTick  time.Duration
	// And the ttl of the lease of who runs checks (0: health.DefaultPresence).
	presence time.Duration
	// And the newest schema that this member says it knows (0: core.SchemaVersion).
	schema uint32
}

// knows is the newest schema of commands and snapshots that this member knows.
func (c *Config) knows() uint32 {
	if c.schema != 0 {
		return c.schema
	}
	return core.SchemaVersion
}

// Setting is one setting's value and where it came from.
type Setting struct{ Name, Value, Source string }

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	segment := int64(DefaultSegmentBytes)
	if c.Dev {
		segment = DefaultDevSegment
		c.DataDir = cmp.Or(c.DataDir, DefaultDevDir)
	}
	c.SegmentBytes = cmp.Or(c.SegmentBytes, segment)
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, 4*c.SegmentBytes)
	c.DiskReserve = cmp.Or(c.DiskReserve, DefaultDiskReserve)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.Drift = cmp.Or(c.Drift, DefaultDrift)
	c.ReturnTime = cmp.Or(c.ReturnTime, DefaultReturnTime)
	c.CheckpointInterval = cmp.Or(c.CheckpointInterval, DefaultCheckpointInterval)
	c.CutOffAfter = cmp.Or(c.CutOffAfter, DefaultCutOffAfter)
	c.BackupEvery = cmp.Or(c.BackupEvery, DefaultBackupEvery)
	c.BackupKeep = cmp.Or(c.BackupKeep, DefaultBackupKeep)
	c.backupTick = cmp.Or(c.backupTick, backupTick)
	c.AuditLogBytes = cmp.Or(c.AuditLogBytes, DefaultAuditLogBytes)
	c.AuditLogKeep = cmp.Or(c.AuditLogKeep, DefaultAuditLogKeep)
	c.HistoryBytes = cmp.Or(c.HistoryBytes, DefaultHistoryBytes)
	if c.MemoryLimit == 0 {
		c.MemoryLimit = DefaultMemoryLimit()
	}
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.LogLevel = cmp.Or(c.LogLevel, "info")
	if c.Name == "" {
		c.Name = cluster.HostName()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.DroppedLines == nil {
		c.DroppedLines = func() uint64 { return 0 }
	}
	if c.fs == nil {
		c.fs = vfs.OS{}
	}
	return c
}

// Validate returns an Invalid error that names the setting and what it may be: the
// first of what Problems finds without looking at files.
func (c Config) Validate() error {
	if found := c.withDefaults().problems(); len(found) > 0 {
		return found[0].Err
	}
	return nil
}

// problems is what is wrong with the values themselves; defaults are filled in.
func (c Config) problems() (found problems) {
	if c.DataDir == "" {
		found.add("data-dir", invalid("data-dir", "is not set").WithHint("give --data-dir DIR, or --dev to try"))
	}
	found.add("name", cluster.ValidName(c.Name))
	listen := cluster.ValidAddress("listen", c.Listen)
	found.add("listen", listen)
	c.peerProblems(&found)
	if listen == nil {
		found.add("listen", c.policy(c.expectsOwnTLS()).Check())
	}
	found.add("juju-listen", c.Juju.validate(c.Dev))
	found.add("consul-listen", c.Consul.validate(c.policy(c.expectsOwnTLS())))
	found.add("ovsdb-listen", c.OVSDB.validate(c.policy(c.expectsOwnTLS())))
	found.add("consul-dns-listen", c.Consul.validateDNS(c.policy(c.expectsOwnTLS())))
	if listen == nil && c.TrustLoopback == TrustOn && !c.policy(false).OnlyLoopback() {
		found.add("trust-loopback", invalid("trust-loopback", "goes with a native listener on loopback only: over TLS nobody is trusted for where they are"))
	}
	_, err := parseLevel(c.LogLevel)
	found.add("log-level", err)
	c.sizeProblems(&found)
	c.timeProblems(&found)
	return found
}

func (c Config) sizeProblems(found *problems) {
	for _, s := range []struct {
		name            string
		value, min, max int64
	}{
		{"log-segment-bytes", c.SegmentBytes, node.MinSegmentBytes, 1 << 30},
		{"snapshot-bytes", c.SnapshotBytes, 1 << 20, 1 << 40},
		{"disk-reserve-bytes", c.DiskReserve, 1 << 20, 1 << 40},
		{"history-bytes", c.HistoryBytes, 1 << 20, 1 << 40},
		{"memory-limit", c.MemoryLimit, minMemoryLimit, 1 << 46},
		{"max-connections", int64(c.MaxConnections), 1, 10_000_000},
		{"backup-keep", int64(c.BackupKeep), 1, maxBackupKeep},
		{"audit-log-bytes", c.AuditLogBytes, 1 << 20, 1 << 40},
		{"audit-log-keep", int64(c.AuditLogKeep), 1, maxAuditLogKeep},
	} {
		if s.value < s.min || s.value > s.max {
			found.add(s.name, invalid(s.name, "%d is outside %d to %d", s.value, s.min, s.max))
		}
	}
}

func (c Config) timeProblems(found *problems) {
	for _, s := range []struct {
		name       string
		value, max time.Duration
	}{
		{"grace", c.Grace, lease.MaxGrace},
		{"return-time", c.ReturnTime, lease.MaxReturn},
	} {
		if s.value != Zero && (s.value < 0 || s.value > s.max) {
			found.add(s.name, invalid(s.name, "%v is outside 0s to %v", s.value, s.max))
		}
	}
	if c.CheckpointInterval < minCheckpointInterval || c.CheckpointInterval > maxCheckpointInterval {
		found.add("checkpoint-interval", invalid("checkpoint-interval", "%v is outside %v to %v", c.CheckpointInterval, minCheckpointInterval, maxCheckpointInterval))
	}
	if c.BackupEvery < minBackupEvery || c.BackupEvery > maxBackupEvery {
		found.add("backup-every", invalid("backup-every", "%v is outside %v to %v", c.BackupEvery, minBackupEvery, maxBackupEvery))
	}
	if c.CutOffAfter < minCutOffAfter || c.CutOffAfter > maxCutOffAfter {
		found.add("cut-off-after", invalid("cut-off-after", "%v is outside %v to %v", c.CutOffAfter, minCutOffAfter, maxCutOffAfter))
	}
	if c.Drift != ZeroDrift && !(c.Drift >= 0 && c.Drift <= maxDrift) {
		found.add("drift", invalid("drift", "%v is outside 0 to %v", c.Drift, maxDrift))
	}
}

// peerProblems is what is wrong with what concerns other members.
func (c Config) peerProblems(found *problems) {
	if c.PeerListen != "" {
		found.add("peer-listen", cluster.ValidAddress("peer-listen", c.PeerListen))
	}
	if c.PeerAdvertise != "" {
		found.add("peer-advertise", cluster.ValidReachable("peer-advertise", c.PeerAdvertise))
	}
	if c.JoinToken != "" {
		_, err := ca.ParseToken(c.JoinToken)
		found.add("join-file", err)
	}
	if c.Learner && !c.member && c.JoinToken == "" && c.JoinFile == "" {
		found.add("learner", invalid("learner", "only a member that joins can be one").WithHint("give --join-file FILE too"))
	}
}

// expectsOwnTLS reports whether the listeners will have the certificate of the
// cluster's own authority: the directory has one, or whoever made the token had.
func (c Config) expectsOwnTLS() bool {
	if cluster.HasAuthority(c.DataDir) {
		return true
	}
	t, err := ca.ParseToken(c.JoinToken)
	return err == nil && t.CAHash != ""
}

// leaseConfig is how the lease loop is to behave. It has its own values for
// none: negative ones.
func (c Config) leaseConfig(alone bool) lease.Config {
	out := lease.Config{Drift: c.Drift, Grace: c.Grace, Return: c.ReturnTime}
	if out.Return == Zero {
		out.Return = 0
	}
	if !alone {
		// Rounds and frames wake other members: extensions wait for company.
		out.RoundGap = roundGap
	}
	return out
}

// roundGap is how far apart rounds of confirmation, and frames to the leader, are
// where they go to other members.
const roundGap = 2 * time.Millisecond

// reachable returns the address at which others are to dial a listener: what is
// advertised, else where it listens, if that says so.
func reachable(setting, listen, advertiseSetting, advertise string) (string, error) {
	if advertise != "" {
		return advertise, cluster.ValidReachable(advertiseSetting, advertise)
	}
	if err := cluster.ValidReachable(setting, listen); err != nil {
		return "", invalid(setting, "%q names no host and port that other members can dial", listen).
			WithHint("give --" + advertiseSetting + " HOST:PORT")
	}
	return listen, nil
}

// scheme is that of the native API's URL.
func (c Config) scheme(ownTLS bool) string {
	if c.TLSCert != "" || ownTLS {
		return "https://"
	}
	return "http://"
}

// joining is what it takes to join: from these addresses others and clients reach
// this member.
func (c Config) joining(peerAddress, url string) cluster.JoinConfig {
	return cluster.JoinConfig{
		DataDir: c.DataDir, Name: c.Name, Version: c.Version, Schema: c.knows(), Token: c.JoinToken, Learner: c.Learner,
		TLSCert: c.TLSCert, TLSKey: c.TLSKey, PeerAddress: peerAddress, ClientURL: url, Logger: c.Logger,
	}
}

// named is the configuration with the join token of its file, and a name: the one
// that init or an earlier start gave goes before that of the token, and both before
// the host's.
func (c Config) named() (Config, error) {
	if c.Dev {
		c.DataDir = cmp.Or(c.DataDir, DefaultDevDir)
	}
	r, err := cluster.ReadRecord(c.DataDir)
	joins := err != nil || r == nil || r.Joins()
	c.member = !joins
	if c.JoinToken == "" && c.JoinFile != "" {
		text, err := os.ReadFile(c.JoinFile)
		if err != nil && joins {
			return c, invalid("join-file", "%w", err).WithHint("'incumbent cluster token NAME' on a member prints what it is to hold")
		}
		c.JoinToken = strings.TrimSpace(string(text))
	}
	if c.Name != "" {
		return c, nil
	}
	if err == nil && r != nil {
		c.Name = r.Name
	} else if t, err := ca.ParseToken(c.JoinToken); err == nil {
		c.Name = t.Name
	}
	return c, nil
}

// Join makes an empty data directory a member of the cluster that made
// cfg.JoinToken; see [cluster.Join]. The addresses of cfg must be those the server
// will have: ports are not 0.
func Join(ctx context.Context, cfg Config) (cluster.Joined, error) {
	cfg, err := cfg.named()
	if err != nil {
		return cluster.Joined{}, err
	}
	cfg = cfg.withDefaults()
	cfg.PeerListen = cmp.Or(cfg.PeerListen, DefaultPeerListen)
	if cfg.JoinToken == "" {
		return cluster.Joined{}, invalid("join-file", "no token is given").WithHint("'incumbent cluster token NAME' on a member prints one")
	}
	if err := cfg.Validate(); err != nil {
		return cluster.Joined{}, err
	}
	peer, err := reachable("peer-listen", cfg.PeerListen, "peer-advertise", cfg.PeerAdvertise)
	if err != nil {
		return cluster.Joined{}, err
	}
	self, err := reachable("listen", cfg.Listen, "advertise", cfg.Advertise)
	if err != nil {
		return cluster.Joined{}, err
	}
	return cluster.Join(ctx, cfg.joining(peer, cfg.scheme(cfg.expectsOwnTLS())+self))
}

func parseLevel(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return 0, invalid("log-level", "%q is none of debug, info, warn, error", s)
	}
	return l, nil
}

func invalid(setting, format string, args ...any) *incumbent.Error {
	return incumbent.Errorf(incumbent.Invalid, "setting "+setting+": "+format, args...)
}
