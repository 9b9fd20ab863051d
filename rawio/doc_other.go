//go:build !linux

// Package rawio does nothing where there is no epoll.
package rawio

import (
	"net"
	"time"
)

// SetUserTimeout leaves the connection as it is.
func SetUserTimeout(*net.TCPConn, time.Duration) error { return nil }
