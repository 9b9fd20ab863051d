package player

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// playedSchema is that of a database in which every transaction leaves a row of its own,
// and adds to a counter.
const (
	playedDatabase = "Played"
	playedSchema   = `{"name":"Played","version":"1.0.0","tables":{
"Call":{"isRoot":true,"indexes":[["id"]],"columns":{"id":{"type":"string"},"by":{"type":"integer"}}},
"Counter":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"by":{"type":"integer"}}}}}`
	tableAttempts = 4 // of one transaction
)

// tablePlayer executes transactions on a database.
type tablePlayer struct {
	*play
	number int
}

func (p *tablePlayer) run(ctx context.Context) {
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		switch d.IntN(12) {
		case 0:
			p.define(ctx, d, step)
		case 1:
			p.invalid(ctx, d, step)
		default:
			p.add(ctx, d, step)
		}
		p.rest(ctx, d)
	}
}

func (p *tablePlayer) begin(d dice, step int) (*caller, *call) {
	k := pick(d, pick(d, p.callers))
	return k, p.book.begin(fmt.Sprintf("player %d, step %d, %s over %s", p.number, step, k.m.Name, k.form))
}

// define makes the database and its counter, unless they are there.
func (p *tablePlayer) define(ctx context.Context, d dice, step int) {
	k, c := p.begin(d, step)
	out, e, ok := do(ctx, c, k.m, k.tables.DefineSchema, &pb.DefineSchemaRequest{Schema: playedSchema})
	switch {
	case !ok:
		return
	case e != nil:
		c.refused("a schema", e, valid)
		return
	}
	c.at(out.Index)
	k, c = p.begin(d, step)
	_, e, _ = do(ctx, c, k.m, k.tables.Transact, &pb.TransactRequest{
		Database: playedDatabase, Operations: `[{"op":"insert","table":"Counter","row":{"name":"all"}}]`,
	})
	if e != nil {
		c.refused("the counter", e, valid)
	}
}

// invalid sends what cannot be executed.
func (p *tablePlayer) invalid(ctx context.Context, d dice, step int) {
	k, c := p.begin(d, step)
	ops := pick(d, []string{``, `{}`, `[`, `[{"op":"insert","table":"Fish","row":{}}]`, `[{"op":"insert","table":"Call","row":{"id":"x"}},{"op":"abort"}]`, `[{"op":"fly"}]`, `[1]`})
	out, e, ok := do(ctx, c, k.m, k.tables.Transact, &pb.TransactRequest{Database: playedDatabase, Operations: ops})
	switch {
	case !ok:
	case e != nil:
		c.refused(ops, e, oddEnough, incumbent.NotFound)
	case !out.Failed:
		c.fail("%s is executed: %s", ops, out.Results)
	}
}

// add adds to the counter once, with as many attempts as it takes: under a key, or
// guarded by the index of its row's table.
func (p *tablePlayer) add(ctx context.Context, d dice, step int) {
	id, by := fmt.Sprintf("%d/%d", p.number, step), 1+d.IntN(9)
	in := &pb.TransactRequest{Database: playedDatabase, Operations: fmt.Sprintf(`[
{"op":"wait","timeout":0,"table":"Counter","where":[["name","==","all"]],"columns":["name"],"until":"==","rows":[{"name":"all"}]},
{"op":"insert","table":"Call","row":{"id":%q,"by":%d}},
{"op":"mutate","table":"Counter","where":[["name","==","all"]],"mutations":[["by","+=",%d]]}]`, id, by, by)}
	doubt := false // an earlier attempt may have been executed, or may yet be
	defer func() {
		if doubt {
			p.calls.note(p.calls.unknown, id, by)
		}
	}()
	for attempt := range tableAttempts {
		k, c := p.begin(d, step)
		if attempt == 0 && d.oneIn(2) {
			in.Idempotency = &pb.Idempotency{Key: []byte("table " + id), BaseIndex: c.floor}
		}
		out, e, ok := do(ctx, c, k.m, k.tables.Transact, in)
		switch {
		case !ok:
			doubt = true
		case e != nil:
			c.refused("a transaction", e, valid, incumbent.NotFound)
			doubt = doubt || e.Kind == incumbent.Unknown.String()
		case !out.Failed:
			if out.Repeated && !doubt {
				c.fail("%s is answered as repeated, and was not sent before", id)
			}
			if !out.Repeated {
				c.at(out.Index)
			}
			doubt = false
			p.book.count("transaction on tables done")
			p.calls.note(p.calls.done, id, by)
			return
		case strings.Contains(out.Results, "timed out"): // there is no counter
			if attempt == 0 {
				p.calls.note(p.calls.never, id, by)
			}
			return
		case doubt:
			doubt = false
			p.book.count("transaction on tables found done")
			p.calls.note(p.calls.done, id, by)
			return
		default:
			c.fail("%s fails: %s", id, out.Results)
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
	if !doubt {
		p.calls.note(p.calls.never, id, by)
	}
}

// tableCalls are the transactions that added something, by what became of them.
type tableCalls struct {
	mu                   sync.Mutex // guards all; held for an access
	done, never, unknown map[string]int

	rows map[string]playedRow // by uuid, as the watch tells them
	told uint64               // all up to this index
}

func newTableCalls() *tableCalls {
	return &tableCalls{done: map[string]int{}, never: map[string]int{}, unknown: map[string]int{}, rows: map[string]playedRow{}}
}

func (t *tableCalls) note(where map[string]int, id string, by int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	where[id] = by
}

// playedRow is a row of either table.
type playedRow struct {
	ID, Name string
	By       int
	Version  [2]string `json:"_version"`
}

// judge says what is wrong with the rows that a member shows.
func (t *tableCalls) judge(rows map[string]playedRow, index uint64) (fault, behind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, counter, calls := 0, 0, map[string]int{}
	for _, r := range rows {
		if r.Name != "" {
			counter += r.By
			continue
		}
		sum += r.By
		calls[r.ID] += r.By
	}
	if sum != counter {
		return fmt.Sprintf("transactions have added %d, and the counter has %d", sum, counter), ""
	}
	for id, by := range t.done {
		if calls[id] != by {
			return fmt.Sprintf("transaction %s has added %d, and was told to have added %d", id, calls[id], by), ""
		}
	}
	for id := range calls {
		if _, was := t.never[id]; was || t.done[id] == 0 && t.unknown[id] == 0 {
			return fmt.Sprintf("transaction %s was executed, and was refused or never sent", id), ""
		}
	}
	switch {
	case t.told < index:
		return "", fmt.Sprintf("the watch of tables is at %d of %d", t.told, index)
	case !maps.Equal(rows, t.rows):
		return fmt.Sprintf("%d rows are there at index %d, and the watch has %d others", len(rows), index, len(t.rows)), ""
	}
	return "", ""
}

// tablesAgree compares what every member shows with what the players were told, and
// with the watch.
func (p *play) tablesAgree(ctx context.Context) string {
	for i := range p.callers {
		k := p.callers[i][0]
		rows, at := map[string]playedRow{}, uint64(0)
		for _, name := range []string{"Call", "Counter"} {
			for in := (&pb.SelectRequest{Database: playedDatabase, Table: name}); ; {
				c := p.book.begin("quiet, " + k.m.Name)
				out, e, ok := do(ctx, c, k.m, k.tables.Select, in)
				if !ok || e != nil {
					return fmt.Sprintf("%s answers %v", k.m.Name, e)
				}
				c.at(out.Index)
				at = max(at, out.Index)
				for _, text := range out.Rows {
					var id struct {
						UUID [2]string `json:"_uuid"`
					}
					if err := json.Unmarshal([]byte(text), &id); err != nil {
						p.fail("%s: %v", text, err)
					}
					rows[id.UUID[1]] = p.rowIn(text)
				}
				if in.After = out.Next; out.Next == "" {
					break
				}
			}
		}
		fault, behind := p.calls.judge(rows, at)
		if fault != "" {
			p.fail("%s: %s", k.m.Name, fault)
		}
		if fault+behind != "" {
			return fault + behind
		}
		if !p.monitor.shows(rows) {
			return fmt.Sprintf("the monitor of OVSDB has other rows than %s at index %d", k.m.Name, at)
		}
	}
	return ""
}

func (p *play) rowIn(text string) (r playedRow) {
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		p.fail("%s: %v", text, err)
	}
	return r
}

// followTables keeps a watch of the database open, at whichever member answers.
func (p *play) followTables(ctx context.Context) {
	t := p.calls
	for i := 0; ctx.Err() == nil; i++ {
		k := p.callers[i%len(p.callers)][0]
		t.mu.Lock()
		after := t.told
		t.mu.Unlock()
		stream, err := k.tables.Watch(ctx, connect.NewRequest(&pb.WatchTablesRequest{Database: playedDatabase, AfterIndex: after}))
		if err == nil {
			var events []*pb.TableEvent // whose index may not be whole
			for stream.Receive() {
				m := stream.Msg()
				if m.First {
					events = nil
				}
				if events = append(events, m.Events...); m.ProgressIndex > 0 && !m.More {
					p.tell(events, m.ProgressIndex, after == 0)
					events, after = nil, m.ProgressIndex
				}
			}
			err = stream.Err()
			stream.Close()
		}
		if errorOf(err).GetKind() == incumbent.Compacted.String() {
			t.mu.Lock()
			t.told = 0
			t.mu.Unlock()
		}
		pause(ctx, lookEvery)
	}
}

// tell takes in what a watch tells up to an index; anew: that is all there is.
func (p *play) tell(events []*pb.TableEvent, progress uint64, anew bool) {
	t := p.calls
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told = progress; anew {
		clear(t.rows)
	}
	for _, e := range events {
		if e.What == "schema" {
			clear(t.rows)
		}
		for _, r := range e.Rows {
			var was playedRow
			if r.Previous != "" {
				was = p.rowIn(r.Previous)
			}
			if is := t.rows[r.Uuid]; is != was {
				p.fail("the watch tells at index %d of a change from %+v, and told %+v before", e.Index, was, is)
			}
			if r.Row == "" {
				delete(t.rows, r.Uuid)
				continue
			}
			t.rows[r.Uuid] = p.rowIn(r.Row)
		}
	}
}
