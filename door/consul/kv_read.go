package consul

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// behindAll follows every key with the prefix it is appended to: no key has that
// byte, for keys are UTF-8.
const behindAll = "\xff"

// kvGet reads a key, what is below one, or the names of what is.
func kvGet(d *Door, r *request) {
	separator := cmp.Or(r.query.Get("separator"), r.query.Get("seperator")) //nolint:misspell // Consul has spelled it so, and takes both
	q := kvQuery{prefix: d.key(r.rest), separator: separator, raw: r.query.Has("raw") && !r.listsKeys()}
	switch {
	case r.query.Has("keys"):
		q.what = keyNames
	case r.query.Has("recurse"):
		q.what = keyTree
	case !r.keyed():
		return
	}
	if q.what != keyNames {
		q.separator = ""
	}
	if err := q.validate(); err != nil {
		r.failFor(err)
		return
	}
	if q.what == oneKey {
		if r.allow(auth.KeyRead, r.rest, false) {
			r.shared(q.shared(""))
		}
		return
	}
	q.sight = r.who.sight(auth.KeyRead).Within(d.named(r.rest))
	r.shared(q.shared(q.sight.Key()))
}

// listsKeys reports whether a read of keys is of all below a prefix, or of their names.
func (r *request) listsKeys() bool { return r.query.Has("recurse") || r.query.Has("keys") }

// whatKeys is what is read of keys.
type whatKeys uint8

const (
	oneKey whatKeys = iota
	keyTree
	keyNames
)

// kvQuery is a read of keys.
type kvQuery struct {
	what      whatKeys
	prefix    kv.Key
	separator string
	raw       bool
	sight     auth.Sight // of what is listed
}

func (q *kvQuery) validate() error {
	if q.what == oneKey {
		return q.prefix.Validate()
	}
	return q.prefix.ValidatePrefix()
}

// shared is the query for all who may see the same.
func (q *kvQuery) shared(rights string) sharedQuery {
	kind := [...]string{oneKey: "key", keyTree: "keys below", keyNames: "names below"}[q.what]
	// Quoted, for what is joined may hold whatever it would be joined by.
	params := append(strconv.AppendQuote(nil, q.prefix.Namespace), ' ')
	params = strconv.AppendQuote(params, q.prefix.Name)
	if q.separator != "" {
		params = strconv.AppendQuote(append(params, ' '), q.separator)
	}
	if q.raw {
		kind = "raw " + kind
	}
	return sharedQuery{kind: kind, params: string(params), rights: rights, direct: q.what == oneKey, eval: q.eval}
}

func (q *kvQuery) eval(v *core.View, reads *watch.Reads) result {
	from := engine.Read(v, reads)
	switch q.what {
	case keyTree:
		return q.tree(from)
	case keyNames:
		return q.names(from)
	}
	e, gone := from.Key(q.prefix)
	if e == nil {
		return result{status: http.StatusNotFound, index: max(gone, 1)}
	}
	return q.entries(result{index: e.Modified}, []*kv.Entry{e})
}

// entries answers entries: each in full, or the value of the first one alone.
func (q *kvQuery) entries(res result, list []*kv.Entry) result {
	if len(list) == 0 {
		res.status = http.StatusNotFound
		return res
	}
	for _, e := range list {
		res.size += len(e.Name) + len(e.Value)*4/3 + entryBytes
	}
	if q.raw {
		res.raw, res.body = true, newBody(func() []byte { return list[0].Value })
		return res
	}
	res.body = newBody(func() []byte {
		b := append(make([]byte, 0, res.size), '[')
		for i, e := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendEntry(b, e, true)
		}
		return append(b, ']')
	})
	return res
}

func (q *kvQuery) tree(from engine.Reading) result {
	var list []*kv.Entry
	res := result{index: q.modified(from)}
	from.Keys(q.prefix, kv.Key{}, func(e *kv.Entry) bool {
		if q.sees(e.Key) {
			list = append(list, e)
		} else {
			res.filtered = true
		}
		return true
	})
	return q.entries(res, list)
}

// modified is when what is listed changed last, deletions included.
func (q *kvQuery) modified(from engine.Reading) incumbent.Index {
	return max(from.Modified(q.prefix, q.sees, func() bool { return true }), 1)
}

func (q *kvQuery) sees(k kv.Key) bool {
	return q.sight.All() || q.sight.Sees(incumbent.Name{Namespace: k.Namespace, Lease: k.Name})
}

// names are the keys, each cut behind the first separator and told once. What has been
// cut away is passed over.
func (q *kvQuery) names(from engine.Reading) result {
	res := result{index: q.modified(from)}
	names := []string{}
	after := kv.Key{Namespace: q.prefix.Namespace}
	for more := true; more; {
		more = false
		from.Keys(q.prefix, after, func(e *kv.Entry) bool {
			if !q.sees(e.Key) {
				res.filtered = true
				return true
			}
			name, cut := groupOf(e.Name, q.prefix.Name, q.separator)
			names = append(names, name)
			res.size += len(name) + 3
			if cut {
				after.Name, more = name+behindAll, true
			}
			return !cut
		})
	}
	if len(names) == 0 && q.prefix.Name != "" { // that there is nothing at all is an answer
		res.status = http.StatusNotFound
		return res
	}
	res.body = newBody(func() []byte {
		b := append(make([]byte, 0, res.size+2), '[')
		for i, n := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, n)
		}
		return append(b, ']')
	})
	return res
}

// rawHeaders say that a value is bytes, which no browser is to take for a page.
func (r *request) rawHeaders() {
	r.setHeader("Content-Type", "text/plain; charset=utf-8")
	r.setHeader("X-Content-Type-Options", "nosniff")
	r.setHeader("Content-Security-Policy", "sandbox")
}
