package node

import (
	"context"
	"log/slog"
	"math"
	"syscall"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/overload"
)

// watchDisk looks at the free space each second and refuses growth before the
// disk is full: what is kept back serves what makes room.
func (n *Node) watchDisk(ctx context.Context) error {
	ticks, stop := n.cfg.Clock.Ticker(diskPollEvery)
	defer stop()
	for {
		n.lookAtDisk(n.prepare() || n.appender.waits())
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// prepare has the log make room ahead of need. It reports whether the disk has
// no place for more. Another error stops nobody: what fails is a file that holds
// nothing yet, and a disk that is broken shows when the log is written. It is
// tried again after a while, and not every second: each attempt writes much.
func (n *Node) prepare() (full bool) {
	now := n.cfg.Clock.Now()
	if now.Before(n.prepareAgain) {
		return false
	}
	err := n.appender.log.Prepare()
	n.short.Store(incumbent.KindOf(err) == incumbent.Unavailable)
	switch {
	case err == nil:
	case n.short.Load():
		return n.appender.log.Status().ReserveOnly
	default:
		n.prepareAgain = now.Add(prepareRetryAfter)
		n.cfg.Logger.Warn("no spare made for the log", slog.Any("error", err))
	}
	return false
}

// lookAtDisk decides whether growth is refused. It goes on an eighth above the
// reserve, so that it does not flap.
// A log that finds no place for its next file refuses growth as well.
func (n *Node) lookAtDisk(full bool) {
	free, err := n.cfg.FS.Free(n.cfg.Dir)
	if err != nil {
		free = -1 // not known; the log's own files still tell
	}
	n.free.Store(free)
	reserve := n.cfg.DiskReserve
	limit := reserve
	if n.refuse.Load() {
		limit += reserve / 8
	}
	refuse := full || free >= 0 && reserve > 0 && free < limit
	if refuse != n.refuse.Swap(refuse) {
		n.cfg.Events.Growth(refuse, free, reserve)
	}
}

// roomForSnapshot returns how many bytes a snapshot may take of the disk, or that it is
// fewer than it needs. One that is taken here or received serves what makes room, so it may
// go below the reserve: else a disk that is almost full would never see its log trimmed.
// But it leaves half of what is free then. One that filled the disk, only to find that it
// does not fit, would do so again and again, and leave no space for the log meanwhile.
func (c *Config) roomForSnapshot(dir string, needs int64) (int64, error) {
	free, err := c.FS.Free(dir)
	if err != nil {
		return math.MaxInt64, nil // not known; the disk itself still tells
	}
	room := max(free-max(c.DiskReserve, 0), free/2)
	if needs > room {
		return 0, errRoom(needs, room)
	}
	return room, nil
}

func errRoom(needs, room int64) error {
	return incumbent.Errorf(incumbent.Unavailable, "a snapshot needs %d bytes, of those that are free it may take %d: %w", needs, room, syscall.ENOSPC)
}

// refuseGrowth answers proposals that may not use the reserve and returns the
// others.
func (n *Node) refuseGrowth(ps []Proposal) []Proposal {
	var rest []Proposal
	for _, p := range ps {
		if p.Reserve {
			rest = append(rest, p)
			continue
		}
		if p.Done != nil {
			p.Done(nil, n.errGrowth())
		}
	}
	return rest
}

// RefuseGrowth has proposals without Reserve refused with what why returns, which
// is called for each of them from any goroutine; nil ends that. It is for reasons
// that the node cannot see: other members' disks, or a state that is not trusted.
func (n *Node) RefuseGrowth(why func() error) {
	if why == nil {
		n.barred.Store(nil)
		return
	}
	n.barred.Store(&why)
}

// mayGrow reports whether all proposals are taken.
func (n *Node) mayGrow() bool { return !n.refuse.Load() && n.barred.Load() == nil }

// errGrowth is why a proposal without Reserve is refused.
func (n *Node) errGrowth() error {
	if why := n.barred.Load(); why != nil {
		return (*why)()
	}
	return n.errDisk()
}

func (n *Node) errDisk() *incumbent.Error {
	return overload.Errorf("disk of %s has %d bytes free, %d are kept in reserve", n.cfg.Dir, n.free.Load(), n.cfg.DiskReserve).
		WithHint("free space on the disk of " + n.cfg.Dir + ", or lower --disk-reserve-bytes")
}
