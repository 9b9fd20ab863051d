package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // the format's checksum
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/table/ovs/dbfile"
	"github.com/incumbent-dev/incumbent/vfs"
)

// failoverTime is for a watch to find out that a member is silent, which takes twelve seconds,
// and to begin anew at the next one.
const failoverTime = 15 * time.Second

func tableExport(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "export DB FILE",
		Short: "write a database to a file of ovsdb-server's",
		Long: `Export writes DB, as it is at one index, to FILE: a stand-alone database file, which
ovsdb-tool and ovsdb-server read. FILE is there only once it is whole and on disk, and a
file that is there is not replaced. --timeout is how long nothing may come; with several
servers there are 15 s more, for another to begin anew. Exit code 3: there is no such
database. Exit code 6: FILE is there already.`,
		Example: "  incumbent table export OVN_Northbound nb.db",
		Args:    exactArgs("DB", "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			return withTables(c, func(t *client.Tables) error {
				// A watch waits for a database that is not there.
				if _, err := t.Schema(c.Context(), args[0]); err != nil {
					return err
				}
				spool, err := os.CreateTemp("", "incumbent-export-")
				if err != nil {
					return err
				}
				defer func() {
					_ = spool.Close()           // nothing of it is needed any more
					_ = os.Remove(spool.Name()) // likewise
				}()
				e := &tableExporter{spool: spool}
				if err := e.collect(c.Context(), t, args[0], exportSilence(c)); err != nil {
					return err
				}
				if err := backup.Save(vfs.OS{}, args[1], e.write); err != nil {
					return err
				}
				return say(env.stdout, "%s: %d rows of %s", args[1], e.rows, args[0])
			})
		},
	}
	return c
}

// tableExporter puts a snapshot of a database aside, whose size and checksum come before
// it in the file.
type tableExporter struct {
	spool  *os.File
	schema *ovs.Schema
	table  string // of the last row
	rows   int
	size   int64
	sum    hash.Hash
}

// exportSilence is how long nothing of the database may come.
func exportSilence(c *cobra.Command) time.Duration {
	limit, _ := c.Flags().GetDuration("timeout")
	switch servers, _ := c.Flags().GetStringSlice("server"); {
	case limit == 0:
		return math.MaxInt64
	case len(servers) > 1:
		return limit + failoverTime
	}
	return limit
}

// collect puts aside what the database has, unless nothing comes for as long as silence. The
// watch itself tries again for ever.
func (e *tableExporter) collect(ctx context.Context, t *client.Tables, database string, silence time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(silence, func() {
		cancel(incumbent.Errorf(incumbent.DeadlineExceeded, "nothing came for %v", silence).WithHint("--timeout is how long to wait"))
	})
	defer late.Stop()
	for m, err := range t.Watch(ctx, client.WatchTablesOptions{Database: database}) {
		if err != nil {
			return err
		}
		if !m.Snapshot {
			continue
		}
		late.Stop() // to put it aside may take longer
		if m.First {
			err = e.begin()
		}
		for _, event := range m.Events {
			if err == nil {
				err = e.event(event)
			}
		}
		if err != nil {
			return err
		}
		if m.More {
			late.Reset(silence)
			continue
		}
		if e.schema == nil {
			return incumbent.Errorf(incumbent.NotFound, "there is no database %q", database)
		}
		return e.end()
	}
	return context.Cause(ctx)
}

// begin begins anew: another member goes on, with what it has.
func (e *tableExporter) begin() error {
	*e = tableExporter{spool: e.spool, sum: sha1.New()} //nolint:gosec // the format's checksum
	_, err := e.spool.Seek(0, io.SeekStart)
	if err = errors.Join(err, e.spool.Truncate(0)); err != nil {
		return err
	}
	return e.put(fmt.Appendf(nil, `{"_date":%d`, time.Now().UnixMilli()))
}

func (e *tableExporter) event(event *apiv1.TableEvent) error {
	if event.Schema != "" {
		s, bad := ovs.ParseSchema([]byte(event.Schema))
		if bad != nil {
			return bad
		}
		e.schema = s
	}
	for _, r := range event.Rows {
		if err := e.row(r); err != nil {
			return err
		}
	}
	return nil
}

// row puts a row aside; those of a table come together.
func (e *tableExporter) row(r *apiv1.RowChange) error {
	of, _ := e.schema.Table(r.Table)
	v, bad := ovs.ParseJSON(r.Row)
	if of == nil || bad != nil {
		return fmt.Errorf("row %s of table %s is not of its schema", r.Uuid, r.Table)
	}
	columns := make([]ovs.Datum, len(of.Columns))
	for i, c := range of.Columns {
		columns[i] = c.Default
		if value, ok := v.Member(c.Name); ok {
			if columns[i], bad = ovs.ParseDatum(value, &c.Type, nil); bad != nil {
				return fmt.Errorf("row %s of table %s, column %s: %w", r.Uuid, r.Table, c.Name, bad)
			}
		}
	}
	b := []byte{','}
	if r.Table != e.table {
		if e.table != "" {
			b = []byte("},")
		}
		b = append(ovs.AppendString(b, r.Table), ":{"...)
		e.table = r.Table
	}
	b = append(ovs.AppendString(b, r.Uuid), ':')
	e.rows++
	return e.put(dbfile.AppendRow(b, of, columns))
}

func (e *tableExporter) end() error {
	if e.table != "" {
		return e.put([]byte("}}\n"))
	}
	return e.put([]byte("}\n"))
}

func (e *tableExporter) put(b []byte) error {
	e.size += int64(len(b))
	e.sum.Write(b) // a hash takes everything
	_, err := e.spool.Write(b)
	return err
}

// write writes the file.
func (e *tableExporter) write(w io.Writer) error {
	text := string(e.schema.JSON) + "\n"
	sum := sha1.Sum([]byte(text)) //nolint:gosec // the format's checksum
	if err := dbfile.WriteRecord(w, int64(len(text)), sum[:], strings.NewReader(text)); err != nil {
		return err
	}
	return dbfile.WriteRecord(w, e.size, e.sum.Sum(nil), io.NewSectionReader(e.spool, 0, e.size))
}
