package ovsdb

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// split goes through pieces and returns the objects in them, each without the space
// before it.
func split(pieces ...[]byte) (out []string, err error) {
	var s scanner
	var part []byte
	for _, p := range pieces {
		for len(p) > 0 {
			n, whole, err := s.next(p)
			if err != nil {
				return out, err
			}
			part = append(part, p[:n]...)
			if p = p[n:]; whole {
				out = append(out, string(bytes.TrimSpace(part)))
				part = nil
			}
		}
	}
	return out, nil
}

func TestMessagesFollowOneAnotherWithoutSeparator(t *testing.T) {
	text := `{"a":"}{\"\\"}{} [` + "\n"
	got, err := split([]byte(strings.TrimSuffix(text, " [\n") + "\t" + `{"b":[1,{"c":[]}]}`))
	want := []string{`{"a":"}{\"\\"}`, `{}`, `{"b":[1,{"c":[]}]}`}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, %v", got, err)
	}
	for what, bad := range map[string]string{
		"an array": `[]`, "a text": `"x"`, "a number": `1`, "an end": `}`, "the end of an array": `]`, "deep": strings.Repeat("{", maxDepth+1),
	} {
		if _, err := split([]byte(bad)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// A message is known to have as many values as it has, or a few more, before it is parsed.
func TestValuesAreCounted(t *testing.T) {
	for text, want := range map[string]int32{
		`{"a":1}`:                         3,
		`{"a":[1,2,{"b":"x,:[{"}],"c":2}`: 10,
		`{"a":[],"b":{}}`:                 7, // those that have none count as if they had one
	} {
		s := scanner{values: 9} // of the message before
		if n, whole, err := s.next([]byte(text)); n != len(text) || !whole || err != nil || s.values != want {
			t.Errorf("%s: %d values, %v, %v, want %d", text, s.values, whole, err, want)
		}
	}
}

// However bytes arrive, the same messages are found; and what encoding/json takes for
// objects that follow one another is what the scanner does.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"a":1}{"b":"\""}`), uint8(3))
	f.Add([]byte(` {"a":[{"b":"}\\"}]} `), uint8(1))
	f.Add([]byte(`{"method":"echo","params":[],"id":"echo"}{`), uint8(7))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		whole, err := split(data)
		var pieces [][]byte
		for rest := data; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		cut, cutErr := split(pieces...)
		if strings.Join(whole, "\x00") != strings.Join(cut, "\x00") || (err == nil) != (cutErr == nil) {
			t.Fatalf("whole %q, %v; in pieces %q, %v", whole, err, cut, cutErr)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		for i := 0; ; i++ {
			var m map[string]json.RawMessage
			start := d.InputOffset()
			if d.Decode(&m) != nil || m == nil {
				return
			}
			text := bytes.TrimSpace(data[start:d.InputOffset()])
			if len(text) > 0 && text[0] == '{' && depthOf(text) <= maxDepth && (i >= len(whole) || whole[i] != string(text)) {
				t.Fatalf("object %d is %q, found %q", i, text, whole)
			}
		}
	})
}

func depthOf(text []byte) (most int) {
	depth := 0
	for _, c := range text {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		most = max(most, depth)
	}
	return most
}
