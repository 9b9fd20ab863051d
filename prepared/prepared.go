// Package prepared has the prepared queries of Consul's clients: named questions for the
// instances of a service, which are kept by the cluster and executed by HTTP and DNS.
//
// A query is two keys of a namespace of its own ([Namespace]): its definition under its
// id, and its id under its name, by which it is found and which nobody else may have.
// What is bound to a session is locked by that, and deleted with it: the family of keys
// does all of it.
//
// # Concurrency
//
// There is no state here: everything is read from a view. A [Query] that was found
// belongs to whoever has found it.
package prepared

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// MaxBytes is how long the definition of a query may be, as JSON.
const MaxBytes = 16 << 10

// Query is a query as clients know it. The order of the fields is that of answers.
type Query struct {
	ID       string
	Name     string // however it is written; "": it is found by its id alone, or as the template for all
	Session  string // with which it ends; "": it stays
	Token    string // whose rights it is executed with: written, and never shown
	Template Template
	Service  Service
	DNS      DNS

	CreateIndex uint64
	ModifyIndex uint64
}

// Template says that the query is for all names that begin with its own.
type Template struct {
	Type            string // PrefixMatch, or "": it is no template
	Regexp          string // what of the name match(N) stands for
	RemoveEmptyTags bool   // drop tags of which nothing is left
}

// PrefixMatch is the type of a template.
const PrefixMatch = "name_prefix_match"

// Service is what is asked for.
type Service struct {
	Service        string
	SamenessGroup  string
	Failover       Failover
	OnlyPassing    bool // else what warns will do, too
	IgnoreCheckIDs []string
	Near           string   // the node whose instances come first; "_agent" is the agent's, "_ip" that of who asks
	Tags           []string // all of them; with ! before one: not that
	NodeMeta       map[string]string
	ServiceMeta    map[string]string
	Connect        bool
	Peer           string
}

// Failover is where to ask next if there is nothing. There is one datacenter: nowhere.
type Failover struct {
	NearestN    int
	Datacenters []string
	Targets     []Target
}

// Target is one place to ask next.
type Target struct {
	Peer       string
	Datacenter string
}

// DNS is what is said in answers by DNS.
type DNS struct {
	TTL string // "": as for the service
}

// Validate returns an Invalid error that says what is wrong, as Consul's clients know it.
// Templates are not looked into: see [Query.Compile].
func (q *Query) Validate() error {
	s := &q.Service
	switch {
	case q.Name == "" && !q.isTemplate() && q.Session == "":
		return invalid("Must be bound to a session")
	case q.Token == Hidden: // whoever may write a query has not the rights of whose token it was given
		return invalid("Bad Token '%s', it looks like a query definition with a redacted token was submitted", q.Token)
	case s.Service == "":
		return invalid("Must provide a Service name to query")
	case s.Failover.NearestN < 0:
		return invalid("Bad NearestN '%d', must be >= 0", s.Failover.NearestN)
	case len(s.Failover.Targets) > 0 && (s.Failover.NearestN > 0 || len(s.Failover.Datacenters) > 0):
		return invalid("Targets cannot be populated with NearestN or Datacenters")
	case q.DNS.TTL == "":
		return nil
	}
	ttl, err := time.ParseDuration(q.DNS.TTL)
	switch {
	case err != nil:
		return invalid("Bad DNS TTL '%s': %w", q.DNS.TTL, err)
	case ttl < 0:
		return invalid("DNS TTL '%d', must be >=0", ttl)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return incumbent.Errorf(incumbent.Invalid, "Invalid prepared query: "+format, args...)
}

func (q *Query) isTemplate() bool { return q.Template.Type != "" }

// TTL is that of its records, if it says one.
func (q *Query) TTL() (ttl time.Duration, says bool) {
	ttl, err := time.ParseDuration(q.DNS.TTL)
	return ttl, err == nil
}

// Select returns those of the instances of its service that the query is for. instances
// calls its function with all of a service that whoever asks may see.
func (q *Query) Select(instances func(service string, fn func(*catalog.Instance) bool)) (list []*catalog.Instance) {
	if q.Service.Connect || q.Service.Peer != "" { // there is no mesh, and no peer
		return nil
	}
	instances(q.Service.Service, func(i *catalog.Instance) bool {
		if q.selects(i) {
			list = append(list, i)
		}
		return true
	})
	return list
}

func (q *Query) selects(i *catalog.Instance) bool {
	s := &q.Service
	worst := min(s.worst(i.NodeChecks), s.worst(i.Checks))
	if worst == catalog.Critical || s.OnlyPassing && worst != catalog.Passing {
		return false
	}
	for _, tag := range s.Tags {
		tag, not := strings.CutPrefix(tag, "!")
		if slices.ContainsFunc(i.Service.Tags, func(t string) bool { return strings.EqualFold(t, tag) }) == not {
			return false
		}
	}
	return has(i.Node.Meta, s.NodeMeta) && has(i.Service.Meta, s.ServiceMeta)
}

// worst is the worst status of checks that count.
func (s *Service) worst(checks []*catalog.Check) catalog.Status {
	worst := catalog.Passing
	for _, c := range checks {
		if !slices.Contains(s.IgnoreCheckIDs, c.ID) {
			worst = min(worst, c.Status)
		}
	}
	return worst
}

func has(pairs []catalog.Pair, wanted map[string]string) bool {
	for key, value := range wanted {
		if !slices.Contains(pairs, catalog.Pair{Key: key, Value: value}) {
			return false
		}
	}
	return true
}

// NearFirst puts what is on a node before all else. Distances are not measured: nothing
// is near but what is there.
func NearFirst(list []*catalog.Instance, node string) {
	slices.SortStableFunc(list, func(a, b *catalog.Instance) int {
		return order(strings.EqualFold(b.Node.Name, node)) - order(strings.EqualFold(a.Node.Name, node))
	})
}

func order(first bool) int {
	if first {
		return 1
	}
	return 0
}

// aliases says that a name is another's.
func aliases(name, what string) error {
	return incumbent.Errorf(incumbent.Exists, "%s", fmt.Sprintf("name '%s' aliases an existing query %s", name, what))
}
