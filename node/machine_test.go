package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
)

// journal is a machine whose state is the list of commands it has applied. The
// result of a command is its place in the list, from 1.
type journal struct {
	mu       sync.Mutex // tests look in from outside
	commands []string
	leads    []uint64
	follows  int
	onApply  func(cmds [][]byte)
	onWrite  func() // before a snapshot is written
	forget   bool   // keep no list, for benchmarks
}

func (j *journal) Apply(cmds [][]byte, results []any) {
	if j.onApply != nil {
		j.onApply(cmds)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.forget {
		return
	}
	for i, c := range cmds {
		j.commands = append(j.commands, string(c))
		results[i] = len(j.commands)
	}
}

func (j *journal) Snapshot() func(io.Writer) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	bound := slices.Clip(j.commands)
	return func(w io.Writer) error {
		if j.onWrite != nil {
			j.onWrite()
		}
		for _, c := range bound {
			b := binary.AppendUvarint(nil, uint64(len(c)))
			if _, err := w.Write(append(b, c...)); err != nil {
				return err
			}
		}
		return nil
	}
}

func (j *journal) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.commands = nil
	in := bytes.NewReader(b)
	for in.Len() > 0 {
		n, err := binary.ReadUvarint(in)
		if err != nil || n > uint64(in.Len()) {
			return fmt.Errorf("journal: bad length")
		}
		c := make([]byte, n)
		if _, err := io.ReadFull(in, c); err != nil {
			return err
		}
		j.commands = append(j.commands, string(c))
	}
	return nil
}

func (j *journal) Lead(term uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.leads = append(j.leads, term)
}

func (j *journal) Follow(uint64, uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.follows++
}

func (j *journal) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.commands)
}

// What commands answered is kept by nobody but those who wait, however many commands later
// entries have.
func TestG39_ResultsOfEntriesAreNotKept(t *testing.T) {
	a := &applier{machine: &journal{}}
	for i, commands := range []int{3, 1, 2} {
		a.cmds = make([][]byte, commands)
		answered := 0
		c := &Committed{Index: uint64(i + 1)}
		for range commands {
			c.Done = append(c.Done, func(result any, err error) {
				if result != nil && err == nil {
					answered++
				}
			})
		}
		a.commands(c)
		if answered != commands {
			t.Errorf("entry %d: %d of %d were answered", i+1, answered, commands)
		}
		for k, r := range a.results {
			if r != nil {
				t.Errorf("after entry %d result %d is kept", i+1, k)
			}
		}
	}
}
