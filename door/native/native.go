// Package native is Incumbent's own door: calls by Connect (gRPC, gRPC-Web and
// JSON that works with curl), and the stream, one WebSocket over which an
// agent does everything it does for as long as it lives.
//
// A newcomer reads api/incumbent/v1 first: it is the contract. Then:
//
//	door.go      what the door is made of, and how it ends
//	http.go      what surrounds every call: who, how much, how slowly
//	call.go      one operation, for a caller who waits; bulk.go many
//	ops.go       requests → checked operations; former.go records → answers
//	guard.go     who may do what: each call's row in package calls, and the policies; rules.go what is open follows them
//	policies.go  the policies themselves
//	keys.go      writes of keys and values; keys_read.go reads, keys_watch.go what their watches tell;
//	             stream_keys.go the same over streams
//	wait.go      block until released; watch.go watches over Connect, stream_watch.go over streams, piece.go their messages
//	upgrade.go   a request becomes a parked connection
//	decode.go    the hot frames, read by hand; encode.go written; WebSocket framing is package websocket
//	stream.go    a stream; gather.go its hot path; requests.go all else; start.go how an agent begins
//
// The door knows its protocol and nothing else. What it needs of others is in
// [Config].
//
// # Invariants
//
//   - A request whose deadline has passed is not executed: it is refused before
//     it is handed on, and carries its deadline from there.
//   - An outcome that is not known is said to be unknown, never to have failed.
//   - What one stream sends about one lease takes effect in that order:
//     extensions that were gathered go before the operation that follows them.
//   - Held times are never longer than asked for, logged or confirmed; they
//     count from when the client sent.
//   - An idle stream is a struct of two hundred bytes, and its connection.
//
// # Concurrency
//
// Handlers of calls run on the goroutines of net/http. A stream's input is
// handled by one worker of park; callbacks of the lease service, the hub and
// the node only put into queues, from which a few goroutines of the door
// answer. Answers therefore come in any order.
//
// # Not guaranteed
//
// A ping between the fragments of a message is answered when the message is
// complete. Errors that Connect itself finds (JSON that does not parse, an
// unknown method) carry a code and a message, but no detail.
package native
