package consul

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/health"
)

// agentServiceBody is a service as clients register it with the agent.
type agentServiceBody struct {
	Kind              string
	ID                string
	Name              string
	Tags              []string
	Port              int
	Ports             []portJSON
	Address           string
	SocketPath        string
	TaggedAddresses   map[string]addressJSON
	EnableTagOverride bool
	Meta              map[string]string
	Weights           *weightsJSON
	Check             *agentCheckBody
	Checks            []*agentCheckBody
	Token             string
	Proxy             json.RawMessage // of a mesh, as the rest: not kept
	Connect           json.RawMessage
	Locality          json.RawMessage

	TaggedAddressesSnake   map[string]addressJSON `json:"tagged_addresses"`
	EnableTagOverrideSnake bool                   `json:"enable_tag_override"`
}

// agentCheckBody is a check as clients register it with the agent.
type agentCheckBody struct {
	ID                             string
	CheckID                        string
	Name                           string
	Notes                          string
	Status                         string
	ServiceID                      string
	ServiceIDSnake                 string `json:"service_id"`
	Token                          string
	ScriptArgs                     []string
	Args                           []string
	ScriptArgsSnake                []string `json:"script_args"`
	DockerContainerID              string
	DockerContainerIDSnake         string `json:"docker_container_id"`
	Shell                          string
	HTTP                           string
	H2PING                         string
	H2PingUseTLS                   *bool // nil: yes
	H2PingUseTLSSnake              *bool `json:"h2ping_use_tls"`
	Header                         map[string][]string
	Method                         string
	Body                           string
	DisableRedirects               bool
	DisableRedirectsSnake          bool `json:"disable_redirects"`
	TCP                            string
	TCPUseTLS                      bool
	UDP                            string
	GRPC                           string
	GRPCUseTLS                     bool
	GRPCUseTLSSnake                bool `json:"grpc_use_tls"`
	OSService                      string
	TLSServerName                  string
	TLSServerNameSnake             string `json:"tls_server_name"`
	TLSSkipVerify                  bool
	TLSSkipVerifySnake             bool `json:"tls_skip_verify"`
	AliasNode                      string
	AliasNodeSnake                 string `json:"alias_node"`
	AliasService                   string
	AliasServiceSnake              string `json:"alias_service"`
	Interval                       duration
	Timeout                        duration
	TTL                            duration
	DeregisterCriticalServiceAfter duration
	DeregisterSnake                duration `json:"deregister_critical_service_after"`
	SuccessBeforePassing           int
	FailuresBeforeWarning          int
	FailuresBeforeCritical         int
	OutputMaxSize                  int
}

// decodeStrict reads the body's JSON, in which nothing may be that is not known. If it
// cannot be read it has been answered.
func (r *request) decodeStrict(v any) bool {
	if r.hasTooMany() {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(r.body))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = fmt.Errorf("there is more behind the first value")
		}
	}
	if err != nil {
		r.fail(http.StatusBadRequest, "Request decode failed: %v", err)
	}
	return err == nil
}

const (
	textStatuses  = "Status for checks must 'passing', 'warning', 'critical'"
	textNoScripts = "Scripts are disabled on this agent from remote calls; to enable, configure 'enable_script_checks' to true"

	// leastBeforeReap is the least time for which a check must be critical before its
	// service goes.
	leastBeforeReap = time.Minute
)

// unfit is why something cannot be registered.
type unfit struct {
	status int
	text   string
}

func bad(format string, args ...any) *unfit {
	return &unfit{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func (r *request) refuseUnfit(u *unfit) bool {
	if u != nil {
		r.fail(u.status, "%s", u.text)
	}
	return u != nil
}

// command is the registration's on the agent's node.
func (b *agentServiceBody) command(d *Door) (*catalog.Command, *unfit) {
	if b.Name == "" {
		return nil, bad("Missing service name")
	}
	checks := b.checks()
	for _, c := range checks {
		if _, ok := catalog.ParseStatus(c.Status); c.Status != "" && !ok {
			return nil, bad(textStatuses)
		}
	}
	s, u := b.record(d)
	if u != nil {
		return nil, u
	}
	cmd := &catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: d.namespace, Node: d.cfg.Node}, Service: s, KeepOutput: true}
	for i, c := range checks {
		check, u := c.record(d)
		if u != nil {
			return nil, u
		}
		check.ID, check.Name = c.id(), cmp.Or(c.Name, "Service '"+b.Name+"' check")
		if check.ID == "" {
			check.ID = "service:" + s.ID
			if len(checks) > 1 {
				check.ID += ":" + strconv.Itoa(i+1)
			}
		}
		check.ServiceID = s.ID
		check.Interval, check.Timeout = shownDuration(c.Interval), shownDuration(c.Timeout)
		cmd.Checks = append(cmd.Checks, check)
	}
	return cmd, nil
}

// checks are those that are to be registered. A Check that says nothing is none, as clients
// send one that was left out; an element of Checks is one whatever it says.
func (b *agentServiceBody) checks() (list []*agentCheckBody) {
	for i, c := range append([]*agentCheckBody{b.Check}, b.Checks...) {
		if c != nil && (i > 0 || !c.empty()) {
			list = append(list, c)
		}
	}
	return list
}

func (b *agentServiceBody) record(d *Door) (*catalog.Service, *unfit) {
	if text := badMeta(b.Meta); text != "" {
		return nil, bad("Invalid Service Meta: %s", text)
	}
	if b.Weights != nil {
		if text := badWeights(b.Weights); text != "" {
			return nil, bad("Invalid Weights: %s", text)
		}
	}
	if text := badPorts(b.Port, b.Ports); text != "" {
		return nil, bad("Validation failed: %s", text)
	}
	address, err := netip.ParseAddr(b.Address)
	if err == nil && address.IsUnspecified() {
		return nil, bad("Invalid service address")
	}
	body := serviceBody{
		Kind: b.Kind, ID: b.ID, Service: b.Name, Tags: b.Tags, Address: b.Address, TaggedAddresses: b.TaggedAddresses, TaggedAddressesSnake: b.TaggedAddressesSnake,
		Meta: b.Meta, Port: b.Port, Ports: b.Ports, SocketPath: b.SocketPath, Weights: b.Weights, EnableTagOverride: b.EnableTagOverride || b.EnableTagOverrideSnake,
	}
	if err == nil { // an address of its own is told as what it is
		family := "ipv6"
		if address.Is4() {
			family = "ipv4"
		}
		all := map[string]addressJSON{}
		for _, purpose := range []string{"lan_", "wan_"} {
			all[purpose+family] = addressJSON{b.Address, body.port()}
		}
		for _, given := range []map[string]addressJSON{b.TaggedAddressesSnake, b.TaggedAddresses} {
			for name, a := range given {
				all[name] = a
			}
		}
		body.TaggedAddresses, body.TaggedAddressesSnake = all, nil
	}
	s, text := body.record(d.namespace, d.cfg.Node)
	if text != "" {
		return nil, bad("%s", text)
	}
	return s, nil
}

// empty reports whether the check says nothing, but for which service it is of: that is
// the one that it is registered with.
func (b *agentCheckBody) empty() bool {
	c := *b
	c.ServiceID, c.ServiceIDSnake = "", ""
	if len(c.ScriptArgs)+len(c.Args) == 0 {
		c.ScriptArgs, c.Args = nil, nil
	}
	if !c.h2PingUsesTLS() {
		c.H2PingUseTLS, c.H2PingUseTLSSnake = nil, nil
	}
	return reflect.DeepEqual(c, agentCheckBody{})
}

func (b *agentCheckBody) id() string { return cmp.Or(b.CheckID, b.ID) }

// definition is how the check is run.
func (b *agentCheckBody) definition() definition {
	return definition{
		Interval: b.Interval, Timeout: b.Timeout, HTTP: b.HTTP, Header: b.Header, Method: b.Method, Body: b.Body, DisableRedirects: b.DisableRedirects || b.DisableRedirectsSnake,
		TLSServerName: cmp.Or(b.TLSServerName, b.TLSServerNameSnake), TLSSkipVerify: b.TLSSkipVerify || b.TLSSkipVerifySnake,
		TCP: b.TCP, TCPUseTLS: b.TCPUseTLS, UDP: b.UDP, GRPC: b.GRPC, GRPCUseTLS: b.GRPCUseTLS || b.GRPCUseTLSSnake,
		H2PING: b.H2PING, H2PingUseTLS: b.h2PingUsesTLS(), AliasNode: cmp.Or(b.AliasNode, b.AliasNodeSnake), AliasService: cmp.Or(b.AliasService, b.AliasServiceSnake),
		OutputMaxSize: b.OutputMaxSize, SuccessBeforePassing: b.SuccessBeforePassing,
		FailuresBeforeWarning: b.FailuresBeforeWarning, FailuresBeforeCritical: b.FailuresBeforeCritical,
	}
}

// h2PingUsesTLS reports whether the check speaks TLS: a ping does, unless it is told not to.
func (b *agentCheckBody) h2PingUsesTLS() bool {
	for _, uses := range []*bool{b.H2PingUseTLS, b.H2PingUseTLSSnake} {
		if uses != nil {
			return *uses
		}
	}
	return b.H2PING != ""
}

// record is the check on the agent's node, but for what names it.
func (b *agentCheckBody) record(d *Door) (*catalog.Check, *unfit) {
	status, _ := catalog.ParseStatus(b.Status) // "": critical
	def := b.definition()
	c := &catalog.Check{
		Namespace: d.namespace, Node: d.cfg.Node, ID: b.id(), Name: b.Name, Status: status, Notes: b.Notes, ServiceID: cmp.Or(b.ServiceID, b.ServiceIDSnake),
		Type: def.kind(), TTL: time.Duration(b.TTL), DeregisterAfter: time.Duration(cmp.Or(b.DeregisterCriticalServiceAfter, b.DeregisterSnake)),
	}
	if c.DeregisterAfter > 0 {
		c.DeregisterAfter = max(c.DeregisterAfter, leastBeforeReap)
	}
	switch {
	case len(b.Args)+len(b.ScriptArgs)+len(b.ScriptArgsSnake) > 0 || cmp.Or(b.DockerContainerID, b.DockerContainerIDSnake) != "":
		return nil, &unfit{http.StatusInternalServerError, textNoScripts}
	case b.OSService != "":
		return nil, bad("Invalid check: only TTL, HTTP, TCP, UDP, gRPC, H2PING and alias checks are run here")
	case c.Type == "" && b.TTL == 0 && b.Interval > 0:
		return nil, bad("Invalid check: Interval is set, but nothing to run")
	case c.Type == "" && b.TTL <= 0:
		return nil, bad("Invalid check: TTL must be > 0 for TTL checks")
	case b.Interval > 0 && b.TTL > 0:
		return nil, bad("Invalid check: Interval and TTL cannot both be specified")
	case c.Type != "" && c.Type != typeAlias && b.Interval <= 0:
		return nil, bad("Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks")
	case b.Interval < 0 || b.Timeout < 0 || c.DeregisterAfter < 0:
		return nil, bad("Invalid check: a duration must not be negative")
	case c.TTL > catalog.MaxDuration || c.DeregisterAfter > catalog.MaxDuration:
		return nil, bad("Invalid check: a duration is over %v", catalog.MaxDuration)
	case max(b.Interval, b.Timeout) > duration(health.MaxInterval):
		return nil, bad("Invalid check: Interval or Timeout is over %v", health.MaxInterval)
	}
	c.TTL, c.DeregisterAfter = wholeMillis(c.TTL), wholeMillis(c.DeregisterAfter)
	if c.Type == "" {
		c.Type = "ttl"
		return c, nil
	}
	c.Definition, c.Runner = def.encode(), d.engine.Node().Status().Member
	return c, nil
}

// shownDuration is one as checks of services show it.
func shownDuration(d duration) string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).String()
}
