package ovsdb

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/watch"
)

// feed hands on what changes in a database, in the order of indexes, to all monitors of
// it, and has done at its place in that order what is to be done behind a change: so a
// monitor begins with the state of one index, and a transaction is answered when its
// client has been told of what it has changed.
//
// A feed belongs to its tasks, of which one runs at a time.
type feed struct {
	door *Door
	name string
	cid  ovs.UUID // of the database in its cluster

	mu    sync.Mutex // guards tasks; held to change them
	tasks taskList

	reader   *watch.Reader // nil: nobody follows
	events   []*watch.Event
	reached  incumbent.Index // all that was changed up to it has been handed on
	jobs     []job           // by index
	rules    *auth.Rules     // that its monitors were judged by; nil: there were none
	shape    *shape          // of the schema that monitors are of; nil: there is none
	matcher  matcher
	groups   map[string]*group
	waits    map[*txn][]int          // transactions that wait for a change, and of which tables
	touched  map[int]incumbent.Index // when tables were last changed since it is followed
	remade   incumbent.Index         // when all of them were: the database got another schema
	looking  bool                    // a pull is to come by the clock
	told     told                    // what has been handed on
	catching *catchUp                // nothing is pulled until it is done; nil: nothing was lost
	gaps     int                     // how often changes were lost
}

// job is what is to be done once all has been handed on up to an index.
type job struct {
	at  incumbent.Index
	run func()
}

// feeds are those of a door's databases.
type feeds struct {
	door *Door

	mu     sync.Mutex // guards the rest; held to look one up
	byName map[string]*feed
	server *serverDatabase
}

func (f *feeds) init(d *Door) {
	f.door, f.byName, f.server = d, map[string]*feed{}, newServerDatabase(d)
}

// of is the feed of a database that is there.
func (f *feeds) of(name string) *feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.byName[name]; x != nil {
		return x
	}
	name = strings.Clone(name) // it is part of a message
	x := &feed{door: f.door, name: name, cid: uuidFor(f.door.cfg.Standing().Cluster, name), groups: map[string]*group{}, waits: map[*txn][]int{}, touched: map[int]incumbent.Index{}}
	f.byName[name] = x
	return x
}

// shared is the id of a transaction as clients know it on all members of the cluster, or of
// what clients say the id here. Ids follow from the log's index: as they are, who has seen
// a change of another cluster, which was here before, would resume behind one of this.
func (f *feed) shared(txn ovs.UUID) ovs.UUID {
	for i := range len(txn) / 2 { // the second half is the index
		txn[i] ^= f.cid[i]
	}
	return txn
}

func (f *feeds) all() []*feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*feed
	for _, x := range f.byName {
		out = append(out, x)
	}
	return out
}

// tick has done what is done again and again.
func (f *feeds) tick() {
	f.server.tick()
}

// close ends what the feeds follow.
func (f *feeds) close() {
	for _, x := range f.all() {
		x.do(x.stop)
	}
}

func (f *feed) do(task func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tasks.add(task) {
		f.door.work.Put(f.run)
	}
}

func (f *feed) run() {
	if f.tasks.run(&f.mu) {
		f.door.work.Put(f.run)
	}
}

// follow begins to follow the database, if that is not done.
func (f *feed) follow() error {
	if f.reader != nil {
		return nil
	}
	is := f.shown()
	r, err := f.subscribe(is.at)
	if err != nil {
		return err
	}
	f.reader, f.reached, f.told, f.catching = r, is.at, told{state: is}, nil
	f.remade = max(f.remade, is.at) // what was changed before is not known
	f.do(f.pull)
	return nil
}

// pull hands on what has been changed since.
func (f *feed) pull() {
	if f.reader == nil || f.catching != nil {
		return
	}
	if f.told.next == nil {
		is := f.shown()
		f.told.next = &is
	}
	batch, err := f.reader.Pull(f.events[:0], pullEvents, pullBytes)
	if err != nil {
		f.missed(err)
		return
	}
	f.rejudge() // the view shows all of these, and the policies before them
	for _, e := range batch.Events {
		f.runJobs(e.Index - 1)
		if c, ok := changeIn(e); ok {
			f.changed(e.Index, c)
			f.told.note(e.Index, c)
		}
	}
	f.reached = max(f.reached, batch.Progress)
	f.told.reach(f.reached)
	f.runJobs(f.reached)
	f.events = batch.Events
	clear(f.events)
	switch {
	case batch.More:
		f.do(f.pull)
	case (len(f.jobs) > 0 || f.told.next != nil) && !f.looking:
		// A view is shown a moment before it is published, and nobody is woken for an index
		// that changed nothing here. Until then an older state is kept.
		f.looking = true
		time.AfterFunc(pullAgain, func() {
			f.do(func() {
				f.looking = false
				f.pull()
			})
		})
	}
}

// when has something done once all has been handed on up to an index.
func (f *feed) when(at incumbent.Index, run func()) {
	if err := f.follow(); err != nil || f.reached >= at { // without a hub nobody is told of anything
		run()
		return
	}
	i, _ := slices.BinarySearchFunc(f.jobs, at+1, func(j job, at incumbent.Index) int {
		if j.at < at {
			return -1
		}
		return 1
	})
	f.jobs = slices.Insert(f.jobs, i, job{at, run})
	if len(f.jobs) == 1 { // else somebody looks already
		f.do(f.pull)
	}
}

func (f *feed) runJobs(upTo incumbent.Index) {
	n := 0
	for n < len(f.jobs) && f.jobs[n].at <= upTo {
		f.jobs[n].run()
		n++
	}
	if n > 0 {
		f.jobs = slices.Delete(f.jobs, 0, n)
	}
}

// now has something done with the newest state, once all has been handed on that it
// shows; nil: there is no such database.
func (f *feed) now(run func(contents)) {
	if f.name == serverName {
		f.door.feeds.server.update(f)
		run(serverContents{f.door.feeds.server})
		return
	}
	// Who begins with a state is told of all that follows on it: the database is followed
	// before the state is taken, and still is when its turn comes.
	if err := f.follow(); err != nil && incumbent.KindOf(err) != incumbent.Unavailable { // else the member ends
		time.AfterFunc(maxRetry, func() { f.do(func() { f.now(run) }) })
		return
	}
	v, gaps := f.door.view(), f.gaps
	f.when(v.Index(), func() {
		if f.gaps != gaps {
			f.now(run)
			return
		}
		run(f.door.contentsOf(v, f.name))
	})
}

// lost ends all monitors: what they were to be told is gone, and the database is another.
// Their clients connect anew.
func (f *feed) lost(err error) {
	f.reader.Close()
	f.reader = nil
	if incumbent.KindOf(err) != incumbent.Compacted {
		return // the hub is closed, and the member ends
	}
	f.gaps++
	f.cancel(func(m *monitor) { m.conn.cut(err) })
	jobs := f.jobs
	f.jobs = nil
	for _, j := range jobs {
		j.run()
	}
	f.retryAll()
}

// stop lets go of the hub.
func (f *feed) stop() {
	if f.reader != nil {
		f.reader.Close()
		f.reader = nil
	}
}

// changed hands a change on.
func (f *feed) changed(at incumbent.Index, c *change) {
	if c.converted {
		f.remade = at
		clear(f.touched) // the tables have other numbers
		f.converted()
		return
	}
	f.matcher.match(c)
	f.noteChange(at, c)
}

// converted ends all monitors: the database has another schema, or none.
func (f *feed) converted() {
	f.cancel(func(m *monitor) { m.conn.do(m.canceled) })
	f.retryAll()
}

// cancel forgets all monitors.
func (f *feed) cancel(tell func(*monitor)) {
	groups := f.groups
	f.groups, f.shape, f.matcher = map[string]*group{}, nil, matcher{}
	for _, g := range groups {
		for _, m := range g.members.list {
			m.group = nil
			_ = m.keeps(nil)
			f.door.counts.monitors.Add(-1)
			tell(m)
		}
	}
}

// shapeOf is that of the database's schema in a state.
func (f *feed) shapeOf(state contents) *shape {
	s := state.Schema()
	if f.shape == nil || string(f.shape.schema.JSON) != string(s.JSON) {
		f.shape = newShape(s)
		f.matcher.init(f.shape)
	}
	f.shape.schema = s // of a snapshot it is a copy
	return f.shape
}

// shape is what is made of a schema once for all who are told of its tables.
type shape struct {
	schema *ovs.Schema
	tables [][]byte   // their names, as members of an object: "name":
	column [][][]byte // the same of their columns
}

func newShape(s *ovs.Schema) *shape {
	x := &shape{schema: s}
	for i := range s.Tables {
		t := s.Tables[i]
		x.tables = append(x.tables, append(quoted(t.Name), ':'))
		var columns [][]byte
		for k := range t.Columns {
			columns = append(columns, append(quoted(t.Columns[k].Name), ':'))
		}
		x.column = append(x.column, columns)
	}
	return x
}
