package native

import (
	"context"
	"strings"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// behindAll follows every key with the prefix it is appended to: no key has that
// byte, for keys are UTF-8.
const behindAll = "\xff"

// Get reads one entry.
func (s keyService) Get(ctx context.Context, r *connect.Request[pb.GetKeyRequest]) (*connect.Response[pb.GetKeyResponse], error) {
	return reading(ctx, s.d, calls.GetKey.LaneOfRead(r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.GetKeyResponse, error) { return f.key(callerOf(ctx), r.Msg) })
}

// key reads one entry.
func (f *former) key(who *caller, in *pb.GetKeyRequest) (*pb.GetKeyResponse, error) {
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
	return reading(ctx, s.d, calls.ListKeys.LaneOfRead(r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.ListKeysResponse, error) {
		l, err := s.d.keyListOf(ctx, callerOf(ctx), f, r.Msg)
		if err != nil {
			return nil, err
		}
		return l.read()
	})
}

// keyList is a list of keys while a page of it is read.
type keyList struct {
	ctx     context.Context
	in      *pb.ListKeysRequest
	former  *former
	view    *kv.View
	prefix  kv.Key
	sight   auth.Sight
	limit   int
	bytes   int // of what the page has
	looked  int
	stopped error
	out     *pb.ListKeysResponse
}

func (d *Door) keyListOf(ctx context.Context, who *caller, f *former, in *pb.ListKeysRequest) (*keyList, error) {
	l := &keyList{
		ctx: ctx, in: in, former: f, view: kv.Of(f.view), prefix: keyIn(in.Namespace, in.Prefix),
		sight: d.rights(who).Sight(auth.KeyRead),
		limit: or(int(in.Limit), DefaultPage), out: &pb.ListKeysResponse{Index: uint64(f.view.Index())},
	}
	if l.limit > MaxPage {
		return nil, invalid("limit", "%d is over %d", l.limit, MaxPage)
	}
	if err := l.prefix.ValidatePrefix(); err != nil {
		return nil, inField("prefix", err)
	}
	if err := l.sight.SeesAny(nameOfKey(l.prefix)); err != nil {
		return nil, err
	}
	if in.After != "" && !strings.HasPrefix(in.After, in.Prefix) {
		return nil, invalid("after", "%q does not begin with the prefix; give what next said", in.After)
	}
	if in.Stale {
		l.out.AgeMs = ms(d.age())
	}
	return l, nil
}

// read reads the page, one run of entries after another: a run ends where a common
// prefix lets all below it be passed over.
func (l *keyList) read() (*pb.ListKeysResponse, error) {
	after := kv.Key{Namespace: l.prefix.Namespace, Name: l.in.After}
	if g := l.group(l.in.After); l.in.After != "" && g == l.in.After {
		after.Name += behindAll
	}
	if l.in.After == "" {
		l.out.ModifiedIndex = uint64(l.modified())
	}
	for more := true; more && l.stopped == nil; {
		more = false
		l.view.Ascend(l.prefix, after, func(e *kv.Entry) bool {
			if !l.goOn() {
				return false
			}
			if !l.sight.Sees(nameOfKey(e.Key)) {
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

// modified is when the list last changed.
func (l *keyList) modified() incumbent.Index {
	at := l.view.Deleted(l.prefix, l.goOn)
	l.view.Ascend(l.prefix, kv.Key{}, func(e *kv.Entry) bool {
		if l.sight.Sees(nameOfKey(e.Key)) {
			at = max(at, e.Modified)
		}
		return l.goOn()
	})
	return at
}

// goOn looks at the deadline every now and then.
func (l *keyList) goOn() bool {
	if l.looked++; l.looked%ScanSlice == 0 && l.ctx.Err() != nil {
		l.stopped = context.Cause(l.ctx)
	}
	return l.stopped == nil
}
