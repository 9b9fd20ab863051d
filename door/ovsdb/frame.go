package ovsdb

import "github.com/incumbent-dev/incumbent"

// maxDepth is how deep objects and arrays of a message may be nested. What the protocol
// says needs less than ten.
const maxDepth = 200

// scanner finds the ends of JSON objects that follow one another without anything
// between them but white space. It looks at each byte once, however it arrives, and
// leaves it to the parser to find out whether what it has found is JSON.
type scanner struct {
	values  int32 // that have begun in the object so far, names among them; of what is JSON
	depth   int16
	quoted  bool // within a string
	escaped bool // behind a backslash there
}

// begun reports whether part of an object has been seen.
func (s *scanner) begun() bool { return s.depth > 0 }

// next looks at further bytes, up to the end of an object: n of them belong to it, or to
// the space before it.
func (s *scanner) next(data []byte) (n int, whole bool, err error) {
	for i := 0; i < len(data); i++ {
		if s.quoted {
			i = s.string(data, i)
			continue
		}
		switch c := data[i]; c {
		case '{', '[':
			if c == '[' && s.depth == 0 {
				return i, false, errNoObject
			}
			if s.depth == 0 {
				s.values = 1
			}
			s.values++ // the first of its elements
			if s.depth++; s.depth > maxDepth {
				return i, false, errTooDeep
			}
		case ',', ':':
			if s.depth == 0 {
				return i, false, errNoObject
			}
			s.values++
		case '}', ']':
			if s.depth == 0 {
				return i, false, errNoObject
			}
			if s.depth--; s.depth == 0 {
				return i + 1, true, nil
			}
		case '"':
			if s.depth == 0 {
				return i, false, errNoObject
			}
			s.quoted = true
		case ' ', '\t', '\r', '\n':
		default:
			if s.depth == 0 {
				return i, false, errNoObject
			}
		}
	}
	return len(data), false, nil
}

// string goes through a string from i on, and returns where it goes on behind: the last
// byte that was looked at.
func (s *scanner) string(data []byte, i int) int {
	for ; i < len(data); i++ {
		switch {
		case s.escaped:
			s.escaped = false
		case data[i] == '\\':
			s.escaped = true
		case data[i] == '"':
			s.quoted = false
			return i
		}
	}
	return i
}

var (
	errNoObject = incumbent.Errorf(incumbent.Invalid, "a message is a JSON object")
	errTooDeep  = incumbent.Errorf(incumbent.TooLarge, "a message is nested more than %d deep", maxDepth)
)
