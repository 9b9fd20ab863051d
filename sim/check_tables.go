package sim

import (
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/test/lists"
)

// tableChecker knows what was in the database at every index: what the first member
// told that applied it, put together. What anybody shows or puts together at any time
// must be one of these states.
type tableChecker struct {
	w       *world
	rows    tableRows
	past    []tableVersion
	remade  bool // another schema came with the batch: what it left is not known before its end
	changes bool // something came with the batch
	ports   []string
	effects map[uint64]incumbent.Index // of calls
	done    map[int]int                // what clients were told that they have done
	history lists.History
}

// tableVersion is the database from an index on.
type tableVersion struct {
	at    incumbent.Index
	txn   ovs.UUID
	sum   uint64
	known bool // the sum is
}

func newTableChecker(w *world) *tableChecker {
	return &tableChecker{w: w, rows: tableRows{is: map[tablePlace]uint64{}}, effects: map[uint64]incumbent.Index{}, done: map[int]int{}}
}

// tableChange is the change of the database that a change is; nil: it is none.
func tableChange(x *core.Change) *table.Change {
	if x.Family == nil || x.Family.Family != table.Number {
		return nil
	}
	c, _ := x.Family.After.(*table.Change)
	return c
}

// changed checks a change when the first member applies it: it goes from what was
// (G15), and no call changes something twice (G25).
func (c *tableChecker) changed(x *core.Change) {
	is := tableChange(x)
	if is == nil {
		return
	}
	c.changes = true
	if n, ok := markIn([]byte(x.Origin.Address)); ok {
		if at := c.effects[n]; at != 0 {
			c.w.violate("call %d changed the database at index %d and again at %d (G25)", n, at, x.Index)
		}
		c.effects[n] = x.Index
	}
	if c.remade = c.remade || is.Schema != nil; c.remade {
		c.past = append(c.past, tableVersion{at: x.Index, txn: is.TxnID})
		return
	}
	for i := range is.Rows {
		if !c.rows.change(is.Under(), &is.Rows[i]) {
			c.w.violate("the change of the database at index %d goes from a row that was not there (G15)", x.Index)
		}
	}
	c.past = append(c.past, tableVersion{x.Index, is.TxnID, c.rows.sum, true})
}

// applied checks the state that the first member has after a batch.
func (c *tableChecker) applied(p *process, v *core.View) {
	if !c.changes {
		return
	}
	d := table.Of(v).Database(incumbent.DefaultNamespace, tableName)
	if c.remade {
		c.rows = rowsOf(d)
		last := &c.past[len(c.past)-1]
		last.sum, last.known = c.rows.sum, true
	}
	c.changes, c.remade = false, false
	c.shown(p, v)
	c.sound(d, v.Index())
}

// sound checks what must hold in every state of the database.
func (c *tableChecker) sound(d *table.Database, at incumbent.Index) {
	done, counted := 0, 0
	c.ports = c.ports[:0]
	referred := map[ovs.UUID]bool{}
	names := map[string]bool{}
	each := func(table string, do func(text func(string) string, number func(string) int, r *ovs.Row)) {
		of, i := d.Schema.Table(table)
		d.Rows(i, func(r *ovs.Row) bool {
			do(func(column string) string { return atomOf(of, r, column).Text() }, func(column string) int { return int(atomOf(of, r, column).Int()) }, r)
			return true
		})
	}
	ids := func(table, column string, r *ovs.Row) []ovs.Atom {
		of, _ := d.Schema.Table(table)
		return r.Columns[of.Column(column).Index()].Keys
	}
	each("Caller", func(_ func(string) string, number func(string) int, _ *ovs.Row) {
		done += number("done")
		if told := c.done[number("client")]; number("done") < told {
			c.w.violate("client %d was told that it has done %d, at index %d it has done %d (G05)", number("client"), told, at, number("done"))
		}
	})
	each("Counter", func(_ func(string) string, number func(string) int, _ *ovs.Row) { counted += number("value") })
	if done != counted {
		c.w.violate("clients have counted %d times at index %d, and the counter is at %d (G25)", done, at, counted)
	}
	each("Switch", func(_ func(string) string, _ func(string) int, r *ovs.Row) {
		for _, a := range ids("Switch", "ports", r) {
			referred[a.UUID()] = true
		}
	})
	_, port := d.Schema.Table("Port")
	each("Port", func(text func(string) string, _ func(string) int, r *ovs.Row) {
		c.ports = append(c.ports, r.UUID.String())
		if names[text("name")] || !referred[r.UUID] {
			c.w.violate("port %s at index %d is there twice, or nothing refers to it (G01)", text("name"), at)
		}
		names[text("name")] = true
		delete(referred, r.UUID)
		for _, a := range ids("Port", "peers", r) {
			if d.Row(port, a.UUID()) == nil {
				c.w.violate("port %s at index %d refers weakly to a row that is not there (G01)", text("name"), at)
			}
		}
	})
	if len(referred) > 0 {
		c.w.violate("switches refer at index %d to %d ports that are not there (G01)", at, len(referred))
	}
}

func atomOf(of *ovs.Table, r *ovs.Row, column string) ovs.Atom {
	return r.Columns[of.Column(column).Index()].Keys[0]
}

// somePort is the uuid of a port that is there, or was.
func (c *tableChecker) somePort() string {
	if len(c.ports) == 0 || c.w.chance(8) {
		return c.w.someUUID().String()
	}
	return c.ports[c.w.rng.IntN(len(c.ports))]
}

// at is the database as it was at an index.
func (c *tableChecker) at(index incumbent.Index) (v tableVersion) {
	i, _ := slices.BinarySearchFunc(c.past, index, func(v tableVersion, index incumbent.Index) int {
		if v.at <= index {
			return -1
		}
		return 1
	})
	if i > 0 {
		v = c.past[i-1]
	}
	return v
}

// shown checks what a member shows: the database that there was at its index (G23, G28).
func (c *tableChecker) shown(p *process, v *core.View) {
	is := c.at(v.Index())
	d := table.Of(v).Database(incumbent.DefaultNamespace, tableName)
	switch {
	case d == nil:
		if is.at != 0 {
			c.w.violate("member %d shows no database at index %d (G28)", p.m.at, v.Index())
		}
	case d.LastTxn() != is.txn || is.known && rowsOf(d).sum != is.sum:
		c.w.violate("member %d shows another database at index %d than there was (G28)", p.m.at, v.Index())
	}
}

// answered checks that what a client is told to have changed was changed, at that index
// (G05).
func (c *tableChecker) answered(n uint64, out *table.Outcome, at incumbent.Index) {
	if out.TxnID == (ovs.UUID{}) {
		return
	}
	if c.effects[n] != at || c.at(at).txn != out.TxnID {
		c.w.violate("call %d is told that it changed the database at index %d, it did at %d (G05)", n, at, c.effects[n])
	}
}

// acked takes note that a client was told of what it has done.
func (c *tableChecker) acked(client, n int) { c.done[client] = n }

// composed checks what a monitor has put together at an index (G20).
func (c *tableChecker) composed(m *tableMonitor, p *process, at incumbent.Index) {
	if is := c.at(at); is.known && m.known && (m.rows.sum != is.sum || m.last != is.txn) {
		c.w.violate("monitor %d of member %d has %d rows at index %d that are not those of a fresh dump (G20)", m.a.id, p.m.at, len(m.rows.is), at)
	}
}

// atEnd checks what monitors have with what changed until the end, and that some order
// of all transactions explains what was read (G20, G24).
func (c *tableChecker) atEnd(p *process) {
	v := p.group.View()
	c.shown(p, v)
	d := table.Of(v).Database(incumbent.DefaultNamespace, tableName)
	for _, m := range c.w.monitors {
		if !m.known || d == nil {
			continue
		}
		if changes, found := d.Since(m.last); found {
			m.told(p, changes)
			c.composed(m, p, v.Index())
		}
	}
}

// explain reads all lists of the state at the end, and fails unless some order of all
// transactions explains all that was read (G24).
func (c *tableChecker) explain(v *core.View) {
	end := c.w.check.keys.now()
	c.history = append(c.history, &lists.Txn{Client: -1, Called: end, Return: end, Reads: c.listsAt(v)})
	if err := c.history.Check(); err != nil {
		c.w.violate("%v (G24)", err)
	}
}

func (c *tableChecker) listsAt(v *core.View) map[string][]int {
	reads := map[string][]int{}
	if d := table.Of(v).Database(incumbent.DefaultNamespace, tableName); d != nil {
		of, i := d.Schema.Table("List")
		d.Rows(i, func(r *ovs.Row) bool {
			reads[atomOf(of, r, "name").Text()] = numbersIn(atomOf(of, r, "elements").Text())
			return true
		})
	}
	return reads
}

// rewound goes back to a state, and begins another history with the lists that are
// there.
func (c *tableChecker) rewound(v *core.View) {
	at := v.Index()
	c.past = slices.DeleteFunc(c.past, func(v tableVersion) bool { return v.at > at })
	for n, i := range c.effects {
		if i > at {
			delete(c.effects, n)
		}
	}
	c.history, c.rows, c.done = nil, tableRows{is: map[tablePlace]uint64{}}, map[int]int{}
	if d := table.Of(v).Database(incumbent.DefaultNamespace, tableName); d != nil {
		c.rows = rowsOf(d)
	}
	for name, list := range c.listsAt(v) {
		for _, e := range list {
			now := c.w.check.keys.now()
			c.history = append(c.history, &lists.Txn{Client: -1, Called: now, Return: c.w.check.keys.now(), Appends: map[string]int{name: e}})
		}
	}
}

func numbersIn(text string) (list []int) {
	for word := range strings.FieldsSeq(text) {
		n, _ := strconv.Atoi(word) // what is no number nobody appended
		list = append(list, n)
	}
	return list
}

// hashOfRow tells rows apart; 0 is none.
func hashOfRow(at tablePlace, r *ovs.Row) uint64 {
	if r == nil {
		return 0
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, at.table) // a hash takes everything
	_, _ = h.Write(r.AppendBinary(nil))
	return h.Sum64() | 1
}

// appendTableChange appends all that a change of a database says.
func appendTableChange(b []byte, c *table.Change) []byte {
	b = append(appendUint(b, uint64(c.Index)), c.TxnID[:]...)
	for i := range c.Rows {
		x := &c.Rows[i]
		at := tablePlace{strconv.Itoa(x.Table), x.ID()}
		b = append(b, at.id[:]...)
		b = appendUint(appendUint(b, hashOfRow(at, x.Old)), hashOfRow(at, x.New))
	}
	if c.Schema != nil {
		b = append(b, c.Schema.JSON...)
	}
	return b
}
