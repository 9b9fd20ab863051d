package audit

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// File is a sink of files: the newest has the name it was opened with, older ones
// have .1, .2 and so on behind it. A file is begun anew before a piece would make
// it larger than a limit. It is written by its owner and read by its group.
type File struct {
	name string
	max  int64 // bytes
	keep int   // older files that stay
	f    *os.File
	size int64
	torn bool // the last line may be half written
}

const fileMode = 0o640

// OpenFile opens a file for appending, or makes it. max is in bytes; of the older
// files the newest keep stay, and none if that is 0.
func OpenFile(name string, max int64, keep int) (*File, error) {
	s := &File{name: name, max: max, keep: keep}
	return s, s.open()
}

func (s *File) open() error {
	f, err := os.OpenFile(s.name, os.O_APPEND|os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	s.f, s.size = f, info.Size()
	s.torn = s.size > 0 && !endsLine(f, s.size)
	return nil
}

// endsLine reports whether the last byte of a file ends a line: the process that
// wrote it may have been killed before.
func endsLine(f io.ReaderAt, size int64) bool {
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1)
	return err == nil && last[0] == '\n'
}

// Write implements [Sink].
func (s *File) Write(lines []byte) error {
	if s.f == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	if s.size > 0 && s.size+int64(len(lines)) > s.max {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	if s.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := s.f.Write(lines)
	s.size += int64(n)
	s.torn = n < len(lines) && (s.torn || n > 0)
	return err
}

// rotate gives each file the name of the one before it, and begins a new one.
func (s *File) rotate() error {
	if err := s.close(); err != nil {
		return err
	}
	if s.keep == 0 {
		if err := os.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for i := s.keep; i > 0; i-- {
		if err := os.Rename(s.older(i-1), s.older(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.open()
}

func (s *File) older(i int) string {
	if i == 0 {
		return s.name
	}
	return s.name + "." + strconv.Itoa(i)
}

// Sync implements [Sink].
func (s *File) Sync() error {
	if s.f == nil {
		return nil
	}
	return s.f.Sync()
}

// Reopen implements [Sink].
func (s *File) Reopen() error {
	if err := s.close(); err != nil {
		return err
	}
	return s.open()
}

// Close implements [Sink].
func (s *File) Close() error { return s.close() }

// close syncs what was written: nobody will look at this file again.
func (s *File) close() error {
	if s.f == nil {
		return nil
	}
	err := errors.Join(s.f.Sync(), s.f.Close())
	s.f = nil
	return err
}

// Stream is a sink of somebody else's: standard error, which the journal keeps.
type Stream struct{ W io.Writer }

// Write implements [Sink].
func (s Stream) Write(lines []byte) error {
	_, err := s.W.Write(lines)
	return err
}

// Sync implements [Sink].
func (Stream) Sync() error { return nil }

// Reopen implements [Sink].
func (Stream) Reopen() error { return nil }

// Close implements [Sink].
func (Stream) Close() error { return nil }
