package kv

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// naive is the family once more, in maps and without a thought for cost. It keeps
// when each key was changed last, for ever, where the real one has tombstones.
type naive struct {
	index    incumbent.Index
	entries  map[string]Entry
	delays   map[string]Delay
	sessions map[incumbent.SessionID]bool
	last     map[string]incumbent.Index // changes, deletions included
	limits   limits
	changes  []string // of the batch
}

// outcome is what a command answers.
type outcome struct {
	kind   incumbent.Kind
	record string
}

func recordText(r any) string {
	switch x := r.(type) {
	case *Entry:
		return entryText(x)
	case nil:
		return "nothing"
	default:
		return fmt.Sprint(x)
	}
}

func (n *naive) text(k string) string {
	if e, ok := n.entries[k]; ok {
		return entryText(&e)
	}
	return "nothing"
}

// change makes something else of a key; nil: nothing.
func (n *naive) change(k string, to *Entry) {
	before := n.text(k)
	if delete(n.entries, k); to != nil {
		n.entries[k] = *to
	}
	n.last[k] = n.index
	n.changes = append(n.changes, fmt.Sprintf("%d %s -> %s", n.index, before, n.text(k)))
}

func (n *naive) below(prefix string) []string {
	var keys []string
	for k := range n.entries {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// listIndex is that of the last change below a prefix, whatever it was.
func (n *naive) listIndex(prefix string) (at incumbent.Index) {
	for k, i := range n.last {
		if strings.HasPrefix(k, prefix) {
			at = max(at, i)
		}
	}
	return at
}

func (n *naive) lockedBy(s incumbent.SessionID) (keys []string) {
	for k, e := range n.entries {
		if !s.IsZero() && e.Session == s {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (n *naive) locks() (count int) {
	for _, e := range n.entries {
		if !e.Session.IsZero() {
			count++
		}
	}
	return count
}

func (n *naive) apply(c core.Command) outcome {
	n.index++
	switch c := c.(type) {
	case core.OpenSessionCommand:
		n.sessions[c.ID] = true
	case core.CloseSessionCommand:
		n.end(c.ID)
	case Command:
		return n.command(&c)
	}
	return outcome{record: "nothing"}
}

func (n *naive) end(s incumbent.SessionID) {
	for _, k := range n.lockedBy(s) {
		e := n.entries[k]
		if e.Delay > 0 {
			n.delays[k] = Delay{Key: e.Key, Owner: e.Owner, Since: n.index, For: e.Delay}
		}
		if e.OnEnd == Delete {
			n.change(k, nil)
			continue
		}
		e.Session, e.OnEnd, e.Delay, e.Modified = incumbent.SessionID{}, Keep, 0, n.index
		n.change(k, &e)
	}
	delete(n.sessions, s)
}

func (n *naive) command(c *Command) outcome {
	k := c.Key.Name
	o, there := n.entries[k]
	fail := func(kind incumbent.Kind) outcome { return outcome{kind, n.text(k)} }
	switch {
	case c.If == IfIndex && (there && o.Modified != c.Index || !there && c.Index != 0),
		c.If == IfValue && (!there || !bytes.Equal(o.Value, c.Was)), c.If == IfThere && !there,
		c.If == IfStill && there && o.Modified != c.Index:
		return fail(incumbent.Conflict)
	}
	same := c.Lazy && there && bytes.Equal(o.Value, c.Value) && o.Flags == c.Flags
	e := o
	if !there {
		e = Entry{Key: c.Key, Created: n.index}
	}
	e.Value, e.Flags, e.Modified = c.Value, c.Flags, n.index
	switch c.Verb {
	case Put:
		if !same {
			n.change(k, &e)
		}
	case Remove:
		if !there {
			return outcome{record: "0"}
		}
		n.change(k, nil)
		return outcome{record: "1"}
	case Acquire:
		mine := o.Session == c.Session
		_, delayed := n.delays[k]
		switch {
		case !n.sessions[c.Session]:
			return fail(incumbent.Expired)
		case !mine && (!o.Session.IsZero() || delayed):
			return fail(incumbent.Held)
		case !mine && (len(n.lockedBy(c.Session)) >= n.limits.perSession || n.locks()+len(n.delays) >= n.limits.locks):
			return outcome{incumbent.TooLarge, "nothing"}
		case !mine:
			e.LockIndex++
		}
		if same && mine && o.OnEnd == c.OnEnd && o.Delay == c.Delay {
			break
		}
		e.Session, e.OnEnd, e.Delay = c.Session, c.OnEnd, c.Delay
		n.change(k, &e)
	case Release:
		if !there || o.Session != c.Session {
			return fail(incumbent.NotHolder)
		}
		e.Session, e.OnEnd, e.Delay = incumbent.SessionID{}, Keep, 0
		n.change(k, &e)
	case RemoveTree:
		list := n.below(k)
		if len(list) > n.limits.deleted {
			return outcome{incumbent.TooLarge, "nothing"}
		}
		for _, name := range list {
			n.change(name, nil)
		}
		return outcome{record: fmt.Sprint(len(list))}
	case EndDelay:
		if d, delayed := n.delays[k]; !delayed || d.Since != c.Index {
			return outcome{incumbent.Conflict, "nothing"}
		}
		delete(n.delays, k)
		return outcome{record: "nothing"}
	}
	return outcome{record: n.text(k)}
}

// draw draws a command about few keys and sessions, most of it true.
func (n *naive) draw(t *rapid.T) core.Command {
	name := rapid.SampledFrom([]string{"a", "a/", "a/b", "a/c", "ab", "b", "b/a/x"}).Draw(t, "key")
	id := session(rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "session"))
	value := []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"))
	o, there := n.entries[name]
	c := Command{Key: key(name), Value: value, Flags: rapid.Uint64Range(0, 2).Draw(t, "flags")}
	switch rapid.IntRange(0, 13).Draw(t, "verb") {
	case 0, 1:
		return core.OpenSessionCommand{ID: id, TTL: time.Minute}
	case 2:
		return core.CloseSessionCommand{ID: id}
	case 3, 4, 5:
		c.Verb = Put
	case 6, 7:
		c.Verb = Remove
	case 8, 9, 10:
		c.Verb, c.Session = Acquire, id
		c.OnEnd = rapid.SampledFrom([]OnEnd{Keep, Delete}).Draw(t, "end")
		c.Delay = rapid.SampledFrom([]time.Duration{0, time.Second, MaxDelay}).Draw(t, "delay")
	case 11:
		c.Verb, c.Session = Release, id
		if there && !o.Session.IsZero() {
			c.Session = o.Session
		}
	case 12:
		c.Verb, c.Key.Name = RemoveTree, rapid.SampledFrom([]string{"", "a", "a/", "b/a"}).Draw(t, "prefix")
	case 13:
		c.Verb, c.Index = EndDelay, n.delays[name].Since+rapid.SampledFrom([]incumbent.Index{0, 0, 1}).Draw(t, "off")
	}
	if c.Verb == Put || c.Verb == Remove {
		c.If = rapid.SampledFrom([]If{Always, IfIndex, IfValue, IfThere, IfStill}).Draw(t, "if")
		c.Index = o.Modified + rapid.SampledFrom([]incumbent.Index{0, 0, 0, 1}).Draw(t, "off")
		c.Was = slices.Clone(o.Value)
		if rapid.IntRange(0, 3).Draw(t, "was") == 0 {
			c.Was = value
		}
	}
	if c.Verb == Put || c.Verb == Acquire {
		c.Lazy = rapid.Bool().Draw(t, "lazy")
		if same := rapid.Bool().Draw(t, "same"); same && there {
			c.Value, c.Flags, c.OnEnd, c.Delay = slices.Clone(o.Value), o.Flags, o.OnEnd, o.Delay
		}
		if c.Verb == Put {
			c.OnEnd, c.Delay = Keep, 0
		}
	}
	return c
}

// TestModel plays random batches against the state and against the naive one:
// answers, changes, entries, delays and the indexes of lists are the same, with
// snapshots in between.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &smallFamily{limits: limits{
			perSession: rapid.IntRange(1, 4).Draw(t, "per session"), locks: rapid.IntRange(2, 6).Draw(t, "locks"),
			deleted: rapid.IntRange(2, 6).Draw(t, "deleted"), tombstones: rapid.IntRange(1, 8).Draw(t, "tombstones"),
		}}
		s := core.New(f)
		n := &naive{
			entries: map[string]Entry{}, delays: map[string]Delay{}, sessions: map[incumbent.SessionID]bool{},
			last: map[string]incumbent.Index{}, limits: f.limits,
		}
		before := map[string]incumbent.Index{}
		t.Repeat(map[string]func(*rapid.T){
			"batch": func(t *rapid.T) {
				var cmds []core.Command
				var want []outcome
				n.changes = nil
				for range rapid.IntRange(1, 4).Draw(t, "commands") {
					c := n.draw(t)
					cmds, want = append(cmds, c), append(want, n.apply(c))
				}
				old := Of(s.View())
				was := all(old)
				compare(t, s, n, cmds, want)
				if got := all(old); got != was {
					t.Fatalf("a view has changed: %s, was %s", got, was)
				}
			},
			"restart": func(t *rapid.T) { s = reload(t, s, f) },
			"": func(t *rapid.T) {
				v := Of(s.View())
				n.compareTables(t, v)
				n.compareLists(t, v, before)
			},
		})
	})
}

func compare(t *rapid.T, s *core.State, n *naive, cmds []core.Command, want []outcome) {
	results, changes := apply(t, s, cmds...)
	for i, r := range results {
		got := outcome{record: recordText(r.Record)}
		if r.Err != nil {
			got.kind = r.Err.Kind
		}
		if got != want[i] {
			t.Fatalf("%+v: %+v, want %+v", cmds[i], got, want[i])
		}
	}
	var told []string
	for i := range changes {
		if f := changes[i].Family; f != nil && f.Before != f.After {
			told = append(told, strings.TrimSpace(changeText(&changes[i])))
		}
	}
	if !slices.Equal(told, n.changes) {
		t.Fatalf("told %q, want %q", told, n.changes)
	}
}

// all is every entry of a view.
func all(v *View) string {
	var b strings.Builder
	v.Ascend(key(""), Key{}, func(e *Entry) bool {
		b.WriteString(entryText(e) + "\n")
		return true
	})
	return b.String()
}

func (n *naive) compareTables(t *rapid.T, v *View) {
	var want strings.Builder
	size := 0
	for _, k := range n.below("") {
		e := n.entries[k]
		want.WriteString(entryText(&e) + "\n")
		size += len(e.Namespace) + len(k) + len(e.Value) + EntryBytes
	}
	if got := all(v); got != want.String() || v.Len() != len(n.entries) || v.Locks() != n.locks() || v.Bytes() != int64(size) {
		t.Fatalf("%d entries, %d locks, %d bytes:\n%swant %d, %d, %d:\n%s", v.Len(), v.Locks(), v.Bytes(), got, len(n.entries), n.locks(), size, want.String())
	}
	var delays []Delay
	v.Delays(func(d *Delay) bool {
		delays = append(delays, *d)
		return true
	})
	var wanted []Delay
	for _, d := range n.delays {
		wanted = append(wanted, d)
	}
	slices.SortFunc(wanted, func(a, b Delay) int { return cmp.Compare(a.Name, b.Name) })
	if !slices.Equal(delays, wanted) {
		t.Fatalf("delays %+v, want %+v", delays, wanted)
	}
}

// compareLists checks the indexes of lists: no change is missed, none falls back,
// and while no tombstone has gone each is exact.
func (n *naive) compareLists(t *rapid.T, v *View, before map[string]incumbent.Index) {
	for _, prefix := range []string{"", "a", "a/", "a/b", "b", "zzz"} {
		got, want := listIndex(v, key(prefix)), n.listIndex(prefix)
		switch {
		case got < want, v.floor == 0 && got != want, got > n.index:
			t.Fatalf("the list of %q has index %d, it changed last at %d; floor is %d", prefix, got, want, v.floor)
		case got < before[prefix]:
			t.Fatalf("the list of %q has index %d after %d", prefix, got, before[prefix])
		}
		before[prefix] = got
		deleted := v.Deleted(key(prefix), func(Key) bool { return true }, func() bool { return true })
		if v.DeletedAfter(key(prefix), deleted, MaxTombstones) || deleted > 0 && !v.DeletedAfter(key(prefix), deleted-1, MaxTombstones) {
			t.Fatalf("below %q something was deleted at %d last, it is said not to be so; floor is %d", prefix, deleted, v.floor)
		}
		var page []string
		after := Key{}
		for {
			var next *Entry
			v.Ascend(key(prefix), after, func(e *Entry) bool {
				next = e
				return false
			})
			if next == nil {
				break
			}
			page, after = append(page, next.Name), next.Key
		}
		if !slices.Equal(page, n.below(prefix)) {
			t.Fatalf("the list of %q is %q, want %q", prefix, page, n.below(prefix))
		}
	}
}
