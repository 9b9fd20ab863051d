package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// catalogCommand is the noun of nodes, services and checks.
func catalogCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "catalog",
		Short: "keep nodes, the services on them, and how they are",
		Example: `  incumbent catalog register web --node db-1 --address 10.0.0.1 --port 80 --ttl 30s
  incumbent catalog health web
  incumbent catalog watch web`,
	}
	c.PersistentFlags().String("namespace", incumbent.DefaultNamespace, "namespace of the catalog")
	addServerFlags(c)
	c.AddCommand(catalogRegister(env), catalogDeregister(env), catalogServices(env), catalogNodes(env), catalogHealth(env), catalogWatch(env), catalogImport(env))
	return c
}

func catalogRegister(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "register SERVICE | --node NODE",
		Short: "register a service on a node, or a node",
		Long: `Register stores NODE with its address and, if SERVICE is given, an instance of it on
that node. --address is the node's; a node that is there keeps its own if none is
given. With --ttl the instance has a check that is critical until something (Consul's
clients, the API) says that it passes, and again if that is not repeated in time. With
--session the instance goes when that session ends. What is the same already changes
nothing.`,
		Example: `  incumbent catalog register --node db-1 --address 10.0.0.1
  incumbent catalog register web --node db-1 --port 80 --tag v2 --meta zone=a`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := registrationOf(c, args)
			if err != nil {
				return err
			}
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Catalog().Register(c.Context(), connect.NewRequest(r))
				if err != nil {
					return client.AsError(err)
				}
				what := r.NodeName
				if r.Service != nil {
					what = r.Service.Name + " on " + what
				}
				return printMessage(c, env, res.Msg, "%s registered at index %d", what, res.Msg.Index)
			})
		},
	}
	f := c.Flags()
	f.String("node", "", "name of the node (required)")
	f.String("address", "", "address of the node")
	f.String("service-address", "", "address of the instance, where it is not the node's")
	f.String("id", "", "id of the instance on its node; default SERVICE")
	f.Int("port", 0, "port of the instance")
	f.StringSlice("tag", nil, "a tag of the instance; may be repeated")
	f.StringToString("meta", nil, "key=value of the instance, or of the node if there is no SERVICE; may be repeated")
	f.Duration("ttl", 0, "time within which the instance must be told that it is well")
	f.String("session", "", "the instance goes when this session ends")
	addOutput(c)
	return c
}

func registrationOf(c *cobra.Command, args []string) (*apiv1.RegisterRequest, error) {
	f := c.Flags()
	r := &apiv1.RegisterRequest{Namespace: text(c, "namespace"), NodeName: text(c, "node")}
	if r.NodeName == "" {
		return nil, usageError{"give --node"}
	}
	meta, _ := f.GetStringToString("meta")
	if address := text(c, "address"); address != "" || len(args) == 0 {
		r.Node = &apiv1.Node{Name: r.NodeName, Address: address}
	}
	if len(args) == 0 {
		for _, flag := range []string{"id", "port", "tag", "ttl", "session", "service-address"} {
			if f.Changed(flag) {
				return nil, usageError{"--" + flag + " is of a service: give SERVICE"}
			}
		}
		r.Node.Meta = meta
		return r, nil
	}
	port, _ := f.GetInt("port")
	if port < 0 || port > 65_535 {
		return nil, usageError{fmt.Sprintf("--port %d is none: 0 to 65535", port)}
	}
	tags, _ := f.GetStringSlice("tag")
	s := &apiv1.Service{
		Id: text(c, "id"), Name: args[0], Address: text(c, "service-address"), Port: uint32(port), Tags: tags, Meta: meta, Session: text(c, "session"),
	}
	if s.Id == "" {
		s.Id = s.Name
	}
	r.Service = s
	if ttl, _ := f.GetDuration("ttl"); ttl != 0 {
		if ttl < time.Millisecond || ttl.Milliseconds() > 1<<31 {
			return nil, usageError{fmt.Sprintf("--ttl %v cannot be", ttl)}
		}
		r.Checks = []*apiv1.Check{{Id: "service:" + s.Id, Name: "Service '" + s.Name + "' check", ServiceId: s.Id, TtlMs: uint32(ttl.Milliseconds())}}
	}
	return r, nil
}

func catalogDeregister(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "deregister NODE",
		Short: "take out a node, a service or a check",
		Long: `Deregister takes out NODE with all it has, or with --service one instance with its
checks, or with --check one check. What is not there is no error.`,
		Example: "  incumbent catalog deregister db-1\n  incumbent catalog deregister db-1 --service web",
		Args:    exactArgs("NODE"),
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Catalog().Deregister(c.Context(), connect.NewRequest(&apiv1.DeregisterRequest{
					Namespace: text(c, "namespace"), Node: args[0], ServiceId: text(c, "service"), CheckId: text(c, "check"),
				}))
				if err != nil {
					return client.AsError(err)
				}
				return printMessage(c, env, res.Msg, "deregistered at index %d", res.Msg.Index)
			})
		},
	}
	c.Flags().String("service", "", "id of an instance on the node")
	c.Flags().String("check", "", "id of a check on the node")
	addOutput(c)
	return c
}

func catalogServices(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "services",
		Short:   "list services, and how their instances are",
		Example: "  incumbent catalog services -o jsonl | jq -r .name",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				r := &apiv1.ListServicesRequest{Namespace: text(c, "namespace")}
				r.Stale, _ = c.Flags().GetBool("stale")
				var all []*apiv1.ServiceSummary
				for more := true; more; {
					res, err := cl.Catalog().ListServices(c.Context(), connect.NewRequest(r))
					if err != nil {
						return client.AsError(err)
					}
					all = append(all, res.Msg.Services...)
					if more = res.Msg.More; more {
						r.After = all[len(all)-1].Name
					}
				}
				t := &table{header: []string{"service", "passing", "warning", "critical", "tags"}}
				for _, s := range all {
					t.row(s.Name, count(s.Passing), count(s.Warning), count(s.Critical), orDash(strings.Join(s.Tags, ",")))
				}
				return printRecords(env.stdout, form, all, t)
			})
		},
	}
	addStale(c)
	addOutput(c)
	return c
}

func catalogNodes(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "nodes",
		Short:   "list nodes",
		Example: "  incumbent catalog nodes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				r := &apiv1.ListNodesRequest{Namespace: text(c, "namespace")}
				r.Stale, _ = c.Flags().GetBool("stale")
				var all []*apiv1.Node
				for more := true; more; {
					res, err := cl.Catalog().ListNodes(c.Context(), connect.NewRequest(r))
					if err != nil {
						return client.AsError(err)
					}
					all = append(all, res.Msg.Nodes...)
					if more = res.Msg.More; more {
						r.After = all[len(all)-1].Name
					}
				}
				t := &table{header: []string{"node", "address", "id", "modified"}}
				for _, n := range all {
					t.row(n.Name, orDash(n.Address), orDash(n.Id), strconv.FormatUint(n.ModifiedIndex, 10))
				}
				return printRecords(env.stdout, form, all, t)
			})
		},
	}
	addStale(c)
	addOutput(c)
	return c
}

func catalogHealth(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "health SERVICE",
		Short: "show the instances of a service, and how they are",
		Long: `Health lists the instances of SERVICE by node and id. Exit code 3: there is none (with
--passing: none that passes).`,
		Example: "  incumbent catalog health web --passing\n  incumbent catalog health web -o jsonl | jq -r .service.port",
		Args:    exactArgs("SERVICE"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				r := &apiv1.HealthRequest{Namespace: text(c, "namespace"), Service: args[0]}
				r.Passing, _ = c.Flags().GetBool("passing")
				r.Stale, _ = c.Flags().GetBool("stale")
				r.Tags, _ = c.Flags().GetStringSlice("tag")
				res, err := cl.Catalog().Health(c.Context(), connect.NewRequest(r))
				if err != nil {
					return client.AsError(err)
				}
				all := res.Msg.Instances
				if len(all) == 0 {
					return incumbent.Errorf(incumbent.NotFound, "service %q has no such instance", args[0])
				}
				t := &table{header: []string{"node", "id", "address", "status", "tags"}}
				for _, i := range all {
					t.row(i.Node.Name, i.Service.Id, addressOf(i), statusName(i.Status), orDash(strings.Join(i.Service.Tags, ",")))
				}
				return printRecords(env.stdout, form, all, t)
			})
		},
	}
	c.Flags().Bool("passing", false, "only instances all of whose checks pass")
	c.Flags().StringSlice("tag", nil, "only instances that have it; may be repeated")
	addStale(c)
	addOutput(c)
	return c
}

func count(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// addressOf is where an instance is reached.
func addressOf(i *apiv1.Instance) string {
	host := i.Service.Address
	if host == "" {
		host = i.Node.Address
	}
	return net.JoinHostPort(host, count(i.Service.Port))
}

// statusName is how people read a status.
func statusName(s apiv1.CheckStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "CHECK_STATUS_"))
}
