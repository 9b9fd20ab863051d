package bench

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"
	"time"
)

// versions knows which changes are in the answers of one query, by their index: every
// watcher who is told an index has what is in the body that one of them has read. So
// the load tool decodes one body of each version instead of all.
//
// Concurrency: any goroutine.
type versions struct {
	mu    sync.Mutex // protects the rest; held for map operations, and for what knows does
	known map[uint64]*version
	last  uint64 // index of the newest one whose body was read
}

// version is one state of what is watched.
type version struct {
	read    bool
	newest  int // change of the step; -1: none
	waiting []sight
}

// sight is that a watcher had a version before it was known what is in it.
type sight struct {
	at    time.Duration
	knows func(upTo int, at time.Duration)
}

// first reports whether nobody else reads the body of this index.
func (v *versions) first(index uint64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known[index] != nil {
		return false
	}
	v.known[index] = &version{}
	return true
}

// saw notes that a watcher had a version at a moment.
func (v *versions) saw(index uint64, s sight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.known[index]
	if !known.read {
		known.waiting = append(known.waiting, s)
		return
	}
	s.knows(known.newest, s.at)
}

// learn says which change is the newest in a version, and reports whether that goes
// with what others have: no version has less than one before it.
func (v *versions) learn(index uint64, newest int) (ordered bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.known[index]
	known.read, known.newest, ordered = true, newest, true
	for _, s := range known.waiting {
		s.knows(newest, s.at)
	}
	known.waiting = nil
	if last := v.known[v.last]; last != nil {
		ordered = index < v.last || newest >= last.newest
	}
	v.last = max(v.last, index)
	return ordered
}

// unzipper reads compressed answers, one after the other.
type unzipper struct {
	reader *gzip.Reader
	out    bytes.Buffer
}

// plain is the body, which is valid until the next call.
func (u *unzipper) plain(a httpAnswer, body []byte) ([]byte, error) {
	if !a.gzipped {
		return body, nil
	}
	var err error
	if u.reader == nil {
		u.reader, err = gzip.NewReader(bytes.NewReader(body))
	} else {
		err = u.reader.Reset(bytes.NewReader(body))
	}
	if err != nil {
		return nil, err
	}
	u.out.Reset()
	_, err = u.out.ReadFrom(io.LimitReader(u.reader, maxHTTPAnswer))
	return u.out.Bytes(), err
}
