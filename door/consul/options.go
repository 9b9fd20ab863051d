package consul

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/watch"
)

// options are the parameters that all endpoints have in common.
type options struct {
	index      incumbent.Index // wait until the result's is greater; 0: do not
	hash       string          // wait until the result has another; "": do not
	wait       time.Duration   // so long at most
	stale      bool
	consistent bool
	maxStale   time.Duration // with stale; not above 0: any age
	pretty     bool
	cached     bool
	filter     string
}

// blocking reports whether the request waits for another result.
func (o *options) blocking() bool { return o.index != 0 || o.hash != "" }

// own reports whether the member's own view will do, which is of an age.
func (o *options) own(age time.Duration) bool {
	return o.cached || o.stale && (o.maxStale <= 0 || age <= o.maxStale)
}

// want is what the request waits for.
func (o *options) want() watch.Want {
	w := watch.Want{After: o.index}
	if len(o.hash) == 2*len(w.Not) {
		if b, err := hex.DecodeString(o.hash); err == nil {
			copy(w.Not[:], b)
		}
	}
	if w.After != 0 || w.Not != (watch.Hash{}) {
		w.For = o.wait
	}
	return w
}

// parse reads the options. If one is wrong it has been answered.
func (r *request) parse() bool {
	o, q := &r.opts, r.query
	o.pretty, o.filter, o.hash = q.Has("pretty"), q.Get("filter"), q.Get("hash")
	if o.want().Not == (watch.Hash{}) {
		o.hash = "" // it is none, and is waited for by nobody
	}
	o.stale, o.consistent, o.cached = q.Has("stale"), q.Has("consistent"), q.Has("cached")
	if dc := cmp.Or(q.Get("datacenter"), q.Get("dc")); dc != "" && dc != r.door.cfg.Datacenter && r.looksAtDatacenter() {
		r.absent = true
		r.failLooking(http.StatusInternalServerError, textNoDatacenter)
		return false
	}
	for _, of := range [...]struct{ name, what string }{{"ns", "Namespaces"}, {"partition", "Partitions"}} {
		if v := q.Get(of.name); v != "" && v != "default" {
			r.fail(http.StatusBadRequest, "Invalid query parameter: %q - %s are a Consul Enterprise feature", of.name, of.what)
			return false
		}
	}
	if v := r.header.Get("X-Consul-Namespace"); v != "" && v != "default" {
		r.fail(http.StatusBadRequest, `Invalid header: "X-Consul-Namespace" - Namespaces are a Consul Enterprise feature`)
		return false
	}
	if !r.parseStale() {
		return false
	}
	if !ageful(r.header.Get("Cache-Control")) {
		r.fail(http.StatusBadRequest, "Invalid Cache-Control header.")
		return false
	}
	if !r.parseWait() {
		return false
	}
	if !reads(r.method) { // a change waits for no other result, and is not to be taken for what does
		o.index, o.hash = 0, ""
	}
	return true
}

// looksAtDatacenter reports whether the parameter that names a datacenter means something to
// the endpoint. What an agent does itself is done where it is, and a registration says in its
// body where it belongs; yet clients that are set up for a datacenter name it each time.
func (r *request) looksAtDatacenter() bool {
	switch r.path {
	case "/v1/agent/connect/ca/roots":
		return true
	case "/v1/catalog/register", "/v1/catalog/deregister", "/v1/catalog/datacenters", "/v1/coordinate/datacenters", "/v1/event/list", "/v1/operator/raft/transfer-leader":
		return false
	}
	return !strings.HasPrefix(r.path, "/v1/agent/")
}

// ageful reports whether the ages in a Cache-Control header are some. What they say is
// not looked at: what is cached is as old as this member's state.
func ageful(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); strings.ToLower(name) {
		case "max-age", "stale-if-error":
			if _, err := strconv.ParseUint(value, 10, 32); err != nil {
				return false
			}
		}
	}
	return true
}

func (r *request) parseWait() bool {
	o := &r.opts
	if text := r.query.Get("wait"); text != "" {
		var err error
		if o.wait, err = time.ParseDuration(text); err != nil {
			r.fail(http.StatusBadRequest, "Invalid wait time")
			return false
		}
	}
	if o.wait <= 0 {
		o.wait = defaultWait
	}
	o.wait = min(o.wait, maxWait)
	if text := r.query.Get("index"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			r.fail(http.StatusBadRequest, "Invalid index")
			return false
		}
		o.index = incumbent.Index(n)
	}
	return true
}

// parseStale reads how old an answer may be. Who names an age above 0 takes what has it; any
// other says nothing.
func (r *request) parseStale() bool {
	o := &r.opts
	if text := r.query.Get("max_stale"); text != "" {
		var err error
		if o.maxStale, err = time.ParseDuration(text); err != nil {
			r.fail(http.StatusBadRequest, "Invalid max_stale value %q", text)
			return false
		}
		o.stale = o.stale || o.maxStale > 0
	}
	for _, of := range [...]struct {
		asked bool
		name  string
	}{{o.stale, "stale"}, {o.cached, "cached"}} {
		if of.asked && o.consistent {
			r.fail(http.StatusBadRequest, "Cannot specify ?%s with ?consistent, conflicting semantics.", of.name)
			return false
		}
	}
	return true
}
