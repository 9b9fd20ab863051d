package juju

import (
	"encoding/hex"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Juju names entities by tags: a kind, a dash, and a name in which a unit's
// slash is a dash too.
const (
	applicationKind = "application-"
	unitKind        = "unit-"
	modelKind       = "model-"
	controllerKind  = "controller-"
	machineKind     = "machine-"
)

// unitOf returns the unit that a tag names, as app/0, and its application.
func unitOf(tag string) (unit, application string, ok bool) {
	name, ok := strings.CutPrefix(tag, unitKind)
	dash := strings.LastIndexByte(name, '-')
	if !ok || dash < 0 || !isApplication(name[:dash]) || !isNumber(name[dash+1:]) {
		return "", "", false
	}
	return name[:dash] + "/" + name[dash+1:], name[:dash], true
}

// applicationOf returns the application that a tag names.
func applicationOf(tag string) (string, bool) {
	name, ok := strings.CutPrefix(tag, applicationKind)
	if !ok || !isApplication(name) {
		return "", false
	}
	return name, true
}

// isApplication reports whether a name is one of an application: words of lower
// case letters and digits joined by dashes, the first beginning with a letter
// and every other holding one, so that no unit's number is taken for a part of
// it.
func isApplication(name string) bool {
	if name == "" || len(name) > maxApplication || !isLetter(name[0]) {
		return false
	}
	letters := false
	for i := range len(name) {
		switch c := name[i]; {
		case isLetter(c):
			letters = true
		case c == '-' && letters:
			letters = false
		case !isDigit(c):
			return false
		}
	}
	return letters
}

// isNumber reports whether a text is a number of a unit: decimal, without
// leading zeros.
func isNumber(s string) bool {
	if s == "" || len(s) > 9 || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// isUUID reports whether a text is a UUID in lower case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case !isDigit(c) && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

// uuidOf prints 16 bytes as a UUID.
func uuidOf(id [16]byte) string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// isAgent reports whether a tag is of a kind that logs in here.
func isAgent(tag string) bool {
	if _, _, ok := unitOf(tag); ok {
		return true
	}
	if _, ok := applicationOf(tag); ok {
		return true
	}
	if id, ok := strings.CutPrefix(tag, machineKind); ok {
		return isMachine(id)
	}
	n, ok := strings.CutPrefix(tag, controllerKind)
	return ok && isNumber(n)
}

// isMachine reports whether a text is what a machine's tag says of it: a number,
// or of a container its host's, the kind of container and its own, as 0-lxd-1.
func isMachine(id string) bool {
	for len(id) <= maxApplication {
		number, rest, inside := strings.Cut(id, "-")
		if !isNumber(number) || !inside {
			return isNumber(number)
		}
		kind, next, ok := strings.Cut(rest, "-")
		if !ok || kind == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < 'a' || r > 'z' }) {
			return false
		}
		id = next
	}
	return false
}

// ValidateAccount returns an Invalid error if nobody can log in by a line of the
// passwords' file that has this scope, a model's UUID or * for all, and this tag.
// The error never holds either.
func ValidateAccount(scope, tag string) error {
	switch {
	case scope != "*" && !isUUID(scope):
		return incumbent.Errorf(incumbent.Invalid, "the model is neither a UUID in lower case nor *")
	case !isAgent(tag):
		return incumbent.Errorf(incumbent.Invalid,
			"the tag is none of unit-APPLICATION-NUMBER, application-APPLICATION, machine-NUMBER (or of a container, machine-NUMBER-KIND-NUMBER), controller-NUMBER")
	}
	return nil
}
