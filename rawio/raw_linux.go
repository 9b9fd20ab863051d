//go:build !race

package rawio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func read(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

func write(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

func ready(epoll int, events []unix.EpollEvent) (int, error) {
	return result(unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0))
}

func result(r, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
