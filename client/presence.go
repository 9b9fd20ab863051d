package client

import (
	"context"
	"iter"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Presence says that somebody is alive: a key below "presence/" that a session has
// locked. As long as the session is open, he is; when its ttl ran out after its last
// beat the lock ends, and the key stays. That no beat could be sent or heard for a
// while, be it for load, for a change of leader or for a restart of members, ends
// nothing. The zero value says nothing of anybody.
type Presence struct {
	Namespace string // "": the default one
	Name      string // such as unit/mysql/0
	Info      []byte // what else is said of him: with the rest, up to 255 KiB
}

// presencePrefix is what the keys that say who is there begin with.
const presencePrefix = "presence/"

// maxPresenceBytes is how large a presence may be: it is said in one message.
const maxPresenceBytes = maxMessageBytes - 1<<10

// flagLeft is that of a key whose owner said good-bye.
const flagLeft = 1

func (p *Presence) none() bool { return p.Name == "" }

func (p *Presence) key() string { return presencePrefix + p.Name }

func (p *Presence) validate() error {
	if p.none() && (p.Namespace != "" || len(p.Info) > 0) {
		return incumbent.Errorf(incumbent.Invalid, "the presence has no name")
	}
	if !utf8.ValidString(p.Namespace) || !utf8.ValidString(p.Name) {
		return incumbent.Errorf(incumbent.Invalid, "the presence %q cannot be said", p.Name).WithHint(hintUTF8)
	}
	if n := len(p.Namespace) + len(p.Name) + len(p.Info); n > maxPresenceBytes {
		return incumbent.Errorf(incumbent.Invalid, "the presence has %d bytes, limit is %d", n, maxPresenceBytes)
	}
	return nil
}

// PresenceState is how somebody is.
type PresenceState string

// The states.
const (
	Expected PresenceState = "expected" // is to come: see [Expect]
	Alive    PresenceState = "alive"    // has an open session
	Down     PresenceState = "down"     // had one, which ended without a good-bye
	Left     PresenceState = "left"     // closed its session itself
)

// Present is how somebody is.
type Present struct {
	Name    string        `json:"name"`
	State   PresenceState `json:"state"`
	Session string        `json:"session"`      // by which he is alive
	Since   uint64        `json:"since,string"` // index since which it is so
	Info    []byte        `json:"info"`
}

func presentOf(e *apiv1.KeyValue) Present {
	p := Present{Name: strings.TrimPrefix(e.Key, presencePrefix), State: Down, Session: e.Session, Since: e.ModifiedIndex, Info: append([]byte{}, e.Value...)}
	switch {
	case e.Session != "":
		p.State = Alive
	case e.LockIndex == 0:
		p.State = Expected
	case e.Flags == flagLeft:
		p.State = Left
	}
	return p
}

// Expect adds to a transaction that somebody is to come: he is listed as expected until
// a session says that he is alive. The transaction fails if he is listed.
func (t *Txn) Expect(name string) *Txn { return t.Put(presencePrefix+name, nil, IfIndex(0)) }

// Forget adds to a transaction that somebody is not listed any more.
func (t *Txn) Forget(name string) *Txn { return t.Delete(presencePrefix + name) }

// ListPresent reads a page of who is there, of those whose names begin with prefix, in
// the order of their names; next goes into after, "": that is all. limit 0: 1,000.
func (k *KV) ListPresent(ctx context.Context, prefix, after string, limit uint32) (list []Present, next string, err error) {
	r := &apiv1.ListKeysRequest{Namespace: k.namespace, Prefix: presencePrefix + prefix, Limit: limit}
	if after != "" {
		r.After = presencePrefix + after
	}
	res, err := called(k.c.keys.List(ctx, connect.NewRequest(r)))
	for _, e := range res.GetEntries() {
		list = append(list, presentOf(e))
	}
	return list, strings.TrimPrefix(res.GetNext(), presencePrefix), err
}

// PresenceChange is one change of who is there.
type PresenceChange struct {
	Index uint64 `json:"index,string"`
	// Was is the state before; "": he was not listed, or (of what there is when a watch
	// begins) it is not known.
	Was PresenceState `json:"was"`
	Present
	Gone bool `json:"gone"` // not listed any more
	// First says that with this it begins to be told who is there: when the watch begins, and
	// anew where the history was gone, or not all had been told. Who was told of before, and
	// is not told of again, is not listed any more. If nobody is there, it is all that is
	// told, without a name.
	First bool `json:"first"`
}

// WatchPresent yields how those are whose names begin with prefix, and then each change
// of that, in order: nothing else of their keys. It ends with ctx, or with an error
// that trying again cannot help. Where the history is gone it goes on with who is there, of
// which the first has First set: whoever keeps what it yields forgets all of it then.
func (k *KV) WatchPresent(ctx context.Context, prefix string, after incumbent.Index) iter.Seq2[PresenceChange, error] {
	watch := k.Watch(ctx, WatchKeysOptions{
		Key: presencePrefix + prefix, Prefix: true, After: after, Fields: []string{"lock", "membership"}, StartOver: true,
	})
	return func(yield func(PresenceChange, error) bool) {
		first := false // who is there is about to be told, and nobody has been
		for m, err := range watch {
			if err != nil {
				yield(PresenceChange{}, err)
				return
			}
			first = first || m.First
			for _, e := range m.Events {
				if e.What == "lockable" {
					continue
				}
				c := presenceChange(e)
				c.First, first = first, false
				if !yield(c, nil) {
					return
				}
			}
			if first && !m.More {
				first = false
				if !yield(PresenceChange{Index: m.ProgressIndex, First: true, Present: Present{Info: []byte{}}}, nil) {
					return
				}
			}
		}
	}
}

func presenceChange(e *apiv1.KeyEvent) PresenceChange {
	c := PresenceChange{Index: e.Index}
	if e.Previous != nil {
		c.Present = presentOf(e.Previous)
		c.Was = c.State
	}
	if c.Gone = e.Entry == nil; !c.Gone {
		c.Present = presentOf(e.Entry)
	}
	return c
}

// sayLeft has those who look know that the session's end was wanted. If it cannot be
// said, they see that somebody is down.
func (s *Session) sayLeft(ctx context.Context) {
	if s.present.none() {
		return
	}
	_, _ = s.request(ctx, func() *apiv1.ClientFrame {
		return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Unlock{Unlock: &apiv1.UnlockRequest{
			Namespace: s.present.Namespace, Key: s.present.key(), Value: s.present.Info, Flags: flagLeft, Session: s.id.String(),
		}}}
	})
}
