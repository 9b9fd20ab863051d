package auth

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

var someHash = hashPrefix + strings.Repeat("ab", 32)

func TestParseCredentialsSaysWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		kind incumbent.Kind
		want string
	}{
		"two words":       {"a agent", incumbent.Invalid, "line 1"},
		"four words":      {"\n#\na agent " + someHash + " x", incumbent.Invalid, "line 3"},
		"bad kind":        {"a root " + someHash, incumbent.Invalid, `kind "root"`},
		"anonymous":       {"a anonymous " + someHash, incumbent.Invalid, "kind"},
		"no prefix":       {"a agent " + someHash[len(hashPrefix):], incumbent.Invalid, "third word"},
		"short hash":      {"a agent " + someHash[:40], incumbent.Invalid, "third word"},
		"long hash":       {"a agent " + someHash + "ab", incumbent.Invalid, "third word"},
		"not hexadecimal": {"a agent " + someHash[:len(someHash)-1] + "x", incumbent.Invalid, "third word"},
		"not printable":   {"a\x01 agent " + someHash, incumbent.Invalid, "U+0001"},
		"not UTF-8":       {"a\xff agent " + someHash, incumbent.Invalid, "UTF-8"},
		"long name":       {strings.Repeat("n", 257) + " agent " + someHash, incumbent.Invalid, "256"},
		"same token":      {"a agent " + someHash + "\nb agent " + someHash, incumbent.Invalid, `line 2: invalid: the same token as "a"`},
		"two kinds":       {"a agent " + someHash + "\na operator " + hashPrefix + strings.Repeat("cd", 32), incumbent.Invalid, "agent before"},
		"long line":       {"# " + strings.Repeat("x", MaxCredentialBytes), incumbent.TooLarge, "line 1 has more than"},
	} {
		c, err := ParseCredentials(strings.NewReader(tt.file))
		if c != nil || incumbent.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := ParseCredentials(io.MultiReader(strings.NewReader("# x\n"), brokenReader{})); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestCredentialFileIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range MaxCredentials + 1 {
		fmt.Fprintf(&b, "a agent %s%016x%048x\n", hashPrefix, i, i)
	}
	_, err := ParseCredentials(strings.NewReader(b.String()))
	if incumbent.KindOf(err) != incumbent.TooLarge || !strings.Contains(err.Error(), "line 100001") {
		t.Errorf("got %v", err)
	}
}

func TestCredentialLineRefusesWhatItCouldNotRead(t *testing.T) {
	token := NewToken()
	for name, line := range map[string]func() (string, error){
		"name":      func() (string, error) { return CredentialLine("a b", Agent, token) },
		"comment":   func() (string, error) { return CredentialLine("#a", Agent, token) },
		"anonymous": func() (string, error) { return CredentialLine("a", Anonymous, token) },
		"password":  func() (string, error) { return CredentialLine("a", Agent, "hunter2") },
		"cut off":   func() (string, error) { return CredentialLine("a", Agent, token[:len(token)-1]) },
		"not base64": func() (string, error) {
			return CredentialLine("a", Agent, token[:len(token)-2]+"!!")
		},
	} {
		if got, err := line(); incumbent.KindOf(err) != incumbent.Invalid || got != "" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if a, b := NewToken(), NewToken(); a == b || len(a) != tokenLength {
		t.Errorf("tokens %q and %q", a, b)
	}
}

func FuzzParseCredentials(f *testing.F) {
	f.Add("# comment\n\nunit-1 agent " + someHash + "\n")
	f.Add("a operator " + someHash + "\r\nb observer " + strings.ToUpper(someHash))
	f.Add("a agent " + someHash + " \x00\n\xff")
	f.Fuzz(func(t *testing.T, file string) {
		c, err := ParseCredentials(strings.NewReader(file))
		if err != nil {
			if k := incumbent.KindOf(err); k != incumbent.Invalid && k != incumbent.TooLarge || c != nil {
				t.Fatalf("got %v, %v", c, err)
			}
			return
		}
		n := 0
		for _, x := range c.bySum {
			n++
			if p := x.principal; incumbent.ValidateHolder(p.Name) != nil || p.Kind == Anonymous || p.Kind >= numKinds || p.Via != Credential {
				t.Fatalf("accepted %+v", p)
			}
		}
		if n != c.Len() || n > strings.Count(file, "\n")+1 {
			t.Fatalf("%d credentials, says %d", n, c.Len())
		}
	})
}
