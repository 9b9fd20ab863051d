package native

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
)

// codeOf is the one table from a kind to this door's form; over HTTP the code
// decides the status, by the table of the Connect protocol. Several kinds share a
// code: the detail tells them apart. What is wrong with a request itself shares
// neither code nor status with what the state says. docs/protocols/native.md shows
// the table.
func codeOf(k incumbent.Kind) connect.Code {
	switch k {
	case incumbent.Invalid:
		return connect.CodeInvalidArgument // 400
	case incumbent.NotFound:
		return connect.CodeNotFound // 404
	case incumbent.Exists, incumbent.Held:
		return connect.CodeAlreadyExists // 409: there is one, and it is not the caller's
	case incumbent.NotHolder, incumbent.Expired, incumbent.Conflict:
		return connect.CodeAborted // 409: what the call builds on is over
	case incumbent.Denied:
		return connect.CodePermissionDenied // 403
	case incumbent.Compacted:
		return connect.CodeOutOfRange // 400: the index is behind what is kept
	case incumbent.Overloaded, incumbent.TooLarge:
		return connect.CodeResourceExhausted // 429: of the two, only Overloaded says when to come back
	case incumbent.DeadlineExceeded:
		return connect.CodeDeadlineExceeded // 504
	case incumbent.NotLeader, incumbent.Unavailable:
		return connect.CodeUnavailable // 503
	case incumbent.Unknown:
		return connect.CodeUnknown // 500: it may or may not have happened
	case incumbent.Corrupt:
		return connect.CodeDataLoss // 500
	}
	return connect.CodeInternal // 500
}

// standing is what a member adds to an error: who answered, and who leads.
type standing struct {
	member    string
	leader    string // name
	leaderURL string // where a caller who needs the leader goes on
}

// leaderOf is what an error says of the leader: where it is if the caller has
// to go there, else who it is.
func (s standing) leaderOf(k incumbent.Kind) string {
	if k == incumbent.NotLeader && s.leaderURL != "" {
		return s.leaderURL
	}
	return s.leader
}

// asError finds the module's error in err. Errors of contexts get the kind
// that they mean before anything was executed.
func asError(err error) *incumbent.Error {
	var e *incumbent.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return incumbent.Errorf(incumbent.DeadlineExceeded, "the deadline of the request passed before it was answered")
	case errors.Is(err, context.Canceled):
		return incumbent.Errorf(incumbent.DeadlineExceeded, "the caller went away")
	}
	return incumbent.Errorf(incumbent.Internal, "%w", err)
}

// errorPB returns the detail that every failed call and item carries. lease is
// nil unless the lease as found says more.
func errorPB(err error, s standing, lease *pb.Lease) *pb.Error {
	e := asError(err)
	d := &pb.Error{
		Kind:         e.Kind.String(),
		Message:      e.Message,
		Hint:         e.Hint,
		RetryAfterMs: roundUp(e.RetryAfter),
		Member:       e.Member,
		Leader:       e.Leader,
		Lease:        lease,
	}
	if d.Member == "" {
		d.Member = s.member
	}
	if d.Leader == "" {
		d.Leader = s.leaderOf(e.Kind)
	}
	var window core.OutsideWindow
	if e.Kind == incumbent.Unknown && errors.As(e, &window) {
		d.BaseIndex = uint64(window.Index)
	}
	return d
}

// roundUp converts a time to wait: never shorter than meant.
func roundUp(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min((d + time.Millisecond - 1).Milliseconds(), math.MaxUint32))
}

// callError is the error of a unary or streaming call, with its detail and,
// where coming back helps, the header that says when.
func callError(err error, s standing, lease *pb.Lease) *connect.Error {
	d := errorPB(err, s, lease)
	kind, _ := incumbent.ParseKind(d.Kind)
	ce := connect.NewError(codeOf(kind), errors.New(d.Message))
	if detail, err := connect.NewErrorDetail(d); err == nil {
		ce.AddDetail(detail)
	}
	if d.RetryAfterMs > 0 {
		ce.Meta().Set("Retry-After", retryAfterSeconds(d.RetryAfterMs))
	}
	return ce
}

// retryAfterSeconds is the header's form: whole seconds, at least one.
func retryAfterSeconds(ms uint32) string {
	return strconv.FormatUint((uint64(ms)+999)/1000, 10)
}

// tooLargeBody is what a request over the limit is told, whoever finds out.
func tooLargeBody(limit int) error {
	return incumbent.Errorf(incumbent.TooLarge, "the request is over %d bytes", limit).
		WithHint("split it: send fewer operations or extensions in one call; of one value that is too large, less")
}

// statusOf is the HTTP status of an error outside a call: the upgrade to a
// stream.
func statusOf(k incumbent.Kind) int {
	switch codeOf(k) {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return http.StatusBadRequest
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeAlreadyExists, connect.CodeAborted:
		return http.StatusConflict
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
