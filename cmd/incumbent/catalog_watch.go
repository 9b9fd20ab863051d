package main

import (
	"fmt"
	"io"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

func catalogWatch(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "watch SERVICE",
		Short: "follow the instances of a service",
		Long: `Watch prints the instances of SERVICE with their nodes and checks, and then every
change of these, in order, until interrupted, and goes on with another member when one
fails. --after resumes after an index; exit code 6 says that the history back to it is
gone, or that the cluster has no such index. --fields tells only the changes of these:
node, service, status, output, address, port, tags, meta, other. With -o json, too,
each change is one line.`,
		Example: "  incumbent catalog watch web\n  incumbent catalog watch web --fields status -o jsonl",
		Args:    exactArgs("SERVICE"),
		RunE: func(c *cobra.Command, args []string) error {
			after, _ := c.Flags().GetUint64("after")
			opts := client.WatchServiceOptions{Namespace: text(c, "namespace"), Service: args[0], After: incumbent.Index(after)}
			opts.Fields, _ = c.Flags().GetStringSlice("fields")
			return untilInterrupted(c, withClient(c, func(cl *client.Client) error {
				_, err := cl.Catalog().Health(c.Context(), connect.NewRequest(&apiv1.HealthRequest{
					Namespace: opts.Namespace, Service: opts.Service,
				}))
				if err := wrong(err); err != nil {
					return err
				}
				return follow(c, env, cl.WatchService(c.Context(), opts), printCatalogEvents)
			}))
		},
	}
	c.Flags().Uint64("after", 0, "resume after this index")
	c.Flags().StringSlice("fields", nil, "only changes of these fields")
	addOutput(c)
	return c
}

func printCatalogEvents(out io.Writer, form string, m *apiv1.WatchServiceResponse) error {
	for _, e := range m.Events {
		if form != formTable {
			if err := printProto(out, formJSONL, e); err != nil {
				return err
			}
			continue
		}
		if err := say(out, "%8d  %-7s  %s", e.Index, e.What, recordLine(e)); err != nil {
			return err
		}
	}
	return nil
}

// recordLine says for people what a change is of.
func recordLine(e *apiv1.CatalogEvent) string {
	switch r := e.Record.(type) {
	case *apiv1.CatalogEvent_Node:
		return "node     " + r.Node.Name + "  " + r.Node.Address
	case *apiv1.CatalogEvent_Service:
		return fmt.Sprintf("service  %s/%s  %s:%d", r.Service.Node, r.Service.Id, r.Service.Address, r.Service.Port)
	case *apiv1.CatalogEvent_Check:
		status := statusName(r.Check.Status)
		if e.Was != apiv1.CheckStatus_CHECK_STATUS_UNSPECIFIED && e.Was != r.Check.Status {
			status = statusName(e.Was) + " → " + status
		}
		return fmt.Sprintf("check    %s/%s  %s", r.Check.Node, r.Check.Id, status)
	}
	return ""
}
