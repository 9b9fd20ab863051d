package rawio

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCallsOfAPair(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	epoll, err := unix.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, pair[1], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7}); err != nil {
		t.Fatal(err)
	}
	events := make([]unix.EpollEvent, 4)
	buf := make([]byte, 100)
	if n, err := Ready(epoll, events); n != 0 || err != nil {
		t.Errorf("%d events of an empty socket, %v", n, err)
	}
	if n, err := Read(pair[1], buf); n != 0 || err != unix.EAGAIN {
		t.Errorf("read %d of an empty socket, %v", n, err)
	}
	sent := []byte("some bytes")
	if n, err := Write(pair[0], sent); n != len(sent) || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err := Ready(epoll, events); n != 1 || err != nil || events[0].Fd != 7 {
		t.Errorf("%d events, %v: %+v", n, err, events)
	}
	if n, err := Read(pair[1], buf); err != nil || !bytes.Equal(buf[:n], sent) {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	unix.Close(pair[1])
	if n, err := Write(pair[0], sent); n != 0 || err != unix.EPIPE {
		t.Errorf("wrote %d to a socket that is closed, %v", n, err)
	}
	unix.Close(pair[0])
	if n, err := Read(pair[0], nil); n != 0 || err != unix.EBADF {
		t.Errorf("read %d of a descriptor that is closed, %v", n, err)
	}
}
