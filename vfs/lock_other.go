//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package vfs

import (
	"errors"
	"os"

	"github.com/incumbent-dev/incumbent"
)

// lockFile refuses: without a lock that ends with the process two servers
// could write one log.
func lockFile(f *os.File) error {
	return incumbent.Errorf(incumbent.Unavailable, "lock %s: %w on this system", f.Name(), errors.ErrUnsupported)
}
