package vfs

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Mem is a filesystem in memory that knows what was synced. [NewMem] makes one.
type Mem struct {
	// mu protects the whole tree, for one call at a time; nothing waits under it.
	mu       sync.Mutex
	root     *node
	capacity int64 // bytes all files may have together; 0 is no limit
	used     int64
	locks    map[string]bool
}

var _ FS = (*Mem)(nil)

// NewMem returns an empty filesystem without a limit.
func NewMem() *Mem {
	return &Mem{root: newDir(), locks: map[string]bool{}}
}

// SetCapacity limits the bytes that all files may have together, holes
// included; 0 is no limit. Growing beyond it gives ENOSPC, as a full disk does.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// node is a folder or a file.
type node struct {
	dir *folder
	*content
}

// folder maps names to nodes: as they are, and as they were last synced.
type folder struct {
	now     map[string]*node
	synced  map[string]*node
	changes []change // since the last sync, in order
}

// change is one call that touched names. A rename touches two, and a crash
// keeps both or neither when they are in one folder.
type change []entry

// entry is a name and what it stands for from then on; nil is gone.
type entry struct {
	name string
	to   *node
}

func newDir() *node {
	return &node{dir: &folder{now: map[string]*node{}, synced: map[string]*node{}}}
}

func (d *folder) set(es ...entry) {
	for _, e := range es {
		assign(d.now, e)
	}
	d.changes = append(d.changes, es)
}

func assign(names map[string]*node, e entry) {
	if e.to == nil {
		delete(names, e.name)
		return
	}
	names[e.name] = e.to
}

// split returns the folder of a name and the last part of the name.
func (m *Mem) split(op, name string) (*folder, string, error) {
	parts := pathParts(name)
	if len(parts) == 0 {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: syscall.EINVAL}
	}
	d := m.root.dir
	for _, p := range parts[:len(parts)-1] {
		n := d.now[p]
		if n == nil {
			return nil, "", &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
		}
		if n.dir == nil {
			return nil, "", &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		d = n.dir
	}
	return d, parts[len(parts)-1], nil
}

func pathParts(name string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(filepath.Clean(name)), "/"),
		func(p string) bool { return p == "" || p == "." })
}

func (m *Mem) lookup(op, name string) (*node, error) {
	if len(pathParts(name)) == 0 {
		return m.root, nil
	}
	d, base, err := m.split(op, name)
	if err != nil {
		return nil, err
	}
	n := d.now[base]
	if n == nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
	}
	return n, nil
}

// Create implements [FS]. An existing file loses its content at once and for
// good, as if the loss had been synced: nobody may count on a truncated file.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.split("create", name)
	if err != nil {
		return nil, err
	}
	n := d.now[base]
	switch {
	case n == nil:
		n = &node{content: newContent()}
		d.set(entry{base, n})
	case n.dir != nil:
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.EISDIR}
	default:
		m.used -= n.now.size
		*n.content = *newContent()
	}
	return &memFile{m: m, c: n.content, name: name, writable: true}, nil
}

// Open implements [FS].
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenWrite implements [FS].
func (m *Mem) OpenWrite(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("open", name)
	if err != nil {
		return nil, err
	}
	if n.dir != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return &memFile{m: m, c: n.content, name: name, writable: writable}, nil
}

// Rename implements [FS].
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("rename", from)
	if err != nil {
		return err
	}
	src, srcBase, err := m.split("rename", from)
	if err != nil {
		return err
	}
	dst, dstBase, err := m.split("rename", to)
	if err != nil {
		return err
	}
	old := dst.now[dstBase]
	if old == n {
		return nil
	}
	if old != nil && old.dir != nil {
		return &fs.PathError{Op: "rename", Path: to, Err: syscall.EEXIST}
	}
	if old != nil {
		m.used -= old.now.size
	}
	if src == dst {
		src.set(entry{srcBase, nil}, entry{dstBase, n})
		return nil
	}
	dst.set(entry{dstBase, n})
	src.set(entry{srcBase, nil})
	return nil
}

// Remove implements [FS].
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("remove", name)
	if err != nil {
		return err
	}
	d, base, err := m.split("remove", name)
	if err != nil {
		return err
	}
	if n.dir != nil && len(n.dir.now) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	if n.dir == nil {
		m.used -= n.now.size
	}
	d.set(entry{base, nil})
	return nil
}

// Mkdir implements [FS].
func (m *Mem) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.split("mkdir", name)
	if err != nil {
		return err
	}
	if d.now[base] != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.EEXIST}
	}
	d.set(entry{base, newDir()})
	return nil
}

// List implements [FS].
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.folder("list", dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(d.now))
	for name := range d.now {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (m *Mem) folder(op, dir string) (*folder, error) {
	n, err := m.lookup(op, dir)
	if err != nil {
		return nil, err
	}
	if n.dir == nil {
		return nil, &fs.PathError{Op: op, Path: dir, Err: syscall.ENOTDIR}
	}
	return n.dir, nil
}

// SyncDir implements [FS].
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.folder("sync", dir)
	if err != nil {
		return err
	}
	for _, c := range d.changes {
		for _, e := range c {
			assign(d.synced, e)
		}
	}
	d.changes = nil
	return nil
}

// Size implements [FS].
func (m *Mem) Size(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("stat", name)
	if err != nil {
		return 0, err
	}
	if n.dir != nil {
		return 0, nil
	}
	return n.now.size, nil
}

// Free implements [FS]: without a limit, a terabyte.
func (m *Mem) Free(dir string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.folder("statfs", dir); err != nil {
		return 0, err
	}
	if m.capacity == 0 {
		return 1 << 40, nil
	}
	return max(0, m.capacity-m.used), nil
}

// Lock implements [FS].
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.open(name, true)
	if err != nil {
		if f, err = m.Create(name); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(pathParts(name), "/")
	if m.locks[key] {
		return nil, lockTaken(name, "another server")
	}
	m.locks[key] = true
	return &memLock{File: f, m: m, key: key}, nil
}

type memLock struct {
	File
	m   *Mem
	key string
}

// Close gives the lock back; a second Close does nothing.
func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.key != "" {
		delete(l.m.locks, l.key)
		l.key = ""
	}
	return nil
}
