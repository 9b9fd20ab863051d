package consul

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/prepared"
	"github.com/incumbent-dev/incumbent/watch"
)

// queryRoutes are about prepared queries.
func queryRoutes() []route {
	return []route{
		{"/v1/query", methods{"GET": queryList, "POST": queryCreate}},
		{"/v1/query/", methods{"GET": queryGet, "PUT": queryUpdate, "DELETE": queryDelete}},
	}
}

// What follows the id or name of a query in a path.
const (
	toExecute = "/execute"
	toExplain = "/explain"
)

// textNoQuery says that there is no such query.
const textNoQuery = "Query not found"

// textNoID says that what should be an id is none.
const textNoID = "failed prepared query lookup: index error: UUID must be 36 characters"

// queryName is a query's for policies: its id's, if it has no name.
func (d *Door) queryName(q *prepared.Found) incumbent.Name {
	return incumbent.Name{Namespace: prepared.Namespace(d.namespace), Lease: cmp.Or(q.Name, q.ID)}
}

// failRead answers with an error that was found where something is read.
func (r *request) failRead(status int, format string, args ...any) {
	r.setHeader("X-Consul-Index", "1")
	r.setHeader("X-Consul-Knownleader", "false")
	r.setHeader("X-Consul-Lastcontact", "0")
	r.setHeader("X-Consul-Query-Backend", "blocking-query")
	r.fail(status, format, args...)
}

// failLooking is failRead where the catalog or a query is looked at, and else fail.
func (r *request) failLooking(status int, format string, args ...any) {
	if r.method == http.MethodGet && (strings.HasPrefix(r.path, "/v1/catalog/") || strings.HasPrefix(r.path, "/v1/query/")) {
		r.failRead(status, format, args...)
		return
	}
	r.fail(status, format, args...)
}

// queryList lists the queries, by id.
func queryList(d *Door, r *request) {
	r.queries(prepared.Prefix(d.namespace), "")
}

// queries answers with the queries below a prefix that the caller may see. gone is what is
// said where there is none; "": an empty list.
func (r *request) queries(prefix kv.Key, gone string) {
	d, sight := r.door, r.who.sight(auth.KeyRead)
	r.shared(sharedQuery{kind: "queries", params: prefix.Name, rights: sight.Key(), eval: func(v *core.View, reads *watch.Reads) result {
		from := engine.Read(v, reads)
		list, res := []prepared.Query{}, result{index: max(from.Modified(prefix, func(kv.Key) bool { return true }, func() bool { return true }), 1)}
		from.Keys(prefix, kv.Key{}, func(e *kv.Entry) bool {
			switch q := prepared.Read(e); {
			case q == nil: // somebody else has put it there
			case sight.Sees(d.queryName(q)):
				list = append(list, q.Query)
			default:
				res.filtered = true
			}
			return true
		})
		if gone != "" && len(list) == 0 && !res.filtered {
			return result{index: res.index, status: http.StatusNotFound, fails: gone, size: len(gone)}
		}
		return res.encoded(list)
	}})
}

// queryGet shows a query, or executes or explains it.
func queryGet(d *Door, r *request) {
	if name, ok := strings.CutSuffix(r.rest, toExecute); ok {
		r.executeQuery(name)
		return
	}
	if name, ok := strings.CutSuffix(r.rest, toExplain); ok {
		r.explainQuery(name)
		return
	}
	if len(r.rest) != idLength {
		r.failRead(http.StatusInternalServerError, textNoID)
		return
	}
	r.fresh(func() {
		q := prepared.ByID(d.view(), d.namespace, r.rest)
		if q == nil {
			r.failRead(http.StatusNotFound, textNoQuery)
			return
		}
		if err := r.authorize(auth.KeyRead, auth.Resource{Name: d.queryName(q)}, cmp.Or(q.Name, q.ID)); err != nil {
			r.failFor(err)
			return
		}
		r.queries(prepared.Key(d.namespace, q.ID), textNoQuery)
	})
}

// idLength is that of an id as text.
const idLength = 36

// metaJSON is what bodies say of how they were read.
type metaJSON struct {
	Index                 uint64
	LastContact           int64
	KnownLeader           bool
	ConsistencyLevel      string
	NotModified           bool
	Backend               int
	ResultsFilteredByACLs bool
}

// meta is that of this request, whose headers say it, too.
func (r *request) meta(filtered bool) metaJSON {
	r.setHeader("X-Consul-Index", "1")
	r.tellFiltered(filtered)
	r.consistencyHeaders()
	level, age := r.consistency()
	return metaJSON{Index: 1, LastContact: age.Milliseconds(), KnownLeader: r.knowsLeader(), ConsistencyLevel: level, ResultsFilteredByACLs: filtered}
}

// resolved goes on with the query of an id or name, filled in. If there is none it has
// been answered.
func (r *request) resolved(idOrName string, then func(*prepared.Found)) {
	d := r.door
	r.fresh(func() {
		switch q, err := prepared.Resolve(d.view(), d.namespace, idOrName); {
		case err != nil:
			r.failRead(http.StatusInternalServerError, "%s", textOf(err))
		case q == nil:
			r.failRead(http.StatusNotFound, textNoQuery)
		default:
			then(q)
		}
	})
}

// explainQuery shows what a name stands for.
func (r *request) explainQuery(name string) {
	r.resolved(name, func(q *prepared.Found) {
		if err := r.authorize(auth.KeyRead, auth.Resource{Name: r.door.queryName(q)}, cmp.Or(q.Name, q.ID)); err != nil {
			r.failFor(err)
			return
		}
		r.json(http.StatusOK, struct {
			Query *prepared.Query
			metaJSON
		}{&q.Query, r.meta(false)})
	})
}

// executedJSON is what a query found.
type executedJSON struct {
	Service    string
	Nodes      []*entryJSON
	DNS        prepared.DNS
	Datacenter string
	PeerName   string
	Failovers  int
	metaJSON
}

// executeQuery answers with the instances that a query is for, in any order but for what
// is to be near.
func (r *request) executeQuery(name string) {
	limit, text := 0, r.query.Get("limit")
	if text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil {
			r.fail(http.StatusInternalServerError, "Bad limit: %v", err)
			return
		}
	}
	mesh := false
	if text := r.query.Get("connect"); text != "" {
		var err error
		if mesh, err = strconv.ParseBool(text); err != nil {
			r.fail(http.StatusInternalServerError, "Error parsing 'connect' value: %v", err)
			return
		}
	}
	r.resolved(name, func(q *prepared.Found) {
		q.Service.Connect = q.Service.Connect || mesh
		r.execution(q, limit)
	})
}

func (r *request) execution(q *prepared.Found, limit int) {
	d := r.door
	seen, err := r.queryRights(q)
	if err != nil {
		r.failFor(err)
		return
	}
	filtered := false
	list := q.Select(func(service string, fn func(*catalog.Instance) bool) {
		catalog.Of(d.view()).Instances(d.namespace, service, func(i *catalog.Instance) bool {
			if !seen.of(i.Service.Node, i.Service.Name) {
				filtered = true
				return true
			}
			return fn(i)
		})
	})
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if near := r.nearest(cmp.Or(r.query.Get("near"), q.Service.Near)); near != "" {
		prepared.NearFirst(list, near)
	}
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	service := q.Service.Service
	if !seen.service(service) { // who knows an id may not know what it stands for
		service = ""
	}
	out := executedJSON{Service: service, Nodes: []*entryJSON{}, DNS: q.DNS, Datacenter: d.cfg.Datacenter, metaJSON: r.meta(filtered)}
	for _, i := range list {
		e := d.entryOf(i)
		if len(e.Checks) == 0 {
			e.Checks = nil
		}
		out.Nodes = append(out.Nodes, e)
	}
	r.json(http.StatusOK, out)
}

// queryRights is what an execution may see: what whoever has written the query said with
// a token, else what the caller may.
func (r *request) queryRights(q *prepared.Found) (*sights, error) {
	if q.As == nil {
		return r.who.sights(), nil
	}
	p := *q.As
	if !r.door.cfg.Guard.Knows()(p) {
		return nil, incumbent.Errorf(incumbent.Denied, "the token of the query is nobody's any more")
	}
	w := &caller{door: r.door, principal: p, rights: policy.Of(r.door.view()).Rules().Of(p)}
	return w.sights(), nil
}

// nearest is the node that something is to be near to.
func (r *request) nearest(near string) string {
	switch near {
	case "_agent":
		return r.door.cfg.Node
	case "_ip":
		at, name := r.conn.peer.Remote.Addr().Unmap().String(), ""
		catalog.Of(r.door.view()).Nodes(r.door.namespace, "", func(n *catalog.Node) bool {
			if n.Address == at {
				name = n.Name
			}
			return name == ""
		})
		return name
	}
	return near
}
