package health

import (
	"fmt"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// Alias is what an alias finds in a state: the worst of the checks of what it stands for,
// itself left out.
func Alias(v *core.View, k Key, d *Definition) Outcome {
	node := d.AliasNode
	if node == "" {
		node = k.Node
	}
	c := catalog.Of(v)
	if d.AliasService != "" && c.Service(k.Namespace, node, d.AliasService) == nil {
		return Outcome{Status: Critical, Output: fmt.Sprintf("Service %s could not be found on node %s", d.AliasService, node)}
	}
	if c.Node(k.Namespace, node) == nil {
		return Outcome{Status: Critical, Output: fmt.Sprintf("Node %s could not be found", node)}
	}
	worst, out := catalog.Passing, "No checks found."
	c.NodeChecks(k.Namespace, node, func(of *catalog.Check) bool {
		switch {
		case of.ServiceID != "" && !incumbent.Alike(of.ServiceID, d.AliasService) || incumbent.Alike(of.Node, k.Node) && incumbent.Alike(of.ID, k.ID):
		case of.Status < worst:
			worst, out = of.Status, fmt.Sprintf("Aliased check %q failing: %s", of.Name, of.Output)
		case worst == catalog.Passing:
			out = "All checks passing."
		}
		return true
	})
	return Outcome{Status: statusOf(worst), Output: Bounded(out, d.outputBytes())}
}

func statusOf(s catalog.Status) Status {
	return [...]Status{catalog.Critical: Critical, catalog.Warning: Warning, catalog.Passing: Passing}[s]
}
