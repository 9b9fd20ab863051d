package calls

import (
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
)

// Call is one call, in whichever way it is made.
type Call uint8

// The calls. Each has a row below.
const (
	Claim Call = iota
	Extend
	Release
	LeaveQueue
	Revoke
	Transfer
	Pin
	Unpin
	Batch
	GetLease
	ListLeases
	WatchLeases
	WaitReleased
	IfHeld

	OpenSession
	CloseSession
	GetSession
	ListSessions
	Attach
	Beat
	IfSession

	GetKey
	ListKeys
	WatchKeys
	PutKey
	LockKey
	UnlockKey
	DeleteKey
	IfKeys

	Txn

	Status
	Events
	Members
	Operate
	TakeBackup
	Join
	Policies
	Settings
	Trust
	CreateCredential
	RevokeCredential
	ListCredentials

	OpenStream
	StartSession
	OfStream
	Health
	Following // of health
	Reflection
	Liveness
	Metrics
	Profiles

	JujuClaim
	JujuBlock
	JujuPin
	JujuPinned
	JujuSingular
	JujuSingularWait
	JujuPing
	JujuLogin

	ConsulStanding
	ConsulAgent
	ConsulOperate
	ConsulTokens
	ConsulDistance
	ConsulReadKeys
	ConsulWriteKey
	ConsulDeleteKey
	ConsulTxn
	ConsulNodes
	ConsulServices
	ConsulRegister
	ConsulDeregister
	ConsulCheck
	ConsulOpenSession
	ConsulCloseSession
	ConsulRenewSession
	ConsulReadSessions
	ConsulFireEvent
	ConsulReadEvents
	ConsulQueries
	ConsulChangeQuery
	ConsulSnapshot

	OvsdbStanding
	OvsdbRead
	OvsdbOwn
	OvsdbTransact
	OvsdbMonitor
	OvsdbMonitorChange
	OvsdbLock
	OvsdbSteal
	OvsdbConvert
	OvsdbControl

	Register
	Deregister
	UpdateCheck
	ListNodes
	ListServices
	HealthOfService
	WatchService

	ListDatabases
	GetSchema
	DefineSchema
	DropDatabase
	SelectRows
	TransactTables
	WatchTables
	LoadTables

	NumCalls
)

const (
	leases       = "/incumbent.v1.LeaseService/"
	sessions     = "/incumbent.v1.SessionService/"
	keys         = "/incumbent.v1.KeyValueService/"
	transactions = "/incumbent.v1.TransactionService/"
	cluster      = "/incumbent.v1.ClusterService/"
	policies     = "/incumbent.v1.PolicyService/"
	catalogue    = "/incumbent.v1.CatalogService/"
	tables       = "/incumbent.v1.TableService/"
	settings     = "/incumbent.v1.SettingsService/"
	trust        = "/incumbent.v1.TrustService/"
	credentials  = "/incumbent.v1.CredentialService/"
	health       = "/grpc.health.v1.Health/"
	reflection   = "/grpc.reflection."
)

// table is the whole table. The tests of this package and of the doors look for what
// is missing.
var table = [NumCalls]Row{
	Claim:        {Action: auth.Claim, Judged: Named, Lane: admit.Claims, Ways: []string{leases + "Claim", "operation.claim", "step.claim"}},
	Extend:       {Action: auth.Extend, Judged: Named, Lane: admit.Extensions, Or: []admit.Lane{admit.Critical}, Note: "a critical lease's: critical", Ways: []string{leases + "Extend", "operation.extend", "frame.extend_tokens"}},
	Release:      {Action: auth.Release, Judged: Named, Lane: admit.Releases, Ways: []string{leases + "Release", "operation.release", "step.release"}},
	LeaveQueue:   {Action: auth.Release, Judged: Named, Lane: admit.Releases, Ways: []string{leases + "LeaveQueue", "operation.leave_queue"}},
	Revoke:       {Action: auth.Revoke, Judged: Named, Lane: admit.Releases, Ways: []string{leases + "Revoke", "operation.revoke"}},
	Transfer:     {Action: auth.Transfer, Judged: Named, Lane: admit.Small, Ways: []string{leases + "Transfer", "operation.transfer"}},
	Pin:          {Action: auth.Pin, Judged: Named, Lane: admit.Small, Ways: []string{leases + "Pin", "operation.pin"}},
	Unpin:        {Action: auth.Pin, Judged: Named, Lane: admit.Small, Ways: []string{leases + "Unpin", "operation.unpin"}},
	Batch:        {Judged: Steps, Lane: admit.Extensions, Or: []admit.Lane{admit.Critical}, Note: "that of its operation which is refused first", Ways: []string{leases + "Batch", "frame.operation"}},
	GetLease:     {Action: auth.Read, Judged: Named, Lane: admit.Reads, Stale: admit.Small, Look: true, Note: "an operator's, as a call of its own, is never refused", Ways: []string{leases + "Get", "frame.get"}},
	ListLeases:   {Action: auth.Read, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Note: "shows what its caller may see", Ways: []string{leases + "List"}},
	WatchLeases:  {Action: auth.Watch, Judged: Named, Lane: admit.Watches, Note: "shows what its caller may watch", Ways: []string{leases + "Watch", "frame.watch"}},
	WaitReleased: {Action: auth.Watch, Judged: Named, Lane: admit.Watches, Ways: []string{leases + "WaitReleased", "frame.wait_released"}},
	IfHeld:       {Action: auth.Read, Judged: Named, Lane: NoLane, Note: "its transaction's lane", Ways: []string{"condition.held"}},

	OpenSession:  {Action: auth.SessionOpen, Judged: Named, Lane: admit.Claims, Ways: []string{sessions + "OpenSession", "operation.open_session"}},
	CloseSession: {Action: auth.SessionClose, Judged: Named, Lane: admit.Releases, Ways: []string{sessions + "CloseSession", "operation.close_session"}},
	GetSession:   {Action: auth.SessionRead, Judged: Named, Lane: admit.Reads, Stale: admit.Small, Look: true, Note: "small for further pages of what is attached to the stream; an operator's, as a call of its own, is never refused", Ways: []string{sessions + "GetSession", "frame.get_session"}},
	ListSessions: {Action: auth.SessionRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Note: "shows what its caller may see", Ways: []string{sessions + "ListSessions"}},
	Attach:       {Action: auth.SessionUse, Judged: Named, Lane: admit.Small, Ways: []string{"frame.attach"}},
	Beat:         {Action: auth.SessionUse, Judged: Named, Lane: admit.Extensions, Ways: []string{"frame.beat"}},
	IfSession:    {Action: auth.SessionRead, Judged: Named, Lane: NoLane, Note: "its transaction's lane", Ways: []string{"condition.session_open"}},

	GetKey:    {Action: auth.KeyRead, Judged: Named, Lane: admit.Small, Stale: admit.Small, Or: []admit.Lane{admit.Watches}, Ways: []string{keys + "Get", "step.get", "frame.get_key"}},
	ListKeys:  {Action: auth.KeyRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Or: []admit.Lane{admit.Watches}, Note: "shows what its caller may see; in a transaction all must be", Ways: []string{keys + "List", "step.list", "frame.list_keys"}},
	WatchKeys: {Action: auth.KeyWatch, Judged: Named, Lane: admit.Watches, Note: "shows what its caller may watch", Ways: []string{keys + "Watch", "frame.watch_keys"}},
	PutKey:    {Action: auth.KeyWrite, Judged: Named, Lane: admit.Small, Ways: []string{keys + "Put", "step.put", "frame.put"}},
	LockKey:   {Action: auth.KeyWrite, Judged: Named, Lane: admit.Small, Ways: []string{keys + "Lock", "step.lock", "frame.lock"}},
	UnlockKey: {Action: auth.KeyWrite, Judged: Named, Lane: admit.Releases, Ways: []string{keys + "Unlock", "step.unlock", "frame.unlock"}},
	DeleteKey: {Action: auth.KeyWrite, Judged: Named, Lane: admit.Releases, Note: "of a tree, all below the prefix", Ways: []string{keys + "Delete", "step.delete", "frame.delete"}},
	IfKeys:    {Action: auth.KeyRead, Judged: Named, Lane: NoLane, Note: "its transaction's lane; of a range, all below the prefix", Ways: []string{"condition.key", "condition.range"}},

	Txn: {Judged: Steps, Lane: admit.Transactions, Or: []admit.Lane{admit.Claims, admit.Releases}, Note: "claims if it claims, releases if it only deletes and releases", Ways: []string{transactions + "Txn", "frame.txn"}},

	Status:  {Action: auth.Status, Judged: First, Lane: NoLane, Ways: []string{cluster + "Status"}},
	Events:  {Action: auth.Status, Judged: First, Lane: NoLane, Ways: []string{cluster + "Events"}},
	Members: {Action: auth.Discover, Judged: First, Lane: NoLane, Note: "needs no policy: clients find other members by it", Ways: []string{cluster + "Members"}},
	Operate: {Action: auth.Admin, Judged: First, Lane: NoLane, Ways: []string{
		cluster + "Snapshot", cluster + "StateHash", cluster + "Settings", cluster + "CreateToken", cluster + "RemoveMember",
		cluster + "PromoteMember", cluster + "TransferLeader", cluster + "Leave",
	}},
	TakeBackup: {Action: auth.Admin, Judged: First, Lane: NoLane, Ways: []string{cluster + "Backup"}},
	Join:       {Judged: Token, Lane: NoLane, Ways: []string{cluster + "Join"}},
	Policies: {Action: auth.Admin, Judged: First, Lane: admit.Critical, Stale: admit.Critical, Ways: []string{
		policies + "SetPolicy", policies + "DeletePolicy", policies + "GetPolicy", policies + "ListPolicies", policies + "TestPolicy",
	}},
	Settings: {Action: auth.Admin, Judged: First, Lane: admit.Critical, Stale: admit.Critical, Ways: []string{
		settings + "GetSettings", settings + "SetSetting", settings + "SettingsHistory",
	}},
	Trust: {Action: auth.Admin, Judged: First, Lane: NoLane, Ways: []string{trust + "GetTrust", trust + "Rotate", trust + "RevokeToken"}},

	CreateCredential: {Action: auth.Admin, Judged: First, Lane: admit.Critical, Ways: []string{credentials + "Create", credentials + "Sign"}},
	RevokeCredential: {Action: auth.Admin, Judged: First, Lane: admit.Critical, Ways: []string{credentials + "Revoke"}},
	ListCredentials:  {Action: auth.Admin, Judged: First, Lane: admit.Critical, Ways: []string{credentials + "List"}},

	Register:        {Judged: Steps, Lane: admit.Claims, Note: "write on services for each of them; write on nodes for one, or a check of one", Ways: []string{catalogue + "Register"}},
	Deregister:      {Judged: Steps, Lane: admit.Releases, Note: "write on services for each of them; write on nodes for one, or a check of one", Ways: []string{catalogue + "Deregister"}},
	UpdateCheck:     {Judged: Steps, Lane: admit.Extensions, Note: "write on services for each of them; write on nodes for one, or a check of one", Ways: []string{catalogue + "UpdateCheck"}},
	ListNodes:       {Action: auth.NodeRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Note: "shows what its caller may see", Ways: []string{catalogue + "ListNodes"}},
	ListServices:    {Action: auth.ServiceRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Note: "shows what its caller may see", Ways: []string{catalogue + "ListServices"}},
	HealthOfService: {Action: auth.ServiceRead, Judged: Named, Lane: admit.Small, Stale: admit.Small, Or: []admit.Lane{admit.Watches}, Ways: []string{catalogue + "Health"}},
	WatchService:    {Action: auth.ServiceRead, Judged: Named, Lane: admit.Watches, Ways: []string{catalogue + "WatchService", "frame.watch_service"}},

	ListDatabases:  {Action: auth.TableRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Note: "shows what its caller may see", Ways: []string{tables + "ListDatabases"}},
	GetSchema:      {Action: auth.TableRead, Judged: Named, Lane: admit.Small, Stale: admit.Small, Ways: []string{tables + "GetSchema"}},
	DefineSchema:   {Action: auth.TableDefine, Judged: Named, Lane: admit.Transactions, Ways: []string{tables + "DefineSchema"}},
	DropDatabase:   {Action: auth.TableDefine, Judged: Named, Lane: admit.Releases, Ways: []string{tables + "DropDatabase"}},
	SelectRows:     {Action: auth.TableRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Ways: []string{tables + "Select"}},
	TransactTables: {Judged: Steps, Lane: admit.Transactions, Note: "see on tables; write, too, if it may change something; see on the leases of its locks", Ways: []string{tables + "Transact"}},
	WatchTables:    {Action: auth.TableWatch, Judged: Named, Lane: admit.Watches, Ways: []string{tables + "Watch", "frame.watch_tables"}},
	LoadTables:     {Action: auth.TableDefine, Judged: Named, Lane: admit.Transactions, Ways: []string{tables + "Load"}},

	OpenStream:   {Judged: Steps, Lane: admit.Logins, Note: "refused only while memory is short", Ways: []string{"/v1/stream"}},
	StartSession: {Judged: Steps, Lane: admit.Small, Note: "use of the session; to open it where it is not open, in the lane of that", Ways: []string{"frame.start"}},
	OfStream:     {Judged: Own, Lane: NoLane, Ways: []string{"frame.detach", "frame.unwatch", "frame.cancel"}},
	Health:       {Judged: Everyone, Lane: NoLane, Ways: []string{health + "Check"}},
	Following:    {Action: auth.Status, Judged: First, Lane: NoLane, Ways: []string{health + "Watch"}},
	Reflection: {Action: auth.Status, Judged: First, Lane: NoLane, Ways: []string{
		reflection + "v1.ServerReflection/ServerReflectionInfo", reflection + "v1alpha.ServerReflection/ServerReflectionInfo",
	}},
	Liveness: {Judged: Everyone, Lane: NoLane, Ways: []string{"GET /livez", "GET /readyz", "GET /{$}"}},
	Metrics:  {Action: auth.Status, Judged: First, Lane: NoLane, Ways: []string{"GET /metrics"}},
	Profiles: {Action: auth.Debug, Judged: First, Lane: NoLane, Note: "on this machine", Ways: []string{
		"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/profile", "/debug/pprof/symbol", "/debug/pprof/trace",
	}},

	JujuClaim:        {Action: auth.Claim, Judged: Named, Lane: admit.Claims, Or: []admit.Lane{admit.Extensions}, Note: "of a present holder: extensions", Ways: []string{"juju.LeadershipService.ClaimLeadership"}},
	JujuBlock:        {Action: auth.Watch, Judged: Named, Lane: admit.Watches, Ways: []string{"juju.LeadershipService.BlockUntilLeadershipReleased"}},
	JujuPin:          {Action: auth.Claim, Judged: Named, Lane: admit.Small, Note: "of its own application", Ways: []string{"juju.LeadershipPinner.PinApplicationLeaders", "juju.LeadershipPinner.UnpinApplicationLeaders"}},
	JujuPinned:       {Action: auth.Read, Judged: Named, Lane: admit.Reads, Note: "of its own application, or of its model", Ways: []string{"juju.LeadershipPinner.PinnedLeadership"}},
	JujuSingular:     {Action: auth.Claim, Judged: Named, Lane: admit.Critical, Note: "controllers only", Ways: []string{"juju.Singular.Claim"}},
	JujuSingularWait: {Action: auth.Watch, Judged: Named, Lane: admit.Watches, Note: "controllers only", Ways: []string{"juju.Singular.Wait"}},
	JujuPing:         {Judged: Own, Lane: NoLane, Ways: []string{"juju.Pinger.Ping"}},
	JujuLogin:        {Judged: Token, Lane: admit.Logins, Note: "by tag and password", Ways: []string{"juju.Admin.Login"}},

	ConsulStanding: {Judged: Everyone, Lane: NoLane, Ways: []string{
		"consul.GET /v1/status/leader", "consul.GET /v1/status/peers", "consul.GET /v1/agent/connect/ca/roots", "consul.GET /v1/connect/ca/roots",
		"consul.GET /v1/coordinate/datacenters", "consul.GET /v1/coordinate/nodes", "consul.GET /v1/coordinate/node/",
	}},
	ConsulAgent: {Action: auth.Status, Judged: First, Lane: NoLane, Ways: []string{
		"consul.GET /v1/agent/self", "consul.GET /v1/agent/members", "consul.GET /v1/agent/version", "consul.GET /v1/agent/host", "consul.GET /v1/agent/metrics",
		"consul.GET /v1/operator/raft/configuration", "consul.GET /v1/operator/autopilot/configuration",
		"consul.GET /v1/operator/autopilot/health", "consul.GET /v1/operator/autopilot/state",
	}},
	ConsulReadKeys:  {Action: auth.KeyRead, Judged: Named, Lane: admit.Small, Stale: admit.Small, Or: []admit.Lane{admit.Reads, admit.Watches}, Note: "a list (?recurse, ?keys): reads, and shows what its caller may see; that waits: watches, with what a poll was told small", Ways: []string{"consul.GET /v1/kv/"}},
	ConsulWriteKey:  {Action: auth.KeyWrite, Judged: Named, Lane: admit.Small, Or: []admit.Lane{admit.Claims, admit.Releases}, Note: "locks (?acquire), with a session of its caller: claims, unless that has the lock; unlocks (?release): releases", Ways: []string{"consul.PUT /v1/kv/"}},
	ConsulDeleteKey: {Action: auth.KeyWrite, Judged: Named, Lane: admit.Releases, Note: "of a tree, all below the prefix", Ways: []string{"consul.DELETE /v1/kv/"}},
	ConsulTxn:       {Judged: Steps, Lane: admit.Transactions, Ways: []string{"consul.PUT /v1/txn"}},
	ConsulNodes: {Action: auth.NodeRead, Judged: Named, Lane: admit.Reads, Stale: admit.Small, Note: "shows what its caller may see; that waits: as of keys", Ways: []string{
		"consul.GET /v1/catalog/nodes", "consul.GET /v1/catalog/node/", "consul.GET /v1/catalog/node-services/", "consul.GET /v1/health/node/",
		"consul.GET /v1/catalog/datacenters", "consul.GET /v1/agent/checks",
	}},
	ConsulServices: {Action: auth.ServiceRead, Judged: Named, Lane: admit.Reads, Stale: admit.Small, Note: "shows what its caller may see; that waits: as of keys", Ways: []string{
		"consul.GET /v1/catalog/services", "consul.GET /v1/catalog/service/", "consul.GET /v1/catalog/connect/", "consul.GET /v1/catalog/gateway-services/",
		"consul.GET /v1/health/service/", "consul.GET /v1/health/connect/", "consul.GET /v1/health/ingress/", "consul.GET /v1/health/checks/", "consul.GET /v1/health/state/",
		"consul.GET /v1/agent/services", "consul.GET /v1/internal/ui/services", "consul.GET /v1/agent/service/", "consul.GET /v1/agent/health/service/id/", "consul.GET /v1/agent/health/service/name/",
	}},
	ConsulRegister: {Judged: Steps, Lane: admit.Claims, Note: "write on nodes, where it changes one or a check of one; write on services for each of them", Ways: []string{
		"consul.PUT /v1/catalog/register", "consul.PUT /v1/agent/service/register", "consul.PUT /v1/agent/check/register",
		"consul.PUT /v1/agent/service/maintenance/", "consul.PUT /v1/agent/maintenance",
	}},
	ConsulDeregister: {Judged: Steps, Lane: admit.Releases, Note: "as for what it deregisters", Ways: []string{
		"consul.PUT /v1/catalog/deregister", "consul.PUT /v1/agent/service/deregister/", "consul.PUT /v1/agent/check/deregister/",
	}},
	ConsulCheck: {Judged: Steps, Lane: admit.Extensions, Note: "write on the service that the check is of, else on the node", Ways: []string{
		"consul.PUT /v1/agent/check/pass/", "consul.PUT /v1/agent/check/warn/", "consul.PUT /v1/agent/check/fail/", "consul.PUT /v1/agent/check/update/",
	}},
	ConsulOpenSession:  {Action: auth.SessionOpen, Judged: Named, Lane: admit.Claims, Ways: []string{"consul.PUT /v1/session/create"}},
	ConsulCloseSession: {Action: auth.SessionClose, Judged: Named, Lane: admit.Releases, Ways: []string{"consul.PUT /v1/session/destroy/"}},
	ConsulRenewSession: {Action: auth.SessionUse, Judged: Named, Lane: admit.Extensions, Ways: []string{"consul.PUT /v1/session/renew/"}},
	ConsulReadSessions: {Action: auth.SessionRead, Judged: Named, Lane: admit.Reads, Stale: admit.Reads, Note: "shows what its caller may see; that waits: as of keys", Ways: []string{
		"consul.GET /v1/session/info/", "consul.GET /v1/session/node/", "consul.GET /v1/session/list",
	}},
	ConsulFireEvent:  {Action: auth.KeyWrite, Judged: Named, Lane: admit.Small, Note: "in the namespace of events", Ways: []string{"consul.PUT /v1/event/fire/"}},
	ConsulReadEvents: {Action: auth.KeyRead, Judged: Named, Lane: admit.Small, Stale: admit.Small, Note: "shows what its caller may see; that waits: as of keys", Ways: []string{"consul.GET /v1/event/list"}},
	ConsulQueries: {Judged: Steps, Lane: admit.Reads, Stale: admit.Small, Note: "executing shows what its caller may see of the services; else read of keys, in the namespace of queries", Ways: []string{
		"consul.GET /v1/query", "consul.GET /v1/query/",
	}},
	ConsulChangeQuery: {Action: auth.KeyWrite, Judged: Named, Lane: admit.Small, Note: "in the namespace of queries", Ways: []string{
		"consul.POST /v1/query", "consul.PUT /v1/query/", "consul.DELETE /v1/query/",
	}},
	ConsulSnapshot: {Action: auth.Admin, Judged: First, Lane: NoLane, Note: "of the whole cluster", Ways: []string{"consul.GET /v1/snapshot", "consul.PUT /v1/snapshot"}},
	ConsulOperate: {Action: auth.Admin, Judged: First, Lane: NoLane, Ways: []string{
		"consul.PUT /v1/agent/join/", "consul.PUT /v1/agent/leave", "consul.PUT /v1/agent/force-leave/", "consul.PUT /v1/agent/reload",
		"consul.GET /v1/agent/monitor",
		"consul.DELETE /v1/operator/raft/peer", "consul.POST /v1/operator/raft/transfer-leader",
	}},
	ConsulTokens: {Judged: Token, Lane: NoLane, Note: "tells whose it is, and else only that tokens are not kept here", Ways: []string{
		"consul.GET /v1/acl/token/self",
		"consul.PUT /v1/acl/token", "consul.GET /v1/acl/token/", "consul.PUT /v1/acl/token/", "consul.DELETE /v1/acl/token/",
		"consul.GET /v1/acl/tokens", "consul.PUT /v1/acl/policy", "consul.GET /v1/acl/policy/", "consul.PUT /v1/acl/policy/",
		"consul.DELETE /v1/acl/policy/", "consul.GET /v1/acl/policies", "consul.PUT /v1/acl/role", "consul.GET /v1/acl/role/",
		"consul.PUT /v1/acl/role/", "consul.DELETE /v1/acl/role/", "consul.GET /v1/acl/roles", "consul.PUT /v1/acl/auth-method",
		"consul.GET /v1/acl/auth-method/", "consul.PUT /v1/acl/auth-method/", "consul.DELETE /v1/acl/auth-method/", "consul.GET /v1/acl/auth-methods",
		"consul.PUT /v1/acl/binding-rule", "consul.GET /v1/acl/binding-rule/", "consul.PUT /v1/acl/binding-rule/", "consul.DELETE /v1/acl/binding-rule/",
		"consul.GET /v1/acl/binding-rules", "consul.GET /v1/acl/templated-policies", "consul.PUT /v1/acl/bootstrap", "consul.GET /v1/acl/replication",
		"consul.POST /v1/acl/login", "consul.POST /v1/acl/logout", "consul.PUT /v1/agent/token/", "consul.POST /v1/internal/acl/authorize",
	}},
	ConsulDistance: {Judged: Steps, Lane: admit.Small, Note: "is taken, and not kept", Ways: []string{"consul.PUT /v1/coordinate/update"}},

	OvsdbStanding: {Judged: Everyone, Lane: NoLane, Note: "who connects is known by then", Ways: []string{
		"ovsdb.echo", "ovsdb.get_server_id", "ovsdb.set_db_change_aware",
	}},
	OvsdbRead:          {Action: auth.TableRead, Judged: Named, Lane: admit.Small, Stale: admit.Small, Note: "a list shows what its caller may see", Ways: []string{"ovsdb.list_dbs", "ovsdb.get_schema"}},
	OvsdbOwn:           {Judged: Own, Lane: NoLane, Ways: []string{"ovsdb.cancel", "ovsdb.monitor_cancel", "ovsdb.unlock"}},
	OvsdbTransact:      {Judged: Steps, Lane: admit.Transactions, Note: "write on tables if it may change something, see if it does more than insert", Ways: []string{"ovsdb.transact"}},
	OvsdbMonitor:       {Action: auth.TableWatch, Judged: Named, Lane: admit.Watches, Ways: []string{"ovsdb.monitor", "ovsdb.monitor_cond", "ovsdb.monitor_cond_since"}},
	OvsdbMonitorChange: {Action: auth.TableWatch, Judged: Named, Lane: NoLane, Note: "of a monitor that is there: clients go wrong if it is refused", Ways: []string{"ovsdb.monitor_cond_change"}},
	OvsdbLock:          {Action: auth.Claim, Judged: Named, Lane: admit.Claims, Note: "of a model of its own; is not refused but waits", Ways: []string{"ovsdb.lock"}},
	OvsdbSteal:         {Action: auth.Revoke, Judged: Named, Lane: admit.Claims, Note: "of a model of its own; write, too; is not refused but waits", Ways: []string{"ovsdb.steal"}},
	OvsdbConvert:       {Action: auth.TableDefine, Judged: Named, Lane: admit.Transactions, Ways: []string{"ovsdb.convert"}},
	OvsdbControl: {Action: auth.Admin, Judged: First, Lane: NoLane, Note: "on the control socket, which the server's own user may open", Ways: []string{
		"ovsdb.control cluster/change-election-timer", "ovsdb.control cluster/cid", "ovsdb.control cluster/kick", "ovsdb.control cluster/sid", "ovsdb.control cluster/status",
		"ovsdb.control coverage/read-counter", "ovsdb.control coverage/show", "ovsdb.control exit", "ovsdb.control list-commands",
		"ovsdb.control memory/show", "ovsdb.control ovsdb-server/add-remote", "ovsdb.control ovsdb-server/compact",
		"ovsdb.control ovsdb-server/list-dbs", "ovsdb.control ovsdb-server/list-remotes", "ovsdb.control ovsdb-server/remove-remote",
		"ovsdb.control ovsdb-server/connect-active-ovsdb-server", "ovsdb.control ovsdb-server/disconnect-active-ovsdb-server",
		"ovsdb.control ovsdb-server/get-active-ovsdb-server", "ovsdb.control ovsdb-server/get-sync-exclude-tables",
		"ovsdb.control ovsdb-server/set-active-ovsdb-server", "ovsdb.control ovsdb-server/set-active-ovsdb-server-probe-interval",
		"ovsdb.control ovsdb-server/set-sync-exclude-tables",
		"ovsdb.control ovsdb-server/get-db-storage-status", "ovsdb.control ovsdb-server/sync-status", "ovsdb.control version", "ovsdb.control vlog/list", "ovsdb.control vlog/reopen", "ovsdb.control vlog/set",
	}},
}
