package client

import (
	"cmp"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// TableCache is the rows of a database, or of them those that its options name, as a
// session that follows it has last heard of them.
type TableCache struct {
	cached[rowKey, *apiv1.RowChange, *apiv1.TableEvent]
	namespace string
	opts      WatchTablesOptions
}

// rowKey names a row: its table and uuid.
type rowKey struct{ table, uuid string }

func (k rowKey) compare(o rowKey) int {
	return cmp.Or(cmp.Compare(k.table, o.table), cmp.Compare(k.uuid, o.uuid))
}

// NewTableCache returns one that knows nothing. With fields, rows are as they were when one
// of those changed last. Where to begin, of the options, is not used.
func NewTableCache(namespace string, opts WatchTablesOptions) *TableCache {
	c := &TableCache{namespace: namespace, opts: opts}
	c.records = map[rowKey]*apiv1.RowChange{}
	return c
}

// Row returns a row of a table by its uuid, in JSON as RFC 7047 has it; "": there is none.
func (c *TableCache) Row(table, uuid string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[rowKey{table, uuid}].GetRow()
}

// Rows returns all rows, by their tables and uuids. They are not to be changed.
func (c *TableCache) Rows() []*apiv1.RowChange {
	return c.sorted(rowKey.compare)
}

func (c *TableCache) request(after uint64) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_WatchTables{WatchTables: &apiv1.WatchTablesRequest{
		Namespace: c.namespace, Database: c.opts.Database, Tables: c.opts.Tables, Fields: c.opts.Fields, Rows: c.opts.Rows,
		AfterIndex: after, CatchUp: true,
	}}}
}

func (c *TableCache) take(turn uint64, f *apiv1.ServerFrame) {
	m := f.GetWatchTables()
	c.hear(turn, m, m.GetEvents(), func(rows map[rowKey]*apiv1.RowChange, e *apiv1.TableEvent) {
		for _, r := range e.Rows {
			k := rowKey{r.Table, r.Uuid}
			if r.Row == "" {
				delete(rows, k)
				continue
			}
			r.Previous = "" // nobody is told of it, and it takes room
			rows[k] = r
		}
	})
}
