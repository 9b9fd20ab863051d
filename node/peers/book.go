package peers

import (
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
//	┌──────────┬────────────┬───────────┬─────────────────────────────────────────────────────────────────┬────────┐
//	│ magic 8  │ cluster 16 │ count u32 │ count × (member, incarnation, term, index: u64 each; boot 16)    │ crc32c │
//	└──────────┴────────────┴───────────┴─────────────────────────────────────────────────────────────────┴────────┘
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
	bookName      = "seen"
	bookMagic     = "INCSEEN1"
	bookHeadBytes = 8 + 16 + 4
	bookRowBytes  = 4*8 + 16
)

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

// book is the file and its content in memory.
type book struct {
	fsys    vfs.FS
	file    string
	cluster [16]byte

	mu      sync.Mutex // guards what follows, for moments
	rows    map[uint64]seen
	version uint64 // counts changes of rows

	writing sync.Mutex // held while the file is written; whoever waits for it finds its own rows written by the one before
	written uint64     // version of the file; under writing
}

// openBook reads the book, or begins one. A damaged one is Corrupt.
func openBook(fsys vfs.FS, dir string, cluster [16]byte) (*book, error) {
	b := &book{fsys: fsys, file: filepath.Join(dir, bookName), cluster: cluster, rows: map[uint64]seen{}}
	if err := vfs.MkdirAll(fsys, dir); err != nil {
		return nil, err
	}
	size, err := fsys.Size(b.file)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	if size > maxBookBytes {
		return nil, b.corrupt("it is longer than any book")
	}
	content, err := vfs.ReadFile(fsys, b.file)
	if err != nil {
		return nil, err
	}
	return b, b.decode(content)
}

func (b *book) corrupt(what string) error {
	return incumbent.Errorf(incumbent.Corrupt, "%s: %s", b.file, what).
		WithHint("this file remembers how far the other members' logs were: if the disk is sound otherwise, remove it to begin a new one")
}

func (b *book) decode(p []byte) error {
	switch {
	case len(p) < bookHeadBytes+4 || string(p[:8]) != bookMagic:
		return b.corrupt("not a book of members")
	case crc32.Checksum(p[:len(p)-4], castagnoli) != binary.LittleEndian.Uint32(p[len(p)-4:]):
		return b.corrupt("checksum does not match")
	case [16]byte(p[8:24]) != b.cluster:
		return b.corrupt("it is of another cluster")
	}
	n := int(binary.LittleEndian.Uint32(p[24:]))
	rows := p[bookHeadBytes : len(p)-4]
	if n > maxAccused || len(rows) != n*bookRowBytes {
		return b.corrupt("its length is wrong")
	}
	for ; len(rows) > 0; rows = rows[bookRowBytes:] {
		b.rows[binary.LittleEndian.Uint64(rows)] = seen{
			incarnation: binary.LittleEndian.Uint64(rows[8:]), term: binary.LittleEndian.Uint64(rows[16:]),
			index: binary.LittleEndian.Uint64(rows[24:]), boot: bootNonce(rows[32:48]),
		}
	}
	return nil
}

func (b *book) encode() []byte {
	p := make([]byte, 0, bookHeadBytes+len(b.rows)*bookRowBytes+4)
	p = append(append(p, bookMagic...), b.cluster[:]...)
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
	if err := vfs.WriteFile(b.fsys, b.file, content); err != nil {
		return err
	}
	b.written = version
	return nil
}
