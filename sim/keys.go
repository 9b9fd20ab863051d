package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// What writers and lockers of a run do.
const (
	writes      = time.Second // a writer rests between two calls, at most
	valueBytes  = 200         // of a value, at most
	registerDir = "r/"        // of keys whose answers are checked as those of registers
	lockDir     = "l/"        // of keys that sessions lock
	treeDir     = "t/"        // of keys in two branches
	registerNum = 4
	lockNum     = 3
	treeNum     = 6
)

// keysOfRun are the keys there are.
func keysOfRun() (list []kv.Key) {
	for i := range registerNum {
		list = append(list, keyNamed(fmt.Sprintf("%s%d", registerDir, i)))
	}
	for i := range lockNum {
		list = append(list, keyNamed(fmt.Sprintf("%s%d", lockDir, i)))
	}
	for i := range treeNum {
		list = append(list, keyNamed(fmt.Sprintf("%s%d/%d", treeDir, i%2, i)))
	}
	return list
}

func keyNamed(name string) kv.Key { return kv.Key{Namespace: incumbent.DefaultNamespace, Name: name} }

// keyTopic is the topic under which watchers are told of a key.
func keyTopic(k kv.Key) watch.Topic {
	return engine.FamilyTopic(kv.Number, core.Topic{Scope: [2]string{k.Namespace}, Name: k.Name})
}

// prefixOf is what a key has up to its last separator.
func prefixOf(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }

// someKey draws one of the keys.
func (w *world) someKey() kv.Key { return w.keys[w.rng.IntN(len(w.keys))] }

// someValue draws a value that was never given to a key.
func (w *world) someValue() []byte {
	w.values++
	v := fmt.Appendf(nil, "value %d ", w.values)
	return append(v, make([]byte, w.rng.IntN(valueBytes))...)
}

// writer is a client that stores, compares and swaps, deletes and reads.
type writer struct {
	w     *world
	a     *agent
	known map[kv.Key]*kv.Entry // as it was told of them last
}

func newWriter(w *world, id int) *writer {
	return &writer{w: w, a: newAgent(w, id), known: map[kv.Key]*kv.Entry{}}
}

// next goes on after a rest.
func (k *writer) next() { k.a.later(k.w.upTo(writes), k.act) }

func (k *writer) act() {
	w, key := k.w, k.w.someKey()
	for strings.HasPrefix(key.Name, lockDir) {
		key = w.someKey() // those are the lockers'
	}
	switch w.rng.IntN(12) {
	case 0, 1:
		k.read(key)
	case 2:
		k.list(kv.Key{Namespace: key.Namespace, Name: prefixOf(key.Name)})
	case 3:
		k.do(kv.Command{Verb: kv.RemoveTree, Key: kv.Key{Namespace: key.Namespace, Name: k.branch(key)}})
	case 4, 5:
		c := kv.Command{Verb: kv.Remove, Key: key}
		k.condition(&c)
		k.do(c)
	default:
		c := kv.Command{Verb: kv.Put, Key: key, Value: w.someValue(), Flags: w.rng.Uint64N(3)}
		k.condition(&c)
		k.do(c)
	}
}

// branch is a prefix to delete below: that of a key or, at times, everything.
func (k *writer) branch(key kv.Key) string {
	if k.w.chance(10) {
		return ""
	}
	return prefixOf(key.Name)
}

// condition lets a command depend on what the writer knows of the entry.
func (k *writer) condition(c *kv.Command) {
	e := k.known[c.Key]
	switch k.w.rng.IntN(4) {
	case 0:
	case 1:
		if c.If = kv.IfIndex; e != nil {
			c.Index = e.Modified
		}
	case 2:
		c.If = kv.IfIndex // it is not there
	default:
		if e != nil {
			c.If, c.Was = kv.IfValue, e.Value
		}
	}
}

// do makes a call.
func (k *writer) do(c kv.Command) {
	k.a.at = k.w.anyone()
	k.w.submitKeys(k.a, c, func(r core.Result) {
		k.learn(&c, &r)
		k.next()
	}, k.next)
}

// learn takes note of what an answer says of the entry.
func (k *writer) learn(c *kv.Command, r *core.Result) {
	e, is := r.Record.(*kv.Entry)
	if c.Verb != kv.RemoveTree && !r.Replayed && (is || r.Err == nil) {
		k.known[c.Key] = e
	}
}

// read reads an entry linearizably.
func (k *writer) read(key kv.Key) {
	k.look([]kv.Key{key}, func(v *core.View) []*kv.Entry { return []*kv.Entry{kv.Of(v).Entry(key)} })
}

// list reads all below a prefix linearizably.
func (k *writer) list(prefix kv.Key) {
	keys := slices.DeleteFunc(slices.Clone(k.w.keys), func(key kv.Key) bool { return !strings.HasPrefix(key.Name, prefix.Name) })
	k.look(keys, func(v *core.View) []*kv.Entry {
		found := make([]*kv.Entry, len(keys))
		kv.Of(v).Ascend(prefix, kv.Key{}, func(e *kv.Entry) bool {
			if i := slices.Index(keys, e.Key); i >= 0 {
				found[i] = e
			}
			return true
		})
		return found
	})
}

// look reads keys from a confirmed view, at any member.
func (k *writer) look(keys []kv.Key, read func(*core.View) []*kv.Entry) {
	w := k.w
	k.a.at = w.anyone()
	called := w.check.keys.now()
	k.a.call(func(p *process, reply func(func())) {
		bound := w.check.acked
		p.group.Confirm(func(err error) {
			if err != nil {
				reply(k.next)
				return
			}
			view := p.group.View()
			w.check.read(p, view, bound)
			w.check.shown(p, view)
			found := read(view)
			reply(func() {
				k.a.reader.hears(view.Index())
				for i, key := range keys {
					k.known[key] = found[i]
					w.check.keys.read(k.a, key, called, found[i])
				}
				k.next()
			})
		})
	}, k.next)
}

// submitKeys makes a call about keys, of which the checker takes note. Some are made as
// transactions, which are answered alike.
func (w *world) submitKeys(a *agent, c kv.Command, then func(core.Result), nothing func()) {
	call := w.check.keys.called(a, c)
	cmd, answer := core.Command(c), func(r core.Result) core.Result { return r }
	if (c.Verb == kv.Put || c.Verb == kv.Remove) && w.chance(4) {
		cmd, answer = w.inTransaction(c), transacted
	}
	n := a.submit(cmd, func(r core.Result) {
		r = answer(r)
		w.check.keys.returned(call, r)
		then(r)
	}, nothing)
	w.check.keys.numbered(n, call)
}

// inTransaction is a change of one key as a transaction: its condition, and what is there
// if that does not hold.
func (w *world) inTransaction(c kv.Command) core.Command {
	txn := core.TxnCommand{Else: gets([]kv.Key{c.Key})}
	switch c.If {
	case kv.IfIndex:
		txn.If = append(txn.If, kv.Condition{Test: kv.Modified, Key: c.Key, Index: c.Index})
	case kv.IfValue:
		txn.If = append(txn.If, kv.Condition{Test: kv.HasValue, Key: c.Key, Value: c.Was})
	}
	c.If, c.Index, c.Was = 0, 0, nil
	txn.Then = []core.Command{c}
	return txn.Pack()
}

// transacted is the answer to such a transaction as the change itself would have it.
func transacted(r core.Result) core.Result {
	txn := r.Txn
	r.Txn = nil
	if txn == nil {
		return r
	}
	if len(txn.Results) == 1 {
		r.Record = txn.Results[0].Record
	}
	if txn.Unmet > 0 {
		r.Err = incumbent.Errorf(incumbent.Conflict, "condition %d does not hold", txn.Unmet)
	}
	return r
}
