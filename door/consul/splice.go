package consul

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/watch"
)

// A list that many callers are sent again and again, while little of it changes, is kept
// as fragments: the JSON of each element, in order. Fragments in a row are a run. What
// has not changed is the same fragment, and the same run, in the list before and in the
// one after, and each run is compressed once. A body joins runs, as they are and as they
// are compressed:
//
//	plain  [ run , run , … run ]
//	gzip   header, "[" stored, run deflated, "," stored, run deflated, … "]" stored and last, checksum, length
//
// Each run is compressed for itself, and ends at the boundary of a byte (RFC 1951,
// 3.2.4: an empty stored block), so that what follows can be put behind it. A compressor
// looks back 32 kB at most: runs of about that size lose little.
const (
	runLength = 32            // fragments of a run that is made anew
	runMost   = 2 * runLength // with more it is divided
	runLeast  = runLength / 4 // with fewer it is joined to the one behind it
)

// fragment is one element of a list. It never changes.
type fragment struct {
	key  string     // where it stands in the list
	of   any        // what it was made of: elements made of equal things are equal
	json []byte     // what the element says
	hash watch.Hash // of json
}

// newFragment keeps of and text.
func newFragment(key string, of any, text []byte) *fragment {
	return &fragment{key: key, of: of, json: text, hash: digestOf(text)}
}

func digestOf(b []byte) watch.Hash {
	d := watch.NewDigest()
	d.Bytes(b)
	return d.Sum()
}

// run is some fragments in a row, at least one. It never changes.
type run struct {
	fragments []*fragment
	size      int // of the fragments and the commas between them, in bytes

	once     sync.Once // of what follows, made when somebody wants it
	deflated []byte
	crc      uint32
	shift    uint32
}

// newRun copies fs: a run that stays would keep the whole list that it was cut from.
func newRun(fs []*fragment) *run {
	r := &run{fragments: slices.Clone(fs), size: len(fs) - 1}
	for _, f := range fs {
		r.size += len(f.json)
	}
	return r
}

// first is the key with which the run begins.
func (r *run) first() string { return r.fragments[0].key }

func (r *run) appendTo(b []byte) []byte {
	for i, f := range r.fragments {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.json...)
	}
	return b
}

// deflaters are in use for one run each: one keeps some hundred kB of memory.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "a compressor: %w", err))
	}
	return w
}}

// compress deflates the run, once for all lists that have it.
func (r *run) compress() {
	r.once.Do(func() {
		plain := r.appendTo(make([]byte, 0, r.size))
		var out bytes.Buffer
		w := deflaters.Get().(*flate.Writer) //nolint:forcetypeassert // as it was made
		defer deflaters.Put(w)
		w.Reset(&out)
		w.Write(plain) //nolint:errcheck // a buffer takes everything
		w.Flush()      //nolint:errcheck // as above
		r.deflated = bytes.Clone(out.Bytes())
		r.crc, r.shift = crc32.ChecksumIEEE(plain), crcShift(len(plain))
	})
}

// reruns groups the fragments of a list into runs, where was are those of the list
// before: a run in which nothing has changed stays, so does the division.
func reruns(was []*run, fs []*fragment) []*run {
	runs := make([]*run, 0, len(was)+len(fs)/runLength-len(was)/2+1)
	var few []*fragment // that are waiting for those behind them
	for i := 0; len(fs) > 0; i++ {
		n := len(fs)
		if i+1 < len(was) {
			n = countBefore(fs, was[i+1].first())
		}
		part := fs[:n:n]
		fs = fs[n:]
		switch {
		case len(few) == 0 && i < len(was) && slices.Equal(was[i].fragments, part):
			runs = append(runs, was[i])
			continue
		case len(few) > 0:
			part = append(few[:len(few):len(few)], part...)
		}
		if few = nil; len(part) < runLeast && len(fs) > 0 {
			few = part
			continue
		}
		runs = divide(runs, part)
	}
	return runs
}

// countBefore is how many fragments have a key before end. The list is in order.
func countBefore(fs []*fragment, end string) int {
	for i, f := range fs {
		if f.key >= end {
			return i
		}
	}
	return len(fs)
}

func divide(runs []*run, fs []*fragment) []*run {
	for len(fs) > runMost {
		runs = append(runs, newRun(fs[:runLength:runLength]))
		fs = fs[runLength:]
	}
	if len(fs) > 0 {
		runs = append(runs, newRun(fs))
	}
	return runs
}

// spliced is the body of a list of fragments. Its encodings are made once, when somebody
// wants them, and never change.
type spliced struct {
	runs []*run

	plain, gzipped, indented sync.Once
	json, gzip, pretty       []byte
}

// size is that of the body, in bytes, not compressed.
func (s *spliced) size() int {
	n := len("[]") + max(len(s.runs)-1, 0)
	for _, r := range s.runs {
		n += r.size
	}
	return n
}

// hash tells lists apart by what they say, however they are divided into runs.
func (s *spliced) hash() watch.Hash {
	var all []byte
	for _, r := range s.runs {
		for _, f := range r.fragments {
			all = append(all, f.hash[:]...)
		}
	}
	return digestOf(all)
}

// JSON is the list.
func (s *spliced) JSON() []byte {
	s.plain.Do(func() {
		b := append(make([]byte, 0, s.size()), '[')
		for i, r := range s.runs {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.appendTo(b)
		}
		s.json = append(b, ']')
	})
	return s.json
}

// Pretty is the list, indented.
func (s *spliced) Pretty() []byte {
	s.indented.Do(func() { s.pretty = indentJSON(s.JSON()) })
	return s.pretty
}

// Gzip is the list as one member of RFC 1952.
func (s *spliced) Gzip() []byte {
	s.gzipped.Do(func() { s.gzip = s.join() })
	return s.gzip
}

// The parts of a gzip stream that do not depend on the runs: stored blocks of one byte,
// and the header: no name, no time, no system.
const (
	gzipHeader  = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
	storedByte  = "\x00\x01\x00\xfe\xff" // then the byte
	storedLast  = "\x01\x01\x00\xfe\xff" // the same, and the stream ends with it
	gzipTrailer = 8                      // checksum and length, of four bytes each
)

func (s *spliced) join() []byte {
	n := len(gzipHeader) + (len(s.runs)+1)*(len(storedByte)+1) + gzipTrailer
	for _, r := range s.runs {
		r.compress()
		n += len(r.deflated)
	}
	b := append(make([]byte, 0, n), gzipHeader...)
	b = append(append(b, storedByte...), '[')
	crc := crc32.ChecksumIEEE([]byte("["))
	shift := crcShift(1)
	for i, r := range s.runs {
		if i > 0 {
			b = append(append(b, storedByte...), ',')
			crc = crcJoin(crc, crc32.ChecksumIEEE([]byte(",")), shift)
		}
		b = append(b, r.deflated...)
		crc = crcJoin(crc, r.crc, r.shift)
	}
	b = append(append(b, storedLast...), ']')
	crc = crcJoin(crc, crc32.ChecksumIEEE([]byte("]")), shift)
	b = binary.LittleEndian.AppendUint32(b, crc)
	return binary.LittleEndian.AppendUint32(b, uint32(s.size())) //nolint:gosec // RFC 1952: modulo 2^32
}

// indentJSON is JSON as ?pretty shows it.
func indentJSON(b []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "    "); err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "indent an answer: %w", err))
	}
	out.WriteByte('\n')
	return out.Bytes()
}
