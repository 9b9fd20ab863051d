//go:build !linux

package bench

import "syscall"

func ownGroup(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
