package bench

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeBinary is a script in the place of the binary: 'cluster local' has one
// member, a process that sleeps.
func fakeBinary(t *testing.T, local string) LocalConfig {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "incumbent")
	text := "#!/bin/sh\ncase \"$1 $2\" in\n'cluster token') echo TOKEN;;\n'cluster transfer-leader') echo \"$@\" > " + dir + "/led;;\n'cluster local')\n" + local + "\n;;\nesac\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	data := filepath.Join(dir, "run")
	if err := os.MkdirAll(filepath.Join(data, "n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	return LocalConfig{Binary: script, Dir: data, Launch: Launch{Members: 1}}
}

const oneSleeper = `sleep 1000 & p=$!
trap 'kill $p' TERM
dir=$(dirname "$0")/run
printf '{"members":[{"name":"n1","url":"http://127.0.0.1:1","pid":%d,"data_dir":"%s/n1","log":"%s/n1.log","command":["/bin/sh","-c","echo $INCUMBENT_JOIN > %s/joined; exec sleep 1000"]}],"ca":""}' $p "$dir" "$dir" "$dir"
wait $p`

// waitFor fails the test unless the condition comes true.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func TestLocalClusterEndsAndRestartsMembers(t *testing.T) {
	cfg := fakeBinary(t, oneSleeper)
	l, err := StartLocal(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	first := l.Servers()[0]
	if first.Name != "n1" || !alive(first.PID) {
		t.Fatalf("%+v", first)
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, "n1.log"), []byte("up\nleads\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if size, lines := l.Logged(); size != 9 || lines != 2 {
		t.Errorf("%d bytes and %d lines were logged", size, lines)
	}
	if err := l.Kill(0, syscall.SIGKILL); err != nil || alive(first.PID) {
		t.Fatalf("killed: %v, alive %v", err, alive(first.PID))
	}
	if err := l.Kill(0, syscall.SIGKILL); err != nil {
		t.Errorf("killed twice: %v", err)
	}
	if err := l.Start(t.Context(), 0, Start{Wiped: true}); err != nil {
		t.Fatal(err)
	}
	second := l.Servers()[0]
	if second.PID == first.PID || !alive(second.PID) {
		t.Errorf("started again as %+v", second)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "n1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its disk was not wiped: %v", err)
	}
	waitFor(t, "the member has its token", func() bool {
		said, _ := os.ReadFile(filepath.Join(cfg.Dir, "joined"))
		return string(said) == "TOKEN\n"
	})
	if err := l.Lead(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if said, err := os.ReadFile(filepath.Join(filepath.Dir(cfg.Dir), "led")); err != nil || string(said) != "cluster transfer-leader n1 --server http://127.0.0.1:1\n" {
		t.Errorf("%q, %v", said, err)
	}
	if err := l.Cut(0, true, false); err == nil {
		t.Error("cut off without a proxy")
	}
	parent := l.parent.pid()
	l.Stop()
	if alive(second.PID) || alive(parent) {
		t.Errorf("after the end, alive: member %v, parent %v", alive(second.PID), alive(parent))
	}
	if _, err := os.Stat(cfg.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("data is left: %v", err)
	}
}

func TestLocalClusterThatDoesNotStart(t *testing.T) {
	_, err := StartLocal(t.Context(), fakeBinary(t, "echo the disk is full >&2; exit 1"))
	if err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
	cfg := fakeBinary(t, "")
	cfg.Cuts, cfg.TLS = true, true
	if _, err := StartLocal(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "without TLS only") {
		t.Errorf("%v", err)
	}
	cfg = fakeBinary(t, "")
	cfg.Cuts = true
	if _, err := StartLocal(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "n1 ended before it served") {
		t.Errorf("%v", err)
	}
}

func TestSlowedIsTheCommandUnderATracer(t *testing.T) {
	argv := []string{"incumbent", "server"}
	if got := slowed(argv, 0); len(got) != 2 {
		t.Errorf("%q", got)
	}
	got := strings.Join(slowed(argv, 300*time.Millisecond), " ")
	if !strings.HasPrefix(got, "strace -D -f --seccomp-bpf ") || !strings.HasSuffix(got, "inject=fdatasync,fsync:delay_enter=300000 incumbent server") {
		t.Errorf("%q", got)
	}
}

func TestServersHaveTheProcessorsTheyAreGiven(t *testing.T) {
	argv := []string{"incumbent", "server"}
	if got := (&Launch{}).pinned(argv); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if got := strings.Join((&Launch{CPUs: "0,2-3"}).pinned(argv), " "); got != "taskset -c 0,2-3 incumbent server" {
		t.Errorf("%q", got)
	}
}
