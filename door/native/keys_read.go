package native

import (
	"cmp"
	"context"
	"strings"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
)

// behindAll follows every key with the prefix it is appended to: no key has that
// byte, for keys are UTF-8.
const behindAll = "\xff"

// Get reads one entry.
func (s keyService) Get(ctx context.Context, r *connect.Request[pb.GetKeyRequest]) (*connect.Response[pb.GetKeyResponse], error) {
	if waits(r.Msg) {
		return shared[pb.GetKeyResponse](s.d.getShared(ctx, r.Msg))
	}
	return reading(ctx, s.d, calls.GetKey.LaneOfRead(r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.GetKeyResponse, error) { return f.key(callerOf(ctx), r.Msg) })
}

// key reads one entry.
func (f *former) key(who *caller, in *pb.GetKeyRequest) (*pb.GetKeyResponse, error) {
	if waits(in) {
		return nil, errWaits()
	}
	k := keyIn(in.Namespace, in.Key)
	if err := k.Validate(); err != nil {
		return nil, err
	}
	if err := f.d.allowKey(who, auth.KeyRead, k, false); err != nil {
		return nil, err
	}
	e := kv.Of(f.view).Entry(k)
	if e == nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "key %q is not there, in namespace %q", k.Name, k.Namespace)
	}
	out := &pb.GetKeyResponse{Entry: f.entry(e, false), Index: uint64(f.view.Index())}
	if in.Stale {
		out.AgeMs = ms(f.d.age())
	}
	return out, nil
}

// List reads a page of entries.
func (s keyService) List(ctx context.Context, r *connect.Request[pb.ListKeysRequest]) (*connect.Response[pb.ListKeysResponse], error) {
	if waits(r.Msg) {
		return shared[pb.ListKeysResponse](s.d.listShared(ctx, r.Msg))
	}
	return reading(ctx, s.d, calls.ListKeys.LaneOfRead(r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.ListKeysResponse, error) { return f.keys(ctx, callerOf(ctx), r.Msg) })
}

// keys reads a page of entries.
func (f *former) keys(ctx context.Context, who *caller, in *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	if waits(in) {
		return nil, errWaits()
	}
	l, err := newKeyList(ctx, in)
	if err != nil {
		return nil, err
	}
	l.former = f
	if l.sight, err = f.d.sightOfKeys(who, l.prefix); err != nil {
		return nil, err
	}
	out, err := l.read(engine.Read(f.view, nil))
	if out.Index = uint64(f.view.Index()); in.Stale {
		out.AgeMs = ms(f.d.age())
	}
	return out, err
}

// keyList is a list of keys while a page of it is read.
type keyList struct {
	ctx     context.Context
	in      *pb.ListKeysRequest
	former  *former
	prefix  kv.Key
	sight   auth.Sight
	limit   int
	bytes   int // of what the page has
	looked  int
	stopped error
	out     *pb.ListKeysResponse
}

// sightOfKeys is what a caller may see below a prefix. The error is Denied: nothing.
func (d *Door) sightOfKeys(who *caller, prefix kv.Key) (auth.Sight, error) {
	sight := d.rights(who).Sight(calls.ListKeys.Action())
	return sight, sight.SeesAny(nameOfKey(prefix))
}

// newKeyList checks what a list is to be of.
func newKeyList(ctx context.Context, in *pb.ListKeysRequest) (*keyList, error) {
	l := &keyList{ctx: ctx, in: in, prefix: keyIn(in.Namespace, in.Prefix), limit: cmp.Or(int(in.Limit), DefaultPage), out: &pb.ListKeysResponse{}}
	if l.limit > MaxPage {
		return nil, invalid("limit", "%d is over %d", l.limit, MaxPage)
	}
	if err := l.prefix.ValidatePrefix(); err != nil {
		return nil, inField("prefix", err)
	}
	if in.After != "" && !strings.HasPrefix(in.After, in.Prefix) {
		return nil, invalid("after", "%q does not begin with the prefix; give what next said", in.After)
	}
	return l, nil
}

// read reads the page, one run of entries after another: a run ends where a common
// prefix lets all below it be passed over.
func (l *keyList) read(view engine.Reading) (*pb.ListKeysResponse, error) {
	after := kv.Key{Namespace: l.prefix.Namespace, Name: l.in.After}
	if g := l.group(l.in.After); l.in.After != "" && g == l.in.After {
		after.Name += behindAll
	}
	if l.in.After == "" {
		l.out.ModifiedIndex = uint64(view.Modified(l.prefix, l.sees, l.goOn))
	}
	for more := true; more && l.stopped == nil; {
		more = false
		view.Keys(l.prefix, after, func(e *kv.Entry) bool {
			if !l.goOn() {
				return false
			}
			if !l.sees(e.Key) {
				return true
			}
			g := l.group(e.Name)
			if !l.take(e, g) {
				return false
			}
			after.Name, more = g+behindAll, g != ""
			return g == ""
		})
	}
	return l.out, l.stopped
}

// take puts an entry, or the prefix it shares with others, on the page, or says
// where the next one begins.
func (l *keyList) take(e *kv.Entry, group string) bool {
	size := len(e.Name)
	if group == "" && !l.in.KeysOnly {
		size += len(e.Value)
	}
	if n := len(l.out.Entries) + len(l.out.Prefixes); n == l.limit || n > 0 && l.bytes+size > maxKeysBytes {
		l.out.Next = l.last()
		return false
	}
	l.bytes += size
	if group != "" {
		l.out.Prefixes = append(l.out.Prefixes, group)
		return true
	}
	l.out.Entries = append(l.out.Entries, l.former.entry(e, l.in.KeysOnly))
	return true
}

// last is what the page ends with.
func (l *keyList) last() (key string) {
	if n := len(l.out.Entries); n > 0 {
		key = l.out.Entries[n-1].Key
	}
	if n := len(l.out.Prefixes); n > 0 {
		key = max(key, l.out.Prefixes[n-1])
	}
	return key
}

// group is what a key has up to the end of the first separator behind the prefix;
// "": it has none.
func (l *keyList) group(key string) string {
	if l.in.Separator == "" {
		return ""
	}
	rest := strings.TrimPrefix(key, l.prefix.Name)
	i := strings.Index(rest, l.in.Separator)
	if i < 0 {
		return ""
	}
	return key[:len(key)-len(rest)+i+len(l.in.Separator)]
}

// sees reports whether the entry of a key may be shown.
func (l *keyList) sees(k kv.Key) bool { return l.sight.Sees(nameOfKey(k)) }

// goOn looks at the deadline every now and then.
func (l *keyList) goOn() bool {
	if l.looked++; l.looked%ScanSlice == 0 && l.ctx.Err() != nil {
		l.stopped = context.Cause(l.ctx)
	}
	return l.stopped == nil
}
