package main

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the format's checksum
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/table/ovs/dbfile"
)

const petsSchema = `{"name":"Pets","version":"1.0.0","tables":{"Pet":{"isRoot":true,"indexes":[["name"]],"columns":{
"name":{"type":"string"},"age":{"type":"integer"},"ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
"friends":{"type":{"key":{"type":"uuid","refTable":"Pet","refType":"weak"},"min":0,"max":"unlimited"}}}}}}`

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// step is a command line and what is to come of it.
type tableStep struct {
	args []string
	code int
	out  string // part of it
	err  string // part of it
}

func runTableSteps(t *testing.T, url string, steps []tableStep) {
	t.Helper()
	for _, s := range steps {
		got := execute(t, nil, append([]string{"table", "--server", url}, s.args...)...)
		if got.code != s.code || !strings.Contains(got.stdout, s.out) || !strings.Contains(got.stderr, s.err) {
			t.Errorf("table %s: exit %d, want %d, said\n%s%s\nwant %q, %q", strings.Join(s.args, " "), got.code, s.code, got.stdout, got.stderr, s.out, s.err)
		}
	}
}

func TestTablesFromTheCommandLine(t *testing.T) {
	s := openServer(t)
	schema := writeFile(t, "pets.ovsschema", petsSchema)
	later := writeFile(t, "later.ovsschema", strings.Replace(petsSchema, `"age"`, `"tail":{"type":"boolean"},"age"`, 1))
	insert := writeFile(t, "insert", `[{"op":"insert","table":"Pet","row":{"name":"cat","age":3,"ids":["map",[["k","v"]]]}}]`)
	runTableSteps(t, s.URL(), []tableStep{
		{args: []string{"ls"}, out: "DATABASE  SCHEMA  TABLES  ROWS  BYTES\n"},
		{args: []string{"schema", "get", "Pets"}, code: exitHeld, err: "there is no database"},
		{args: []string{"schema", "add", schema}, out: "Pets has schema 1.0.0\n"},
		{args: []string{"schema", "add", schema}, out: "has this schema already"},
		{args: []string{"schema", "add", later}, code: exitConflict, err: "table schema convert"},
		{args: []string{"schema", "convert", later}, out: "Pets has schema"},
		{args: []string{"schema", "get", "Pets"}, out: `"tail"`},
		{args: []string{"schema", "ls", "-o", "jsonl"}, out: `"name":"Pets"`},
		{args: []string{"query", "Pets", "Fish"}, code: exitHeld, err: "it has Pet"},
		{args: []string{"query", "Pets", "Pet", "--where", "name"}, code: exitUsage, err: "is no condition"},
		{args: []string{"query", "Pets", "Pet", "--where", "nose==a"}, code: exitUsage, err: "no column"},
		{args: []string{"query", "Pets", "Pet", "--columns", "name,age"}, out: "NAME  AGE\n"},
		{args: []string{"get", "Pets", "Pet", "--where", "name==cat"}, code: exitHeld, err: "no such row"},
		{args: []string{"get", "Pets", "Pet"}, code: exitUsage, err: "say which row"},
		{args: []string{"txn", "Pets", insert}, out: `[{"uuid":["uuid","`},
		{args: []string{"txn", "Pets", insert}, code: exitConflict, out: `"error":"constraint violation"`, err: "nothing was changed"},
		{args: []string{"txn", "Pets", schema}, code: exitUsage, err: "no list of operations"},
		{args: []string{"get", "Pets", "Pet", "--where", "name==cat", "--columns", "name,age,ids"}, out: "cat   3    {k=v}\n"},
		{args: []string{"query", "Pets", "Pet", "--where", "ids includes k=v", "--where", "age>=3", "--columns", "name", "-o", "jsonl"}, out: `{"name":"cat"}`},
		{args: []string{"query", "Pets", "Pet", "--where", "ids includes k=w", "-o", "json"}, out: "[]\n"},
		{args: []string{"watch", "Fish"}, code: exitHeld, err: "there is no database"},
		{args: []string{"watch", "Pets", "--fields", "Pet/name,Pet/nose"}, code: exitHeld, err: "no column"},
		{args: []string{"watch", "Pets", "--rows", "cat"}, code: exitUsage, err: "is no uuid"},
		{args: []string{"schema", "rm", "Pets"}, code: exitUsage, err: "--yes"},
		{args: []string{"schema", "rm", "Pets", "--yes"}, out: "Pets removed"},
		{args: []string{"ls", "-o", "json"}, out: "[]\n"},
	})
}

const (
	cat  = "00000000-0000-4000-8000-000000000001"
	dog  = "00000000-0000-4000-8000-000000000002"
	cats = `{"Pet":{"` + cat + `":{"name":"tom","age":7,"ids":["map",[["a","2"],["c","1"]]]}}}`
)

// databaseFile is a stand-alone file of records.
func databaseFile(t *testing.T, records ...string) string {
	t.Helper()
	var b strings.Builder
	for _, r := range records {
		r += "\n"
		sum := sha1.Sum([]byte(r)) //nolint:gosec // the format's checksum
		if err := dbfile.WriteRecord(&b, int64(len(r)), sum[:], strings.NewReader(r)); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestTablesMoveInAndOut(t *testing.T) {
	s := openServer(t)
	file := writeFile(t, "pets.db", databaseFile(t, petsSchema, cats))
	damaged := writeFile(t, "damaged.db", strings.Replace(databaseFile(t, petsSchema, cats), `"tom"`, `"tim"`, 1))
	dangling := writeFile(t, "dangling.db", databaseFile(t,
		strings.Replace(petsSchema, `,"refType":"weak"`, "", 1), `{"Pet":{"`+cat+`":{"friends":["uuid","`+dog+`"]}}}`))
	out := filepath.Join(t.TempDir(), "out.db")
	runTableSteps(t, s.URL(), []tableStep{
		{args: []string{"export", "Pets", out}, code: exitHeld, err: "there is no database"},
		{args: []string{"import", damaged}, code: exitUsage, err: "record 2, at byte"},
		{args: []string{"import", dangling}, code: exitUsage, err: "is not whole"},
		{args: []string{"ls", "-o", "json"}, out: "[]\n"},
		{args: []string{"import", file, "Fish"}, code: exitUsage, err: "has database Pets"},
		{args: []string{"import", file}, out: "Pets: 1 rows brought in"},
		{args: []string{"import", file}, code: exitConflict, err: "--replace"},
		{args: []string{"import", file, "--replace"}, out: "Pets: 1 rows"},
		{args: []string{"get", "Pets", "Pet", "--where", "name==tom", "--columns", "_uuid,age"}, out: cat},
		{args: []string{"export", "Pets", out}, out: "1 rows of Pets"},
		{args: []string{"export", "Pets", out}, code: exitConflict, err: "there already"},
	})
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dbfile.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := ovs.ParseUUID(cat)
	r := c.Tables[0][id]
	if r == nil || c.Rows() != 1 {
		t.Fatalf("%d rows were written, want %s", c.Rows(), cat)
	}
	if got, want := string(dbfile.AppendRow(nil, c.Schema.Tables[0], r.Columns)), `{"age":7,"ids":["map",[["a","2"],["c","1"]]],"name":"tom"}`; got != want {
		t.Errorf("%s was written, want %s", got, want)
	}
}

// halfExport serves as a member does that begins to send a database and stands still then.
type halfExport struct {
	incumbentv1connect.UnimplementedTableServiceHandler
}

func (halfExport) GetSchema(context.Context, *connect.Request[apiv1.GetSchemaRequest]) (*connect.Response[apiv1.GetSchemaResponse], error) {
	return connect.NewResponse(&apiv1.GetSchemaResponse{Schema: petsSchema}), nil
}

func (halfExport) Watch(ctx context.Context, _ *connect.Request[apiv1.WatchTablesRequest], out *connect.ServerStream[apiv1.WatchTablesResponse]) error {
	if err := out.Send(&apiv1.WatchTablesResponse{Snapshot: true, First: true, More: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestAnExportEndsAtAMemberThatStandsStill(t *testing.T) {
	_, half := incumbentv1connect.NewTableServiceHandler(halfExport{})
	out := filepath.Join(t.TempDir(), "out.db")
	got := soon(t, "table", "export", "Pets", out, "--timeout", "300ms", "--server", memberOf(t, half))
	if got.code != exitTimeout || !strings.Contains(got.stderr, "nothing came for 300ms") {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("what came of it is there: %v", err)
	}
}
