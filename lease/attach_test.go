package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Who has lost a session's attachment is told, also if what it was told was lost: it would
// go on believing that it holds what another run of the same program holds as well.
func TestG04_WhoHasLostAnAttachmentIsToldAgain(t *testing.T) {
	for _, second := range []uint64{1, 3} { // the leader itself, and another member
		c := newCluster(t, Config{}, 3)
		c.lead(1)
		c.at(2).must(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
		var lost []string
		attach := func(at, counter uint64, told func(string)) {
			p := c.at(at)
			p.turn(func() {
				p.e.Attach(&attach{Attachment: Attachment{Session: sessionID(1), Counter: counter, Lost: told}, done: func(core.Result) {}})
			})
			for len(c.packets) > 0 {
				x := c.packets[0]
				c.packets = slices.Delete(c.packets, 0, 1)
				if f := new(frame); f.decode(x.data) && f.kind == lostFrame {
					continue
				}
				c.hand(x)
			}
		}
		attach(2, 1, func(reason string) { lost = append(lost, reason) })
		c.auto = false
		attach(second, 2, func(reason string) { t.Errorf("who has it is told that it is %s", reason) })
		c.auto = true
		if len(lost) != 0 {
			t.Fatal("the frame was not lost: the test tests nothing")
		}
		c.settle()
		b, _ := c.at(2).extend(Extension{Session: sessionID(1), Beat: true})
		c.settle()
		// Whoever has it now counts on it that the one before learns nothing of its life.
		if it := b.Items[0]; it.Kind != incumbent.Conflict || it.Held != 0 {
			t.Errorf("by way of member %d: the beat of who has lost it: %v, held for %v", second, it.Kind, it.Held)
		}
		if !slices.Equal(lost, []string{LostElsewhere}) {
			t.Errorf("by way of member %d: told %q", second, lost)
		}
	}
}

// Whoever extends a session by its id, and not over the connection that it is attached to, is
// answered alike by every member, wherever it is attached: its member may be gone, and with it
// the connection.
func TestAnExtensionBySessionNeedsNoAttachment(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	c.at(2).must(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
	c.at(3).turn(func() {
		c.at(3).e.Attach(&attach{Attachment: Attachment{Session: sessionID(1), Counter: 1, Lost: func(reason string) { t.Errorf("lost: %s", reason) }}, done: func(core.Result) {}})
	})
	token := leases.AnswerOf(c.at(2).must(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1)})).Lease.Token
	for by, beat := range map[uint64]incumbent.Kind{1: incumbent.OK, 2: incumbent.Conflict, 3: incumbent.OK} {
		b, done := c.at(by).extend(Extension{Session: sessionID(1)}, Extension{Session: sessionID(1), TTL: ttl / 2}, Extension{Session: sessionID(1), Beat: true})
		for i, want := range []time.Duration{ttl, ttl / 2} {
			if it := b.Items[i]; !*done || it.Kind != incumbent.OK || it.Held != want {
				t.Errorf("by way of member %d: answered %v: %v, held for %v, want %v", by, *done, it.Kind, it.Held, want)
			}
		}
		if kind := b.Items[2].Kind; kind != beat {
			t.Errorf("by way of member %d: a beat: %v, want %v", by, kind, beat)
		}
	}

	// What the leader knows to be revoked, the answer of a member that does not know it yet has
	// to say as well: no extension keeps it.
	c.auto = false
	c.at(1).call(leases.RevokeCommand{Name: leaseName("a"), AtDeadline: true})
	c.at(1).appendAll()
	for c.at(1).applyOne() {
	}
	b, done := c.at(2).extend(Extension{Session: sessionID(1)})
	for len(c.packets) > 0 || c.at(1).confirm() || c.at(1).confirmFor() {
		if len(c.packets) > 0 {
			c.deliver(0)
		}
	}
	if *done {
		t.Errorf("answered before the revocation was applied: %+v", b.Items[0])
	}
	c.settle()
	if it := b.Items[0]; !*done || it.Kind != incumbent.OK || it.Held != ttl || !slices.Equal(it.RevokingTokens, []incumbent.Token{token}) {
		t.Errorf("answered %v: %+v", *done, it)
	}
}

// What is refused before it is handed in is answered in its place, and keeps nothing alive.
func TestWhatIsRefusedIsNotExtended(t *testing.T) {
	for _, by := range []uint64{1, 2} { // the leader, and another member
		c := newCluster(t, Config{}, 3)
		c.lead(1)
		p := c.at(by)
		tokens := []incumbent.Token{p.claim("a", "h", ttl), p.claim("b", "h", ttl)}
		b, done := p.extend(Extension{Token: tokens[0], Refused: incumbent.Denied}, Extension{Token: tokens[1]})
		c.settle()
		if !*done || b.Items[0].Kind != incumbent.Denied || b.Items[1].Kind != incumbent.OK {
			t.Errorf("by way of member %d: answered %v: %v, %v", by, *done, b.Items[0].Kind, b.Items[1].Kind)
		}
		for i, want := range []uint64{0, 1} {
			it := Inspected{Token: tokens[i]}
			if c.at(1).e.inspect(&it); it.Extends != want {
				t.Errorf("by way of member %d: lease %d was extended %d times, want %d", by, i, it.Extends, want)
			}
		}
	}
}
