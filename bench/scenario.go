// Package bench is the load tool: declarative scenarios, a fleet of agents with
// open-loop pacing, latency histograms for every second, and correctness as a
// metric. It speaks to servers over the network only and imports no server
// code.
//
// # One run
//
// A [Scenario] (YAML; the built-in ones are embedded) names a *play* and its
// numbers. [Run] starts or finds the servers, plays it, and writes a [Summary]
// with everything that was measured. Open loop unless the play says closed:
// latency counts from the intended start of a request, so that a server which
// stalls is charged for what it kept waiting.
//
// The requests of a flood are the exception. They are due at a rate, but each counts
// from when one of the flood's clients, of which there are so many, takes it up: how
// long it waited for that is in no latency. While all clients wait for answers at most
// as many requests wait for a client; those that are due beyond that are not sent, and
// the facts say how many (unsent_share). So latencies of floods say how long servers
// take for what they are sent. What a flood costs others is in the latencies of the
// agents and operators beside it, which are of the intended start.
//
// # Correctness
//
// Every play reports what its agents came to believe to a [Checker]: two
// holders at once, a holding lost although it was extended in time, a token
// that did not rise, a lease freed too early or too late. Any violation fails
// the run.
package bench

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/incumbent-dev/incumbent"
)

//go:embed scenarios/*.yaml
var builtin embed.FS

// cpuList is how taskset lists processors.
var cpuList = regexp.MustCompile(`^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`)

// Limits of a scenario.
const (
	maxScenarioBytes = 64 << 10
	maxStages        = 64
	maxAgents        = 5_000_000
	maxConnections   = 19_000     // one process may open 20,000 files
	maxWorkers       = 16         // processes of agents
	minPerSecond     = 0.001      // slower: its intended times leave the range of a Duration
	maxPerSecond     = 10_000_000 // more than any machine sends
)

// Scenario says what is played, with which numbers.
type Scenario struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	// Like is the built-in scenario, not like another itself, from which this one has what
	// it does not say. It is resolved when a scenario is loaded, and "" afterwards.
	Like string `yaml:"like,omitempty"`
	// Play is the kind of run: ladder, avalanche, idle, closed, watch, agents, resync, network, sizes.
	Play string `yaml:"play"`
	// Door is whose protocol is spoken: native; of a ladder also juju, where each agent
	// has a connection of its own; of idle and watch also consul, of idle, resync and sizes ovsdb,
	// and of closed loops the operation says. It brings the preset of its name.
	Door string `yaml:"door,omitempty"`
	// Workers is how many processes agents that have a connection each, as Juju's do, are
	// spread over at least; 0: as few as may open their connections.
	Workers int `yaml:"workers,omitempty"`

	TTL        Duration `yaml:"ttl,omitempty"`
	Every      Duration `yaml:"every,omitempty"`      // between two extensions of a holder
	Candidates int      `yaml:"candidates,omitempty"` // agents that want each lease
	// Connections is "shared" (sessions share streams) or "own" (a stream each).
	Connections       string `yaml:"connections,omitempty"`
	SessionsPerStream int    `yaml:"sessions_per_stream,omitempty"`
	// Beats: what sessions hold lives by the beats of their stream; else each holder's
	// extension is a request of its own.
	Beats bool `yaml:"beats,omitempty"`
	// PerModel is how many leases are in one model, one model after the other; 0: all are in none.
	PerModel int `yaml:"per_model,omitempty"`
	// HandOvers is how many held leases a second are released to their queues.
	HandOvers float64 `yaml:"hand_overs,omitempty"`
	Sources   int     `yaml:"sources,omitempty"` // 127.0.0.x addresses connections come from
	// Silent is how long a member may owe an answer before its agents go on at
	// another; 0: 1 s. It matters only with several members.
	Silent Duration `yaml:"silent,omitempty"`
	// Late is how long after its due time a lease may be freed before that is a
	// violation; 0: 1 s. A machine or a disk that stands still puts all deadlines
	// off by as long, which the load tool cannot tell.
	Late   Duration `yaml:"late,omitempty"`
	Stages []Stage  `yaml:"stages,omitempty"`
	// Fault names the one of Faults that is played on the last stage; empty: none.
	Fault  string              `yaml:"fault,omitempty"`
	Faults map[string][]Action `yaml:"faults,omitempty"`
	Closed *Closed             `yaml:"closed,omitempty"`
	// Bare is what is compared with. With Juju's agents: a loop of TLS handshakes with a
	// server that only accepts, played before and after the ladder. Over Consul's
	// protocol: a loop of as many connections as before, of which each asks a server that
	// always has the same answer at hand for one of the same length, played after.
	Bare *Closed `yaml:"bare,omitempty"`
	// Catalog is what is registered and watched over Consul's protocol.
	Catalog *Catalog `yaml:"catalog,omitempty"`
	// Ports is what a database holds over the protocol of Open vSwitch's databases.
	Ports *Ports `yaml:"ports,omitempty"`
	// Settle is how long to wait before the last measurement (idle, avalanche), or for
	// what is on its way then at most (watch).
	Settle Duration `yaml:"settle,omitempty"`
	// Edges: agents that are idle are at learners only; at the end one of those is killed.
	Edges bool `yaml:"edges,omitempty"`
	// Server are flags for the servers this run starts itself.
	Server []string `yaml:"server,omitempty"`
	// ServerCPUs are the processors that these servers have, together, in the form of
	// taskset ("0" or "0,2-3"); "": all of the machine's.
	ServerCPUs string `yaml:"server_cpus,omitempty"`

	Thresholds map[string]float64           `yaml:"thresholds,omitempty"` // at most
	Presets    map[string]map[string]string `yaml:"presets,omitempty"`    // name → settings as for --set
}

// Stage is one step of a ladder.
type Stage struct {
	Leases int      `yaml:"leases"` // held at its end
	Ramp   float64  `yaml:"ramp"`   // new agents a second
	Hold   Duration `yaml:"hold"`   // steady load after the ramp
}

// Closed is a closed loop: each worker waits for its answer before it asks again. Of
// the play watch the workers are watchers, and the rate is that of changes.
type Closed struct {
	Op       string   `yaml:"op,omitempty"` // extend, claim, create, session, refuse, turn, echo; of keys: kv-put, kv-get, kv-get-stale, kv-create, txn, txn-guarded; over the protocol of Consul: consul-put and so on; over that of Open vSwitch's databases: ovn-bind, ovn-count
	Workers  int      `yaml:"workers"`
	Streams  int      `yaml:"streams,omitempty"` // workers share so many; 0: a stream each
	Calls    bool     `yaml:"calls,omitempty"`   // of keys: by unary calls, a connection each, instead of streams
	Batch    int      `yaml:"batch,omitempty"`   // tokens in one extension, operations in one message or transaction
	Warmup   Duration `yaml:"warmup,omitempty"`
	Duration Duration `yaml:"duration"`
	Rate     float64  `yaml:"rate,omitempty"` // requests a second in all, open loop; 0: closed
	TTL      Duration `yaml:"ttl,omitempty"`  // of what is claimed; 0: an hour
	// A turn: so many workers want each lease; who wins holds it for a while; who
	// is refused pauses.
	Candidates int      `yaml:"candidates,omitempty"`
	Hold       Duration `yaml:"hold,omitempty"`
	Pause      Duration `yaml:"pause,omitempty"`
	ValueBytes int      `yaml:"value_bytes,omitempty"` // of keys: each value's length
	Beside     *Beside  `yaml:"beside,omitempty"`      // goes on meanwhile; not of keys
	Stock      *Stock   `yaml:"stock,omitempty"`       // is stored before; not of keys
}

// Duration is a time.Duration that YAML writes as "30s".
type Duration time.Duration

// UnmarshalYAML reads "30s".
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: %q is not a duration such as 30s", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes "30s".
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// List returns the names of the built-in scenarios in order.
func List() []string {
	entries, err := fs.ReadDir(builtin, "scenarios")
	if err != nil {
		panic("bench: embedded scenarios: " + err.Error()) // part of the binary
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	sort.Strings(names)
	return names
}

// Source returns the YAML of a built-in scenario, or of a file.
func Source(name string) ([]byte, error) {
	if data, err := builtin.ReadFile(path.Join("scenarios", name+".yaml")); err == nil {
		return data, nil
	}
	if !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml") {
		return nil, incumbent.Errorf(incumbent.NotFound, "no scenario %q", name).WithHint("'incumbent bench ls' lists them; a file ends in .yaml")
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "scenario: %w", err)
	}
	return data, nil
}

// Load reads a scenario and applies settings: "key=value" with the key a dotted
// path ("stages.0.leases"), or "scale=NAME" for one of its presets.
func Load(name string, settings map[string]string) (*Scenario, error) {
	data, err := Source(name)
	if err != nil {
		return nil, err
	}
	return parse(name, data, settings)
}

func parse(name string, data []byte, settings map[string]string) (*Scenario, error) {
	bad := func(format string, args ...any) error {
		return incumbent.Errorf(incumbent.Invalid, "scenario %s: "+format, append([]any{name}, args...)...)
	}
	if len(data) > maxScenarioBytes {
		return nil, incumbent.Errorf(incumbent.TooLarge, "scenario %s has %d bytes, limit is %d", name, len(data), maxScenarioBytes)
	}
	data, err := whole(data)
	if err != nil {
		return nil, bad("%w", err)
	}
	first, err := decode(data)
	if err != nil {
		return nil, bad("%w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, bad("%w", err)
	}
	all, err := withPreset(first, settings)
	if err != nil {
		return nil, bad("%w", err)
	}
	for _, key := range sortedKeys(all) {
		if err := setPath(&doc, key, all[key]); err != nil {
			return nil, bad("--set %s=%s: %w", key, all[key], err)
		}
	}
	changed, err := yaml.Marshal(&doc)
	if err != nil {
		return nil, bad("%w", err)
	}
	sc, err := decode(changed)
	if err != nil {
		return nil, bad("%w", err)
	}
	if err := sc.validate(); err != nil {
		return nil, bad("%w", err)
	}
	return sc, nil
}

func decode(data []byte) (*Scenario, error) {
	var sc Scenario
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&sc); err != nil {
		return nil, err
	}
	return &sc, nil
}

// withPreset lays explicit settings over those of the presets: of the door, of
// "scale", and of both ("smoke-juju"), where it is there.
func withPreset(sc *Scenario, settings map[string]string) (map[string]string, error) {
	all := make(map[string]string)
	door, scale := cmp.Or(settings["door"], sc.Door), settings["scale"]
	if _, known := sc.Presets[scale]; scale != "" && !known {
		return nil, fmt.Errorf("no preset %q; it has %s", scale, strings.Join(sortedKeys(sc.Presets), ", "))
	}
	for _, preset := range []string{door, scale, scale + "-" + door} {
		maps.Copy(all, sc.Presets[preset])
	}
	for k, v := range settings {
		if k != "scale" {
			all[k] = v
		}
	}
	return all, nil
}

// whole is a scenario with what it has from the one that it is like.
func whole(data []byte) ([]byte, error) {
	var own struct {
		Like string `yaml:"like"`
	}
	if err := yaml.Unmarshal(data, &own); err != nil {
		return nil, err
	}
	if own.Like == "" {
		return data, nil
	}
	base, err := builtin.ReadFile(path.Join("scenarios", own.Like+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("like %q: there is no such built-in scenario", own.Like)
	}
	var of, is yaml.Node
	if err := yaml.Unmarshal(base, &of); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &is); err != nil {
		return nil, err
	}
	for i := 0; i < len(of.Content[0].Content); i += 2 {
		if of.Content[0].Content[i].Value == "like" {
			return nil, fmt.Errorf("like %q: that is like another itself", own.Like)
		}
	}
	for i, said := 0, is.Content[0].Content; i+1 < len(said); i += 2 { // a mapping: it has the key like
		n, err := child(of.Content[0], said[i].Value)
		if err != nil {
			return nil, err
		}
		*n = *said[i+1]
	}
	like, err := child(of.Content[0], "like")
	if err != nil {
		return nil, err
	}
	*like = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}
	return yaml.Marshal(&of)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// setPath replaces the value at a dotted path; a whole value may be YAML, so
// that "stages" takes "[{leases: 100, ramp: 50, hold: 5s}]".
func setPath(doc *yaml.Node, key, value string) error {
	var v yaml.Node
	if err := yaml.Unmarshal([]byte(value), &v); err != nil || len(v.Content) == 0 {
		return fmt.Errorf("not a value: %q", value)
	}
	if len(doc.Content) == 0 {
		return fmt.Errorf("the scenario is empty")
	}
	n := doc.Content[0]
	parts := strings.Split(key, ".")
	for i, part := range parts {
		next, err := child(n, part)
		if err != nil {
			return err
		}
		if i == len(parts)-1 {
			*next = *v.Content[0]
			return nil
		}
		n = next
	}
	return nil
}

func child(n *yaml.Node, part string) (*yaml.Node, error) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				return n.Content[i+1], nil
			}
		}
		// New keys are checked when the result is decoded.
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: part}, &yaml.Node{Kind: yaml.ScalarNode})
		return n.Content[len(n.Content)-1], nil
	case yaml.SequenceNode:
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 || i >= len(n.Content) {
			return nil, fmt.Errorf("%q is no place in a list of %d", part, len(n.Content))
		}
		return n.Content[i], nil
	}
	return nil, fmt.Errorf("nothing below %q", part)
}

func (sc *Scenario) validate() error {
	switch {
	case plays[sc.Play] == nil:
		return fmt.Errorf("play %q is none of %s", sc.Play, strings.Join(sortedKeys(plays), ", "))
	case sc.Door != "" && sc.Door != "native" && (sc.Door != doorJuju || sc.Play != "ladder") && (sc.Door != doorConsul || sc.Play != "idle" && sc.Play != "watch") && (sc.Door != doorOVSDB || sc.Play != "idle" && sc.Play != "resync" && sc.Play != "sizes"):
		return fmt.Errorf("door %q: a ladder speaks native or juju, watch native or consul, resync and sizes ovsdb, and idle native, consul or ovsdb", sc.Door)
	case sc.Play == "network" && sc.Closed == nil:
		return fmt.Errorf("play network needs closed")
	case (sc.Play == "resync" || sc.Play == "sizes") && sc.Door != doorOVSDB:
		return fmt.Errorf("play %s is for the door ovsdb", sc.Play)
	case sc.ServerCPUs != "" && !cpuList.MatchString(sc.ServerCPUs):
		return fmt.Errorf("server_cpus is %q; it lists processors: 0, 0-1 or 0,2-3", sc.ServerCPUs)
	case sc.Workers < 0 || sc.Workers > maxWorkers:
		return fmt.Errorf("workers is %d; it must be 0 to %d", sc.Workers, maxWorkers)
	case sc.Connections != "" && sc.Connections != "shared" && sc.Connections != "own":
		return fmt.Errorf("connections %q is neither shared nor own", sc.Connections)
	case sc.Candidates < 0 || sc.PerModel < 0 || sc.SessionsPerStream < 0 || sc.SessionsPerStream > 1000 || sc.Sources < 0 || sc.Sources > 250:
		return fmt.Errorf("candidates, per_model, sessions_per_stream (at most 1000) or sources (at most 250) is out of range")
	case sc.Edges && (sc.Play != "idle" || sc.Door != "" && sc.Door != "native" || sc.Connections == "own"):
		return fmt.Errorf("edges are for play idle over the native door, whose agents share streams")
	case sc.HandOvers != 0 && !perSecond(sc.HandOvers):
		return fmt.Errorf("hand_overs is %v; it must be 0, or %v to %d", sc.HandOvers, minPerSecond, maxPerSecond)
	case len(sc.Stages) > maxStages:
		return fmt.Errorf("%d stages, limit is %d", len(sc.Stages), maxStages)
	}
	for _, name := range sortedKeys(sc.Thresholds) {
		if limit := sc.Thresholds[name]; math.IsNaN(limit) || math.IsInf(limit, 0) {
			return fmt.Errorf("threshold %s is no number", name)
		}
	}
	if err := sc.validateFaults(); err != nil {
		return err
	}
	if err := sc.validateConsul(); err != nil {
		return err
	}
	if err := sc.validateOVN(); err != nil {
		return err
	}
	if sc.Play == "agents" {
		return sc.validateAgents()
	}
	if sc.Play == "closed" || sc.Play == "network" {
		return sc.Closed.validate()
	}
	if sc.Play == "sizes" { // they say all that is played
		return nil
	}
	if sc.Play == "watch" {
		return sc.Closed.validateFanOut()
	}
	if sc.Bare != nil && sc.Door != doorConsul {
		if sc.Door != doorJuju {
			return fmt.Errorf("bare is for the door juju, and for that of Consul's clients: there is nothing else to compare with")
		}
		if err := sc.Bare.validateHandshakes(); err != nil {
			return fmt.Errorf("bare: %w", err)
		}
	}
	if len(sc.Stages) > 0 && (sc.Door == doorConsul || sc.Door == doorOVSDB) { // they hold no leases
		return sc.validateStages()
	}
	if err := incumbent.ValidateTTL(time.Duration(sc.TTL)); err != nil {
		return err
	}
	if sc.Every <= 0 || sc.Every >= sc.TTL {
		return fmt.Errorf("every is %v; it must be more than 0 and less than the ttl %v", time.Duration(sc.Every), time.Duration(sc.TTL))
	}
	if len(sc.Stages) == 0 {
		return fmt.Errorf("no stages")
	}
	return sc.validateStages()
}

// echoes reports whether the run wants the bare echo instead of a server.
func (sc *Scenario) echoes() bool { return sc.Closed != nil && sc.Closed.Op == "echo" }

// perSecond reports whether a rate can be kept; NaN and Inf cannot.
func perSecond(rate float64) bool { return rate >= minPerSecond && rate <= maxPerSecond }

func (sc *Scenario) validateStages() error {
	leases, candidates := 1, max(1, sc.Candidates)
	own, most := sc.Connections == "own" || sc.Play == "idle" && !sc.Edges, maxConnections
	if sc.Door == doorJuju || sc.Play == "agents" {
		own = true
	}
	if sc.Door == doorJuju || sc.Play == "agents" || sc.Play == "ladder" { // other processes have those that this one may not
		most = maxWorkers * processConns
	}
	for i, s := range sc.Stages {
		switch {
		case s.Leases < leases:
			return fmt.Errorf("stage %d: %d leases; there must be one at least, and not fewer than before", i, s.Leases)
		case !perSecond(s.Ramp):
			return fmt.Errorf("stage %d: ramp is %v; it must be %v to %d", i, s.Ramp, minPerSecond, maxPerSecond)
		case s.Leases > maxAgents/candidates: // a product could overflow
			return fmt.Errorf("stage %d: %d candidates for each of %d leases, limit is %d agents", i, candidates, s.Leases, maxAgents)
		case own && s.Leases*candidates > most:
			return fmt.Errorf("stage %d: %d connections, a run may open %d", i, s.Leases*candidates, most)
		}
		leases = s.Leases
	}
	return nil
}

func (c *Closed) validate() error {
	switch {
	case c == nil:
		return fmt.Errorf("play closed needs closed")
	case closedOps[c.Op] == nil:
		return fmt.Errorf("closed.op %q is none of %s", c.Op, strings.Join(sortedKeys(closedOps), ", "))
	case c.Workers < 1 || c.Workers > maxConnections || c.Streams < 0 || c.Streams > c.Workers:
		return fmt.Errorf("closed.workers must be 1 to %d, and streams at most as many", maxConnections)
	case c.Batch < 0 || c.Batch > 10_000 || c.Duration <= 0:
		return fmt.Errorf("closed.batch must be 0 to 10,000, duration positive")
	case c.Rate != 0 && !perSecond(c.Rate):
		return fmt.Errorf("closed.rate is %v; it must be 0, or %v to %d", c.Rate, minPerSecond, maxPerSecond)
	case closedOps[c.Op].turns && (c.Batch > 1 || c.Rate > 0):
		return fmt.Errorf("closed.op turn: a candidate has one request under way, in closed loop")
	case closedOps[c.Op].door != "" && (c.Batch > 1 || c.Streams > 0 || c.Calls || c.Rate > 0 || c.Beside != nil || c.Stock != nil):
		return fmt.Errorf("closed.op %s: a worker has a connection, with one request under way, in closed loop", c.Op)
	case closedOps[c.Op].callers != nil && (c.Batch > 1 && !closedOps[c.Op].batches || c.Rate > 0 || c.Beside != nil || c.Stock != nil):
		return fmt.Errorf("closed.op %s: a worker has one call under way, in closed loop", c.Op)
	case closedOps[c.Op].callers != nil && closedOps[c.Op].door != doorOVSDB && (c.ValueBytes < numberBytes || c.ValueBytes > maxValueBytes):
		return fmt.Errorf("closed.value_bytes must be %d to %d", numberBytes, maxValueBytes)
	case c.Candidates < 0 || c.TTL != 0 && incumbent.ValidateTTL(time.Duration(c.TTL)) != nil:
		return fmt.Errorf("closed.candidates or closed.ttl is out of range")
	case closedOps[c.Op].echo && (c.Streams != 0 && c.Streams != c.Workers || c.Batch > 1):
		return fmt.Errorf("closed.op echo: an echo names nobody, so each worker has a stream of its own and a batch of one")
	}
	if err := c.Stock.validate(); err != nil {
		return err
	}
	return c.Beside.validate()
}
