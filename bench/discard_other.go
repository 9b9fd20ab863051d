//go:build !linux

package bench

import "syscall"

// discardRaw reads n bytes of a connection and forgets them.
func discardRaw(raw syscall.RawConn, n int64) error {
	thrownAway := make([]byte, min(n, maxDiscard))
	return discardByReading(raw, n, func(fd uintptr, most int) (int, error) {
		return syscall.Read(int(fd), thrownAway[:most])
	})
}
