package ovsdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/test/outside"
)

const (
	countsSchema = "testdata/counts.ovsschema"
	counts       = "Counts"

	writers     = 100
	mirrors     = 24
	stepsBefore = 10 // of each writer, before the leader is killed
	stepsAfter  = 10
	endMark     = -1 // writer of the last row
)

// The leader is killed under clients that write and clients that monitor. What was
// acknowledged is there once, although clients ask again for what they do not know the
// outcome of; monitors that resume elsewhere with the last transaction they have seen
// hold what a fresh read gives.
func TestG20_MonitorsComposeOverAFailover(t *testing.T) {
	c := startCluster(t, "--ovsdb-schema", countsSchema)
	var at []string
	for _, m := range c.Members {
		at = append(at, "tcp:"+m.OVSDB)
	}
	first := &client{at: at}
	t.Cleanup(first.close)
	for w := range writers {
		if _, err := first.transact(insertCount("Counter", w, 0)); err != nil {
			t.Fatal(err)
		}
	}

	var watching, writing sync.WaitGroup
	views := make([]*mirror, mirrors)
	for i := range views {
		views[i] = newMirror(at, i)
		if err := views[i].begin(); err != nil {
			t.Fatal(err)
		}
		watching.Go(func() { views[i].err = views[i].follow() })
	}
	all := make([]*writer, writers)
	var killed atomic.Bool
	for i := range all {
		all[i] = &writer{client: client{at: at, next: i}, id: i}
		writing.Go(func() { all[i].err = all[i].write(&killed) })
	}
	outside.Eventually(t, 4*patience, "each has written", func() bool {
		for _, w := range all {
			if w.acknowledged.Load() < stepsBefore && !w.ended.Load() {
				return false
			}
		}
		return true
	})
	c.killLeader()
	killed.Store(true)
	writing.Wait()
	unmarked := object{
		"op": "wait", "timeout": 0, "table": "Step", "where": where("writer", "==", endMark),
		"columns": []any{"n"}, "until": "==", "rows": []any{},
	}
	if err := first.settle(unmarked, insertCount("Step", endMark, 0)); err != nil {
		t.Fatal(err)
	}
	watching.Wait()

	fresh := freshTables(t, first)
	for _, w := range all {
		if w.err != nil {
			t.Errorf("writer %d: %v", w.id, w.err)
			continue
		}
		isOnce(t, fresh, w)
	}
	resumed := 0
	for i, m := range views {
		if m.err != nil {
			t.Errorf("monitor %d: %v", i, m.err)
			continue
		}
		if want := m.seen(fresh); !maps.Equal(m.rows, want) {
			t.Errorf("monitor %d, which has resumed %d times, holds %d rows, and %d are there", i, m.resumed, len(m.rows), len(want))
		}
		resumed += m.resumed
	}
	if resumed == 0 {
		t.Error("no monitor has resumed: none was on the leader")
	}
}

// isOnce checks that a writer's steps are there as far as its counter, each once.
func isOnce(t *testing.T, fresh map[string]count, w *writer) {
	t.Helper()
	steps, last := map[int]int{}, -1
	for _, r := range fresh {
		switch {
		case r.writer != w.id:
		case r.table == "Counter":
			last = r.n
		default:
			steps[r.n]++
		}
	}
	if acknowledged := int(w.acknowledged.Load()); last != acknowledged {
		t.Errorf("writer %d: the counter is at %d, and %d was acknowledged last", w.id, last, acknowledged)
	}
	for n := 1; n <= last; n++ {
		if steps[n] != 1 {
			t.Errorf("writer %d: step %d is there %d times", w.id, n, steps[n])
		}
	}
	if len(steps) != last {
		t.Errorf("writer %d has %d steps, and its counter says %d", w.id, len(steps), last)
	}
}

// count is a row of either table.
type count struct {
	table     string
	writer, n int
}

func insertCount(table string, writer, n int) object {
	return object{"op": "insert", "table": table, "row": object{"writer": writer, "n": n}}
}

// client asks one member, and another when that does not answer.
type client struct {
	at   []string
	next int // member to connect to
	*session
}

func (c *client) close() {
	if c.session != nil {
		c.conn.Close()
		c.session = nil
	}
}

// connected connects to the next member, unless there is a connection.
func (c *client) connected() error {
	if c.session != nil {
		return nil
	}
	s, err := dial(c.at[c.next%len(c.at)])
	c.next++
	c.session = s
	return err
}

// transact returns the results of a transaction, or why its outcome is not known.
func (c *client) transact(ops ...any) ([]any, error) {
	if err := c.connected(); err != nil {
		return nil, err
	}
	m, err := c.ask("transact", append([]any{counts}, ops...)...)
	if err != nil {
		c.close()
		return nil, err
	}
	list, ok := m.Result.([]any)
	if !ok {
		c.close() // elsewhere there may be a leader
		return nil, fmt.Errorf("answered %v", m.Error)
	}
	return list, nil
}

// settle asks for a transaction until it is known to be done. It begins with a wait that
// fails once it is done.
func (c *client) settle(ops ...any) error {
	asked := 0
	var last error
	for end := time.Now().Add(4 * patience); time.Now().Before(end); {
		asked++
		results, err := c.transact(ops...)
		if last = err; err != nil {
			continue
		}
		switch failed := errorIn(results); {
		case failed == "", strings.HasPrefix(failed, "timed out") && asked > 1:
			return nil
		default:
			return errors.New(failed)
		}
	}
	return fmt.Errorf("not done in time: %w", last)
}

// errorIn is the error of an operation, empty if there is none.
func errorIn(results []any) string {
	for _, r := range results {
		if o, _ := r.(object); o["error"] != nil {
			return fmt.Sprint(o["error"], ": ", o["details"])
		}
	}
	return ""
}

// writer counts on: each step changes its counter and leaves a row.
type writer struct {
	client
	id           int
	acknowledged atomic.Int64
	ended        atomic.Bool
	err          error
}

func (w *writer) write(killed *atomic.Bool) error {
	defer w.ended.Store(true)
	defer w.close()
	for left := stepsAfter; left > 0; {
		if killed.Load() {
			left--
		}
		if err := w.step(int(w.acknowledged.Load()) + 1); err != nil {
			return err
		}
		w.acknowledged.Add(1)
	}
	return nil
}

// step is one transaction, which waits for the step before it to be the last.
func (w *writer) step(n int) error {
	before := object{
		"op": "wait", "timeout": 0, "table": "Counter", "where": where("writer", "==", w.id),
		"columns": []any{"n"}, "until": "==", "rows": []any{object{"n": n - 1}},
	}
	if err := w.settle(before, update("Counter", where("writer", "==", w.id), object{"n": n}), insertCount("Step", w.id, n)); err != nil {
		return fmt.Errorf("step %d: %w", n, err)
	}
	return nil
}

// mirror is a monitor, and what its client has composed of what it was told.
type mirror struct {
	client
	only    int // the writer that it monitors; all if negative
	last    string
	rows    map[string]count // by uuid
	resumed int
	marked  bool // the last row was seen
	err     error
}

// newMirror returns the i-th: every second one has conditions.
func newMirror(at []string, i int) *mirror {
	m := &mirror{client: client{at: at, next: i}, only: -1, last: uuid(0), rows: map[string]count{}}
	if i%2 == 1 {
		m.only = i
	}
	return m
}

// seen is what of a database the monitor is told.
func (m *mirror) seen(rows map[string]count) map[string]count {
	of := maps.Clone(rows)
	maps.DeleteFunc(of, func(_ string, r count) bool { return m.only >= 0 && r.writer != m.only && r.writer != endMark })
	return of
}

// begin begins the monitor, or resumes it with what it has seen.
func (m *mirror) begin() error {
	if err := m.connected(); err != nil {
		return err
	}
	r := object{"columns": []any{"writer", "n"}}
	if m.only >= 0 {
		r["where"] = []any{[]any{"writer", "==", m.only}, []any{"writer", "==", endMark}}
	}
	a, err := m.ask(monitorSince, counts, "m", object{"Counter": r, "Step": r}, m.last)
	if err != nil {
		m.close()
		return err
	}
	list, ok := a.Result.([]any)
	if !ok || len(list) != 3 {
		m.close()
		return fmt.Errorf("answered %v", a.Error)
	}
	switch found := list[0] == true; {
	case found:
		m.resumed++
	case m.last != uuid(0):
		return fmt.Errorf("what is behind %s is not known any more", m.last)
	}
	m.last = fmt.Sprint(list[1])
	return m.compose(list[2])
}

// follow composes what it is told, on one member after the other, until the last row.
func (m *mirror) follow() error {
	defer m.close()
	end := time.Now().Add(8 * patience)
	for !m.marked {
		if time.Now().After(end) {
			return fmt.Errorf("the last row did not come")
		}
		if m.session == nil {
			if err := m.begin(); err != nil && m.session != nil {
				return err
			}
			continue
		}
		told, err := m.notified()
		if err != nil {
			m.close()
			continue
		}
		if told.Method != "update3" || len(told.Params) != 3 {
			return fmt.Errorf("told %s of %d", told.Method, len(told.Params))
		}
		m.last = fmt.Sprint(told.Params[1])
		if err := m.compose(told.Params[2]); err != nil {
			return err
		}
	}
	return nil
}

// notified returns the next notification: one that came before an answer, or a new one.
func (m *mirror) notified() (message, error) {
	if len(m.told) == 0 {
		return m.read()
	}
	told := m.told[0]
	m.told = m.told[1:]
	return told, nil
}

// compose applies an update: a row comes that is not there, or changes or goes that is.
func (m *mirror) compose(update any) error {
	tables, _ := update.(object)
	for table, rows := range tables {
		rows, _ := rows.(object)
		for id, change := range rows {
			for kind, values := range change.(object) {
				r, is := m.rows[id]
				if isNew := kind == "insert" || kind == "initial"; isNew == is {
					return fmt.Errorf("%s of row %s of %s, which is there: %v", kind, id, table, is)
				}
				if kind == "delete" {
					delete(m.rows, id)
					continue
				}
				r.table = table
				r.take(values)
				m.rows[id] = r
				m.marked = m.marked || r.writer == endMark
			}
		}
	}
	return nil
}

// take takes the columns of a row over that are said.
func (c *count) take(values any) {
	for column, v := range values.(object) {
		number, _ := v.(json.Number)
		n, _ := number.Int64()
		switch column {
		case "writer":
			c.writer = int(n)
		case "n":
			c.n = int(n)
		}
	}
}

// freshTables reads both tables.
func freshTables(t *testing.T, c *client) map[string]count {
	t.Helper()
	tables := []string{"Counter", "Step"}
	var ops []any
	for _, name := range tables {
		ops = append(ops, object{"op": "select", "table": name, "where": []any{}, "columns": []any{"_uuid", "writer", "n"}})
	}
	results, err := c.transact(ops...)
	if err != nil || errorIn(results) != "" {
		t.Fatalf("%v %s", err, errorIn(results))
	}
	fresh := map[string]count{}
	for i, r := range results {
		for _, row := range r.(object)["rows"].([]any) {
			row := row.(object)
			is := count{table: tables[i]}
			is.take(row)
			fresh[fmt.Sprint(row["_uuid"].([]any)[1])] = is
		}
	}
	return fresh
}
