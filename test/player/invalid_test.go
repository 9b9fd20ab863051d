package player

import (
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Texts that no name, holder or pin may be, whichever rules it follows.
var wrongTexts = []string{"", " ", "a b", "a\nb", "\x00", "tab\t", strings.Repeat("x", 257), "\x7f", " line"}

// Texts of which a server may think what it likes, as long as it says so.
var oddTexts = []string{"\u200b", "\u202ea", "\ufeffa", "a\u0301", "\U000e0001", "\ufffd", "\U0001f9ff", "͸", "퟿", "-", "/", "\\", "'", "<a>", "${a}", "%s%n"}

var wrongSessions = []string{"x", "00000000-0000-0000-0000-000000000000", strings.Repeat("f", 36), "0123456789abcdef0123456789abcdef", strings.Repeat("é", 18)}

// invalid makes an operation that must be refused as invalid, whatever the state.
func (d dice) invalid() *pb.Operation {
	for {
		op := proto.Clone(d.operation()).(*pb.Operation) //nolint:forcetypeassert // the clone of one
		if d.oneIn(40) {
			return &pb.Operation{}
		}
		if d.spoil(op) {
			return op
		}
	}
}

// spoil makes an operation invalid; false if it did not.
func (d dice) spoil(op *pb.Operation) bool {
	switch o := op.Op.(type) {
	case *pb.Operation_Claim:
		return d.spoilClaim(o.Claim)
	case *pb.Operation_Release:
		if d.oneIn(2) {
			return d.spoilName(&o.Release.Name)
		}
		o.Release.Token, o.Release.Holder = 0, pick(d, wrongTexts[1:]) // not none: that is the principal, where there is one
	case *pb.Operation_Revoke:
		if d.oneIn(2) {
			return d.spoilName(&o.Revoke.Name)
		}
		o.Revoke.By = strings.Repeat("b", 257)
	case *pb.Operation_Transfer:
		return d.spoilTransfer(o.Transfer)
	case *pb.Operation_Pin:
		if d.oneIn(2) {
			return d.spoilName(&o.Pin.Name)
		}
		o.Pin.Entity = pick(d, wrongTexts)
	case *pb.Operation_Unpin:
		if d.oneIn(2) {
			return d.spoilName(&o.Unpin.Name)
		}
		o.Unpin.Entity = pick(d, wrongTexts)
	case *pb.Operation_LeaveQueue:
		if d.oneIn(2) {
			return d.spoilName(&o.LeaveQueue.Name)
		}
		o.LeaveQueue.Session = pick(d, append(wrongSessions, ""))
	case *pb.Operation_OpenSession:
		return d.spoilOpen(o.OpenSession)
	case *pb.Operation_CloseSession:
		if d.oneIn(2) {
			o.CloseSession.Reason = strings.Repeat("r", 257)
			return true
		}
		o.CloseSession.Id = pick(d, append(wrongSessions, ""))
	case *pb.Operation_Extend:
		return d.spoilExtension(o.Extend)
	}
	return true
}

func (d dice) spoilName(n **pb.LeaseName) bool {
	switch d.IntN(4) {
	case 0:
		*n = nil
	case 1:
		(*n).Namespace = strings.Repeat("s", 129)
	case 2:
		(*n).Model = "mo del"
	default:
		(*n).Name = pick(d, wrongTexts)
	}
	return true
}

func (d dice) spoilClaim(c *pb.ClaimRequest) bool {
	switch d.IntN(6) {
	case 0:
		return d.spoilName(&c.Name)
	case 1:
		c.Holder = pick(d, wrongTexts[1:])
	case 2:
		c.Session = pick(d, wrongSessions)
	case 3:
		c.Session, c.Wait, c.TtlMs = "", false, pick(d, []uint32{0, 1, 999, 86_400_001, 1<<32 - 1})
	case 4:
		c.Session, c.Wait, c.TtlMs = "", true, 2000
	default:
		c.Idempotency = &pb.Idempotency{Key: []byte(strings.Repeat("k", 65)), BaseIndex: 1}
	}
	return true
}

func (d dice) spoilTransfer(t *pb.TransferRequest) bool {
	switch d.IntN(4) {
	case 0:
		return d.spoilName(&t.Name)
	case 1:
		t.Holder = pick(d, wrongTexts[1:])
	case 2:
		t.ToHolder = pick(d, wrongTexts[1:])
	default:
		t.ToSession = pick(d, append(wrongSessions, ""))
	}
	return true
}

func (d dice) spoilOpen(o *pb.OpenSessionRequest) bool {
	switch d.IntN(3) {
	case 0:
		o.Id = pick(d, wrongSessions)
	case 1:
		o.TtlMs, o.NoTtl = 2000, true
	default:
		o.TtlMs, o.NoTtl = pick(d, []uint32{0, 1, 999, 86_400_001, 1<<32 - 1}), false
	}
	return true
}

func (d dice) spoilExtension(e *pb.Extension) bool {
	switch d.IntN(4) {
	case 0:
		e.Token, e.Name, e.Holder, e.Session = 0, nil, "", ""
	case 1:
		e.Session = pick(d, wrongSessions)
	case 2:
		e.TtlMs = pick(d, []uint32{1, 999, 86_400_001, 1<<32 - 1})
	default:
		e.Name, e.Holder = (&place{native, pick(d, wrongTexts)}).pb(), "h"
	}
	return true
}

// odd makes an operation with a text of which nobody says whether it is valid.
func (d dice) odd() *pb.Operation {
	n := &pb.LeaseName{Name: "odd", Namespace: "odd"} // nobody watches there
	holder := "h"
	if d.oneIn(2) {
		n.Name = pick(d, oddTexts)
	} else {
		holder = pick(d, oddTexts)
	}
	if d.oneIn(4) {
		return &pb.Operation{Op: &pb.Operation_Pin{Pin: &pb.PinRequest{Name: n, Entity: pick(d, oddTexts)}}}
	}
	return claimed(&pb.ClaimRequest{Name: n, Holder: holder, TtlMs: d.ttl()})
}
