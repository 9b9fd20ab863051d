package outside

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// KeyWatcher is 'incumbent kv watch', running.
type KeyWatcher struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	last   uint64
	others []string // what else was shown
}

// WatchKeys follows the keys below a prefix at these servers, and returns once what
// was there is shown, which must be one entry.
func WatchKeys(t *testing.T, servers, prefix string) *KeyWatcher {
	t.Helper()
	w := &KeyWatcher{t: t, cmd: exec.Command(Binary(t), "kv", "watch", "--prefix", prefix, "-o", "json", "--server", servers)}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	w.lines = bufio.NewScanner(out)
	if what, _ := w.read(); what != "present" {
		t.Fatalf("it begins with %q", what)
	}
	return w
}

// read returns the next change and the value after it.
func (w *KeyWatcher) read() (what, value string) {
	w.t.Helper()
	late := time.AfterFunc(keysPatience, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	if !w.lines.Scan() {
		w.t.Fatalf("the watch ended after index %d: %v", w.last, w.lines.Err())
	}
	var e struct {
		Index, What string
		Entry       struct{ Value string }
	}
	if err := json.Unmarshal(w.lines.Bytes(), &e); err != nil {
		w.t.Fatalf("%v in %q", err, w.lines.Text())
	}
	index, err := strconv.ParseUint(e.Index, 10, 64)
	if err != nil || index <= w.last {
		w.t.Fatalf("index %s after %d, %v", e.Index, w.last, err)
	}
	w.last = index
	raw, err := base64.StdEncoding.DecodeString(e.Entry.Value)
	if err != nil {
		w.t.Fatal(err)
	}
	return e.What, string(raw)
}

// Expect fails the test unless the next change stored this value, at an index above
// the one before.
func (w *KeyWatcher) Expect(value string) {
	w.t.Helper()
	if what, got := w.read(); what != "put" || got != value {
		w.t.Fatalf("%s %q where %q was stored", what, got, value)
	}
}

// End interrupts it, as a person does, and fails the test unless it ends well.
func (w *KeyWatcher) End() {
	w.t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		w.t.Fatal(err)
	}
	late := time.AfterFunc(keysPatience, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	for w.lines.Scan() {
		w.others = append(w.others, w.lines.Text())
	}
	if err := w.cmd.Wait(); err != nil || len(w.others) > 0 {
		w.t.Errorf("interrupted: %v, and it had %q to say", err, w.others)
	}
}
