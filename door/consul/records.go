package consul

import (
	"encoding/json"

	"github.com/incumbent-dev/incumbent/core/catalog"
)

// What answers say of records. The names and the order of the fields are those that
// Consul's clients read; they are also what ?filter= selects by, but for those that say
// bexpr:"-".

type nodeJSON struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	CreateIndex     uint64 `bexpr:"-"`
	ModifyIndex     uint64 `bexpr:"-"`
}

type addressJSON struct {
	Address string
	Port    int
}

type portJSON struct {
	Name    string
	Port    int
	Default bool
}

type weightsJSON struct {
	Passing int
	Warning int
}

// proxyJSON and connectJSON are of a service that is not in a mesh: there is none here.
type proxyJSON struct {
	DestinationServiceName string `json:",omitempty"`
	DestinationServiceID   string `json:",omitempty"`
	LocalServiceAddress    string `json:",omitempty"`
	LocalServicePort       int    `json:",omitempty"`
	Mode                   string
	MeshGateway            struct{} `bexpr:"-"`
	Expose                 struct{} `bexpr:"-"`
}

type connectJSON struct {
	Native bool `json:",omitempty"`
}

type serviceJSON struct {
	Kind              string `json:",omitempty"`
	ID                string
	Service           string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]addressJSON `json:",omitempty"`
	Meta              map[string]string
	Port              int        `json:",omitempty"`
	Ports             []portJSON `json:",omitempty" bexpr:"-"`
	SocketPath        string     `json:",omitempty"`
	Weights           weightsJSON
	EnableTagOverride bool
	Proxy             proxyJSON
	Connect           connectJSON
	PeerName          string
	CreateIndex       uint64 `bexpr:"-"`
	ModifyIndex       uint64 `bexpr:"-"`
}

type checkJSON struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	Interval    string
	Timeout     string
	ExposedPort int
	Definition  json.RawMessage `bexpr:"-"`
	CreateIndex uint64          `bexpr:"-"`
	ModifyIndex uint64          `bexpr:"-"`
}

// entryJSON is one instance of a service with its node and all checks of both.
type entryJSON struct {
	Node    *nodeJSON
	Service *serviceJSON
	Checks  []*checkJSON
}

// instanceJSON is one instance of a service as /v1/catalog/service lists it.
type instanceJSON struct {
	ID                       string
	Node                     string
	Address                  string
	Datacenter               string
	TaggedAddresses          map[string]string
	NodeMeta                 map[string]string
	ServiceKind              string
	ServiceID                string
	ServiceName              string
	ServiceTags              []string
	ServiceAddress           string
	ServiceTaggedAddresses   map[string]addressJSON `json:",omitempty"`
	ServiceWeights           weightsJSON
	ServiceMeta              map[string]string
	ServicePort              int
	ServicePorts             []portJSON `bexpr:"-"` // null: it has one
	ServiceSocketPath        string
	ServiceEnableTagOverride bool
	ServiceProxy             proxyJSON
	ServiceConnect           connectJSON
	ServiceLocality          *struct{} `bexpr:"-"` // null
	CreateIndex              uint64    `bexpr:"-"`
	ModifyIndex              uint64    `bexpr:"-"`
}

// nodeOf is what is said of a node.
func (d *Door) nodeOf(n *catalog.Node) *nodeJSON {
	return &nodeJSON{
		ID: n.ID, Node: n.Name, Address: n.Address, Datacenter: d.cfg.Datacenter, TaggedAddresses: mapOf(n.TaggedAddresses), Meta: mapOf(n.Meta),
		CreateIndex: uint64(n.Created), ModifyIndex: uint64(n.Modified),
	}
}

// serviceOf is what is said of an instance of a service.
func serviceOf(s *catalog.Service) *serviceJSON {
	return &serviceJSON{
		Kind: s.Kind, ID: s.ID, Service: s.Name, Tags: listOf(s.Tags), Address: s.Address, TaggedAddresses: addressesOf(s.TaggedAddresses), Meta: mapOf(s.Meta),
		Port: int(s.Port), Ports: portsOf(s.Ports), SocketPath: s.SocketPath, Weights: weightsOf(s.Weights), EnableTagOverride: s.EnableTagOverride,
		CreateIndex: uint64(s.Created), ModifyIndex: uint64(s.Modified),
	}
}

// checkOf is what is said of a check.
func checkOf(c *catalog.Check) *checkJSON {
	out := &checkJSON{
		Node: c.Node, CheckID: c.ID, Name: c.Name, Status: c.Status.String(), Notes: c.Notes, Output: c.Output,
		ServiceID: c.ServiceID, ServiceName: c.ServiceName, ServiceTags: listOf(c.ServiceTags), Type: c.Type, Interval: c.Interval, Timeout: c.Timeout,
		Definition: shownDefinition(c), CreateIndex: uint64(c.Created), ModifyIndex: uint64(c.Modified),
	}
	return out
}

// entryOf is what is said of an instance with all its checks.
func (d *Door) entryOf(i *catalog.Instance) *entryJSON {
	e := &entryJSON{Node: d.nodeOf(i.Node), Service: serviceOf(i.Service), Checks: make([]*checkJSON, 0, len(i.NodeChecks)+len(i.Checks))}
	for _, list := range [...][]*catalog.Check{i.NodeChecks, i.Checks} {
		for _, c := range list {
			e.Checks = append(e.Checks, checkOf(c))
		}
	}
	return e
}

// instanceOf is what is said of an instance without its checks.
func (d *Door) instanceOf(i *catalog.Instance) *instanceJSON {
	n, s := i.Node, i.Service
	out := &instanceJSON{
		ID: n.ID, Node: n.Name, Address: n.Address, Datacenter: d.cfg.Datacenter, TaggedAddresses: mapOf(n.TaggedAddresses), NodeMeta: mapOf(n.Meta),
		ServiceKind: s.Kind, ServiceID: s.ID, ServiceName: s.Name, ServiceTags: listOf(s.Tags), ServiceAddress: s.Address,
		ServiceTaggedAddresses: addressesOf(s.TaggedAddresses), ServiceWeights: weightsOf(s.Weights), ServiceMeta: mapOf(s.Meta), ServicePort: int(s.Port), ServicePorts: portsOf(s.Ports), ServiceSocketPath: s.SocketPath,
		ServiceEnableTagOverride: s.EnableTagOverride, CreateIndex: uint64(s.Created), ModifyIndex: uint64(s.Modified),
	}
	if out.ServiceMeta == nil {
		out.ServiceMeta = map[string]string{}
	}
	return out
}

func weightsOf(w catalog.Weights) weightsJSON { return weightsJSON{int(w.Passing), int(w.Warning)} }

// mapOf returns nil for no pairs: null.
func mapOf(pairs []catalog.Pair) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[p.Key] = p.Value
	}
	return m
}

func addressesOf(as []catalog.Address) map[string]addressJSON {
	if len(as) == 0 {
		return nil
	}
	m := make(map[string]addressJSON, len(as))
	for _, a := range as {
		m[a.Name] = addressJSON{a.Address, int(a.Port)}
	}
	return m
}

// portsOf returns nil for none.
func portsOf(ports []catalog.Port) (list []portJSON) {
	for _, p := range ports {
		list = append(list, portJSON{p.Name, int(p.Port), p.Default})
	}
	return list
}

// listOf is the list as clients want it: never null.
func listOf(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
