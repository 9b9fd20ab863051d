package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysFromTheCommandLine(t *testing.T) {
	s := openServer(t)
	kv := func(args ...string) outcome {
		t.Helper()
		return execute(t, nil, append([]string{"kv", args[0], "--server", s.URL()}, args[1:]...)...)
	}
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("from a file\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	export := filepath.Join(t.TempDir(), "export.json")
	if err := os.WriteFile(export, []byte(`[{"key": "c/1", "flags": 7, "value": "b25l"}, {"key": "c/2", "flags": 0, "value": ""}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		code int
		out  string // all of it, unless it ends with …
		err  string // part of it
	}{
		{args: []string{"get", "x"}, code: exitHeld, err: "is not there"},
		{args: []string{"put", "x", "a"}, out: "x stored at index 1\n"},
		{args: []string{"get", "x"}, out: "a"},
		{args: []string{"put", "x", "b", "--if-index", "0"}, code: exitConflict, err: "last modified at index 1"},
		{args: []string{"put", "x", "b", "--if-value", "a", "--flags", "9"}, out: "x stored at index …"},
		{args: []string{"put", "y", "b", "--if-index", "5"}, code: exitConflict, err: "it is not there"},
		{args: []string{"put", "f", "@" + file}, out: "f stored at index …"},
		{args: []string{"get", "f"}, out: "from a file\x00\n"},
		{args: []string{"put", "f", "@" + file + "x"}, code: exitUsage, err: "cannot read the value"},
		{args: []string{"import", export}, out: "2 stored\n"},
		{args: []string{"import", file}, code: exitUsage, err: "consul kv export"},
		{args: []string{"get", "c/1", "-o", "jsonl"}, out: `{"created_index":"…`},
		{args: []string{"ls", "--separator", "/", "-o", "jsonl"}, out: `{"prefix":"c/"}` + "\n…"},
		{args: []string{"ls", "c/"}, out: "KEY …"},
		{args: []string{"ls", "none/", "-o", "json"}, out: "[]\n"},
		{args: []string{"rm", "c/", "--tree"}, out: "2 deleted\n"},
		{args: []string{"rm", "c/1"}, code: exitHeld, err: "is not there"},
		{args: []string{"rm", "x", "--if-index", "1"}, code: exitConflict, err: "last modified at index"},
		{args: []string{"rm", "x", "-o", "jsonl"}, out: `{"deleted":1,…`},
	} {
		got := kv(step.args...)
		begin, part := strings.CutSuffix(step.out, "…")
		ok := got.stdout == step.out || part && strings.HasPrefix(got.stdout, begin)
		if got.code != step.code || !ok || !strings.Contains(got.stderr, step.err) {
			t.Errorf("%q: code %d, output %q, error %q", step.args, got.code, got.stdout, got.stderr)
		}
	}
}
