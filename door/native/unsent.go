package native

import (
	"slices"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/overload"
)

// Bounds of answers to calls that have not been sent.
const (
	MaxUnsentBytes = 256 << 20 // of all callers, about
	unsentPart     = 2         // one principal that is no operator has one part of so many
	smallAnswer    = 64 << 10  // is not refused for what others do not read
)

// UnsentBytes is how much of answers to calls is kept until their callers read them.
func (d *Door) UnsentBytes() int64 { return d.unsent.bytes() }

// unsent are the answers to calls that are kept until they have been read. Who opens
// streams of HTTP/2 and reads nothing has the answer over each kept until the time to
// write it is over: some connections with a few megabytes over each of their streams are
// more than a machine has.
type unsent struct {
	bound func() int64 // of all, in bytes

	mu  sync.Mutex // guards the rest; held for a look-up
	all int64
	by  map[string]int64 // principals
}

func (u *unsent) bytes() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all
}

// take counts an answer of n bytes. refusable: it may be refused, for what was asked for has
// changed nothing; then the error is Overloaded.
func (u *unsent) take(principal string, n int64, refusable bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	has := u.by[principal]
	if refusable && (has > 0 && has+n > u.most(principal) || n > smallAnswer && u.all+n > u.bound()) {
		return u.refusal(principal)
	}
	if u.by == nil {
		u.by = map[string]int64{}
	}
	u.by[principal] = has + n
	u.all += n
	return nil
}

// most is how much may be kept for one.
func (u *unsent) most(principal string) int64 {
	if core.Privileged(principal) {
		return u.bound()
	}
	return u.bound() / unsentPart
}

// refusal is the error of whoever has too much to read. With mu held.
func (u *unsent) refusal(principal string) error {
	return overload.Errorf("answers that have not been read take %d bytes, %d of them those of %s", u.all, u.by[principal], principal).
		WithHint("read what was asked for, or ask for less at a time")
}

// full refuses who has that much to read before anything is done for him.
func (u *unsent) full(principal string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[principal] < u.most(principal) {
		return nil
	}
	return u.refusal(principal)
}

// give says that the answer has been sent, or never will be.
func (u *unsent) give(principal string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all -= n
	if u.by[principal] -= n; u.by[principal] == 0 {
		delete(u.by, principal)
	}
}

// mayAsk refuses a call whose answer may be large, and must be given once it has changed
// something, to who has too much to read as it is.
func (d *Door) mayAsk(who *caller, request any) error {
	switch in := request.(type) {
	case *pb.TxnRequest:
		if !readsAlone(in) {
			return d.unsent.full(who.name())
		}
	case *pb.BatchRequest, *pb.TransactRequest:
		return d.unsent.full(who.name())
	}
	return nil
}

// readsAlone reports whether a transaction can change nothing.
func readsAlone(in *pb.TxnRequest) bool {
	changes := func(o *pb.TxnOperation) bool { return o.GetGet() == nil && o.GetList() == nil }
	return !slices.ContainsFunc(in.Then, changes) && !slices.ContainsFunc(in.Else, changes)
}

// keep counts the answer to a call until it has been sent: see Door.bounded.
func (d *Door) keep(who *caller, spec connect.Spec, request, answer any) error {
	switch answer.(type) {
	case *pb.ClaimResponse, *pb.ExtendResponse, *pb.ReleaseResponse, *pb.PutResponse:
		return nil // small and many
	}
	m, ok := answer.(proto.Message)
	if !ok {
		return nil
	}
	txn, ok := request.(*pb.TxnRequest)
	reads := ok && readsAlone(txn) || spec.IdempotencyLevel == connect.IdempotencyNoSideEffects
	return d.keepBytes(who, proto.Size(m), reads)
}

func (d *Door) keepBytes(who *caller, n int, refusable bool) error {
	if err := d.unsent.take(who.name(), int64(n), refusable); err != nil {
		return err
	}
	who.control.unsent += int64(n)
	return nil
}

// sent says that the answer to a call has been sent, if there was one that counts.
func (d *Door) sent(who *caller) {
	if n := who.control.unsent; n > 0 {
		d.unsent.give(who.name(), n)
	}
}
