package main

import (
	"fmt"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

func eventsCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "events",
		Short: "the timeline: elections, leases lost and why, refusals",
		Long:  "Events prints what the member keeps of its timeline, oldest first, and with -f what happens from now on.\nWith -o json, too, each event is one line.",
		Example: `  incumbent events
  incumbent events -f -o jsonl`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form, err := outputForm(c)
			if err != nil {
				return err
			}
			req := &apiv1.EventsRequest{}
			req.Follow, _ = c.Flags().GetBool("follow")
			req.Limit, _ = c.Flags().GetUint32("limit")
			return untilInterrupted(c, withClient(c, func(cl *client.Client) error { return followEvents(c, env, cl, form, req) }))
		},
	}
	c.Flags().BoolP("follow", "f", false, "go on with what happens")
	c.Flags().Uint32("limit", 100, "how many of those kept")
	addServerFlags(c)
	addOutput(c)
	return c
}

func followEvents(c *cobra.Command, env *environment, cl *client.Client, form string, req *apiv1.EventsRequest) error {
	stream, err := cl.Cluster().Events(c.Context(), connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		for _, e := range stream.Msg().Events {
			if form != formTable {
				if err := printProto(env.stdout, formJSONL, e); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(env.stdout, "%s  %-18s %s  %s\n", wallTime(e.AtUnixMs), e.What, orDash(e.Subject), e.Detail)
		}
	}
	return stream.Err()
}
