package consul

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
)

// The lists of the catalog.
var (
	entryKind    = &kind[*catalog.Instance, entryJSON]{"health/service", serviceIndex, serviceRows, instanceKey, (*Door).entryOf, seesInstance, false}
	instanceKind = &kind[*catalog.Instance, instanceJSON]{"catalog/service", serviceIndex, serviceRows, instanceKey, (*Door).instanceOf, seesInstance, false}
	// meshKind is that of services in a mesh: there are none.
	meshKind = &kind[*catalog.Instance, entryJSON]{
		"connect", serviceIndex, func(engine.CatalogReading, string, string, func(*catalog.Instance)) {}, instanceKey, (*Door).entryOf, seesInstance, false,
	}

	nodeKind = &kind[*catalog.Node, nodeJSON]{
		"catalog/nodes",
		func(c engine.CatalogReading, _ string) incumbent.Index {
			return c.ReadNodes(func(*catalog.Node) bool { return false })
		},
		func(c engine.CatalogReading, namespace, _ string, fn func(*catalog.Node)) {
			c.Nodes(namespace, "", func(n *catalog.Node) bool { fn(n); return true })
		},
		func(n *catalog.Node) string { return incumbent.Fold(n.Name) },
		(*Door).nodeOf,
		func(s *sights, n *catalog.Node) bool { return s.node(n.Name) },
		false,
	}

	serviceChecks = checkKind("health/checks", serviceIndex, func(c engine.CatalogReading, namespace, of string, fn func(checkRow)) {
		var rows []checkRow
		c.Instances(namespace, of, func(i *catalog.Instance) bool {
			for _, check := range i.Checks {
				rows = append(rows, checkRow{check, i.Node})
			}
			return true
		})
		slices.SortStableFunc(rows, func(a, b checkRow) int { return strings.Compare(checkKey(a), checkKey(b)) })
		for _, row := range rows {
			fn(row)
		}
	})
	nodeChecks = checkKind("health/node",
		func(c engine.CatalogReading, of string) incumbent.Index {
			_, index := c.ReadNode(of)
			return index
		},
		func(c engine.CatalogReading, namespace, of string, fn func(checkRow)) {
			c.NodeChecks(namespace, of, func(check *catalog.Check) bool { fn(checkRow{check: check}); return true })
		})
	stateChecks = checkKind("health/state",
		func(c engine.CatalogReading, _ string) incumbent.Index {
			return c.ReadChecks(func(*catalog.Check) bool { return false })
		},
		func(c engine.CatalogReading, namespace, of string, fn func(checkRow)) {
			eachInState(c, namespace, of, func(check *catalog.Check) { fn(checkRow{check: check}) })
		})
	// stateChecksOn are the same with their nodes, for whoever selects by those.
	stateChecksOn = checkKind("health/state with nodes",
		func(c engine.CatalogReading, _ string) incumbent.Index {
			return max(c.ReadChecks(func(*catalog.Check) bool { return false }), c.ReadNodes(func(*catalog.Node) bool { return false }))
		},
		func(c engine.CatalogReading, namespace, of string, fn func(checkRow)) {
			eachInState(c, namespace, of, func(check *catalog.Check) { fn(checkRow{check, c.Node(namespace, check.Node)}) })
		})
)

// checkRow is a check, with its node where somebody may select by that.
type checkRow struct {
	check *catalog.Check
	node  *catalog.Node
}

func checkKind(name string, index func(engine.CatalogReading, string) incumbent.Index, rows func(engine.CatalogReading, string, string, func(checkRow))) *kind[checkRow, checkJSON] {
	return &kind[checkRow, checkJSON]{
		name, index, rows, checkKey,
		func(_ *Door, row checkRow) *checkJSON { return checkOf(row.check) },
		func(s *sights, row checkRow) bool { return s.of(row.check.Node, row.check.ServiceName) },
		true, // by the metadata of their nodes
	}
}

func checkKey(row checkRow) string { return incumbent.Fold(row.check.Node + "\x00" + row.check.ID) }

// anyState is the state that all checks are in.
const anyState = "any"

func eachInState(c engine.CatalogReading, namespace, state string, fn func(*catalog.Check)) {
	c.Checks(namespace, func(check *catalog.Check) bool {
		if state == anyState || check.Status.String() == state {
			fn(check)
		}
		return true
	})
}

func serviceIndex(c engine.CatalogReading, of string) incumbent.Index {
	return c.ReadService(of, func(*catalog.Instance) bool { return false })
}

func serviceRows(c engine.CatalogReading, namespace, of string, fn func(*catalog.Instance)) {
	c.Instances(namespace, of, func(i *catalog.Instance) bool { fn(i); return true })
}

func instanceKey(i *catalog.Instance) string {
	return incumbent.Fold(i.Service.Node + "\x00" + i.Service.ID)
}

func seesInstance(s *sights, i *catalog.Instance) bool {
	return s.of(i.Service.Node, i.Service.Name)
}
