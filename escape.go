package incumbent

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// What people read is shown on terminals and pages, which obey some characters
// instead of showing them: a name could move the cursor, wipe a line, or turn the
// reading direction, and so write lines that nobody wrote. Names hold none of these
// (see [PlainText]); but other texts do, those of older members too, and so whoever
// shows anything to people shows it by [Escape].

// Escape returns s with what a terminal or a page would obey, or not show, written
// out: \x1b, \u202e, \xff for what is no UTF-8. Spaces stay as they are; a text
// without any of these is returned as it is.
func Escape(s string) string { return escape(s, false) }

// EscapeLines is [Escape] for a text of several lines, which stay.
func EscapeLines(s string) string { return escape(s, true) }

func escape(s string, lines bool) string {
	i := firstHidden(s, lines)
	if i < 0 {
		return s
	}
	var b strings.Builder
	for i >= 0 {
		b.WriteString(s[:i])
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xFFFF:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		s = s[i+n:]
		i = firstHidden(s, lines)
	}
	return b.String() + s
}

// firstHidden is where the first code point stands that is to be written out; -1
// without one.
func firstHidden(s string, lines bool) int {
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7F || lines && c == '\n' {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || forbidden(r) {
			return i
		}
		i += n
	}
	return -1
}

// EscapeJSON returns a document of JSON with the same meaning whose strings obey the
// rule of [Escape]: what would be written out is, as \u and four digits. The document
// must be well-formed; control characters are not looked for below U+007F, since
// JSON has none.
func EscapeJSON(doc []byte) []byte {
	i := firstForeign(doc)
	if i < 0 {
		return doc
	}
	var out []byte
	for i >= 0 {
		out = append(out, doc[:i]...)
		r, n := utf8.DecodeRune(doc[i:])
		if r > 0xFFFF {
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[i+n:]
		i = firstForeign(doc)
	}
	return append(out, doc...)
}

func firstForeign(doc []byte) int {
	for i := 0; i < len(doc); {
		if doc[i] < 0x7F {
			i++
			continue
		}
		r, n := utf8.DecodeRune(doc[i:])
		if r == utf8.RuneError && n == 1 || forbidden(r) {
			return i
		}
		i += n
	}
	return -1
}

// ValidateReason returns an Invalid error unless s can be a reason, or another text
// of people: at most limit bytes of plain text ([PlainText]), with spaces. It may be
// empty.
func ValidateReason(what, s string, limit int) error {
	if len(s) > limit {
		return Errorf(Invalid, "%s has %d bytes, limit is %d", what, len(s), limit)
	}
	if at := firstHidden(s, false); at >= 0 {
		return Errorf(Invalid, "%s has %s at byte %d; control, invisible and directional characters are not allowed, nor is what is no UTF-8",
			what, Escape(s[at:at+min(utf8.UTFMax, len(s)-at)]), at)
	}
	return nil
}
