package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startAndWait starts the child so that the kernel kills it when this process
// dies, and waits for it on the thread that started it.
func startAndWait(child *exec.Cmd, started, ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	defer close(ended)
	err := child.Start()
	started <- err
	if err == nil {
		ended <- child.Wait()
	}
}

// childOfLocal puts a member into a group of its own, for Ctrl-C ends the parent,
// which ends its members, and has the kernel end it when the parent dies.
func childOfLocal() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
