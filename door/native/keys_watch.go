package native

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// Watch sends a snapshot or resumes, then sends changes until the caller goes.
func (s keyService) Watch(ctx context.Context, r *connect.Request[pb.WatchKeysRequest], out *connect.ServerStream[pb.WatchKeysResponse]) error {
	sel, err := s.d.selectKeys(callerOf(ctx), r.Msg)
	return s.d.watch(ctx, sel, err, out.Conn())
}

// keyRecords are the entry of a key, or those below it as a prefix.
type keyRecords struct {
	key    kv.Key
	prefix bool
	values pb.WatchedValues
	at     kv.Key          // the last that was looked at
	since  incumbent.Index // what was modified later is shown
}

// begin: what was deleted is no longer there to be shown. Nor is it looked for among more
// than ScanSlice deletions, for this is a part of one step, too.
func (s *keyRecords) begin(v *core.View, after incumbent.Index) (changes bool) {
	s.at, s.since = kv.Key{}, 0
	if after == 0 || s.deletedAfter(kv.Of(v), after) {
		return false
	}
	s.since = after
	return true
}

// deletedAfter reports whether a key that is not there was deleted after an index, or may
// have been.
func (s *keyRecords) deletedAfter(v *kv.View, after incumbent.Index) bool {
	if s.prefix {
		return v.DeletedAfter(s.key, after, ScanSlice)
	}
	return v.Entry(s.key) == nil && v.Gone(s.key) > after
}

// selectKeys checks what a caller wants to watch.
func (d *Door) selectKeys(who *caller, r *pb.WatchKeysRequest) (*selection, error) {
	k, values := keyIn(r.GetNamespace(), r.GetKey()), r.GetValues()
	validate := k.Validate
	if r.GetPrefix() {
		validate = k.ValidatePrefix
	}
	if err := validate(); err != nil {
		return nil, err
	}
	switch values {
	case pb.WatchedValues_WATCHED_VALUES_UNSPECIFIED, pb.WatchedValues_WATCHED_VALUES_NEW, pb.WatchedValues_WATCHED_VALUES_NONE:
	case pb.WatchedValues_WATCHED_VALUES_BOTH:
		values = pb.WatchedValues_WATCHED_VALUES_UNSPECIFIED // so that they share one encoding
	default:
		return nil, invalid("values", "%d is unknown to this member", values)
	}
	selected, err := selectorOf(engine.FamilyTopic(kv.Number, kv.TopicOf(k)), r.GetPrefix(), r.GetFields())
	if err != nil {
		return nil, err
	}
	sel := &selection{
		after: incumbent.Index(r.GetAfterIndex()), catchUp: r.GetCatchUp(), who: who, action: calls.WatchKeys.Action(), about: nameOfKey(k), prefix: r.GetPrefix(), selected: []watch.Selector{selected},
		form: form{answer: fieldWatchKeys, values: values}, records: &keyRecords{key: k, prefix: r.GetPrefix(), values: values},
	}
	_, err = sel.sight(d)
	return sel, err
}

// next shows the entries that are there. It looks at no more than ScanSlice of them, so
// that a piece may show none and yet not be the last.
func (s *keyRecords) next(f *former, room *room, sight auth.Sight) (out []proto.Message, more bool) {
	keyOnly := s.values == pb.WatchedValues_WATCHED_VALUES_NONE
	looked := 0
	take := func(e *kv.Entry) bool {
		if room.full() || looked == ScanSlice {
			more = true
			return false
		}
		looked++
		s.at = e.Key
		if e.Modified <= s.since || !sight.Sees(nameOfKey(e.Key)) {
			return true
		}
		shown := &pb.KeyEvent{Index: uint64(e.Modified), What: present, Entry: f.entry(e, keyOnly)}
		room.use(shown)
		out = append(out, shown)
		return true
	}
	v := kv.Of(f.view)
	if s.prefix {
		v.Ascend(s.key, s.at, take)
	} else if e := v.Entry(s.key); e != nil {
		take(e)
	}
	return out, more
}

// lockable is the word for the end of a lock's delay, which changes no entry.
const lockable = "lockable"

// keyEvent writes a change of a key.
func (f *former) keyEvent(c *core.Change, values pb.WatchedValues) *pb.KeyEvent {
	before, _ := c.Family.Before.(*kv.Entry)
	after, _ := c.Family.After.(*kv.Entry)
	if before == nil && after == nil { // the end of a delay: somebody has to be named
		before = &kv.Entry{Key: kv.Key{Namespace: c.Family.Topic.Scope[0], Name: c.Family.Topic.Name}}
	}
	return &pb.KeyEvent{
		Index: uint64(c.Index), What: whatOf(c),
		Entry:    f.entry(after, values == pb.WatchedValues_WATCHED_VALUES_NONE),
		Previous: f.entry(before, values != pb.WatchedValues_WATCHED_VALUES_UNSPECIFIED),
	}
}

// whatOf is the word for a change of a key.
func whatOf(c *core.Change) string {
	if c.Family.Before == c.Family.After {
		return lockable
	}
	before, _ := c.Family.Before.(*kv.Entry)
	after, _ := c.Family.After.(*kv.Entry)
	var was incumbent.SessionID
	if before != nil {
		was = before.Session
	}
	switch {
	case after == nil:
		return "deleted"
	case after.Session == was:
		return "put"
	case after.Session.IsZero():
		return "unlocked"
	}
	return "locked"
}
