package park

// post puts a connection into the inbox of a worker with a poller.
func (w *worker) post(c *Conn) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	if w.inbox.gone {
		return
	}
	if w.inbox.empty() {
		w.poller.wake()
	}
	w.inbox.conns = append(w.inbox.conns, c)
}

// barrier puts a barrier into the inbox.
func (w *worker) barrier(b *barrier) {
	if w.set.cfg.Portable {
		w.portableBarrier(b)
		return
	}
	w.inbox.mu.Lock()
	if w.inbox.gone {
		w.inbox.mu.Unlock()
		b.arrive()
		return
	}
	if w.inbox.empty() {
		w.poller.wake()
	}
	w.inbox.barriers = append(w.inbox.barriers, b)
	w.inbox.mu.Unlock()
}

// tick makes the worker look at deadlines.
func (w *worker) tick() {
	if w.set.cfg.Portable {
		w.portableTick()
		return
	}
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	if w.inbox.gone {
		return
	}
	if w.inbox.empty() {
		w.poller.wake()
	}
	w.inbox.tick = true
}

// stop makes the worker end its connections, and then itself.
func (w *worker) stop(m stopMode) {
	if w.set.cfg.Portable {
		w.exec.Lock()
		w.stopAll()
		w.exec.Unlock()
		return
	}
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	if w.inbox.gone {
		return
	}
	w.inbox.stop = max(w.inbox.stop, m)
	w.poller.wake()
}

func (b *inbox) empty() bool {
	return len(b.conns) == 0 && len(b.barriers) == 0 && !b.tick
}

// mail is one emptying of the inbox. Its slices are used again.
type mail struct {
	conns    []*Conn
	barriers []*barrier
	tick     bool
	stop     stopMode
}

// take exchanges the inbox's slices for those of the last mail.
func (w *worker) take(m *mail) {
	clear(m.conns)
	clear(m.barriers)
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.conns, m.conns = m.conns[:0], w.inbox.conns
	w.inbox.barriers, m.barriers = m.barriers[:0], w.inbox.barriers
	m.tick, w.inbox.tick = w.inbox.tick, false
	m.stop = w.inbox.stop
}

// leave closes the inbox if nothing is in it and nothing is served.
func (w *worker) leave() bool {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	if !w.inbox.empty() || w.live.Load() > 0 {
		return false
	}
	w.inbox.gone = true
	return true
}
