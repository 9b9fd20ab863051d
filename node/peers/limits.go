package peers

import (
	"cmp"
	"time"
)

// Limits of frames and queues. What is over a queue's limit is dropped and
// counted: raft sends again, and a forwarded entry is refused.
const (
	MaxControlFrame  = 1 << 20                          // bytes of payload in a frame on the control connection, so that no heartbeat waits long behind one
	MaxBulkFrame     = 16 << 20                         // bytes of payload in a frame on the bulk connection; raft's largest message is 1 MiB and one entry
	MaxControlQueue  = 4096                             // frames that wait on the control connection; as many of the user's again behind raft's
	MaxControlBytes  = 4 << 20                          // their bytes; as many of the user's again
	MaxBulkQueue     = 64 << 10                         // frames that wait on the bulk connection
	MaxBulkBytes     = 64 << 20                         // their bytes: several times what raft keeps in flight to one peer
	MaxQueuedBytes   = MaxBulkBytes + 2*MaxControlBytes // all that waits for one peer
	MaxEntries       = 1 << 17                          // entries in one message: bounds what a small frame can cost in memory
	MaxMemberIDs     = 64                               // in one list of a snapshot's members
	MaxNameBytes     = 256                              // a member's name
	MaxTextBytes     = 1024                             // the text of a refusal, and why a snapshot failed
	maxStrangers     = 64                               // accepted connections that have proven nothing; where there are more, one of them goes
	maxStrangersHost = 32                               // of one address
	maxHelloFrame    = 4096                             // bytes of payload before the other side is known
	helloBytes       = 8 << 10                          // buffer of a reader until then
	maxWrite         = 256 << 10
	maxAppWrite      = 64 << 10 // of the user's frames in one write, so that raft's wait for no more than that
	maxDirectWrite   = 64 << 10 // a sender writes no more than that by itself: copying it into the kernel is a loop's time
	readBytes        = 64 << 10 // buffer of a reader; larger frames get one of their own
	chunkBytes       = 64 << 10 // buffers of a queue
	ownBufferBytes   = 16 << 10 // larger frames are encoded outside the queue's lock, into a buffer of their own
	maxSmallFrame    = 64       // at least what a ping takes, header included
	maxWarned        = 1024     // distinct complaints that are remembered as logged
	maxBookBytes     = 16 << 20 // of the book
	maxAccused       = 1 << 16  // members in the book
	pingEvery        = time.Second
	silentPings      = 10                     // intervals without a byte after which a connection counts as dead
	bookEvery        = 3 * time.Second        // what a member showed since its hello is written at most so often
	writeTimeout     = 5 * time.Second        // for one write of at most maxWrite and one frame
	retireTimeout    = time.Second            // a replaced connection may drain for so long
	drainAfterReset  = 10 * time.Second       // what the socket still holds is read for so long after a write found the other side gone; it ends by itself, also where a machine stands still for seconds
	newBootWait      = 100 * time.Millisecond // a restarted member's old connections may drain for so long
	dialTimeout      = time.Second
	firstByteTimeout = 2 * time.Second  // a member greets as soon as it is connected
	handshakeTimeout = 3 * time.Second  // TLS, hellos, and the book's sync on both sides
	crowdOver        = 10 * time.Second // without a stranger too many: it is over
	backoffFirst     = 20 * time.Millisecond
	backoffRefused   = 80 * time.Millisecond // at most, while the other's machine answers that nobody listens: it costs one packet, and a member that starts is back at once
	backoffMax       = time.Second
	backoffSlow      = 10 * time.Second // after a refusal that needs somebody to act
	settledAfter     = time.Second      // a connection that lasted so long was good: the next dial is immediate
	keepAliveIdle    = 5 * time.Second
	keepAliveEvery   = 2 * time.Second
	keepAliveProbes  = 3
	userTimeout      = 10 * time.Second // sent and not acknowledged by the other's kernel
)

// waits are the times above that a machine standing still uses up although nothing
// is wrong. A test that does not measure them stretches them. 0: the limit above.
type waits struct {
	dial, first, handshake, write, retire time.Duration
}

func (w waits) withDefaults() waits {
	return waits{
		dial: cmp.Or(w.dial, dialTimeout), first: cmp.Or(w.first, firstByteTimeout), handshake: cmp.Or(w.handshake, handshakeTimeout),
		write: cmp.Or(w.write, writeTimeout), retire: cmp.Or(w.retire, retireTimeout),
	}
}
