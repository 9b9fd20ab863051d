package incumbent

import (
	"cmp"
	"strings"
)

// Names of the catalog, of nodes, services and checks, are written as whoever registers
// them likes: two that differ in the case of letters A to Z alone are one name. Other
// letters are what they are: which of them are one would follow from the tables of
// Unicode that a member was built with, and what is replicated must not.

// Fold returns the name that stands for all that are one with it.
func Fold(name string) string {
	for i := range len(name) {
		if folded(name[i]) != name[i] {
			return foldFrom(name, i)
		}
	}
	return name
}

// foldFrom folds a name from its first byte that becomes another.
func foldFrom(name string, i int) string {
	var b strings.Builder
	b.Grow(len(name))
	b.WriteString(name[:i])
	for ; i < len(name); i++ {
		b.WriteByte(folded(name[i]))
	}
	return b.String()
}

func folded(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// Alike reports whether two names are one.
func Alike(a, b string) bool { return len(a) == len(b) && CompareNames(a, b) == 0 }

// CompareNames compares what two names are as [strings.Compare] does what [Fold] returns
// of them, and makes nothing: 0 if they are one.
func CompareNames(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		if c := cmp.Compare(folded(a[i]), folded(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}
