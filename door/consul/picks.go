package consul

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/watch"
)

// picks are the parameters by which a caller selects rows of a list.
type picks struct {
	tags    []string // all of them, whatever their case
	passing bool
	meta    []catalog.Pair // of the node: all of them
	filter  string
}

// parsePicks reads them. If one is wrong it has been answered.
func (r *request) parsePicks() (p picks, ok bool) {
	for _, tag := range r.query["tag"] {
		p.tags = append(p.tags, strings.ToLower(tag))
	}
	slices.Sort(p.tags)
	if r.query.Has("passing") {
		text := r.query.Get("passing")
		on, err := strconv.ParseBool(cmp.Or(text, "true"))
		if err != nil {
			r.fail(http.StatusBadRequest, "Invalid value for ?passing")
			return p, false
		}
		p.passing = on
	}
	for _, pair := range r.query["node-meta"] {
		key, value, _ := strings.Cut(pair, ":")
		p.meta = append(p.meta, catalog.Pair{Key: key, Value: value})
	}
	slices.SortFunc(p.meta, func(a, b catalog.Pair) int { return strings.Compare(a.Key+"\x00"+a.Value, b.Key+"\x00"+b.Value) })
	p.filter = r.opts.filter
	return p, true
}

// key is the canonical form of the parameters, with what the list is of, as operators
// are shown it.
func (p *picks) key(of string) string {
	var b []byte
	if of != "" {
		b = strconv.AppendQuote(b, of)
	}
	add := func(name, value string) { b = strconv.AppendQuote(append(append(b, ' '), name...), value) }
	for _, tag := range p.tags {
		add("tag=", tag)
	}
	if p.passing {
		b = append(b, " passing"...)
	}
	for _, m := range p.meta {
		add("node-meta=", m.Key+":"+m.Value) // no key has a colon: it was cut at the first
	}
	if p.filter != "" {
		add("filter=", p.filter)
	}
	return string(b)
}

// ofNode reports whether a node is selected.
func (p *picks) ofNode(n *catalog.Node) bool {
	for _, want := range p.meta {
		if n == nil || !slices.Contains(n.Meta, want) {
			return false
		}
	}
	return true
}

// ofInstance reports whether an instance is selected, but for the filter.
func (p *picks) ofInstance(i *catalog.Instance) bool {
	for _, tag := range p.tags {
		if !slices.ContainsFunc(i.Service.Tags, func(t string) bool { return strings.EqualFold(t, tag) }) {
			return false
		}
	}
	return p.ofNode(i.Node) && (!p.passing || i.Status() == catalog.Passing)
}

// serveList answers with what is selected of a list. plain selects rows but for the
// filter; nil: all. The list is of the same in any case of a name.
func serveList[R comparable, J any](r *request, k *kind[R, J], of string, p picks, plain func(R) bool) {
	d, of := r.door, incumbent.Fold(of)
	picked := plain
	if p.filter != "" {
		e, err := expressionOf[J](&d.expressions, p.filter)
		if err != nil {
			r.failLooking(http.StatusInternalServerError, "%v", err)
			return
		}
		picked = func(row R) bool { return (plain == nil || plain(row)) && e.selects(k.shape(d, row)) }
	}
	seen := r.who.sights()
	var s *selection[R, J]
	r.shared(sharedQuery{
		kind: k.name, params: p.key(of), rights: seen.key(),
		eval: func(v *core.View, notes *watch.Reads) result {
			if s == nil {
				s = &selection[R, J]{board: boardOf(d, k, of), picks: picked, sees: seen}
			}
			return s.list(v, notes).result()
		},
	})
}

// Of filters that have been parsed so many are kept, of so many bytes each; of more all are
// dropped.
const (
	maxExpressions     = 1024
	maxExpressionBytes = 1024
)

// expressions are filters that have been parsed: that may take long, and the same come
// again and again.
type expressions struct {
	mu     sync.Mutex     // protects byText
	byText map[string]any // *expression[J] by the type of J and the text
}

func expressionOf[J any](all *expressions, text string) (*expression[J], error) {
	key := fmt.Sprintf("%T %s", *new(J), text)
	all.mu.Lock()
	known, ok := all.byText[key].(*expression[J])
	all.mu.Unlock()
	if ok {
		return known, nil
	}
	e, err := newExpression[J](text)
	if err != nil {
		return nil, err
	}
	if len(text) > maxExpressionBytes {
		return e, nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byText == nil || len(all.byText) >= maxExpressions {
		all.byText = map[string]any{}
	}
	all.byText[key] = e
	return e, nil
}
