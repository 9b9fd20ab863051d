package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

func tableTxn(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "txn DB FILE",
		Short: "execute operations on a database, all or none",
		Long: `Txn executes the list of operations in FILE (- for standard input), JSON as RFC 7047 has
it, and prints what each answers. Exit code 6: one of them, or the commit, failed, and
nothing was changed.`,
		Example: `  echo '[{"op":"insert","table":"Address_Set","row":{"name":"a"}}]' | incumbent table txn OVN_Northbound -`,
		Args:    exactArgs("DB", "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			raw, err := readArgument(env, args[1])
			if err != nil {
				return err
			}
			if v, bad := ovs.ParseJSON(string(raw)); bad != nil || v.Kind() != ovs.Array {
				return usageError{args[1] + " has no list of operations: [{\"op\": …}, …]"}
			}
			return withTables(c, func(t *client.Tables) error {
				res, err := t.Transact(c.Context(), args[0], string(raw))
				if err != nil {
					return err
				}
				if err := say(env.stdout, "%s", res.Results); err != nil || !res.Failed {
					return err
				}
				return incumbent.Errorf(incumbent.Conflict, "nothing was changed: %s", firstError(res.Results))
			})
		},
	}
	return c
}

// firstError is the error that results have.
func firstError(results string) string {
	v, _ := ovs.ParseJSON(results)
	for _, r := range v.Elements() {
		if name, ok := r.Member("error"); ok {
			details, _ := r.Member("details")
			return strings.TrimSuffix(name.Text()+": "+details.Text(), ": ")
		}
	}
	return "an operation failed"
}

func tableWatch(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "watch DB [TABLE…]",
		Short: "follow the rows of a database",
		Long: `Watch prints the rows of DB, or of some of its tables, and then every change of them, in
order, until interrupted, and goes on with another member when one fails. --after resumes
after an index; exit code 6 says that the history back to it is gone, or that the cluster
has no such index. --fields tells of the tables that it names only the changes of these
columns: TABLE/COLUMN, or TABLE for all; in TABLE/_uuid a row changes when it comes or
goes. --rows tells only of the rows with these uuids. With -o json, too, each change is one
line.`,
		Example: `  incumbent table watch OVN_Southbound Port_Binding Chassis
  incumbent table watch OVN_Southbound --fields Chassis/_uuid,Port_Binding/chassis
  incumbent table watch OVN_Northbound -o jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			after, _ := c.Flags().GetUint64("after")
			opts := client.WatchTablesOptions{Database: args[0], Tables: args[1:], After: incumbent.Index(after)}
			opts.Fields, _ = c.Flags().GetStringSlice("fields")
			opts.Rows, _ = c.Flags().GetStringSlice("rows")
			return untilInterrupted(c, withTables(c, func(t *client.Tables) error {
				_, err := t.Schema(c.Context(), args[0])
				if err := wrong(err); err != nil {
					return err
				}
				return follow(c, env, t.Watch(c.Context(), opts), printTableEvents)
			}))
		},
	}
	c.Flags().Uint64("after", 0, "resume after this index")
	c.Flags().StringSlice("fields", nil, "only changes of these columns: TABLE/COLUMN, or TABLE")
	c.Flags().StringSlice("rows", nil, "only the rows with these uuids")
	addOutput(c)
	return c
}

func printTableEvents(out io.Writer, form string, m *apiv1.WatchTablesResponse) error {
	for _, e := range m.Events {
		if form != formTable {
			if err := printProto(out, formJSONL, e); err != nil {
				return err
			}
			continue
		}
		lines := []string{""}
		if len(e.Rows) > 0 {
			lines = lines[:0]
		}
		for _, r := range e.Rows {
			lines = append(lines, rowLine(r))
		}
		for _, line := range lines {
			if err := say(out, "%8d  %-7s  %s", e.Index, e.What, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowLine says for people what has become of a row.
func rowLine(r *apiv1.RowChange) string {
	row := r.Row
	if row == "" {
		row = "deleted"
	}
	return fmt.Sprintf("%s %s  %s", r.Table, r.Uuid, row)
}
