package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent/vfs"
)

func join(dir, name string) string { return filepath.Join(dir, name) }

const (
	sparePrefix = "spare-" // all zero, has its place on the disk, ready to be a segment
	oldPrefix   = "old-"   // was a segment, will be filled with zeros
)

// pool keeps files that can become segments without asking the disk for space.
type pool struct {
	fs    vfs.FS
	dir   string
	bytes int64

	// mu protects what follows, between the goroutine that appends and the one
	// that prepares. It is never held across I/O.
	mu    sync.Mutex
	ready []string
	old   []string
	made  int // for names
}

func (p *pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

func (p *pool) add(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, name)
}

// pop takes the first of a list, or "".
func (p *pool) pop(list *[]string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(*list) == 0 {
		return ""
	}
	name := (*list)[0]
	*list = (*list)[1:]
	return name
}

// take returns a spare, making one if there is none.
func (p *pool) take() (string, error) {
	if err := p.ensure(1); err != nil {
		return "", err
	}
	return p.pop(&p.ready), nil
}

// ensure makes spares until there are n. It only asks the disk for space and
// writes nothing, which is quick.
func (p *pool) ensure(n int) error {
	for p.count() < n {
		name, f, err := p.create()
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return fatal("closing "+name, err)
		}
		p.add(name)
	}
	return nil
}

// prepare makes spares ready whose blocks have been written once, so that
// writing them later changes no metadata and a sync is one disk write.
func (p *pool) prepare() error {
	for p.count() < spares {
		name, f, err := p.reuse()
		if name == "" && err == nil {
			name, f, err = p.create()
		}
		if err != nil {
			return err
		}
		if err := p.zero(name, f); err != nil {
			return err
		}
	}
	return nil
}

// create makes an empty file with space for a segment, and nothing if the disk
// has none.
func (p *pool) create() (string, vfs.File, error) {
	p.mu.Lock()
	p.made++
	name := fmt.Sprintf("%s%d", sparePrefix, p.made)
	p.mu.Unlock()
	f, err := p.fs.Create(join(p.dir, name))
	if err != nil {
		return "", nil, diskError("creating "+name, err)
	}
	err = f.Preallocate(p.bytes)
	if err == nil {
		if err = f.Sync(); err == nil {
			return name, f, nil
		}
	}
	// It held nothing yet, so no sync of it can lose anything. What these calls
	// say is of no use to a caller that learns why there is no spare.
	_ = f.Close()
	_ = p.fs.Remove(join(p.dir, name))
	return "", nil, diskError("preallocating "+name, err)
}

// reuse opens a retired segment, or returns "".
func (p *pool) reuse() (string, vfs.File, error) {
	name := p.pop(&p.old)
	if name == "" {
		return "", nil, nil
	}
	f, err := p.fs.OpenWrite(join(p.dir, name))
	if err != nil {
		p.mu.Lock()
		p.old = append(p.old, name)
		p.mu.Unlock()
		return "", nil, diskError("opening "+name, err)
	}
	return name, f, nil
}

// zero fills a file with zeros, durably, and makes it a spare.
func (p *pool) zero(name string, f vfs.File) error {
	err := writeZeros(f, 0, p.bytes)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil && strings.HasPrefix(name, oldPrefix) {
		spare := sparePrefix + strings.TrimPrefix(name, oldPrefix)
		err = p.fs.Rename(join(p.dir, name), join(p.dir, spare))
		name = spare
	}
	if err != nil {
		_ = p.fs.Remove(join(p.dir, name)) // as in create; else each attempt would leave a file
		return diskError("clearing "+name, err)
	}
	p.add(name)
	return nil
}

// retire takes a segment out of the log: to be recycled if it has the right
// length and spares are wanted, else removed. Its name is durably gone when
// retire returns, before anything may overwrite it and before the next
// segment goes, so a crash never leaves a hole between segments.
func (p *pool) retire(seg *segment) error {
	p.mu.Lock()
	keep := int64(seg.sectors)*sectorBytes == p.bytes && len(p.ready)+len(p.old) < spares
	p.mu.Unlock()
	old := oldPrefix + strings.TrimSuffix(seg.name, segmentSuffix)
	var err error
	if keep {
		err = p.fs.Rename(join(p.dir, seg.name), join(p.dir, old))
	} else {
		err = p.fs.Remove(join(p.dir, seg.name))
	}
	if err == nil {
		err = p.fs.SyncDir(p.dir)
	}
	if err != nil || !keep {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.old = append(p.old, old)
	return nil
}

// adopt takes over what an earlier run left: spares of the right length that
// are all zero stay, everything else goes, also what cannot be read: nothing of the
// log is in it.
func (p *pool) adopt(names []string) error {
	for _, name := range names {
		if !strings.HasPrefix(name, sparePrefix) && !strings.HasPrefix(name, oldPrefix) {
			continue
		}
		good, err := p.usable(name)
		if err == nil && good && p.count() < spares {
			p.add(name)
			p.skip(name)
			continue
		}
		if err := p.fs.Remove(join(p.dir, name)); err != nil {
			return fatal("removing "+name, err)
		}
	}
	return nil
}

// skip keeps create from using a name that is taken.
func (p *pool) skip(name string) {
	if n, err := strconv.Atoi(strings.TrimPrefix(name, sparePrefix)); err == nil {
		p.made = max(p.made, n)
	}
}

// usable reports whether a left-over file can serve as a spare. Old ones never
// do: their zeros may not all be on the disk.
func (p *pool) usable(name string) (bool, error) {
	if !strings.HasPrefix(name, sparePrefix) {
		return false, nil
	}
	f, err := p.fs.Open(join(p.dir, name))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read from
	size, err := f.Size()
	if err != nil || size != p.bytes {
		return false, err
	}
	b, zeros := make([]byte, min(wipeBytes, size)), make([]byte, min(wipeBytes, size))
	for at := int64(0); at < size; at += int64(len(b)) {
		b = b[:min(int64(len(b)), size-at)]
		if _, err := f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if !bytes.Equal(b, zeros[:len(b)]) {
			return false, nil
		}
	}
	return true, nil
}
