package watch

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// MaxReads is how many topics and ranges an evaluation is remembered to have read one
// by one. Beyond them its query depends on all topics of the kinds it has read.
const MaxReads = 1024

// Reads is what an evaluation has read of a view, of which its result may be another
// when that changes: what it has found, and what it has looked for and was not there.
// Whoever reads for it notes that with the topics under which changes are published. A
// nil one notes nothing.
type Reads struct {
	list  []Selector // each once, in the order in which they were first read
	known map[Selector]struct{}
}

// Note notes that everything a selector picks was read, or looked for.
func (r *Reads) Note(s Selector) {
	if r == nil {
		return
	}
	if _, known := r.known[s]; known {
		return
	}
	if r.known == nil {
		r.known = map[Selector]struct{}{}
	}
	r.known[s] = struct{}{}
	if r.list = append(r.list, s); len(r.list) > MaxReads {
		r.widen()
	}
}

// widen leaves the kinds of what was read.
func (r *Reads) widen() {
	was := r.list
	r.list, r.known = nil, map[Selector]struct{}{}
	for _, s := range was {
		all := All(s.topic.Kind)
		if _, known := r.known[all]; !known {
			r.known[all] = struct{}{}
			r.list = append(r.list, all)
		}
	}
}

// Hash tells results apart by what they say. It is the same on every member.
type Hash [16]byte

// Digest makes a [Hash] of what it is given, piece by piece: results whose pieces differ
// in any way have different hashes.
type Digest struct{ h hash.Hash }

// NewDigest returns one that was given nothing.
func NewDigest() *Digest { return &Digest{sha256.New()} }

// Text adds a piece. So does Bytes.
func (d *Digest) Text(s string) { d.Bytes([]byte(s)) }

// Bytes adds a piece.
func (d *Digest) Bytes(b []byte) {
	d.Uint(uint64(len(b)))
	d.h.Write(b)
}

// Uint adds a number.
func (d *Digest) Uint(v uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	d.h.Write(b[:])
}

// Sum returns the hash: the first bytes of SHA-256, so that nobody makes two results
// that look the same.
func (d *Digest) Sum() (h Hash) {
	copy(h[:], d.h.Sum(nil))
	return h
}
