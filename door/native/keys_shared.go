package native

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// A read that waits is a query that all callers share who ask the same: it is evaluated
// once for a change of what it has read and encoded once, however many wait. What is
// each caller's own is appended to those bytes.

// waitingRead is a read that may wait until its result is another.
type waitingRead interface {
	GetStale() bool
	GetAfterIndex() uint64
	GetNotHash() []byte
	GetWaitMs() uint32
}

// waits reports whether a read is one that waits.
func waits(r waitingRead) bool {
	return r.GetAfterIndex() != 0 || len(r.GetNotHash()) > 0 || r.GetWaitMs() != 0
}

// errWaits refuses a read that waits where nobody would wait for its answer.
func errWaits() error {
	return invalid("wait_ms", "is for calls; over a stream watch_keys says what changes")
}

// wantOf is what a read waits for.
func wantOf(r waitingRead) (w watch.Want, err error) {
	w.After = incumbent.Index(r.GetAfterIndex())
	if n := len(r.GetNotHash()); n > 0 && n != len(w.Not) {
		return w, invalid("not_hash", "has %d bytes; give the hash of the answer before", n)
	}
	copy(w.Not[:], r.GetNotHash())
	if w.For = cmp.Or(time.Duration(r.GetWaitMs())*time.Millisecond, DefaultWait); w.For > MaxWait {
		return w, invalid("wait_ms", "%d is over %d", r.GetWaitMs(), MaxWait.Milliseconds())
	}
	return w, nil
}

// sharedAnswer stands for the response to a read that waits, in the codecs of this door:
// what all share, and behind it what is of the moment.
type sharedAnswer struct {
	answer   *watch.Answer
	fields   sharedFields
	index    incumbent.Index // of the state that was read
	modified bool            // the response says when the result changed
	age      uint32
}

// sharedFields are the numbers of those fields of a response.
type sharedFields struct{ index, modified, age protowire.Number }

var (
	getFields  = sharedFields{index: 2, modified: 4, age: 3}
	listFields = sharedFields{index: 3, modified: 4, age: 6}
)

// size is about how many bytes it has when it is encoded.
func (a *sharedAnswer) size() int {
	m, _ := a.answer.Value.(proto.Message)
	return proto.Size(m)
}

func (a *sharedAnswer) appendProto(b []byte) []byte {
	b = append(b, a.answer.Encode(protoEncoding, func(v any) []byte {
		out, err := proto.Marshal(v.(proto.Message)) //nolint:forcetypeassert // what this door's queries give
		if err != nil {
			panic(incumbent.Errorf(incumbent.Internal, "encode an answer: %w", err))
		}
		return out
	})...)
	b = appendVarintField(b, a.fields.index, uint64(a.index))
	if a.modified {
		b = appendVarintField(b, a.fields.modified, uint64(a.answer.Changed))
	}
	return appendVarintField(b, a.fields.age, uint64(a.age))
}

func (a *sharedAnswer) appendJSON(b []byte) []byte {
	b = append(b, a.answer.Encode(jsonEncoding, func(v any) []byte {
		out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(v.(proto.Message)) //nolint:forcetypeassert // as above
		if err != nil {
			panic(incumbent.Errorf(incumbent.Internal, "write an answer: %w", err))
		}
		return out[:len(out)-1] // it goes on
	})...)
	b = strconv.AppendUint(append(b, `,"index":"`...), uint64(a.index), 10)
	if a.modified {
		b = strconv.AppendUint(append(b, `","modified_index":"`...), uint64(a.answer.Changed), 10)
	}
	b = append(b, '"')
	if a.age > 0 {
		b = strconv.AppendUint(append(b, `,"age_ms":`...), uint64(a.age), 10)
	}
	return append(b, '}')
}

// shared is the answer of a call whose response its caller has: see [caller].
func shared[T any](err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(new(T)), nil
}

// sharedQuery is a query for a caller by the policies of now. The error is Denied.
type sharedQuery func() (watch.QuerySpec[*core.View], error)

// getShared waits for another result of a key.
func (d *Door) getShared(ctx context.Context, in *pb.GetKeyRequest) error {
	k := keyIn(in.Namespace, in.Key)
	if err := k.Validate(); err != nil {
		return d.callError(err)
	}
	return d.answerShared(ctx, in, getFields, true, func() (watch.QuerySpec[*core.View], error) {
		who := callerOf(ctx)
		return d.keyQuery(k, d.hidesFrom(who)), d.allowKey(who, auth.KeyRead, k, false)
	})
}

// hidesFrom reports whether the ids of sessions are hidden from a caller in what it
// shares with others, as in watches: all of them, where it may not see all.
func (d *Door) hidesFrom(who *caller) bool { return !d.sightOf(who).all }

// sharedForm writes entries for all who see, or do not see, the ids of sessions.
func (d *Door) sharedForm(v *core.View, hides bool) *former {
	return &former{d: d, view: v, sight: sight{all: !hides}}
}

// rightsKey says what callers may see.
func rightsKey(seen string, hides bool) string { return fmt.Sprintf("%s hides=%v", seen, hides) }

func (d *Door) keyQuery(k kv.Key, hides bool) watch.QuerySpec[*core.View] {
	return watch.QuerySpec[*core.View]{
		Key: watch.QueryKey{Kind: watch.Kind(kv.Number), Params: fmt.Sprintf("get %q %q", k.Namespace, k.Name), Rights: rightsKey("", hides)},
		Eval: func(v *core.View, notes *watch.Reads) watch.Result {
			e, at := engine.Read(v, notes).Key(k)
			out, digest := &pb.GetKeyResponse{Entry: d.sharedForm(v, hides).entry(e, false)}, watch.NewDigest()
			if e != nil {
				at = e.Modified
				digestEntry(digest, out.Entry)
			}
			hash := digest.Sum()
			out.Hash = hash[:]
			return watch.Result{Value: out, Hash: hash, Modified: max(at, 1), Size: proto.Size(out)}
		},
	}
}

// listShared waits for another page of a list.
func (d *Door) listShared(ctx context.Context, in *pb.ListKeysRequest) error {
	l, err := newKeyList(ctx, in)
	if err != nil {
		return d.callError(err)
	}
	if in.After != "" && in.AfterIndex != 0 {
		return d.callError(invalid("after_index", "waits for the list, of which this page says no index; give not_hash"))
	}
	return d.answerShared(ctx, in, listFields, in.After == "", func() (watch.QuerySpec[*core.View], error) {
		who := callerOf(ctx)
		sight, err := d.sightOfKeys(who, l.prefix)
		return d.listQuery(in, sight.Within(nameOfKey(l.prefix)), d.hidesFrom(who)), err
	})
}

// listQuery is the query of a list. All that may see the same share it.
func (d *Door) listQuery(in *pb.ListKeysRequest, seen auth.Sight, hides bool) watch.QuerySpec[*core.View] {
	in = &pb.ListKeysRequest{
		Namespace: cmp.Or(in.Namespace, incumbent.DefaultNamespace), Prefix: in.Prefix, KeysOnly: in.KeysOnly, Separator: in.Separator,
		After: in.After, Limit: cmp.Or(in.Limit, DefaultPage),
	}
	return watch.QuerySpec[*core.View]{
		Key: watch.QueryKey{Kind: watch.Kind(kv.Number), Params: fmt.Sprintf("list %q %q %v %q %q %d",
			in.Namespace, in.Prefix, in.KeysOnly, in.Separator, in.After, in.Limit), Rights: rightsKey(seen.Key(), hides)},
		Eval: func(v *core.View, notes *watch.Reads) watch.Result {
			l, err := newKeyList(context.Background(), in)
			if err != nil {
				panic(incumbent.Errorf(incumbent.Internal, "a list that was valid: %w", err))
			}
			l.sight, l.former = seen, d.sharedForm(v, hides)
			out, _ := l.read(engine.Read(v, notes)) // it ends early with its context alone
			digest := watch.NewDigest()
			digest.Uint(uint64(len(out.Entries)))
			for _, e := range out.Entries {
				digestEntry(digest, e)
			}
			digest.Uint(uint64(len(out.Prefixes)))
			for _, p := range out.Prefixes {
				digest.Text(p)
			}
			digest.Text(out.Next)
			var modified incumbent.Index
			if in.After == "" {
				modified = max(incumbent.Index(out.ModifiedIndex), 1)
			}
			hash := digest.Sum()
			out.Hash, out.ModifiedIndex = hash[:], 0
			return watch.Result{Value: out, Hash: hash, Modified: modified, Size: proto.Size(out)}
		},
	}
}

// digestEntry adds what an entry says, save for its indexes.
func digestEntry(d *watch.Digest, e *pb.KeyValue) {
	d.Text(e.Key)
	d.Bytes(e.Value)
	d.Uint(e.Flags)
	d.Uint(e.LockIndex)
	d.Text(e.Session)
	d.Uint(uint64(e.OnEnd))
	d.Uint(uint64(e.LockDelayMs))
}

// answerShared waits for another result than the caller has, and leaves it with the
// caller.
func (d *Door) answerShared(ctx context.Context, r waitingRead, fields sharedFields, modified bool, query sharedQuery) error {
	ctx, stop := d.untilDrained(ctx)
	defer stop()
	open, err := d.tally.Take(settings.OpenWatches, callerOf(ctx).principal, "")
	if err != nil {
		return d.callError(err)
	}
	defer open.Give()
	want, err := wantOf(r)
	if err != nil {
		return d.callError(err)
	}
	if _, err = query(); err != nil {
		return d.callError(err)
	}
	admitted, err := d.admit(ctx, admit.Watches, 1)
	if err != nil {
		return d.callError(err)
	}
	if !r.GetStale() {
		if err = d.confirmed(ctx); err == nil {
			want.AtLeast = d.engine.View().Index()
			err = exists(want.After, d.engine.View())
		}
	}
	admitted() // a read that waits holds no place in a lane
	if err != nil {
		return d.callError(err)
	}
	told, err := d.await(ctx, query, want)
	if err != nil {
		return d.callError(err)
	}
	a := &sharedAnswer{answer: told.Answer, fields: fields, index: told.Read, modified: modified}
	if r.GetStale() {
		a.age = ms(d.age())
	}
	callerOf(ctx).shared = a
	return nil
}

// await waits for a query, and for another one when a policy changes what the caller may
// see.
func (d *Door) await(ctx context.Context, query sharedQuery, want watch.Want) (watch.Told, error) {
	ends := d.now().Add(want.For)
	for {
		changed := d.rulesChanged()
		spec, err := query()
		if err != nil {
			return watch.Told{}, err
		}
		told, again, err := d.awaitOne(ctx, spec, want, changed)
		if err == nil && !again { // that a policy has changed may not have been heard yet
			var now watch.QuerySpec[*core.View]
			now, err = query()
			again = err == nil && now.Key != spec.Key
		}
		if !again {
			return told, err
		}
		want.For = max(ends.Sub(d.now()), time.Millisecond)
	}
}

// awaitOne waits for one query until the policies change: then again is true.
func (d *Door) awaitOne(ctx context.Context, spec watch.QuerySpec[*core.View], want watch.Want, changed <-chan struct{}) (told watch.Told, again bool, err error) {
	q, err := d.engine.Queries().Query(spec)
	if err != nil {
		return told, false, err
	}
	defer q.Release()
	got := make(chan watch.Told, 1)
	w, err := q.Wait(want, func(t watch.Told) { got <- t })
	if err != nil {
		return told, false, err
	}
	select {
	case told = <-got:
		return told, false, told.Err
	case <-changed:
		w.Cancel()
		return told, true, nil
	case <-ctx.Done():
		w.Cancel()
		return told, false, context.Cause(ctx)
	}
}
