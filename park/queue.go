package park

// queue is what a connection has to send and the kernel did not take. It
// exists only while there is something in it:
//
//	cipher             entries
//	[encrypted bytes]  [shared bytes, offset] [shared bytes] [copied bytes] …
//	goes out first     plain bytes; under TLS encrypted when cipher is empty
//
// Under TLS at most sealBytes are encrypted ahead of the kernel, so that a
// slow reader of shared bytes costs references, not ciphertext.
type queue struct {
	cipher   []byte
	cipherAt uint32 // tick of queueing of the first byte in cipher
	entries  []entry
	bytes    int      // unsent, and entryBytes for each entry: bounded by MaxQueuedBytes
	held     int64    // the memory that is this queue's alone: bounded by MaxHeldBytes
	drained  []func() // of WhenDrained
}

// entry is a buffer, of which b is not sent yet.
type entry struct {
	b  []byte
	at uint32 // tick of queueing
	// own says that b is a copy with spare capacity nobody else sees.
	own bool
}

// push sends or queues bufs, all or nothing. With reuse the caller keeps the
// right to change them afterwards.
func (c *Conn) push(bufs [][]byte, reuse bool) error {
	if c.state.Load() != open {
		return c.endedLocked()
	}
	sent := 0
	if c.out == nil {
		n, err := c.emit(bufs)
		if err != nil {
			c.failLocked(WriteFailed, err)
			return err
		}
		sent = n
	}
	for _, b := range bufs {
		if sent >= len(b) {
			sent -= len(b)
			continue
		}
		if err := c.enqueue(b[sent:], reuse); err != nil {
			return err
		}
		sent = 0
	}
	return c.withinLimits()
}

// emit hands bufs to the kernel, through TLS if there is one, and returns how
// many of their bytes need not be queued.
func (c *Conn) emit(bufs [][]byte) (int, error) {
	if c.tls != nil {
		return c.seal(bufs)
	}
	return c.rawWrite(bufs)
}

// seal encrypts bufs until the kernel takes no more. Everything but a single
// small buffer is gathered, for crypto/tls makes a write of each record.
func (c *Conn) seal(bufs [][]byte) (int, error) {
	if len(bufs) == 1 && len(bufs[0]) <= recordBytes {
		return c.tls.Write(bufs[0])
	}
	corks := &c.worker.set.corks
	c.cork = corks.Get().(*[]byte)
	n, err := c.sealEach(bufs)
	if flushErr := c.uncork(); err == nil {
		err = flushErr
	}
	corks.Put(c.cork)
	c.cork = nil
	return n, err
}

func (c *Conn) sealEach(bufs [][]byte) (total int, err error) {
	for _, b := range bufs {
		for len(b) > 0 {
			if c.out != nil && len(c.out.cipher) > 0 {
				return total, nil
			}
			n, err := c.tls.Write(b[:min(len(b), sealBytes)])
			total += n
			if err != nil {
				return total, err
			}
			b = b[n:]
		}
	}
	return total, nil
}

// uncork hands the gathered ciphertext to the kernel.
func (c *Conn) uncork() error {
	p := *c.cork
	*c.cork = p[:0]
	if len(p) == 0 {
		return nil
	}
	return c.cipherOut(p)
}

// writeCipher is Write of the socket under crypto/tls: mu is held, by whoever
// called into crypto/tls. It takes everything.
func (c *Conn) writeCipher(p []byte) (int, error) {
	if c.cork == nil {
		if err := c.cipherOut(p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	if len(*c.cork)+len(p) > corkBytes {
		if err := c.uncork(); err != nil {
			return 0, err
		}
	}
	*c.cork = append(*c.cork, p...)
	return len(p), nil
}

// cipherOut sends ciphertext and keeps a copy of what the kernel leaves.
func (c *Conn) cipherOut(p []byte) error {
	if c.out == nil || len(c.out.cipher) == 0 {
		one := [1][]byte{p}
		n, err := c.rawWrite(one[:])
		if err != nil {
			return err
		}
		p = p[n:]
	}
	if len(p) == 0 {
		return nil
	}
	q := c.queue()
	if len(q.cipher) == 0 {
		q.cipherAt = c.worker.set.now.Load()
	}
	before := cap(q.cipher)
	q.cipher = append(q.cipher, p...)
	c.account(len(p), int64(cap(q.cipher)-before))
	return nil
}

// enqueue appends b to the queue.
func (c *Conn) enqueue(b []byte, reuse bool) error {
	q := c.queue()
	if !reuse {
		q.entries = append(q.entries, entry{b: b, at: c.worker.set.now.Load()})
		c.account(len(b)+entryBytes, entryBytes)
		return c.withinLimits()
	}
	if i := len(q.entries) - 1; i >= 0 && q.entries[i].own && cap(q.entries[i].b)-len(q.entries[i].b) >= len(b) {
		q.entries[i].b = append(q.entries[i].b, b...)
		c.account(len(b), 0)
		return c.withinLimits()
	}
	own := append(make([]byte, 0, max(len(b), chunkBytes)), b...)
	q.entries = append(q.entries, entry{b: own, at: c.worker.set.now.Load(), own: true})
	c.account(len(b)+entryBytes, int64(cap(own))+entryBytes)
	return c.withinLimits()
}

// queue returns the queue, made if need be; the worker is told, since from
// now on the connection has a deadline, and because the descriptor may have
// become writable before the queue could be seen.
func (c *Conn) queue() *queue {
	if c.out == nil {
		c.out = &queue{}
		c.backlog.Store(true)
		if c.port != nil {
			c.port.startFlush()
		} else {
			c.post()
		}
	}
	return c.out
}

func (c *Conn) account(bytes int, held int64) {
	c.out.bytes += bytes
	c.out.held += held
	c.worker.set.queued.Add(int64(bytes))
	c.worker.set.held.Add(held)
}

// withinLimits cuts the connection off if its queue is over a limit.
func (c *Conn) withinLimits() error {
	if c.out == nil {
		return nil
	}
	l := c.worker.set.limits.Load()
	if c.out.bytes > l.MaxQueuedBytes {
		return c.limitLocked(SlowReader)
	}
	if c.worker.set.memoryFull(c.out.held) {
		return c.limitLocked(MemoryFull)
	}
	return nil
}

// dropQueue forgets the queue.
func (c *Conn) dropQueue() {
	if c.out == nil {
		return
	}
	c.account(-c.out.bytes, -c.out.held)
	c.out = nil
	c.backlog.Store(false)
}

// flush sends what is queued until the kernel takes no more.
func (c *Conn) flush() {
	for c.out != nil {
		more, err := c.flushSome()
		if err != nil {
			c.failLocked(WriteFailed, err)
			c.dropQueue()
			return
		}
		if !more {
			return
		}
	}
}

// flushSome makes one step and reports whether another makes sense.
func (c *Conn) flushSome() (bool, error) {
	q := c.out
	if len(q.cipher) > 0 {
		one := [1][]byte{q.cipher}
		n, err := c.rawWrite(one[:])
		if err != nil {
			return false, err
		}
		c.cipherSent(n)
		return c.out != nil && len(q.cipher) == 0, nil
	}
	var gather [gatherBufs][]byte
	bufs, total := gather[:0], 0
	for _, e := range q.entries[:min(gatherBufs, len(q.entries))] {
		bufs = append(bufs, e.b)
		total += len(e.b)
	}
	at := q.entries[0].at
	n, err := c.emit(bufs)
	if err != nil {
		return false, err
	}
	q.cipherAt = at // encryption makes nothing younger
	c.entriesSent(n)
	return n == total, nil
}

// cipherSent takes n bytes off the ciphertext.
func (c *Conn) cipherSent(n int) {
	q := c.out
	before := cap(q.cipher)
	q.cipher = q.cipher[n:]
	if len(q.cipher) == 0 {
		q.cipher = nil
	}
	c.account(-n, int64(cap(q.cipher)-before))
	c.dropIfEmpty()
}

// entriesSent takes n bytes off the entries.
func (c *Conn) entriesSent(n int) {
	q := c.out
	for len(q.entries) > 0 && n >= len(q.entries[0].b) {
		e := q.entries[0]
		q.entries[0] = entry{} // the array outlives the entry, the bytes need not
		q.entries = q.entries[1:]
		n -= len(e.b)
		held := int64(entryBytes)
		if e.own {
			held += int64(cap(e.b))
		}
		c.account(-len(e.b)-entryBytes, -held)
	}
	if n > 0 {
		e := &q.entries[0]
		before := cap(e.b)
		e.b = e.b[n:]
		held := int64(0)
		if e.own {
			held = int64(cap(e.b) - before)
		}
		c.account(-n, held)
	}
	c.dropIfEmpty()
}

func (c *Conn) dropIfEmpty() {
	if len(c.out.cipher) > 0 || len(c.out.entries) > 0 {
		return
	}
	told := c.out.drained
	c.dropQueue()
	for _, f := range told {
		f()
	}
}

// waitingSince returns the tick at which the oldest unsent byte was queued.
func (q *queue) waitingSince() uint32 {
	if len(q.cipher) > 0 {
		return q.cipherAt
	}
	return q.entries[0].at
}
