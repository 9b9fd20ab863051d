// Package rawio makes system calls on sockets that never wait, without telling
// Go's scheduler of them.
//
// Before an ordinary call the scheduler is told that the thread may be gone for
// long, and wakes the thread that watches over such (sysmon), if it sleeps. At a
// member that wakes up a thousand times a second for a few microseconds that
// thread then never rests: its naps of 20 µs were a fifth of all CPU time. Calls on
// descriptors that do not block need none of this.
//
// A call that does wait would hold up a processor of the runtime, and with it the
// garbage collector. So: only descriptors in non-blocking mode, and larger calls,
// whose copying takes longer, are ordinary ones. So are all under the race
// detector, which learns from them what happened before what.
//
// It also sets what Go's net package leaves out, for all who have sockets.
package rawio

import "golang.org/x/sys/unix"

// mostBytes of a raw call are copied in some ten microseconds.
const mostBytes = 64 << 10

// Read is read(2) of a descriptor in non-blocking mode. n is 0 with an error.
func Read(fd int, p []byte) (n int, err error) {
	if len(p) > mostBytes {
		n, err = unix.Read(fd, p)
	} else {
		n, err = read(fd, p)
	}
	return max(n, 0), err
}

// Write is write(2) to a descriptor in non-blocking mode. n is 0 with an error.
func Write(fd int, p []byte) (n int, err error) {
	if len(p) > mostBytes {
		n, err = unix.Write(fd, p)
	} else {
		n, err = write(fd, p)
	}
	return max(n, 0), err
}

// Ready is epoll_wait(2) that does not wait: it returns how many events it has put
// into events, which must not be empty.
func Ready(epoll int, events []unix.EpollEvent) (n int, err error) {
	n, err = ready(epoll, events)
	return max(n, 0), err
}
