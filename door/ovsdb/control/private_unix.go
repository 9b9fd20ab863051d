//go:build unix

package control

import "syscall"

// private has only the user of the process use files that are made from now on, until
// what it returns is called.
func private() (over func()) {
	was := syscall.Umask(0o077)
	return func() { syscall.Umask(was) }
}
