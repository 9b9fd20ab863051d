package cluster

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"
)

// Members tell each other how much room their disks have. What is committed needs
// the disks of a majority: while fewer voters than that have space above their
// reserve, every member refuses growth to its clients, before an append has to
// wait for space. A minority that is short holds nobody up; it falls behind and
// is brought up to date when it has space again. With it they say whether they
// serve: who is restarting members one by one waits for that.

const (
	diskEvery = time.Second     // as often as the node looks at its disk
	diskFresh = 5 * time.Second // what was said before is not known any more
)

// Frames between members about disks.
//
//	'S'  flags (1: growth refused, 2: does not serve)  free bytes (8, little endian; all ones: not known)  reserve (8)
const (
	diskKind  = 'S'
	diskBytes = 1 + 1 + 8 + 8

	flagShort  = 1
	flagBehind = 2 // members that do not know it drop the frame
)

// Disk is what a member says of its disk.
type Disk struct {
	Short         bool  // its node refuses growth
	Free, Reserve int64 // bytes; what is free is -1 while that is not known
	Behind        bool  // it does not serve: it is not caught up since it was started
}

func encodeDisk(d Disk) []byte {
	b := append(make([]byte, 0, diskBytes), diskKind, 0)
	if d.Short {
		b[1] |= flagShort
	}
	if d.Behind {
		b[1] |= flagBehind
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Free))
	return binary.LittleEndian.AppendUint64(b, uint64(d.Reserve))
}

// isDiskReport reports whether a frame from another member is for
// [disks.receive].
func isDiskReport(frame []byte) bool { return len(frame) > 0 && frame[0] == diskKind }

// disks is what was heard of the members' disks.
type disks struct {
	mu    sync.Mutex // held for moments
	heard map[uint64]heardDisk
}

type heardDisk struct {
	Disk
	at time.Duration // since this member began
}

// receive takes a report, from any goroutine. One that is malformed is dropped.
func (t *disks) receive(from uint64, frame []byte, now time.Duration) {
	if len(frame) != diskBytes || !isDiskReport(frame) || frame[1]&^(flagShort|flagBehind) != 0 {
		return
	}
	p := Disk{
		Short: frame[1]&flagShort != 0, Behind: frame[1]&flagBehind != 0,
		Free: int64(binary.LittleEndian.Uint64(frame[2:])), Reserve: int64(binary.LittleEndian.Uint64(frame[10:])),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heard == nil || len(t.heard) >= reportersKept {
		t.heard = map[uint64]heardDisk{}
	}
	t.heard[from] = heardDisk{p, now}
}

// fresh returns what is known now.
func (t *disks) fresh(now time.Duration) map[uint64]Disk {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[uint64]Disk{}
	for id, h := range t.heard {
		if now-h.at <= diskFresh {
			out[id] = h.Disk
		}
	}
	return out
}

// needed returns the voters that are short and without whom there is no quorum of
// voters that are known to have space: none if there is one.
func needed(voters []uint64, known map[uint64]Disk) []uint64 {
	var short []uint64
	enough := 0
	for _, id := range voters {
		p, ok := known[id]
		switch {
		case ok && p.Short:
			short = append(short, id)
		case ok:
			enough++
		}
	}
	if enough > len(voters)/2 {
		return nil
	}
	return short
}

// keepDisks tells the others of this member's disk, and decides on growth.
func (c *Cluster) keepDisks(ctx context.Context) {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	for {
		c.compareDisks()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// compareDisks is one round of it.
func (c *Cluster) compareDisks() {
	r := c.Roster()
	c.progress.look(c.node.Status(), time.Since(c.begun))
	for _, m := range r.Others {
		c.cfg.Transport.SendApp(m.ID, encodeDisk(c.ownDisk()))
	}
	var names []string
	for _, id := range needed(r.Voters(), c.Disks()) {
		names = append(names, c.NameOf(id))
	}
	slices.Sort(names)
	if !c.growth.shortOf(c.node, names) {
		return
	}
	if len(names) > 0 {
		err := errShort(strings.Join(names, ", "))
		c.cfg.Event("refusing growth everywhere", c.cfg.Name, err.Error())
		c.cfg.Logger.Warn("refusing growth everywhere", "cause", err)
		return
	}
	c.cfg.Event("growing again everywhere", c.cfg.Name, "")
	c.cfg.Logger.Info("growing again everywhere")
}

func (c *Cluster) ownDisk() Disk {
	st := c.node.Status()
	return Disk{Short: st.GrowthRefused, Free: st.FreeBytes, Reserve: st.ReserveBytes, Behind: !st.Ready}
}

// Disks is what is known of all members' disks now, this one's too.
func (c *Cluster) Disks() map[uint64]Disk {
	known := c.disks.fresh(time.Since(c.begun))
	known[c.id] = c.ownDisk()
	return known
}

// shortOfDisk are the other members that are short of disk, by name.
func (c *Cluster) shortOfDisk() map[string]Disk {
	out := map[string]Disk{}
	for id, d := range c.disks.fresh(time.Since(c.begun)) {
		if d.Short {
			out[c.NameOf(id)] = d
		}
	}
	return out
}

// ShortOfDisk is how many other members are short of disk.
func (c *Cluster) ShortOfDisk() int { return len(c.shortOfDisk()) }
