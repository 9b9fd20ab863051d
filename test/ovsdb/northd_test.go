package ovsdb

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// Of two northds one is active, by its lock; when it is killed the other goes on.
func TestNorthdFailover(t *testing.T) {
	need(t, "ovn-nbctl", "ovn-sbctl", "ovn-northd", "ovn-appctl")
	s := start(t)
	s.nbctl("init")
	s.do("ovn-sbctl", "--db="+s.unix, "init")
	controls := map[string]*exec.Cmd{}
	for _, name := range []string{"n1", "n2"} {
		control := filepath.Join(s.dir, name)
		cmd := exec.Command("ovn-northd", "--ovnnb-db="+s.unix, "--ovnsb-db="+s.unix, "--unixctl="+control, "-vconsole:off")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		controls[control] = cmd
	}
	active := func() (list []string) {
		for control := range controls {
			if out, err := s.try("ovn-appctl", "-t", control, "status"); err == nil && strings.Contains(out, "Status: active") {
				list = append(list, control)
			}
		}
		return list
	}
	sees := func(port string) {
		t.Helper()
		s.nbctl("--wait=sb", "--timeout=30", "ls-add", port, "--", "lsp-add", port, port)
		if out := s.do("ovn-sbctl", "--db="+s.unix, "--bare", "--columns=logical_port", "list", "Port_Binding"); !strings.Contains(out, port) {
			t.Errorf("the port %s has no binding: %s", port, out)
		}
	}
	sees("p1")
	outside.Eventually(t, patience, "one is active", func() bool { return len(active()) == 1 })
	first := active()[0]
	_ = controls[first].Process.Kill()
	_ = controls[first].Wait()
	delete(controls, first)
	outside.Eventually(t, patience, "the other is active", func() bool { return len(active()) == 1 })
	sees("p2")
}
