//go:build race

package rawio

import "golang.org/x/sys/unix"

func read(fd int, p []byte) (int, error) { return unix.Read(fd, p) }

func write(fd int, p []byte) (int, error) { return unix.Write(fd, p) }

func ready(epoll int, events []unix.EpollEvent) (int, error) { return unix.EpollWait(epoll, events, 0) }
