package dns

import (
	"net"

	"golang.org/x/sys/unix"
)

// askDestination has the system say to which address a datagram was sent, so that the
// answer comes from there: a socket on all addresses would answer from any. Of the two
// kinds of sockets each knows one of the options, or both.
func askDestination(pc *net.UDPConn) {
	raw, err := pc.SyscallConn()
	if err != nil {
		return // it answers from wherever the system sends
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}
