package incumbent

import (
	"fmt"
	"strings"
	"testing"
)

// frozen is every code point that no name contains, as ranges: the rule of
// schema 2. Members that differ in it come to differ in their states, so that
// this list changes with the schema only, whatever Unicode does.
const frozen = `
0000-0020 007F-00A0 00AD 034F 061C 115F-1160 1680 17B4-17B5 180B-180F 2000-200F 2028-202F 205F-206F 2800 3000 3164
D800-DFFF FDD0-FDEF FE00-FE0F FEFF FFA0 FFF0-FFFB FFFE-FFFF 13430-1343F 16FE4 1BCA0-1BCA3 1D159 1D173-1D17A
1FFFE-1FFFF 2FFFE-2FFFF 3FFFE-3FFFF 4FFFE-4FFFF 5FFFE-5FFFF 6FFFE-6FFFF 7FFFE-7FFFF 8FFFE-8FFFF
9FFFE-9FFFF AFFFE-AFFFF BFFFE-BFFFF CFFFE-CFFFF DFFFE-DFFFF E0000-E0FFF EFFFE-EFFFF FFFFE-FFFFF 10FFFE-10FFFF`

func TestG28_WhatANameMayContainIsFrozen(t *testing.T) {
	var got []string
	from := rune(-1)
	for r := rune(0); r <= 0x110000; r++ {
		// The surrogates, which are no characters, are no valid UTF-8 either.
		text := string([]byte{0xED, 0xA0 | byte(r>>6&0x1F), 0x80 | byte(r&0x3F)})
		if r < 0xD800 || r > 0xDFFF {
			text = string(r)
		}
		switch bad := r <= 0x10FFFF && ValidateHolder(text) != nil; {
		case bad && from < 0:
			from = r
		case !bad && from == r-1:
			got = append(got, fmt.Sprintf("%04X", from))
			from = -1
		case !bad && from >= 0:
			got = append(got, fmt.Sprintf("%04X-%04X", from, r-1))
			from = -1
		}
		// A range ends where another reason begins.
		if from >= 0 && (r == 0xFFFB || r&0xFFFF == 0xFFFF) {
			got = append(got, fmt.Sprintf("%04X-%04X", from, r))
			from = -1
		}
	}
	if want := strings.Fields(frozen); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
	}
}

// The list is in order, for it is searched in order.
func TestRefusedIsInOrder(t *testing.T) {
	last := rune(-1)
	for _, s := range refused {
		if s.from <= last || s.to < s.from {
			t.Errorf("%U to %U after %U", s.from, s.to, last)
		}
		last = s.to
	}
}

func TestPlainText(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
		r    rune
	}{
		{"", -1, 0},
		{"plain-1.2/3:4", -1, 0},
		{"Größe", -1, 0},
		{"数据库", -1, 0},
		{"\U0001F512", -1, 0},
		{"\uFFFD", -1, 0},
		{"\U000E1000\uE000\u0378", -1, 0}, // unassigned, private: whatever they become
		{"a\u202Eb", 1, 0x202E},
		{"ab\xff", 2, 0xFFFD},
		{"ab\xed\xa0\x80", 2, 0xFFFD},
		{"\U0002FFFE", 0, 0x2FFFE},
	} {
		if at, r := PlainText(c.text); at != c.at || r != c.r {
			t.Errorf("%q: %U at %d, want %U at %d", c.text, r, at, c.r, c.at)
		}
	}
}
