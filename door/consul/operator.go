package consul

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Operator does what operators ask of a member by this door. A nil function: it cannot
// be done by it.
type Operator struct {
	TransferLeader func(to uint64) error // 0: to whichever member is fit
	RemoveMember   func(id uint64) error // which is not of the cluster any more
	Reload         func()                // reads again what can be read again
	Leave          func()                // ends this member in order; it stays a member
	// Monitor has line called with what is logged from level on, until stop: as text or as
	// JSON, on any goroutine. It must not wait.
	Monitor    func(level slog.Level, asJSON bool, line func([]byte)) (stop func())
	Prometheus func() (text []byte, contentType string, err error) // its metrics
}

// operatorRoutes speak of raft and of who votes.
func operatorRoutes() []route {
	return []route{
		{"/v1/operator/raft/configuration", methods{"GET": raftConfiguration}},
		{"/v1/operator/raft/peer", methods{"DELETE": raftRemovePeer}},
		{"/v1/operator/raft/transfer-leader", methods{"POST": raftTransferLeader}},
		{"/v1/operator/autopilot/configuration", methods{"GET": autopilotConfiguration}},
		{"/v1/operator/autopilot/health", methods{"GET": autopilotHealth}},
		{"/v1/operator/autopilot/state", methods{"GET": autopilotState}},
	}
}

type raftServer struct {
	ID              string
	Node            string
	Address         string
	Leader          bool
	ProtocolVersion string
	Voter           bool
	LastIndex       uint64
}

func raftConfiguration(d *Door, r *request) {
	out := struct {
		Servers []raftServer
		Index   uint64
	}{Servers: []raftServer{}}
	for _, m := range d.cfg.Cluster.Members() {
		out.Servers = append(out.Servers, raftServer{
			ID: d.ServerID(&m), Node: m.Name, Address: m.Address, Leader: m.Leader, ProtocolVersion: "3", Voter: m.Voter, LastIndex: uint64(d.view().Index()),
		})
	}
	r.json(http.StatusOK, out)
}

// raftRemovePeer removes a member by its id or its address.
func raftRemovePeer(d *Door, r *request) {
	id, address := r.query.Get("id"), r.query.Get("address")
	switch {
	case id == "" && address == "":
		r.fail(http.StatusBadRequest, "Must specify either ?id with the server's ID or ?address with IP:port of peer to remove")
		return
	case id != "" && address != "":
		r.fail(http.StatusBadRequest, "Must specify only one of ?id or ?address")
		return
	}
	for _, m := range d.cfg.Cluster.Members() {
		if id != "" && d.ServerID(&m) == id || address != "" && m.Address == address {
			r.operate(m.Name, d.cfg.Operator.RemoveMember, m.ID, nil)
			return
		}
	}
	what, which := "id", id
	if id == "" {
		what, which = "address", address
	}
	r.fail(http.StatusInternalServerError, "%s %q was not found in the Raft configuration", what, which)
}

func raftTransferLeader(d *Door, r *request) {
	to, id := uint64(0), r.query.Get("id")
	for _, m := range d.cfg.Cluster.Members() {
		if id != "" && d.ServerID(&m) == id {
			to = m.ID
		}
	}
	if id != "" && to == 0 {
		r.fail(http.StatusInternalServerError, "id %q was not found in the Raft configuration", id)
		return
	}
	r.operate("leadership", d.cfg.Operator.TransferLeader, to, map[string]bool{"Success": true})
}

// operate does something that takes its time, on a goroutine of its own: operators are
// few.
func (r *request) operate(subject string, do func(uint64) error, id uint64, answer any) {
	if do == nil {
		r.fail(http.StatusInternalServerError, "this member cannot do that")
		return
	}
	r.door.operations.Go(func() {
		err := do(id)
		r.operated(subject, r.method+" "+r.path, r.door.view().Index(), err)
		if err != nil {
			r.fail(http.StatusInternalServerError, "%s", textOf(err))
			return
		}
		if answer == nil {
			r.ok()
			return
		}
		r.json(http.StatusOK, answer)
	})
}

func textOf(err error) string {
	if e, ok := err.(*incumbent.Error); ok { //nolint:errorlint // an error that wraps one is not it
		return e.Message
	}
	return err.Error()
}

// ok answers that something was done, with nothing to say.
func (r *request) ok() { r.nothing() }

// autopilotConfiguration says how members are looked after: as Consul's defaults do,
// though nobody removes a member that is gone.
func autopilotConfiguration(_ *Door, r *request) {
	r.json(http.StatusOK, struct {
		CleanupDeadServers      bool
		LastContactThreshold    string
		MaxTrailingLogs         int
		MinQuorum               int
		ServerStabilizationTime string
		RedundancyZoneTag       string
		DisableUpgradeMigration bool
		UpgradeVersionTag       string
		CreateIndex             uint64
		ModifyIndex             uint64
	}{LastContactThreshold: "200ms", MaxTrailingLogs: 250, ServerStabilizationTime: "10s", CreateIndex: 1, ModifyIndex: 1})
}

type serverHealth struct {
	ID          string
	Name        string
	Address     string
	SerfStatus  string
	Version     string
	Leader      bool
	LastContact string
	LastTerm    uint64
	LastIndex   uint64
	Healthy     bool
	Voter       bool
	StableSince time.Time
}

// standingOf is how members stand: how many of those who vote may fail before nothing
// is decided any more.
func (d *Door) standingOf(members []Member) (servers []serverHealth, healthy bool, tolerance int) {
	healthy = true
	voters, alive := 0, 0
	st := d.engine.Node().Status()
	for i := range members {
		m := &members[i]
		s := serverHealth{
			ID: d.ServerID(m), Name: m.Name, Address: m.Address, SerfStatus: "alive", Version: Version, Leader: m.Leader, LastContact: "0s",
			LastTerm: st.Term, LastIndex: uint64(d.view().Index()), Healthy: m.Alive, Voter: m.Voter, StableSince: time.Unix(1, 0).UTC(),
		}
		if !m.Alive {
			s.SerfStatus, healthy = "failed", false
		}
		if m.Voter {
			voters++
			if m.Alive {
				alive++
			}
		}
		servers = append(servers, s)
	}
	return servers, healthy, max(0, alive-(voters/2+1))
}

// autopilotHealth is 429 where a member is not well.
func autopilotHealth(d *Door, r *request) {
	servers, healthy, tolerance := d.standingOf(d.cfg.Cluster.Members())
	status := http.StatusOK
	if !healthy {
		status = http.StatusTooManyRequests
	}
	r.json(status, struct {
		Healthy          bool
		FailureTolerance int
		Servers          []serverHealth
	}{healthy, tolerance, servers})
}

type serverState struct {
	serverHealth
	Meta       map[string]string
	NodeStatus string
	NodeType   string
	Status     string
}

func autopilotState(d *Door, r *request) {
	servers, healthy, tolerance := d.standingOf(d.cfg.Cluster.Members())
	out := struct {
		Healthy                    bool
		FailureTolerance           int
		OptimisticFailureTolerance int
		Servers                    map[string]serverState
		Leader                     string
		Voters                     []string
	}{Healthy: healthy, FailureTolerance: tolerance, OptimisticFailureTolerance: tolerance, Servers: map[string]serverState{}, Voters: []string{}}
	for _, s := range servers {
		state := serverState{serverHealth: s, Meta: map[string]string{}, NodeStatus: s.SerfStatus, NodeType: "voter", Status: "non-voter"}
		switch {
		case s.Leader:
			out.Leader, state.Status = s.ID, "leader"
		case s.Voter:
			state.Status = "voter"
		}
		if s.Voter {
			out.Voters = append(out.Voters, s.ID)
		}
		out.Servers[s.ID] = state
	}
	r.json(http.StatusOK, out)
}

// agentCallRoutes are what the agent is told to do.
func agentCallRoutes() []route {
	return []route{
		{"/v1/agent/join/", methods{"PUT": agentJoin}},
		{"/v1/agent/leave", methods{"PUT": agentLeave}},
		{"/v1/agent/force-leave/", methods{"PUT": agentForceLeave}},
		{"/v1/agent/reload", methods{"PUT": agentReload}},
		{"/v1/agent/metrics", methods{"GET": agentMetrics}},
		{"/v1/agent/monitor", methods{"GET": agentMonitor}},
	}
}

// agentJoin succeeds for the address of a member: others join with a token.
func agentJoin(d *Door, r *request) {
	for _, m := range d.cfg.Cluster.Members() {
		if m.Address == r.rest || strings.HasPrefix(m.Address, r.rest+":") {
			r.ok()
			return
		}
	}
	r.fail(http.StatusInternalServerError, "Failed to join %s: members join with a token: incumbent cluster token", r.rest)
}

// agentLeave ends this member in order, once it has been answered.
func agentLeave(d *Door, r *request) {
	if d.cfg.Operator.Leave == nil {
		r.fail(http.StatusInternalServerError, "this member cannot do that")
		return
	}
	r.operated("member", "leave", d.view().Index(), nil)
	r.ok()
	d.cfg.Operator.Leave()
}

// agentForceLeave removes a member that is gone; one that is there stays.
func agentForceLeave(d *Door, r *request) {
	for _, m := range d.cfg.Cluster.Members() {
		switch {
		case m.Name != r.rest:
		case m.Alive:
			r.ok()
			return
		default:
			r.operate(m.Name, d.cfg.Operator.RemoveMember, m.ID, nil)
			return
		}
	}
	r.fail(http.StatusInternalServerError, "agent: No node found with name '%s'", r.rest)
}

func agentReload(d *Door, r *request) {
	if d.cfg.Operator.Reload == nil {
		r.fail(http.StatusInternalServerError, "this member cannot do that")
		return
	}
	d.operations.Go(func() {
		d.cfg.Operator.Reload()
		r.operated("member", "reload", d.view().Index(), nil)
		r.ok()
	})
}

// gauge is a number as /v1/agent/metrics shows it.
type gauge struct {
	Name   string
	Value  float64
	Labels map[string]string
}

// wantsPrometheus reports whether metrics are asked for as Prometheus reads them, by a
// parameter or by what is accepted: the types, and the version of the second, that Consul
// looks for.
func (r *request) wantsPrometheus() bool {
	if r.query.Get("format") == "prometheus" {
		return true
	}
	for accepted := range strings.SplitSeq(r.header.Get("Accept"), ",") {
		kind, params, _ := strings.Cut(accepted, ";")
		first, _, _ := strings.Cut(params, ";")
		switch strings.ToLower(strings.Trim(kind, " ")) {
		case "application/openmetrics-text":
			return true
		case "text/plain":
			if strings.Trim(first, " ") == "version=0.4.0" {
				return true
			}
		}
	}
	return false
}

// agentMetrics shows the door's own numbers, or all of the member's as Prometheus reads
// them.
func agentMetrics(d *Door, r *request) {
	if r.wantsPrometheus() && d.cfg.Operator.Prometheus != nil {
		text, contentType, err := d.cfg.Operator.Prometheus()
		if err != nil {
			r.failFor(err)
			return
		}
		r.bytes(http.StatusOK, contentType, text)
		return
	}
	st := d.Stats()
	gauges := []gauge{}
	add := func(name string, v float64) {
		gauges = append(gauges, gauge{name, v, map[string]string{}})
	}
	add("consul.http.connections", float64(st.Connections))
	add("consul.rpc.queries_blocking", float64(st.Blocked))
	add("consul.raft.applied_index", float64(d.view().Index()))
	for i, n := range st.Answered {
		gauges = append(gauges, gauge{"consul.api.http", float64(n), map[string]string{"status": strconv.Itoa(i+1) + "xx"}})
	}
	r.json(http.StatusOK, struct {
		Timestamp string
		Gauges    []gauge
		Points    []any
		Counters  []any
		Samples   []any
	}{d.now().UTC().Format("2006-01-02 15:04:05 -0700 MST"), gauges, []any{}, []any{}, []any{}})
}
