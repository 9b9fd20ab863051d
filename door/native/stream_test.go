package native

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

const (
	sessionA = "00000000-0000-4000-8000-00000000000a"
	sessionB = "00000000-0000-4000-8000-00000000000b"
)

// One stream does what an agent does in its life.
func TestStreamLife(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	if s := w.ok(openFrame(1, sessionA, 20000)).GetOperation().GetOpenSession(); s.HeldMs != 20000 || s.Session.Id != sessionA {
		t.Fatalf("opened %v", s)
	}
	token := w.ok(claimFrame(2, "db", "a", sessionA, false)).GetOperation().GetClaim().Lease.Token
	other := w.ok(claimFrame(3, "cache", "a", "", false)).GetOperation().GetClaim().Lease.Token

	a := w.ok(attachFrame(4, sessionA, 1)).GetAttached()
	if a.HeldMs != 20000 || len(a.Leases) != 1 || a.Leases[0].Token != token || a.Session.Id != sessionA || !a.Session.Attached {
		t.Fatalf("attached %v", a)
	}
	if b := w.ok(beatMessage(5)).GetBeaten(); b.HeldMs != 20000 || len(b.Lost) != 0 {
		t.Fatalf("beaten %v", b)
	}
	e := w.ok(tokensMessage(6, 0, token, other)).GetTokensExtended()
	if !slices.Equal(e.HeldEachMs, []uint32{20000, 15000}) || e.NotHeld != nil {
		t.Fatalf("extended %v", e)
	}
	w.ok(releaseFrame(7, "cache", "a", ""))
	if e := w.ok(tokensMessage(8, 0, other, token)).GetTokensExtended(); !slices.Equal(e.NotHeld, []uint64{other}) {
		t.Fatalf("extended %v, want %d not held", e, other)
	}
	g := w.ok(&pb.ClientFrame{Id: 9, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("db")}}}).GetGet()
	if g.Lease.Holder != "a" || g.Lease.ExpiresInMs == 0 || len(g.Lease.History) != 1 {
		t.Fatalf("got %v", g)
	}
	s := w.ok(&pb.ClientFrame{Id: 10, Request: &pb.ClientFrame_GetSession{GetSession: &pb.GetSessionRequest{Id: sessionA}}}).GetGetSession()
	if len(s.Leases) != 1 || !s.Session.Attached {
		t.Fatalf("session %v", s)
	}
	w.ok(&pb.ClientFrame{Id: 11, Request: &pb.ClientFrame_Detach{Detach: &pb.Detach{Session: sessionA}}})
	if b := w.ok(beatMessage(12)).GetBeaten(); b.HeldMs != 0 {
		t.Fatalf("a beat without sessions: %v", b)
	}
}

// A client that only beats is told which of its leases no beat keeps any longer,
// before anybody else can be granted them.
func TestG02_ABeatTellsOfARevocation(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(openFrame(1, sessionA, 20000))
	token := w.ok(claimFrame(2, "db", "a", sessionA, false)).GetOperation().GetClaim().Lease.Token
	w.ok(claimFrame(3, "cache", "a", sessionA, false))
	w.ok(attachFrame(4, sessionA, 1))
	w.ok(opFrame(5, &pb.Operation{Op: &pb.Operation_Revoke{Revoke: &pb.RevokeRequest{Name: nameOf("db"), By: "operator"}}}))
	b := w.ok(beatMessage(6)).GetBeaten()
	if b.HeldMs != 20000 || len(b.Lost) != 0 || !slices.Equal(b.Revoking, []uint64{token}) {
		t.Errorf("beaten %v, want %d revoking", b, token)
	}
	// So does each other extension of the session.
	extension := &pb.Extension{Session: sessionA}
	for i, got := range []*pb.ExtensionResult{
		w.ok(opFrame(7, &pb.Operation{Op: &pb.Operation_Extend{Extend: extension}})).GetOperation().GetExtend(),
		m.extend(extension),
	} {
		if got.GetHeldMs() != 20000 || !slices.Equal(got.GetRevoking(), []uint64{token}) {
			t.Errorf("extension %d: %v, want %d revoking", i, got, token)
		}
	}
}

// extend makes a call of its own for one extension.
func (m *member) extend(e *pb.Extension) *pb.ExtensionResult {
	m.tb.Helper()
	got, err := m.leaseClient().Extend(m.tb.Context(), connect.NewRequest(&pb.ExtendRequest{Extensions: []*pb.Extension{e}}))
	if err != nil {
		m.tb.Fatal(err)
	}
	return got.Msg.Results[0]
}

func TestStreamErrors(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	tests := []struct {
		name string
		f    *pb.ClientFrame
		want incumbent.Kind
	}{
		{"empty", &pb.ClientFrame{}, incumbent.Invalid},
		{"empty operation", opFrame(0, &pb.Operation{}), incumbent.Invalid},
		{"no name", opFrame(0, &pb.Operation{Op: &pb.Operation_Claim{Claim: &pb.ClaimRequest{}}}), incumbent.Invalid},
		{"session that is not open", claimFrame(0, "x", "h", sessionB, false), incumbent.Expired},
		{"attach nothing", attachFrame(0, "", 1), incumbent.Invalid},
		{"attach what is not open", attachFrame(0, sessionB, 1), incumbent.Expired},
		{"detach what is not attached", &pb.ClientFrame{Request: &pb.ClientFrame_Detach{Detach: &pb.Detach{Session: sessionB}}}, incumbent.NotFound},
		{"unwatch nothing", &pb.ClientFrame{Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 77}}}, incumbent.NotFound},
		{"watch without a name", &pb.ClientFrame{Request: &pb.ClientFrame_Watch{Watch: &pb.StreamWatch{}}}, incumbent.Invalid},
		{"too many tokens", tokensMessage(0, 0, make([]uint64, MaxTokens+1)...), incumbent.Invalid},
		{"get nobody", &pb.ClientFrame{Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("nobody")}}}, incumbent.NotFound},
		{"wait too long", &pb.ClientFrame{Request: &pb.ClientFrame_WaitReleased{WaitReleased: &pb.WaitReleasedRequest{Name: nameOf("x"), WaitMs: 1 << 30}}}, incumbent.Invalid},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.f.Id = uint64(i + 1)
			got := w.ask(tt.f)
			if got.Error.GetKind() != tt.want.String() || got.Error.Member != "n1" {
				t.Errorf("error %v, want %v", got.Error, tt.want)
			}
		})
	}
}

// A frame with id 0 is served and not answered.
func TestStreamAnswersOnlyWhoAsks(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.send(claimFrame(0, "a", "h", "", false), tokensMessage(0, 0, 1), beatMessage(0), &pb.ClientFrame{})
	got := w.ask(claimFrame(9, "a", "other", "", false))
	if got.Error.GetKind() != "held" || got.Error.Lease.GetHolder() != "h" {
		t.Fatalf("got %v", got)
	}
}

// What one stream sends about one lease takes effect in that order, though
// answers come in any.
func TestStreamOrderOfEffect(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	const rounds = 200
	var frames []*pb.ClientFrame
	for i := range uint64(rounds) {
		frames = append(frames, claimFrame(2*i+1, "x", "h", "", false), releaseFrame(2*i+2, "x", "h", ""))
	}
	w.send(frames...)
	tokens := map[uint64]uint64{}
	for range frames {
		f := w.next()
		if f.Error != nil {
			t.Fatalf("frame %d: %v", f.Id, f.Error)
		}
		if c := f.GetOperation().GetClaim(); c != nil {
			if !c.Granted {
				t.Fatalf("claim %d found the lease held: its release was overtaken", f.Id)
			}
			tokens[f.Id] = c.Lease.Token
		} else if !f.GetOperation().GetRelease().Released {
			t.Fatalf("release %d came before its claim", f.Id)
		}
	}
	for i := uint64(1); i < rounds; i++ {
		if tokens[2*i+1] <= tokens[2*i-1] {
			t.Fatalf("claim %d has token %d, the one before %d", 2*i+1, tokens[2*i+1], tokens[2*i-1])
		}
	}
}

// The same session attached elsewhere with a higher counter is lost here; a
// lower one is refused.
func TestStreamAttachedElsewhere(t *testing.T) {
	m := newMember(t)
	one, two := m.dial(), m.dial()
	one.ok(openFrame(1, sessionA, 20000))
	one.ok(attachFrame(2, sessionA, 5))
	if got := two.ask(attachFrame(1, sessionA, 5)); got.Error.GetKind() != "conflict" {
		t.Fatalf("attached with an equal counter: %v", got)
	}
	two.ok(attachFrame(2, sessionA, 6))
	if lost := one.next().GetSessionLost(); lost.GetSession() != sessionA || lost.Reason != lease.LostElsewhere {
		t.Fatalf("first stream was told %v", lost)
	}
	if b := one.ok(beatMessage(3)).GetBeaten(); b.HeldMs != 0 {
		t.Fatalf("the first stream still vouches: %v", b)
	}
	two.ok(attachFrame(3, sessionA, 7)) // again here: nothing is lost
	if b := two.ok(beatMessage(4)).GetBeaten(); b.HeldMs != 20000 {
		t.Fatalf("beaten %v", b)
	}
}

// Of several sessions one is attached elsewhere: the others' beat is answered as soon as their
// stream knows of the loss. Until then it would tell its client that it has that one, too.
func TestABeatIsOfWhatTheStreamHas(t *testing.T) {
	d := newMember(t).door
	var ids [2]incumbent.SessionID
	s := &stream{door: d}
	for i := range ids {
		ids[i] = incumbent.NewSessionID()
		s.sessions.set(attached{ids[i], 1})
	}
	beaten := func() *pb.ServerFrame {
		t.Helper()
		var g gather
		items := []lease.Extension{
			{Session: ids[0], Held: 20 * time.Second},
			{Session: ids[1], Kind: incumbent.Conflict, RevokingTokens: []incumbent.Token{7}},
		}
		got := &pb.ServerMessage{}
		if err := proto.Unmarshal(g.appendBeat(nil, &gathered{s: s, id: 1, kind: beatFrame, count: 2}, items), got); err != nil {
			t.Fatal(err)
		}
		return got.Frames[0]
	}
	if f := beaten(); f.Error.GetKind() != incumbent.Conflict.String() {
		t.Errorf("before the loss is known: %v", f)
	}
	s.sessions.remove(ids[1])
	if f := beaten(); f.Error != nil || !proto.Equal(f.GetBeaten(), &pb.Beaten{HeldMs: 20000}) {
		t.Errorf("once it is known: %v", f)
	}
}

// A session that is closed elsewhere is lost on its stream.
func TestStreamSessionLost(t *testing.T) {
	m := newMember(t)
	one, two := m.dial(), m.dial()
	one.ok(openFrame(1, sessionA, 20000))
	one.ok(attachFrame(2, sessionA, 1))
	two.ok(closeSessionFrame(1, sessionA))
	if lost := one.next().GetSessionLost(); lost.GetSession() != sessionA || lost.Reason != lease.LostClosed {
		t.Fatalf("told %v", lost)
	}
}

// When the connection breaks its sessions are detached: another stream may
// attach with any counter.
func TestStreamDetachesWhenItEnds(t *testing.T) {
	m := newMember(t)
	one := m.dial()
	one.ok(openFrame(1, sessionA, 20000))
	one.ok(attachFrame(2, sessionA, 1<<40))
	one.conn.Close()
	two := m.dial()
	deadline := time.Now().Add(patience)
	for two.ask(attachFrame(1, sessionA, 1)).Error != nil {
		if time.Now().After(deadline) {
			t.Fatal("still attached")
		}
	}
}

// A waiter whose session is attached is told of its offer at once, and holds
// when it has extended under the new token.
func TestStreamOffer(t *testing.T) {
	m := newMember(t)
	one, two := m.dial(), m.dial()
	two.ok(openFrame(1, sessionB, 20000))
	two.ok(attachFrame(2, sessionB, 1))
	// On a loaded machine the window of one offer may pass before it is accepted.
	deadline := time.Now().Add(patience)
	for !offered(t, one, two) {
		if time.Now().After(deadline) {
			t.Fatal("no offer can be accepted in time")
		}
	}
}

// A member whose state is replaced, as by a snapshot of the leader's, does not know what was
// offered meanwhile and came to nothing. Who waits there comes back and sees what it has;
// who waits for nothing is left alone.
func TestWhoMayHaveMissedAnOfferIsSentAway(t *testing.T) {
	m := newMember(t)
	holds, waits, idle := m.dial(), m.dial(), m.dial()
	holds.ok(claimFrame(1, "db", "a", "", false))
	for w, session := range map[*wire]string{waits: sessionA, idle: sessionB} {
		w.ok(openFrame(1, session, 20000))
		w.ok(attachFrame(2, session, 1))
	}
	if c := waits.ok(claimFrame(3, "db", "b", sessionA, true)).GetOperation().GetClaim(); !c.Queued {
		t.Fatalf("queued %v", c)
	}
	m.group.Hub().Reset(m.group.Hub().Index())
	if waits.next().GetGoAway() == nil {
		t.Fatal("told of something else")
	}
	if code := waits.closed(); code != ws.StatusGoingAway {
		t.Fatalf("closed with %d", code)
	}
	again := m.dial()
	if a := again.ok(attachFrame(1, sessionA, 2)).GetAttached(); len(a.GetWaits()) != 1 {
		t.Fatalf("attached again: %v", a)
	}
	idle.ok(attachFrame(3, sessionB, 2)) // still there
	holds.ok(claimFrame(2, "other", "a", "", false))
	m.group.Hub().Reset(m.group.Hub().Index())
	if again.next().GetGoAway() == nil {
		t.Fatal("told of something else")
	}
	idle.ok(attachFrame(4, sessionB, 3))
}

// Where a session stands in line, or is offered a lease, by what another member was asked for,
// its stream does not know it: it is sent away by what the state says.
func TestWhoWaitsByAnotherMemberIsSentAway(t *testing.T) {
	m := newMember(t)
	holds, waits := m.dial(), m.dial()
	holds.ok(claimFrame(1, "db", "a", "", false))
	waits.ok(openFrame(1, sessionA, 20000))
	waits.ok(attachFrame(2, sessionA, 1))
	id, err := incumbent.ParseSessionID(sessionA)
	if err != nil {
		t.Fatal(err)
	}
	if m.door.expects(id) {
		t.Error("who waits for nothing is said to")
	}
	db := incumbent.Name{Namespace: "default", Model: "default", Lease: "db"}
	if r := m.group.Do(leases.ClaimCommand{Name: db, Holder: "b", Session: id, Wait: true}); r.Err != nil || !leases.AnswerOf(r).Queued {
		t.Fatalf("claimed by way of another member: %+v", r)
	}
	m.group.Hub().Reset(m.group.Hub().Index())
	if waits.next().GetGoAway() == nil {
		t.Fatal("told of something else")
	}
	again := m.dial()
	again.ok(attachFrame(1, sessionA, 2))
	holds.ok(releaseFrame(2, "db", "a", ""))
	if again.next().GetOffer() == nil {
		t.Fatal("told of something else")
	}
	expects := m.door.expects(id)
	if g := again.ok(&pb.ClientFrame{Id: 3, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("db")}}}).GetGet(); g.Lease.GetOffered() && !expects { // an offer stands for a while only
		t.Error("who is offered a lease is said to wait for nothing")
	}
}

// offered has one hand a lease to two, which accepts it; false: it was too late.
func offered(t *testing.T, one, two *wire) bool {
	t.Helper()
	one.ok(claimFrame(1, "db", "a", "", false))
	if c := two.ok(claimFrame(3, "db", "b", sessionB, true)).GetOperation().GetClaim(); !c.Queued || c.Position != 1 {
		t.Fatalf("queued %v", c)
	}
	one.ok(releaseFrame(2, "db", "a", ""))
	offer := two.next().GetOffer()
	if offer.GetLease().GetHolder() != "b" || !offer.Lease.Offered || offer.AcceptWithinMs != ms(lease.DefaultOfferWindow) {
		t.Fatalf("offer %v", offer)
	}
	e := two.ok(tokensMessage(4, 0, offer.Lease.Token)).GetTokensExtended()
	if slices.Equal(e.NotHeld, []uint64{offer.Lease.Token}) {
		return false
	}
	if e.HeldMs != 20000 {
		t.Fatalf("accepting: %v", e)
	}
	g := two.ok(&pb.ClientFrame{Id: 5, Request: &pb.ClientFrame_Get{Get: &pb.GetRequest{Name: nameOf("db")}}}).GetGet()
	if g.Lease.Holder != "b" || g.Lease.Token != offer.Lease.Token {
		t.Fatalf("after accepting: %v", g.Lease)
	}
	return true
}

// Attach tells of everything, an offer made while nobody was attached included.
func TestStreamAttachResumesAll(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.ok(openFrame(1, sessionA, 20000))
	w.ok(claimFrame(2, "mine", "a", sessionA, false))
	w.ok(claimFrame(3, "theirs", "b", "", false))
	w.ok(claimFrame(4, "theirs", "a", sessionA, true))
	w.conn.Close()
	w = m.dial()
	a := w.ok(attachFrame(1, sessionA, 2)).GetAttached()
	if len(a.Leases) != 1 || a.Leases[0].Name.Name != "mine" || len(a.Waits) != 1 || a.Waits[0].Name != "theirs" {
		t.Fatalf("attached %v", a)
	}
}

func TestStreamProtocolErrors(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		want ws.StatusCode
	}{
		{"text", clientFrameBytes(ws.OpText, true, []byte("{}")), ws.StatusUnsupportedData},
		{"not masked", ws.MustCompileFrame(ws.NewBinaryFrame(nil)), ws.StatusProtocolError},
		{"not protobuf", clientFrameBytes(ws.OpBinary, true, []byte{0xff}), ws.StatusInvalidFramePayloadData},
		{"too big", []byte{0x82, 0xff, 0, 0, 0, 0, 1, 0, 0, 0}, ws.StatusMessageTooBig},
		{"too many frames", clientFrameBytes(ws.OpBinary, true, bytes.Repeat([]byte{0x0a, 0}, MaxFrames+1)), ws.StatusPolicyViolation},
		{"close", clientFrameBytes(ws.OpClose, true, ws.NewCloseFrameBody(ws.StatusNormalClosure, "")), ws.StatusNormalClosure},
	}
	m := newMember(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := m.dial()
			w.write(tt.in)
			if got := w.closed(); got != tt.want {
				t.Errorf("closed with %d, want %d", got, tt.want)
			}
			w.ended()
		})
	}
}

func TestStreamControlFrames(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.write(clientFrameBytes(ws.OpPing, true, []byte("are you there")))
	if op, p := w.read(); op != ws.OpPong || string(p) != "are you there" {
		t.Fatalf("got %v %q", op, p)
	}
	// A message in three fragments, with a ping between them, byte by byte.
	body := marshal(t, &pb.ClientMessage{Frames: []*pb.ClientFrame{claimFrame(1, strings.Repeat("n", 200), "h", "", false)}})
	var all []byte
	all = append(all, clientFrameBytes(ws.OpBinary, false, body[:7])...)
	all = append(all, clientFrameBytes(ws.OpPing, true, []byte("p"))...)
	all = append(all, clientFrameBytes(ws.OpContinuation, false, body[7:9])...)
	all = append(all, clientFrameBytes(ws.OpContinuation, true, body[9:])...)
	for _, b := range all {
		w.write([]byte{b})
	}
	if op, p := w.read(); op != ws.OpPong || string(p) != "p" {
		t.Fatalf("got %v %q", op, p)
	}
	if f := w.next(); f.GetOperation().GetClaim() == nil {
		t.Fatalf("got %v", f)
	}
}
