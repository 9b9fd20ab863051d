package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

const (
	// SectorBytes is the unit that a crash keeps or loses whole: what disks
	// promise to write at once.
	SectorBytes = 512

	pageBytes = 4096
)

// image is the bytes of a file: pages by number; a missing page is zero. Pages
// are shared between images and copied before they are changed.
type image struct {
	size  int64
	pages map[int64]*page
}

type page struct {
	shared bool // more than one image has it
	b      [pageBytes]byte
}

func (im *image) readAt(p []byte, off int64) int {
	n := 0
	for n < len(p) && off < im.size {
		at := off % pageBytes
		chunk := min(int64(len(p)-n), pageBytes-at, im.size-off)
		if pg := im.pages[off/pageBytes]; pg != nil {
			copy(p[n:n+int(chunk)], pg.b[at:])
		} else {
			clear(p[n : n+int(chunk)])
		}
		n += int(chunk)
		off += chunk
	}
	return n
}

// writeAt writes p at off; the size grows as needed.
func (im *image) writeAt(p []byte, off int64) {
	for len(p) > 0 {
		at := off % pageBytes
		n := copy(im.own(off / pageBytes).b[at:], p)
		p = p[n:]
		off += int64(n)
	}
	im.size = max(im.size, off)
}

// own returns a page of this image that no other image has.
func (im *image) own(i int64) *page {
	pg := im.pages[i]
	switch {
	case pg == nil:
		pg = &page{}
	case pg.shared:
		pg = &page{b: pg.b}
	default:
		return pg
	}
	im.pages[i] = pg
	return pg
}

// share returns an image with the same content.
func (im *image) share() image {
	c := image{size: im.size, pages: make(map[int64]*page, len(im.pages))}
	for i, pg := range im.pages {
		pg.shared = true
		c.pages[i] = pg
	}
	return c
}

// content is a file's bytes as they are and as they were last synced, and the
// sectors in which the two may differ, in the order in which they were first
// written since.
type content struct {
	now    image
	synced image
	dirty  []int64
	listed map[int64]bool // what is in dirty
}

func newContent() *content {
	return &content{
		now:    image{pages: map[int64]*page{}},
		synced: image{pages: map[int64]*page{}},
		listed: map[int64]bool{},
	}
}

func (c *content) write(p []byte, off int64) {
	c.now.writeAt(p, off)
	for s := off / SectorBytes; s*SectorBytes < off+int64(len(p)); s++ {
		if !c.listed[s] {
			c.listed[s] = true
			c.dirty = append(c.dirty, s)
		}
	}
}

func (c *content) sync() {
	for _, s := range c.dirty {
		i := s * SectorBytes / pageBytes
		if pg := c.now.pages[i]; pg != nil {
			pg.shared = true
			c.synced.pages[i] = pg
		}
	}
	c.synced.size = c.now.size
	c.dirty = c.dirty[:0]
	clear(c.listed)
}

// memFile is an open file of a [Mem]. It goes on working after its name went,
// as on Unix.
type memFile struct {
	m        *Mem
	c        *content
	name     string
	pos      int64
	writable bool
	closed   bool
}

var _ File = (*memFile)(nil)

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// check refuses a closed file, and a write to one opened to read.
func (f *memFile) check(op string, write bool) error {
	if f.closed {
		return f.fail(op, fs.ErrClosed)
	}
	if write && !f.writable {
		return f.fail(op, syscall.EBADF)
	}
	return nil
}

// Read implements [File].
func (f *memFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Write implements [File].
func (f *memFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// ReadAt implements [File].
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.fail("read", syscall.EINVAL)
	}
	n := f.c.now.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [File]. On a full disk it writes what fits.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.fail("write", syscall.EINVAL)
	}
	end := f.m.grow(f.c, off+int64(len(p)))
	n := max(0, min(int64(len(p)), end-off))
	f.c.write(p[:n], off)
	if n < int64(len(p)) {
		return int(n), f.fail("write", syscall.ENOSPC)
	}
	return int(n), nil
}

// grow accounts for a file that shall be size bytes long and returns up to
// where it may be written.
func (m *Mem) grow(c *content, size int64) int64 {
	more := size - c.now.size
	if more <= 0 {
		return size
	}
	if m.capacity > 0 {
		more = min(more, max(0, m.capacity-m.used))
	}
	m.used += more
	return c.now.size + more
}

// Size implements [File].
func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	return f.c.now.size, nil
}

// Sync implements [File].
func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.c.sync()
	return nil
}

// Preallocate implements [File]: all or nothing.
func (f *memFile) Preallocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("preallocate", true); err != nil {
		return err
	}
	more := size - f.c.now.size
	if more <= 0 {
		return nil
	}
	if f.m.capacity > 0 && f.m.used+more > f.m.capacity {
		return f.fail("preallocate", syscall.ENOSPC)
	}
	f.m.used += more
	f.c.now.size = size
	return nil
}

// Close implements [File].
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}
