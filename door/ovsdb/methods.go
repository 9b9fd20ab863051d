package ovsdb

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// method is one of those that a client can ask for.
type method struct {
	name    string
	number  int // in the counts
	call    calls.Call
	serve   func(*conn, *request)
	first   bool // clients begin with it: see request.fail
	ordered bool // it is about monitors: see request.waits
}

// methods are all that are served. Serving one never waits.
var methods = func() map[string]*method {
	m := map[string]*method{}
	for name, serve := range map[string]func(*conn, *request){
		"echo":                echoMethod,
		"list_dbs":            listRequest,
		"get_schema":          schemaRequest,
		"get_server_id":       serverIDRequest,
		"set_db_change_aware": awareRequest,
		"transact":            transactRequest,
		"monitor":             monitorRequest,
		"monitor_cond":        monitorCondRequest,
		"monitor_cond_since":  monitorSinceRequest,
		"monitor_cond_change": monitorCondChangeRequest,
		"monitor_cancel":      monitorCancelRequest,
		"lock":                lockRequest,
		"steal":               stealRequest,
		"unlock":              unlockRequest,
		"convert":             convertRequest,
		"cancel":              unknownRequest, // it is a notification
	} {
		m[name] = &method{name: name, call: calls.Must(doorName + "." + name), serve: serve, ordered: strings.HasPrefix(name, "monitor")}
	}
	for _, name := range []string{"list_dbs", "get_schema", "monitor", "monitor_cond", "monitor_cond_since"} {
		m[name].first = true
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		m[name].number = i + 1
	}
	return m
}()

func unknownRequest(_ *conn, r *request) {
	r.idle = true
	r.failed("unknown method")
}

func echoMethod(_ *conn, r *request) {
	r.idle = true
	b := []byte{'['}
	for i, p := range r.params {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.Append(b)
	}
	r.result(append(b, ']'))
}

// listRequest lists the databases that the caller may see.
func listRequest(c *conn, r *request) {
	if !c.current(r) {
		return
	}
	names := []string{serverName}
	c.door.databases(c.door.view(), func(name string, _ *ovs.Schema) {
		if c.sees(name) {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	b := []byte{'['}
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = ovs.AppendString(b, name)
	}
	r.result(append(b, ']'))
}

// schemaRequest tells the schema of a database.
func schemaRequest(c *conn, r *request) {
	name, ok := r.text(0)
	if !ok { // Python's clients send the id of their monitor with it
		r.syntax("the schema is that of a database")
		return
	}
	if !c.visible(r, name) {
		return
	}
	if name == serverName {
		r.result(c.door.feeds.server.schema.JSON)
		return
	}
	if !c.current(r) {
		return
	}
	state := c.door.contentsOf(c.door.view(), name)
	if state == nil { // it has been dropped this moment
		r.unknownDatabase(name)
		return
	}
	r.result(state.Schema().JSON)
}

// sees reports whether the caller may look at a database, as `list_dbs` lists them.
func (c *conn) sees(name string) bool {
	rights, _ := c.who.rights()
	return name == serverName || rights.Sight(calls.OvsdbRead.Action()).Sees(c.door.named(name).Name)
}

// visible reports whether a request is about a database that is there and that its
// caller may see; else it has been answered.
func (c *conn) visible(r *request, name string) bool {
	if name == serverName {
		return true
	}
	if a := r.method.call; a.Row().Judged == calls.Named {
		var err error
		if r.judged, err = c.who.may(a.Action(), c.door.named(name)); err != nil {
			r.refuse(faultOf(err))
			return false
		}
	}
	return c.has(r, name)
}

// has reports whether a database is there. If not, this member may not have applied yet what
// another has answered: the request is served again by a confirmed state, or it has been
// answered.
func (c *conn) has(r *request, name string) bool {
	if c.door.contentsOf(c.door.view(), name) != nil {
		return true
	}
	if c.current(r) {
		r.unknownDatabase(name)
	}
	return false
}

// current reports whether this member has applied what any had answered when the request
// came. If that is not known the request is served again once it has, or it is refused.
func (c *conn) current(r *request) bool {
	if r.confirmed {
		return true
	}
	c.door.confirm(func(err error) {
		r.resume(func() {
			if r.confirmed = true; err != nil {
				r.fail(err)
				return
			}
			r.method.serve(c, r)
		})
	})
	return false
}

func (r *request) unknownDatabase(name string) {
	r.refuse(ovs.Errorf(ovs.UnknownDatabase, "no database named %s", name))
}

func serverIDRequest(c *conn, r *request) {
	r.idle = true
	r.result(quoted(uuidOf(c.door.cfg.Standing().Member).String()))
}

func awareRequest(c *conn, r *request) {
	if len(r.params) != 1 || r.params[0].Kind() != ovs.True && r.params[0].Kind() != ovs.False {
		r.syntax("a client is aware of changes, or not")
		return
	}
	r.idle = true // once is enough
	c.session.aware = r.params[0].Kind() == ovs.True
	r.result(nothing)
}

// confirm calls then, on any goroutine, once this member has applied all that was committed
// until now, or with the reason why that cannot be known. then must not wait.
func (d *Door) confirm(then func(error)) {
	end := d.now().Add(d.limits.Load().Patience)
	delay := firstRetry
	var try func()
	try = func() {
		d.engine.Confirm(func(err error) {
			if err == nil || !d.now().Before(end) {
				then(err)
				return
			}
			d.after(delay, try)
			delay = min(2*delay, maxRetry)
		})
	}
	try()
}
