package dbfile

import (
	"errors"
	"io"
	"slices"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// clustered is the log of a member of a cluster while it is read. Entries count once a
// later record says that they were committed.
type clustered struct {
	*Content
	applied int64 // index of the last entry that counts
	waiting []clusterEntry
}

type clusterEntry struct {
	index int64
	data  ovs.Value
}

// readClustered reads what follows the first record of a clustered file.
func readClustered(l *records, first ovs.Value) (*Content, error) {
	c := &clustered{}
	data, ok := first.Member("prev_data")
	if !ok {
		return nil, l.bad("it has no data: this member had not joined its cluster")
	}
	if err := c.take(data); err != nil {
		return nil, l.bad("%w", err)
	}
	if c.Content == nil {
		return nil, l.bad("it has no schema")
	}
	at, _ := first.Member("prev_index")
	c.applied = at.Int()
	for {
		record, err := l.next()
		if errors.Is(err, io.EOF) {
			c.Behind = len(c.waiting)
			return c.Content, nil
		}
		if err == nil {
			if wrong := c.record(record); wrong != nil {
				err = l.bad("%w", wrong)
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// record takes the next record: an entry, in the place of those from its index on that
// were not committed, or how far entries were. Others tell of votes and members.
func (c *clustered) record(r ovs.Value) error {
	if at, ok := r.Member("index"); ok && at.Kind() == ovs.NumberInteger {
		if at.Int() <= c.applied {
			return ovs.Errorf(ovs.SyntaxError, "entry %d is there, and committed", at.Int())
		}
		from := slices.IndexFunc(c.waiting, func(e clusterEntry) bool { return e.index >= at.Int() })
		if from >= 0 {
			c.waiting = c.waiting[:from]
		}
		data, _ := r.Member("data")
		c.waiting = append(c.waiting, clusterEntry{at.Int(), data})
	}
	to, ok := r.Member("commit_index")
	if !ok {
		return nil
	}
	for len(c.waiting) > 0 && c.waiting[0].index <= to.Int() {
		e := c.waiting[0]
		c.waiting, c.applied = c.waiting[1:], e.index
		if err := c.take(e.data); err != nil {
			return err
		}
	}
	return nil
}

// take takes the data of an entry: a schema, null if it stays the same, and rows. With a
// schema come all rows. An entry without any concerns the cluster.
func (c *clustered) take(data ovs.Value) error {
	parts := data.Elements()
	if len(parts) != 2 {
		return nil
	}
	if parts[0].Kind() != ovs.Null {
		s, bad := ovs.SchemaOf(parts[0])
		if bad != nil {
			return bad
		}
		if c.Content != nil && parts[1].Kind() != ovs.Object {
			return errors.New("another schema comes without its rows: compact the file by 'ovsdb-tool compact', and import that")
		}
		c.Content = New(s)
	}
	if c.Content == nil {
		return errors.New("rows come before a schema")
	}
	return c.apply(parts[1])
}
