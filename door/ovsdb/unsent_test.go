package ovsdb

import (
	"io"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
)

// unread is a connection of somebody who does not read.
type unread struct {
	*client
	conn *conn
}

func (g *guarded) unread(p auth.Principal) unread {
	g.tb.Helper()
	before := map[*conn]bool{}
	for _, c := range g.door.conns.All() {
		before[c] = true
	}
	u := unread{client: g.as(p)}
	for _, c := range g.door.conns.All() {
		if !before[c] {
			u.conn = c
		}
	}
	u.conn.out.mu.Lock()
	u.conn.out.waiting = true // as if the kernel took no more
	u.conn.out.mu.Unlock()
	return u
}

// reads has it read all that waits, and that is so much.
func (u unread) reads(bytes int) {
	u.tb.Helper()
	u.conn.drained()
	if _, err := io.ReadFull(u.client.conn, make([]byte, bytes)); err != nil {
		u.tb.Error(err)
	}
}

// startUnread is a member with so much room for what waits for readers, for want of memory.
func startUnread(t *testing.T, room int64) *guarded {
	t.Helper()
	return startGuardedWith(t, withRoom(t, room))
}

// withRoom admits everything on a machine on which nothing may have more than so many bytes.
func withRoom(t *testing.T, room int64) *admit.Controller {
	t.Helper()
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lanes.SetMemory(0, 8*room)
	return lanes
}

// What waits for readers is bounded for all connections together: one client that does not
// read leaves room for others, and who has little to read is never cut off.
func TestReadersThatDoNotReadShareTheirRoom(t *testing.T) {
	const room, large, small = 16 << 20, 2 << 20, smallBacklog / 2
	g := startUnread(t, room)
	victim, other, little := g.unread(agentOf("victim")), g.unread(agentOf("other")), g.unread(agentOf("greedy"))
	for i := range 10 {
		if send := g.unread(agentOf("greedy")).conn; i%2 == 0 {
			send.answer(make([]byte, large))
		} else {
			send.tell(make([]byte, large))
		}
	}
	if n, slow := g.door.UnsentBytes(), g.door.Stats().Slow; n < room/2 || n > room/10*9 || slow < 2 || slow > 5 {
		t.Errorf("%d bytes wait for one client, %d of its connections were cut off", n, slow)
	}
	before := g.door.Stats().Slow
	victim.conn.answer(make([]byte, large))
	little.conn.tell(make([]byte, small), make([]byte, small))
	rest := room - g.door.UnsentBytes()
	if !g.door.unsent.room.Take(admit.Who{}, rest, room) {
		t.Fatal("the rest is not to be had")
	}
	other.conn.tell(make([]byte, small))
	other.conn.answer(make([]byte, small))
	if n := g.door.Stats().Slow; n != before {
		t.Errorf("%d of those who have little to read were cut off", n-before)
	}
	other.conn.tell(make([]byte, 1))
	if n := g.door.Stats().Slow; n != before+1 {
		t.Error("who has more is not cut off where there is no room")
	}
	other.ended()
	victim.reads(large)
	little.reads(2 * small)
	g.door.unsent.room.Give(admit.Who{}, rest)
	for _, c := range g.door.conns.All() {
		c.cut(nil)
	}
	await(t, "nothing counts", func() bool { return g.door.UnsentBytes() == 0 })
}

// What waits for many is kept once, and counts once, until the last of them has it.
func TestWhatWaitsForManyCountsOnce(t *testing.T) {
	const large, room = 3*sendBytes + 1000, 16 << 20
	g := startUnread(t, room)
	update := make([]byte, large)
	var readers []unread
	for range 20 {
		r := g.unread(agentOf("fleet"))
		r.conn.tell(update)
		readers = append(readers, r)
	}
	for i, r := range readers {
		if n := g.door.UnsentBytes(); n != large {
			t.Errorf("%d bytes count before reader %d has %d", n, i, large)
		}
		r.reads(large)
	}
	if n, slow := g.door.UnsentBytes(), g.door.Stats().Slow; n != 0 || slow != 0 {
		t.Errorf("%d bytes count in the end, %d readers were cut off", n, slow)
	}
}

// What waits for many counts for one of those for whom it waits still, and no longer for who
// has read it.
func TestWhatWaitsForManyCountsForWhoHasNotReadIt(t *testing.T) {
	const large, room, free = 512 << 10, 16 << 20, 100 << 10
	g := startUnread(t, room)
	update := make([]byte, large)
	other := "slow"
	for admit.KeyOf(other)%1024 == admit.KeyOf("reads")%1024 { // one of a thousand shares its room
		other += "-"
	}
	reads, slow := g.unread(agentOf("reads")), g.unread(agentOf(other))
	reads.conn.tell(update)
	slow.conn.tell(update)
	reads.reads(large)
	if n := g.door.UnsentBytes(); n != large {
		t.Fatalf("%d bytes count", n)
	}
	counted := &g.door.unsent.room
	if !counted.Take(admit.Who{}, room-large-free, room) {
		t.Fatal("the rest is not to be had")
	}
	if !counted.Take(reads.conn.shares, 1, room) {
		t.Error("who has read all is refused more")
	}
	if counted.Take(slow.conn.shares, 1, room) {
		t.Error("who has not is let in")
	}
	counted.Give(reads.conn.shares, 1)
	counted.Give(admit.Who{}, room-large-free)
	slow.reads(large)
	await(t, "nothing counts", func() bool { return g.door.UnsentBytes() == 0 })
}

// Who asks for more than there is room for has it, and counts until it has been sent.
func TestAnAnswerMayBeLargerThanTheRoom(t *testing.T) {
	const room, large = 16 << 20, 20 << 20
	g := startUnread(t, room)
	r := g.unread(agentOf("a"))
	r.conn.answer(make([]byte, large))
	if n := g.door.UnsentBytes(); n != room/2 {
		t.Errorf("it counts as %d bytes", n)
	}
	r.reads(large)
	await(t, "nothing counts", func() bool { return g.door.UnsentBytes() == 0 })
	if n := g.door.Stats().Slow; n != 0 {
		t.Error("it was cut off")
	}
}

// One update may be larger than what may wait, for who has read all before it; what comes
// behind it is bounded as ever.
func TestAnUpdateMayBeLargerThanTheBacklog(t *testing.T) {
	const room, large = 16 << 20, 20 << 20
	g := startUnread(t, room)
	most := g.door.limitsNow().MaxBacklogBytes
	if large <= most {
		t.Fatalf("%d bytes may wait", most)
	}
	r := g.unread(agentOf("a"))
	r.conn.tell(make([]byte, large))
	r.conn.tell(make([]byte, most))
	if n, slow := g.door.UnsentBytes(), g.door.Stats().Slow; n != room/2+int64(most) || slow != 0 {
		t.Errorf("%d bytes count, %d readers were cut off", n, slow)
	}
	r.reads(large + most)
	await(t, "nothing counts", func() bool { return g.door.UnsentBytes() == 0 })
	alone := g.unread(agentOf("c"))
	alone.conn.tellAlone(make([]byte, large)) // of which there is one for each client
	alone.ended()
	slow := g.unread(agentOf("b"))
	slow.conn.tell(make([]byte, 1))
	slow.conn.tell(make([]byte, large))
	slow.ended()
}
