package native

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/watch"
)

// streamWatch is a watch on a stream: a cursor into the hub's history, moved
// by one of the door's pumps whenever there is something to send.
//
//	hub: wake ─┐
//	door: tick ┼─▶ kick ─▶ queue ─▶ pump: run ─▶ Pull ─▶ Send(head, shared events …)
//	close ─────┘
//
// A reader that does not keep up is left alone (its cursor stays) until its
// connection has sent what it has; if history moves past the cursor
// meanwhile, it is cut off with Compacted and the index to resume from.
type streamWatch struct {
	s   *stream
	id  uint64
	sel *selection

	state  atomic.Uint32 // of the pumps: idle, queued, running, or running and wanted again
	closed atomic.Bool
	start  atomic.Pointer[former] // the confirmed state, on its way to a pump
	silent atomic.Bool            // nothing was sent since the last round
	paused atomic.Bool            // until the connection has sent what is queued
	slot   int                    // in door.watches, which it is in from the beginning, under its mutex; -1 once out of it
	place  tally.Place            // among what its principal has open; under that mutex, too

	// Of the pump that runs it; the state keeps others out.
	reader *watch.Reader
	shown  *former // of the snapshot; nil once it was sent
	begun  bool    // sel.after is the index to follow after, and exists
	anew   bool    // the history has nothing for it any more
	fresh  bool    // following, and nothing said yet
	partly bool    // what was sent last may not be all of its index: the client holds it back
	said   incumbent.Index
}

// States of a streamWatch.
const (
	watchIdle uint32 = iota
	watchQueued
	watchRunning
	watchAgain
)

// watch opens a watch that the frame's id names, unless its selection was refused. Its place
// is given back by the caller if there is an error.
func (s *stream) watch(place admit.Place, id uint64, sel *selection, refusal error) error {
	if id == 0 {
		return invalid("id", "is 0; a watch is answered under its id")
	}
	if refusal != nil {
		return refusal
	}
	open, err := s.door.tally.Take(settings.OpenWatches, s.who.principal, "")
	if err != nil {
		return err
	}
	resumes := sel.after != 0
	known := resumes && sel.after <= s.door.hub.Index()
	w := &streamWatch{s: s, id: id, sel: sel, said: sel.after, begun: known, fresh: resumes, place: open}
	if ok, err := s.keepWatch(w); !ok {
		open.Give()
		if err == nil {
			place.Drop()
		}
		return err
	}
	if known { // it goes on by what is kept of the changes
		place.Drop()
		w.kick()
		return nil
	}
	w.awaitState(place.Leave)
	return nil
}

// keepWatch notes a watch of the stream and of the door at once: what begins after it has
// waited in line does so beside the stream's own worker, which may end it from then on.
// false, and no error: the stream has ended.
func (s *stream) keepWatch(w *streamWatch) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false, nil
	}
	o := s.others()
	if err := o.room(w.id, len(o.watches), MaxWatchesPerStream, "watches"); err != nil {
		return false, err
	}
	o.watches[w.id] = w
	s.door.watches.add(w)
	return true, nil
}

// unwatch ends a watch at its client's wish.
func (s *stream) unwatch(id, watched uint64) error {
	if !s.endWatch(watched) {
		return incumbent.Errorf(incumbent.NotFound, "no watch %d is open on this stream", watched)
	}
	s.done(id)
	return nil
}

// endWatch ends a watch, also one that waits in line. false: there is none of that id.
func (s *stream) endWatch(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return false
	}
	if w := s.open.watches[id]; w != nil {
		delete(s.open.watches, id)
		w.close()
		return true
	}
	i := slices.IndexFunc(s.open.inLine, func(w *waitingFrame) bool { return w.id == id && !w.starts() })
	if i < 0 {
		return false
	}
	s.open.inLine[i].givenUp.Store(true)
	return true
}

// kick has a pump look at the watch. It may be called from anywhere.
func (w *streamWatch) kick() {
	for {
		switch st := w.state.Load(); st {
		case watchQueued, watchAgain:
			return
		case watchIdle:
			if w.state.CompareAndSwap(watchIdle, watchQueued) {
				w.s.door.pumps.Put(w)
				return
			}
		case watchRunning:
			if w.state.CompareAndSwap(watchRunning, watchAgain) {
				return
			}
		}
	}
}

// close ends the watch; a pump closes its reader.
func (w *streamWatch) close() {
	if !w.closed.Swap(true) {
		w.kick()
	}
}

// fail tells the client why the watch has ended, and ends it.
func (w *streamWatch) fail(err error) {
	s := w.s
	s.mu.Lock()
	is := s.open != nil && s.open.watches[w.id] == w
	if is {
		delete(s.open.watches, w.id)
	}
	s.mu.Unlock()
	if is { // else its client has ended it, and may have begun another of that id
		s.refuse(w.id, err)
	}
	w.close()
}

// pump is the life of one of the goroutines that write events.
func (d *Door) pump() {
	var got []*streamWatch
	var p pumping
	for {
		got = d.pumps.Take(got, 16)
		if len(got) == 0 {
			return
		}
		for _, w := range got {
			w.state.Store(watchRunning)
			again := w.run(&p)
			if w.state.CompareAndSwap(watchRunning, watchIdle) {
				if again {
					w.kick()
				}
				continue
			}
			w.state.Store(watchQueued)
			d.pumps.Put(w)
		}
		runtime.Gosched() // thousands may be woken at once: whoever applies comes first
	}
}

// pumping is memory that a pump uses again.
type pumping struct {
	events []*watch.Event
	bufs   [][]byte
}

// run makes one bounded step and reports whether there is another one.
func (w *streamWatch) run(p *pumping) (again bool) {
	if w.closed.Load() {
		w.end()
		return false
	}
	if w.pause() {
		return false
	}
	if err := w.begin(); err != nil {
		w.fail(err)
		return false
	}
	sight, err := w.sel.sight(w.s.door)
	if err != nil {
		w.fail(err)
		return false
	}
	if w.shown != nil {
		if !w.showAnew(sight) {
			w.snapshot(p, sight)
		}
		return true
	}
	if w.reader == nil {
		if !w.begun {
			return false // the state is not confirmed yet
		}
		if err := w.subscribe(); err != nil {
			w.behind(err)
			return false
		}
	}
	batch, err := w.reader.Pull(p.events[:0], pullEvents, pullBytes)
	if err == nil {
		p.events = batch.Events
		err = w.sel.anotherSchema(batch.Events)
	}
	if err != nil {
		w.behind(err)
		return false
	}
	if !batch.More {
		batch.Progress = w.reader.Progress()
	}
	if sight, err = w.sel.sight(w.s.door); err != nil { // by policies no older than the events and the progress
		clear(p.events)
		w.fail(err)
		return false
	}
	if w.showAnew(sight) {
		clear(p.events)
		return true
	}
	batch.Events = w.sel.seen(sight, batch.Events)
	if len(batch.Events) > 0 || w.fresh || batch.Progress > w.said && (w.partly || w.silent.Load()) {
		err = w.send(p, batch)
	}
	clear(p.events)
	if err != nil {
		w.behind(err)
		return false
	}
	return batch.More
}

// pause reports whether the watch has to wait for its connection, which then
// kicks it.
func (w *streamWatch) pause() bool {
	if w.paused.Load() {
		return true
	}
	c := w.s.conn.Load()
	if c.Queued() <= MaxWatchBacklog {
		return false
	}
	w.paused.Store(true)
	if c.WhenDrained(w.resume) {
		return true
	}
	w.paused.Store(false)
	return false
}

// resume is called once the connection has nothing queued.
func (w *streamWatch) resume() {
	w.paused.Store(false)
	w.kick()
}

// begin takes the confirmed state, once it is there: to show it, or to see that
// the index to resume after exists.
func (w *streamWatch) begin() error {
	f := w.start.Swap(nil)
	switch {
	case f == nil:
		return nil
	case w.sel.after == 0 || w.anew:
		w.restart(f)
		return nil
	}
	err := exists(w.sel.after, f.view)
	if err != nil && w.sel.catchUp {
		w.restart(f)
		return nil
	}
	w.begun = true
	return err
}

// restart has a confirmed state shown, as far as it is not known to the client.
func (w *streamWatch) restart(f *former) {
	w.sel.restart(f.view, w.said)
	w.shown, w.anew = f, false
}

// showAnew has all there is shown, if that is to be done for a sight: see
// [selection.anotherSight]. The state is this member's, as are the changes that it tells of.
func (w *streamWatch) showAnew(sight auth.Sight) bool {
	if !w.sel.anotherSight(w.s.door, sight) {
		return false
	}
	w.unsubscribe()
	w.said = 0
	w.restart(w.s.door.former(nil))
	return true
}

// behind ends a watch that the history has nothing for any more, or begins it anew.
func (w *streamWatch) behind(err error) {
	if !w.sel.catchUp || incumbent.KindOf(err) != incumbent.Compacted {
		w.fail(err)
		return
	}
	w.unsubscribe()
	w.begun, w.anew = false, true
	w.awaitState(func() {})
}

// awaitState has a pump begin with a state that is confirmed from now on.
func (w *streamWatch) awaitState(confirmed func()) {
	d := w.s.door
	d.confirm(func(err error) {
		d.work.Put(func() {
			confirmed()
			if err != nil {
				w.fail(err)
				return
			}
			w.start.Store(d.former(nil))
			w.kick()
		})
	})
}

func (w *streamWatch) subscribe() error {
	r, err := w.s.door.hub.Subscribe(w.sel.after, w.kick, w.sel.selected...)
	w.reader = r
	return err
}

func (w *streamWatch) unsubscribe() {
	if w.reader != nil {
		w.reader.Close()
		w.reader = nil
	}
}

// snapshot sends a slice of what is there; the changes after it follow.
func (w *streamWatch) snapshot(p *pumping, sight auth.Sight) {
	shown := w.sel.snapshot(w.shown, sight)
	var b []byte
	for _, m := range shown.shown {
		b = appendEvent(b, m)
	}
	if !shown.mark.more {
		at := shown.mark.progress
		w.sel.after, w.said, w.shown, w.begun, w.fresh, w.partly = at, at, nil, true, false, false
	}
	w.emit(p, append(p.bufs[:0], watchFrame(w.id, w.sel.form.answer, len(b), shown.mark), b))
}

// send sends events in the bytes that all streams share. It sends none if one is larger
// than a stream carries, as that of a transaction on tables may be: with catching up the
// kind is Compacted, for the state has the same in pieces, else it is TooLarge.
func (w *streamWatch) send(p *pumping, batch watch.Batch) error {
	bufs, size := append(p.bufs[:0], nil), 0
	for _, e := range batch.Events {
		b := w.s.door.encodedEvent(w.sel.form, e)
		if len(b) > maxStreamEvent && w.sel.form.pick != nil {
			clear(bufs)
			return w.tooLarge(e, len(b))
		}
		if len(b) > 0 {
			bufs = append(bufs, b)
			size += len(b)
		}
	}
	w.said, w.fresh, w.partly = batch.Progress, false, !batch.Whole()
	bufs[0] = watchFrame(w.id, w.sel.form.answer, size, mark{progress: batch.Progress, more: !batch.Whole()})
	w.emit(p, bufs)
	return nil
}

func (w *streamWatch) tooLarge(e *watch.Event, size int) error {
	kind := incumbent.TooLarge
	if w.sel.catchUp {
		kind = incumbent.Compacted
	}
	return incumbent.Errorf(kind, "the change at index %d has %d bytes, a stream carries %d", e.Index, size, maxStreamEvent).
		WithHint("watch fewer columns or rows, by catch_up, or by the call TableService.Watch")
}

func (w *streamWatch) emit(p *pumping, bufs [][]byte) {
	w.silent.Store(false)
	_ = w.s.conn.Load().Send(bufs...) // if it has ended, Closed follows
	clear(bufs)
	p.bufs = bufs
}

// end gives the reader up.
func (w *streamWatch) end() {
	w.unsubscribe()
	w.s.door.watches.remove(w)
}

// watchSet is all watches on streams. In every round each is looked at once:
// those to whom nothing was said since the last round are told how far that is
// certain.
type watchSet struct {
	mu   sync.Mutex // guards the rest; held for a slice of the list; taken while a stream's is held
	list []*streamWatch
	at   int
}

func (l *watchSet) add(w *streamWatch) {
	l.mu.Lock()
	w.slot = len(l.list)
	l.list = append(l.list, w)
	l.mu.Unlock()
}

func (l *watchSet) remove(w *streamWatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.slot < 0 {
		return
	}
	last := len(l.list) - 1
	l.list[w.slot] = l.list[last]
	l.list[w.slot].slot = w.slot
	l.list[last] = nil
	l.list = l.list[:last]
	w.slot = -1
	w.place.Give()
}

func (l *watchSet) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// abandon closes the readers of watches whose streams are still open. The pumps
// have ended.
func (l *watchSet) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.list {
		w.unsubscribe()
	}
}

// kickAll has pumps look at all: what they may show has changed.
func (l *watchSet) kickAll() {
	l.mu.Lock()
	all := slices.Clone(l.list)
	l.mu.Unlock()
	for _, w := range all {
		w.kick()
	}
}

// tick kicks a 1/rounds of all, those that were silent.
func (l *watchSet) tick(buf []*streamWatch, rounds int) []*streamWatch {
	buf = buf[:0]
	l.mu.Lock()
	for range (len(l.list) + rounds - 1) / rounds {
		if l.at >= len(l.list) {
			l.at = 0
		}
		if w := l.list[l.at]; w.silent.Swap(true) {
			buf = append(buf, w)
		}
		l.at++
	}
	l.mu.Unlock()
	for _, w := range buf {
		w.kick()
	}
	return buf
}
