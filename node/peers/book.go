package peers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// The book is what every other member has shown of itself, durably, so that one
// whose disk went back in time is noticed when it returns: it has forgotten
// votes it gave and entries it acknowledged, and with it a majority may have.
//
//	┌──────────┬────────────┬─────────────┬───────────┬───────────────────────────────────────────────────────────────┬────────┐
//	│ magic 8  │ cluster 16 │ version u64 │ count u32 │ count × (member, incarnation, term, index: u64 each; boot 16)  │ crc32c │
//	└──────────┴────────────┴─────────────┴───────────┴───────────────────────────────────────────────────────────────┴────────┘
//
// It is in two files that have their place on the disk from the start, so that a member whose
// disk is full can speak to the others. Each time the one that has the older version is
// written over; one that is not whole was being written when the member ended. What is behind
// the checksum is left of a longer book.
//
// The index is the highest that the member held durably and knew to be
// committed, or that it has acknowledged to this member while it led. Its last
// durable index would accuse the innocent: a new leader may
// cut an uncommitted tail. Its stored commit index would too: it may lag behind
// after a loss of power. So index = min(durable, commit) is recorded, and the
// durable index of a later hello is compared with it.
//
// A single member keeps a book of nobody: it cannot notice.

const (
	bookMagic     = "INCSEEN2"
	bookHeadBytes = 8 + 16 + 8 + 4
	bookRowBytes  = 4*8 + 16
	bookPlace     = 64 << 10 // bytes that each file has on the disk: of more members than a cluster has

	// Before there were two, one file was replaced each time. It had no version.
	oldName      = "seen"
	oldMagic     = "INCSEEN1"
	oldHeadBytes = 8 + 16 + 4
)

var bookNames = [2]string{"seen-0", "seen-1"}

// seen is a row of the book.
type seen struct {
	incarnation uint64
	term        uint64
	index       uint64
	boot        bootNonce
}

// raise takes over what s shows beyond the row.
func (r seen) raise(s Standing, boot bootNonce) seen {
	if s.Incarnation >= r.incarnation {
		r.incarnation, r.boot = s.Incarnation, boot
	}
	r.term = max(r.term, s.Term)
	r.index = max(r.index, min(s.Durable, s.Commit))
	return r
}

// lower says in which way a hello shows less than the row, or "". Hellos of one
// run of a member may overtake each other: they are not compared.
func (r seen) lower(s Standing, boot bootNonce) string {
	switch {
	case s.Incarnation == r.incarnation && boot == r.boot:
		return ""
	case s.Incarnation < r.incarnation:
		return fmt.Sprintf("its incarnation is %d and was %d", s.Incarnation, r.incarnation)
	case s.Incarnation == r.incarnation:
		return fmt.Sprintf("its incarnation %d was already used by another start", s.Incarnation)
	case s.Term < r.term:
		return fmt.Sprintf("its term is %d and was %d", s.Term, r.term)
	case s.Durable < r.index:
		return fmt.Sprintf("its log ends at %d and held %d", s.Durable, r.index)
	}
	return ""
}

// book is the files and their content in memory.
type book struct {
	fsys    vfs.FS
	dir     string
	cluster [16]byte

	mu      sync.Mutex // guards what follows, for moments
	rows    map[uint64]seen
	version uint64 // counts changes of rows

	writing sync.Mutex // held while a file is written; whoever waits for it finds its own rows written by the one before
	written uint64     // version of the newest file; under writing
	next    int        // the file to write over; under writing
}

// openBook reads the book, or begins one. A damaged one is Corrupt.
func openBook(fsys vfs.FS, dir string, cluster [16]byte) (*book, error) {
	b := &book{fsys: fsys, dir: dir, cluster: cluster, rows: map[uint64]seen{}}
	if err := vfs.MkdirAll(fsys, dir); err != nil {
		return nil, err
	}
	damaged := 0
	for i, name := range bookNames {
		content, err := b.read(name)
		if err != nil {
			return nil, err
		}
		version, rows, whole := decodeBook(content)
		switch {
		case whole && [16]byte(content[8:]) != cluster:
			return nil, b.corrupt(name, "it is of another cluster")
		case whole && version > b.version:
			b.version, b.rows, b.next = version, rows, 1-i
		case !whole && len(bytes.Trim(content, "\x00")) > 0:
			damaged++
		}
		if err := b.provide(name, len(content)); err != nil && !vfs.IsNoSpace(err) {
			return nil, err
		}
	}
	if damaged == len(bookNames) { // of which one is being written at a time
		return nil, b.corrupt(bookNames[0], "not a book of members, nor is the other file")
	}
	b.written = b.version
	return b, b.takeOld()
}

// takeOld takes over what an earlier version has left, to be written with what comes next, and
// removes it once something newer is there.
func (b *book) takeOld() error {
	content, err := b.read(oldName)
	if err != nil || content == nil {
		return err
	}
	if b.version > 0 {
		return b.fsys.Remove(b.path(oldName))
	}
	rows, whole := decodeRows(content, oldMagic, oldHeadBytes)
	if !whole || [16]byte(content[8:]) != b.cluster {
		return b.corrupt(oldName, "not a book of this cluster's members")
	}
	b.rows, b.version = rows, 1
	return nil
}

func (b *book) path(name string) string { return filepath.Join(b.dir, name) }

// read returns the content of a file; nothing of one that is not there.
func (b *book) read(name string) ([]byte, error) {
	size, err := b.fsys.Size(b.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case size > maxBookBytes:
		return nil, b.corrupt(name, "it is longer than any book")
	}
	return vfs.ReadFile(b.fsys, b.path(name))
}

// provide gives a file its place on the disk, if it is shorter: then nothing was written to it.
func (b *book) provide(name string, size int) error {
	if size >= bookPlace {
		return nil
	}
	f, err := b.fsys.Create(b.path(name))
	if err != nil {
		return err
	}
	if err = f.Preallocate(bookPlace); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return b.fsys.SyncDir(b.dir)
}

func (b *book) corrupt(name, what string) error {
	return incumbent.Errorf(incumbent.Corrupt, "%s: %s", b.path(name), what).
		WithHint("the files of this folder remember how far the other members' logs were: if the disk is sound otherwise, remove it to begin anew")
}

// decodeBook reads a book, whosever it is. One that is not whole has nothing.
func decodeBook(p []byte) (version uint64, rows map[uint64]seen, whole bool) {
	if rows, whole = decodeRows(p, bookMagic, bookHeadBytes); whole {
		version = binary.LittleEndian.Uint64(p[24:])
	}
	return version, rows, whole
}

// decodeRows reads the rows behind a head, which ends with their count.
func decodeRows(p []byte, magic string, head int) (rows map[uint64]seen, whole bool) {
	if len(p) < head+4 || string(p[:8]) != magic {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(p[head-4:]))
	if n > maxAccused || len(p) < head+n*bookRowBytes+4 {
		return nil, false
	}
	end := head + n*bookRowBytes
	if crc32.Checksum(p[:end], castagnoli) != binary.LittleEndian.Uint32(p[end:]) {
		return nil, false
	}
	rows = make(map[uint64]seen, n)
	for r := p[head:end]; len(r) > 0; r = r[bookRowBytes:] {
		rows[binary.LittleEndian.Uint64(r)] = seen{
			incarnation: binary.LittleEndian.Uint64(r[8:]), term: binary.LittleEndian.Uint64(r[16:]),
			index: binary.LittleEndian.Uint64(r[24:]), boot: bootNonce(r[32:48]),
		}
	}
	return rows, true
}

// encode is called with mu held.
func (b *book) encode() []byte {
	p := make([]byte, 0, bookHeadBytes+len(b.rows)*bookRowBytes+4)
	p = append(append(p, bookMagic...), b.cluster[:]...)
	p = binary.LittleEndian.AppendUint64(p, b.version)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(b.rows)))
	for _, id := range slices.Sorted(maps.Keys(b.rows)) {
		r := b.rows[id]
		for _, v := range [...]uint64{id, r.incarnation, r.term, r.index} {
			p = binary.LittleEndian.AppendUint64(p, v)
		}
		p = append(p, r.boot[:]...)
	}
	return binary.LittleEndian.AppendUint32(p, crc32.Checksum(p, castagnoli))
}

// admit judges a hello and makes durable what it shows before it returns nil.
// The first result says in which way the member has been rolled back, if it has.
// acknowledged is what the member has acknowledged in earlier runs, if it was here
// before.
func (b *book) admit(id uint64, s Standing, boot bootNonce, acknowledged uint64) (rolledBack string, err error) {
	b.acknowledged(id, acknowledged)
	b.mu.Lock()
	r, known := b.rows[id]
	if known {
		rolledBack = r.lower(s, boot)
	}
	if rolledBack == "" {
		b.set(id, r.raise(s, boot))
	}
	b.mu.Unlock()
	if rolledBack != "" {
		return rolledBack, nil
	}
	return "", b.flush()
}

// note takes what a member showed after its hello. The next flush writes it.
func (b *book) note(id uint64, s Standing, boot bootNonce) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.rows[id]; ok && r.boot == boot {
		b.set(id, r.raise(s, boot))
	}
}

// acknowledged takes up to where a member has acknowledged committed entries. The
// next flush writes it.
func (b *book) acknowledged(id uint64, index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.rows[id]; ok {
		r.index = max(r.index, index)
		b.set(id, r)
	}
}

// set is called with mu held.
func (b *book) set(id uint64, r seen) {
	if old, ok := b.rows[id]; ok && old == r {
		return
	}
	b.rows[id] = r
	b.version++
}

// forget strikes out members for which gone reports true: their ids never come
// back.
func (b *book) forget(gone func(id uint64) bool) {
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.rows))
	b.mu.Unlock()
	ids = slices.DeleteFunc(ids, func(id uint64) bool { return !gone(id) })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		delete(b.rows, id)
		b.version++
	}
}

// flush makes durable what the rows were when it was called.
func (b *book) flush() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	version := b.version
	if version == b.written {
		b.mu.Unlock()
		return nil
	}
	content := b.encode()
	b.mu.Unlock()
	if err := b.overwrite(bookNames[b.next], content); err != nil {
		return err
	}
	b.written, b.next = version, 1-b.next
	return nil
}

// overwrite writes a file over, in its place.
func (b *book) overwrite(name string, content []byte) error {
	size, err := b.fsys.Size(b.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.provide(name, int(size)); err != nil {
		return err
	}
	f, err := b.fsys.OpenWrite(b.path(name))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
