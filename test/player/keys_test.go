package player

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// keyNames are few, so that calls meet; some are odd and nevertheless valid.
var keyNames = []string{
	"k/a", "k/b", "k/c", "k/a", "k/b", "t/1/x", "t/1/y", "t/2/z", "ünï/λ", " ", "a\nb", "\x00", strings.Repeat("k", 1024),
}

// printableNames are those of them that a path of Consul's can have.
var printableNames = slices.DeleteFunc(slices.Clone(keyNames), func(name string) bool {
	return strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
})

var keyPrefixes = []string{"", "k/", "t/", "t/1/", "k/a", "nothing/"}

// playedValues are few, so that conditions on values hold at times.
var playedValues = [][]byte{nil, []byte("v"), []byte("w"), bytes.Repeat([]byte{0, 255}, 100)}

// keys makes one call about keys and judges its answer.
func (p *unaryPlayer) keys(ctx context.Context, d dice, k *caller, c *call) {
	switch d.IntN(12) {
	case 0, 1, 2:
		in := d.put()
		out, e, ok := do(ctx, c, k.m, k.keys.Put, in)
		c.answeredPut(in, out, e, ok)
	case 3:
		in := d.delete()
		out, e, ok := do(ctx, c, k.m, k.keys.Delete, in)
		c.answeredDelete(in, out, e, ok)
	case 4, 5:
		in := d.lock()
		out, e, ok := do(ctx, c, k.m, k.keys.Lock, in)
		c.answeredLock(in, out, e, ok)
	case 6:
		in := d.unlock()
		out, e, ok := do(ctx, c, k.m, k.keys.Unlock, in)
		c.answeredUnlock(in, out, e, ok)
	case 7:
		in := d.getKey()
		out, e, ok := do(ctx, c, k.m, k.keys.Get, in)
		c.answeredGet(in, out, e, ok)
	case 8:
		in := d.listKeys()
		out, e, ok := do(ctx, c, k.m, k.keys.List, in)
		c.answeredList(in, out, e, ok)
	case 9, 10:
		in := d.txn()
		out, e, ok := do(ctx, c, k.m, k.txns.Txn, in)
		c.answeredTxn(in, out, e, ok)
	default:
		p.invalidKeys(ctx, d, k, c)
	}
}

// put makes a put, at times on a condition that holds, as far as is known.
func (d dice) put() *pb.PutRequest {
	in := &pb.PutRequest{Key: pick(d, keyNames), Value: pick(d, playedValues), Flags: d.Uint64() >> d.IntN(64)}
	switch d.IntN(4) {
	case 0:
		in.Condition = &pb.PutRequest_IfIndex{IfIndex: d.keyIndex(in.Key)}
	case 1:
		in.Condition = &pb.PutRequest_IfValue{IfValue: pick(d, playedValues)}
	}
	if d.oneIn(3) {
		in.Namespace = incumbent.DefaultNamespace
	}
	return in
}

// keyIndex is that of the last change of a key, mostly.
func (d dice) keyIndex(key string) uint64 {
	if d.oneIn(3) {
		return 0
	}
	return d.table.keys.modified(key)
}

func (d dice) delete() *pb.DeleteRequest {
	in := &pb.DeleteRequest{Key: pick(d, keyNames)}
	switch d.IntN(5) {
	case 0:
		in.Key, in.Tree = pick(d, keyPrefixes), true
	case 1:
		in.Condition = &pb.DeleteRequest_IfIndex{IfIndex: d.keyIndex(in.Key)}
	case 2:
		in.Condition = &pb.DeleteRequest_IfValue{IfValue: pick(d, playedValues)}
	}
	return in
}

func (d dice) lock() *pb.LockRequest {
	in := &pb.LockRequest{Key: pick(d, keyNames), Value: pick(d, playedValues), Session: d.session(), OnEnd: pb.OnEnd(d.IntN(3))}
	if d.oneIn(3) {
		in.LockDelayMs = uint32(d.IntN(2000))
	}
	return in
}

func (d dice) unlock() *pb.UnlockRequest {
	return &pb.UnlockRequest{Key: pick(d, keyNames), Value: pick(d, playedValues), Session: d.session()}
}

func (d dice) getKey() *pb.GetKeyRequest {
	return &pb.GetKeyRequest{Key: pick(d, keyNames), Stale: d.oneIn(4)}
}

func (d dice) listKeys() *pb.ListKeysRequest {
	in := &pb.ListKeysRequest{Prefix: pick(d, keyPrefixes), KeysOnly: d.oneIn(2), Stale: d.oneIn(4)}
	if d.oneIn(2) {
		in.Limit = uint32(1 + d.IntN(4))
	}
	return in
}

// keyFrame makes a frame about keys.
func (d dice) keyFrame(f *pb.ClientFrame) {
	switch d.IntN(11) {
	case 9, 10:
		f.Request = &pb.ClientFrame_Txn{Txn: d.txn()}
	case 0, 1, 2:
		f.Request = &pb.ClientFrame_Put{Put: d.put()}
	case 3:
		f.Request = &pb.ClientFrame_Delete{Delete: d.delete()}
	case 4, 5:
		f.Request = &pb.ClientFrame_Lock{Lock: d.lock()}
	case 6:
		f.Request = &pb.ClientFrame_Unlock{Unlock: d.unlock()}
	case 7:
		f.Request = &pb.ClientFrame_GetKey{GetKey: d.getKey()}
	default:
		f.Request = &pb.ClientFrame_ListKeys{ListKeys: d.listKeys()}
	}
}

// keyAnswer judges the answer to a frame about keys; false: it is none.
func (c *call) keyAnswer(in *pb.ClientFrame, f *pb.ServerFrame) bool {
	for _, e := range []*pb.KeyValue{f.GetPut().GetEntry(), f.GetDelete().GetEntry(), f.GetLock().GetEntry(), f.GetUnlock().GetEntry()} {
		if f.Error != nil && e != nil {
			c.entry = e
		}
	}
	switch r := in.Request.(type) {
	case *pb.ClientFrame_Put:
		c.answeredPut(r.Put, f.GetPut(), f.Error, true)
	case *pb.ClientFrame_Delete:
		c.answeredDelete(r.Delete, f.GetDelete(), f.Error, true)
	case *pb.ClientFrame_Lock:
		c.answeredLock(r.Lock, f.GetLock(), f.Error, true)
	case *pb.ClientFrame_Unlock:
		c.answeredUnlock(r.Unlock, f.GetUnlock(), f.Error, true)
	case *pb.ClientFrame_GetKey:
		c.answeredGet(r.GetKey, f.GetGetKey(), f.Error, true)
	case *pb.ClientFrame_ListKeys:
		c.answeredList(r.ListKeys, f.GetListKeys(), f.Error, true)
	case *pb.ClientFrame_Txn:
		c.answeredTxn(r.Txn, f.GetTxn(), f.Error, true)
	default:
		return false
	}
	return true
}

// found is the entry that a refusal carries; nil: none, for it was not there.
func (c *call) found() *pb.KeyValue {
	if c.entry != nil {
		return c.entry
	}
	var call *connect.Error
	if !errors.As(c.err, &call) {
		return nil
	}
	for _, d := range call.Details() {
		if m, err := d.Value(); err == nil {
			if e, ok := m.(*pb.KeyValue); ok {
				return e
			}
		}
	}
	return nil
}

// keyRefused judges a refusal: it must have been true, and carry what was there.
func (c *call) keyRefused(what, key string, e *pb.Error, truly func(*pb.KeyValue) bool, may ...incumbent.Kind) {
	c.refused(what, e, valid, may...)
	found := c.found()
	switch kind, _ := incumbent.ParseKind(e.Kind); kind {
	case incumbent.Conflict, incumbent.NotHolder, incumbent.Held:
		c.keyTruly(fmt.Sprintf("%s: %s, found %v", what, e.Kind, found), key, func(now *pb.KeyValue) bool {
			return truly(now) && now.GetModifiedIndex() == found.GetModifiedIndex() && now.GetSession() == found.GetSession() &&
				bytes.Equal(now.GetValue(), found.GetValue())
		})
	}
}

func (c *call) answeredPut(in *pb.PutRequest, out *pb.PutResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("put %v", in)
	holds := func(now *pb.KeyValue) bool {
		switch is := in.Condition.(type) {
		case *pb.PutRequest_IfIndex:
			return now.GetModifiedIndex() == is.IfIndex
		case *pb.PutRequest_IfValue:
			return now != nil && bytes.Equal(now.Value, is.IfValue)
		}
		return true
	}
	switch {
	case !ok:
	case e != nil:
		c.b.count("Put" + kindOf(e))
		c.keyRefused(what, in.Key, e, func(now *pb.KeyValue) bool { return !holds(now) }, incumbent.Conflict)
	default:
		c.b.count("Put")
		c.stored(what, in.Key, out.Index, out.Entry, in.Value, in.Flags)
		c.keyBefore(what, in.Key, out.Index, holds)
	}
}

// stored judges the answer of what stores a value.
func (c *call) stored(what, key string, index uint64, e *pb.KeyValue, value []byte, flags uint64) {
	c.at(index)
	if e.GetKey() != key || e.ModifiedIndex != index || len(e.Value) > 0 || e.Flags != flags || index <= c.floor {
		c.fail("%s: answered index %d with %v", what, index, e)
		return
	}
	whole := proto.Clone(e).(*pb.KeyValue) // the answer leaves out what its caller has
	whole.Value = value
	c.sawKey(what, key, whole, index, true)
	c.keyHappened(what, key, index, func(now *pb.KeyValue) bool { return now != nil })
}

// keyBefore has it checked that a key was so just before an index.
func (c *call) keyBefore(what, key string, index uint64, was func(*pb.KeyValue) bool) {
	c.later(func(w window) string {
		if e, known := w.keys.at(key, index-1); known && !was(e) {
			return fmt.Sprintf("%s: done at index %d, although before it there was %v", what, index, e)
		}
		return ""
	})
}

func (c *call) answeredDelete(in *pb.DeleteRequest, out *pb.DeleteResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("delete %v", in)
	holds := func(now *pb.KeyValue) bool {
		switch is := in.Condition.(type) {
		case *pb.DeleteRequest_IfIndex:
			return now.GetModifiedIndex() == is.IfIndex
		case *pb.DeleteRequest_IfValue:
			return now != nil && bytes.Equal(now.Value, is.IfValue)
		}
		return true
	}
	switch {
	case !ok:
		return
	case e != nil:
		c.b.count("Delete" + kindOf(e))
		c.keyRefused(what, in.Key, e, func(now *pb.KeyValue) bool { return !holds(now) }, incumbent.Conflict)
		return
	}
	c.b.count("Delete")
	c.at(out.Index)
	switch {
	case in.Tree:
		c.deletedTree(what, in.Key, out)
	case out.Deleted > 1:
		c.fail("%s: %d were deleted", what, out.Deleted)
	case out.Deleted == 0:
		c.keyTruly(what+": nothing was there", in.Key, func(now *pb.KeyValue) bool { return now == nil && holds(now) })
	default:
		c.keyHappened(what, in.Key, out.Index, func(now *pb.KeyValue) bool { return now == nil })
		c.keyBefore(what, in.Key, out.Index, func(was *pb.KeyValue) bool { return was != nil && holds(was) })
	}
}

// deletedTree has it checked that all below a prefix was gone, and that so many went.
func (c *call) deletedTree(what, prefix string, out *pb.DeleteResponse) {
	c.later(func(w window) string {
		n := 0
		for _, key := range w.keys.below(prefix) {
			now, known := w.keys.at(key, out.Index)
			if _, before := w.keys.at(key, out.Index-1); !known || !before {
				return ""
			}
			if now != nil {
				return fmt.Sprintf("%s: at index %d there is %v", what, out.Index, now)
			}
			n += len(w.keys.between(key, out.Index-1, out.Index))
		}
		if out.Deleted > 0 && n != int(out.Deleted) {
			return fmt.Sprintf("%s: %d were deleted at index %d, the watch told of %d", what, out.Deleted, out.Index, n)
		}
		return ""
	})
}

func (c *call) answeredLock(in *pb.LockRequest, out *pb.LockResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("lock %v", in)
	switch {
	case !ok:
		return
	case e != nil:
		c.b.count("Lock" + kindOf(e))
		// Held without a lock: the delay of the last one lasts.
		c.keyRefused(what, in.Key, e, func(now *pb.KeyValue) bool { return now.GetSession() != in.Session }, incumbent.Held, incumbent.Expired)
		return
	}
	c.b.count("Lock")
	c.stored(what, in.Key, out.Index, out.Entry, in.Value, in.Flags)
	if out.Entry.GetSession() != in.Session || out.Entry.LockDelayMs != in.LockDelayMs || out.Entry.LockIndex == 0 {
		c.fail("%s: locked as %v", what, out.Entry)
	}
	c.keyBefore(what, in.Key, out.Index, func(was *pb.KeyValue) bool { return was.GetSession() == "" || was.Session == in.Session })
}

func (c *call) answeredUnlock(in *pb.UnlockRequest, out *pb.UnlockResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("unlock %v", in)
	switch {
	case !ok:
		return
	case e != nil:
		c.b.count("Unlock" + kindOf(e))
		c.keyRefused(what, in.Key, e, func(now *pb.KeyValue) bool { return now.GetSession() != in.Session }, incumbent.NotHolder)
		return
	}
	c.b.count("Unlock")
	c.stored(what, in.Key, out.Index, out.Entry, in.Value, in.Flags)
	if out.Entry.GetSession() != "" {
		c.fail("%s: unlocked, as %v", what, out.Entry)
	}
	c.keyBefore(what, in.Key, out.Index, func(was *pb.KeyValue) bool { return was.GetSession() == in.Session })
}

func (c *call) answeredGet(in *pb.GetKeyRequest, out *pb.GetKeyResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("get %v", in)
	if !ok {
		return
	}
	c.b.count("Get of a key" + kindOf(e))
	switch {
	case e != nil:
		c.refused(what, e, valid, incumbent.NotFound)
		if e.Kind == incumbent.NotFound.String() && !in.Stale {
			c.keyTruly(what, in.Key, func(now *pb.KeyValue) bool { return now == nil })
		}
		return
	case !in.Stale:
		c.at(out.Index)
	}
	c.sawKey(what, in.Key, out.Entry, out.Index, true)
}

func (c *call) answeredList(in *pb.ListKeysRequest, out *pb.ListKeysResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("list %v", in)
	switch {
	case !ok:
		return
	case e != nil:
		c.refused(what, e, valid)
		return
	case in.Limit > 0 && len(out.Entries) > int(in.Limit):
		c.fail("%s: %d entries", what, len(out.Entries))
	case !in.Stale:
		c.at(out.Index)
	}
	c.b.count("List of keys")
	listed := map[string]*pb.KeyValue{}
	for i, entry := range out.Entries {
		if i > 0 && entry.Key <= out.Entries[i-1].Key || !strings.HasPrefix(entry.Key, in.Prefix) {
			c.fail("%s: %q after %q", what, entry.Key, out.Entries[max(0, i-1)].Key)
		}
		if entry.ModifiedIndex > out.ModifiedIndex {
			c.fail("%s: modified at %d, and %q at %d", what, out.ModifiedIndex, entry.Key, entry.ModifiedIndex)
		}
		listed[entry.Key] = entry
		c.sawKey(what, entry.Key, entry, out.Index, !in.KeysOnly)
	}
	c.later(func(w window) string {
		for _, key := range w.keys.below(in.Prefix) {
			now, known := w.keys.at(key, out.Index)
			if !known {
				return ""
			}
			if now != nil && listed[key] == nil && (out.Next == "" || key <= out.Next) {
				return fmt.Sprintf("%s at index %d lacks %v", what, out.Index, now)
			}
			for _, m := range w.keys.between(key, 0, out.Index) {
				if m.index > out.ModifiedIndex {
					return fmt.Sprintf("%s at index %d: modified at %d, %q was changed at %d", what, out.Index, out.ModifiedIndex, key, m.index)
				}
			}
		}
		return ""
	})
}

// invalidKeys makes a call that must be refused as invalid, whatever the state.
func (p *unaryPlayer) invalidKeys(ctx context.Context, d dice, k *caller, c *call) {
	key := pick(d, []string{"", strings.Repeat("k", 1025)})
	session := pick(d, append(wrongSessions, ""))
	var e *pb.Error
	var ok bool
	switch d.IntN(9) {
	case 0:
		_, e, ok = do(ctx, c, k.m, k.keys.Put, &pb.PutRequest{Key: key})
	case 1:
		_, e, ok = do(ctx, c, k.m, k.keys.Put, &pb.PutRequest{Key: "k/a", Namespace: strings.Repeat("n", 129)})
	case 2:
		_, e, ok = do(ctx, c, k.m, k.keys.Get, &pb.GetKeyRequest{Key: key})
	case 3:
		_, e, ok = do(ctx, c, k.m, k.keys.Delete, &pb.DeleteRequest{Key: key})
	case 4:
		_, e, ok = do(ctx, c, k.m, k.keys.Delete, &pb.DeleteRequest{Key: "k/", Tree: true, Condition: &pb.DeleteRequest_IfIndex{IfIndex: 1}})
	case 5:
		_, e, ok = do(ctx, c, k.m, k.keys.Lock, &pb.LockRequest{Key: "k/a", Session: session})
	case 6:
		_, e, ok = do(ctx, c, k.m, k.keys.Lock, &pb.LockRequest{Key: "k/a", Session: d.session(), LockDelayMs: 60_001})
	case 7:
		_, e, ok = do(ctx, c, k.m, k.keys.Unlock, &pb.UnlockRequest{Key: "k/a", Session: session})
	default:
		_, e, ok = do(ctx, c, k.m, k.keys.List, &pb.ListKeysRequest{Limit: 10_001})
	}
	switch {
	case !ok:
	case e == nil:
		c.fail("a call about keys is invalid, and was done")
	default:
		c.b.count("an invalid call about keys")
		c.refused("a call about keys", e, mustFail)
	}
}
