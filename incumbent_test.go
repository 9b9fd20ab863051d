package incumbent_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func TestNameValidate(t *testing.T) {
	long := strings.Repeat("x", incumbent.MaxNameBytes)
	for _, c := range []struct {
		name incumbent.Name
		says string // part of the error; "" for none
	}{
		{incumbent.Name{Namespace: "n", Model: "m", Lease: "db/primary"}, ""},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: "größe/日本"}, ""},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: long}, ""},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: long + "x"}, "257 bytes, limit is 256"},
		{incumbent.Name{Namespace: "n", Model: "m"}, "name is empty"},
		{incumbent.Name{Model: "m", Lease: "l"}, "namespace is empty"},
		{incumbent.Name{Namespace: "n", Lease: "l"}, "model is empty"},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: "a b"}, "U+0020 at byte 1"},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: "a\x00"}, "U+0000 at byte 1"},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: "a\u200b"}, "U+200B at byte 1"},
		{incumbent.Name{Namespace: "n", Model: "m", Lease: "a\xff"}, "not valid UTF-8"},
		{incumbent.Name{Namespace: strings.Repeat("x", 129), Model: "m", Lease: "l"}, "namespace has 129 bytes"},
	} {
		err := c.name.Validate()
		if c.says == "" && err != nil {
			t.Errorf("%q: %v", c.name, err)
		}
		if c.says != "" && (incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q: got %v, want invalid with %q", c.name, err, c.says)
		}
	}
}

func TestNameCompare(t *testing.T) {
	ordered := []incumbent.Name{
		{Namespace: "a", Model: "a", Lease: "z"},
		{Namespace: "a", Model: "b", Lease: "a"},
		{Namespace: "a", Model: "b", Lease: "b"},
		{Namespace: "b", Model: "a", Lease: "a"},
	}
	for i, x := range ordered {
		for j, y := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := x.Compare(y); got != want {
				t.Errorf("%v against %v: %d, want %d", x, y, got, want)
			}
		}
	}
}

func TestG11_DurationsHaveBounds(t *testing.T) {
	for d, ok := range map[time.Duration]bool{
		0: false, -time.Second: false, math.MinInt64: false, math.MaxInt64: false,
		incumbent.MinTTL - 1: false, incumbent.MinTTL: true, time.Minute: true,
		incumbent.MaxTTL: true, incumbent.MaxTTL + 1: false,
	} {
		err := incumbent.ValidateTTL(d)
		if (err == nil) != ok || err != nil && incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%v: %v, want ok %v", d, err, ok)
		}
	}
}

func TestSessionID(t *testing.T) {
	id := incumbent.NewSessionID()
	back, err := incumbent.ParseSessionID(id.String())
	if err != nil || back != id {
		t.Errorf("%v came back as %v, %v", id, back, err)
	}
	if text := id.String(); len(text) != 36 || text[14] != '4' {
		t.Errorf("%q is not a version 4 UUID", text)
	}
	if incumbent.NewSessionID() == id {
		t.Error("two sessions share an id")
	}
	var zero incumbent.SessionID
	if back, err := incumbent.ParseSessionID(""); err != nil || !back.IsZero() || zero.String() != "" {
		t.Error("the zero id is not the empty text")
	}
	for _, bad := range []string{"x", "00000000-0000-0000-0000-000000000000", id.String() + "0", strings.ReplaceAll(id.String(), "-", "_"), "g" + id.String()[1:]} {
		if _, err := incumbent.ParseSessionID(bad); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
}

func FuzzParseSessionID(f *testing.F) {
	f.Add("")
	f.Add(incumbent.NewSessionID().String())
	f.Fuzz(func(t *testing.T, s string) {
		id, err := incumbent.ParseSessionID(s)
		if err == nil && !strings.EqualFold(id.String(), s) {
			t.Errorf("%q was read as %v", s, id)
		}
	})
}
