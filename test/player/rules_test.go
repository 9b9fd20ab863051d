package player

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// told is one change of lease "a", in a short form.
type told struct {
	index  uint64
	what   string
	holder string
	token  uint64
	last   uint64
}

// tell has a watch tell of changes, each in an answer of its own.
func tell(t *timeline, list ...told) {
	before := free
	for _, x := range list {
		l := &pb.Lease{
			Name: (&place{t.scope, "a"}).pb(), Holder: x.holder, Token: x.token, LastToken: max(x.last, x.token), ModifiedIndex: x.index, Offered: x.what == "offered",
		}
		t.add(&pb.WatchResponse{ProgressIndex: x.index, Events: []*pb.LeaseEvent{
			{Index: x.index, What: x.what, Lease: l, PreviousHolder: before.Holder, PreviousToken: before.Token},
		}})
		before = l
	}
}

// A judge that lets everything pass proves nothing.
func TestTheTimelineTellsRightFromWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		told []told
		want bool
	}{
		{"granted, released, granted", []told{{5, "granted", "x", 5, 0}, {7, "released", "", 0, 5}, {9, "granted", "y", 9, 5}}, true},
		{"handed over", []told{{5, "granted", "x", 5, 0}, {7, "released", "", 0, 5}, {8, "offered", "y", 8, 5}}, true},
		{"two holders", []told{{5, "granted", "x", 5, 0}, {7, "granted", "y", 7, 0}}, false},
		{"an index that falls", []told{{5, "granted", "x", 5, 0}, {4, "released", "", 0, 5}}, false},
		{"the same index twice, in two pieces", []told{{5, "granted", "x", 5, 0}, {5, "released", "", 0, 5}}, false},
		{"a token that is not the index", []told{{5, "granted", "x", 4, 0}}, false},
		{"a last token that falls", []told{{5, "granted", "x", 5, 0}, {7, "released", "", 0, 3}}, false},
		{"another holder without a grant", []told{{5, "granted", "x", 5, 0}, {7, "extended", "y", 5, 0}}, false},
		{"freed while it is free", []told{{5, "expired", "", 0, 0}}, false},
		{"accepted what was granted", []told{{5, "granted", "x", 5, 0}, {6, "accepted", "x", 5, 0}}, false},
		{"a change that there is not", []told{{5, "stolen", "x", 5, 0}}, false},
	} {
		right := true
		line := newTimeline(native, func(format string, args ...any) {
			right = false
			t.Logf("%s: "+format, append([]any{c.name}, args...)...)
		})
		tell(line, c.told...)
		if right != c.want {
			t.Errorf("%s: found right: %v", c.name, right)
		}
	}
}

func TestTheJudgeTellsRightFromWrong(t *testing.T) {
	ok := func(*call) {}
	later := func(index uint64) func(*book) {
		return func(b *book) { b.begin("later").at(index) }
	}
	lease := func(token uint64) *pb.Lease {
		return &pb.Lease{Name: (&place{native, "a"}).pb(), Holder: "x", Token: token}
	}
	claim := claimed(&pb.ClaimRequest{Name: (&place{native, "a"}).pb(), Holder: "x", TtlMs: 2000})
	result := func(r *pb.ClaimResponse) *pb.OperationResult {
		return &pb.OperationResult{Result: &pb.OperationResult_Claim{Claim: r}}
	}
	refusal := func(kind string, l *pb.Lease) *pb.OperationResult {
		return &pb.OperationResult{Error: &pb.Error{Kind: kind, Lease: l}}
	}
	operate := func(op *pb.Operation, r *pb.OperationResult, want expectation) func(*call) {
		return func(c *call) { c.operation(newTable(1), op, r, want) }
	}
	extend := func(token uint64) *pb.Operation {
		return &pb.Operation{Op: &pb.Operation_Extend{Extend: &pb.Extension{Token: token}}}
	}
	extended := &pb.OperationResult{Result: &pb.OperationResult_Extend{Extend: &pb.ExtensionResult{HeldMs: 1}}}
	release := func(token uint64) *pb.Operation {
		return &pb.Operation{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{Name: (&place{native, "a"}).pb(), Token: token}}}
	}
	released := &pb.OperationResult{Result: &pb.OperationResult_Release{Release: &pb.ReleaseResponse{Index: 20, Released: true}}}
	closing := &pb.Operation{Op: &pb.Operation_CloseSession{CloseSession: &pb.CloseSessionRequest{Id: "s"}}}
	// x holds "a" from 10 to 20, y from 30 on.
	history := []told{{10, "granted", "x", 10, 0}, {20, "released", "", 0, 10}, {30, "granted", "y", 30, 10}, {50, "extended", "y", 30, 10}}
	for _, c := range []struct {
		name  string
		floor uint64
		call  func(*call)
		after func(*book) // what is answered to those that ask afterwards
		want  bool
	}{
		{"granted", 5, operate(claim, result(&pb.ClaimResponse{Index: 10, Granted: true, Lease: lease(10)}), valid), later(12), true},
		{"granted, and nobody was told", 5, operate(claim, result(&pb.ClaimResponse{Index: 12, Granted: true, Lease: lease(12)}), valid), later(12), false},
		{"an index that goes back", 11, operate(claim, result(&pb.ClaimResponse{Index: 10, Granted: true, Lease: lease(10)}), valid), later(12), false},
		{"held while it was", 12, operate(extend(10), extended, valid), later(18), true},
		{"held after it was over", 22, operate(extend(10), extended, valid), later(25), false},
		{"held before it was granted", 12, operate(extend(30), extended, valid), later(18), false},
		{"not held after it was over", 22, operate(extend(10), refusal("not_holder", nil), valid), later(25), true},
		{"not held while it was", 12, operate(extend(10), refusal("not_holder", nil), valid), later(18), false},
		{"held by another", 32, operate(claim, refusal("held", lease(30)), valid), later(33), true},
		{"held by another, by whom it no longer was", 32, operate(claim, refusal("held", lease(10)), valid), later(33), false},
		{"held while it was free", 22, operate(claim, refusal("held", nil), valid), later(25), false},
		{"an internal error", 5, operate(claim, refusal("internal", nil), valid), later(12), false},
		{"a kind that there is not", 5, operate(claim, refusal("strange", nil), valid), later(12), false},
		{"a kind that a claim has not", 5, operate(claim, refusal("compacted", nil), valid), later(12), false},
		{"invalid, and done", 5, operate(claim, result(&pb.ClaimResponse{Index: 10, Granted: true, Lease: lease(10)}), mustFail), later(12), false},
		{"valid, and called invalid", 5, operate(claim, refusal("invalid", nil), valid), later(12), false},
		{"released under its own token", 12, operate(release(10), released, valid), later(22), true},
		{"released under an older token", 12, operate(release(7), released, valid), later(22), false},
		{"a read of what was not so", 12, func(c *call) { c.sawLease(lease(0), 5, false) }, later(18), false},
		{"not found though it was there", 12, func(c *call) { c.sawNothing(place{native, "a"}) }, later(18), false},
		{"not found before it was there", 5, func(c *call) { c.sawNothing(place{native, "a"}) }, later(18), true},
		{"a session that lacks a lease", 12, func(c *call) { c.sawSession("", &page{index: 12}) }, later(18), false},
		{"a closed session that owns nothing", 32, operate(closing, &pb.OperationResult{Result: &pb.OperationResult_CloseSession{CloseSession: &pb.CloseSessionResponse{Index: 33}}}, valid), later(35), true},
		{"a watch that leaves something out", 5, func(c *call) { c.sawEvents(native, 5, 20, nil) }, later(21), false},
		{"a watch of when nothing happened", 11, func(c *call) { c.sawEvents(native, 11, 19, nil) }, later(21), true},
		{"nothing", 5, ok, later(12), true},
	} {
		right := true
		fail := func(format string, args ...any) {
			right = false
			t.Logf("%s: %s", c.name, fmt.Sprintf(format, args...))
		}
		line := newTimeline(native, fail)
		tell(line, history...)
		b := newBook(fail)
		b.begin("before").at(c.floor)
		c.call(b.begin("call"))
		c.after(b)
		b.settle(map[scope]*timeline{native: line}, 50)
		if right != c.want {
			t.Errorf("%s: found right: %v", c.name, right)
		}
	}
}

// What a holder was promised holds, whatever the leader's clock says.
func TestAnEarlyExpiryIsFound(t *testing.T) {
	found := false
	line := newTimeline(native, t.Errorf)
	b := newBook(func(string, ...any) { found = true })
	b.begin("holder").held(10, uint32(time.Hour.Milliseconds()))
	tell(line, told{10, "granted", "x", 10, 0}, told{20, "expired", "", 0, 10})
	b.settle(map[scope]*timeline{native: line}, 20)
	if !found {
		t.Error("an expiry an hour before its time was not found")
	}
}
