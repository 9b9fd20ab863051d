package ovsdb

import (
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
)

// wanted is a schema that a database is to have.
type wanted struct {
	text   []byte
	schema *ovs.Schema
}

// readSchemas reads those that databases are to have. The error is Invalid.
func readSchemas(texts [][]byte) (out []wanted, err error) {
	for _, text := range texts {
		s, bad := ovs.ParseSchema(text)
		if bad != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "setting ovsdb-schema: %w", bad)
		}
		out = append(out, wanted{text, s})
	}
	return out, nil
}

// define defines a database that is not there, and converts one of an earlier version,
// once this member has applied what there is. Members do so at the same time: the first
// command does it, and the others nothing. It ends once the database is there, or never
// will be as it is wanted.
func (d *Door) define(w wanted) {
	again := func() { d.after(maxRetry, func() { d.define(w) }) }
	d.engine.Confirm(func(err error) {
		if err != nil {
			again()
			return
		}
		d.work.Put(func() {
			cmd := w.command(table.Of(d.view()), d.namespace)
			if cmd == nil {
				d.oneMade()
				return
			}
			d.engine.Execute(engine.Call{Meta: core.Meta{Origin: core.Origin{At: d.now(), Door: doorName}}}, cmd, func(r core.Result) {
				out, _ := r.Record.(*table.Outcome)
				switch kind := incumbent.KindOf(errorIn(r)); {
				case kind.Transient() || kind == incumbent.Unknown || kind == incumbent.NotLeader:
					again()
				case kind == incumbent.Conflict: // another member was first
					d.define(w)
				case kind != incumbent.OK:
					d.log.Warn("a database was not made", "name", w.schema.Name, "cause", r.Err)
					d.oneMade()
				case out != nil && out.Failed:
					d.log.Warn("a database was not converted", "name", w.schema.Name, "cause", out.Results[len(out.Results)-1].Err)
					d.oneMade()
				default:
					d.define(w) // to see it in this member's view
				}
			})
		})
	})
}

// oneMade lets clients in after the last of the databases.
func (d *Door) oneMade() {
	if d.unmade.Add(-1) == 0 {
		close(d.made)
	}
}

// command is what makes a database what is wanted; nil: it is.
func (w *wanted) command(v *table.View, namespace string) core.Command {
	db := v.Database(namespace, w.schema.Name)
	switch {
	case db == nil:
		return &table.Define{Namespace: namespace, Schema: w.text}
	case later(w.schema.Version, db.Schema.Version):
		return &table.Convert{Namespace: namespace, Database: w.schema.Name, Schema: w.text}
	}
	return nil
}

// later reports whether version a, as x.y.z, comes after b.
func later(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i]) // the schema's parser has looked at it
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x > y
		}
	}
	return len(as) > len(bs)
}

// convertRequest gives a database another schema.
func convertRequest(c *conn, r *request) {
	name, ok := r.text(0)
	if !ok || len(r.params) != 2 {
		r.syntax("a database is converted to a schema")
		return
	}
	if name == serverName {
		r.refuse(ovs.Errorf(ovs.NotAllowed, "the database %s is not changed by clients", name))
		return
	}
	rules := rulesIn(c.door.view())
	if !c.visible(r, name) {
		return
	}
	switch o := c.who.remote.get(); {
	case o.ReadOnly:
		r.refuse(ovs.Errorf(ovs.NotAllowed, "convert operation not allowed when database server is in read only mode"))
		return
	case o.Role != table.RootRole:
		r.refuse(table.ConvertDenied(o.Role, c.who.name, name))
		return
	}
	s, bad := ovs.SchemaOf(r.params[1])
	switch {
	case bad != nil:
		r.refuse(bad)
		return
	case s.Name != name:
		r.syntax("the schema is one of " + s.Name)
		return
	}
	d := c.door
	cmd := &table.Convert{Namespace: d.namespace, Database: name, Schema: r.params[1].Append(nil)}
	d.engine.Execute(engine.Call{Meta: core.Meta{Origin: c.who.origin(), Judged: r.judged}}, cmd, func(res core.Result) {
		out, ok := res.Record.(*table.Outcome)
		d.settled(c.who, r.method.call.Action(), subjectOf(d.named(name).Name), "", &res, !ok || !out.TxnID.IsZero())
		f := d.feeds.of(name)
		f.do(func() { f.when(res.Index, func() { r.resume(func() { c.converted(r, rules, res) }) }) })
	})
}

// converted answers what has come of a conversion that was judged by rules. What they do
// not bind any more was not executed, and is judged by those of now.
func (c *conn) converted(r *request, rules *auth.Rules, res core.Result) {
	if res.Err != nil && res.Err.Kind == incumbent.Unavailable && rulesIn(c.door.view()) != rules {
		convertRequest(c, r)
		return
	}
	if res.Err != nil {
		r.refuse(faultOf(res.Err))
		return
	}
	if out, ok := res.Record.(*table.Outcome); ok && out.Failed {
		r.refuse(out.Results[len(out.Results)-1].Err)
		return
	}
	r.result(nothing)
}

// heldLocks says by which leases the session has the locks that operations assert.
func (c *conn) heldLocks(ops []ovs.Operation) (out []table.Lock) {
	for i := range ops {
		if ops[i].Op != ovs.OpAssert {
			continue
		}
		l := c.session.locks.byName[ops[i].Text]
		if l == nil || l.token == 0 {
			continue // the operation says that it is not
		}
		out = append(out, table.Lock{Name: l.name, Lease: c.door.lockName(l.name), Token: l.token})
	}
	return out
}
