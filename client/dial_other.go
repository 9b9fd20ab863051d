//go:build !linux

package client

import "syscall"

func bindLate(_, _ string, _ syscall.RawConn) error { return nil }
