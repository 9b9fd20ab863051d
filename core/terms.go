package core

import (
	"slices"
	"strings"
)

// Terms are what the settings of the cluster say about what commands may do. They
// never change: a command that changes a setting puts others in their place. nil
// and the zero value limit nothing.
type Terms struct {
	KeyBytes   int64 // of all keys and values together; 0: no limit
	Quotas     Mode
	Principals Quotas // of each principal
	Namespaces Quotas // of each namespace
}

// noTerms limit nothing.
var noTerms = new(Terms)

// holding are terms from when all members know them; else none: a member that does not
// would execute what others refuse.
func (t *shared) holding(terms *Terms) *Terms {
	if terms == nil || t.activeSchema() < quotaSchema {
		return noTerms
	}
	return terms
}

// Mode says what becomes of what is over a quota.
type Mode uint8

// The modes. The numbers are part of the log: append only.
const (
	Off     Mode = iota // nothing
	Observe             // it is counted, and executed
	Enforce             // it is counted, and refused
)

// Quotas bound what each of those has that they are for.
type Quotas [NumCounted]Quota

// Quota bounds one thing. Its zero value has no bound.
type Quota struct {
	Each     int64 // of whom nothing else is said; 0: as many as they like
	exact    map[string]int64
	prefixes map[string]int64
	lengths  []int // of the prefixes, longest first
}

// Set says what those may have whose names match a pattern: a name, or what names
// begin with and a "*". Of several that match, the name goes first, then the longest
// beginning. A Quota that anybody reads is not changed.
func (q *Quota) Set(pattern string, n int64) {
	prefix, is := strings.CutSuffix(pattern, "*")
	if !is {
		if q.exact == nil {
			q.exact = map[string]int64{}
		}
		q.exact[pattern] = n
		return
	}
	if q.prefixes == nil {
		q.prefixes = map[string]int64{}
	}
	q.prefixes[prefix] = n
	if !slices.Contains(q.lengths, len(prefix)) {
		q.lengths = append(q.lengths, len(prefix))
		slices.SortFunc(q.lengths, func(a, b int) int { return b - a })
	}
}

// Of is what one of them may have; 0: as many as it likes. It costs a look for each
// length that patterns have, however many they are.
func (q *Quota) Of(name string) int64 {
	if n, ok := q.exact[name]; ok {
		return n
	}
	for _, l := range q.lengths {
		if l > len(name) {
			continue
		}
		if n, ok := q.prefixes[name[:l]]; ok {
			return n
		}
	}
	return q.Each
}

// Governing are tables that say what the terms are: those of the settings.
type Governing interface {
	Tables
	// Terms returns those that hold from the last command on, or snapshot.
	Terms() *Terms
}

func (t *Terms) quotas(s Scope) *Quotas {
	if s == ScopeNamespace {
		return &t.Namespaces
	}
	return &t.Principals
}
