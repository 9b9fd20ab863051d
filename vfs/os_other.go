//go:build !linux

package vfs

import "errors"

// Preallocate implements [File].
func (f *osFile) Preallocate(size int64) error { return zeroFill(f, size) }

func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }
