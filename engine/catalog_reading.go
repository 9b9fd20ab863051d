package engine

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/watch"
)

// CatalogReading reads a catalog as [Reading] reads keys. What its methods return as
// an index is that of the last change of what was read, which never goes back: what is
// blocked by.
type CatalogReading struct {
	*catalog.View // reads without a note
	notes         *watch.Reads
	namespace     string
}

// ReadCatalog returns a reading of a namespace of a view; notes may be nil.
func ReadCatalog(view *core.View, notes *watch.Reads, namespace string) CatalogReading {
	return CatalogReading{catalog.Of(view), notes, namespace}
}

func (r CatalogReading) note(t core.Topic) {
	r.notes.Note(watch.Exact(FamilyTopic(catalog.Number, t)))
}

func (r CatalogReading) noteTable(t catalog.Table) incumbent.Index {
	r.notes.Note(watch.Scope(watch.Kind(catalog.Number), catalog.TableScope(r.namespace, t)))
	return r.TableIndex(r.namespace, t)
}

// ReadService calls fn with the instances of a service, by node and id, until it
// returns false.
func (r CatalogReading) ReadService(name string, fn func(*catalog.Instance) bool) incumbent.Index {
	r.note(catalog.ServiceTopic(r.namespace, name))
	r.Instances(r.namespace, name, fn)
	return r.ServiceIndex(r.namespace, name)
}

// ReadNode returns a node, nil if there is none. With it everything counts as read
// that is on it: see [catalog.View.NodeServices], [catalog.View.NodeChecks] and
// [catalog.View.NodeSessions].
func (r CatalogReading) ReadNode(name string) (*catalog.Node, incumbent.Index) {
	r.note(catalog.NodeTopic(r.namespace, name))
	return r.Node(r.namespace, name), r.NodeIndex(r.namespace, name)
}

// ReadNodes calls fn with all nodes, by name, until it returns false.
func (r CatalogReading) ReadNodes(fn func(*catalog.Node) bool) incumbent.Index {
	at := r.noteTable(catalog.Nodes)
	r.Nodes(r.namespace, "", fn)
	return at
}

// ReadServices calls fn with all services, by name, node and id, until it returns
// false. Nodes and checks are not part of what was read.
func (r CatalogReading) ReadServices(fn func(*catalog.Service) bool) incumbent.Index {
	at := r.noteTable(catalog.Services)
	r.AllInstances(r.namespace, func(i *catalog.Instance) bool { return fn(i.Service) })
	return at
}

// ReadChecks calls fn with all checks, by node and id, until it returns false.
func (r CatalogReading) ReadChecks(fn func(*catalog.Check) bool) incumbent.Index {
	at := r.noteTable(catalog.Checks)
	r.Checks(r.namespace, fn)
	return at
}

// ReadSession returns a session, nil if it is not there. The index is that of all
// sessions.
func (r CatalogReading) ReadSession(id incumbent.SessionID) (*catalog.Session, incumbent.Index) {
	r.note(catalog.SessionTopic(r.namespace, id))
	s := r.Session(id)
	if s != nil && s.Namespace != r.namespace {
		s = nil
	}
	return s, r.TableIndex(r.namespace, catalog.Sessions)
}

// ReadSessions calls fn with all sessions, by id, until it returns false.
func (r CatalogReading) ReadSessions(fn func(*catalog.Session) bool) incumbent.Index {
	at := r.noteTable(catalog.Sessions)
	r.Sessions(r.namespace, fn)
	return at
}
