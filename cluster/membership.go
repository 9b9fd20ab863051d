package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// MaxVoters is how many members may vote: more make every decision dearer and
// nothing safer. Any number of others may be learners.
const MaxVoters = 7

// settleEvery is how often a call that waits for raft's members looks.
const settleEvery = 20 * time.Millisecond

// propose has a command applied and returns its result. It is forwarded to the
// leader where another member leads.
func (c *Cluster) propose(ctx context.Context, cmd core.Command) (*core.Result, error) {
	type outcome struct {
		result *core.Result
		err    error
	}
	done := make(chan outcome, 1)
	deadline, _ := ctx.Deadline()
	c.node.Propose(node.Proposal{
		Command: cmd.Encode(core.Meta{}), Deadline: deadline, Reserve: true,
		Done: func(result any, err error) {
			out := outcome{err: err}
			if err == nil {
				if out.result = result.(*core.Result); out.result.Err != nil {
					out.err = out.result.Err
				}
			}
			done <- out
		},
	})
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return nil, incumbent.Errorf(incumbent.Unknown, "it may or may not have happened: %w", ctx.Err())
	}
}

// confirm waits until this member has applied all that was committed when it was called.
func (c *Cluster) confirm(ctx context.Context) error {
	done := make(chan error, 1)
	c.node.Confirm(func(_ uint64, err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.Unavailable, "not confirmed by a majority in time: %w", ctx.Err())
	}
}

// Admissible refuses a command that some member does not know yet: it would have
// to stop at it.
func (c *Cluster) Admissible(cmd []byte) error {
	view, needs := c.engine.View(), core.RequiredSchema(cmd)
	active := view.ActiveSchema()
	if needs <= active {
		return nil
	}
	var old []string
	for _, m := range view.Members() {
		if m.Schema == active {
			old = append(old, m.Name)
		}
	}
	slices.Sort(old)
	e := incumbent.Errorf(incumbent.Unavailable, "it needs schema %d, the cluster is at %d", needs, active)
	if len(old) == 0 {
		return e.WithHint("this binary is too old for it: upgrade the members")
	}
	return e.WithHint("upgrade " + strings.Join(old, ", ") + ": 'incumbent cluster ls' shows everybody's version")
}

// leading returns the node's status if this member leads, else NotLeader.
func (c *Cluster) leading() (node.Status, error) {
	st := c.node.Status()
	switch {
	case c.peers == nil && st.State == node.Leader:
		return st, nil
	case st.Leader == 0 || !st.Ready:
		return st, incumbent.Errorf(incumbent.Unavailable, "no leader is known")
	case st.State != node.Leader:
		return st, incumbent.Errorf(incumbent.NotLeader, "another member leads, and membership is its business")
	}
	return st, nil
}

// find returns a recorded member by name or id.
func (c *Cluster) find(word string) (core.Member, error) {
	members := c.engine.View().Members()
	var names []string
	for _, m := range members {
		if m.Name == word || FormatID(m.ID) == word {
			return m, nil
		}
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return core.Member{}, incumbent.Errorf(incumbent.NotFound, "no member is called %q", word).
		WithHint("the members are " + strings.Join(names, ", "))
}

// RemoveMember implements native.Membership.
func (c *Cluster) RemoveMember(ctx context.Context, r *apiv1.RemoveMemberRequest) (*apiv1.RemoveMemberResponse, error) {
	st, err := c.leading()
	if err != nil {
		return nil, err
	}
	m, err := c.find(r.Member)
	if err != nil {
		return nil, err
	}
	out := &apiv1.RemoveMemberResponse{}
	for _, shown := range c.Show(c.Heard()) {
		if shown.Id == FormatID(m.ID) {
			out.Member = shown
		}
	}
	if err := c.remove(ctx, st.Voters, m.ID, r.Force); err != nil {
		return nil, err
	}
	c.steward.wake()
	if m.ID == st.Member {
		return out, nil // leadership moves on, and then this member goes
	}
	_, err = c.settle(ctx, func(r *Roster) bool {
		_, counted := r.Counted[m.ID]
		return !counted
	})
	return out, err
}

// remove decides that a member goes. Of several at once each looks at what the one before
// has left.
func (c *Cluster) remove(ctx context.Context, voters []uint64, id uint64, force bool) error {
	c.removing.Lock()
	defer c.removing.Unlock()
	if err := c.mayRemove(voters, id, force); err != nil {
		return err
	}
	_, err := c.propose(ctx, core.RemoveMemberCommand{ID: id})
	return err
}

// mayRemove refuses to take away the last voter, and a member without whom the
// rest has no live majority. Who is to go as well does not count.
func (c *Cluster) mayRemove(voters []uint64, id uint64, force bool) error {
	if !slices.Contains(voters, id) {
		return nil
	}
	rest, live := c.without(voters, id)
	switch {
	case rest == 0:
		return incumbent.Errorf(incumbent.Conflict, "this is the last voter").
			WithHint("to end the cluster stop its server; to move it, let another member join first")
	case live <= rest/2 && !force:
		return incumbent.Errorf(incumbent.Conflict, "without this member only %d of %d voters are reachable: nothing could be granted any more", live, rest).
			WithHint("bring the others back first; with --force it is decided now, and goes once they are back")
	}
	return nil
}

// without counts the voters that are to stay besides one, and those of them that are heard of.
func (c *Cluster) without(voters []uint64, id uint64) (rest, live int) {
	view := c.engine.View()
	for _, v := range voters {
		if v == id || view.MemberGone(v) {
			continue
		}
		rest++
		if v == c.id || c.Connected(v) {
			live++
		}
	}
	return rest, live
}

// majorityOf reports whether the others that are to stay, and are heard of, are a majority of
// voters. Who does not vote is needed by nobody.
func (c *Cluster) majorityOf(voters []uint64) bool {
	_, live := c.without(voters, c.id)
	return live > len(voters)/2 || !slices.Contains(voters, c.id)
}

// settle waits until raft's members are as wanted; false if ctx ends first.
func (c *Cluster) settle(ctx context.Context, as func(*Roster) bool) (bool, error) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for !as(c.Roster()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, incumbent.Errorf(incumbent.DeadlineExceeded, "it is decided and not carried out yet: %w", ctx.Err()).
				WithHint("the leader goes on by itself: see 'incumbent cluster ls'")
		case <-c.cfg.Ended:
			return false, incumbent.Errorf(incumbent.Unavailable, "this member is leaving")
		}
	}
	return true, nil
}

// PromoteMember implements native.Membership.
func (c *Cluster) PromoteMember(ctx context.Context, r *apiv1.PromoteMemberRequest) (*apiv1.PromoteMemberResponse, error) {
	st, err := c.leading()
	if err != nil {
		return nil, err
	}
	m, err := c.find(r.Member)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(st.Voters, m.ID) {
		voting := 0
		for _, other := range c.engine.View().Members() {
			if !other.Learner && other.ID != m.ID {
				voting++
			}
		}
		if voting >= MaxVoters {
			return nil, incumbent.Errorf(incumbent.TooLarge, "%d members vote, limit is %d", voting, MaxVoters)
		}
	}
	if m.Learner {
		m.Learner = false
		if _, err := c.propose(ctx, core.PutMemberCommand{Member: m}); err != nil {
			return nil, err
		}
	}
	c.steward.wake()
	return &apiv1.PromoteMemberResponse{Pending: !c.soon(ctx, func(r *Roster) bool { return r.Counted[m.ID] })}, nil
}

// promoteWait is how long a promotion waits for the learner to vote: one that is
// caught up does at once.
const promoteWait = 2 * time.Second

// soon reports whether raft's members come to be as wanted within a short time.
func (c *Cluster) soon(ctx context.Context, as func(*Roster) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, promoteWait)
	defer cancel()
	ok, _ := c.settle(ctx, as)
	return ok
}

// TransferLeader implements native.Membership.
func (c *Cluster) TransferLeader(ctx context.Context, r *apiv1.TransferLeaderRequest) (*apiv1.TransferLeaderResponse, error) {
	st, err := c.leading()
	if err != nil {
		return nil, err
	}
	to := uint64(0)
	if r.Member != "" {
		m, err := c.find(r.Member)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(st.Voters, m.ID) {
			return nil, incumbent.Errorf(incumbent.Invalid, "member %s does not vote, so it cannot lead", m.Name).
				WithHint("'incumbent cluster promote' makes it a voter")
		}
		to = m.ID
	}
	if to != st.Member {
		if err := c.node.TransferLeader(ctx, to); err != nil {
			return nil, err
		}
	}
	_, name, at := c.Standing()
	c.cfg.Event("leadership handed over", c.cfg.Name, "to "+name)
	return &apiv1.TransferLeaderResponse{Leader: name, LeaderUrl: at}, nil
}

// Leave implements native.Membership.
func (c *Cluster) Leave(ctx context.Context, r *apiv1.LeaveRequest) (*apiv1.LeaveResponse, error) {
	if c.peers == nil {
		return nil, c.mayRemove([]uint64{c.id}, c.id, false)
	}
	if err := c.mayRemove(c.Roster().Voters(), c.id, r.Force); err != nil {
		return nil, err
	}
	if st := c.node.Status(); st.State == node.Leader {
		err := c.node.TransferLeader(ctx, c.heir())
		if err != nil && ctx.Err() == nil { // it may be on its way to another
			err = c.node.TransferLeader(ctx, 0)
		}
		if err != nil {
			return nil, err
		}
	}
	c.left.Store(true)
	if _, err := c.propose(ctx, core.RemoveMemberCommand{ID: c.id}); err != nil {
		if incumbent.KindOf(err) != incumbent.Unknown { // else it may yet happen
			c.left.Store(false)
		}
		return nil, err
	}
	return &apiv1.LeaveResponse{}, nil // the rest is keepRecord's
}
