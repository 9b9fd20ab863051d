// Package catalog is the family of nodes, the services on them, the checks of either,
// and what sessions of such nodes say beyond what [core.Session] says.
//
// Names and ids that differ in the case of letters A to Z alone are one: see [incumbent.Fold].
//
// A check belongs to a node, or to a service on it. A session that is opened here is
// one of core's, with a node and checks that it depends on: it ends when its node or
// one of those checks goes, or the check becomes critical. A service may name a
// session, too, and goes when that ends. A check of a node may follow the sessions of a
// name on it.
//
// Two things end by the leader's clock (see [core.Deadline]): a check with a ttl
// that is not critical becomes so, and a service whose check has been critical for
// [Check.DeregisterAfter] goes. The first is extended without the log.
//
// # Indexes
//
// For each name of a service, each node and each table there is the index of its last
// change, which is not part of a record and stays when the records go. A service's is
// moved by its instances, their checks, and their nodes with the checks of those; a
// node's by all that is on it. Of more than [MaxTombstones] that are of nothing that is
// there the oldest goes, and raises the floor, below which no index falls.
//
// # Invariants
//
//   - A service's node is there, and so is the node of a check, and its service.
//   - What is on a node writes that node's name as the node does, and a check has the
//     id, the name and the tags of its service.
//   - An instance says what its node, its service and their checks are.
//   - What a session depends on is there and not critical.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package catalog

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family.
const Number wire.Number = 54

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	MaxNameBytes        = 512                 // of a node, a service, a check or one of their ids
	MaxAddressBytes     = 512                 // of an address
	MaxTextBytes        = 512                 // of a kind, a type, an interval, a timeout, the name of a session: each
	MaxNotesBytes       = 4 << 10             // of the notes of a check
	MaxOutputBytes      = 4 << 10             // of the output of a check
	MaxDefinitionBytes  = 32 << 10            // of the definition of a check
	MaxTags             = 256                 // of a service
	MaxTagBytes         = 8 << 10             // of a tag: proxies are told by them what to route
	MaxTagsBytes        = 128 << 10           // of all tags of a service
	MaxPairs            = 64                  // of metadata, and of tagged addresses: each
	MaxPairKeyBytes     = 128                 // of a key of either
	MaxPairValueBytes   = 512                 // of a value of either
	MaxPorts            = 64                  // of a service that have names of up to MaxPairKeyBytes
	MaxWeight           = 65535               // of a service
	MaxDuration         = 31 * 24 * time.Hour // ttl of a check, and how long one may be critical
	MaxLockDelay        = 24 * time.Hour      // of a session; keys are locked for no more than kv.MaxDelay after it
	MaxChecksInCommand  = 256                 // that one command registers
	MaxChecksOfOne      = 256                 // of a service, and of a node itself: each
	MaxChecksPerSession = 64                  // that a session depends on
	MaxFollowing        = 8                   // checks of a node that follow sessions: each tells of all services of the node when one begins or ends
	MaxServicesPerNode  = 20_000
	MaxSessionsPerNode  = 200_000 // that depend on it, or on one of its checks
	MaxRecords          = 2_000_000
	MaxTombstones       = 100_000 // indexes of names that are of nothing
	treeDegree          = 16
)

// Pair is a key with a value.
type Pair struct{ Key, Value string }

// Address is an address for a purpose.
type Address struct {
	Name    string
	Address string
	Port    uint16
}

// Port is one of several that a service has.
type Port struct {
	Name    string
	Port    uint16 // not 0
	Default bool
}

// Node is a machine, or what stands for one. A *Node reached through a View never
// changes, as all records.
type Node struct {
	Namespace       string
	Name            string // as it was first written
	ID              string // "": it has none; else of one node of the namespace
	Address         string
	TaggedAddresses []Pair // by key
	Meta            []Pair // by key
	Owner           string // the principal that registered it last, whose quota it counts against
	Created         incumbent.Index
	Modified        incumbent.Index // of the node alone
	Further         uint64          // as how many registrations it counts besides one: it is large
}

// Service is an instance of a service on a node.
type Service struct {
	Namespace         string
	Node              string
	ID                string // one on the node
	Name              string // that all instances have
	Kind              string
	Tags              []string // as given
	Address           string   // "": the node's
	TaggedAddresses   []Address
	Meta              []Pair
	Port              uint16 // of several the default one
	Ports             []Port // nil: it has one at most; else as given, their names differ, and one is the default
	SocketPath        string // where it listens on its host; "": it does on ports
	Weights           Weights
	EnableTagOverride bool
	Session           incumbent.SessionID // with which it ends; zero: none
	Owner             string
	Created           incumbent.Index
	Modified          incumbent.Index
	Further           uint64
}

// Weights are how much of the load an instance takes.
type Weights struct{ Passing, Warning uint32 }

// Status is that of a check.
type Status uint8

// The statuses. The numbers are part of the log: append only.
const (
	Critical Status = iota
	Warning
	Passing
	numStatuses
)

// String returns "critical", "warning" or "passing".
func (s Status) String() string { return [numStatuses]string{"critical", "warning", "passing"}[s] }

// ParseStatus returns the status of a name.
func ParseStatus(name string) (Status, bool) {
	for s := range numStatuses {
		if s.String() == name {
			return s, true
		}
	}
	return Critical, false
}

// Check is how a node, or a service on it, is found to be.
type Check struct {
	Namespace       string
	Node            string
	ID              string // one on the node
	Name            string
	Status          Status
	Notes           string
	Output          string
	ServiceID       string          // "": it is of the node; else written as the service does
	ServiceName     string          // that service's, as it is now
	ServiceTags     []string        // that service's, as they are now
	Type            string          // "ttl", "http", …: as whoever registered it says
	Interval        string          // to show
	Timeout         string          // to show
	TTL             time.Duration   // within which it is to be told that it is well; 0: it need not
	DeregisterAfter time.Duration   // of being critical its service goes; 0: it stays
	Definition      []byte          // how it is run, as whoever runs it says
	SessionName     string          // of the sessions on its node that it follows: passing once one opens, critical once one ends; "": none
	Runner          uint64          // member with which it was registered; 0: none
	Since           incumbent.Index // when the status, or the ttl, became what it is: the generation of its deadlines
	Owner           string
	Created         incumbent.Index
	Modified        incumbent.Index
	Further         uint64
}

// Session is what is said of a session of core's that depends on a node.
type Session struct {
	ID            incumbent.SessionID
	Namespace     string
	Node          string
	Name          string
	LockDelay     time.Duration // 0 to MaxLockDelay
	Behavior      Behavior
	NodeChecks    []string      // ids of checks on the node that it depends on
	ServiceChecks []string      // ids of more of them
	Leads         bool          // checks follow it: who opened it may write its node
	TTL           time.Duration // as it was asked for, 0: none; core's is longer: see [tables.life]
	Created       incumbent.Index
	Modified      incumbent.Index
}

// Behavior is what the end of a session means to the keys that it has locked.
type Behavior uint8

// The behaviors. The numbers are part of the log.
const (
	Release Behavior = iota
	Delete
	numBehaviors
)

// String returns "release" or "delete".
func (b Behavior) String() string { return [numBehaviors]string{"release", "delete"}[b] }

// Instance is a service with its node and the checks that tell how it is. The
// instances of two views are the same pointer exactly if they are equal.
type Instance struct {
	Node       *Node
	Service    *Service
	NodeChecks []*Check // of the node itself, by id; not to be changed
	Checks     []*Check // of the service, by id; not to be changed
}

// Status is the worst of the instance's checks; Passing if it has none.
func (i *Instance) Status() Status {
	worst := Passing
	for _, list := range [...][]*Check{i.NodeChecks, i.Checks} {
		for _, c := range list {
			worst = min(worst, c.Status)
		}
	}
	return worst
}

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return 10 }

// Name implements [core.Family].
func (Family) Name() string { return "catalog" }

// New implements [core.Family].
func (Family) New() core.Tables { return newTables() }
