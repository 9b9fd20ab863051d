package incumbent

import "unicode/utf8"

// What a name may contain is decided while commands are applied, so that every
// member must decide alike, whatever it was built with: the rule is written down
// here and asks no table of the toolchain, which changes from release to
// release. To change it is a new schema version.

// span is a range of code points, both ends included.
type span struct{ from, to rune }

// refused are the code points that no text of a name has, in ascending order:
// white space, controls, what shows nothing or only changes how its neighbours
// show (format and direction controls, fillers, variation selectors, tags), and
// what is no character. All else may be there, code points that mean nothing yet
// included: what they become one day, each member treats alike.
var refused = [...]span{
	{0x0000, 0x0020},   // controls, space
	{0x007F, 0x00A0},   // controls, no-break space
	{0x00AD, 0x00AD},   // soft hyphen
	{0x034F, 0x034F},   // combining grapheme joiner
	{0x061C, 0x061C},   // Arabic letter mark
	{0x115F, 0x1160},   // Hangul fillers
	{0x1680, 0x1680},   // Ogham space mark
	{0x17B4, 0x17B5},   // Khmer inherent vowels
	{0x180B, 0x180F},   // Mongolian variation selectors and vowel separator
	{0x2000, 0x200F},   // spaces, zero width, direction marks
	{0x2028, 0x202F},   // separators, embedding and override of direction, narrow no-break space
	{0x205F, 0x206F},   // mathematical space, word joiner, invisible operators, direction isolates
	{0x2800, 0x2800},   // blank Braille pattern
	{0x3000, 0x3000},   // ideographic space
	{0x3164, 0x3164},   // Hangul filler
	{0xFDD0, 0xFDEF},   // no characters
	{0xFE00, 0xFE0F},   // variation selectors
	{0xFEFF, 0xFEFF},   // zero width no-break space
	{0xFFA0, 0xFFA0},   // halfwidth Hangul filler
	{0xFFF0, 0xFFFB},   // ignorable, interlinear annotation
	{0xFFFE, 0xFFFF},   // no characters
	{0x13430, 0x1343F}, // Egyptian hieroglyph format controls
	{0x16FE4, 0x16FE4}, // Khitan small script filler
	{0x1BCA0, 0x1BCA3}, // shorthand format controls
	{0x1D159, 0x1D159}, // musical null notehead
	{0x1D173, 0x1D17A}, // musical format controls
	{0xE0000, 0xE0FFF}, // tags, variation selectors
}

// lastOfPlane is the mask of the two code points that are no characters in every
// plane.
const lastOfPlane = 0xFFFE

// PlainText returns where in s the first code point stands that no name may
// contain, and which it is: white space, a control, one that shows nothing or
// that directs how others show. Without one, and for the empty text, it returns
// -1. Invalid UTF-8 counts as U+FFFD at the place where it begins.
func PlainText(s string) (at int, r rune) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n <= 1 || forbidden(r) {
			return i, r
		}
		i += n
	}
	return -1, 0
}

func forbidden(r rune) bool {
	if r > ' ' && r < 0x7F {
		return false
	}
	if r&lastOfPlane == lastOfPlane {
		return true
	}
	for i := range refused {
		if r <= refused[i].to {
			return r >= refused[i].from
		}
	}
	return false
}
