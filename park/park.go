// Package park keeps very many long-lived connections that cost nothing while
// they are idle.
//
// A connection begins its life as an ordinary net.Conn: [Listen] wraps a
// listener so that TLS handshake, HTTP and the WebSocket upgrade run on an
// ordinary goroutine with Go's own poller. Once the door knows whom it talks
// to, it calls [Set.Park] and its goroutine ends. From then on the connection
// has no goroutine, no buffer and no timer. When bytes arrive, one of a few
// workers reads them into its one buffer and calls [Handler.Readable]; what
// the handler did not consume (half a frame) is kept until the rest comes.
// Whoever has something to say calls [Conn.Send] or [Conn.Write] from any
// goroutine; neither ever blocks.
//
// On Linux a worker owns an epoll set and the parked connection is a bare
// descriptor, under crypto/tls as it is. Elsewhere, and with
// [Config.Portable], each connection has a goroutine that waits in a
// one-byte read: the same behaviour at about 4 kB each.
//
// # What an idle connection costs
//
// In user space, measured by BenchmarkIdleMemory over WebSockets upgraded by
// net/http: 0.28 kB plain, 6.8 kB with TLS 1.3; portable 4 to 6 kB and 11.3 kB.
// The TLS part is crypto/tls itself: 1.7 kB of AES-GCM state, 0.9 kB of
// tls.Conn, and 3.4 kB of two buffers that grew with the ClientHello and never
// shrink. A client that offers no ML-KEM key share (tls.Config.
// CurvePreferences) makes that 4.0 kB in all, and its handshake cheaper.
// Session tickets make no difference. The input buffer also grows with the
// longest record ever received: after one of 4 kB a connection costs 9.6 kB,
// after one of 16 kB 23 kB. A server cannot ask for shorter records; our own
// client should write at most 1 kB at a time to an agent's stream. Servers
// should set DynamicRecordSizingDisabled: records are gathered into one write
// here, so that small ones save nothing.
//
// # Invariants
//
//   - A connection belongs to one worker for life. Its handler is called by
//     that worker only, so never concurrently, and neither are two handlers of
//     the same [Conn.Worker].
//   - Closed is called exactly once for every connection Park accepted, after
//     its last Readable. It is called before the descriptor is closed.
//   - One descriptor for each connection, except within Park itself.
//   - What a connection can make the process hold is bounded: half frames by
//     MaxPartial, and with what its handler does not want yet by a read buffer
//     more, unsent bytes by MaxQueuedBytes, all together by MaxHeldBytes
//     and a small share for each beyond it. Who exceeds a bound is cut off with
//     the [Reason] that says so, and nobody for what others hold who holds no
//     more than a share. What is not read yet is in the kernel's memory.
//   - A turn of a connection is bounded by bytes of its socket and by reads,
//     whatever they come to once decrypted.
//   - A deadline is never early. Time is counted in ticks that were really
//     handled, so a process that stood still does not cut off its clients.
//
// # Concurrency
//
// Conn.mu guards writing and all of crypto/tls. It is held for nonblocking
// system calls and the cryptography of at most a few records, never while a
// handler runs. Everything about reading belongs to the worker alone.
package park

import (
	"cmp"
	"net"
	"runtime"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Defaults of [Config] and [Limits], and the sizes nobody needs to change.
const (
	DefaultBatch          = 128              // ready connections a wake-up takes
	DefaultMaxPartial     = 1 << 20          // bytes of an incomplete frame
	DefaultMaxQueuedBytes = 4 << 20          // unsent bytes of one connection
	DefaultMaxHeldBytes   = 256 << 20        // bytes all connections make us hold
	DefaultWriteTimeout   = 30 * time.Second // age of the oldest unsent byte
	DefaultPartialTimeout = 30 * time.Second // age of an incomplete frame
	DefaultKeepAlive      = 2 * time.Minute  // silence before TCP probes

	// TickInterval is the granularity of all deadlines.
	TickInterval = 250 * time.Millisecond

	readBytes   = 64 << 10  // a worker's read buffer: four TLS records
	turnBytes   = 256 << 10 // read from one socket before others have their turn
	turnReads   = 128       // and reads of it: with 16 key updates in each they take some 15 ms
	corkBytes   = 64 << 10  // ciphertext gathered before a system call
	sealBytes   = 48 << 10  // plaintext encrypted ahead of the kernel: three records
	recordBytes = 16 << 10  // plaintext of one TLS record
	gatherBufs  = 16        // buffers handed to one writev
	entryBytes  = 32        // what a queued buffer costs besides its bytes
	chunkBytes  = 512       // least size of a queue chunk for copied bytes
	smallHeld   = 64 << 10  // most that one connection may hold in a place whatever others hold
	sharedPart  = 4         // the part of MaxHeldBytes beyond it that all have in equal shares, for each place
	scanSlots   = 8192      // connections looked at for deadlines in one turn
	scanCuts    = 64        // connections cut off by deadlines in one turn
	probes      = 4         // unanswered TCP keepalive probes
	probeEvery  = 15 * time.Second
)

// Limits bound what connections may make the process hold, and for how long.
// They can be changed while running with [Set.SetLimits]. Zero fields mean
// the defaults.
type Limits struct {
	// MaxPartial bounds the bytes of a frame that is not complete yet; with
	// [Config.Portable] those too that arrive while the handler holds ([Hold]).
	MaxPartial int
	// MaxQueuedBytes bounds the unsent bytes of one connection. It must be
	// larger than the largest message: a message that the kernel does not
	// take waits as a whole.
	MaxQueuedBytes int
	// MaxHeldBytes bounds, over all connections, incomplete frames, copied
	// unsent bytes and the bookkeeping of shared ones. Beyond it only those are
	// cut off who ask for more and hold much: more than 64 KiB, or, of more than
	// 1,024 connections (by default), an equal part of a quarter of it.
	MaxHeldBytes int64
	// WriteTimeout bounds the time a byte waits to be taken by the kernel,
	// and the time after [Conn.Finish] until the peer closes too.
	WriteTimeout time.Duration
	// PartialTimeout bounds the time from the first byte of a frame to its
	// last.
	PartialTimeout time.Duration
}

// Config configures a [Set]. The zero value is ready for use.
type Config struct {
	Limits

	// Workers is the number of workers; 0 means GOMAXPROCS.
	Workers int
	// Batch is the number of ready connections a worker takes in one
	// wake-up, and so the size of a batch; 0 means DefaultBatch.
	Batch int
	// IdleTimeout cuts off connections that sent nothing for so long; 0 is
	// never. [Conn.SetIdleTimeout] changes it for one connection.
	IdleTimeout time.Duration
	// Portable uses a goroutine for each connection even on Linux.
	Portable bool
	// Ticks replaces the set's own ticker: one value every [TickInterval].
	// For tests.
	Ticks <-chan time.Time

	readBytes, turnBytes int // the constants, but for tests
}

// Validate returns an Invalid error if a field is negative.
func (c Config) Validate() error {
	if c.Workers < 0 || c.Batch < 0 || c.IdleTimeout < 0 {
		return incumbent.Errorf(incumbent.Invalid, "workers, batch and idle timeout must not be negative")
	}
	return c.Limits.Validate()
}

// Validate returns an Invalid error if a field is negative.
func (l Limits) Validate() error {
	if l.MaxPartial < 0 || l.MaxQueuedBytes < 0 || l.MaxHeldBytes < 0 || l.WriteTimeout < 0 || l.PartialTimeout < 0 {
		return incumbent.Errorf(incumbent.Invalid, "limits of connections must not be negative")
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	c.Workers = cmp.Or(c.Workers, runtime.GOMAXPROCS(0))
	c.Batch = cmp.Or(c.Batch, DefaultBatch)
	c.readBytes = cmp.Or(c.readBytes, readBytes)
	c.turnBytes = cmp.Or(c.turnBytes, turnBytes)
	return c
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxPartial:     cmp.Or(l.MaxPartial, DefaultMaxPartial),
		MaxQueuedBytes: cmp.Or(l.MaxQueuedBytes, DefaultMaxQueuedBytes),
		MaxHeldBytes:   cmp.Or(l.MaxHeldBytes, DefaultMaxHeldBytes),
		WriteTimeout:   cmp.Or(l.WriteTimeout, DefaultWriteTimeout),
		PartialTimeout: cmp.Or(l.PartialTimeout, DefaultPartialTimeout),
	}
}

// Handler receives what arrives on a connection. Its methods are called by
// the connection's worker, which serves no other connection meanwhile: they
// must be short and must not block.
type Handler interface {
	// Readable hands over what has arrived and was not consumed before. It
	// returns how many bytes it consumed; the rest comes again, with more
	// behind it. data is valid only during the call. An error closes the
	// connection; [Hold] keeps the rest until [Conn.Wake]. It is a broken
	// invariant, and a panic, to consume more than there is.
	Readable(c *Conn, data []byte) (n int, err error)

	// Closed is the last call. err says more than reason where there is more
	// to say; it is nil if the door closed without an error. Nothing can be
	// sent any more.
	Closed(c *Conn, reason Reason, err error)
}

// Hold is returned by [Handler.Readable] to say: busy, keep the rest and do
// not call again before [Conn.Wake]. What arrives meanwhile is kept, without a
// deadline, until 64 KiB are; what comes beyond is left in the socket, so that
// the peer waits, and the connection is not idle: nobody knows whether there is
// more. The end of the connection is noticed, and is [PeerClosed] then whatever
// ended it, unless it stands behind more than the socket has room for. With
// [Config.Portable] all is read and kept, up to MaxPartial.
const Hold = holdError("park: held")

type holdError string

func (e holdError) Error() string { return string(e) }

// errWouldBlock is what a parked socket's Read returns when nothing is there.
// crypto/tls goes on after an error that calls itself temporary.
const errWouldBlock = wouldBlock("park: nothing to read")

type wouldBlock string

var _ net.Error = errWouldBlock

func (e wouldBlock) Error() string { return string(e) }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }
