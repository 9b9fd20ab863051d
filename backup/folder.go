package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Names of files that a member writes by itself:
//
//	incumbent-20261122T170000Z-00000000000000012345@n1.backup
const (
	namePrefix = "incumbent-"
	nameSuffix = ".backup"
	temporary  = ".tmp" // behind the name, while it is being written
	timeForm   = "20060102T150405Z"
)

// FileName is what a backup is called in a folder of them: time, index, and who
// wrote it.
func (i *Info) FileName() string {
	return fmt.Sprintf("%s%s-%020d@%s%s", namePrefix, i.At.UTC().Format(timeForm), uint64(i.Index), i.Member, nameSuffix)
}

// Save makes a file durable under its name once write has returned nil; until then,
// and if anything fails, there is none. It never replaces a file: the error is Exists
// then. Only the owner can read the file.
func Save(fsys vfs.FS, path string, write func(io.Writer) error) error {
	return saveMarked(fsys, path, "", write)
}

// SaveOwn is [Save] for what a member of a cluster writes by itself: [RemoveUnfinished]
// finds what it leaves when it is stopped.
func SaveOwn(fsys vfs.FS, path, cluster string, write func(io.Writer) error) error {
	return saveMarked(fsys, path, markOf(cluster), write)
}

// markOf is what tells the unfinished files of one cluster's members from another's: the
// front of its id.
func markOf(cluster string) string { return cluster[:min(len(cluster), 8)] + "-" }

func saveMarked(fsys vfs.FS, path, mark string, write func(io.Writer) error) error {
	if _, err := fsys.Size(path); err == nil {
		return incumbent.Errorf(incumbent.Exists, "%s is there already", path).WithHint("give another name, or move it away")
	}
	tmp := fmt.Sprintf("%s.%s%016x%s", path, mark, rand.Uint64(), temporary) // nobody else's, nor of a backup under way
	err := saveAs(fsys, tmp, write)
	if err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err != nil {
		_ = fsys.Remove(tmp) // what failed says more
		return inFile(path, err)
	}
	return inFile(path, fsys.SyncDir(filepath.Dir(path)))
}

func saveAs(fsys vfs.FS, path string, write func(io.Writer) error) (err error) {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := write(&syncing{File: f}); err != nil {
		return err
	}
	return f.Sync()
}

// syncEvery is how much is written between two syncs, so that no sync holds a disk
// for long on which a log is, too.
const syncEvery = 4 << 20 // bytes

type syncing struct {
	vfs.File
	unsynced int
}

// Write implements io.Writer.
func (s *syncing) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	if s.unsynced += n; err != nil || s.unsynced < syncEvery {
		return n, err
	}
	s.unsynced = 0
	return n, s.Sync()
}

// inFile gives an error of the disk a kind; one that has a kind keeps it.
func inFile(path string, err error) error {
	var typed *incumbent.Error
	switch {
	case err == nil || errors.As(err, &typed):
		return err
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return incumbent.Errorf(incumbent.Invalid, "%s: %w", path, err).WithHint("there must be such a folder, and this process must be allowed to use what is there")
	}
	return incumbent.Errorf(incumbent.Unavailable, "%s: %w", path, err)
}

// File is a file in a folder.
type File struct {
	Name  string // without the folder
	Bytes int64
	Info  Info
	Err   error // why it cannot be used; only its header was looked at
}

// List returns what is in a folder and called as backups are, by index, oldest
// first. Others' files are left out.
func List(fsys vfs.FS, dir string) ([]File, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, inFile(dir, err)
	}
	var list []File
	for _, name := range names {
		if strings.HasSuffix(name, nameSuffix) {
			list = append(list, Look(fsys, filepath.Join(dir, name)))
		}
	}
	slices.SortStableFunc(list, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Info.Index, b.Info.Index), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// Look reads the header of one file.
func Look(fsys vfs.FS, path string) File {
	f := File{Name: filepath.Base(path)}
	if f.Bytes, f.Err = fsys.Size(path); f.Err != nil {
		f.Err = inFile(path, f.Err)
		return f
	}
	in, err := fsys.Open(path)
	if err != nil {
		f.Err = inFile(path, err)
		return f
	}
	defer func() { _ = in.Close() }() // only read from
	b, err := Open(in, path)
	if err != nil {
		f.Err = inFile(path, err)
		return f
	}
	f.Info = b.Info
	return f
}

// Prune removes from a folder all but the newest backups, by index, of those that
// members of one cluster wrote by themselves. What is damaged, called otherwise or of
// another cluster stays.
func Prune(fsys vfs.FS, dir, cluster string, keep int) (removed []string, err error) {
	list, err := List(fsys, dir)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(f File) bool {
		return f.Err != nil || f.Info.Cluster != cluster || f.Name != f.Info.FileName()
	})
	if len(list) <= keep {
		return nil, nil
	}
	for _, f := range list[:len(list)-keep] {
		if err := fsys.Remove(filepath.Join(dir, f.Name)); err != nil {
			return removed, inFile(dir, err)
		}
		removed = append(removed, f.Name)
	}
	return removed, inFile(dir, fsys.SyncDir(dir))
}

// RemoveUnfinished removes what a member of a cluster had begun to write into a folder when
// it was stopped. A member of another cluster may have the same name.
func RemoveUnfinished(fsys vfs.FS, dir, cluster, member string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return inFile(dir, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, namePrefix) && unfinishedOf(name, cluster, member) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return inFile(dir, err)
			}
		}
	}
	return nil
}

// unfinishedOf reports whether a file was being written for a member: see saveMarked.
func unfinishedOf(name, cluster, member string) bool {
	name, ok := strings.CutSuffix(name, temporary)
	_, random, whose := strings.Cut(name, "@"+member+nameSuffix+"."+markOf(cluster))
	return ok && whose && len(random) == 16
}
