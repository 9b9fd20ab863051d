package blackbox

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// A member that waits for the others to let it join is sent a SIGHUP, as those who rotate
// files do: it goes on waiting, joins, and then reloads.
func TestAHangupBeforeAMemberIsOpen(t *testing.T) {
	dir, address, peers := t.TempDir(), freeAddress(t), freeAddress(t)
	first := func() *member { return start(t, dir, nil, "--listen", address, "--peer-listen", peers) }
	m := first()
	token, stderr, code := m.cli("cluster", "token", "n2")
	if code != 0 {
		t.Fatalf("cluster token: %d, %s", code, stderr)
	}
	file := filepath.Join(t.TempDir(), "token")
	writeFile(t, file, token)
	m.kill()

	joins := exec.Command(binary(t), "server", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--join-file", file)
	joins.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := joins.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := joins.Start(); err != nil {
		t.Fatal(err)
	}
	waits, ended := make(chan struct{}), make(chan string)
	go func() {
		var text strings.Builder
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if text.WriteString(lines.Text() + "\n"); strings.Count(text.String(), "not joined yet") == 1 && strings.Contains(lines.Text(), "not joined yet") {
				close(waits)
			}
		}
		_ = joins.Wait() // it is killed
		ended <- text.String()
	}()
	over := func() string { _ = joins.Process.Kill(); return <-ended }
	select {
	case <-waits:
	case text := <-ended:
		t.Fatalf("it does not wait:\n%s", text)
	case <-time.After(patience):
		t.Fatalf("it does not wait:\n%s", over())
	}
	if err := joins.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m = first()
	reloaded := func() bool {
		out, _, code := m.cli("cluster", "ls", "-o", "json")
		if code != 0 {
			return false
		}
		for _, url := range urlsIn(out) {
			if events, _, code := outside.Run(t, "events", "--server", url); code == 0 && url != m.url && strings.Contains(events, "reloaded") {
				return true
			}
		}
		return false
	}
	for limit := time.After(patience); !reloaded(); {
		select {
		case text := <-ended:
			t.Fatalf("it has ended:\n%s", text)
		case <-limit:
			t.Fatalf("it has not joined and reloaded:\n%s", over())
		case <-time.After(100 * time.Millisecond):
		}
	}
	over()
}

// urlsIn are the URLs of members in a list of them.
func urlsIn(list string) (urls []string) {
	for _, word := range strings.Split(list, `"`) {
		if strings.HasPrefix(word, "http://") {
			urls = append(urls, word)
		}
	}
	return urls
}
