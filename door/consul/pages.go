package consul

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
)

// pageRoutes are what pages of Consul's ask.
func pageRoutes() []route {
	return []route{{"/v1/internal/ui/services", methods{"GET": pageServices}}}
}

// summaryJSON is what is said of a service in one line.
type summaryJSON struct {
	Name                 string
	Datacenter           string
	Tags                 []string
	Nodes                []string
	ExternalSources      []string
	InstanceCount        int
	ChecksPassing        int
	ChecksWarning        int
	ChecksCritical       int
	GatewayConfig        struct{}
	TransparentProxy     bool
	ConnectNative        bool
	ConnectedWithProxy   bool
	ConnectedWithGateway bool
}

// externalSource is the metadata of a service that says who registered it.
const externalSource = "external-source"

// pageServices lists the services with how many of their checks are in which state.
func pageServices(d *Door, r *request) {
	e, err := expressionOf[entryJSON](&d.expressions, r.opts.filter)
	if err != nil {
		r.failRead(http.StatusInternalServerError, "%v", err)
		return
	}
	seen := r.who.sights()
	r.serveValue("ui/services", fmt.Sprintf("%q", r.opts.filter), seen, func(c engine.CatalogReading) (any, incumbent.Index, bool) {
		none := func(*catalog.Check) bool { return false }
		index := max(c.ReadServices(func(*catalog.Service) bool { return false }), c.ReadChecks(none), c.ReadNodes(func(*catalog.Node) bool { return false }))
		byName, hides := map[string]*summaryJSON{}, false
		c.AllInstances(d.namespace, func(i *catalog.Instance) bool {
			switch name := i.Service.Name; {
			case !seen.of(i.Service.Node, name):
				hides = true
			case e == nil || e.selects(d.entryOf(i)):
				if byName[name] == nil {
					byName[name] = &summaryJSON{Name: name, Datacenter: d.cfg.Datacenter}
				}
				byName[name].add(i)
			}
			return true
		})
		list := make([]*summaryJSON, 0, len(byName))
		for _, s := range byName {
			s.Tags, s.ExternalSources = distinct(s.Tags), distinct(s.ExternalSources)
			list = append(list, s)
		}
		slices.SortFunc(list, func(a, b *summaryJSON) int { return cmp.Compare(a.Name, b.Name) })
		return list, index, hides
	})
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

func (s *summaryJSON) add(i *catalog.Instance) {
	s.InstanceCount++
	s.Tags = append(s.Tags, i.Service.Tags...)
	if !slices.Contains(s.Nodes, i.Service.Node) {
		s.Nodes = append(s.Nodes, i.Service.Node)
	}
	for _, p := range i.Service.Meta {
		if p.Key == externalSource {
			s.ExternalSources = append(s.ExternalSources, p.Value)
		}
	}
	for _, list := range [...][]*catalog.Check{i.NodeChecks, i.Checks} {
		for _, c := range list {
			switch c.Status {
			case catalog.Passing:
				s.ChecksPassing++
			case catalog.Warning:
				s.ChecksWarning++
			case catalog.Critical:
				s.ChecksCritical++
			}
		}
	}
}
