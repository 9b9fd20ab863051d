package catalog

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Changes are told under the topic of their record, and under those of what is another
// one with it: the node, and the services whose instances show it.

// Scopes of topics beside those of tables.
const (
	nodeScope    = "node"
	serviceScope = "service"
)

// TableScope is the scope of the topics of all records of a table.
func TableScope(namespace string, t Table) [2]string { return [2]string{namespace, string(t)} }

// NodeTopic is the topic of all changes of a node and of what is on it.
func NodeTopic(namespace, name string) core.Topic {
	return core.Topic{Scope: [2]string{namespace, nodeScope}, Name: incumbent.Fold(name)}
}

// ServiceTopic is the topic of all changes of the instances of a service, of their
// nodes and of the checks of either.
func ServiceTopic(namespace, name string) core.Topic {
	return core.Topic{Scope: [2]string{namespace, serviceScope}, Name: incumbent.Fold(name)}
}

// SessionTopic is the topic of the changes of a session.
func SessionTopic(namespace string, id incumbent.SessionID) core.Topic {
	return core.Topic{Scope: TableScope(namespace, Sessions), Name: id.String()}
}

// recordTopic is the topic of a record's own changes.
func recordTopic(namespace string, t Table, node, id string) core.Topic {
	name := node
	if t != Nodes {
		name += "\x00" + id
	}
	return core.Topic{Scope: TableScope(namespace, t), Name: incumbent.Fold(name)}
}
