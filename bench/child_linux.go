package bench

import "syscall"

// ownGroup has the kernel send the signal when the parent dies.
func ownGroup(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}
