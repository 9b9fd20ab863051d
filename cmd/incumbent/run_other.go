//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

// startAndWait starts the child and waits for it.
//
// BUG(run): on systems other than Linux the child is not killed when this
// process dies without a chance to do so.
func startAndWait(child *exec.Cmd, started, ended chan<- error) {
	defer close(ended)
	err := child.Start()
	started <- err
	if err == nil {
		ended <- child.Wait()
	}
}

// childOfLocal puts a member into a group of its own, for Ctrl-C ends the parent,
// which ends its members.
func childOfLocal() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
