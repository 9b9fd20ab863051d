package core

import (
	"github.com/incumbent-dev/incumbent"
)

// once executes a command with a key unless its result is known. The floor is
// the index of the newest result forgotten: the first attempt of a key chosen
// at or after the floor has a greater index, so if it happened it is known.
func (s *State) once(c *command) Result {
	if len(c.keyID) > MaxKeyBytes {
		return Result{Err: tooLarge("key", "MaxKeyBytes", MaxKeyBytes)}
	}
	if k, ok := s.keptByID[string(c.keyID)]; ok {
		return s.replay(k)
	}
	if err := s.outlived(c); err != nil {
		return Result{Err: err} // of which nothing is kept: the next attempt is another
	}
	base := incumbent.Index(c.keyBase)
	if base >= s.first {
		return Result{Err: incumbent.Errorf(incumbent.Invalid, "base %d of the key is ahead of index %d", base, s.first)}
	}
	if base < s.keysFloor {
		return Result{Err: incumbent.Errorf(incumbent.Unknown,
			"base %d of the key is outside the window of kept results, which begins at %d", base, s.keysFloor)}
	}
	k := &kept{id: string(c.keyID)}
	op := c.op
	r := s.execute(c)
	r.Index = s.indexOf(&r)
	k.result = r.slim()
	if f, ok := s.kind(op).(Remembering); ok {
		if k.record = f.Keep(r.Record); k.record != nil {
			k.family = op
		}
	}
	s.keep(k)
	return r
}

// replay is the result of a command whose key is known.
func (s *State) replay(k *kept) Result {
	r := k.result
	r.Replayed = true
	if k.family != 0 {
		r.Record, _ = s.kind(k.family).(Remembering).Kept(k.record)
	}
	return r
}

// slim is the result as it is kept: what a caller needs to know that lost the
// first answer, and no more. No text that this program makes is part of it.
func (r Result) slim() Result {
	r.Member, r.Record, r.View = nil, nil, nil
	if r.Txn != nil {
		r.Txn = keptTxn(r.Txn.Unmet, r.Txn.Failed)
	}
	if r.Err != nil {
		r.Err = keptError(r.Err.Kind)
	}
	return r
}

// keptTxn is what is kept of a transaction. All that were executed share one.
func keptTxn(unmet, failed int) *TxnResult {
	if unmet == 0 && failed == 0 {
		return &executed
	}
	return &TxnResult{Unmet: unmet, Failed: failed}
}

var executed TxnResult // never changes

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

func (s *State) keep(k *kept) {
	s.keptByID[k.id] = k
	s.kept.Set(k)
	for s.kept.Len() > s.limits.Kept {
		s.dropOldestKept()
	}
}

func (s *State) dropOldestKept() {
	s.steps++
	k, _ := s.kept.PopMin()
	delete(s.keptByID, k.id)
	s.keysFloor = k.result.Index
}

// trimKeys forgets results by age, which the leader judges.
func (s *State) trimKeys(c *command) Result {
	through := min(incumbent.Index(c.index), s.first)
	for {
		k, ok := s.kept.Min()
		if !ok || k.result.Index > through {
			break
		}
		s.dropOldestKept()
	}
	s.keysFloor = max(s.keysFloor, through)
	return Result{}
}
