package lease

import (
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// A frame that was meant for the leader of an earlier term is turned away, also
// by a member that led that term and leads again: what it says of attachments is
// old.
func TestAnAskOfAnotherTermIsTurnedAway(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	token := c.at(2).claim("a", "h", ttl)
	c.auto = false
	c.at(2).extend(Extension{Token: token})
	if len(c.packets) != 1 {
		t.Fatalf("%d frames are under way", len(c.packets))
	}
	late := c.packets[0]
	c.lead(1)
	c.packets = nil
	c.hand(late)
	c.settleConfirms(1)
	if len(c.packets) != 1 {
		t.Fatalf("%d frames in answer", len(c.packets))
	}
	var f frame
	if !f.decode(c.packets[0].data) || f.kind != refuseFrame || f.term == c.term {
		t.Errorf("answered with kind %d of term %d, want a refusal of the earlier term", f.kind, f.term)
	}
}

// settleConfirms answers what a member has asked to be confirmed.
func (c *cluster) settleConfirms(id uint64) {
	for c.at(id).applyOne() || c.at(id).confirm() {
	}
}

// A confirmation that another term has given proves nothing of this one: nothing
// is acknowledged by it, and nothing expires.
func TestG04_AConfirmationOfAnotherTermJudgesNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	b, done := w.extend(Extension{Token: token})
	other := func() {
		id := w.confirms[0]
		w.confirms = w.confirms[1:]
		w.step(func() { w.e.Confirmed(id, w.term+1, nil) })
	}
	other()
	if !*done || b.Items[0].Kind != incumbent.Unavailable {
		t.Errorf("answered %v: %+v", *done, b.Items[0])
	}
	w.advance(hold(ttl) + slack)
	if len(w.confirms) == 0 {
		t.Fatal("nothing is due: the test tests nothing")
	}
	before := w.barriers
	other()
	for _, id := range before {
		w.step(func() { w.e.BarrierPassed(id) })
	}
	if len(before) == 0 || len(w.log) != 0 {
		t.Errorf("%d barriers and %d expiries", len(before), len(w.log))
	}
}

// A claim of the holder is answered by the leader, as an extension; what is shown
// with it is no older than what the leader saw: else a client would be told of an
// earlier state than one it knows of.
func TestG14_AClaimWaitsForTheLeadersState(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	c.at(2).claim("a", "h", ttl)
	c.auto = false
	c.at(1).call(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
	c.at(1).appendAll()
	c.at(1).applyOne()
	got := c.at(2).call(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl})
	c.deliver(0)
	c.at(1).confirm()
	c.deliver(0)
	if r := *got; r != nil {
		t.Fatalf("answered from index %d, the leader's is %d", r.Index, c.at(1).e.view.Index())
	}
	c.at(2).applyOne()
	if r := *got; r == nil || r.Err != nil || r.Index != c.at(1).e.view.Index() {
		t.Errorf("answered with %+v", r)
	}
}

// What goes with an attachment is no older than what the leader saw when it
// judged: a member that is behind answers once it has applied as much.
func TestG14_AnAttachmentWaitsForTheLeadersState(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	c.auto = false
	c.at(1).call(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
	c.at(1).appendAll()
	c.at(1).applyOne()
	var got *core.Result
	p := c.at(2)
	p.turn(func() {
		p.e.Attach(&attach{Attachment: Attachment{Session: sessionID(1), Counter: 1}, done: func(r core.Result) { got = &r }})
	})
	c.deliver(0)
	c.at(1).confirm()
	c.deliver(0)
	if got != nil {
		t.Fatalf("answered before the session is known here: %+v", got)
	}
	p.applyOne()
	if got == nil || got.Err != nil || got.Session == nil || got.Index != c.at(1).e.view.Index() {
		t.Errorf("answered with %+v", got)
	}
}

// What an attachment, or a claim that extends, shows is no older than what anybody was
// told before, also by what commutes with an extension: its confirmation waits for the
// whole state, on the leader and for a member that vouches for it, and again where a
// frame is sent anew. That of an extension need not.
func TestG14_WhatIsShownSeesTheWholeState(t *testing.T) {
	for _, vouching := range []bool{false, true} {
		for _, from := range []uint64{1, 2} {
			for what, ask := range map[string]func(*peer){
				"extension": func(p *peer) { p.extend(Extension{Session: sessionID(1)}) },
				"attachment": func(p *peer) {
					p.turn(func() {
						p.e.Attach(&attach{Attachment: Attachment{Session: sessionID(1), Counter: 1}, done: func(core.Result) {}})
					})
				},
				"claim": func(p *peer) { p.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1)}) },
			} {
				c := newCluster(t, Config{}, 3)
				c.vouching = vouching
				c.lead(1)
				c.at(from).call(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
				c.at(from).call(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1)})
				c.auto = false
				c.unapplied(leases.ClaimCommand{Name: leaseName("b"), Holder: "x", TTL: ttl})
				leader := c.at(1)
				leader.confirms, leader.vouched = nil, nil
				ask(c.at(from))
				if from != 1 {
					c.packets = nil // it is lost
					c.now += int64(resendAfter)
					c.at(from).turn(nil)
					c.deliver(0)
				}
				all := slices.Concat(leader.confirms, leader.vouched)
				if len(all) != 1 || !leader.ahead(&all[0]) || len(leader.e.behind) != 1 {
					t.Errorf("%s by way of member %d, vouching %v: confirmations %+v", what, from, vouching, all)
				} else if b := leader.e.behind[0]; (len(b.waiters)+len(b.reads) > 0) != (what != "extension") {
					t.Errorf("%s by way of member %d, vouching %v: what waits for the whole state is %+v", what, from, vouching, b)
				}
			}
		}
	}
}

// Where an answer takes longer than the time between two attempts, only ones to earlier attempts
// ever come: they count, as long as what is asked for stands in the same places.
func TestAnswersToEarlierAttemptsCount(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	first, second := c.at(2).claim("a", "h", ttl), c.at(2).claim("b", "h", ttl)
	c.auto = false
	answer := func(p packet) packet {
		t.Helper()
		c.packets = nil
		c.hand(p)
		c.settleConfirms(1)
		if len(c.packets) != 1 {
			t.Fatalf("%d frames in answer", len(c.packets))
		}
		return c.packets[0]
	}
	again := func() packet {
		t.Helper()
		c.packets = nil
		c.now += int64(resendAfter)
		c.at(2).turn(nil)
		if len(c.packets) != 1 {
			t.Fatalf("%d frames are sent again", len(c.packets))
		}
		return c.packets[0]
	}
	b, done := c.at(2).extend(Extension{Token: first}, Extension{Token: second})
	late := answer(c.packets[0])
	for range 3 {
		again()
	}
	c.hand(late)
	if !*done || b.Items[0].Kind != incumbent.OK || b.Items[1].Kind != incumbent.OK {
		t.Errorf("answered %v: %+v", *done, b.Items)
	}
	if n := len(c.at(2).e.courier.flights); n != 0 {
		t.Errorf("%d frames are under way", n)
	}
}

// Once what is asked for stands in other places, answers to earlier attempts are answers to
// something else.
func TestAnswersForOtherPlacesDoNotCount(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	tokens := []incumbent.Token{c.at(2).claim("a", "h", ttl), c.at(2).claim("b", "h", ttl), c.at(2).claim("c", "h", ttl)}
	c.auto = false
	b, done := c.at(2).extend(Extension{Token: tokens[0]}, Extension{Token: tokens[1]}, Extension{Token: tokens[2]})
	sent := c.packets[0]
	var asked frame
	if !asked.decode(sent.data) {
		t.Fatal("no frame")
	}
	answer := func(item int32, kind incumbent.Kind) {
		f := frame{header: asked.header, answers: []answered{{item: item, kind: kind, held: ttl}}}
		f.kind = answerFrame
		c.at(2).step(func() { c.at(2).receive(1, &f) })
	}
	answer(0, incumbent.OK)
	c.packets = nil
	c.now += int64(resendRestAfter)
	c.at(2).turn(nil)
	if len(c.packets) != 1 {
		t.Fatalf("%d frames are sent again", len(c.packets))
	}
	answer(1, incumbent.NotHolder) // of the second, which is the first of what is left
	if *done || b.Items[2].Kind != incumbent.OK || len(c.at(2).e.courier.flights) != 1 || c.at(2).e.courier.flights[0].left != 2 {
		t.Errorf("answered %v: %+v", *done, b.Items)
	}
}

// A frame that was full is no longer than one may be when it is sent again, however large its
// number is by then.
func TestAFullFrameCanBeSentAgain(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	c.auto = false
	p := c.at(2)
	p.turn(func() {
		p.e.courier.seq = 1 << 16 // as many as fill the frame but for one byte
		for i := range 5000 {
			p.e.courier.announced = append(p.e.courier.announced, counted{sessionID(i), 1})
		}
	})
	for range 3 {
		if len(c.packets) < 2 {
			t.Fatalf("%d frames for 5,000 sessions: the test tests nothing", len(c.packets))
		}
		for _, x := range c.packets {
			if f := new(frame); !f.decode(x.data) {
				t.Errorf("a frame of %d bytes is none", len(x.data))
			}
		}
		c.packets = nil
		c.now += int64(resendAfter)
		p.turn(nil)
	}
}
