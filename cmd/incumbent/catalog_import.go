package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

const (
	importTimeout  = 30 * time.Second // of one request
	importMaxBytes = 64 << 20         // of one answer
	checksAtOnce   = 200              // in one registration
)

// What belongs to Consul itself, and is not brought along.
const (
	consulService = "consul"     // its servers
	serfCheck     = "serfHealth" // whether its agent on a node is alive: nobody says so here
)

func catalogImport(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "import URL",
		Short: "bring nodes, services and checks along from a running Consul",
		Long: `Import reads the catalog of the Consul at URL by its HTTP API and registers every node
with its services and checks, as they are. What is there already is overwritten, what
is the same changes nothing: it can be run again. Consul's own service and its checks
of whether its agents are alive stay behind. Checks become what their status was: who
tells it from now on tells this cluster. Keys come by 'incumbent kv import'. The token
for Consul, if it wants one, is in the file of --consul-token-file, or in the variable
CONSUL_HTTP_TOKEN.`,
		Example: "  incumbent catalog import http://127.0.0.1:8500",
		Args:    exactArgs("URL"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			from, err := newConsul(args[0], text(c, "consul-token-file"))
			if err != nil {
				return err
			}
			return withClient(c, func(cl *client.Client) error {
				done, err := importCatalog(c.Context(), from, cl, text(c, "namespace"))
				if err != nil {
					fmt.Fprintf(env.stderr, "%d nodes, %d services and %d checks were registered before that\n", done.Nodes, done.Services, done.Checks)
					return err
				}
				if form != formTable {
					return printJSON(env.stdout, form, done)
				}
				return say(env.stdout, "%d nodes, %d services, %d checks registered", done.Nodes, done.Services, done.Checks)
			})
		},
	}
	c.Flags().String("consul-token-file", "", "file with the token for Consul")
	addOutput(c)
	return c
}

// imported is how much was registered.
type imported struct {
	Nodes    int `json:"nodes"`
	Services int `json:"services"`
	Checks   int `json:"checks"`
}

// consulAPI reads a running Consul.
type consulAPI struct {
	base  *url.URL
	token string
	http  *http.Client
}

func newConsul(base, tokenFile string) (*consulAPI, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usageError{fmt.Sprintf("%q is not the URL of a Consul: give one like http://127.0.0.1:8500", base)}
	}
	a := &consulAPI{base: u, token: os.Getenv("CONSUL_HTTP_TOKEN"), http: &http.Client{Timeout: importTimeout}}
	if tokenFile != "" {
		raw, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, usageError{"cannot read the token: " + err.Error()}
		}
		a.token = strings.TrimSpace(string(raw))
	}
	return a, nil
}

// get reads one answer into v.
func (a *consulAPI) get(ctx context.Context, v any, path ...string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base.JoinPath(path...).String(), nil)
	if err != nil {
		return err
	}
	if a.token != "" {
		r.Header.Set("X-Consul-Token", a.token)
	}
	res, err := a.http.Do(r)
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "consul: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, importMaxBytes+1))
	switch {
	case err != nil:
		return incumbent.Errorf(incumbent.Unavailable, "consul: %w", err)
	case res.StatusCode == http.StatusForbidden:
		return incumbent.Errorf(incumbent.Denied, "consul: %s", strings.TrimSpace(string(body))).WithHint("give --consul-token-file")
	case res.StatusCode != http.StatusOK:
		return incumbent.Errorf(incumbent.Unavailable, "consul answered %s to %s", res.Status, r.URL.Path)
	case len(body) > importMaxBytes:
		return incumbent.Errorf(incumbent.TooLarge, "consul's answer to %s has more than %d bytes", r.URL.Path, importMaxBytes)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return incumbent.Errorf(incumbent.Invalid, "what answers at %s is not Consul: %w", r.URL.Path, err)
	}
	return nil
}

// The parts of Consul's answers that are brought along.
type (
	consulNode struct {
		ID, Node, Address string
		TaggedAddresses   map[string]string
		Meta              map[string]string
	}
	consulInstance struct {
		ID, Service, Address string
		Port                 uint32
		Ports                []consulPort
		Tags                 []string
		Meta                 map[string]string
	}
	consulPort struct {
		Port    uint32
		Default bool
	}
	consulCheck struct {
		CheckID, Name, Status, Notes, Output, ServiceID string
	}
)

// importCatalog registers what a Consul has, a node after the other.
func importCatalog(ctx context.Context, from *consulAPI, cl *client.Client, namespace string) (done imported, err error) {
	var nodes []consulNode
	if err := from.get(ctx, &nodes, "v1", "catalog", "nodes"); err != nil {
		return done, err
	}
	for _, n := range nodes {
		var has struct{ Services map[string]consulInstance }
		if err := from.get(ctx, &has, "v1", "catalog", "node", n.Node); err != nil {
			return done, err
		}
		var checks []consulCheck
		if err := from.get(ctx, &checks, "v1", "health", "node", n.Node); err != nil {
			return done, err
		}
		for _, r := range registrations(namespace, n, has.Services, checks) {
			if _, err := cl.Catalog().Register(ctx, connect.NewRequest(r)); err != nil {
				return done, client.AsError(err)
			}
			if r.Node != nil {
				done.Nodes++
			}
			if r.Service != nil {
				done.Services++
			}
			done.Checks += len(r.Checks)
		}
	}
	return done, nil
}

// registrations are those of a node with all it has.
func registrations(namespace string, n consulNode, services map[string]consulInstance, checks []consulCheck) []*apiv1.RegisterRequest {
	of := map[string][]*apiv1.Check{}
	for _, k := range checks {
		if k.CheckID == serfCheck {
			continue
		}
		of[k.ServiceID] = append(of[k.ServiceID], &apiv1.Check{
			Id: k.CheckID, Name: k.Name, Status: statusOf(k.Status), Notes: k.Notes, Output: k.Output, ServiceId: k.ServiceID,
		})
	}
	list := []*apiv1.RegisterRequest{{
		Namespace: namespace, NodeName: n.Node, Checks: of[""],
		Node: &apiv1.Node{Name: n.Node, Id: n.ID, Address: n.Address, TaggedAddresses: n.TaggedAddresses, Meta: n.Meta},
	}}
	for _, s := range services {
		if s.Service == consulService {
			continue
		}
		for _, p := range s.Ports { // of several the default one comes along
			if p.Default {
				s.Port = p.Port
			}
		}
		list = append(list, &apiv1.RegisterRequest{
			Namespace: namespace, NodeName: n.Node, Checks: of[s.ID],
			Service: &apiv1.Service{Id: s.ID, Name: s.Service, Address: s.Address, Port: s.Port, Tags: s.Tags, Meta: s.Meta},
		})
	}
	for i := 0; i < len(list); i++ {
		r := list[i]
		if len(r.Checks) <= checksAtOnce {
			continue
		}
		rest := &apiv1.RegisterRequest{Namespace: namespace, NodeName: n.Node, Checks: r.Checks[checksAtOnce:]}
		r.Checks = r.Checks[:checksAtOnce]
		list = append(list, rest)
	}
	return list
}

func statusOf(name string) apiv1.CheckStatus {
	switch name {
	case "passing":
		return apiv1.CheckStatus_CHECK_STATUS_PASSING
	case "warning":
		return apiv1.CheckStatus_CHECK_STATUS_WARNING
	}
	return apiv1.CheckStatus_CHECK_STATUS_CRITICAL
}
