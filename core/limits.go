package core

import "github.com/incumbent-dev/incumbent"

// SchemaVersion is the newest version of commands and snapshots this code knows.
//
//	1  leases, sessions, keys
//	2  members, epochs, absent waiters, a claim that names its token
//	3  families: keys and values; transactions
//	4  commands in parts
//	5  policies, settings, credentials; quotas, what the members of a cluster trust
//	6  nodes, services and checks
//	7  tables
//	9  leases as a family. Snapshots of earlier versions are refused, as are the logs: see wal.FormatVersion
//	10 names of nodes, services and checks that differ in case alone are one; commands of 6 are refused
//	11 rules that let rows be written within a role, and transactions that are within roles; delays of locks, and what large registrations say, count for quotas; conversions of columns between integers and reals; leases with pins are bounded; a later end of a revoked certificate counts; transactions on tables are bounded by what they write; tags of services have up to 8 KiB; a cluster founded without an authority is given one; sessions of the catalog live for twice their ttl; services have several ports, or a socket; checks follow sessions
//	12 rows that are inserted within a role are the client's own, and columns count there for rows alone
//	13 what transactions on tables compare counts for what they may cost
//	14 conversions of databases and loads of rows are bounded while they run
const SchemaVersion = 14

const (
	oldestSchema = 9 // the version whose snapshots, and those of later ones, are read
	memberSchema = 2 // the version that brought members
	familySchema = 3 // the version that brought families
	quotaSchema  = 5 // the version that brought quotas: members of earlier ones would not refuse what is over one

	// JudgedSchema is the version that brought [Meta].Judged.
	JudgedSchema = 5
	// RoleSchema is the version that brought roles of databases to policies.
	RoleSchema = 11
	// CountSchema is the version that brought what delays of locks and large registrations
	// count for quotas: see [Exec.ActiveSchema].
	CountSchema = RoleSchema
)

// Limits of the replicated state. They decide what a command does, so that
// every member must have the same: changing one is a new schema version.
const (
	MaxCommandBytes    = 4096      // one encoded command that is not large: about leases, sessions or members
	MaxFamilyBytes     = 1 << 20   // one encoded command of a family, in one piece: see core/parts
	MaxSessions        = 5_000_000 // open sessions
	MaxTxnSteps        = 10_000    // conditions of a transaction, and operations of then and of else: each
	MaxTxnRecords      = 100_000   // records that a transaction looks at: conditions, lists, deletions of trees
	MaxTxnReadBytes    = 4 << 20   // keys and values that a transaction answers
	MaxKeptResults     = 100_000   // results kept for idempotency keys
	MaxKeyBytes        = 64        // idempotency key
	MaxReasonBytes     = 256       // reason of a close, name of a revoker
	MaxOriginBytes     = 320       // door, address, principal: each; a principal's kind and name are never longer
	MaxIndex           = 1<<62 - 1 // greatest index that RaiseIndex may name
	MaxAbsent          = 64        // sessions that one command passes over, and places in one queue
	MaxMembers         = 64        // members of the cluster
	MaxGoneMembers     = 100_000   // ids of removed members: never forgotten
	MaxMemberName      = 63        // bytes of a member's name
	MaxMemberTextBytes = 256       // address, url, version of a member: each
)

const (
	treeDegree     = 16              // half the width of a tree's nodes: wide ones cost more to copy, narrow ones to search
	maxAtMillis    = 253402300799999 // last millisecond of the year 9999: JSON has no later one
	maxLateMillis  = 1 << 40         // 34 years
	maxWords       = 4096            // interned texts; only saves memory, never replicated
	maxCounter     = 1<<63 - 1       // index or renewal in a snapshot: the same number of commands is left
	maxRecordBytes = 4 << 20         // one record of a snapshot: a lease with a full queue is 1.2 MB
)

// Limits are those that a test needs smaller.
type Limits struct{ Sessions, Kept, Members, Gone int }

func defaultLimits() Limits {
	return Limits{Sessions: MaxSessions, Kept: MaxKeptResults, Members: MaxMembers, Gone: MaxGoneMembers}
}

// Limit has a state have other limits: for tests. All members must have the same.
func (s *State) Limit(l Limits) { s.limits = l }

func tooLarge(what, limit string, n int) *incumbent.Error {
	return incumbent.Errorf(incumbent.TooLarge, "%s: limit %s is %d", what, limit, n)
}
