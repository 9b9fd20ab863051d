package bench

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// spawned is a process that this one started.
type spawned struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// startChild starts a process in a group of its own, so that Ctrl-C ends the load
// tool and that ends its servers. Where the system can, it sends the process the
// signal when this one dies. Standard error goes to the end of the log.
func startChild(argv, env []string, stdout *os.File, log string, orphaned syscall.Signal) (*spawned, error) {
	to, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	c := &spawned{cmd: exec.Command(argv[0], argv[1:]...), log: log, ended: make(chan struct{})}
	c.cmd.Stderr, c.cmd.Stdout = to, to
	if stdout != nil {
		c.cmd.Stdout = stdout
	}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.SysProcAttr = ownGroup(orphaned)
	started := make(chan error, 1)
	go func() {
		// The kernel takes the death of the thread that started it for ours.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		to.Close() // the child has it
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // how it ended is in its log
		}
		close(c.ended)
	}()
	return c, <-started
}

func (c *spawned) pid() int { return c.cmd.Process.Pid }

// said is the end of what the process wrote to standard error.
func (c *spawned) said() string {
	text, _ := os.ReadFile(c.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// stop ends the process, in order if it will. A nil one has ended.
func (c *spawned) stop() {
	if c == nil || c.cmd.Process == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(localStop, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	<-c.ended
}

// alive reports whether a process runs: one that has ended and was not waited
// for by its parent does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && runs(string(stat))
}

// runs reads it from /proc. Of a process that was killed the first thread is a
// zombie while others, which still have its sockets open, are ending.
func runs(stat string) bool {
	fields := statFields(stat)
	if fields == nil {
		return false
	}
	ended := fields[0] == "Z" || fields[0] == "X"
	return !ended || fields[17] != "1" && fields[17] != "0"
}
