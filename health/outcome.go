package health

import (
	"strings"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent/core/catalog"
)

// Status is what a check says of its service or node.
type Status uint8

// The statuses, from the best to the worst.
const (
	Passing Status = iota
	Warning
	Critical
	numStatuses
)

// String returns the word by which clients know the status.
func (s Status) String() string {
	return [numStatuses]string{"passing", "warning", "critical"}[s]
}

// Outcome is what one run of a check found.
type Outcome struct {
	Status Status
	Output string // for people, at most the check's limit

	of *catalog.Check // that was run, of an outcome that is reported: see [Update]
}

// Thresholds say how many runs in a row must agree before the status changes. 0 is 1. A
// run that fails makes no critical check a warning.
type Thresholds struct {
	SuccessBeforePassing   int
	FailuresBeforeWarning  int // 0: as many as before critical
	FailuresBeforeCritical int
}

// streak is how many runs in a row went how.
type streak struct {
	begun               bool // there were runs before: what the first one finds counts at once
	successes, failures int
}

// after returns the status that a check has after a run; false: too few runs agree,
// and it keeps the one it has.
func (s *streak) after(is Status, t Thresholds) (Status, bool) {
	if !s.begun {
		s.begun = true
		t = Thresholds{}
	}
	if is != Critical { // a warning is an answer
		s.successes, s.failures = s.successes+1, 0
		return is, s.successes >= max(1, t.SuccessBeforePassing)
	}
	s.successes, s.failures = 0, s.failures+1
	critical := max(1, t.FailuresBeforeCritical)
	warning := critical
	if t.FailuresBeforeWarning > 0 {
		warning = t.FailuresBeforeWarning
	}
	switch {
	case s.failures >= critical:
		return Critical, true
	case s.failures >= warning:
		return Warning, true
	}
	return Critical, false
}

// Bounded is text of at most n bytes, cut between characters, without what is not
// UTF-8: outputs are shown as JSON.
func Bounded(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
