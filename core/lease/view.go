package lease

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// View is the family after one batch of commands. It never changes and any number of
// goroutines may read it.
type View struct{ shared }

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView { return &View{t.copied()} }

// HeldCount is the number of leases held, offers included.
func (v *View) HeldCount() int { return v.held }

// Len is the number of lease records, free ones included.
func (v *View) Len() int { return v.names.Len() }

// PinnedCount is the number of lease records with pins.
func (v *View) PinnedCount() int { return v.pinned }

// WaiterCount is the number of places taken in all queues.
func (v *View) WaiterCount() int { return v.waits.Len() }

// Lease returns the record of a name, nil if there is none. A record may be
// of a free lease.
func (v *View) Lease(name incumbent.Name) *Lease { return v.named(name) }

// ByToken returns the lease held under a token, nil if none is.
func (v *View) ByToken(token incumbent.Token) *Lease { return v.leaseByToken(token) }

// OfSession calls fn with the leases a session owns, by name, until it
// returns false.
func (v *View) OfSession(id incumbent.SessionID, fn func(*Lease) bool) {
	for _, l := range v.leasesOf(id) {
		if !fn(l) {
			return
		}
	}
}

// Critical reports whether a session owns a critical lease. It costs one
// look, however many leases it owns.
func (v *View) Critical(id incumbent.SessionID) (critical bool) {
	v.owned.Ascend(byOwner{session: id}, func(o byOwner) bool {
		critical = o.session == id && !o.ordinary
		return false
	})
	return critical
}

// WaitsOf calls fn with the leases in whose queues a session stands, by
// name and each once, until it returns false.
func (v *View) WaitsOf(id incumbent.SessionID, fn func(*Lease) bool) {
	for _, e := range v.waitedFor(id) {
		if !fn(v.lease(e)) {
			return
		}
	}
}

// Below calls fn, by name, with the lease records of a namespace ("": all), a
// model ("": all) and a prefix of the lease name that come behind a name, until
// fn returns false. A range is read, not the whole table, as far as namespace,
// model and prefix are given in this order.
func (v *View) Below(namespace, model, prefix string, after incumbent.Name, fn func(*Lease) bool) {
	from := incumbent.Name{Namespace: namespace}
	if namespace != "" {
		from.Model = model
	}
	if from.Model != "" {
		from.Lease = prefix
	}
	if nameLess(&from, &after) {
		from = after
	}
	v.names.Ascend(&entry{Name: from}, func(e *entry) bool {
		n := &e.Name
		switch {
		case *n == after:
			return true
		case namespace != "" && n.Namespace != namespace:
			return false
		case model != "" && n.Model != model:
			return namespace == ""
		case !strings.HasPrefix(n.Lease, prefix):
			return namespace == "" || model == ""
		}
		return fn(v.lease(e))
	})
}

// All calls fn with all lease records, by name, until it returns false.
func (v *View) All(fn func(*Lease) bool) { v.scan(fn) }

// Namespace implements [core.Namespaced].
func (v *View) Namespace(namespace string, session func(incumbent.SessionID)) core.FamilyView {
	t := newTables()
	v.Below(namespace, "", "", incumbent.Name{}, func(l *Lease) bool {
		own := *l
		own.entry = &entry{Name: l.Name}
		t.replace(nil, &own)
		if !l.Session.IsZero() {
			session(l.Session)
		}
		for w := range v.queue(l.entry) {
			session(w.Session)
			t.addPlace(own.entry, w)
		}
		return true
	})
	return &View{t.shared}
}
