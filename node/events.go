package node

import "time"

// Events is told what happens inside, instead of a logger. Functions may be nil,
// are called from the node's goroutines and must not block.
type Events struct {
	RoleChanged      func(Role)                                       // role, leader or term changed
	Synced           func(took time.Duration, entries int, bytes int) // one sync of the log returned
	FlushStalled     func(stalled bool, out time.Duration)            // a flush has been out for a second; or returned after that
	Applied          func(AppliedEntries)                             // entries were applied
	Snapshot         func(SnapshotDone)                               // a snapshot ended
	SnapshotSent     func(SnapshotSent)                               // sending one to a peer ended
	SnapshotReceived func(SnapshotDone)                               // receiving one ended
	MembersChanged   func(voters, learners []uint64)                  // the members, at the start and after each change
	Mute             func(muted bool)                                 // the transport must close its sockets and stay silent, or may speak again
	Growth           func(refused bool, free, reserve int64)          // growth is refused for lack of disk, or no longer
	Paused           func(paused bool, err error)                     // appends wait for space, or go on
	Confirmed        func(n int)                                      // read confirmations were answered together
	Failed           func(error)                                      // something fatal happened; Run returns it too, but only once nothing is out, which a disk that hangs may keep from it
}

// AppliedEntries says how committed entries were applied, together.
type AppliedEntries struct {
	Entries, Commands int
	Waited            time.Duration // from when they were known to be committed until their turn came
	Took              time.Duration // to apply them
}

// SnapshotDone says how a snapshot ended.
type SnapshotDone struct {
	Index uint64
	Bytes int64
	Took  time.Duration
	Err   error
}

// SnapshotSent says how sending a snapshot to a peer ended.
type SnapshotSent struct {
	To    uint64
	Index uint64
	Bytes int64 // of the file
	Took  time.Duration
	Err   error
}

// withDefaults replaces nil functions, so that nobody asks.
func (e Events) withDefaults() Events {
	if e.RoleChanged == nil {
		e.RoleChanged = func(Role) {}
	}
	if e.Synced == nil {
		e.Synced = func(time.Duration, int, int) {}
	}
	if e.FlushStalled == nil {
		e.FlushStalled = func(bool, time.Duration) {}
	}
	if e.Applied == nil {
		e.Applied = func(AppliedEntries) {}
	}
	if e.Snapshot == nil {
		e.Snapshot = func(SnapshotDone) {}
	}
	if e.SnapshotSent == nil {
		e.SnapshotSent = func(SnapshotSent) {}
	}
	if e.SnapshotReceived == nil {
		e.SnapshotReceived = func(SnapshotDone) {}
	}
	if e.MembersChanged == nil {
		e.MembersChanged = func(_, _ []uint64) {}
	}
	if e.Mute == nil {
		e.Mute = func(bool) {}
	}
	if e.Growth == nil {
		e.Growth = func(bool, int64, int64) {}
	}
	if e.Paused == nil {
		e.Paused = func(bool, error) {}
	}
	if e.Confirmed == nil {
		e.Confirmed = func(int) {}
	}
	if e.Failed == nil {
		e.Failed = func(error) {}
	}
	return e
}
