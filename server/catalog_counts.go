package server

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// registerCatalog shows what the catalog has, and how its checks are.
func (m *metrics) registerCatalog(counts *catalogCounts) {
	var c scraped
	checks := c.desc("incumbent_catalog_checks", "Checks of the catalog, by status.", "status")
	records := c.desc("incumbent_catalog_records", "Nodes, instances of services, and sessions of the catalog.", "table")
	c.collect = func(out chan<- prometheus.Metric) {
		n := counts.now()
		for status, k := range map[catalog.Status]uint64{catalog.Passing: n.Passing, catalog.Warning: n.Warning, catalog.Critical: n.Critical} {
			out <- prometheus.MustNewConstMetric(checks, prometheus.GaugeValue, float64(k), status.String())
		}
		for table, k := range map[catalog.Table]uint64{catalog.Nodes: n.Nodes, catalog.Services: n.Instances, catalog.Sessions: n.Sessions} {
			out <- prometheus.MustNewConstMetric(records, prometheus.GaugeValue, float64(k), string(table))
		}
	}
	m.registry.MustRegister(&c)
}

// catalogCounts counts what the catalog has: a table anew where that has changed.
type catalogCounts struct {
	view      func() *core.View
	namespace string

	mu   sync.Mutex // guards the rest; held to count
	at   map[catalog.Table]incumbent.Index
	last *apiv1.Catalog // never changed once it is shown
}

func newCatalogCounts(view func() *core.View, namespace string) *catalogCounts {
	return &catalogCounts{view: view, namespace: namespace, at: map[catalog.Table]incumbent.Index{}, last: &apiv1.Catalog{}}
}

// now counts on the present state. The caller does not change the answer.
func (c *catalogCounts) now() *apiv1.Catalog {
	v := catalog.Of(c.view())
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.last
	n := &apiv1.Catalog{
		Nodes: was.Nodes, Instances: was.Instances, Sessions: was.Sessions,
		Passing: was.Passing, Warning: was.Warning, Critical: was.Critical,
	}
	if c.moved(v, catalog.Checks) {
		n.Passing, n.Warning, n.Critical = 0, 0, 0
		v.Checks(c.namespace, func(k *catalog.Check) bool {
			switch k.Status {
			case catalog.Passing:
				n.Passing++
			case catalog.Warning:
				n.Warning++
			default:
				n.Critical++
			}
			return true
		})
	}
	if c.moved(v, catalog.Nodes) {
		n.Nodes = 0
		v.Nodes(c.namespace, "", func(*catalog.Node) bool { n.Nodes++; return true })
	}
	if c.moved(v, catalog.Services) {
		n.Instances = 0
		v.AllInstances(c.namespace, func(*catalog.Instance) bool { n.Instances++; return true })
	}
	if c.moved(v, catalog.Sessions) {
		n.Sessions = 0
		v.Sessions(c.namespace, func(*catalog.Session) bool { n.Sessions++; return true })
	}
	c.last = n
	return n
}

// moved reports whether a table's index is another than when it was counted.
func (c *catalogCounts) moved(v *catalog.View, t catalog.Table) bool {
	at := v.TableIndex(c.namespace, t)
	was, counted := c.at[t]
	c.at[t] = at
	return !counted || was != at
}
