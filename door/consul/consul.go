// Package consul is the door for Consul's clients: the part of Consul's HTTP API that
// concerns leases, the catalog, health, keys and watches, on any member.
// docs/protocols/consul.md in the module says what is served and where it differs. To
// read the code:
//
//	door.go      what the door is made of, and how it ends
//	accept.go    connections: TLS, and then they are parked
//	conn.go      a parked connection; parse.go its requests, dechunk.go their bodies
//	routes.go    which endpoint serves a path; request.go what an endpoint works with
//	options.go   parameters that all have in common
//	authority.go who asks; account.go what is said of that
//	reply.go     answers; shared.go those that many wait for
//	errors.go    our errors as Consul's clients know them
//
// # Invariants
//
//   - A request is answered once. Answers go out in the order of requests.
//   - A connection that is idle, or whose request waits, has no goroutine.
//   - What many wait for is evaluated once for a change, and encoded once.
//   - An index that was told is at least 1, and says nothing that was not so when it was
//     told.
//   - Nothing is served that has no row in the table of calls.
//
// # Concurrency
//
// Accepting has a goroutine for each listener, and TLS one for each handshake. Then one
// worker of park parses what comes; a few goroutines of the door run endpoints, which
// never wait: callbacks of node and hub put what goes on into their queue.
package consul
