package lease

import (
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Few names, holders and sessions, so that commands meet.
var (
	someNames    = []incumbent.Name{parseName("a"), parseName("b"), parseName("m2/a")}
	someHolders  = []string{"ann", "bob", "cid"}
	someSessions = []incumbent.SessionID{sessionID("s1"), sessionID("s2"), sessionID("s3")}
	someEntities = []string{"e1", "e2"}
)

// drawCommand draws a command of any kind. What it says about tokens and
// renewals is mostly true of the view, for else nothing would ever happen.
func drawCommand(t *rapid.T, v *core.View) core.Command {
	name := rapid.SampledFrom(someNames).Draw(t, "name")
	l := Of(v).Lease(name)
	if l == nil {
		l = new(Lease)
	}
	holder := rapid.SampledFrom(someHolders).Draw(t, "holder")
	session := rapid.SampledFrom(append(someSessions, incumbent.SessionID{})).Draw(t, "session")
	known := rapid.SampledFrom(someSessions).Draw(t, "known session")
	if !l.Free() && rapid.Bool().Draw(t, "as the holder") {
		holder, session = l.Holder, l.Session
	}
	token := nearly(t, uint64(l.Token), "token")
	var absent []incumbent.SessionID
	if rapid.Bool().Draw(t, "some are absent") {
		absent = rapid.SliceOfNDistinct(rapid.SampledFrom(someSessions), 1, 3, rapid.ID).Draw(t, "absent")
	}
	switch rapid.IntRange(0, 14).Draw(t, "kind") {
	case 0, 1, 2:
		c := ClaimCommand{Name: name, Holder: holder, Session: session, Wait: rapid.Bool().Draw(t, "wait"), Critical: rapid.Bool().Draw(t, "critical")}
		if rapid.IntRange(0, 3).Draw(t, "expects") == 0 {
			c.Token = incumbent.Token(token)
		}
		if session.IsZero() {
			c.TTL = time.Duration(rapid.IntRange(1, 3).Draw(t, "ttl")) * time.Minute
		}
		return c
	case 3:
		return AcceptCommand{Token: incumbent.Token(token)}
	case 4:
		return ReleaseCommand{Name: name, Holder: holder, Session: session, Next: known, Absent: absent, Token: incumbent.Token(rapid.SampledFrom([]uint64{0, token}).Draw(t, "named token"))}
	case 5:
		return RevokeCommand{Name: name, Token: incumbent.Token(token), By: "op", Next: known, Absent: absent, AtDeadline: rapid.Bool().Draw(t, "at deadline")}
	case 6:
		return TransferCommand{
			Name: name, Holder: holder, Session: session, Token: incumbent.Token(token), ToSession: known,
			ToHolder: rapid.SampledFrom(append(someHolders, "")).Draw(t, "to"),
		}
	case 7:
		return ExpireCommand{Token: incumbent.Token(token), Renewal: nearly(t, l.Renewal, "renewal"), Late: time.Millisecond, Next: known, Absent: absent}
	case 8:
		return PinCommand{Name: name, Entity: rapid.SampledFrom(someEntities).Draw(t, "entity")}
	case 9:
		return UnpinCommand{Name: name, Entity: rapid.SampledFrom(someEntities).Draw(t, "entity")}
	case 10:
		return LeaveQueueCommand{Name: name, Session: known, Holder: rapid.SampledFrom(append(someHolders, "")).Draw(t, "leaver")}
	case 11:
		return core.OpenSessionCommand{ID: known, TTL: time.Duration(rapid.IntRange(1, 2).Draw(t, "ttl")) * time.Minute}
	case 12:
		return core.CloseSessionCommand{ID: known, Reason: "done", Absent: absent}
	case 13:
		renewal := uint64(1)
		if s := v.Session(known); s != nil {
			renewal = s.Renewal
		}
		return core.ExpireSessionCommand{ID: known, Renewal: nearly(t, renewal, "renewal"), Late: time.Second, Absent: absent}
	}
	return core.ExtendSessionCommand{ID: known, TTL: time.Duration(rapid.IntRange(1, 3).Draw(t, "ttl")) * time.Minute}
}

func drawMember(t *rapid.T) core.Command {
	return core.PutMemberCommand{Member: core.Member{
		ID: rapid.Uint64Range(0, 4).Draw(t, "member"), Name: rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "member name"),
		PeerAddress: rapid.SampledFrom([]string{"", "host:1"}).Draw(t, "address"), Learner: rapid.Bool().Draw(t, "learner"),
		Schema: rapid.Uint32Range(core.SchemaVersion-1, core.SchemaVersion+2).Draw(t, "schema"),
	}}
}

// nearly is n three times out of four.
func nearly(t *rapid.T, n uint64, label string) uint64 {
	return n + rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, label+" is off by")
}

// drawOther draws commands that are about no lease.
func drawOther(t *rapid.T, v *core.View) core.Command {
	switch rapid.IntRange(0, 4).Draw(t, "other") {
	case 0:
		return core.TrimKeysCommand{Through: incumbent.Index(rapid.Uint64Range(0, uint64(v.Index())+2).Draw(t, "through"))}
	case 1:
		return core.RaiseIndexCommand{To: incumbent.Index(rapid.Uint64Range(0, uint64(v.Index())+5).Draw(t, "to"))}
	case 2:
		return drawMember(t)
	case 3:
		return core.RemoveMemberCommand{ID: rapid.Uint64Range(0, 4).Draw(t, "member")}
	}
	return core.CheckpointCommand{}
}

// known reports whether bytes name no schema that this code does not know, which
// would rightly stop it.
func known(b []byte) bool { return core.RequiredSchema(b) <= core.SchemaVersion }

// drawLog draws a log that makes sense when applied from the start: bytes that
// are no command and keys are among it.
func drawLog(t *rapid.T, limits limited) [][]byte {
	s := New()
	s.limit(limits)
	log := make([][]byte, rapid.IntRange(1, 60).Draw(t, "commands"))
	for i := range log {
		meta := core.Meta{Origin: core.Origin{At: time.UnixMilli(int64(i)), Door: "native", Principal: rapid.SampledFrom([]string{"", "p"}).Draw(t, "who")}}
		if k := rapid.IntRange(0, 8).Draw(t, "key"); k < 4 {
			meta.KeyID = []byte{byte(k)}
			meta.KeyBase = s.Index() - min(s.Index(), incumbent.Index(k))
		}
		switch rapid.IntRange(0, 9).Draw(t, "family") {
		case 0:
			log[i] = drawOther(t, s.View()).Encode(meta)
		case 1:
			log[i] = rapid.SliceOfN(rapid.Byte(), 0, 8).Filter(known).Draw(t, "bytes")
		default:
			log[i] = drawCommand(t, s.View()).Encode(meta)
		}
		s.Apply(log[i:i+1], make([]core.Result, 1))
	}
	return log
}

// tightLimits are reached by the logs that drawLog draws.
func tightLimits() limited {
	l := noLimits()
	l.leases, l.queue, l.perSession, l.waits, l.free = 3, 2, 3, 2, 1
	l.Limits = core.Limits{Sessions: 2, Kept: 2, Members: 2, Gone: 2}
	return l
}
