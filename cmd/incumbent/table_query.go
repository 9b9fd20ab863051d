package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// addWhere gives a command the flags of conditions and columns.
func addWhere(c *cobra.Command) {
	c.Flags().StringArray("where", nil, "only rows for which it holds: COLUMN==VALUE, or one of != < <= > >=, or 'COLUMN includes VALUE', 'COLUMN excludes VALUE'; may be repeated, all must hold")
	c.Flags().StringSlice("columns", nil, "only these columns; default all")
}

const whereHelp = `A VALUE of --where is what the column has: a text or a uuid as it is, key=value of a map, or
JSON as the protocol has it (["set",["a","b"]]).`

func tableQuery(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "query DB TABLE",
		Short: "print rows of a table",
		Long:  "Query prints the rows of TABLE, in the order of their uuids.\n\n" + whereHelp,
		Example: `  incumbent table query OVN_Northbound Logical_Switch --columns _uuid,name
  incumbent table query OVN_Southbound Port_Binding --where 'tag!=5' --where 'options includes key=value' -o jsonl`,
		Args: exactArgs("DB", "TABLE"),
		RunE: func(c *cobra.Command, args []string) error {
			where, _ := c.Flags().GetStringArray("where")
			_, err := printRows(c, env, args[0], args[1], where)
			return err
		},
	}
	addWhere(c)
	addOutput(c)
	return c
}

func tableGet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "get DB TABLE UUID | --where CONDITION",
		Short: "print one row of a table",
		Long: `Get prints the row of TABLE with UUID, or those for which all conditions hold. Exit code
3: there is none.

` + whereHelp,
		Example: `  incumbent table get OVN_Northbound Logical_Switch --where name==sw0 -o json`,
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			where, _ := c.Flags().GetStringArray("where")
			if len(args) == 3 {
				where = append(where, "_uuid=="+args[2])
			}
			if len(where) == 0 {
				return usageError{"say which row: by its UUID or --where"}
			}
			n, err := printRows(c, env, args[0], args[1], where)
			if err == nil && n == 0 {
				return incumbent.Errorf(incumbent.NotFound, "table %s has no such row", args[1])
			}
			return err
		},
	}
	addWhere(c)
	addOutput(c)
	return c
}

// printRows prints rows as the flags say, and returns how many there were.
func printRows(c *cobra.Command, env *environment, db, name string, where []string) (n int, _ error) {
	form := formOf(c)
	columns, _ := c.Flags().GetStringSlice("columns")
	return n, withTables(c, func(t *client.Tables) error {
		of, err := tableOf(c, t, db, name)
		if err != nil {
			return err
		}
		conditions, err := conditionsOf(of, where)
		if err != nil {
			return err
		}
		out := &table{header: columns}
		if len(columns) == 0 {
			out.header = []string{"_uuid"}
			for _, column := range of.Columns {
				out.header = append(out.header, column.Name)
			}
		}
		shown := slices.Clone(out.header)
		var all []json.RawMessage
		err = t.Select(c.Context(), &apiv1.SelectRequest{Database: db, Table: name, Where: conditions, Columns: columns}, func(rows []string) error {
			n += len(rows)
			for _, row := range rows {
				switch form {
				case formJSONL:
					if err := printJSON(env.stdout, form, json.RawMessage(row)); err != nil {
						return err
					}
				case formJSON:
					all = append(all, json.RawMessage(row))
				default:
					out.row(cellsOf(row, shown)...)
				}
			}
			return nil
		})
		switch {
		case err != nil:
			return err
		case form == formJSON:
			return printList(env.stdout, form, all)
		case form == formTable:
			return out.print(env.stdout)
		}
		return nil
	})
}

// tableOf is a table of the schema that a database has.
func tableOf(c *cobra.Command, t *client.Tables, db, name string) (*ovs.Table, error) {
	res, err := t.Schema(c.Context(), db)
	if err != nil {
		return nil, err
	}
	s, bad := ovs.ParseSchema([]byte(res.Schema))
	if bad != nil {
		return nil, incumbent.Errorf(incumbent.Internal, "the schema of %s: %w", db, bad)
	}
	of, _ := s.Table(name)
	if of == nil {
		names := make([]string, len(s.Tables))
		for i, t := range s.Tables {
			names[i] = t.Name
		}
		return nil, incumbent.Errorf(incumbent.NotFound, "database %s has no table %q", db, name).WithHint("it has " + strings.Join(names, ", "))
	}
	return of, nil
}

// functions are those of conditions, longer ones before what they begin with.
var functions = []string{"==", "!=", "<=", ">=", "<", ">", " includes ", " excludes "}

// conditionsOf are the conditions of flags as the protocol has them.
func conditionsOf(of *ovs.Table, where []string) (string, error) {
	if len(where) == 0 {
		return "", nil
	}
	b := []byte{'['}
	for i, w := range where {
		at, f := -1, ""
		for _, try := range functions {
			if n := strings.Index(w, try); n > 0 && (at < 0 || n < at) {
				at, f = n, try
			}
		}
		if at < 0 {
			return "", usageError{fmt.Sprintf("--where %q is no condition: COLUMN==VALUE", w)}
		}
		name := strings.TrimSpace(w[:at])
		column := of.Column(name)
		if column == nil {
			return "", usageError{fmt.Sprintf("table %s has no column %q", of.Name, name)}
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(ovs.AppendString(append(b, '['), name), ',')
		b = append(ovs.AppendString(b, strings.TrimSpace(f)), ',')
		b = append(appendValue(b, &column.Type, strings.TrimSpace(w[at+len(f):])), ']')
	}
	return string(append(b, ']')), nil
}

// appendValue appends a value of a column as the protocol has it.
func appendValue(b []byte, t *ovs.Type, text string) []byte {
	if strings.HasPrefix(text, "[") {
		return append(b, text...)
	}
	if !t.IsMap() {
		return appendAtom(b, &t.Key, text)
	}
	key, value, _ := strings.Cut(text, "=")
	b = appendAtom(append(b, `["map",[[`...), &t.Key, key)
	return append(appendAtom(append(b, ','), &t.Value, value), "]]]"...)
}

func appendAtom(b []byte, t *ovs.BaseType, text string) []byte {
	switch {
	case t.Kind == ovs.UUIDKind:
		return append(ovs.AppendString(append(b, `["uuid",`...), text), ']')
	case t.Kind == ovs.String && !strings.HasPrefix(text, `"`):
		return ovs.AppendString(b, text)
	}
	return append(b, text...)
}

// cellsOf are columns of a row for people.
func cellsOf(row string, columns []string) []string {
	cells := make([]string, len(columns))
	v, bad := ovs.ParseJSON(row)
	for i, name := range columns {
		if value, ok := v.Member(name); ok && bad == nil {
			cells[i] = orDash(string(appendPlain(nil, value)))
		}
	}
	return cells
}

// appendPlain appends a value as people read it: sets and maps in brackets, texts and
// uuids as they are.
func appendPlain(b []byte, v ovs.Value) []byte {
	list := v.Elements()
	tag := ""
	if len(list) == 2 {
		tag = list[0].Text()
	}
	switch {
	case v.Kind() == ovs.Text:
		return append(b, v.Text()...)
	case tag == "uuid":
		return append(b, list[1].Text()...)
	case tag == "set":
		return appendElements(b, list[1].Elements(), "[]", appendPlain)
	case tag == "map":
		return appendElements(b, list[1].Elements(), "{}", func(b []byte, e ovs.Value) []byte {
			pair := e.Elements()
			return appendPlain(append(appendPlain(b, pair[0]), '='), pair[1])
		})
	}
	return v.Append(b)
}

func appendElements(b []byte, list []ovs.Value, brackets string, one func([]byte, ovs.Value) []byte) []byte {
	b = append(b, brackets[0])
	for i, e := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = one(b, e)
	}
	return append(b, brackets[1])
}
