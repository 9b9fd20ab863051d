//go:build !linux

// Package rawio does nothing where there is no epoll.
package rawio

import (
	"errors"
	"net"
	"sync"
	"time"
)

// SetUserTimeout leaves the connection as it is.
func SetUserTimeout(*net.TCPConn, time.Duration) error { return nil }

// Reader exists on Linux only: elsewhere nobody can know what has arrived.
type Reader struct{}

// NewReader returns nil.
func NewReader(net.Conn, *sync.Mutex, *uint64) *Reader { return nil }

// Read is never called.
func (*Reader) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Arrived is never called.
func (*Reader) Arrived() (uint64, error) { return 0, errors.ErrUnsupported }
