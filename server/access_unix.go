//go:build unix

package server

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// mayWrite returns why this process may not look into a folder and write there.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "access", Path: dir, Err: err}
	}
	return nil
}
