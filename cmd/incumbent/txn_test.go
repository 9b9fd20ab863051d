package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTransactionsFromTheCommandLine(t *testing.T) {
	s := openServer(t)
	file := filepath.Join(t.TempDir(), "move.txn")
	if err := os.WriteFile(file, []byte(`# moves what is there
if key from exists
if none to/
then
  put to/1 "a b"   # with a blank
  rm from
  list to/
else
  get from
`), 0o600); err != nil {
		t.Fatal(err)
	}
	request := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(request, []byte(`{"then": [{"get": {"key": "to/1"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		code int
		out  string // part of it
		err  string // part of it
	}{
		{args: []string{file}, code: exitConflict, out: "get  from  is not there", err: "condition 1 does not hold"},
		{args: []string{"--if", "key from absent", "--then", "put from x", "--then", "claim db me 1m"}, out: "claim  db"},
		{args: []string{file, "-o", "jsonl"}, out: `"succeeded":true`},
		{args: []string{request}, out: `"a b"`},
		{args: []string{"--if", `key to/1 value != "a b"`, "--else", "list to/"}, code: exitConflict, out: `"a b"`},
		{args: []string{"--if", "key to/1 index > 0", "--if", "unchanged to/ 999", "--then", "rm-tree to/"}, out: "1 deleted"},
		{args: []string{"--if", "unchanged to/ 1"}, code: exitConflict, err: "condition 1"},
		{args: []string{"--then", "put x y", "--then", "claim db other 1m"}, code: exitHeld, err: "operation 2"},
		{args: []string{"--then", "get x"}, out: "is not there"},
		{args: []string{"--if-held", "--lease", "db", "--token", "99", "--then", "put x y"}, code: exitConflict, err: "condition 1"},
		{args: []string{"--if-held"}, code: exitUsage, err: "--lease and --token"},
		{args: []string{"--if", "key x like = y"}, code: exitUsage, err: "none of index"},
		{args: []string{"--if", "held db"}, code: exitUsage, err: "held LEASE TOKEN"},
		{args: []string{"--then", "put x"}, code: exitUsage, err: "put KEY VALUE"},
		{args: []string{"--then", "frob x"}, code: exitUsage, err: "none of get"},
		{args: []string{"--then", `put x "y`}, code: exitUsage, err: "quote"},
		{args: []string{"--then", "claim db me 1"}, code: exitUsage, err: "duration"},
		{args: []string{file + "x"}, code: exitUsage, err: "cannot read: open "},
	} {
		got := execute(t, nil, append([]string{"txn", "--server", s.URL()}, step.args...)...)
		if got.code != step.code || !strings.Contains(got.stdout, step.out) || !strings.Contains(got.stderr, step.err) {
			t.Errorf("%q: code %d, output %q, error %q", step.args, got.code, got.stdout, got.stderr)
		}
	}
}

// A statement in a file is found by its line.
func TestTransactionFilesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"put x y":                  ":1: it stands before then",
		"then\n\nput x y\nif":      ":4: the condition is empty",
		"if key x":                 ":1: want",
		"else\nput x y z":          ":2: want",
		`{"then": [{"frob": {}}]}`: "unknown field",
	} {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := execute(t, nil, "txn", file); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: code %d, error %q", text, got.code, got.stderr)
		}
	}
}

func TestWordsOfAStatement(t *testing.T) {
	for line, want := range map[string][]string{
		"":                      nil,
		"  # all of it":         nil,
		" a  b\tc\r":            {"a", "b", "c"},
		`put "a b" "" # c`:      {"put", "a b", ""},
		`put "a\"b\n" c#d "\\"`: {"put", "a\"b\n", "c#d", `\`},
	} {
		got, err := wordsOf(line)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", line, err, diff)
		}
	}
}
