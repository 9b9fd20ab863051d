package player

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// keyMoment is a change of a key, and the entry from then on; nil: it is gone.
type keyMoment struct {
	index uint64
	entry *pb.KeyValue
}

// keyline is what a watch of all keys has told: every change, in order. As a
// timeline, it is what answers are compared with, and is itself checked as it grows.
type keyline struct {
	fail  func(format string, args ...any)
	count func(what string)

	mu      sync.Mutex // guards the rest; held for a change or a look
	known   uint64     // nothing is known of what was before this index
	told    uint64     // everything up to here was told
	moments map[string][]keyMoment
}

func newKeyline(fail func(string, ...any)) *keyline {
	return &keyline{fail: fail, count: func(string) {}, moments: map[string][]keyMoment{}}
}

// followKeys keeps a watch of all keys open, at whichever member answers.
func (p *play) followKeys(ctx context.Context, t *keyline) {
	for i := 0; ctx.Err() == nil; i++ {
		k := p.callers[i%len(p.callers)][0]
		stream, err := k.keys.Watch(ctx, connect.NewRequest(&pb.WatchKeysRequest{Prefix: true, AfterIndex: t.resume()}))
		if err == nil {
			var whole client.WholeKeys
			for stream.Receive() {
				if m := whole.Add(stream.Msg()); m != nil {
					t.add(m)
				}
			}
			err = stream.Err()
			stream.Close()
		}
		if errorOf(err).GetKind() == incumbent.Compacted.String() {
			t.again()
		}
		pause(ctx, lookEvery)
	}
}

// resume is the index behind which the watch goes on.
func (t *keyline) resume() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// again has the watch begin with the present state.
func (t *keyline) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = 0
}

// add takes what a watch says, up to the end of an index.
func (t *keyline) add(m *pb.WatchKeysResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Snapshot {
		t.moments, t.known, t.told = map[string][]keyMoment{}, m.ProgressIndex, m.ProgressIndex
		for _, e := range m.Events {
			t.moments[e.Entry.GetKey()] = []keyMoment{{e.Entry.GetModifiedIndex(), e.Entry}}
		}
		return
	}
	last := t.told + 1
	for _, e := range m.Events {
		if e.Index < last || e.Index > m.ProgressIndex {
			t.fail("watch of keys: an event of index %d, after one of %d and with a progress of %d", e.Index, last, m.ProgressIndex)
		}
		last = e.Index
		t.change(e)
	}
	if m.ProgressIndex < t.told {
		t.fail("watch of keys: progress %d after %d", m.ProgressIndex, t.told)
	}
	t.told = m.ProgressIndex
}

// change appends a change of a key. t.mu is held.
func (t *keyline) change(e *pb.KeyEvent) {
	t.count("key " + e.What)
	key := e.Entry.GetKey()
	if e.Entry == nil {
		key = e.Previous.GetKey()
	}
	list := t.moments[key]
	var before *pb.KeyValue
	if len(list) > 0 {
		before = list[len(list)-1].entry
	}
	if e.What == "lockable" { // the end of a delay changes nothing
		if before == nil != (e.Entry == nil) || before != nil && !(proto.Equal(before, e.Entry) && proto.Equal(before, e.Previous)) {
			t.fail("key %q at index %d can be locked, and changes\nbefore: %v\nsaid: %v\nafter: %v", key, e.Index, before, e.Previous, e.Entry)
		}
		return
	}
	if bad := breaksKey(before, e); bad != "" {
		t.fail("key %q at index %d, %s: %s\nbefore: %v\nsaid: %v\nafter: %v", key, e.Index, e.What, bad, before, e.Previous, e.Entry)
	}
	t.moments[key] = append(list, keyMoment{e.Index, e.Entry})
}

// breaksKey says which rule of keys a change breaks, "" if none.
func breaksKey(before *pb.KeyValue, e *pb.KeyEvent) string {
	now := e.Entry
	locks := now.GetSession() != "" && now.GetSession() != before.GetSession()
	switch {
	case !(before == nil && e.Previous == nil) && !proto.Equal(before, e.Previous):
		return "it says that something else was there before"
	case now == nil && (before == nil || e.What != "deleted"):
		return "gone, and not deleted"
	case now == nil:
		return ""
	case now.ModifiedIndex != e.Index:
		return "another change was the last"
	case before == nil && now.CreatedIndex != e.Index, before != nil && now.CreatedIndex != before.CreatedIndex:
		return "it was made at another index"
	case locks && (before.GetSession() != "" || now.LockIndex != before.GetLockIndex()+1 || e.What != "locked"):
		return "locked as it cannot be"
	case !locks && now.LockIndex != before.GetLockIndex():
		return "the lock index changes without a lock"
	case now.Session == "" && before.GetSession() != "" && e.What != "unlocked":
		return "the lock is gone, and nobody has given it up"
	case e.What != "put" && e.What != "locked" && e.What != "unlocked":
		return "there is no such change"
	}
	return ""
}

// at is the entry of a key after a command, nil: it is not there; false if that is not
// known.
func (t *keyline) at(key string, index uint64) (e *pb.KeyValue, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index < t.known || index > t.told {
		return nil, false
	}
	for _, m := range t.moments[key] {
		if m.index <= index {
			e = m.entry
		}
	}
	return e, true
}

// between lists what happened to a key behind an index, up to another.
func (t *keyline) between(key string, after, upTo uint64) (out []keyMoment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.moments[key] {
		if m.index > after && m.index <= upTo {
			out = append(out, m)
		}
	}
	return out
}

// below lists the keys with a prefix of which anything is known.
func (t *keyline) below(prefix string) (keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.moments {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// modified is the newest index at which a key was changed, as far as is known.
func (t *keyline) modified(key string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if list := t.moments[key]; len(list) > 0 && list[len(list)-1].entry != nil {
		return list[len(list)-1].index
	}
	return 0
}

// forget drops what is older than the present.
func (t *keyline) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, list := range t.moments {
		if last := list[len(list)-1]; last.entry == nil {
			delete(t.moments, key)
		} else {
			t.moments[key] = []keyMoment{last}
		}
	}
	t.known = t.told
}

// keyOnce reports whether a key was so at some index of the window, or may have been.
func (w window) keyOnce(key string, is func(*pb.KeyValue) bool) bool {
	e, ok := w.keys.at(key, w.floor)
	if !ok || is(e) {
		return true
	}
	for _, m := range w.keys.between(key, w.floor, w.ceil) {
		if is(m.entry) {
			return true
		}
	}
	return false
}

// keyTruly has it checked that a key was so at some index while the call was under
// way.
func (c *call) keyTruly(what, key string, is func(*pb.KeyValue) bool) {
	c.later(func(w window) string {
		if w.keyOnce(key, is) {
			return ""
		}
		e, _ := w.keys.at(key, w.floor)
		return fmt.Sprintf("%s: it never was so; when it was sent there was %v", what, e)
	})
}

// keyHappened has it checked that the watch told of a change of a key at an index.
func (c *call) keyHappened(what, key string, index uint64, is func(*pb.KeyValue) bool) {
	c.later(func(w window) string {
		if _, known := w.keys.at(key, index-1); !known {
			return ""
		}
		for _, m := range w.keys.between(key, index-1, index) {
			if is(m.entry) {
				return ""
			}
		}
		return fmt.Sprintf("%s: the watch did not tell of it at index %d", what, index)
	})
}

// sawKey has an entry that was read at an index compared with what the watch told;
// nil: nothing was there.
func (c *call) sawKey(what, key string, e *pb.KeyValue, index uint64, values bool) {
	c.later(func(w window) string {
		told, known := w.keys.at(key, index)
		if !known {
			return ""
		}
		if told != nil && !values {
			told = proto.Clone(told).(*pb.KeyValue) //nolint:forcetypeassert // the clone of one
			told.Value = nil
		}
		if (told == nil) != (e == nil) || told != nil && !proto.Equal(told, e) {
			return fmt.Sprintf("%s at index %d: read %v, told %v", what, index, e, told)
		}
		return ""
	})
}
