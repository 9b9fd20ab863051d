package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/table/ovs/dbfile"
)

// Of the rows that are brought in at once. An empty column is nothing in their text, and
// counts for what a member lets a database grow at once.
const (
	importChunkBytes   = 512 << 10
	importChunkRows    = 10_000
	importChunkColumns = 4_000_000 // of all its rows
)

func tableImport(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE|tcp:HOST:PORT|unix:PATH [DB]",
		Short: "bring in a database of ovsdb-server's",
		Long: `Import brings in a database with the uuids of its rows: of FILE, a stand-alone or clustered
database file, or of a server that runs, which is asked for DB, or for its only one. Nobody
sees the database before all of it is there. A file with a record that is damaged is refused.
Of a clustered file that counts which it knows to be committed. All rows are kept in memory
meanwhile. Exit code 6: there is such a database, see --replace.`,
		Example: "  incumbent table import /etc/ovn/ovnnb_db.db\n  incumbent table import tcp:10.0.0.1:6641 OVN_Northbound --replace",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			replace, _ := c.Flags().GetBool("replace")
			all, err := readSource(c.Context(), args)
			if err != nil {
				return err
			}
			return withTables(c, func(t *client.Tables) error {
				if err := loadContent(c.Context(), t, all, replace); err != nil {
					return err
				}
				if all.Behind > 0 {
					fmt.Fprintf(env.stderr, "incumbent: %d entries at the end of the file are not known to be committed, and were left out\n", all.Behind)
				}
				return say(env.stdout, "%s: %d rows brought in", all.Schema.Name, all.Rows())
			})
		},
	}
	c.Flags().Bool("replace", false, "take the place of a database of the name")
	return c
}

// readSource reads what the arguments name.
func readSource(ctx context.Context, args []string) (*dbfile.Content, error) {
	database := ""
	if len(args) > 1 {
		database = args[1]
	}
	network, address, _ := strings.Cut(args[0], ":")
	if network == "tcp" || network == "unix" {
		return readServer(ctx, network, address, database)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, usageError{err.Error()}
	}
	defer f.Close()
	all, err := dbfile.Read(bufio.NewReader(f))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", args[0], err)
	case database != "" && database != all.Schema.Name:
		return nil, usageError{fmt.Sprintf("%s has database %s, not %s", args[0], all.Schema.Name, database)}
	}
	return all, nil
}

// loadContent brings a database in. What failed leaves nothing behind.
func loadContent(ctx context.Context, t *client.Tables, all *dbfile.Content, replace bool) error {
	l, err := t.Begin(ctx, all.Schema.Name, string(all.Schema.JSON))
	if err != nil {
		return err
	}
	err = loadRows(ctx, l, all)
	if err == nil {
		err = l.Finish(ctx, replace)
	}
	if err == nil {
		return nil
	}
	if incumbent.KindOf(err) == incumbent.Exists && !replace {
		err = incumbent.Errorf(incumbent.Exists, "database %s is there already", all.Schema.Name).WithHint("--replace puts the new one in its place")
	}
	return errors.Join(err, l.Abandon(context.WithoutCancel(ctx)))
}

func loadRows(ctx context.Context, l *client.Load, all *dbfile.Content) error {
	var b []byte
	n := 0
	flush := func() error {
		if n == 0 {
			return nil
		}
		_, err := l.Rows(ctx, string(append(b, "}}"...)))
		b, n = b[:0], 0
		return err
	}
	for i, of := range all.Schema.Tables {
		for _, r := range inOrder(of, all.Tables[i]) {
			row := dbfile.AppendRow(nil, of, r.Columns)
			if n == importChunkRows || n*len(of.Columns) > importChunkColumns || len(b)+len(row) > importChunkBytes {
				if err := flush(); err != nil {
					return err
				}
			}
			if n == 0 {
				b = append(ovs.AppendString(append(b, '{'), of.Name), ":{"...)
			} else {
				b = append(b, ',')
			}
			b = append(ovs.AppendString(b, r.UUID.String()), ':')
			b = append(b, row...)
			n++
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// inOrder is the rows of a table in the order of its first index, or of their uuids. Each
// command then changes few nodes of the servers' trees; in any other order it would change
// most of them, and a server copies what it changes.
func inOrder(of *ovs.Table, rows map[ovs.UUID]*ovs.Row) []*ovs.Row {
	var by []int
	if len(of.Indexes) > 0 {
		by = of.Indexes[0]
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b *ovs.Row) int {
		for _, c := range by {
			if order := ovs.CompareDatums(a.Datum(c), b.Datum(c)); order != 0 {
				return order
			}
		}
		return bytes.Compare(a.UUID[:], b.UUID[:])
	})
}
