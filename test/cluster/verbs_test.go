package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a member that a test starts with flags of its own.
type server struct {
	t    *testing.T
	name string
	dir  string
	args []string
	log  string
	cmd  *exec.Cmd
	url  string
}

// freePorts returns addresses on which nobody listens.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		out = append(out, ln.Addr().String())
	}
	return out
}

// newServer names a member's flags; start starts it.
func newServer(t *testing.T, name string, more ...string) *server {
	t.Helper()
	base := t.TempDir()
	ports := freePorts(t, 2)
	s := &server{t: t, name: name, dir: filepath.Join(base, "data"), log: filepath.Join(base, "log"), url: "http://" + ports[0]}
	s.args = append([]string{"--data-dir", s.dir, "--name", name, "--listen", ports[0], "--peer-listen", ports[1]}, more...)
	return s
}

// tokenFor makes a token and returns the file that holds it.
func (s *server) tokenFor(name string) string {
	s.t.Helper()
	return tokenFile(s.t, s.verb(0, "cluster", "token", name, "--signer"))
}

// start runs it and waits until it serves.
func (s *server) start(more ...string) {
	s.t.Helper()
	args := append(append([]string{"server", "--log-segment-bytes", "4194304", "--return-time", "1s"}, s.args...), more...)
	s.cmd = exec.Command(binary(s.t), args...)
	log, err := os.OpenFile(s.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.cmd
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		ready <- lines.Scan()
		for lines.Scan() {
		}
	}()
	select {
	case ok := <-ready:
		if ok {
			return
		}
	case <-time.After(patience):
	}
	said, _ := os.ReadFile(s.log)
	s.t.Fatalf("%s does not serve:\n%s", s.name, said)
}

// ended waits for the process and returns its exit code.
func (s *server) ended() int {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		s.t.Fatalf("%s does not end", s.name)
		return -1
	}
}

func (s *server) kill() { _ = s.cmd.Process.Kill(); s.ended() }

// verb runs the command line against a member and wants an exit code.
func (s *server) verb(code int, args ...string) string {
	s.t.Helper()
	out, errs, got := cli(s.t, append(args, "--server", s.url)...)
	if got != code {
		s.t.Errorf("%s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out + errs
}

// ls returns the roles of all members, by name, as the command line shows them.
func (s *server) ls() map[string]string {
	s.t.Helper()
	var got struct {
		Members []struct{ Name, Role string } `json:"members"`
	}
	out, errs, code := cli(s.t, "cluster", "ls", "-o", "json", "--server", s.url)
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		s.t.Fatalf("ls: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	roles := map[string]string{}
	for _, m := range got.Members {
		roles[m.Name] = m.Role
	}
	return roles
}

// until waits until a member has one of some roles.
func (s *server) until(name string, roles ...string) {
	s.t.Helper()
	eventually(s.t, patience, name+" is "+strings.Join(roles, " or "), func() bool { return slices.Contains(roles, s.ls()[name]) })
}

func (s *server) leader() string {
	for name, role := range s.ls() {
		if role == "leader" {
			return name
		}
	}
	return ""
}

// The verbs from the first member to the last, each twice where that must change
// nothing, and what each refuses.
func TestClusterVerbs(t *testing.T) {
	n1, n2, n3, n4 := newServer(t, "n1"), newServer(t, "n2"), newServer(t, "n3"), newServer(t, "n4", "--learner")
	first, _, code := cli(t, "cluster", "init", "--data-dir", n1.dir, "--name", "n1", "--plaintext", "-o", "json")
	again, _, codeAgain := cli(t, "cluster", "init", "--data-dir", n1.dir, "--plaintext", "-o", "json")
	if code != 0 || codeAgain != 0 || strings.Contains(first, "existed") || !strings.Contains(again, `"existed": true`) && !strings.Contains(again, `"existed":true`) {
		t.Fatalf("init: exit codes %d, %d\n%s%s", code, codeAgain, first, again)
	}
	n1.start()
	if out, errs, code := cli(t, "cluster", "init", "--data-dir", n1.dir, "--plaintext"); code != 5 {
		t.Errorf("init while a server runs: exit code %d\n%s%s", code, out, errs)
	}

	n1.verb(2, "cluster", "token", "n2", "--ttl", "1ms")
	n1.verb(2, "cluster", "token")
	join := func(s *server, file string, want int) {
		t.Helper()
		if out, errs, code := cli(t, append([]string{"cluster", "join", "--join-file", file}, s.args...)...); code != want {
			t.Errorf("join as %s: exit code %d, want %d\n%s%s", s.name, code, want, out, errs)
		}
	}
	token := n1.tokenFor("n2")
	join(n2, tokenFile(t, "INC2.nonsense"), 2)
	join(n2, "nowhere", 2)
	join(n2, token, 0)
	join(n2, token, 6) // the directory holds a member
	n2.start()
	n1.until("n2", "follower", "leader")
	join(newServer(t, "n2"), token, 7) // it was used
	n3.start("--join-file", n1.tokenFor("n3"))
	n1.until("n3", "follower", "leader")
	n4.start("--join-file", n1.tokenFor("n4"))
	n1.until("n4", "learner")
	join(newServer(t, "n3"), n1.tokenFor("n3"), 6) // the name belongs to one that lives

	// Where a machine stands still, another may lead a moment after.
	eventually(t, patience, "n3 leads", func() bool {
		n1.verb(0, "cluster", "transfer-leader", "n3")
		return n2.leader() == "n3"
	})
	n2.verb(0, "cluster", "transfer-leader", "n3") // it does
	n1.verb(2, "cluster", "transfer-leader", "n4") // a learner
	n1.verb(3, "cluster", "transfer-leader", "n9")
	eventually(t, patience, "another than n3 leads", func() bool {
		n1.verb(0, "cluster", "transfer-leader")
		got := n2.leader()
		return got != "n3" && got != ""
	})

	n1.verb(3, "cluster", "promote", "n9")
	n1.verb(0, "cluster", "promote", "n4")
	n1.until("n4", "follower", "leader")
	n1.verb(0, "cluster", "promote", "n4")

	n1.verb(3, "cluster", "rm", "n9")
	n1.verb(0, "cluster", "rm", "n4")
	if code := n4.ended(); code != 6 {
		t.Errorf("the removed one ends with exit code %d", code)
	}
	n1.verb(3, "cluster", "rm", "n4")
	n3.verb(2, "cluster", "leave", "--server", n2.url) // which of the two?
	n3.verb(0, "cluster", "leave")
	if code := n3.ended(); code != 0 {
		t.Errorf("who leaves ends with exit code %d", code)
	}
	eventually(t, patience, "two are left", func() bool { return len(n1.ls()) == 2 })
	n1.verb(0, "lease", "claim", "kept", "--holder", "h", "--ttl", "10m")
	n2.kill()
	eventually(t, patience, "the majority is gone", func() bool {
		out, _, code := cli(t, "status", "--server", n1.url)
		return code != 0 || strings.Contains(out, "no leader")
	})
	n1.verb(5, "cluster", "rm", "n2") // nobody leads

	recoverAlone(t, n1, n2)
}

// recoverAlone makes the member that is left a cluster of one; the other one may
// not come back.
func recoverAlone(t *testing.T, left, behind *server) {
	t.Helper()
	run := func(want int, more ...string) string {
		t.Helper()
		out, errs, code := cli(t, append([]string{"cluster", "recover", "--data-dir", left.dir}, more...)...)
		if code != want {
			t.Errorf("recover %v: exit code %d, want %d\n%s%s", more, code, want, out, errs)
		}
		return out
	}
	run(5) // a server runs
	left.kill()
	var dry, done struct {
		Done      bool
		Index     string
		Leases    int
		Forgotten []string
	}
	for range 2 {
		if err := json.Unmarshal([]byte(run(0, "-o", "json")), &dry); err != nil || dry.Done || dry.Leases != 1 || !slices.Equal(dry.Forgotten, []string{"n2"}) {
			t.Errorf("a dry run: %+v, %v", dry, err)
		}
	}
	if err := json.Unmarshal([]byte(run(0, "--yes", "-o", "json")), &done); err != nil || !done.Done || done.Index != dry.Index {
		t.Errorf("recover: %+v, %v", done, err)
	}
	left.start()
	if got := left.ls(); len(got) != 1 || got["n1"] != "leader" {
		t.Errorf("afterwards there are %v", got)
	}
	left.verb(3, "lease", "claim", "kept", "--holder", "another", "--ttl", "1m")
	left.verb(6, "cluster", "leave") // the last voter
	left.verb(6, "cluster", "rm", "n1")
	behind.cmd = exec.Command(binary(t), append([]string{"server"}, behind.args...)...)
	if err := behind.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if code := behind.ended(); code != 6 {
		t.Errorf("who was left behind ends with exit code %d", code)
	}
}
