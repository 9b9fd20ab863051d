package consul

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
	Port              int
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
	Definition  definitionJSON `bexpr:"-"`
	CreateIndex uint64         `bexpr:"-"`
	ModifyIndex uint64         `bexpr:"-"`
}

// definitionJSON is how a check is run, as far as it says so.
type definitionJSON struct {
	Interval                       string              `json:",omitempty"`
	Timeout                        string              `json:",omitempty"`
	DeregisterCriticalServiceAfter string              `json:",omitempty"`
	HTTP                           string              `json:",omitempty"`
	Header                         map[string][]string `json:",omitempty"`
	Method                         string              `json:",omitempty"`
	Body                           string              `json:",omitempty"`
	TLSServerName                  string              `json:",omitempty"`
	TLSSkipVerify                  bool                `json:",omitempty"`
	TCP                            string              `json:",omitempty"`
	GRPC                           string              `json:",omitempty"`
	GRPCUseTLS                     bool                `json:",omitempty"`
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
	ServiceEnableTagOverride bool
	ServiceProxy             proxyJSON
	ServiceConnect           connectJSON
	CreateIndex              uint64 `bexpr:"-"`
	ModifyIndex              uint64 `bexpr:"-"`
}
