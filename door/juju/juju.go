// Package juju is the door for Juju's agents: the part of Juju's API that
// concerns leadership, as its agents speak it. Units claim and extend the
// leadership of their application, and wait until another's ends; controllers
// claim the leases that say which of them runs a model's workers.
//
// It is JSON over a WebSocket over TLS. docs/protocols/juju.md in the module says
// what is served and where it differs from the original. To read the code:
//
//	door.go     what the door is made of, and how it ends
//	accept.go   connections: how many, how fast, TLS
//	upgrade.go  HTTP; login.go who; then the connection is parked
//	conn.go     a parked connection; facades.go what it may call
//	bulk.go     calls that ask the lease service, until they are certain
//	claim.go    leadership; singular.go leases of controllers; pinner.go pins
//	block.go    calls that wait for the end of a holding; wake.go their pace
//	decode.go, plain.go, encode.go, errors.go, tags.go   the wire
//
// # Invariants
//
//   - A claim or a wait is never answered with something transient: the client
//     takes any answer but a denial for the end of its holder. It is tried again
//     until it is certain, or the connection ends.
//   - A claim is denied only from a confirmed state.
//   - A wait is answered when the holding that it saw has ended, not before.
//   - What a client sends of itself besides tag and password is not looked at and
//     not logged: its command line holds the password.
//   - A connection that is idle, or waits, has no goroutine.
//
// # Concurrency
//
// Accepting has a goroutine for each listener. TLS, the upgrade and the login run
// on a goroutine that has one connection at a time: after the login it takes the
// next that comes, and it ends when none has come for a second, or the door drains.
// Then one worker of park handles the connection's input; callbacks of the lease
// service, the node and the hub only put into queues, from which a few goroutines
// of the door answer. Replies come in any order.
//
// # Not guaranteed
//
// A client that is waiting when its member shuts down is not answered: its
// connection is closed, and the original's clients take that for the end.
package juju
