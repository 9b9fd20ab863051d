// Package lists checks histories of transactions over lists for being strictly
// serializable: some order of all transactions, in which each stands between its call
// and its return, explains everything that was read.
//
// A transaction reads lists and appends to them, elements that nobody appends twice.
// Lists only grow, so that the longest one read says in which order the transactions
// that appended to it were executed, and every other read where its reader stood among
// them. That gives edges between transactions, as Elle does it (Kingsbury and Alvaro,
// VLDB 2020): of writer to next writer, of writer to reader, of reader to the writer of
// what it did not see yet, and of what had returned to what was called later. A
// history with a cycle has no order.
package lists

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

// Txn is one transaction as its client saw it.
type Txn struct {
	Client  int
	Called  int64            // a moment, on one clock for all
	Return  int64            // [Unknown]: nobody knows whether it was executed, or will be
	Failed  bool             // certainly not executed
	Reads   map[string][]int // what it read, before it appended anything
	Appends map[string]int   // what it appended
}

// Unknown is the return of a transaction without an answer.
const Unknown = math.MaxInt64

func (t *Txn) String() string {
	return fmt.Sprintf("client %d, %d to %d: reads %v, appends %v", t.Client, t.Called, t.Return, t.Reads, t.Appends)
}

// History is transactions from all clients, in any order.
type History []*Txn

// Check returns what is wrong with the history, or nil.
func (h History) Check() error {
	writers, err := h.writers()
	if err != nil {
		return err
	}
	orders, err := h.orders(writers)
	if err != nil {
		return err
	}
	g := &graph{nodes: make(map[*Txn]int)}
	for _, t := range h {
		if h.counts(t, orders) {
			g.add(t)
		}
	}
	for key, order := range orders {
		g.edgesOf(key, order, writers)
	}
	g.time()
	return g.cycle()
}

// writers finds who appended each element.
func (h History) writers() (map[int]*Txn, error) {
	writers := make(map[int]*Txn)
	for _, t := range h {
		for key, e := range t.Appends {
			if o := writers[e]; o != nil {
				return nil, fmt.Errorf("element %d of %s is appended twice: by %v and by %v", e, key, o, t)
			}
			writers[e] = t
		}
	}
	return writers, nil
}

// orders are the longest lists that were read; all others must be their beginnings.
func (h History) orders(writers map[int]*Txn) (map[string][]int, error) {
	orders := make(map[string][]int)
	for _, t := range h {
		for key, list := range t.Reads {
			if longest, is := orders[key]; !t.Failed && t.Return != Unknown && (!is || len(list) > len(longest)) {
				orders[key] = list
			}
		}
	}
	for key, order := range orders {
		seen := make(map[int]bool)
		for _, e := range order {
			switch w := writers[e]; {
			case w == nil || w.Appends[key] != e:
				return nil, fmt.Errorf("element %d of %s was read, and nobody appended it", e, key)
			case w.Failed:
				return nil, fmt.Errorf("element %d of %s was read, and failed to be appended: %v", e, key, w)
			case seen[e]:
				return nil, fmt.Errorf("element %d stands in %s twice: %v", e, key, order)
			}
			seen[e] = true
		}
	}
	for _, t := range h {
		for key, list := range t.Reads {
			order := orders[key]
			if !t.Failed && t.Return != Unknown && !slices.Equal(list, order[:len(list)]) {
				return nil, fmt.Errorf("%v: %s was read as %v elsewhere", t, key, order)
			}
		}
	}
	return orders, nil
}

// counts reports whether a transaction was executed for certain: one without an
// answer was if somebody has read what it appended.
func (h History) counts(t *Txn, orders map[string][]int) bool {
	if t.Failed || t.Return != Unknown {
		return !t.Failed
	}
	for key, e := range t.Appends {
		if slices.Contains(orders[key], e) {
			return true
		}
	}
	return false
}

// edge says why one transaction stands before another.
type edge struct {
	to  int
	why string
}

// graph has a node for each transaction and for each moment at which one returned.
type graph struct {
	nodes map[*Txn]int
	txns  []*Txn // by node; nil: a moment
	edges [][]edge
}

func (g *graph) add(t *Txn) int {
	n := len(g.txns)
	g.txns, g.edges = append(g.txns, t), append(g.edges, nil)
	if t != nil {
		g.nodes[t] = n
	}
	return n
}

func (g *graph) link(a, b *Txn, why string) {
	if a == b {
		return
	}
	from, is := g.nodes[a]
	to, was := g.nodes[b]
	if is && was {
		g.edges[from] = append(g.edges[from], edge{to, why})
	}
}

// edgesOf are those that one list gives.
func (g *graph) edgesOf(key string, order []int, writers map[int]*Txn) {
	for i := 1; i < len(order); i++ {
		g.link(writers[order[i-1]], writers[order[i]], "appended to "+key+" before")
	}
	var unread []*Txn // appended for certain, and read by nobody: behind all reads
	for t := range g.nodes {
		if e, appends := t.Appends[key]; appends && !slices.Contains(order, e) {
			unread = append(unread, t)
		}
	}
	for t := range g.nodes {
		list, reads := t.Reads[key]
		if !reads || len(list) > len(order) {
			continue
		}
		if n := len(list); n > 0 {
			g.link(writers[list[n-1]], t, "appended to "+key+" what was read by")
		}
		if n := len(list); n < len(order) {
			g.link(t, writers[order[n]], "read "+key+" before it was appended to by")
		}
		for _, w := range unread {
			g.link(t, w, "read "+key+" before it was appended to by")
		}
	}
	if n := len(order); n > 0 {
		for _, w := range unread {
			g.link(writers[order[n-1]], w, "appended to "+key+" before")
		}
	}
}

// time adds that what had returned stands before what was called later: by way of a
// chain of moments, of which there are as many as returns.
func (g *graph) time() {
	txns := slices.Clone(g.txns)
	slices.SortFunc(txns, func(a, b *Txn) int { return int(min(max(a.Return-b.Return, -1), 1)) })
	var moments []int64
	var chain []int
	for _, t := range txns {
		if t.Return == Unknown {
			continue
		}
		n := g.add(nil)
		if len(chain) > 0 {
			g.edges[chain[len(chain)-1]] = append(g.edges[chain[len(chain)-1]], edge{n, "passed before"})
		}
		moments, chain = append(moments, t.Return), append(chain, n)
		g.edges[g.nodes[t]] = append(g.edges[g.nodes[t]], edge{n, "returned at"})
	}
	for _, t := range txns {
		if i := sort.Search(len(moments), func(i int) bool { return moments[i] >= t.Called }); i > 0 {
			g.edges[chain[i-1]] = append(g.edges[chain[i-1]], edge{g.nodes[t], "passed before the call of"})
		}
	}
}

// cycle returns an error that names one, or nil.
func (g *graph) cycle() error {
	const (
		fresh = iota
		open
		closed
	)
	state := make([]uint8, len(g.txns))
	next := make([]int, len(g.txns)) // the edge to follow
	for start := range g.txns {
		if state[start] != fresh {
			continue
		}
		path := []int{start}
		state[start] = open
		for len(path) > 0 {
			n := path[len(path)-1]
			if next[n] == len(g.edges[n]) {
				state[n] = closed
				path = path[:len(path)-1]
				continue
			}
			to := g.edges[n][next[n]].to
			next[n]++
			switch state[to] {
			case open:
				return g.describe(path[slices.Index(path, to):], next)
			case fresh:
				state[to] = open
				path = append(path, to)
			}
		}
	}
	return nil
}

// describe puts a cycle in words.
func (g *graph) describe(path, next []int) error {
	var b strings.Builder
	b.WriteString("no order explains what was read:")
	for _, n := range path {
		if t := g.txns[n]; t != nil {
			fmt.Fprintf(&b, "\n  (%v)", t)
		}
		if why := g.edges[n][next[n]-1].why; why != "passed before" {
			b.WriteString(" " + why)
		}
	}
	return fmt.Errorf("%s … the first", b.String())
}
