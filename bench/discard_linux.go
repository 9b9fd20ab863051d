package bench

import "syscall"

// thrownAway is what the kernel would write to: with MSG_TRUNC it writes nothing, and
// so all connections share it (tcp(7)).
var thrownAway [maxDiscard]byte

// discardRaw has the kernel throw away n bytes of a TCP connection without copying
// them: what a client on another machine does with them is not this machine's work.
func discardRaw(raw syscall.RawConn, n int64) error {
	return discardByReading(raw, n, func(fd uintptr, most int) (int, error) {
		k, _, err := syscall.Recvfrom(int(fd), thrownAway[:most], syscall.MSG_TRUNC|syscall.MSG_DONTWAIT)
		return k, err
	})
}
