package ovsdb

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

const petsSchema = `{"name":"Pets","version":"1.0.0","tables":{
"Pet":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"age":{"type":"integer"},
"tags":{"type":{"key":"string","min":0,"max":"unlimited"}},"ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
"toys":{"type":{"key":{"type":"uuid","refTable":"Toy"},"min":0,"max":"unlimited"}}}},
"Toy":{"columns":{"name":{"type":"string"}}}}}`

var petsTransactions = []string{
	`["Pets",{"op":"insert","table":"Pet","row":{"name":"cat","tags":["set",["a","b"]],"ids":["map",[["k","v"],["l","w"]]],"toys":["named-uuid","t"]}},` +
		`{"op":"insert","table":"Toy","uuid-name":"t","row":{"name":"ball"}},{"op":"insert","table":"Pet","row":{"name":"dog"}}]`,
	`["Pets",{"op":"mutate","table":"Pet","where":[["name","==","cat"]],"mutations":[["tags","insert","c"],["tags","delete","a"]]}]`,
	`["Pets",{"op":"update","table":"Pet","where":[["name","==","cat"]],"row":{"age":3,"ids":["map",[["k","x"]]]}},{"op":"delete","table":"Pet","where":[["name","==","dog"]]}]`,
}

// makeFile makes a stand-alone database file with ovsdb-tool.
func (s *server) makeFile(name string, transactions []string) string {
	s.t.Helper()
	schema, file := filepath.Join(s.dir, "pets.ovsschema"), filepath.Join(s.dir, name)
	if err := os.WriteFile(schema, []byte(petsSchema), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.do("ovsdb-tool", "create", file, schema)
	for _, txn := range transactions {
		s.do("ovsdb-tool", "transact", file, txn)
	}
	return file
}

// serve runs an ovsdb-server on a file and returns where it listens.
func (s *server) serve(file string) string {
	s.t.Helper()
	at := "unix:" + file + ".sock"
	s.run("ovsdb-server", "--no-chdir", "--remote=p"+at, "--unixctl="+file+".ctl", file)
	outside.Eventually(s.t, patience, "ovsdb-server serves "+file, func() bool {
		out, err := s.try("ovsdb-client", "dump", at, "Pets")
		return err == nil && strings.Contains(out, "Pet table")
	})
	return at
}

func (s *server) dump(at string) string {
	s.t.Helper()
	return s.do("ovsdb-client", "dump", at, "Pets")
}

func (s *server) table(args ...string) string {
	s.t.Helper()
	return s.do(outside.Binary(s.t), append([]string{"table", "--server", s.url()}, args...)...)
}

// What ovsdb-tool and ovsdb-server have written comes in, and goes out as they read it.
func TestDatabasesMove(t *testing.T) {
	need(t, "ovsdb-client", "ovsdb-server", "ovsdb-tool")
	s := start(t)
	alone := s.makeFile("alone.db", petsTransactions)
	running := s.serve(alone)
	is := s.dump(running)
	if !strings.Contains(is, "{k=x}") || !strings.Contains(is, "[b, c]") || strings.Contains(is, "dog") {
		t.Fatalf("ovsdb-server has\n%s", is)
	}

	s.table("import", alone)
	if got := s.dump(s.unix); got != is {
		t.Errorf("after a stand-alone file: got\n%s\nwant\n%s", got, is)
	}
	s.table("schema", "rm", "Pets", "--yes")
	s.table("import", running)
	if got := s.dump(s.unix); got != is {
		t.Errorf("after a running server: got\n%s\nwant\n%s", got, is)
	}

	out := filepath.Join(s.dir, "out.db")
	s.table("export", "Pets", out)
	want(t, "version", s.do("ovsdb-tool", "db-version", out), "1.0.0\n")
	s.do("ovsdb-tool", "show-log", out)
	s.do("ovsdb-tool", "compact", out)
	if got := s.dump(s.serve(out)); got != is {
		t.Errorf("ovsdb-server has of the exported file\n%s\nwant\n%s", got, is)
	}
}

func TestClusteredDatabaseMovesIn(t *testing.T) {
	need(t, "ovsdb-client", "ovsdb-server", "ovsdb-tool")
	s := start(t)
	file := filepath.Join(s.dir, "cluster.db")
	s.do("ovsdb-tool", "create-cluster", file, s.makeFile("first.db", petsTransactions[:1]), "unix:"+filepath.Join(s.dir, "raft"))
	at := s.serve(file)
	for _, txn := range petsTransactions[1:] {
		s.do("ovsdb-client", "transact", at, txn)
	}
	s.table("import", file)
	if got, is := s.dump(s.unix), s.dump(at); got != is {
		t.Errorf("got\n%s\nwant\n%s", got, is)
	}
}

// ovsdb-client's own backup and restore.
func TestClientsBackup(t *testing.T) {
	need(t, "ovsdb-client", "ovsdb-tool")
	s := start(t)
	s.table("import", s.makeFile("alone.db", petsTransactions))
	is := s.dump(s.unix)
	backup := filepath.Join(s.dir, "backup.db")
	s.do("sh", "-c", "ovsdb-client backup '"+s.unix+"' Pets > '"+backup+"'")
	s.do("ovsdb-client", "transact", s.unix, `["Pets",{"op":"delete","table":"Pet","where":[]}]`)
	s.do("sh", "-c", "ovsdb-client restore '"+s.unix+"' Pets < '"+backup+"'")
	// The client inserts rows with uuids of their own, whatever the server.
	want(t, "restored", s.dump(s.unix), uuids.ReplaceAllString(is, "UUID"))
}

var urls = regexp.MustCompile(`msg=listening url=(\S+)`)

// url is where the server serves its own API, as its log says.
func (s *server) url() string {
	s.t.Helper()
	log, err := os.ReadFile(filepath.Join(s.dir, "incumbent.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	found := urls.FindSubmatch(log)
	if found == nil {
		s.t.Fatalf("no url in\n%s", log)
	}
	return string(found[1])
}
