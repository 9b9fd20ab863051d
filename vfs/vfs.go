// Package vfs is the part of a filesystem that the log and the snapshots need,
// and nothing more, so that losing power becomes a unit test.
//
// [OS] is the real thing. [Mem] keeps files in memory, knows which of their
// bytes and names were synced, and makes with [Mem.CrashClone] what a machine
// may find after it lost power. [Inject] wraps either and lets a function
// decide which calls fail.
//
// # Durability
//
// What was written is durable once [File.Sync] has returned nil. A name (made
// by Create, Mkdir, Rename, or gone by Remove) is durable once [FS.SyncDir] of
// its folder has returned nil; a durable file in a folder whose entry was not
// synced is lost all the same. After a Sync that failed nothing is known about
// the bytes it was to cover, and asking again proves nothing: treat it as
// fatal. A write that failed for lack of space ([IsNoSpace]) is different: it
// said so before anybody relied on it.
//
// # Concurrency
//
// An FS may be used from any number of goroutines. A File may be read and
// written at offsets from several; Read and Write share one position and
// belong to one goroutine.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/incumbent-dev/incumbent"
)

// File is an open file.
type File interface {
	io.Reader // from the file's position
	io.Writer // at the file's position
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Size returns the length in bytes.
	Size() (int64, error)

	// Sync makes every byte written so far durable, with the length of the
	// file (fdatasync). An error is final: see the package comment.
	Sync() error

	// Preallocate makes the file at least size bytes long and gives those
	// bytes a place on the disk, so that writing them later needs no space.
	// New bytes read as zero.
	Preallocate(size int64) error
}

// FS is a filesystem. Names are paths as the operating system writes them.
// A name that does not exist gives an error that is [fs.ErrNotExist].
type FS interface {
	// Create opens a file to read and write, empty, whether it existed or not.
	Create(name string) (File, error)
	// Open opens a file to read.
	Open(name string) (File, error)
	// OpenWrite opens a file that exists to read and write.
	OpenWrite(name string) (File, error)
	// Rename gives a file another name at once, replacing what had it.
	Rename(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// Mkdir makes one folder; [fs.ErrExist] if the name is taken.
	Mkdir(name string) error
	// List returns the names in a folder, sorted, without its path.
	List(dir string) ([]string, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
	// Size returns a file's length in bytes.
	Size(name string) (int64, error)
	// Free returns the bytes that files in dir can still take, or
	// [errors.ErrUnsupported] where nobody can tell.
	Free(dir string) (int64, error)
	// Lock takes the lock that the file name stands for, creating the file,
	// until Close or the end of the process. If another has it, in this
	// process or another, the error is incumbent.Unavailable and names it.
	Lock(name string) (io.Closer, error)
}

// IsNoSpace reports whether err says that the disk or the quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// lockTaken is the answer of [FS.Lock] to the second who asks.
func lockTaken(name, by string) error {
	return incumbent.Errorf(incumbent.Unavailable, "lock %s is held by %s", name, by).
		WithHint("another server uses this data directory: stop it, or give this one its own with --data-dir")
}

// MkdirAll makes a folder and those above it, and syncs the folder above every
// one that it made, so that the path is durable when it returns. That above the folder
// itself is synced if it was there as well: who made it may have ended before it could.
func MkdirAll(fsys FS, dir string) error {
	dir = filepath.Clean(dir)
	up := filepath.Dir(dir)
	if _, err := fsys.List(dir); err == nil {
		// Somebody else's folder may not be open to us, or of a kind that cannot be synced.
		if err := fsys.SyncDir(up); !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		return nil
	}
	if up != dir {
		if err := MkdirAll(fsys, up); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(up)
}

// ReadFile returns the whole content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := io.ReadFull(io.NewSectionReader(f, 0, size), b)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // the file became shorter since it was measured
	}
	return b[:n], err
}

// WriteFile makes a file with this content durable under its name: it writes
// name.tmp, syncs it, renames it and syncs the folder.
func WriteFile(fsys FS, name string, content []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// zeroFill is Preallocate where the system has no call for it: it writes the
// bytes from the end of the file up to size.
func zeroFill(f File, size int64) error {
	at, err := f.Size()
	if err != nil {
		return err
	}
	var zero [zeroChunkBytes]byte
	for at < size {
		n, err := f.WriteAt(zero[:min(zeroChunkBytes, size-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// zeroChunkBytes is written at a time by zeroFill; large enough that the calls
// cost nothing beside the disk.
const zeroChunkBytes = 64 << 10
