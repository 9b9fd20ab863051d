package bench

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // the checksum of the file format
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// Sizes says how large the things are that the play sizes has a database take: a schema,
// a transaction of as many operations as there are ports, a row, a database file.
type Sizes struct {
	Tables   int `yaml:"tables"`    // of the schema, 3 to 4,000
	RowBytes int `yaml:"row_bytes"` // of the value of one column of one row, 1 to 1,500,000
	// FileBytes is the least that the database file has, up to 4 GB; 0: there is none.
	FileBytes int64 `yaml:"file_bytes"`
}

// Limits of sizes, and of the rows in a file.
const (
	fewestTables   = 3 // those of the ports, and one more
	mostTables     = 4000
	mostRowBytes   = 1_500_000
	mostFileBytes  = 4_000_000_000
	fileRecordRows = 500 // in one record of a file
	fileOptions    = 8   // of each row, which make it as long as those of OVN's ports are
)

// ovnImported is the database that is imported of a file.
const ovnImported = "Bench_Imported"

func (s *Sizes) validate() error {
	if s.Tables < fewestTables || s.Tables > mostTables || s.RowBytes < 1 || s.RowBytes > mostRowBytes || s.FileBytes < 0 || s.FileBytes > mostFileBytes {
		return fmt.Errorf("ports.sizes: tables must be %d to %d, row_bytes 1 to %d, file_bytes 0 to %d", fewestTables, mostTables, mostRowBytes, mostFileBytes)
	}
	return nil
}

// schema is that of the ports with further tables.
func (s *Sizes) schema() ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(ovnSchema, &all); err != nil {
		return nil, err
	}
	tables, _ := all["tables"].(map[string]any) // the schema is a part of this program
	for _, name := range s.further() {
		tables[name] = json.RawMessage(`{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"count":{"type":"integer"},` +
			`"port":{"type":{"key":{"type":"uuid","refTable":"Port_Binding","refType":"weak"},"min":0,"max":"unlimited"}},` +
			`"external_ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}`)
	}
	return json.Marshal(all)
}

// further are the names of the tables besides those of the ports.
func (s *Sizes) further() (names []string) {
	for i := range s.Tables - (fewestTables - 1) {
		names = append(names, fmt.Sprintf("Table_%d", i))
	}
	return names
}

// ovnSizes is a run of it.
type ovnSizes struct {
	*ovnWorld
	*Sizes
	at    *ovnConn // writes
	reads *ovnConn // at another member, if there is one; of the peer the same one, since what its followers read may be old
}

// playOVNSizes has a database take what is large, one after the other.
func playOVNSizes(ctx context.Context, r *run) error {
	w, err := connectOVN(ctx, r)
	if err != nil {
		return err
	}
	s := &ovnSizes{ovnWorld: w, Sizes: r.sc.Ports.Sizes}
	if s.at, err = dialOVN(ctx, w.addresses[0], nil); err != nil {
		return err
	}
	defer s.at.close()
	defer context.AfterFunc(ctx, s.at.close)()
	s.reads = s.at
	if r.opts.Peer == "" {
		if s.reads, err = dialOVN(ctx, w.addresses[len(w.addresses)-1], nil); err != nil {
			return err
		}
		defer s.reads.close()
		defer context.AfterFunc(ctx, s.reads.close)()
	}
	if err := w.empty(s.at); err != nil {
		return err
	}
	r.fact("rss_before_bytes", float64(r.rss()))
	term := w.term(ctx)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"tables", s.tables}, {"transaction", s.transaction}, {"row", s.row}, {"file", s.file}} {
		r.setPhase("%s", step.name)
		if err := step.do(ctx); err != nil {
			return err
		}
		r.fact(step.name+" rss_bytes", float64(r.rss()))
	}
	r.notePeak()
	r.fact("elections", max(0, w.term(ctx)-term))
	return nil
}

// took notes how long something took.
func (s *ovnSizes) took(name string, do func() error) error {
	began := s.now()
	err := do()
	s.fact(name+" seconds", (s.now() - began).Seconds())
	return err
}

// tables reads the schema, writes a row into each table in one transaction, and reads them
// by one monitor of all tables.
func (s *ovnSizes) tables(context.Context) error {
	err := s.took("schema", func() error {
		said, err := s.reads.ask("get_schema", `["`+ovnDatabase+`"]`)
		if err != nil {
			return err
		}
		var schema struct{ Tables map[string]json.RawMessage }
		if err := json.Unmarshal(said, &schema); err != nil || len(schema.Tables) != s.Tables {
			s.check.Violate("the schema was read with %d tables of %d: %v", len(schema.Tables), s.Tables, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var monitored, inserts []string
	for _, name := range s.further() {
		inserts = append(inserts, fmt.Sprintf(`{"op":"delete","table":%q,"where":[]},{"op":"insert","table":%[1]q,"row":{"name":"first"}}`, name))
		monitored = append(monitored, fmt.Sprintf(`%q:[{}]`, name))
	}
	err = s.took("tables write", func() error { return second(s.at.transact(strings.Join(inserts, ","))) })
	if err != nil {
		return err
	}
	return s.took("tables monitor", func() error {
		if err := s.catchUp(); err != nil {
			return err
		}
		seen, err := s.reads.monitor("{"+strings.Join(monitored, ",")+"}", "", 0)
		if err != nil {
			return err
		}
		if rows := strings.Count(string(seen.reply), `"initial"`); rows != len(monitored) {
			s.check.Violate("of %d tables with a row each %d rows were told", len(monitored), rows)
		}
		_, err = s.reads.ask("monitor_cancel", "[null]")
		return err
	})
}

// catchUp has the member that is read at know what was written: a transaction that reads
// is confirmed, a monitor begins with what the member has.
func (s *ovnSizes) catchUp() error {
	return second(s.reads.transact(`{"op":"select","table":"Chassis","where":[],"columns":["name"]}`))
}

// transaction inserts all ports in one transaction, and reads them in another.
func (s *ovnSizes) transaction(context.Context) error {
	ops := make([]string, s.sc.Ports.Count)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"insert","table":"Port_Binding","row":{"logical_port":"port-%d","tunnel_key":%[1]d,"mac":"0a:00:00:00:00:01 10.0.0.1"}}`, i)
	}
	if err := s.took("transaction", func() error { return second(s.at.transact(strings.Join(ops, ","))) }); err != nil {
		return err
	}
	return s.took("transaction read", func() error {
		results, err := s.reads.transact(`{"op":"select","table":"Port_Binding","where":[],"columns":["tunnel_key"]}`)
		if err == nil && len(results[0].Rows) != len(ops) {
			s.check.Violate("of %d rows of one transaction %d were read", len(ops), len(results[0].Rows))
		}
		return err
	})
}

// row writes one large row and reads it.
func (s *ovnSizes) row(context.Context) error {
	value := strings.Repeat("v", s.RowBytes)
	err := s.took("row", func() error {
		return second(s.at.transact(`{"op":"insert","table":"Port_Binding","row":{"logical_port":"large","mac":"` + value + `"}}`))
	})
	if err != nil {
		return err
	}
	return s.took("row read", func() error {
		results, err := s.reads.transact(`{"op":"select","table":"Port_Binding","where":[["logical_port","==","large"]],"columns":["mac"]}`)
		if err == nil && (len(results[0].Rows) != 1 || !strings.Contains(string(results[0].Rows[0]), `"`+value+`"`)) {
			s.check.Violate("a row of %d bytes was read as something else", s.RowBytes)
		}
		return err
	})
}

// file imports a database file, and compares the database with that of a cluster which is
// made of a backup. Of the peer none is imported: its servers are started on their files.
func (s *ovnSizes) file(ctx context.Context) error {
	if s.FileBytes == 0 || s.opts.Peer != "" || s.opts.Import == nil {
		return nil
	}
	dir, err := os.MkdirTemp("", "incumbent-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // in a folder for temporary files
	path := filepath.Join(dir, "file.db")
	rows, bytes, err := writeDatabaseFile(path, s.FileBytes)
	if err != nil {
		return err
	}
	s.fact("file_rows", float64(rows))
	s.fact("file_bytes", float64(bytes))
	s.setPhase("importing")
	if err := s.took("import", func() error { return s.opts.Import(ctx, s.clients[0], path) }); err != nil {
		return err
	}
	if s.opts.Restore == nil { // servers of others
		return nil
	}
	return s.restoreAndCompare(ctx, digestTables, func(d stored) bool { return d.rows == rows })
}

// writeDatabaseFile writes a stand-alone database file of so many bytes at least, as
// ovsdb-server has after it was compacted, and returns how many rows and bytes it has.
func writeDatabaseFile(path string, least int64) (rows int, bytes int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	record := func(text string) {
		n, _ := fmt.Fprintf(w, "OVSDB JSON %d %x\n%s\n", len(text)+1, sha1.Sum([]byte(text+"\n")), text) //nolint:gosec // see above; an error is kept for Flush
		bytes += int64(n)
	}
	record(strings.Replace(string(ovnSchema), `"`+ovnDatabase+`"`, `"`+ovnImported+`"`, 1))
	for bytes < least {
		var b strings.Builder
		b.WriteString(`{"_date":0,"Port_Binding":{`)
		for i := range fileRecordRows {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"%08x-0000-4000-8000-000000000000":{"logical_port":"port-%[1]d","tunnel_key":%[1]d,"mac":"0a:00:00:00:00:01 10.0.0.1","options":["map",[`, rows)
			for o := range fileOptions {
				if o > 0 {
					b.WriteByte(',')
				}
				fmt.Fprintf(&b, `["option-%d","%0*x"]`, o, 64, rows*fileOptions+o)
			}
			b.WriteString(`]]}`)
			rows++
		}
		b.WriteString(`}}`)
		record(b.String())
	}
	if err := w.Flush(); err != nil {
		return 0, 0, err
	}
	return rows, bytes, f.Close()
}

// digestTables reads the imported database. Rows come in no order of theirs: the sum is
// that of the sums of all.
func digestTables(ctx context.Context, c *client.Client) (d stored, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for m, err := range c.Tables("").Watch(ctx, client.WatchTablesOptions{Database: ovnImported}) {
		if err != nil {
			return d, err
		}
		if m.First {
			d = stored{}
		}
		for _, event := range m.Events {
			for _, row := range event.Rows {
				sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", row.Table, row.Uuid, row.Row))
				for i := range sum {
					d.sum[i] ^= sum[i]
				}
				d.rows++
			}
		}
		if m.Snapshot && !m.More {
			return d, nil
		}
	}
	return d, incumbent.Errorf(incumbent.Unavailable, "the watch ended before the database was read: %w", context.Cause(ctx))
}

func second[A any](_ A, err error) error { return err }
