// Package peers carries messages between the members of a cluster: those of
// raft, forwarded entries, pieces of snapshots, and frames of whoever stands on
// the node.
//
// Each pair of members has two TCP connections, with TLS if it is configured:
// *control* for what is small and urgent, and *bulk* for entries and snapshots.
// Each has a goroutine that reads and one that writes, and a bounded queue. So a
// heartbeat waits neither for data, nor for a disk, nor for a slow reader.
//
// A [Set] does what the replicated state tells it: SetMembers says with whom to
// be connected, and the functions of [Config] what is known of a member that
// comes. What cannot be sent is dropped and counted; raft sends again.
//
// # Invariants
//
//   - Nothing is told to anybody, nor believed of anybody, who has not proven that it
//     has a key of the cluster's (see proof.go), with TLS as without it. A refusal
//     that is not proven stops nobody.
//   - Nothing is delivered from a member before the hellos are done: same
//     cluster, group and version, a certificate of that member, not removed, and
//     not rolled back (see the book).
//   - Who has proven nothing keeps no place that a member needs (see strangers.go).
//   - What a hello shows is durable in the book before its first message is
//     delivered.
//   - Lost is told only if both connections had been up and the other side
//     closed both, or has started anew. Everything that was received on them is
//     delivered before, and nothing after.
//   - A connection that replaces another of the same pair and class takes over
//     at once; the old one still drains and nobody counts it as lost.
//   - A barrier is done when every whole frame that was in a socket when it
//     began has been handed over.
//
// # Concurrency
//
// All methods may be called from any goroutine. Send, SendApp, Links and Barrier
// never block; SetMembers, Mute and Rotate wait at most for a callback that is
// running. Callbacks must not block and must not call Close; those for one
// connection are never concurrent, those for two may be.
package peers
