//go:build !linux

// Package rawio is empty where there is no epoll.
package rawio
