// Package table is the family of databases with tables: rows of typed columns, as
// RFC 7047 describes them, and the transactions that change them.
//
// A transaction is one command: its operations were parsed and checked by the member
// that was asked, and are executed by every member at their place in the log. Either
// all of them take effect or none. What must not differ between members is chosen by
// the proposer (the uuids of new rows) or follows from the index (versions, ids of
// transactions).
//
// A [Database] is a value that never changes: a transaction makes the next one, which
// shares with it all that it did not touch. So a transaction that fails leaves nothing
// behind, and views cost nothing.
//
// # Invariants, between commands
//
//   - All strong references lead to rows that are there, and so do all weak ones.
//   - A row of a table that is no root has a strong reference of another row.
//   - No two rows of a table have equal columns of one of its indexes; none has more
//     rows than its schema says.
//   - Every reference of a row is listed with the row that it leads to.
//   - The history has the newest changes, of no more than [HistoryBytes] together.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package table

import (
	"bytes"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family.
const Number wire.Number = 55

// schemaVersion brought the family.
const schemaVersion = 7

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	MaxNameBytes    = 256              // of a database, a lock, a role and its client
	MaxSchemaBytes  = 1 << 20          // of a schema's text
	MaxDatabases    = 1024             // of all namespaces together
	MaxLocks        = 1024             // that one transaction says to have
	MaxRoles        = 16               // that policies give a client
	MaxLoadRows     = 1 << 16          // in one Load
	LoadRest        = 10 * time.Minute // behind its last command a load is discarded: who began it is gone
	MaxRowBytes     = 1800 << 10       // of one row, as [Database.Bytes] counts it
	MaxWork         = 2_000_000        // rows that one transaction looks at; so many atoms of columns that it mutates count as one, so many bytes of rows that it writes, and so many bytes that it compares
	MaxGrowthBytes  = 256 << 20        // by which one transaction, conversion or Load may make a database larger at any time, counted as rows are
	MaxIndexes      = 64               // of a table
	MaxIndexColumns = 64               // of one of them
	MaxAnswerBytes  = 64 << 20         // of the rows that one transaction selects, counted as rows are
	atomsAsRow      = 256              // see MaxWork
	mutationAtoms   = 16               // what a mutation counts as besides its atoms
	bytesAsRow      = 16 << 10         // see MaxWork
	comparedAsRow   = 2 << 10          // see MaxWork: bytes, counted as rows are
	conditionBytes  = 256              // what a condition behind the first counts as at least, of comparedAsRow
	referenceBytes  = 512              // what a reference that comes or goes counts as, of comparedAsRow
	columnsAsRow    = 64               // of a row that a wait names
	keptAsRow       = 64               // bytes of a database, for which its conversion may cost one more than MaxWork
	HistoryBytes    = 8 << 20          // of the changes that are kept of one database
	rowBytes        = 96               // what a row costs besides its columns, about
	changeBytes     = 128              // what a change costs besides its rows, about
	treeDegree      = 16
)

// boundSchema is the [core.SchemaVersion] that brought MaxGrowthBytes, limits of indexes, and
// that all that a transaction writes counts for MaxWork.
const boundSchema = 11

// weighSchema is the [core.SchemaVersion] from which what a transaction compares counts for
// MaxWork, and the references that it changes.
const weighSchema = 13

// bulkSchema is the [core.SchemaVersion] from which a conversion and a Load are bounded by
// MaxGrowthBytes and MaxWork while they run, as transactions are.
const bulkSchema = 14

// Row is a row of a table. It never changes.
type Row = ovs.Row

// RowChange is what became of a row. Old is nil of a new one, New of one that is gone.
type RowChange struct {
	Table    int // in the schema
	Old, New *Row
}

// ID is the row's uuid.
func (c *RowChange) ID() ovs.UUID {
	if c.New != nil {
		return c.New.UUID
	}
	return c.Old.UUID
}

// Change is what one command changed in a database. It never changes.
type Change struct {
	Index incumbent.Index
	TxnID ovs.UUID    // of the database from then on
	Rows  []RowChange // by table and uuid
	// Schema is that of the database from then on, if the command was not a
	// transaction: then nothing is said of rows. Of one that was dropped it is the one
	// it had.
	Schema  *ovs.Schema
	Dropped bool
	size    int64
	under   *ovs.Schema // of the rows
}

// Under is the schema that the change's rows are of, or of which Schema says it.
func (c *Change) Under() *ovs.Schema {
	if c.Schema != nil {
		return c.Schema
	}
	return c.under
}

// Size is what keeping the change costs, in bytes.
func (c *Change) Size() int64 { return c.size }

// Topic is that of the changes of a database, whose After is a [Change].
func Topic(namespace, name string) core.Topic {
	return core.Topic{Scope: [2]string{namespace}, Name: name}
}

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return schemaVersion }

// Name implements [core.Family].
func (Family) Name() string { return "table" }

// New implements [core.Family].
func (Family) New() core.Tables { return newTables() }

// Commutes implements [core.Commuting]: rows are nothing that extensions depend on.
func (Family) Commutes([]byte) bool { return true }

// idOf returns the n-th uuid that follows from an index: 0 is the id of a transaction,
// the others are versions of rows. Its second half is the index, its first half says
// which it is of those, and looks like chance.
func idOf(at incumbent.Index, n int) (u ovs.UUID) {
	high, low := scatter(uint64(at)*0x9e3779b97f4a7c15^uint64(n)), uint64(at)
	for i := range 8 {
		u[i], u[8+i] = byte(high>>(56-8*i)), byte(low>>(56-8*i))
	}
	return u
}

// scatter is a permutation of numbers that has near ones look unlike.
func scatter(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// IndexOf is the index from which an id would follow: of a row's version, that of the
// command that changed it last.
func IndexOf(u ovs.UUID) (at incumbent.Index) {
	for _, b := range u[8:] {
		at = at<<8 | incumbent.Index(b)
	}
	return at
}

func compareIDs(a, b ovs.UUID) int { return bytes.Compare(a[:], b[:]) }
