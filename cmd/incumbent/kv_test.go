package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Who interrupts a command that reads its standard input has made no mistake.
func TestInterruptedWhileReading(t *testing.T) {
	file := writeFile(t, "txn", "then\nput a -\n")
	for _, args := range [][]string{{"kv", "put", "a", "-"}, {"kv", "import", "-"}, {"txn", "-"}, {"txn", file}, {"txn", "--then", "put a -"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		env, read := testEnvironment(t, nil)
		env.stdin = r
		ended := make(chan int, 1)
		go func() { ended <- run(args, env) }()
		// More than a pipe has room for: it is being read once all is written.
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		code := <-ended
		if _, stderr := read(); code != exitOther || stderr != "incumbent: interrupted\n" {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
		w.Close()
		r.Close()
	}
}

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
		{args: []string{"put", "x", "a"}, out: "x stored at index 2\n"},
		{args: []string{"get", "x"}, out: "a"},
		{args: []string{"put", "x", "b", "--if-index", "0"}, code: exitConflict, err: "last modified at index 2"},
		{args: []string{"put", "x", "b", "--if-value", "a", "--flags", "9"}, out: "x stored at index …"},
		{args: []string{"put", "y", "b", "--if-index", "5"}, code: exitConflict, err: "it is not there, or not shown to you"},
		{args: []string{"put", "f", "@" + file}, out: "f stored at index …"},
		{args: []string{"get", "f"}, out: "from a file\x00\n"},
		{args: []string{"put", "f", "@" + file + "x"}, code: exitUsage, err: "cannot read: open "},
		{args: []string{"import", export}, out: "2 stored\n"},
		{args: []string{"import", file}, code: exitUsage, err: "consul kv export"},
		{args: []string{"get", "c/1", "-o", "jsonl"}, out: `{"created_index":"…`},
		{args: []string{"ls", "--separator", "/", "-o", "jsonl"}, out: `{"prefix":"c/"}` + "\n…"},
		{args: []string{"ls", "c/"}, out: "KEY …"},
		{args: []string{"ls", "none/", "-o", "json"}, out: "[]\n"},
		{args: []string{"put", "z", "a", "-o", "jsonl"}, out: `{"entry":{"created_index":"…`},
		{args: []string{"watch"}, code: exitUsage, err: "either KEY or --prefix"},
		{args: []string{"watch", "x", "--prefix", "x"}, code: exitUsage, err: "either KEY or --prefix"},
		{args: []string{"watch", "x", "--after", "99999"}, code: exitConflict, err: "does not exist yet"},
		{args: []string{"watch", "", "--after", "1"}, code: exitUsage, err: "key"},
		{args: []string{"rm", "c/", "--tree"}, out: "2 deleted\n"},
		{args: []string{"rm", "c/1"}, code: exitHeld, err: "is not there"},
		{args: []string{"rm", "x", "--if-index", "0"}, code: exitConflict, err: "last modified at index"},
		{args: []string{"rm", "x", "--tree", "--if-index", "0"}, code: exitUsage, err: "either --tree or --if-index"},
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

func TestChangesOfKeysForPeople(t *testing.T) {
	var out strings.Builder
	err := printKeyEvents(&out, formTable, &apiv1.WatchKeysResponse{Events: []*apiv1.KeyEvent{
		{Index: 7, What: "locked", Entry: &apiv1.KeyValue{Key: "x", Value: []byte("a\n"), Session: "s"}},
		{Index: 8, What: "put", Entry: &apiv1.KeyValue{Key: "x", Value: bytes.Repeat([]byte("v"), 1000)}},
		{Index: 9, What: "deleted", Previous: &apiv1.KeyValue{Key: "x", Value: []byte("b")}},
	}})
	want := "       7  locked    x  \"a\\n\"  session s\n       8  put       x  \"" + strings.Repeat("v", shownValue) + "\"… (1000 bytes)\n       9  deleted   x\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, &out)
	}
}
