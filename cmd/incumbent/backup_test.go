package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/server"
)

// What a member refuses is what is said, not that the stream was closed over it.
func TestBackupSaysWhyThereIsNone(t *testing.T) {
	s, own := openWithCredential(t, "watcher", "observer")
	dir := t.TempDir()
	file := filepath.Join(dir, "one.backup")
	if got := execute(t, nil, append([]string{"backup", "create", file}, own...)...); got.code != exitDenied || !strings.Contains(got.stderr, "observer") {
		t.Errorf("an observer: exit code %d, %s", got.code, got.stderr)
	}
	nowhere := filepath.Join(dir, "none", "one.backup")
	if got := execute(t, nil, "backup", "create", nowhere, "--server", openServer(t).URL()); got.code != exitUsage || !strings.Contains(got.stderr, "there must be such a folder") {
		t.Errorf("no folder: exit code %d, %s", got.code, got.stderr)
	}
	for _, text := range []string{"", "name: a secret: b\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := execute(t, nil, "status", "--server", s.URL(), "--credential-file", file); got.code != exitUsage || !strings.Contains(got.stderr, "has no credential") {
			t.Errorf("%q: exit code %d, %s", text, got.code, got.stderr)
		}
	}
}

// --timeout is for the member: who reads the backup may take its time.
func TestABackupWaitsForItsReader(t *testing.T) {
	url := openServer(t).URL()
	env, _ := testEnvironment(t, nil)
	c := parsed(t, env, "backup create", "--server", url)
	c.SetContext(t.Context())
	err := withClient(c, func(cl *client.Client) error {
		in, err := openBackup(c, cl)
		if err != nil {
			return err
		}
		defer in.close()
		if in.late.Stop() {
			t.Error("the time runs while nothing is waited for")
		}
		_, err = io.Copy(io.Discard, in)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// From a running server to a file, and from there to another server.
func TestBackupThereAndBack(t *testing.T) {
	url := openServer(t).URL()
	dir := t.TempDir()
	file := filepath.Join(dir, "one.backup")
	must := func(code int, args ...string) outcome {
		t.Helper()
		got := execute(t, nil, args...)
		if got.code != code {
			t.Fatalf("%s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got.code, code, got.stdout, got.stderr)
		}
		return got
	}
	must(exitOK, "lease", "claim", "db/primary", "--holder", "ann", "--ttl", "1h", "--server", url)
	must(exitOK, "kv", "put", "color", "green", "--server", url)
	must(exitOK, "backup", "create", file, "--server", url)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: not the owner's alone", info.Mode(), err)
	}
	must(exitConflict, "backup", "create", file, "--server", url)
	must(exitHeld, "backup", "create", filepath.Join(dir, "x"), "--from", "n9", "--server", url)
	must(exitOK, "backup", "create", dir, "--from", "n1", "--server", url)

	var listed []backupJSON
	if err := json.Unmarshal([]byte(must(exitOK, "backup", "ls", dir, "-o", "json").stdout), &listed); err != nil || len(listed) != 2 {
		t.Fatalf("listed %+v, %v", listed, err)
	}
	for _, b := range listed {
		if b.Member != "n1" || b.Index == 0 || b.Error != "" {
			t.Errorf("listed %+v", b)
		}
	}
	if got := must(exitOK, "backup", "verify", file).stdout; !strings.Contains(got, "is whole") || !strings.Contains(got, "2 results, 1 members, 1 leases, 1 kv") {
		t.Errorf("verify says %q", got)
	}
	sent := must(exitOK, "backup", "create", "-", "--server", url).stdout
	streamed := filepath.Join(dir, "streamed")
	if err := os.WriteFile(streamed, []byte(sent), 0o600); err != nil {
		t.Fatal(err)
	}
	must(exitOK, "backup", "verify", streamed)

	flipped := []byte(sent)
	flipped[len(flipped)/2] ^= 4
	if err := os.WriteFile(streamed, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	must(exitOther, "backup", "verify", streamed)
	must(exitOther, "backup", "restore", streamed, "--data-dir", data)
	must(exitHeld, "backup", "verify", filepath.Join(dir, "none"))
	must(exitUsage, "backup", "verify", os.Args[0])
	must(exitHeld, "backup", "restore", file, "--data-dir", data, "--only-namespace", "nowhere")

	made := must(exitOK, "backup", "restore", file, "--data-dir", data, "--name", "n7")
	if !strings.Contains(made.stdout, "incumbent server --data-dir "+data) {
		t.Errorf("restore says %q", made.stdout)
	}
	must(exitConflict, "backup", "restore", file, "--data-dir", data)
	again, err := server.Open(server.Config{DataDir: data, Listen: "127.0.0.1:0", SegmentBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close(t.Context()) })
	if err := again.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := must(exitOK, "lease", "get", "db/primary", "--server", again.URL()).stdout; !strings.Contains(got, "ann") {
		t.Errorf("db/primary: %s", got)
	}
	if got := must(exitOK, "kv", "get", "color", "--server", again.URL()).stdout; strings.TrimSpace(got) != "green" {
		t.Errorf("color: %s", got)
	}
	if got := must(exitOK, "status", "--server", again.URL()).stdout; !strings.HasPrefix(got, "healthy") || !strings.Contains(got, "n7") {
		t.Errorf("status: %s", got)
	}
}
