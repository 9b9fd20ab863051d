package engine

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/watch"
)

// Reading reads keys of a view, and notes what it has looked at: for the evaluations
// of shared queries, which are told of changes of exactly that. Without notes it reads
// for one caller.
type Reading struct {
	view  *kv.View
	notes *watch.Reads
}

// Read returns a reading of a view; notes may be nil.
func Read(view *core.View, notes *watch.Reads) Reading { return Reading{kv.Of(view), notes} }

// Key returns the entry of a key, or nil and when it was deleted, as far as that is
// known.
func (r Reading) Key(k kv.Key) (e *kv.Entry, gone incumbent.Index) {
	r.notes.Note(watch.Exact(FamilyTopic(kv.Number, kv.TopicOf(k))))
	if e = r.view.Entry(k); e == nil {
		gone = r.view.Gone(k)
	}
	return e, gone
}

// Keys is [kv.View.Ascend]: what it has looked at ends with the key for which fn
// returned false.
func (r Reading) Keys(prefix, after kv.Key, fn func(*kv.Entry) bool) {
	from, to := prefix.Name, watch.Behind(prefix.Name)
	if after.Name != "" {
		from = max(from, after.Name+"\x00")
	}
	r.view.Ascend(prefix, after, func(e *kv.Entry) bool {
		more := fn(e)
		if !more {
			to = e.Name + "\x00"
		}
		return more
	})
	if to == "" || from < to {
		t := FamilyTopic(kv.Number, kv.TopicOf(prefix))
		r.notes.Note(watch.Range(t.Kind, t.Scope, from, to))
	}
}

// Modified is when the list of those keys below a prefix that sees accepts changed
// last: the greatest modified index, or a later deletion of one. It ends early when
// goOn, asked now and then, says so.
func (r Reading) Modified(prefix kv.Key, sees func(kv.Key) bool, goOn func() bool) incumbent.Index {
	at := r.view.Deleted(prefix, sees, goOn)
	r.Keys(prefix, kv.Key{}, func(e *kv.Entry) bool {
		if sees(e.Key) {
			at = max(at, e.Modified)
		}
		return goOn()
	})
	return at
}
