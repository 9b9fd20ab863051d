package gate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

func TestProxyHeader(t *testing.T) {
	v4 := proxyMagic + "\x21\x11\x00\x0c" + "\xc0\x00\x02\x07" + "\xc6\x33\x64\x01" + "\x12\x67" + "\x01\xbb"
	v6 := proxyMagic + "\x21\x21\x00\x24" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + strings.Repeat("\x00", 16) + "\x12\x67" + "\x01\xbb"
	for name, tt := range map[string]struct {
		text string
		from string // "": not valid
		bad  bool
	}{
		"a line":                    {"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n", "192.0.2.7:4711", false},
		"a line, v6":                {"PROXY TCP6 2001:db8::1 2001:db8::2 4711 443\r\n", "[2001:db8::1]:4711", false},
		"a line without":            {"PROXY UNKNOWN\r\n", "", false},
		"a line with what it likes": {"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", false},
		"binary":                    {v4, "192.0.2.7:4711", false},
		"binary, v6":                {v6, "[2001:db8::1]:4711", false},
		"binary, with more":         {proxyMagic + "\x21\x11\x00\x0f" + v4[16:] + "\x04\x00\x00", "192.0.2.7:4711", false},
		"binary, the proxy's own":   {proxyMagic + "\x20\x11\x00\x0c" + v4[16:], "", false},
		"binary, a socket's":        {proxyMagic + "\x21\x31\x00\x02ab", "", false},
		"something else":            {"GET / HTTP/1.1\r\n", "", true},
		"a line without end":        {"PROXY TCP4 " + strings.Repeat("1", 200), "", true},
		"a line of another family":  {"PROXY TCP4 2001:db8::1 2001:db8::2 4711 443\r\n", "", true},
		"a line of no address":      {"PROXY TCP4 a b c d\r\n", "", true},
		"a line with a zone":        {"PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", "", true},
		"a line of too large ports": {"PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n", "", true},
		"a bare newline":            {"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n", "", true},
		"binary of version 3":       {proxyMagic + "\x31\x11\x00\x0c" + v4[16:], "", true},
		"binary, cut off":           {proxyMagic + "\x21\x11\x00\x04\xc0\x00\x02\x07", "", true},
		"binary, too long":          {proxyMagic + "\x21\x11\xff\xff", "", true},
	} {
		from, used, err := readHeader(tt.text + "rest")
		got := ""
		if from.IsValid() {
			got = from.String()
		}
		if got != tt.from || (err != nil) != tt.bad || err != nil && incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.from)
		}
		if err == nil && used != len(tt.text) {
			t.Errorf("%s: %d bytes of %d were taken", name, used, len(tt.text))
		}
	}
}

// readHeader gives what is asked for until the header is whole.
func readHeader(text string) (from netip.AddrPort, used int, err error) {
	for {
		from, need, err := proxyHeader([]byte(text[:used]))
		if err != nil || need == 0 || used+need > len(text) {
			return from, used, err
		}
		used += need
	}
}

// However the bytes come, none behind the header are asked for, and its length has a
// bound.
func FuzzProxyHeader(f *testing.F) {
	for _, s := range []string{
		"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\nx", "PROXY UNKNOWN\r\n", proxyMagic + "\x21\x11\x00\x0c" + strings.Repeat("a", 20), "GET",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for used := 0; used <= len(b); {
			from, need, err := proxyHeader(b[:used])
			if err != nil || need == 0 {
				if err == nil && used == 0 {
					t.Error("a header of no bytes")
				}
				if from.IsValid() && err != nil {
					t.Error("an address and an error")
				}
				return
			}
			if need < 0 || used+need > longestProxy {
				t.Fatalf("%d more bytes behind %d", need, used)
			}
			used += need
		}
	})
}
