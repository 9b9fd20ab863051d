package incumbent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"plain text, Größe 数据库 \U0001F512": "plain text, Größe 数据库 \U0001F512",
		"a\x1b[2Jb":        `a\x1b[2Jb`,
		"a\nforged\trow\r": `a\x0aforged\x09row\x0d`,
		"\u202Egnp.exe":    `\u202egnp.exe`,
		"\u009b31m":        `\u009b31m`,
		"\x7f":             `\x7f`,
		"\xff\xfe":         `\xff\xfe`,
		"\U000E0041":       `\U000e0041`,
		"\uFFFD":           "\uFFFD",
	} {
		if got := Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := EscapeLines("one\ntwo\x1b"); got != "one\ntwo\\x1b" {
		t.Errorf("lines: %q", got)
	}
}

func TestValidateReason(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "disk is full on host-3 (Größe)": true,
		"a\nb": false, "\x1b[1m": false, "a\u202eb": false, "\xff": false, "12345678901234567890123456789012345678901": false,
	} {
		if err := ValidateReason("reason", text, 40); (err == nil) != ok || err != nil && KindOf(err) != Invalid {
			t.Errorf("%q: %v", text, err)
		} else if err != nil && Escape(err.Error()) != err.Error() {
			t.Errorf("%q: the error needs escaping: %q", text, err)
		}
	}
}

// Whatever comes in, what comes out is one line of plain text; it is the text itself
// where that is plain; and JSON means the same.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b]0;title\x07", "\u202e\u2066", "\xed\xa0\x80", "a\r\nb\t", "\U000E0001\U0001F512", `\x1b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Escape(s)
		if !utf8.ValidString(got) || firstHidden(got, false) >= 0 || strings.ContainsAny(got, "\n\r\t\x1b\x7f") {
			t.Errorf("%q: %q is not plain", s, got)
		}
		if ValidateReason("text", s, len(s)) == nil && got != s {
			t.Errorf("%q: %q, it was plain", s, got)
		}
		if again := Escape(got); again != got {
			t.Errorf("%q: %q, then %q", s, got, again)
		}
		if strings.ReplaceAll(EscapeLines(s), "\n", `\x0a`) != got {
			t.Errorf("%q: by lines %q", s, EscapeLines(s))
		}
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		shown := EscapeJSON(doc)
		if Escape(string(shown)) != string(shown) {
			t.Errorf("%q: JSON %q", s, shown)
		}
		var was, is string
		if json.Unmarshal(doc, &was) != nil || json.Unmarshal(shown, &is) != nil || was != is {
			t.Errorf("%q: JSON means %q, meant %q", s, is, was)
		}
	})
}
