package ovsdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// peers are ovsdb-server and our binary, with the same databases.
type peers struct {
	t     *testing.T
	names [2]string
	at    [2]string // where they listen
}

// Kinds of databases of ovsdb-server. One that is clustered has a history of its
// transactions, as ours do, and may be broken by one that replaces a set of limited size
// by another: what is written is the difference, which the same limit is applied to.
const (
	standAlone = "create"
	clustered  = "create-cluster"
)

// startPeers starts both with the databases of schema files.
func startPeers(t *testing.T, kind string, schemas ...string) *peers {
	t.Helper()
	need(t, "ovsdb-server", "ovsdb-tool")
	dir := t.TempDir()
	s := &server{t: t, dir: dir}
	p := &peers{t: t, names: [2]string{"ovsdb-server", "incumbent"}}
	for i := range p.at {
		p.at[i] = "unix:" + filepath.Join(dir, fmt.Sprint("s", i))
	}
	theirs := []string{"--remote=p" + p.at[0], "--unixctl=" + filepath.Join(dir, "ctl"), "--no-chdir", "-vconsole:warn"}
	ours := []string{"server", "--dev", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--ovsdb-listen", p.at[1]}
	for i, schema := range schemas {
		schema, err := filepath.Abs(schema) // programs run in their own folder
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, fmt.Sprint(i, ".db"))
		create := []string{kind, file, schema}
		if kind == clustered {
			create = append(create, "unix:"+filepath.Join(dir, fmt.Sprint("raft", i)))
		}
		s.do("ovsdb-tool", create...)
		theirs, ours = append(theirs, file), append(ours, "--ovsdb-schema", schema)
	}
	s.run("ovsdb-server", theirs...)
	s.run(outside.Binary(t), ours...)
	for _, at := range p.at {
		outside.Eventually(t, patience, "all databases are there", func() bool {
			c, err := dial(at)
			if err != nil {
				return false
			}
			defer c.conn.Close()
			m, err := c.ask("transact", "_Server", object{"op": "select", "table": "Database", "where": []any{[]any{"connected", "==", true}}, "columns": []any{"name"}})
			return err == nil && strings.Count(fmt.Sprint(m.Result), "name:") >= len(schemas)+strings.Count(fmt.Sprint(m.Result), "_Server")
		})
	}
	return p
}

// pair is a connection to each peer that the same is sent to.
type pair struct {
	t     *testing.T
	peers *peers
	sides [2]*session
	known [2]map[string]string // names of uuids that a peer has chosen
	said  [2]message           // the last answers
}

func (p *peers) connect() *pair {
	p.t.Helper()
	c := &pair{t: p.t, peers: p}
	for i, at := range p.at {
		c.sides[i] = connect(p.t, at)
		c.known[i] = map[string]string{}
	}
	return c
}

// both sends a request to both peers.
func (c *pair) both(method string, params ...any) { c.each(method, params, params) }

// each sends each peer a request of its own, and fails unless what they answer, and
// what they told before, is the same.
func (c *pair) each(method string, params ...[]any) (same bool) {
	c.t.Helper()
	var ids [2]string
	for i, s := range c.sides {
		var err error
		if ids[i], err = s.send(method, params[i]); err != nil {
			c.t.Fatal(c.peers.names[i], err)
		}
	}
	var texts [2]string
	for i, s := range c.sides {
		m, err := s.answer(ids[i])
		if err != nil { // who ends a connection has said so
			if c.sides[i], err = dial(c.peers.at[i]); err != nil {
				c.t.Fatalf("%s ended at %s %s", c.peers.names[i], method, textOf(params[i]))
			}
			texts[i] = c.told(i) + "closes the connection"
			continue
		}
		c.said[i] = m
		if method == "transact" {
			c.learn(i, m.Result)
		}
		texts[i] = c.told(i) + "answers " + c.plain(i, m)
	}
	if texts[0] != texts[1] {
		c.t.Errorf("%s %s\n%s%s", method, textOf(params[0]), c.peers.names[0]+unlike(texts[0], texts[1]), c.peers.names[1]+unlike(texts[1], texts[0]))
	}
	return texts[0] == texts[1]
}

// unlike are the lines of a text that another does not have.
func unlike(text, other string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.Contains(other, line) {
			b.WriteString("\n  " + line)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// learn names the uuids of new rows in the order in which they were made.
func (c *pair) learn(side int, result any) {
	list, _ := result.([]any)
	for _, r := range list {
		o, _ := r.(object)
		if u, ok := o["uuid"].([]any); ok {
			id := fmt.Sprint(u[1])
			if _, ok := c.known[side][id]; !ok && !strings.HasPrefix(id, chosen) {
				c.known[side][id] = fmt.Sprintf("#%d", len(c.known[side]))
			}
		}
	}
}

// chosen begins the uuids that tests choose.
const chosen = "00000000-"

// told returns what a peer has told, and forgets it.
func (c *pair) told(side int) string {
	s := c.sides[side]
	var list []string
	for _, m := range s.told {
		list = append(list, "tells "+c.plain(side, m))
	}
	s.told = nil
	slices.Sort(list) // of several monitors either may come first
	return strings.Join(append(list, ""), "\n  ")
}

// plain is a message without what may differ.
func (c *pair) plain(side int, m message) string {
	if m.Method == "" {
		return textOf(c.normal(side, object{"result": m.Result, "error": m.Error}))
	}
	return textOf(c.normal(side, object{m.Method: m.Params}))
}

// normal is a value of JSON without what may differ: uuids that servers have chosen have
// names, sets of uuids and rows are in the order of these, versions are alike, and
// errors have no words of their own.
func (c *pair) normal(side int, v any) any {
	switch v := v.(type) {
	case json.Number:
		if v == "-0" { // a real, which ours do not have
			return json.Number("0")
		}
	case string:
		return c.name(side, v)
	case object:
		return c.normalObject(side, v)
	case []any:
		return c.normalArray(side, v)
	}
	return v
}

func (c *pair) normalObject(side int, v object) any {
	n := object{}
	_, isError := v["error"].(string)
	for _, k := range slices.Sorted(maps.Keys(v)) {
		switch {
		case k == "_version":
			n[k] = "a version"
		case isError && (k == "details" && v["details"] != waitFailed || k == "syntax"):
		default:
			n[c.name(side, k)] = c.normal(side, v[k])
		}
	}
	if rows, ok := n["rows"].([]any); ok {
		sortByText(rows)
	}
	return n
}

// waitFailed is what clients read of the error of a wait.
const waitFailed = `"where" clause test failed`

func (c *pair) normalArray(side int, v []any) any {
	n := make([]any, len(v))
	for i := range v {
		n[i] = c.normal(side, v[i])
	}
	if len(v) == 2 && (v[0] == "set" || v[0] == "map") {
		if list, ok := n[1].([]any); ok && hasUUIDs(list) {
			sortByText(list)
		}
	}
	return n
}

func hasUUIDs(list []any) bool {
	for _, e := range list {
		if strings.HasPrefix(textOf(e), `["uuid",`) || strings.HasPrefix(textOf(e), `[["uuid",`) {
			return true
		}
	}
	return false
}

// name is the name of an id; what is none stays.
func (c *pair) name(side int, s string) string {
	switch name, ok := c.known[side][s]; {
	case ok:
		return name
	case len(s) == 36 && uuids.MatchString(s) && !strings.HasPrefix(s, chosen):
		return "a uuid"
	}
	return s
}

func sortByText(list []any) {
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(textOf(a), textOf(b)) })
}

func textOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b))
	return text
}

// uuid is one that tests choose.
func uuid(n int) string { return fmt.Sprintf(chosen+"0000-4000-8000-%012d", n) }

// corpus are the transactions of a file, one a line: $N is the N-th uuid that tests
// choose, what follows # is a comment.
func corpus(t *testing.T, file string) (list [][]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for n := 99; n > 0; n-- {
			line = strings.ReplaceAll(line, fmt.Sprint("$", n), uuid(n))
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var ops []any
		if err := d.Decode(&ops); err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		list = append(list, ops)
	}
	return list
}
