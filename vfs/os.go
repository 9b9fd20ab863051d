package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

// OS is the filesystem of the operating system. The zero value is ready.
type OS struct{}

var _ FS = OS{}

const (
	fileMode = 0o600 // the log holds what tenants store: the owner alone reads it
	dirMode  = 0o700
)

// Create implements [FS].
func (OS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open implements [FS].
func (OS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

// OpenWrite implements [FS].
func (OS) OpenWrite(name string) (File, error) { return openOS(name, os.O_RDWR) }

func openOS(name string, flag int) (File, error) {
	f, err := open(name, flag)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

// While no file descriptor is free, opening waits for one: clients leave, and the machine's
// other processes end. Whoever has to open a file to go on could only stop.
const (
	descriptorPatience = 30 * time.Second
	descriptorRetry    = 50 * time.Millisecond
)

func open(name string, flag int) (*os.File, error) {
	for began := time.Now(); ; time.Sleep(descriptorRetry) {
		f, err := os.OpenFile(name, flag, fileMode)
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || time.Since(began) > descriptorPatience {
			return f, err
		}
	}
}

// Rename implements [FS].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements [FS].
func (OS) Remove(name string) error { return os.Remove(name) }

// Mkdir implements [FS].
func (OS) Mkdir(name string) error { return os.Mkdir(name, dirMode) }

// List implements [FS].
func (OS) List(dir string) ([]string, error) {
	d, err := open(dir, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read from
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// SyncDir implements [FS].
func (OS) SyncDir(dir string) error {
	d, err := open(dir, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only synced through it
	return d.Sync()
}

// Size implements [FS].
func (OS) Size(name string) (int64, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// Free implements [FS].
func (OS) Free(dir string) (int64, error) { return freeBytes(dir) }

// Lock implements [FS].
func (OS) Lock(name string) (io.Closer, error) {
	f, err := open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close() // the lock is what failed
		return nil, err
	}
	// Whose lock it is helps whoever is refused; losing these bytes harms nobody.
	if f.Truncate(0) == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// osFile adds to os.File what [File] has beyond it.
type osFile struct{ *os.File }

// Size implements [File].
func (f *osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
