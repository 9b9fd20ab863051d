package consul

import (
	"github.com/incumbent-dev/incumbent/auth"
)

// sights is what a caller may see of the catalog.
type sights struct {
	door            *Door
	nodes, services auth.Sight
}

// sights returns what the caller may see; nil: all.
func (w *caller) sights() *sights {
	s := &sights{w.door, w.sight(auth.NodeRead), w.sight(auth.ServiceRead)}
	if s.nodes.All() && s.services.All() {
		return nil
	}
	return s
}

// key tells apart what callers may see.
func (s *sights) key() string {
	if s == nil {
		return ""
	}
	return s.nodes.Key() + "\x00" + s.services.Key()
}

func (s *sights) node(name string) bool {
	return s == nil || s.nodes.All() || s.nodes.Sees(s.door.named(name))
}

func (s *sights) service(name string) bool {
	return s == nil || s.services.All() || s.services.Sees(s.door.named(name))
}

// of reports whether something of a node, and of a service if it names one, is seen.
func (s *sights) of(node, service string) bool {
	return s.node(node) && (service == "" || s.service(service))
}
