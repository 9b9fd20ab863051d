package ovsdb

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What differs in what ovsdb-client says of two servers that hold the same: uuids, times,
// words of errors and the order of rows, which is that of a hash.
var (
	times   = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT[\d:.]+Z`)
	details = regexp.MustCompile(`"(details|syntax)":"(\\.|[^"\\])*",?`)
)

// client runs ovsdb-client on each side, and returns what it says, with its exit status.
// @ among the arguments is the server, % its number.
func (p *peers) client(dir, stdin string, args ...string) (said [2]string) {
	p.t.Helper()
	for i := range p.at {
		ctx, cancel := context.WithTimeout(p.t.Context(), patience)
		cmd := p.command(ctx, i, dir, args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if stdin != "" {
			text, err := os.ReadFile(filepath.Join(dir, numbered(stdin, i)))
			if err != nil {
				p.t.Fatal(err)
			}
			cmd.Stdin = bytes.NewReader(text)
		}
		how := "well"
		if err := cmd.Run(); err != nil {
			how = err.Error()
		}
		cancel()
		if args[0] == "backup" {
			if err := os.WriteFile(filepath.Join(dir, numbered("backup%", i)), out.Bytes(), 0o600); err != nil {
				p.t.Fatal(err)
			}
			out.Reset()
		}
		said[i] = "ends " + how + "\n" + p.plainText(i, out.String()+errs.String())
	}
	return said
}

func (p *peers) command(ctx context.Context, side int, dir string, args ...string) *exec.Cmd {
	list := make([]string, len(args))
	for k, a := range args {
		list[k] = numbered(strings.ReplaceAll(a, "@", p.at[side]), side)
	}
	cmd := exec.CommandContext(ctx, "ovsdb-client", list...)
	cmd.Dir = dir
	return cmd
}

func numbered(text string, side int) string { return strings.ReplaceAll(text, "%", strconv.Itoa(side)) }

// plainText is what was said without what may differ.
func (p *peers) plainText(side int, text string) string {
	text = uuids.ReplaceAllString(strings.ReplaceAll(text, p.at[side], "@"), "UUID")
	text = details.ReplaceAllString(times.ReplaceAllString(text, "TIME"), "")
	lines := strings.Split(strings.ReplaceAll(text, ",}", "}"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// plainSchema is that of the corpus without the column that is ephemeral: ovsdb-client
// knows of none in a cluster, and makes it persistent.
func plainSchema(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(corpusSchema)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(text), `, "ephemeral": true`, "", 1)
}

// Each verb of ovsdb-client that ends by itself does and says of ours what it does of
// ovsdb-server, right or wrong. What those that go on are told the tests of monitors and
// requests compare.
func TestVerbsOfTheClient(t *testing.T) {
	need(t, "ovsdb-client")
	dir := t.TempDir()
	schema := plainSchema(t)
	if strings.Contains(schema, "ephemeral") {
		t.Fatal("the schema still has an ephemeral column")
	}
	for name, text := range map[string]string{
		"is": schema, "bad": `{"name":"Corpus"}`, "empty": "", "other": strings.Replace(schema, `"name": "Corpus"`, `"name": "Other"`, 1),
		"new":    strings.NewReplacer(`"version": "1.0.0"`, `"version": "1.1.0"`, `"s": {"type": "string"}`, `"s": {"type": "string"}, "added": {"type": "integer"}`).Replace(schema),
		"narrow": strings.Replace(schema, `"name": {"type": "string"}`, `"name": {"type": {"key": {"type": "string", "enum": ["set", ["q"]]}}}`, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := startPeers(t, clustered, filepath.Join(dir, "is"))
	play := func(stdin string, args ...string) {
		t.Helper()
		if said := p.client(dir, stdin, args...); said[0] != said[1] {
			t.Errorf("%q: %s\n%s\n%s\n%s", args, p.names[0], said[0], p.names[1], said[1])
		}
	}
	verb := func(args ...string) { t.Helper(); play("", args...) }
	const rows = `["Corpus",{"op":"insert","table":"Root","row":{"name":"a","i":1,"ints":["set",[3,1]],"map":["map",[["k","v"]]],"r":1.5,"b":true}},{"op":"insert","table":"Root","row":{"name":"b","i":2}}]`
	verb("list-dbs", "@")
	for _, db := range []string{"Corpus", "_Server", "Nowhere"} {
		for _, v := range []string{"get-schema", "get-schema-version", "get-schema-cksum", "list-tables", "list-columns"} {
			verb(v, "@", db)
		}
	}
	verb("list-columns", "@", "Corpus", "Root")
	verb("list-columns", "@", "Corpus", "Nothing")
	for _, txn := range []string{rows, rows, `["Corpus"]`, `["Nowhere",{"op":"select"}]`, `{}`, `[`} {
		verb("transact", "@", txn)
	}
	verb("query", "@", `["Corpus",{"op":"select","table":"Root","where":[["name","==","a"]],"columns":["name","i"]}]`)
	verb("query", "@", strings.NewReplacer(`"a"`, `"c"`, `"b",`, `"d",`).Replace(rows))
	verb("query", "@", `["Corpus",{"op":"select","table":"Nothing","where":[]}]`)
	for _, format := range []string{"table", "list", "html", "csv"} {
		for _, data := range []string{"string", "bare", "json"} {
			verb("-f", format, "-d", data, "dump", "@", "Corpus", "Root", "name", "ints", "map", "r", "b")
		}
	}
	verb("dump", "@", "Corpus")
	verb("dump", "@", "Corpus", "Nothing")
	verb("dump", "@", "Corpus", "Root", "nothing")
	verb("dump", "@", "Nowhere")
	for _, state := range [][]string{{"Corpus", "connected"}, {"Corpus", "added"}, {"Nowhere", "removed"}, {"Corpus", "otherwise"}} {
		verb("wait", "@", state[0], state[1])
	}
	for _, file := range []string{"is", "new", "other", "bad", "none"} {
		verb("needs-conversion", "@", file)
	}
	for _, file := range []string{"other", "bad", "narrow", "new"} {
		verb("convert", "@", file)
	}
	verb("needs-conversion", "@", "new")
	verb("needs-conversion", "@", "is")
	verb("get-schema-version", "@", "Corpus")
	verb("dump", "@", "Corpus", "Root", "name", "added")
	verb("backup", "@", "Nowhere")
	verb("backup", "@", "Corpus")
	verb("transact", "@", `["Corpus",{"op":"delete","table":"Root","where":[]}]`)
	const backup = "backup%"
	play(backup, "restore", "@", "Corpus")
	verb("dump", "@", "Corpus", "Root", "name", "i", "ints")
	play(backup, "restore", "@", "Nowhere")
	play(backup, "--force", "restore", "@", "Corpus")
	play("empty", "restore", "@", "Corpus")
	verb("monitor", "@", "Corpus", "Nothing")
	verb("monitor-cond", "@", "Corpus", `[["nothing","==",1]]`, "Root", "name")
	verb("nothing", "@")
}
