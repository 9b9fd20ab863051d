package native

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// present is the word for what a snapshot shows.
const present = "present"

// selection is what a watch is about, and how far its snapshot has come. One watch
// alone has it.
type selection struct {
	after    incumbent.Index  // 0: begin with a snapshot
	catchUp  bool             // where the history back to it is gone, begin anew
	changes  bool             // the snapshot is of what has changed, not of all there is
	selected []watch.Selector // events that one of them picks
	form     form
	records  records
	begun    bool       // the snapshot has
	shownBy  *string    // the key of the sight by which its client was told of a prefix; nil: it has not been
	by       auth.Sight // it, by rights that are the same until a policy changes

	who    *caller
	action auth.Action
	about  incumbent.Name // a name, or (prefix) how names begin
	prefix bool
}

// sight is what its caller may be shown by the policies of now, and makes the form
// show no session to who may not see all: not even his own, for events are encoded
// once for all who are shown the same. The error is Denied: nothing that is selected,
// any more.
func (s *selection) sight(d *Door) (auth.Sight, error) {
	g := d.rights(s.who)
	sight := g.Sight(s.action)
	s.form.hides = !g.Sight(auth.SessionRead).All()
	if s.prefix {
		return sight, sight.SeesAny(s.about)
	}
	return sight, auth.Authorize(g, s.action, auth.Resource{Name: s.about})
}

// anotherSight reports whether a client that catches up has to be shown anew all that is
// below its prefix, for it was told by another sight than this one, perhaps by another
// watch from which it resumes: of what it may see now nothing may have been told, and what it
// was told of it may not see any more. Nothing is said by this sight before it is asked.
func (s *selection) anotherSight(d *Door, sight auth.Sight) bool {
	if !s.catchUp || !s.prefix || s.shownBy != nil && s.by == sight {
		return false
	}
	s.by = sight
	key, before := sight.Within(s.about).Key(), s.shownBy
	s.shownBy = &key
	if before == nil { // by which sight the watch before this one has told it of, nobody knows
		return s.after > 0 && policy.Of(d.view()).Changed() > s.after
	}
	return key != *before
}

// errAnotherSight is why a watch that catches up begins anew, with all there is.
func errAnotherSight() error {
	return incumbent.Errorf(incumbent.Compacted, "what the caller may see has changed")
}

// seen leaves of events those that may be shown. Those of one name may be, all or
// none of them: see sight.
func (s *selection) seen(sight auth.Sight, events []*watch.Event) []*watch.Event {
	if !s.prefix || sight.All() {
		return events
	}
	return slices.DeleteFunc(events, func(e *watch.Event) bool { return !sight.Sees(nameOfEvent(e)) })
}

// nameOfEvent is the name of what has changed, for policies.
func nameOfEvent(e *watch.Event) incumbent.Name {
	f := changeOf(e).Family
	n := incumbent.Name{Namespace: f.Topic.Scope[0], Lease: f.Topic.Name}
	if f.Family == leases.Number {
		n.Model = f.Topic.Scope[1]
	}
	return n
}

// records are what a snapshot shows, a piece at a time.
type records interface {
	// begin goes back to the beginning, of what has changed after an index if the view
	// says what that is, or (0) of all there is. It reports which of both.
	begin(v *core.View, after incumbent.Index) (changes bool)
	// next takes what comes behind the last piece into the room, as events, and
	// reports whether there may be more. What may not be seen is left out.
	next(f *former, r *room, sight auth.Sight) (events []proto.Message, more bool)
}

// restart has the watch begin anew at a view, which is confirmed: with what has changed
// after an index, where the view says that.
func (s *selection) restart(v *core.View, after incumbent.Index) {
	if after > v.Index() || !core.SameHistory(after, v.Index()) {
		after = 0 // what was there then may have been lost
	}
	s.begun, s.changes = false, s.records.begin(v, after)
}

// snapshot takes the next piece of what matches in a view.
func (s *selection) snapshot(f *former, may auth.Sight) *piece {
	f.sight = sight{all: !s.form.hides}
	events, more := s.records.next(f, &room{left: pullEvents, bytes: pullBytes}, may)
	p := &piece{door: f.d, form: s.form, shown: events, mark: mark{snapshot: !s.changes, more: more, first: !s.changes && !s.begun}}
	if s.begun = true; !more {
		p.mark.progress = f.view.Index()
	}
	return p
}

// leaseRecords are the leases of a name, or of those that begin with it.
type leaseRecords struct {
	name   incumbent.Name
	prefix bool
	at     incumbent.Name // the last that was looked at
	same   bool           // nothing has changed
}

// begin knows no more than that one lease is as it was: of those that are gone nothing
// is kept.
func (s *leaseRecords) begin(v *core.View, after incumbent.Index) (changes bool) {
	l := leases.Of(v).Lease(s.name)
	s.at, s.same = incumbent.Name{}, !s.prefix && after > 0 && l != nil && l.Modified <= after
	return s.same
}

// selectLeases checks what a caller wants to watch.
func (d *Door) selectLeases(who *caller, r *pb.WatchRequest) (*selection, error) {
	if r.GetName() == nil {
		return nil, invalid("name", "is missing")
	}
	name := inScope(r.Name)
	name.Lease = r.Name.Name
	check := name
	if r.Prefix && check.Lease == "" {
		check.Lease = "any" // the prefix may be empty, namespace and model may not be wrong
	}
	if err := check.Validate(); err != nil {
		return nil, inField("name", err)
	}
	selected, err := selectorOf(engine.FamilyTopic(leases.Number, leases.TopicOf(name)), r.Prefix, r.Fields)
	if err != nil {
		return nil, err
	}
	sel := &selection{
		after: incumbent.Index(r.AfterIndex), catchUp: r.CatchUp, who: who, action: calls.WatchLeases.Action(), about: name, prefix: r.Prefix, selected: []watch.Selector{selected},
		form: form{answer: fieldWatch}, records: &leaseRecords{name: name, prefix: r.Prefix},
	}
	_, err = sel.sight(d)
	return sel, err
}

// selectorOf selects one topic, or those whose names begin with its name, and of their
// changes those of the fields, if any are named.
func selectorOf(t watch.Topic, prefix bool, fields []string) (watch.Selector, error) {
	if len(fields) > maxFields {
		return watch.Selector{}, invalid("fields", "are %d, limit is %d", len(fields), maxFields)
	}
	s := watch.Exact(t)
	if prefix {
		s = watch.Prefix(t.Kind, t.Scope, t.Name)
	}
	s, err := engine.Changing(s, t.Kind, fields)
	if err != nil {
		return watch.Selector{}, inField("fields", err)
	}
	return s, nil
}

// next shows the leases that are held.
func (s *leaseRecords) next(f *former, room *room, sight auth.Sight) (out []proto.Message, more bool) {
	take := func(l *leases.Lease) {
		e := &pb.LeaseEvent{Index: uint64(l.Modified), What: present, Lease: f.lease(l), PreviousHolder: l.PreviousHolder}
		room.use(e)
		out = append(out, e)
	}
	if s.same {
		return nil, false
	}
	if !s.prefix {
		if l := leases.Of(f.view).Lease(s.name); !l.Free() && sight.Sees(s.name) {
			take(l)
		}
		return out, false
	}
	looked := 0
	leases.Of(f.view).Below(s.name.Namespace, s.name.Model, s.name.Lease, s.at, func(l *leases.Lease) bool {
		if room.full() || looked == ScanSlice {
			more = true
			return false
		}
		looked++
		s.at = l.Name
		if !l.Free() && sight.Sees(l.Name) {
			take(l)
		}
		return true
	})
	return out, more
}

// eventsOf writes a change as a form has it; nil for one that says nothing to a watcher.
func (f *former) eventsOf(e *watch.Event, as form) []proto.Message {
	c := changeOf(e)
	var m proto.Message
	switch c.Family.Family {
	case leases.Number:
		m = f.leaseEvent(c)
	case catalog.Number:
		return f.catalogEvents(c)
	case table.Number:
		m = f.tableEvent(c, as.pick)
	default:
		m = f.keyEvent(c, as.values)
	}
	if m == nil {
		return nil
	}
	return []proto.Message{m}
}

func (f *former) leaseEvent(of *core.Change) proto.Message {
	c, _ := leases.ChangeOf(of)
	out := &pb.LeaseEvent{Index: uint64(c.Index), What: c.What.String(), Lease: f.lease(c.Lease)}
	if b := c.LeaseBefore; b != nil {
		out.PreviousHolder, out.PreviousToken = b.Holder, uint64(b.Token)
	}
	return out
}

// Watch sends a snapshot or resumes, then sends changes until the caller goes.
func (s leaseService) Watch(ctx context.Context, r *connect.Request[pb.WatchRequest], out *connect.ServerStream[pb.WatchResponse]) error {
	sel, err := s.d.selectLeases(callerOf(ctx), r.Msg)
	return s.d.watch(ctx, sel, err, out.Conn())
}

// watch serves a call that watches, unless its selection was refused.
func (d *Door) watch(ctx context.Context, sel *selection, refusal error, out connect.StreamingHandlerConn) error {
	err := refusal
	if err == nil {
		err = d.watchSelected(ctx, sel, out.Send)
	}
	if err != nil {
		return d.callError(err)
	}
	return nil
}

func (d *Door) watchSelected(ctx context.Context, sel *selection, send func(any) error) error {
	ctx, stop := d.untilDrained(ctx)
	defer stop()
	open, err := d.tally.Take(settings.OpenWatches, sel.who.principal, "")
	if err != nil {
		return err
	}
	defer open.Give()
	done, err := d.admit(ctx, calls.WatchLeases.Lane(), 1)
	if err != nil {
		return err
	}
	begun := sync.OnceFunc(done) // how long sending takes is its client's affair
	defer begun()
	for from := sel.after; ; {
		if from > 0 {
			if err = d.awaitIndex(ctx, from); err == nil {
				begun()
				from, err = d.follow(ctx, sel, from, send)
			}
			if !sel.catchUp || incumbent.KindOf(err) != incumbent.Compacted {
				return err
			}
		}
		if from, err = d.sendSnapshot(ctx, sel, from, begun, send); err != nil {
			return err
		}
	}
}

// sendSnapshot sends what matches in a confirmed state, or of that what has changed
// after an index, and returns the index of the state. It calls begun once that is confirmed.
func (d *Door) sendSnapshot(ctx context.Context, sel *selection, after incumbent.Index, begun func(), send func(any) error) (incumbent.Index, error) {
	err := d.confirmed(ctx)
	begun()
	if err != nil {
		return 0, err
	}
	f := d.former(nil)
	sel.restart(f.view, after)
	for more := true; more; {
		sight, err := sel.sight(d)
		if err != nil {
			return 0, err
		}
		if sel.anotherSight(d, sight) {
			f = d.former(nil) // no older than the one that was confirmed
			sel.restart(f.view, 0)
			continue
		}
		p := sel.snapshot(f, sight)
		if err := send(p); err != nil {
			return 0, err
		}
		more = p.mark.more
	}
	return f.view.Index(), nil
}

// awaitIndex returns at once for an index this member has published. For a later
// one it asks what the cluster has: of what exists there this member has heard by
// the time of the answer.
func (d *Door) awaitIndex(ctx context.Context, i incumbent.Index) error {
	if i <= d.hub.Index() {
		return nil
	}
	if err := d.confirmed(ctx); err != nil {
		return err
	}
	return exists(i, d.view())
}

// exists returns Compacted, the kind that has clients start over, for an index
// that a confirmed view has not come to: waiting would be in vain, or until
// indexes of another history reach it.
func exists(i incumbent.Index, confirmed *core.View) error {
	if at := confirmed.Index(); i > at {
		return incumbent.Errorf(incumbent.Compacted, "index %d does not exist yet, the cluster is at %d", i, at).
			WithHint("the index is of another cluster or of a state that was lost: read the current state, then watch from its index")
	}
	return nil
}

// follow sends what happens after an index, and where nothing does, how far
// that is certain: also when that is no further than before, for clients take a watch
// that is silent for longer than that for a member that stands still. It returns how far
// all was sent when it ended.
func (d *Door) follow(ctx context.Context, sel *selection, from incumbent.Index, send func(any) error) (said incumbent.Index, err error) {
	woken := make(chan struct{}, 1)
	reader, err := d.hub.Subscribe(from, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}, sel.selected...)
	if err != nil {
		return from, err
	}
	defer reader.Close()
	tick := time.NewTicker(d.progressEvery)
	defer tick.Stop()
	var buf []*watch.Event
	partly := false // what was sent last may not be all of its index: the caller holds it back
	due := false    // it is to be said how far all is certain
	for said = from; ; {
		changed := d.rulesChanged()
		batch, err := reader.Pull(buf[:0], pullEvents, pullBytes)
		if err == nil {
			err = sel.anotherSchema(batch.Events)
		}
		if err != nil {
			return said, err
		}
		mark := due && !batch.More
		if mark {
			batch.Progress = reader.Progress()
		}
		sight, err := sel.sight(d) // by policies no older than the events and the progress
		if err != nil {
			return said, err
		}
		if sel.anotherSight(d, sight) {
			return 0, errAnotherSight()
		}
		buf = batch.Events
		batch.Events = sel.seen(sight, batch.Events)
		if len(batch.Events) > 0 || mark || partly && batch.Progress > said {
			said, partly, due = batch.Progress, !batch.Whole(), false
			if err := send(d.piece(sel.form, batch)); err != nil {
				return said, err
			}
			clear(buf) // history may be done with them
			tick.Reset(d.progressEvery)
		}
		if batch.More {
			continue
		}
		select {
		case <-woken:
		case <-changed:
		case <-tick.C:
			due = true
		case <-ctx.Done():
			return said, context.Cause(ctx)
		}
	}
}
