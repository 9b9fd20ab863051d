// Package lease is the leader's clock: it decides when a lease has run out, it
// extends leases without the log, and it makes the calls on leases that the
// doors serve.
//
// A newcomer starts with [Book]: for each lease and session one deadline, in
// memory only, and one for whatever else a family asks it to. An extension stores a number; a lease is looked at again when
// the bucket of its deadline comes up. [Engine] decides what to do with the
// book: when an extension may be acknowledged, when an expiry may be proposed,
// which calls the log need not see. Both are pure: time comes in as an
// argument, what is to be done comes out as [Effects]. [Service] is the shell:
// one goroutine, the lease loop, that feeds the engine and performs its
// effects.
//
//	Extend, Claim, … ─ inbox ─▶ loop: Engine ─┬─ Propose ─▶ node ─ apply ─▶ Applied ─ inbox ─▶ loop
//	                                  Book    ├─ Confirm ─▶ node ──────────▶ Confirmed ─ inbox ─▶ loop
//	                                          └─ answers ─▶ doors
//
// # The life of an extension
//
// It is stored when it is read: lengthening harms nobody. It is judged after a
// confirmation of leadership that began later, on a state applied at least that
// far. One confirmation serves all extensions that wait; at most one is under
// way. It does not wait for all that is committed to be applied: with the confirmation
// the node says which commands are not, and those say what they may end (core.Ender).
// What none of them may end is judged at once, however long they take; the rest, and
// claims that are answered from the state, wait: see ahead.go. An extension that is longer than the logged ttl becomes a command and is
// acknowledged once applied. The first one of an offer makes it a holding: see
// accept.go.
//
// # The life of an expiry
//
//	deadline ─▶ due ─┬─▶ confirmed ──────┬─▶ looked at again ─▶ proposed ─▶ applied
//	                 └─▶ barrier passed ─┘
//
// The confirmation begins after the lease was due, and with it the barrier, which says that
// every frame and every call received until then has been stored. So a server that was
// stopped hears first what waited in its sockets. Neither waits for the other: who has
// extended nothing that had arrived when both began had passed its deadline by then. The command names the token and renewal the
// book knows applied and is bound to the term: any later change makes it void.
// From proposing until it is applied, extensions of what it names wait.
//
// # Deadlines of families
//
// A family says with its changes that something of it lasts for a time, or no
// longer (see [core.Deadline]: the delay of a lock on a key). The book has it as it
// has a lease's: with drift and grace, moved by silences, in full when
// another leads, and where nobody keeps it without the time in which clients return. It
// ends in the same way, with a command that the family makes and that names the
// generation, in the place of token and renewal. What a family lets be extended without
// the log (a check that is told to be well) is found by id and generation, on any
// member, stored in its slot and judged as extensions are; one that comes while the
// command that ends it is under way waits for that, and names nothing if it was applied.
//
// # Several members
//
// Every member takes extensions, attachments and inspections; only the leader
// decides. What a turn gathers goes to it in one frame and is answered in one,
// item by item as each is decided:
//
//	door ─▶ Engine: courier ─ ask ─▶ leader's Engine: served, a batch like any other
//	door ◀─ Engine ◀──────── answer ─┘ after its round; what is held follows
//
// A frame names the term it was sent for and is refused in any other. One whose
// answer is overdue is sent again under a new number: extensions and attachments
// may be asked for twice, and inspections too. A change of leader takes back all
// that waits, wherever it does, and asks again; after two seconds the answer is
// Unavailable. Commands do not travel so: the node forwards them. A claim of the
// present holder is an extension under the token that this member knows, and
// becomes a command only if the leader does not know it under that token.
//
// Which connection speaks for a session the leader's memory says (member and
// counter); each new leader is told of all of them. Beats of attached sessions
// are forwarded one by one, some 17 bytes each; they wait for one another for a moment
// ([Batch.Patience]), so that how often a member's idle clients wake the leader does not
// grow with their number.
//
// # Invariants
//
//   - The book knows every held lease, every open session and every deadline of
//     a family's of the applied state while this member leads, and nothing while it does not.
//   - A deadline never moves closer while its holding lasts.
//   - No lease or session is due before the last acknowledged extension's
//     arrival + ttl.
//   - What was acknowledged under a token is never longer than its logged ttl.
//   - Nothing is acknowledged and no expiry proposed before Lead of the term.
//   - What a member asks is in one place at a time (queue, frame under way, held,
//     round), and is answered by whoever takes it out: once.
//   - Commands of one client on one lease enter the log in the order of their
//     calls; no fast path overtakes one, not even one that was answered Unknown
//     (see undecided.go).
//
// # Concurrency
//
// The methods of [Service] may be called from any goroutine and never block;
// only Run and those that take a context wait. Done functions run on the lease
// loop: they hand off and return. Applied, Lead and Follow are called by the
// apply goroutine, in order, before proposals and confirmations are answered.
// [Book] and [Engine] belong to one goroutine.
//
// # Not guaranteed
//
// A revocation at the deadline of a lease that a session owns frees it when the
// session's deadline at that moment has passed; a session without ttl was told
// the longest ttl there is, so that only a forced revocation frees its leases
// soon. The session itself goes on: its holder learns of the revocation from
// the lease (its change, or an extension by token), and from its beats: see
// [Extension.RevokingTokens].
//
// What a client has sent by way of one member is not known to another one until
// it is applied there. Whoever gives a lease up, is told Unknown, and then asks
// another member for the same lease may be told that it still holds it, in front
// of its own release: ask the same member, or wait for the outcome.
//
// Who is next in a queue is known to the leader alone: see next.go. What another
// member's client frees may be offered to a waiter that has died, which costs
// the offer's window.
package lease
