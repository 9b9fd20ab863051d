package cluster

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// openConsistency begins to compare this member's state with the others'. It
// comes before the node runs.
func (c *Cluster) openConsistency() {
	c.consistency = newConsistency(consistencyConfig{
		self:   c.id,
		voters: func() []uint64 { return c.Roster().Voters() },
		members: func() (ids []uint64) {
			for _, m := range c.Roster().Others {
				ids = append(ids, m.ID)
			}
			return ids
		},
		send: c.cfg.Transport.SendApp, differs: c.stateDiffers, split: c.statesDiffer, logger: c.cfg.Logger,
	})
}

// oneSchema reports whether all members write the same bytes for the same state:
// in the middle of an upgrade they may not. It is decided on the state that is to
// be compared, so by all alike.
func oneSchema(v *core.View) bool {
	for _, m := range v.Members() {
		if m.Schema != core.SchemaVersion {
			return false
		}
	}
	return true
}

// keepComparing has the leader write a checkpoint now and then.
func (c *Cluster) keepComparing(ctx context.Context) {
	tick := time.NewTicker(c.cfg.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !checkpointDue(c.node.Status(), len(c.Roster().Counted), uint64(c.engine.View().Index()), c.comparedAt.Load()) {
			continue
		}
		if err := c.writeCheckpoint(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Info("no checkpoint written", "cause", err)
		}
	}
}

// checkpointDue reports whether a member leads others, and commands were applied
// since the last checkpoint.
func checkpointDue(st node.Status, members int, applied, compared uint64) bool {
	return st.State == node.Leader && st.Ready && members > 1 && applied > compared
}

// atCheckpoint takes the state at a checkpoint, on the apply goroutine.
func (c *Cluster) atCheckpoint(v *core.View) {
	c.comparedAt.Store(uint64(v.Index()))
	if c.consistency != nil && oneSchema(v) {
		c.consistency.checkpoint(v)
	}
}

func (c *Cluster) writeCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, err := c.Checkpoint(ctx)
	return err
}

// Checkpoint puts a checkpoint into the log and returns the state right after it.
func (c *Cluster) Checkpoint(ctx context.Context) (*core.View, error) {
	res, err := c.propose(ctx, core.CheckpointCommand{})
	if err != nil {
		return nil, err
	}
	return res.View, nil
}

// AgreedAt is the greatest index at which this member's state was found to be that
// of a majority; 0 if none was, as for a member that is alone.
func (c *Cluster) AgreedAt() incumbent.Index {
	if c.consistency == nil {
		return 0
	}
	return c.consistency.agreedAt()
}

// stateDiffers stops this member, for good: a majority has another state. Until its process
// ends it grants nothing more, and whoever starts it again, as service managers do by
// themselves, is told.
func (c *Cluster) stateDiffers(err error) {
	c.distrust(err, func(r *Record) { r.Differs = err.Error() })
	c.cfg.Fail(errDiffers(err))
}

// distrust refuses growth, and writes down why, so that it holds after a restart, too.
func (c *Cluster) distrust(err error, note func(*Record)) {
	c.growth.splitBy(c.node, err)
	kept := c.rewrite(func(r *Record) bool { note(r); return true })
	if kept != nil {
		c.cfg.Logger.Warn("that states differ is not written down", "cause", kept)
	}
}

func errDiffers(err error) error {
	return incumbent.Errorf(incumbent.Corrupt, "%w", err).
		WithHint("look at this machine's memory and disk; keep a copy of the data directory; then empty it and start with --join-file FILE: the member comes back under a new id")
}

// statesDiffer alarms: nobody knows who is right, so nobody grants any more, until
// [Recover] has decided for one.
func (c *Cluster) statesDiffer(err error) {
	c.distrust(err, func(r *Record) { r.Split = err.Error() })
	c.cfg.Event("states differ", c.cfg.Name, err.Error())
	c.cfg.Logger.Error("states differ: no grants from here on", "cause", err)
}
