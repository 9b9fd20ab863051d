package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/test/lists"
)

// What listers do.
const (
	listsOf   = "lists" // namespace of their keys and leases
	listNum   = 4
	fenceNum  = 2 // of the lists: only the holder of its lease appends to one
	listRests = 500 * time.Millisecond

	largeOneIn = 200 // transactions that append
	paddings   = 3   // values of the largest size, which make a transaction travel in parts
)

// padding is a value of the largest size. Nobody changes it.
var padding = make([]byte, kv.MaxValueBytes)

// lister is a client that reads lists and appends to them by transactions, some of
// them under the token of a lease that it claims and releases by transactions, too.
type lister struct {
	w     *world
	a     *agent
	token map[kv.Key]incumbent.Token // of the leases of fenced lists, as it believes
}

func newLister(w *world, id int) *lister {
	return &lister{w: w, a: newAgent(w, id), token: map[kv.Key]incumbent.Token{}}
}

func listKey(i int) kv.Key { return kv.Key{Namespace: listsOf, Name: fmt.Sprint(i)} }

// fence is the lease that protects a list, if one does.
func fence(k kv.Key) (name incumbent.Name, is bool) {
	i, _ := strconv.Atoi(k.Name)
	return incumbent.Name{Namespace: listsOf, Model: "default", Lease: k.Name}, i < fenceNum
}

func (l *lister) next() { l.a.later(l.w.upTo(listRests), l.act) }

// act reads some lists, and then appends to them if they are as they were.
func (l *lister) act() {
	l.a.at = l.w.anyone()
	var keys []kv.Key
	for len(keys) == 0 {
		for i := range listNum {
			if l.w.chance(2) {
				keys = append(keys, listKey(i))
			}
		}
	}
	t := &lists.Txn{Client: l.a.id}
	l.do(core.TxnCommand{Then: gets(keys)}, t, func(r core.Result) {
		seen := entriesRead(&r)
		t.Reads = readsOf(keys, seen)
		if r.Replayed || l.w.chance(4) {
			l.next()
			return
		}
		l.append(keys, seen)
	})
}

func gets(keys []kv.Key) (ops []core.Command) {
	for _, k := range keys {
		ops = append(ops, kv.Command{Verb: kv.Get, Key: k})
	}
	return ops
}

func entriesRead(r *core.Result) (list []*kv.Entry) {
	for _, x := range r.Txn.Results {
		e, _ := x.Record.(*kv.Entry)
		list = append(list, e)
	}
	return list
}

func readsOf(keys []kv.Key, seen []*kv.Entry) map[string][]int {
	reads := map[string][]int{}
	for i, e := range seen {
		reads[keys[i].Name] = elementsOf(e)
	}
	return reads
}

func elementsOf(e *kv.Entry) (list []int) {
	if e == nil {
		return nil
	}
	for word := range strings.FieldsSeq(string(e.Value)) {
		n, _ := strconv.Atoi(word) // what is no number nobody appended
		list = append(list, n)
	}
	return list
}

// append appends to some of the lists if all of them are as they were read, and, to
// those that have one, under the lease: its token, or a claim in the same transaction.
func (l *lister) append(keys []kv.Key, seen []*kv.Entry) {
	w := l.w
	t := &lists.Txn{Client: l.a.id, Reads: readsOf(keys, seen), Appends: map[string]int{}}
	c := core.TxnCommand{Else: gets(keys)}
	claimed := map[kv.Key]int{} // which operation claims its lease
	var released []kv.Key
	for i, k := range keys {
		at, before := incumbent.Index(0), ""
		if e := seen[i]; e != nil {
			at, before = e.Modified, string(e.Value)
		}
		c.If = append(c.If, kv.Condition{Test: kv.Modified, Key: k, Index: at})
		if i > 0 && w.chance(2) {
			continue
		}
		element := w.check.lists.element()
		name, fenced := fence(k)
		switch token := l.token[k]; {
		case fenced && token != 0:
			c.If = append(c.If, leases.IfHeld{Name: name, Token: token})
			w.check.lists.under[element] = token
			if w.chance(3) {
				c.Then = append(c.Then, leases.ReleaseCommand{Name: name, Token: token})
				released = append(released, k)
			}
		case fenced:
			claimed[k] = len(c.Then)
			c.Then = append(c.Then, leases.ClaimCommand{Name: name, Holder: l.a.holder(), TTL: l.a.ttl})
		}
		t.Appends[k.Name] = element
		c.Then = append(c.Then, kv.Command{Verb: kv.Put, Key: k, Value: fmt.Appendf(nil, "%s %d", before, element)})
	}
	large := w.chance(largeOneIn)
	if large { // and leaves nothing behind
		pads := kv.Key{Namespace: listsOf, Name: fmt.Sprintf("pads/%d/", l.a.id)}
		for i := range paddings {
			c.Then = append(c.Then, kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: listsOf, Name: fmt.Sprint(pads.Name, i)}, Value: padding})
		}
		c.Then = append(c.Then, kv.Command{Verb: kv.RemoveTree, Key: pads})
	}
	l.do(c, t, func(r core.Result) {
		if large && r.Err == nil && r.Txn.Unmet == 0 {
			w.res.Large++
		}
		switch {
		case r.Err != nil:
			t.Failed = true // another holds a lease
		case r.Txn.Unmet > 0:
			t.Failed = true
			clear(l.token)
			if !r.Replayed {
				w.check.lists.add(&lists.Txn{Client: t.Client, Called: t.Called, Return: t.Return, Reads: readsOf(keys, entriesRead(&r))})
			}
		case !r.Replayed:
			for k, n := range claimed {
				l.token[k] = leases.AnswerOf(r.Txn.Results[n]).Lease.Token
				w.check.lists.under[t.Appends[k.Name]] = l.token[k]
			}
			for _, k := range released {
				delete(l.token, k)
			}
		}
		l.next()
	})
}

// do makes a call, of which the checker takes note. A call without an answer is one
// whose outcome nobody knows.
func (l *lister) do(c core.TxnCommand, t *lists.Txn, then func(core.Result)) {
	check := l.w.check
	t.Called, t.Return = check.keys.now(), lists.Unknown
	check.lists.add(t)
	l.a.submit(c.Pack(), func(r core.Result) {
		t.Return = check.keys.now()
		l.w.res.Transactions++
		then(r)
	}, func() {
		clear(l.token)
		l.next()
	})
}

// submitTxn hands a transaction on as a door does: what changes nothing is answered
// from a confirmed view, unless an earlier attempt may yet change something.
func (p *process) submitTxn(call lease.Call, txn core.Txn, first bool, done func(core.Result)) {
	execute := func() {
		p.group.Execute(engine.Call{Meta: call.Meta(), Deadline: call.Deadline}, txn, done)
	}
	if _, idle := p.group.View().Try(txn); !first || !idle {
		execute()
		return
	}
	p.group.Confirm(func(err error) {
		if err != nil {
			done(failed(err))
			return
		}
		if r, idle := p.group.View().Try(txn); idle {
			p.w.res.Idle++
			done(r)
			return
		}
		execute()
	})
}

// listChecker has the history of all transactions over lists.
type listChecker struct {
	w       *world
	history lists.History
	last    int
	under   map[int]incumbent.Token // which elements were appended under a token
}

func newListChecker(w *world) *listChecker {
	return &listChecker{w: w, under: map[int]incumbent.Token{}}
}

func (c *listChecker) element() int {
	c.last++
	return c.last
}

func (c *listChecker) add(t *lists.Txn) { c.history = append(c.history, t) }

// explain reads all lists of the state at the end, and fails unless some order of all transactions explains all
// that was read (G24), and no token comes behind a greater one of its lease: what was
// appended under it was appended by its holder (G02).
func (c *listChecker) explain(v *core.View) {
	end := c.w.check.keys.now()
	all := &lists.Txn{Client: -1, Called: end, Return: end, Reads: map[string][]int{}}
	for i := range listNum {
		k := listKey(i)
		list := elementsOf(kv.Of(v).Entry(k))
		all.Reads[k.Name] = list
		tokens := slices.DeleteFunc(slices.Clone(list), func(e int) bool { return c.under[e] == 0 })
		if _, fenced := fence(k); fenced && !slices.IsSortedFunc(tokens, func(a, b int) int { return int(c.under[a]) - int(c.under[b]) }) {
			c.w.violate("list %s was appended to under tokens that do not rise: %v (G02)", k.Name, tokens)
		}
	}
	c.add(all)
	if err := c.history.Check(); err != nil {
		c.w.violate("%v (G24)", err)
	}
}
