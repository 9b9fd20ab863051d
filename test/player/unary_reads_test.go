package player

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func (p *unaryPlayer) get(ctx context.Context, d dice, k *caller, c *call) {
	at, stale := d.place(), d.oneIn(4)
	out, e, ok := do(ctx, c, k.m, k.leases.Get, &pb.GetRequest{Name: at.pb(), Stale: stale})
	if ok {
		p.got(c, at, stale, out, e)
	}
}

// got judges the answer of a Get.
func (p *play) got(c *call, at place, stale bool, out *pb.GetResponse, e *pb.Error) {
	p.book.count("Get" + kindOf(e))
	if e != nil {
		c.refused(fmt.Sprintf("get %v", at), e, valid, incumbent.NotFound)
		if e.Kind == incumbent.NotFound.String() && !stale {
			c.sawNothing(at)
		}
		return
	}
	if !stale {
		c.at(out.Index)
	}
	if placeOf(out.Lease.GetName()) != at {
		c.fail("get %v: %v", at, out.Lease)
		return
	}
	p.table.saw(out.Lease)
	c.sawLease(out.Lease, out.Index, true)
}

func (p *unaryPlayer) list(ctx context.Context, d dice, k *caller, c *call) {
	in := &pb.ListRequest{Namespace: native.namespace, Model: native.model, Free: d.oneIn(2), Limit: uint32(d.IntN(6)), Stale: d.oneIn(4)}
	if d.oneIn(3) {
		in.Prefix = string([]rune(pick(d, nativeNames))[:1])
	}
	out, e, ok := do(ctx, c, k.m, k.leases.List, in)
	switch {
	case !ok:
		return
	case e != nil:
		c.refused("list", e, valid)
		return
	case in.Limit > 0 && len(out.Leases) > int(in.Limit):
		c.fail("list: %d leases, the limit is %d", len(out.Leases), in.Limit)
	}
	if !in.Stale {
		c.at(out.Index)
	}
	for i, l := range out.Leases {
		if i > 0 && l.Name.Name <= out.Leases[i-1].Name.Name {
			c.fail("list: %q after %q", l.Name.Name, out.Leases[i-1].Name.Name)
		}
		if l.Token == 0 && !in.Free {
			c.fail("list: %v is free", l)
		}
		c.sawLease(l, out.Index, false)
	}
}

func (p *unaryPlayer) session(ctx context.Context, d dice, k *caller, c *call) {
	if d.oneIn(4) {
		out, e, ok := do(ctx, c, k.m, k.sessions.ListSessions, &pb.ListSessionsRequest{Limit: uint32(d.IntN(5)), Stale: d.oneIn(4)})
		if ok && e != nil {
			c.refused("list sessions", e, valid)
		}
		for i, s := range out.GetSessions() {
			if i > 0 && s.Id <= out.Sessions[i-1].Id {
				c.fail("list sessions: %s after %s", s.Id, out.Sessions[i-1].Id)
			}
		}
		return
	}
	in := d.getSession()
	out, e, ok := do(ctx, c, k.m, k.sessions.GetSession, in)
	if ok {
		p.gotSession(c, in, out, e)
	}
}

// gotSession judges the answer of a GetSession.
func (p *play) gotSession(c *call, in *pb.GetSessionRequest, out *pb.GetSessionResponse, e *pb.Error) {
	p.book.count("GetSession" + kindOf(e))
	if e != nil {
		c.refused("get session", e, valid, incumbent.NotFound)
		return
	}
	if !in.Stale {
		c.at(out.Index)
	}
	// A lease that the session both holds and waits for is not cut in two: one more.
	if n := len(out.Leases) + len(out.Waits); out.Session.GetId() != in.Id || in.Limit > 0 && n > int(in.Limit)+1 {
		c.fail("get session %s: %v with %d leases and waits, the limit is %d", in.Id, out.Session, n, in.Limit)
	}
	c.sawSession(in.Id, &page{in.After, out.Next, out.Session.GetLeases(), out.Leases, out.Index})
}

func (p *unaryPlayer) wait(ctx context.Context, d dice, k *caller, c *call) {
	at := d.place()
	in := &pb.WaitReleasedRequest{Name: at.pb(), WaitMs: uint32(1 + d.IntN(200))}
	if d.oneIn(2) {
		in.AfterToken = d.token(at)
	}
	out, e, ok := do(ctx, c, k.m, k.leases.WaitReleased, in)
	if ok {
		p.waited(c, in, out, e)
	}
}

// waited judges the answer of a WaitReleased.
func (p *play) waited(c *call, in *pb.WaitReleasedRequest, out *pb.WaitReleasedResponse, e *pb.Error) {
	p.book.count("WaitReleased" + kindOf(e))
	what := fmt.Sprintf("wait for %v", in)
	if e != nil {
		// Invalid: the token was never granted.
		c.refused(what, e, oddEnough, incumbent.Compacted, incumbent.TooLarge)
		return
	}
	if out.Released && in.AfterToken != 0 {
		c.truly(what, placeOf(in.Name), func(l *pb.Lease) bool { return l.Token != in.AfterToken })
	}
}

// watch follows a scope for a moment, from the present or from an index of the past.
func (p *unaryPlayer) watch(ctx context.Context, d dice, k *caller, c *call) {
	s := pick(d, scopes)
	in := &pb.WatchRequest{Name: (&place{s, ""}).pb(), Prefix: true}
	if !d.oneIn(4) {
		in.AfterIndex = c.floor - min(c.floor, uint64(d.IntN(300)))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+d.IntN(200))*time.Millisecond)
	defer cancel()
	stream, err := k.leases.Watch(ctx, connect.NewRequest(in))
	if err != nil {
		return
	}
	defer stream.Close()
	var run watched
	for stream.Receive() {
		run.add(c, stream.Msg())
	}
	if e := errorOf(stream.Err()); e != nil {
		c.refused("watch", e, valid, incumbent.Compacted)
	}
	run.end(c, s, in.AfterIndex)
}

// watched is what one short watch has told.
type watched struct {
	after    uint64 // 0: nothing yet
	progress uint64
	events   []*pb.LeaseEvent
}

func (r *watched) add(c *call, m *pb.WatchResponse) {
	switch {
	case m.Snapshot && m.ProgressIndex == 0: // more of it follows
	case m.Snapshot:
		c.at(m.ProgressIndex)
		r.after, r.progress = m.ProgressIndex, m.ProgressIndex
	default:
		r.events = append(r.events, m.Events...)
		r.progress = max(r.progress, m.ProgressIndex)
	}
}

func (r *watched) end(c *call, s scope, after uint64) {
	if after != 0 {
		r.after = after
	}
	if r.after == 0 || r.progress < r.after {
		return
	}
	whole := r.events[:0]
	for _, e := range r.events {
		if e.Index <= r.progress {
			whole = append(whole, e)
		}
	}
	c.b.count("Watch")
	c.sawEvents(s, r.after, r.progress, whole)
}

// operator makes one of the calls that an operator makes. None ends a process.
func (p *unaryPlayer) operator(ctx context.Context, d dice, k *caller, c *call) {
	var e *pb.Error
	var ok bool
	var may []incumbent.Kind
	switch d.IntN(12) {
	case 0, 1:
		_, e, ok = do(ctx, c, k.m, k.cluster.Status, &pb.StatusRequest{})
	case 2, 3:
		_, e, ok = do(ctx, c, k.m, k.cluster.Members, &pb.MembersRequest{})
	case 4:
		_, e, ok = do(ctx, c, k.m, k.cluster.Settings, &pb.SettingsRequest{})
	case 5:
		_, e, ok = do(ctx, c, k.m, k.cluster.StateHash, &pb.StateHashRequest{})
	case 6:
		_, e, ok = do(ctx, c, k.m, k.cluster.Snapshot, &pb.SnapshotRequest{})
		may = []incumbent.Kind{incumbent.Conflict}
	case 7:
		_, e, ok = do(ctx, c, k.m, k.cluster.CreateToken, &pb.CreateTokenRequest{TtlMs: uint64(d.IntN(3)) * 60_000 * uint64(1+d.IntN(1<<20))})
		may = []incumbent.Kind{incumbent.Invalid, incumbent.Conflict}
	case 8:
		_, e, ok = do(ctx, c, k.m, k.cluster.Join, &pb.JoinRequest{Token: pick(d, oddTexts), Name: pick(d, wrongTexts), MemberId: "0123456789abcdef"})
		may = []incumbent.Kind{incumbent.Denied, incumbent.Invalid, incumbent.Conflict}
	case 9:
		_, e, ok = do(ctx, c, k.m, k.cluster.RemoveMember, &pb.RemoveMemberRequest{Member: "nobody" + pick(d, oddTexts)})
		may = []incumbent.Kind{incumbent.NotFound, incumbent.Invalid, incumbent.Conflict}
	case 10:
		_, e, ok = do(ctx, c, k.m, k.cluster.PromoteMember, &pb.PromoteMemberRequest{Member: pick(d, wrongTexts)})
		may = []incumbent.Kind{incumbent.NotFound, incumbent.Invalid, incumbent.Conflict}
	default:
		_, e, ok = do(ctx, c, k.m, k.cluster.TransferLeader, &pb.TransferLeaderRequest{Member: pick(d, []string{"", "n1", "n2", "n3", "nobody"})})
		may = []incumbent.Kind{incumbent.NotFound, incumbent.Invalid, incumbent.Conflict}
	}
	if ok {
		p.book.count("a call of an operator" + kindOf(e))
	}
	if ok && e != nil {
		c.refused("a call of an operator", e, valid, may...)
	}
}
