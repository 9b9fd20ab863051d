package native

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/watch"
)

// Offers are selected among the changes of all leases by one reader of the hub for
// the whole door; for each there is one look-up of the stream that its session
// is attached to. An idle stream costs nothing for it, nor does another change.

// offerReader is that reader. One goroutine runs it.
type offerReader struct {
	d      *Door
	reader *watch.Reader
	woken  chan struct{}
	events []*watch.Event
}

// watchOffers follows the leases that are offered until the door closes.
func (d *Door) watchOffers() {
	o := &offerReader{d: d, woken: make(chan struct{}, 1)}
	for o.follow() {
	}
	if o.reader != nil {
		o.reader.Close()
	}
}

// follow reads until there is no more, then waits. It returns false when the
// door or the hub closes.
func (o *offerReader) follow() bool {
	if o.reader == nil {
		if err := o.subscribe(); err != nil {
			return o.retry(err)
		}
	}
	batch, err := o.reader.Pull(o.events[:0], pullEvents, pullBytes)
	if err != nil {
		o.reader.Close()
		o.reader = nil
		return o.retry(err)
	}
	o.events = batch.Events
	for _, e := range batch.Events {
		if c, _ := leases.ChangeOf(changeOf(e)); c.Lease != nil && c.What == leases.Offered {
			o.d.offer(c.Lease)
		}
	}
	clear(o.events)
	if batch.More {
		return true
	}
	select {
	case <-o.woken:
		return true
	case <-o.d.closing:
		return false
	}
}

// retry reports, after a while, whether there is sense in another attempt.
func (o *offerReader) retry(err error) bool {
	if incumbent.KindOf(err) == incumbent.Unavailable {
		return false // the hub is closed
	}
	t := time.NewTimer(tickEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-o.d.closing:
		return false
	}
}

// subscribe begins at the present, or anew when history was lost, as with a snapshot of the
// leader's: offers of meanwhile may be over, and places in line with them. So whoever may wait
// is sent away; what they have and wait for comes with the next stream. A session may stand in
// line, or be offered a lease, by what another member was asked for: the state says so.
func (o *offerReader) subscribe() error {
	from := o.d.hub.Index()
	r, err := o.d.hub.Subscribe(from, func() {
		select {
		case o.woken <- struct{}{}:
		default:
		}
	}, watch.All(watch.Kind(leases.Number)).Where(leases.FieldOffered, "true"))
	if err != nil {
		return err
	}
	o.reader = r
	o.d.owners.waiting(o.d.expects, func(s *stream) { s.goAway("offers may have been missed") })
	return nil
}

// expects reports whether a session stands in line, or is offered a lease.
func (d *Door) expects(id incumbent.SessionID) (yes bool) {
	of := leases.Of(d.view())
	of.OfSession(id, func(l *leases.Lease) bool {
		yes = l.Offered
		return !yes
	})
	if !yes {
		of.WaitsOf(id, func(*leases.Lease) bool {
			yes = true
			return false
		})
	}
	return yes
}

// offer tells the session's stream, if it has one.
func (d *Door) offer(l *leases.Lease) {
	s := d.owners.get(l.Session)
	if s == nil {
		return
	}
	s.reply(&pb.ServerFrame{Answer: &pb.ServerFrame_Offer{
		Offer: &pb.Offer{Lease: d.former(s.who).lease(l), AcceptWithinMs: ms(d.offerWindow)},
	}})
}
