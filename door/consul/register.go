package consul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// registration is the body of /v1/catalog/register.
type registration struct {
	Datacenter      string
	ID              string
	Node            string
	Address         string
	TaggedAddresses map[string]string
	NodeMeta        map[string]string
	Service         *serviceBody
	Check           *checkBody
	Checks          []*checkBody
	SkipNodeUpdate  bool
}

// serviceBody is a service as clients register it in the catalog.
type serviceBody struct {
	Kind              string
	ID                string
	Service           string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]addressJSON
	Meta              map[string]string
	Port              int
	Ports             []portJSON
	SocketPath        string
	Weights           *weightsJSON
	EnableTagOverride bool
	Proxy             *struct{ DestinationServiceName string } // of a mesh: not kept

	TaggedAddressesSnake   map[string]addressJSON `json:"tagged_addresses"`
	EnableTagOverrideSnake bool                   `json:"enable_tag_override"`
}

// checkBody is a check as clients register it in the catalog.
type checkBody struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	Type        string
	Definition  definition
}

// definition is how a check is run, as far as it says so. What a check's record has is
// its JSON.
type definition struct {
	Interval                       duration            `json:",omitzero"`
	Timeout                        duration            `json:",omitzero"`
	DeregisterCriticalServiceAfter duration            `json:",omitzero"`
	HTTP                           string              `json:",omitempty"`
	Header                         map[string][]string `json:",omitempty"`
	Method                         string              `json:",omitempty"`
	Body                           string              `json:",omitempty"`
	DisableRedirects               bool                `json:",omitempty"`
	TLSServerName                  string              `json:",omitempty"`
	TLSSkipVerify                  bool                `json:",omitempty"`
	TCP                            string              `json:",omitempty"`
	TCPUseTLS                      bool                `json:",omitempty"`
	UDP                            string              `json:",omitempty"`
	GRPC                           string              `json:",omitempty"`
	GRPCUseTLS                     bool                `json:",omitempty"`
	H2PING                         string              `json:",omitempty"`
	H2PingUseTLS                   bool                `json:",omitempty"`
	AliasNode                      string              `json:",omitempty"`
	AliasService                   string              `json:",omitempty"`
	SessionName                    string              `json:",omitempty"`
	OutputMaxSize                  int                 `json:",omitempty"`
	SuccessBeforePassing           int                 `json:",omitempty"`
	FailuresBeforeWarning          int                 `json:",omitempty"`
	FailuresBeforeCritical         int                 `json:",omitempty"`
}

// typeAlias is the type of a check that is as bad as others are, typeSession of one that
// follows the sessions of a name on its node.
const (
	typeAlias   = "alias"
	typeSession = "session"
)

// kind is the type of a check that is run so; "": nobody runs it.
func (d *definition) kind() string {
	switch {
	case d.HTTP != "":
		return "http"
	case d.TCP != "":
		return "tcp"
	case d.UDP != "":
		return "udp"
	case d.GRPC != "":
		return "grpc"
	case d.H2PING != "":
		return "h2ping"
	case d.AliasNode != "" || d.AliasService != "":
		return typeAlias
	}
	return ""
}

// encode returns nil for one that says nothing.
func (d *definition) encode() []byte {
	b := encodeJSON(d)
	if string(b) == "{}" {
		return nil
	}
	return b
}

// shownDefinition is what is shown of how a check is run: nothing, where a member runs
// it.
func shownDefinition(c *catalog.Check) json.RawMessage {
	if c.Runner != 0 || len(c.Definition) == 0 || !json.Valid(c.Definition) {
		return json.RawMessage("{}")
	}
	return c.Definition
}

// duration is one that clients write as a text or as nanoseconds.
type duration time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *duration) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
	case float64:
		if v > math.MaxInt64 || v < math.MinInt64 {
			return fmt.Errorf("time: invalid duration %s", b)
		}
		*d = duration(v)
	case string:
		if v == "" {
			return nil
		}
		parsed, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		*d = duration(parsed)
	default:
		return fmt.Errorf("time: invalid duration %s", b)
	}
	return nil
}

// wholeMillis is a duration as the cluster keeps it: in milliseconds, and no shorter. It is
// 0 to what may be kept.
func wholeMillis(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// MarshalJSON implements [json.Marshaler].
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// refusedBody is why a body cannot be: as a text for clients.
func (r *request) refusedBody(format string, args ...any) {
	r.fail(http.StatusInternalServerError, format, args...)
}

// catalogRegister registers a node, a service on it and checks.
func catalogRegister(d *Door, r *request) {
	var in registration
	if !r.decode(&in) || !r.inDatacenter(in.Datacenter) {
		return
	}
	if text := in.refused(); text != "" {
		r.refusedBody("%s", text)
		return
	}
	cmd, text := in.command(d.namespace)
	if text != "" {
		r.refusedBody("%s", text)
		return
	}
	done := func(incumbent.Index) { r.json(http.StatusOK, true) }
	switch {
	case in.SkipNodeUpdate:
		r.registerBeside(cmd, done)
	case r.mayRegister(cmd):
		r.register(cmd, done)
	}
}

func (r *request) inDatacenter(name string) bool {
	if name == "" || name == r.door.cfg.Datacenter {
		return true
	}
	r.fail(http.StatusInternalServerError, "No path to datacenter")
	return false
}

// refused is why a registration cannot be; "": it can.
func (in *registration) refused() string {
	s := in.Service
	switch {
	case in.Node == "":
		return "Must provide node"
	case in.Address == "" && !in.SkipNodeUpdate:
		return "Must provide address if SkipNodeUpdate is not set"
	case s != nil && s.Service == "" && s.ID == "":
		return "service name (Service.Service) is required; both Service ID (Service.ID) and Service Name cannot be empty"
	case s != nil && s.Service == "":
		return "Must provide service name (Service.Service) when service ID is provided"
	}
	if n := len(in.Checks); n > catalog.MaxChecksInCommand {
		return fmt.Sprintf("%d checks are too many, max: %d", n, catalog.MaxChecksInCommand)
	}
	if in.ID != "" {
		if text := badUUID(in.ID); text != "" {
			return "Bad node ID: " + text
		}
	}
	if s != nil {
		if text := badMeta(s.Meta); text != "" {
			return fmt.Sprintf("failed inserting service: Invalid Service Meta for node %s and serviceID %s: %s", in.Node, cmp.Or(s.ID, s.Service), text)
		}
	}
	if text := badMeta(in.NodeMeta); text != "" {
		return "failed inserting node: Invalid Node Meta for node " + in.Node + ": " + text
	}
	return ""
}

// command is the registration's, or why it cannot be.
func (in *registration) command(namespace string) (*catalog.Command, string) {
	cmd := &catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: namespace, Node: in.Node},
		Node: &catalog.Node{
			Namespace: namespace, Name: in.Node, ID: strings.ToLower(in.ID), Address: in.Address, TaggedAddresses: pairsOf(in.TaggedAddresses), Meta: pairsOf(in.NodeMeta),
		},
	}
	if s := in.Service; s != nil {
		var text string
		if cmd.Service, text = s.record(namespace, in.Node); text != "" {
			return nil, text
		}
	}
	for _, c := range append(slices.Clone(in.Checks), in.Check) {
		if c == nil {
			continue
		}
		check, text := c.record(namespace, in.Node)
		if text != "" {
			return nil, text
		}
		cmd.Checks = append(cmd.Checks, check)
	}
	return cmd, ""
}

func (s *serviceBody) record(namespace, node string) (*catalog.Service, string) {
	if s.Port < 0 || s.Port > math.MaxUint16 {
		return nil, fmt.Sprintf("Invalid port %d", s.Port)
	}
	if text := badPorts(s.Port, s.Ports); text != "" {
		return nil, text
	}
	addresses, text := addressList(s.TaggedAddresses, s.TaggedAddressesSnake)
	if text != "" {
		return nil, text
	}
	out := &catalog.Service{
		Namespace: namespace, Node: node, ID: cmp.Or(s.ID, s.Service), Name: s.Service, Kind: s.Kind, Tags: s.Tags, Address: s.Address, TaggedAddresses: addresses,
		Meta: pairsOf(s.Meta), Port: uint16(s.port()), SocketPath: s.SocketPath, Weights: catalog.Weights{Passing: 1, Warning: 1},
		EnableTagOverride: s.EnableTagOverride || s.EnableTagOverrideSnake,
	}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, catalog.Port{Name: p.Name, Port: uint16(p.Port), Default: p.Default}) //nolint:gosec // badPorts bounds it
	}
	// Consul's client says weights of 0 where its caller says none.
	if w := s.Weights; w != nil && *w != (weightsJSON{}) {
		if text := badWeights(w); text != "" {
			return nil, text
		}
		out.Weights = catalog.Weights{Passing: uint32(w.Passing), Warning: uint32(w.Warning)} //nolint:gosec // badWeights bounds them
	}
	return out, ""
}

// port is the one that the service has, of several the default one.
func (s *serviceBody) port() int {
	for _, p := range s.Ports {
		if p.Default {
			return p.Port
		}
	}
	return s.Port
}

// badPorts is why a service cannot have ports; "": it can. One that was read and is
// registered again has both: the default one is shown as the port, too.
func badPorts(port int, ports []portJSON) string {
	var all []string
	if port != 0 && len(ports) > 0 && !slices.ContainsFunc(ports, func(p portJSON) bool { return p.Default && p.Port == port }) {
		all = append(all, "Cannot set both Port and Ports")
	}
	if text := badPort(ports); text != "" {
		all = append(all, text)
	}
	switch len(all) {
	case 0:
		return ""
	case 1:
		return "1 error occurred:\n\t* " + all[0] + "\n\n"
	}
	return fmt.Sprintf("%d errors occurred:\n\t* %s\n\n", len(all), strings.Join(all, "\n\t* "))
}

// badPort is what is wrong with several ports; "": nothing.
func badPort(ports []portJSON) string {
	names, is := map[string]bool{}, false
	for _, p := range ports {
		switch {
		case strings.TrimSpace(p.Name) == "":
			return "Ports.Name cannot be empty"
		case p.Port <= 0:
			return "Ports.Port must be greater than zero"
		case p.Port > math.MaxUint16:
			return fmt.Sprintf("Invalid port %d", p.Port)
		case names[p.Name]:
			return fmt.Sprintf("Ports.Name %q has to be unique", p.Name)
		case is && p.Default:
			return "Only one port can be marked as default"
		}
		names[p.Name], is = true, is || p.Default
	}
	if len(ports) > 0 && !is {
		return "One of the Ports must be marked as Default"
	}
	return ""
}

func (c *checkBody) record(namespace, node string) (*catalog.Check, string) {
	status, ok := catalog.ParseStatus(cmp.Or(c.Status, catalog.Critical.String()))
	if !ok {
		return nil, fmt.Sprintf("Invalid check status: '%s'", c.Status)
	}
	if c.Node != "" && !incumbent.Alike(c.Node, node) {
		return nil, fmt.Sprintf("check node %q does not match node %q", c.Node, node)
	}
	out := &catalog.Check{
		Namespace: namespace, Node: node, ID: cmp.Or(c.CheckID, c.Name), Name: c.Name, Status: status, Notes: c.Notes, Output: cutOutput(c.Output),
		ServiceID: c.ServiceID, Type: cmp.Or(c.Type, c.Definition.kind()), Definition: c.Definition.encode(),
	}
	if out.Type != typeSession || c.Definition.SessionName == "" {
		return out, ""
	}
	if out.SessionName = c.Definition.SessionName; out.ServiceID != "" {
		return nil, "a check that follows a session cannot be of a service"
	}
	return out, ""
}

// pairsOf are the pairs of a map, by key.
func pairsOf(m map[string]string) (pairs []catalog.Pair) {
	for k, v := range m {
		pairs = append(pairs, catalog.Pair{Key: k, Value: v})
	}
	slices.SortFunc(pairs, func(a, b catalog.Pair) int { return strings.Compare(a.Key, b.Key) })
	return pairs
}

// addressList are the addresses of maps, by name, or why there is none.
func addressList(maps ...map[string]addressJSON) (list []catalog.Address, text string) {
	for _, m := range maps {
		for name, a := range m {
			if a.Port < 0 || a.Port > math.MaxUint16 {
				return nil, fmt.Sprintf("Invalid port %d", a.Port)
			}
			list = append(list, catalog.Address{Name: name, Address: a.Address, Port: uint16(a.Port)})
		}
	}
	slices.SortStableFunc(list, func(a, b catalog.Address) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b catalog.Address) bool { return a.Name == b.Name }), ""
}

func badWeights(w *weightsJSON) string {
	switch {
	case w.Passing < 1:
		return "Passing must be greater than 0"
	case w.Warning < 0:
		return "Warning must be greater or equal than 0"
	case w.Passing > catalog.MaxWeight || w.Warning > catalog.MaxWeight:
		return fmt.Sprintf("Weights must be at most %d", catalog.MaxWeight)
	}
	return ""
}

// badMeta is why a map cannot be metadata; "": it can.
func badMeta(m map[string]string) string {
	if len(m) > catalog.MaxPairs {
		return fmt.Sprintf("Node metadata cannot contain more than %d key/value pairs", catalog.MaxPairs)
	}
	for _, p := range pairsOf(m) {
		text := ""
		switch {
		case p.Key == "":
			text = "Key cannot be blank"
		case strings.ContainsFunc(p.Key, func(c rune) bool {
			return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
		}):
			text = "Key contains invalid characters"
		case len(p.Key) > catalog.MaxPairKeyBytes:
			text = fmt.Sprintf("Key is too long (limit: %d characters)", catalog.MaxPairKeyBytes)
		case len(p.Value) > catalog.MaxPairValueBytes:
			text = fmt.Sprintf("Value is too long (limit: %d characters)", catalog.MaxPairValueBytes)
		default:
			continue
		}
		return fmt.Sprintf("Couldn't load metadata pair ('%s', '%s'): %s", p.Key, p.Value, text)
	}
	return ""
}

// uuidBytes is the length of an id of a node as a text.
const uuidBytes = 36

// badUUID is why a text is no UUID; "": it is one.
func badUUID(text string) string {
	if len(text) != uuidBytes {
		return "uuid string is wrong length"
	}
	if _, err := incumbent.ParseSessionID(text); err != nil {
		return "uuid is improperly formatted"
	}
	return ""
}

// mayRegister reports whether the caller may do all that a registration does. If not it
// has been answered. As in Consul, who may not write the node may say with a service or a
// check what the node is: that is left out then, and so nothing of it changes.
func (r *request) mayRegister(c *catalog.Command) bool {
	d, v := r.door, catalog.Of(r.door.view())
	if more := c.Service != nil || len(c.Checks) > 0; more && v.Repeats(c) && !r.may(auth.NodeWrite, c.Target.Node) {
		c.Node = nil
	}
	services := map[string]bool{} // by name
	node := c.Node != nil
	if s := c.Service; s != nil {
		services[s.Name] = true
		if old := v.Service(d.namespace, c.Target.Node, s.ID); old != nil {
			services[old.Name] = true
		}
	}
	for _, check := range c.Checks {
		switch {
		case check.ServiceID == "":
			node = true
		case c.Service == nil || !incumbent.Alike(c.Service.ID, check.ServiceID):
			if old := v.Service(d.namespace, c.Target.Node, check.ServiceID); old != nil {
				services[old.Name] = true
			}
		}
		if old := v.Check(d.namespace, c.Target.Node, check.ID); old != nil && old.ServiceName != "" {
			services[old.ServiceName] = true
		} else if old != nil {
			node = true
		}
	}
	if node && !r.allow(auth.NodeWrite, c.Target.Node, false) {
		return false
	}
	if of := v.Renames(d.namespace, c); of != "" && !r.allow(auth.NodeWrite, of, false) {
		return false
	}
	for name := range services {
		if !r.allow(auth.ServiceWrite, name, false) {
			return false
		}
	}
	return true
}

// registerBeside registers what is on a node, and goes on as change does: the node itself only
// where it is not there, for whoever asks for that must not change one that is.
func (r *request) registerBeside(c *catalog.Command, then func(at incumbent.Index)) {
	rest := *c
	if rest.Node = nil; rest.Service == nil && len(rest.Checks) == 0 {
		r.confirmed(func() {
			if catalog.Of(r.door.view()).Node(r.door.namespace, c.Target.Node) != nil {
				then(0)
				return
			}
			r.registerWithNode(c, &rest, then)
		})
		return
	}
	if !r.mayRegister(&rest) {
		return
	}
	r.tryChange(&rest, false, auth.NodeWrite, c.Target.Node, then, func(res *core.Result) {
		if why, ok := res.Record.(*catalog.Refusal); ok && why.Why == catalog.NoNode {
			r.registerWithNode(c, &rest, then)
			return
		}
		r.refusedByCatalog(c, res)
	})
}

// registerWithNode registers a node that is not there, and with it the rest of the
// registration. If somebody has registered the node meanwhile, theirs stays.
func (r *request) registerWithNode(c, rest *catalog.Command, then func(at incumbent.Index)) {
	if !r.mayRegister(c) {
		return
	}
	if c.Node == nil { // it is there meanwhile, and says the same
		r.register(rest, then)
		return
	}
	whole := core.TxnCommand{All: true, Then: []core.Command{catalog.Command{Verb: catalog.Register, Target: c.Target, Node: c.Node, If: true}}}
	more := rest.Service != nil || len(rest.Checks) > 0
	if more {
		whole.Then = append(whole.Then, *rest)
	}
	r.propose(whole, false, r.changing(auth.NodeWrite, r.door.subject(c.Target.Node)), func(res core.Result) {
		switch {
		case res.Err == nil:
			then(res.Index)
		case res.Txn == nil || len(res.Txn.Failures) == 0:
			r.failFor(res.Err)
		case res.Txn.Failures[0].Operation > 1 || !isThere(&res.Txn.Failures[0].Result):
			r.refusedByCatalog(c, &res.Txn.Failures[0].Result)
		case more:
			r.register(rest, then)
		default:
			then(0)
		}
	})
}

// isThere reports whether a command was refused for a record that it was to make.
func isThere(res *core.Result) bool {
	why, ok := res.Record.(*catalog.Refusal)
	return ok && why.Why == catalog.NotAsSaid
}

// register proposes a registration, and goes on when it is there, as change does.
func (r *request) register(c *catalog.Command, then func(at incumbent.Index)) {
	r.change(c, false, auth.NodeWrite, c.Target.Node, then)
}

// change proposes a command of the catalog, and goes on when it has been executed, with its
// index; 0: it would have changed nothing, which a confirmed view has answered.
func (r *request) change(c *catalog.Command, reserve bool, a auth.Action, name string, then func(at incumbent.Index)) {
	r.tryChange(c, reserve, a, name, then, func(res *core.Result) { r.refusedByCatalog(c, res) })
}

// tryChange is change; refused is called with the answer where the command is refused for what
// is there, in a confirmed view or in the log.
func (r *request) tryChange(c *catalog.Command, reserve bool, a auth.Action, name string, then func(at incumbent.Index), refused func(*core.Result)) {
	end := func(res core.Result, changed bool) {
		if res.Err != nil {
			refused(&res)
			return
		}
		if !changed {
			then(0)
			return
		}
		then(res.Index)
	}
	propose := func() {
		r.propose(*c, reserve, r.changing(a, r.door.subject(name)), func(res core.Result) { end(res, true) })
	}
	if _, idle := r.idling(c); !idle {
		propose()
		return
	}
	r.confirmed(func() {
		if res, idle := r.idling(c); idle {
			end(res, false)
			return
		}
		propose()
	})
}

// idling answers a command that would change nothing of what this member shows.
func (r *request) idling(c *catalog.Command) (core.Result, bool) {
	if c.Validate() != nil {
		return core.Result{}, false // the state says why
	}
	v := r.door.view()
	return catalog.Of(v).Idling(c, func(id incumbent.SessionID) bool { return v.Session(id) != nil })
}

// refusedByCatalog answers what was refused for what is there.
func (r *request) refusedByCatalog(c *catalog.Command, res *core.Result) {
	why, ok := res.Record.(*catalog.Refusal)
	if !ok {
		r.failFor(res.Err)
		return
	}
	switch why.Why {
	case catalog.NoNode:
		r.fail(http.StatusInternalServerError, "Unknown node '%s'", why.Name)
	case catalog.NoService:
		id := ""
		for _, check := range c.Checks {
			if check.ServiceID == why.Name {
				id = check.ID
			}
		}
		r.fail(http.StatusInternalServerError, "Unknown service ID '%s' for check ID '%s'", why.Name, id)
	case catalog.NoCheck:
		r.fail(http.StatusNotFound, "Unknown check ID %q. Ensure that the check ID is passed, not the check name.", why.Name)
	case catalog.NameTaken:
		r.fail(http.StatusInternalServerError, "failed inserting node: Error while renaming Node ID: %q: Node name %s is reserved by node %s with name %s (%s)",
			c.Node.ID, c.Node.Name, why.Node.ID, why.Node.Name, why.Node.Address)
	default:
		r.failFor(res.Err)
	}
}
