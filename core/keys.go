package core

import (
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/corepb"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// once executes a command with a key unless its result is known. The floor is
// the index of the newest result forgotten: the first attempt of a key chosen
// at or after the floor has a greater index, so if it happened it is known.
func (s *State) once(c *command) Result {
	if len(c.keyID) > MaxKeyBytes {
		return Result{Err: tooLarge("key", "MaxKeyBytes", MaxKeyBytes)}
	}
	if at, ok := s.keptByID[string(c.keyID)]; ok {
		return s.replay(at)
	}
	if err := s.outlived(c); err != nil {
		return Result{Err: err} // of which nothing is kept: the next attempt is another
	}
	base := incumbent.Index(c.keyBase)
	if base >= s.first {
		return Result{Err: incumbent.Errorf(incumbent.Invalid, "base %d of the key is ahead of index %d", base, s.first)}
	}
	if base < s.keysFloor {
		err := incumbent.Errorf(incumbent.Unknown,
			"base %d of the key is outside the window of kept results, which begins at %d", base, s.keysFloor)
		err.Err = OutsideWindow{Index: s.first}
		return Result{Err: err}
	}
	id, op := string(c.keyID), c.op
	r := s.execute(c)
	r.Index = s.indexOf(&r)
	e := encoder{wire.Writer{B: make([]byte, 0, 256)}}
	var family wire.Number
	var record []byte
	if f, ok := s.kind(op).(Remembering); ok {
		if record = f.Keep(r.Record); record != nil {
			family = op
		}
	}
	e.keptResult(id, &r, family, record)
	s.keep(kept{r.Index, string(e.B)})
	return r
}

// OutsideWindow is the cause of the refusal of a command the base of whose key is older
// than the results that are kept: that command was not executed, and whether one with its
// key was before is not known. It is known to the member that applied the command alone, and
// part of no record.
type OutsideWindow struct {
	Index incumbent.Index // of the command: a base from which on all results of keys are known
}

// Error says what the refusal is.
func (OutsideWindow) Error() string {
	return "the base of the key is outside the window of kept results"
}

// replay is the result of a command whose key is known.
func (s *State) replay(at incumbent.Index) Result {
	k, _ := s.kept.Get(kept{at: at})
	var p corepb.KeptResult
	err := proto.Unmarshal([]byte(k.record), &p)
	r := Result{}
	if err == nil {
		r, err = (&restorer{s: s, origin: noOrigin}).result(&p)
	}
	if err != nil { // a family keeps what it does not know again: no reason to stop
		r.Err = fail(incumbent.Unknown, "the request with this key was executed, and what came of it cannot be read")
	}
	r.Index, r.Replayed = at, true
	return r
}

// keptError is the error of a kept result. What is kept, and hashed, is its kind:
// the text is made here, says what the kind alone tells, and may change with any
// release.
func keptError(k incumbent.Kind) *incumbent.Error {
	text := "this was refused"
	switch k {
	case incumbent.Invalid:
		text = "it was malformed or out of bounds"
	case incumbent.NotFound:
		text = "what it names did not exist"
	case incumbent.Exists:
		text = "what it would create existed already"
	case incumbent.Held:
		text = "another held the lease, or it was being revoked"
	case incumbent.NotHolder:
		text = "the caller did not hold the lease"
	case incumbent.Expired:
		text = "the session had ended"
	case incumbent.Conflict:
		text = "what it names had changed meanwhile"
	case incumbent.Denied:
		text = "the caller had no right to it"
	case incumbent.TooLarge:
		text = "it would have exceeded a limit"
	}
	return fail(k, "when the request with this key was first executed, "+text)
}

func (s *State) keep(k kept) {
	s.keptByID[k.id()] = k.at
	s.kept.Set(k)
	for s.kept.Len() > s.limits.Kept {
		s.dropOldestKept()
	}
}

func (s *State) dropOldestKept() {
	s.steps++
	k, _ := s.kept.PopMin()
	delete(s.keptByID, k.id())
	s.keysFloor = k.at
}

// trimKeys forgets results by age, which the leader judges.
func (s *State) trimKeys(c *command) Result {
	through := min(incumbent.Index(c.index), s.first)
	for {
		k, ok := s.kept.Min()
		if !ok || k.at > through {
			break
		}
		s.dropOldestKept()
	}
	s.keysFloor = max(s.keysFloor, through)
	return Result{}
}
