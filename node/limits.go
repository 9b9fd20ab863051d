package node

import "time"

// Limits of proposals and confirmations. Those a Config can change are the
// defaults.
const (
	MaxCommandBytes    = 1 << 20   // one command; one huge entry defeats raft's flow control
	MaxEntryCommands   = 512       // commands in one entry
	MaxBatchBytes      = 256 << 10 // commands in one entry, unless one command alone is larger
	MaxEntriesInFlight = 4         // proposed and not yet committed; more would only queue in the log instead of the inbox
	MaxInboxProposals  = 16 << 10  // proposals that wait for a place in an entry
	MaxInboxBytes      = 32 << 20  // their commands
	MaxInboxConfirms   = 1 << 20   // confirmations that wait for a round
	MaxInboxMessages   = 4096      // messages of peers that wait for the loop; raft sends lost ones again
	inboxReserveShare  = 8         // one in so many places is kept for proposals with Reserve
	MinSegmentBytes    = 2 << 20   // a log file, so that the largest entry fits into one write
	maxEntryOverhead   = 4096      // header and length prefixes of an entry: 37 + 512 * 5, rounded up
	maxRaftMessage     = 1 << 20   // MaxSizePerMsg
	maxInflightMsgs    = 256       // per peer
	maxInflightBytes   = 16 << 20  // per peer
	maxUncommitted     = 64 << 20  // uncommitted tail of a leader
	maxApplyingBytes   = 4 << 20   // handed to the applier and not yet applied
	entryMemory        = 160       // bytes an entry costs in memory besides its data
	MaxChunkBytes      = 64 << 10  // piece of a snapshot file on the wire
	sendWindow         = 16        // pieces sent to a peer and not acknowledged
	maxPiecesWaiting   = 64        // received pieces that wait for the disk; more are dropped and sent again
	maxMemberChanges   = 64        // that wait for their turn
	maxConfStateIDs    = 64        // member ids in one list of a snapshot header
	maxSnapshotHeader  = 4096      // bytes of a snapshot header
)

// Times, counted in ticks where the replica counts them.
const (
	DefaultTick        = 50 * time.Millisecond
	electionTicks      = 10
	ElectionTimeout    = electionTicks * DefaultTick // without a leader for so long, and up to twice as long, a member campaigns
	heartbeatTicks     = 1
	leaderWaitTicks    = 2 * electionTicks // a proposal waits so long for a leader before it is refused
	leaderRoundTicks   = electionTicks     // a leader tries its round again after so long: each heartbeat repeats it anyway
	roundTicks         = 4                 // a follower's question or its answer may be lost: it asks again after so long
	roundGiveUpTicks   = 3 * electionTicks // all attempts of a confirmation together
	confirmWaitTicks   = 4 * electionTicks // a confirmation waits so long for a round to start
	forwardTicks       = 4 * electionTicks // a forwarded entry of which nothing is heard for so long is given up
	forwardAgainTicks  = 6                 // it is sent again after so long
	transferAgainTicks = 3                 // a member that is to take over leadership is told again after so long
	fullLookTicks      = electionTicks / 2 // a leader whose disk is full looks so often who else has space
	fullLooks          = 2                 // and hands over when enough had, so often in a row
	muteAfterTicks     = electionTicks     // a leader whose disk hangs has so long to hand over; then it falls silent
	slowAheadTicks     = electionTicks     // a leader whose slow disk kept it behind a quorum of others for so long hands over
	campaignSoonest    = 10 * time.Millisecond
	campaignLatest     = 150 * time.Millisecond // between these, at random, a voter campaigns whose leader's process ended
	flushStalledAfter  = time.Second            // a flush that is out for longer shows as stalled
	diskPollEvery      = time.Second            // free space
	prepareRetryAfter  = time.Minute            // after spare log files could not be made, other than for lack of space
	appendRetryEvery   = 200 * time.Millisecond
	resendAfter        = 2 * time.Second        // without an answer to pieces of a snapshot
	giveUpAfter        = 30 * time.Second       // without progress in sending a snapshot
	sendAgainAfter     = 10 * time.Second       // after a snapshot that a peer could not take
	sendNewerAfter     = 200 * time.Millisecond // while one that can be sent is being taken
)

// How long votes are waited for, and when a slow flush counts as one that hangs.
const (
	votesPatience        = campaignLatest  // what the votes of the first term without a leader get; those of each further one twice as much
	maxVotesPatience     = 2 * time.Second // they get no more,
	votesFlushes         = 3               // save where so many flushes take longer: what is out, the vote behind it, and some room
	maxSlowVotesPatience = votesFlushes * maxUsualFlush
	ordinaryVotes        = electionTicks * DefaultTick // votes that get no more need no help: raft's own timeout is longer
	usualFlushes         = 3                           // the shortest of so many is what a flush usually takes
	maxUsualFlush        = 3 * time.Second             // slower disks count as hanging, however usual that is
	flushStalledTimes    = 3                           // so many usual flushes, or flushStalledAfter if that is longer, and it hangs
)

// Defaults of snapshots and disk.
const (
	DefaultSnapshotBytes   = 64 << 20  // of log since the last snapshot
	DefaultSnapshotEntries = 1_000_000 // since the last snapshot
	DefaultTailEntries     = 4096      // kept in memory behind a snapshot for slow followers
	DefaultSnapshotRate    = 64 << 20  // bytes per second written
	DefaultDiskReserve     = 256 << 20 // free bytes under which growth is refused
	minSnapshotShare       = 4         // of Config.SnapshotBytes: where states are small, so much of it makes a snapshot due
	MaxTailBytes           = 16 << 20  // of these entries, with entryMemory each
	MaxNeededBytes         = 128 << 20 // of those that are kept for members that come back
	snapshotSyncBytes      = 4 << 20   // written between two syncs, so that no sync holds the disk for long
)
