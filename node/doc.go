// Package node keeps one replicated log and drives raft over it: proposals
// become entries, entries become durable, committed entries are applied to a
// [Machine], and reads are confirmed. It knows nothing of leases.
//
// A newcomer starts with [Replica]: a pure state machine around the raft
// library. It has no clock, goroutine or I/O. What happened goes in (Tick,
// Propose, Confirm, Step, Appended, Applied), what is to be done comes out as
// data ([Effects]), with the order in which it must be done. A simulator drives
// it with virtual time. [Node] is the shell that performs the effects with real
// files and goroutines.
//
//	Propose, Confirm ─ inbox ─▶ loop: Replica ─┬─ Append ──▶ appender: log, one sync for all that waits
//	                             ▲  ▲          ├─ Apply ───▶ applier: Machine, answers
//	                             │  └ Appended ┤
//	                             └─── Applied ─┘─ Message ─▶ Transport (none while there is one member)
//
// One member takes the same way as five: propose, commit, apply, answer.
//
// # Invariants
//
//   - What an answer, a vote or a message to a peer depends on is durable before
//     it leaves. Appends stay first-in first-out; a failed sync stops the node.
//   - A proposal's Done is called exactly once. Only Unknown leaves open whether
//     it was applied; every other error means it was not and never will be.
//   - An entry is appended at most once, also when its frame to the leader is
//     lost, doubled or refused; and what one member was asked to propose is
//     applied in that order. pending.go and forward.go argue why.
//   - A member whose disk hangs does not become leader, and does not stay it. One
//     whose disk is full does not become leader either, and hands leadership over
//     once, if a quorum of others goes on writing.
//   - A proposal bound to a term is appended by the leader of that term or not
//     at all.
//   - A read confirmation is answered only by a round begun after it was asked
//     for, and only once everything up to its read index has been applied.
//   - A snapshot covers only what is durable in the log, and the log gives up
//     only what a durable, recorded snapshot covers.
//   - A snapshot from the leader is installed only once its file is whole,
//     verified and durable; no crash on the way leaves anything but the state
//     before or the state after. Raft hears how every sending ended.
//   - A broken invariant, a panic of the raft library or damage in a file stops
//     the node: [Node.Run] returns why.
//
// # Concurrency
//
// Everything but Run may be called from any goroutine. Propose, Confirm, Step,
// PeerLost, Unreachable, Status and Standing never block and may be called from
// within Done functions; ChangeMembers, TransferLeader, Snapshot, WaitReady and
// Close wait and may not. The machine is called by one
// goroutine, in log order, save for the function that its Snapshot returned.
// Done functions run on the apply goroutine or the loop and must not block.
package node
