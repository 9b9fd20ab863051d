// Package ovsdb is the door for clients of Open vSwitch's databases: the management
// protocol of RFC 7047 with the extensions that its clients use, on any member.
// docs/protocols/ovsdb.md in the module says what is served and where it differs. To
// read the code:
//
//	door.go      what the door is made of, and how it ends
//	accept.go    connections: TLS, who it is, and then they are parked
//	frame.go     where a message ends; conn.go takes messages, out.go sends
//	rpc.go       requests and their answers; methods.go which there are
//	transact.go  transactions; wait.go those that wait for a change
//	lock.go      locks: leases of a session that a connection has
//	rules.go     what is open is judged again when policies change
//	feed.go      what changes in a database, in order, for all who follow it
//	monitor.go   what clients monitor; group.go what many monitor alike
//	match.go     which monitors a change concerns; encode.go what they are told
//	server_db.go the database about the server itself
//
// # Invariants
//
//   - A connection that is idle has no goroutine.
//   - What is a session's is touched by the tasks of its connection alone, of which one
//     runs at a time, in the order in which they were handed in.
//   - A client is told what its own transaction has changed before the transaction is
//     answered.
//   - What monitors are told begins with the state of an index and goes on with each
//     change after it, once and in order.
//   - A change is encoded once for all monitors of the same columns and conditions, and
//     only monitors are looked at that it may concern.
//   - Nothing is served that has no row in the table of calls.
//   - A monitor is told of no change behind one of policies that takes it away from its
//     client.
//
// # Concurrency
//
// Accepting has a goroutine for each listener, and TLS one for each handshake. Then one
// worker of park finds messages; a few goroutines of the door run tasks of connections
// and feeds. Neither waits: callbacks of node and hub hand in what goes on.
package ovsdb
