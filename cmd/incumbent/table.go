package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// tableCommand is the noun of databases with tables.
func tableCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "table",
		Short: "keep databases of tables, as the OVSDB door shows them",
		Example: `  incumbent table schema add /usr/share/ovn/ovn-nb.ovsschema
  incumbent table ls
  incumbent table query OVN_Northbound Logical_Switch --where name==sw0`,
	}
	c.PersistentFlags().String("namespace", incumbent.DefaultNamespace, "namespace of the databases")
	addServerFlags(c)
	c.AddCommand(tableSchema(env), tableList(env), tableGet(env), tableQuery(env), tableTxn(env), tableWatch(env), tableExport(env), tableImport(env))
	return c
}

// withTables runs one call with the databases of the namespace that the flags name.
func withTables(c *cobra.Command, call func(*client.Tables) error) error {
	return withClient(c, func(cl *client.Client) error { return call(cl.Tables(text(c, "namespace"))) })
}

func tableSchema(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "schema",
		Short:   "say which databases there are, and of which schema",
		Example: "  incumbent table schema add /usr/share/ovn/ovn-nb.ovsschema\n  incumbent table schema get OVN_Northbound",
	}
	c.AddCommand(schemaAdd(env), schemaConvert(env), schemaGet(env), tableList(env), schemaRemove(env))
	return c
}

func schemaAdd(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "add FILE",
		Short: "make an empty database of a schema",
		Long: `Add makes an empty database of the schema in FILE (- for standard input), whose name
is the schema's. There being one of the same schema nothing happens; exit code 6: there
is one of another, see 'incumbent table schema convert'.`,
		Example: "  incumbent table schema add /usr/share/ovn/ovn-nb.ovsschema",
		Args:    exactArgs("FILE"),
		RunE:    func(c *cobra.Command, args []string) error { return defineSchema(c, env, args[0], false) },
	}
	return c
}

func schemaConvert(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "convert FILE",
		Short: "give a database another schema",
		Long: `Convert gives the database of the name of the schema in FILE (- for standard input) that
schema. What its rows have in columns that both schemas have stays, the rest goes or is
at its default. Exit code 6: it does not fit, and nothing happened. Clients of the OVSDB
door that monitor the database connect anew. There being no such database it is made.`,
		Example: "  incumbent table schema convert /usr/share/ovn/ovn-nb.ovsschema",
		Args:    exactArgs("FILE"),
		RunE:    func(c *cobra.Command, args []string) error { return defineSchema(c, env, args[0], true) },
	}
	return c
}

func defineSchema(c *cobra.Command, env *environment, file string, convert bool) error {
	raw, err := readArgument(env, file)
	if err != nil {
		return err
	}
	s, bad := ovs.ParseSchema(raw)
	if bad != nil {
		return usageError{fmt.Sprintf("%s has no schema: %v", file, bad)}
	}
	return withTables(c, func(t *client.Tables) error {
		changed, err := t.Define(c.Context(), string(raw), convert)
		if err != nil {
			if !convert && incumbent.KindOf(err) == incumbent.Conflict {
				err = incumbent.Errorf(incumbent.Conflict, "%w", err).WithHint("incumbent table schema convert " + file)
			}
			return err
		}
		if !changed {
			return say(env.stdout, "%s has this schema already", s.Name)
		}
		return say(env.stdout, "%s has schema %s", s.Name, orDash(s.Version))
	})
}

// readArgument reads the file of an argument, - for standard input.
func readArgument(env *environment, name string) ([]byte, error) {
	if name == "-" {
		return valueOf(env, name)
	}
	return valueOf(env, "@"+name)
}

func schemaGet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "get DB",
		Short:   "print the schema of a database",
		Long:    "Get prints the schema of DB as JSON. Exit code 3: there is no such database.",
		Example: "  incumbent table schema get OVN_Northbound > nb.ovsschema",
		Args:    exactArgs("DB"),
		RunE: func(c *cobra.Command, args []string) error {
			return withTables(c, func(t *client.Tables) error {
				res, err := t.Schema(c.Context(), args[0])
				if err != nil {
					return err
				}
				return say(env.stdout, "%s", res.Schema)
			})
		},
	}
	return c
}

func schemaRemove(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rm DB",
		Short: "remove a database with all its rows",
		Long: `Rm removes DB with all its rows: there is no way back but a backup. With --loading it
removes what an import left that did not come to its end. Exit code 3: there is none.`,
		Example: "  incumbent table schema rm OVN_Northbound --yes\n  incumbent table schema rm OVN_Northbound --loading",
		Args:    exactArgs("DB"),
		RunE: func(c *cobra.Command, args []string) error {
			loading, _ := c.Flags().GetBool("loading")
			if yes, _ := c.Flags().GetBool("yes"); !yes && !loading {
				return usageError{"this removes all rows of " + args[0] + ": say so with --yes"}
			}
			return withTables(c, func(t *client.Tables) error {
				if err := t.Drop(c.Context(), args[0], loading); err != nil {
					return err
				}
				return say(env.stdout, "%s removed", args[0])
			})
		},
	}
	c.Flags().Bool("yes", false, "really")
	c.Flags().Bool("loading", false, "not the database, but what waits of an import")
	return c
}

func tableList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "ls",
		Short:   "list databases",
		Long:    "Ls lists databases by name, and behind them those that are being imported.",
		Example: "  incumbent table ls\n  incumbent table ls -o jsonl | jq -r .name",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			return withTables(c, func(t *client.Tables) error {
				all, err := t.List(c.Context())
				if err != nil {
					return err
				}
				out := &table{header: []string{"database", "schema", "tables", "rows", "bytes"}}
				for _, d := range all {
					out.row(databaseTitle(d), orDash(d.Version), count(d.Tables), strconv.FormatUint(d.Rows, 10), strconv.FormatUint(d.Bytes, 10))
				}
				return printRecords(env.stdout, form, all, out)
			})
		},
	}
	addOutput(c)
	return c
}

func databaseTitle(d *apiv1.Database) string {
	if d.Loading {
		return d.Name + " (being imported)"
	}
	return d.Name
}
