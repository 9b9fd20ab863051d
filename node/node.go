package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Config says where a node lives and what it drives.
type Config struct {
	FS      vfs.FS
	Dir     string  // made if it is not there; holds log/ and snap/
	Machine Machine // empty; Open restores it
	Group   uint64  // which raft group this is, in every entry, record and file
	Schema  uint32  // version of what Machine.Snapshot writes; newer files are refused

	Join      *Identity // with an empty folder: become this member of that cluster and wait for its leader; nil: found one
	Transport Transport // nil: this member is alone
	// Admissible says why a command must not enter the log now: some member would
	// not understand it. It is asked on the loop for every command that this member
	// appends or forwards, and by a leader again for those forwarded to it, so it
	// must be quick. An error that is not nil answers the proposal. nil: all may.
	Admissible func(cmd []byte) error
	Clock      Clock // nil: the system's
	Logger     *slog.Logger
	Events     Events

	Tick              time.Duration // 0: DefaultTick
	SegmentBytes      int64         // of a log file; 0: wal.DefaultSegmentBytes; at least MinSegmentBytes
	KeepSegmentBytes  bool          // a log that exists goes on with files as long as those it has, if they are longer than SegmentBytes
	MaxInboxProposals int           // 0: MaxInboxProposals
	MaxInboxBytes     int           // 0: MaxInboxBytes
	SnapshotBytes     int64         // of log that cause a snapshot, or less where states are small or the disk is full: see snapshotAfter, makesRoom; 0: DefaultSnapshotBytes
	SnapshotEntries   uint64        // that cause a snapshot; 0: DefaultSnapshotEntries
	SnapshotRate      int64         // bytes written per second; 0: DefaultSnapshotRate
	TailEntries       uint64        // kept in memory behind a snapshot; 0: DefaultTailEntries
	DiskReserve       int64         // free bytes under which growth is refused; 0: DefaultDiskReserve; negative: never
}

// Transport carries messages to peers.
type Transport interface {
	// Send hands messages over and never blocks; it may drop them. It uses the
	// connection that each one's Class names.
	Send(ms []Message)
}

func (c *Config) withDefaults() {
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Events = c.Events.withDefaults()
	c.Tick = cmp.Or(c.Tick, DefaultTick)
	c.MaxInboxProposals = cmp.Or(c.MaxInboxProposals, MaxInboxProposals)
	c.MaxInboxBytes = cmp.Or(c.MaxInboxBytes, MaxInboxBytes)
	c.SnapshotEntries = cmp.Or(c.SnapshotEntries, DefaultSnapshotEntries)
	c.TailEntries = cmp.Or(c.TailEntries, DefaultTailEntries)
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, DefaultSnapshotBytes)
	c.SnapshotRate = cmp.Or(c.SnapshotRate, DefaultSnapshotRate)
	c.DiskReserve = cmp.Or(c.DiskReserve, DefaultDiskReserve)
}

// Validate returns an Invalid error for a Config that cannot work.
func (c *Config) Validate() error {
	switch {
	case c.FS == nil || c.Machine == nil || c.Dir == "":
		return incumbent.Errorf(incumbent.Invalid, "node needs a filesystem, a folder and a machine")
	case c.Tick < 0 || c.SnapshotBytes < 0 || c.SnapshotRate < 0:
		return incumbent.Errorf(incumbent.Invalid, "node: a limit is negative")
	case c.SegmentBytes != 0 && c.SegmentBytes < MinSegmentBytes:
		return incumbent.Errorf(incumbent.Invalid, "node: segment of %d bytes, at least %d are needed for the largest entry", c.SegmentBytes, MinSegmentBytes)
	case c.Join != nil && (c.Join.Cluster == [16]byte{} || !validID(c.Join.Member)):
		return incumbent.Errorf(incumbent.Invalid, "node: %v cannot be joined: one of the ids is not valid", c.Join)
	case c.MaxInboxProposals < 0 || c.MaxInboxBytes < 0:
		return incumbent.Errorf(incumbent.Invalid, "node: an inbox limit is negative")
	case c.MaxInboxBytes != 0 && c.MaxInboxBytes < 2*MaxCommandBytes:
		return incumbent.Errorf(incumbent.Invalid, "node: inbox of %d bytes cannot take a command of %d", c.MaxInboxBytes, MaxCommandBytes)
	}
	return nil
}

// Node is one member: a replica with files, goroutines and a machine.
type Node struct {
	cfg       Config
	id        Identity
	life      uint64 // durable boot counter: the incarnation
	snapshots snapshotFolder
	inbox     inbox
	appender  *appender
	applier   *applier
	files     *fileWorker
	receiver  *receiver // owned by the file worker

	// Owned by the loop.
	replica     *Replica
	status      ReplicaStatus
	snap        snapshotWork
	sending     sender
	incoming    incoming
	stalled     bool
	handingOver bool // before a stop
	retryReady  bool
	outstanding struct{ appends, applies int } // handed out and not acknowledged

	prepareAgain time.Time // owned by watchDisk: until then no spare log files are made

	// Shared.
	ready   chan struct{} // closed when doors may open
	quit    chan struct{} // closed when asked to stop
	quitOne sync.Once
	stopped chan struct{}                // closed when Run has returned, or Close without Run
	started atomic.Bool                  // Run, or a Close before it, decides how this ends
	ran     atomic.Bool                  // Run has been called
	free    atomic.Int64                 // bytes, or -1: not known
	refuse  atomic.Bool                  // growth is refused for lack of disk
	short   atomic.Bool                  // the disk has no place for all the spare files that the log wants
	barred  atomic.Pointer[func() error] // growth is refused for this reason; nil: for none
	mu      sync.Mutex                   // guards shown; held to copy it
	shown   ReplicaStatus
	group   sync.WaitGroup
	run     context.Context // of the goroutines; set by Run before they start
	die     context.CancelCauseFunc
}

// Identity is who a member is, durably. Member ids are random and never reused.
type Identity struct {
	Cluster [16]byte
	Member  uint64
}

func (id Identity) String() string {
	return fmt.Sprintf("member %x of cluster %x", id.Member, id.Cluster)
}

// Run drives the node until ctx ends, Close is called or something fatal
// happens, and returns nil or what was fatal, which Events.Failed was told at once:
// a flush that hangs is waited for. It may be called once. If Close came first it
// returns at once.
func (n *Node) Run(ctx context.Context) error {
	if n.ran.Swap(true) {
		return incumbent.Errorf(incumbent.Invalid, "node is already running")
	}
	if n.started.Swap(true) {
		<-n.stopped // Close answers everybody
		return nil
	}
	run, die := context.WithCancelCause(context.WithoutCancel(ctx))
	n.run, n.die = run, die
	stop := context.AfterFunc(ctx, n.askToStop)
	defer stop()
	n.goRun(run, "append", n.appender.run)
	n.goRun(run, "apply", n.applier.run)
	n.goRun(run, "files", n.files.run)
	n.goRun(run, "disk", n.watchDisk)
	n.goRun(run, "loop", n.loop)
	<-run.Done()
	err := context.Cause(run)
	if err == errQuit { //nolint:errorlint // a sentinel of our own, never wrapped
		err = nil
	}
	if err != nil {
		n.cfg.Events.Failed(err)
	}
	n.group.Wait()
	return n.finish(err)
}

// errQuit ends a run without an error.
var errQuit = fmt.Errorf("asked to stop")

// goRun starts one of the node's goroutines. The first that fails, or panics,
// stops them all.
func (n *Node) goRun(ctx context.Context, name string, f func(context.Context) error) {
	n.group.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				n.die(incumbent.Errorf(incumbent.Internal, "panic in the %s goroutine: %v: %w", name, p, stack(debug.Stack())))
			}
		}()
		if err := f(ctx); err != nil {
			n.die(err)
		}
	})
}

// stack is where a panic happened.
type stack []byte

func (s stack) Error() string { return string(s) }

// finish answers everybody who still waits and closes the log.
func (n *Node) finish(err error) error {
	left := n.inbox.close()
	n.replica.Propose(left.proposals)
	for i := range left.confirms {
		n.replica.Confirm(left.confirms[i].done)
	}
	eff := n.replica.Stop()
	for _, a := range eff.Applies { // left by a panic on the loop
		n.applier.queue.push(applyTask{apply: a})
	}
	// Nothing may be written, sent or applied any more.
	eff.Messages, eff.Appends, eff.Applies = nil, nil, nil
	n.applier.abandon()
	n.perform(eff)
	for _, w := range append(n.snap.asked, n.snap.serving...) {
		w(errStopped())
	}
	if ferr := n.files.finish(); ferr != nil && err == nil {
		err = fatal("close snapshot files", ferr)
	}
	if cerr := n.appender.log.Close(); cerr != nil && err == nil {
		err = fatal("close the log", cerr)
	}
	close(n.stopped)
	return err
}

func (n *Node) askToStop() { n.quitOne.Do(func() { close(n.quit) }) }

// Close stops the node and waits until it has stopped or ctx ends. If it leads and
// another voter is there, it hands leadership over first, and finishes what is
// under way, for a second at most.
func (n *Node) Close(ctx context.Context) error {
	n.askToStop()
	if !n.started.Swap(true) {
		return n.finish(nil)
	}
	select {
	case <-n.stopped:
		return nil
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.DeadlineExceeded, "node did not stop in time: %w", ctx.Err())
	}
}

// Propose hands proposals in, in order. It never blocks. Done functions of
// refused ones are called before it returns.
func (n *Node) Propose(ps ...Proposal) {
	if !n.mayGrow() {
		ps = n.refuseGrowth(ps)
	}
	for len(ps) > 0 {
		took, err := n.inbox.add(ps)
		if took > 0 {
			signal(n.inbox.wake)
		}
		if err == nil {
			return
		}
		if f := ps[took].Done; f != nil {
			f(nil, err)
		}
		ps = ps[took+1:]
	}
}

// Confirm asks for a read confirmation begun after this call. Done gets the
// term it was confirmed in, after everything up to its read index has been
// applied; or NotLeader, Unavailable or Overloaded.
func (n *Node) Confirm(done func(term uint64, err error)) { n.confirm(confirmation{done: done}) }

// ConfirmAhead is Confirm for those who know which commands concern what they ask: where
// this member leads and has not applied everything up to the read index when leadership is
// confirmed, ahead runs first, once, and says what it has not. Both run on the node's
// loop, after the machine was told of all that is said to be applied. Each entry is told
// of once: there may be one who asks so.
func (n *Node) ConfirmAhead(ahead func(Ahead), done func(term uint64, err error)) {
	n.confirm(confirmation{ahead: ahead, done: done})
}

// ConfirmFor is ConfirmAhead for what another member asks of this one as
// the leader of a term, without asking anybody. It must have asked while its own Leader said that
// this one leads in that term: then it counts as having confirmed. Done gets
// Unavailable where that member is no quorum with this one: only Confirm helps then.
func (n *Node) ConfirmFor(member, term uint64, ahead func(Ahead), done func(term uint64, err error)) {
	n.confirm(confirmation{ahead: ahead, done: done, member: member, term: term})
}

func (n *Node) confirm(c confirmation) {
	if err := n.inbox.confirm(c); err != nil {
		c.done(0, err)
		return
	}
	signal(n.inbox.wake)
}

// Leader returns who leads and in which term, as far as this member knows. What
// it says is never behind what other members may have heard: a newer term shows
// here before any vote or word of it leaves. May be called from any goroutine.
func (n *Node) Leader() (leader, term uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shown.Leader, n.shown.Term
}

// Step takes messages that peers sent. It never blocks and may drop them. The
// node keeps them and everything they point to; nobody may change it afterwards.
func (n *Node) Step(ms ...Message) {
	for _, m := range ms {
		n.inbox.message(m)
	}
	signal(n.inbox.wake)
}

// Ready is closed once a read confirmation begun after the start has been
// applied: from then on what this member shows is not older than what it, or
// any other, answered before.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// WaitReady waits for Ready.
func (n *Node) WaitReady(ctx context.Context) error {
	select {
	case <-n.ready:
		return nil
	case <-n.stopped:
		return errStopped()
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.DeadlineExceeded, "node is not ready: %w", ctx.Err())
	}
}
