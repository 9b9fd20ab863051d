package main

import (
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

func debugCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "debug",
		Short:   "look inside",
		Example: "  incumbent debug wal /var/lib/incumbent\n  incumbent debug hash",
	}
	c.AddCommand(debugWAL(env), debugHash(env), debugSnapshot(env))
	return c
}

func debugWAL(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "wal DATA-DIR",
		Short: "print every record of a log",
		Long: `Wal prints the records of the log in DATA-DIR as text, one a line, and changes
nothing. It says where the log ends and why; damage is named with file and
offset, and is exit code 1.`,
		Example: "  incumbent debug wal incumbent.data | tail",
		Args:    exactArgs("DATA-DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			return wal.Dump(env.stdout, vfs.OS{}, walDir(args[0]))
		},
	}
}

func debugHash(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "hash",
		Short:   "hash the replicated state at an index named in the log",
		Example: "  incumbent debug hash",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Cluster().StateHash(c.Context(), connect.NewRequest(&apiv1.StateHashRequest{}))
				if err != nil {
					return err
				}
				return printMessage(c, env, res.Msg, "index %d  sha256 %s", res.Msg.Index, res.Msg.Hash)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}

func debugSnapshot(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "snapshot",
		Short:   "write a snapshot now and let old log segments go",
		Example: "  incumbent debug snapshot",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Cluster().Snapshot(c.Context(), connect.NewRequest(&apiv1.SnapshotRequest{}))
				if err != nil {
					return err
				}
				took := time.Duration(res.Msg.TookMs) * time.Millisecond
				return printMessage(c, env, res.Msg, "snapshot of %s at log index %d in %v", size(res.Msg.Bytes), res.Msg.Index, took)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}
