package auth

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func passwordFile(t *testing.T, lines ...string) *Passwords {
	t.Helper()
	p, err := ParsePasswords(strings.NewReader("# agents\n\n"+strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func passwordLine(t *testing.T, scope, tag, password string, g Grant) string {
	t.Helper()
	line, err := PasswordLine(scope, tag, password, 1, g)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func TestVerify(t *testing.T) {
	v := NewVerifier(VerifierConfig{}, passwordFile(t,
		passwordLine(t, "m1", "unit-app-0", "one", 0),
		passwordLine(t, "m1", "unit-app-0", "new", 0),
		passwordLine(t, "m2", "unit-app-0", "two", ClaimAny),
		passwordLine(t, "*", "unit-app-0", "all", ClaimAny|Controller),
		passwordLine(t, "*", "machine-0", "all", Controller),
	))
	for _, tt := range []struct {
		scope, tag, password string
		grants               Grant
		kind                 incumbent.Kind
	}{
		{"m1", "unit-app-0", "one", 0, incumbent.OK},
		{"m1", "unit-app-0", "new", 0, incumbent.OK},
		{"m1", "unit-app-0", "all", ClaimAny | Controller, incumbent.OK},
		{"m1", "unit-app-0", "two", 0, incumbent.Denied},
		{"m2", "unit-app-0", "two", ClaimAny, incumbent.OK},
		{"m2", "unit-app-0", "one", 0, incumbent.Denied},
		{"m3", "machine-0", "all", Controller, incumbent.OK},
		{"m3", "machine-1", "all", 0, incumbent.Denied},
		{"m1", "unit-app-0", "", 0, incumbent.Denied},
		{"m1", "unit-app-0", strings.Repeat("x", MaxPasswordBytes+1), 0, incumbent.Denied},
		{"m1", "", "one", 0, incumbent.Denied},
		{"*", "unit-app-0", "all", ClaimAny | Controller, incumbent.OK},
	} {
		for range 2 { // the second time it is remembered
			g, err := v.Verify(tt.scope, tt.tag, tt.password)
			if g != tt.grants || incumbent.KindOf(err) != tt.kind {
				t.Errorf("%s %s %.10s: %v, %v", tt.scope, tt.tag, tt.password, g, err)
			}
		}
	}
	if !v.Knows("m9", "machine-0", 0) || v.Knows("m9", "machine-1", 0) || !v.Knows("m1", "unit-app-0", 0) {
		t.Error("who is known is not")
	}
	if !v.Knows("m9", "machine-0", Controller) || v.Knows("m9", "machine-0", ClaimAny|Controller) || !v.Knows("m2", "unit-app-0", ClaimAny) {
		t.Error("who is granted it is not known with that grant")
	}
}

func TestVerifierRemembers(t *testing.T) {
	now := time.Unix(1, 0)
	line := passwordLine(t, "*", "a", "p", 0)
	v := NewVerifier(VerifierConfig{RememberFor: time.Minute, Now: func() time.Time { return now }}, passwordFile(t, line))
	verify := func(password string, want incumbent.Kind) {
		t.Helper()
		if _, err := v.Verify("m", "a", password); incumbent.KindOf(err) != want {
			t.Errorf("%s: %v", password, err)
		}
	}
	counts := func(verified, remembered, wrong uint64) {
		t.Helper()
		if v.Counts(Verified) != verified || v.Counts(Remembered) != remembered || v.Counts(Wrong) != wrong {
			t.Errorf("%d verified, %d remembered, %d wrong; want %d, %d, %d", v.Counts(Verified), v.Counts(Remembered), v.Counts(Wrong), verified, remembered, wrong)
		}
	}
	verify("p", incumbent.OK)
	verify("p", incumbent.OK)
	verify("q", incumbent.Denied)
	verify("q", incumbent.Denied)
	counts(1, 1, 2)
	now = now.Add(time.Minute - 1)
	verify("p", incumbent.OK)
	counts(1, 2, 2)
	now = now.Add(1)
	verify("p", incumbent.OK)
	counts(2, 2, 2)
	v.SetPasswords(passwordFile(t, passwordLine(t, "*", "a", "q", 0)))
	verify("p", incumbent.Denied)
	verify("q", incumbent.OK)
	counts(3, 2, 3)
}

// A password that is replaced while it is being verified lets nobody in any more:
// not who brought it first, nor who waits for the same.
func TestReplacedWhileVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(VerifierConfig{AtOnce: 1}, passwordFile(t, passwordLine(t, "*", "a", "old", 0)))
		id, f, mine := v.enter("m", "a", "old")
		if f.how = v.check(f, "m", "a", "old"); !mine || f.how != Verified {
			t.Fatalf("mine: %v, %v, %v: it is right by the old file", mine, f.how, f.err)
		}
		ended := verifyAtOnce(v, "old", 8)
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("not all wait for the verification that is under way")
		}
		v.SetPasswords(passwordFile(t, passwordLine(t, "*", "a", "new", 0)))
		v.leave(id.name, f)
		if !f.stale {
			t.Error("what was verified by the old file counts")
		}
		for range cap(ended) {
			if err := <-ended; incumbent.KindOf(err) != incumbent.Denied {
				t.Errorf("the old password: %v", err)
			}
		}
		if _, err := v.Verify("m", "a", "new"); err != nil {
			t.Error(err)
		}
		if n := v.Counts(Wrong); n != uint64(cap(ended)) {
			t.Errorf("%d counted as wrong", n)
		}
	})
}

// Who verifies when the passwords are replaced asks again as well, and what comes of
// that is for all: a password that both files have is verified once.
func TestReplacedBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := passwordLine(t, "*", "a", "p", 0)
		v := NewVerifier(VerifierConfig{AtOnce: 1}, passwordFile(t, line))
		v.slots <- struct{}{} // nobody has a turn
		ended := verifyAtOnce(v, "p", 8)
		synctest.Wait()
		v.SetPasswords(passwordFile(t, line))
		<-v.slots
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if v.Counts(Verified) != 1 || v.Counts(Remembered) != 7 {
			t.Errorf("%d verified, %d remembered", v.Counts(Verified), v.Counts(Remembered))
		}
	})
}

// verifyAtOnce starts so many verifications of one password; each tells its error.
func verifyAtOnce(v *Verifier, password string, n int) <-chan error {
	ended := make(chan error, n)
	for range n {
		go func() {
			_, err := v.Verify("m", "a", password)
			ended <- err
		}()
	}
	return ended
}

// However many bring one password at once, it is verified once; who comes beyond
// those that may wait is sent away.
func TestVerifierBoundsWork(t *testing.T) {
	line, err := PasswordLine("*", "a", "p", ChosenIterations, 0)
	if err != nil {
		t.Fatal(err)
	}
	v := NewVerifier(VerifierConfig{AtOnce: 1, MaxChecking: 4}, passwordFile(t, line))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := v.Verify("m", "a", "p"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if v.Counts(Verified) != 1 || v.Counts(Remembered) != 49 {
		t.Errorf("%d verified, %d remembered", v.Counts(Verified), v.Counts(Remembered))
	}
	v.slots <- struct{}{} // nobody has a turn
	ended := make(chan error, 4)
	for i := range 4 {
		go func() {
			_, err := v.Verify("m", "a", strings.Repeat("x", i+1))
			ended <- err
		}()
	}
	for v.checking.Load() < 4 || !v.Busy() {
		runtime.Gosched()
	}
	if _, err := v.Verify("m", "a", "other"); incumbent.KindOf(err) != incumbent.Overloaded || v.Counts(Shed) != 1 {
		t.Errorf("beyond the bound: %v", err)
	}
	<-v.slots
	for range 4 {
		if err := <-ended; incumbent.KindOf(err) != incumbent.Denied {
			t.Error(err)
		}
	}
	if v.Busy() {
		t.Error("the places were not given back")
	}
}

func TestEverybodysPassword(t *testing.T) {
	v := NewVerifier(VerifierConfig{Everybody: "pw"}, nil)
	if g, err := v.Verify("m", "unit-x-0", "pw"); err != nil || !g.Has(ClaimAny) || !g.Has(Controller) {
		t.Errorf("%v, %v", g, err)
	}
	if _, err := v.Verify("m", "unit-x-0", "pwx"); incumbent.KindOf(err) != incumbent.Denied {
		t.Error(err)
	}
	if _, err := NewVerifier(VerifierConfig{}, nil).Verify("m", "unit-x-0", ""); incumbent.KindOf(err) != incumbent.Denied {
		t.Error(err)
	}
}

func TestParsePasswordsSaysWhatIsWrong(t *testing.T) {
	good := passwordLine(t, "*", "a", "p", ClaimAny)
	secret := strings.Fields(good)[2]
	for name, file := range map[string]string{
		"two words": "* a", "unknown grant": "* a " + secret + " root", "too many words": good + " controller x",
		"scheme": "* a sha256:1:2:3", "iterations": "* a " + strings.Replace(secret, ":1:", ":0:", 1), "short hash": "* a " + secret[:len(secret)-2],
		"not hexadecimal": "* a " + secret[:len(secret)-1] + "x", "tag": "* \x01 " + secret, "parts": "* a " + secret + ":1",
		"scope": strings.Repeat("m", 200) + " a " + secret,
	} {
		_, err := ParsePasswords(strings.NewReader("\n"+file), nil)
		if incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if parts := strings.Split(secret, ":"); strings.Contains(err.Error(), parts[3]) {
			t.Errorf("%s: the error shows the hash", name)
		}
	}
	if _, err := ParsePasswords(strings.NewReader(strings.Repeat(good+"\n", MaxHashesPerTag+1)), nil); incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("too many for one tag: %v", err)
	}
	if n := passwordFile(t, good, good).Len(); n != 2 {
		t.Errorf("%d passwords", n)
	}
	if _, err := PasswordLine("*", "a b", "p", 1, 0); incumbent.KindOf(err) != incumbent.Invalid {
		t.Error(err)
	}
	for _, p := range []string{"", strings.Repeat("x", MaxPasswordBytes+1)} {
		if _, err := PasswordLine("*", "a", p, 1, 0); incumbent.KindOf(err) != incumbent.Invalid {
			t.Error(err)
		}
	}
}

// TestUnknownTagsCostWhatOthersDo: a tag that has no password is checked against a
// hash all the same.
func TestUnknownTagsCostWhatOthersDo(t *testing.T) {
	line := func(tag string, iterations int) string {
		return strings.Replace(passwordLine(t, "*", tag, "secret", 0), ":1:", ":"+strconv.Itoa(iterations)+":", 1)
	}
	for want, p := range map[int]*Passwords{
		ChosenIterations: nil,
		7:                passwordFile(t, line("a", 7), line("b", 7)),
		3:                passwordFile(t, line("a", 9), line("b", 3), line("c", 5)),
	} {
		if got := p.nobody().iterations; got != want {
			t.Errorf("%d iterations, want %d", got, want)
		}
	}
	if got := passwordFile(t).nobody().iterations; got != ChosenIterations {
		t.Errorf("of an empty file: %d iterations", got)
	}
}

func FuzzParsePasswords(f *testing.F) {
	f.Add("* unit-app-0 pbkdf2-sha256:1:00112233445566778899aabbccddeeff:" + strings.Repeat("ab", 32) + " claim-any")
	f.Fuzz(func(t *testing.T, in string) {
		p, err := ParsePasswords(strings.NewReader(in), nil)
		if (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
	})
}

// One verification of a password that a person chose.
func BenchmarkPassword(b *testing.B) {
	p := &secret{iterations: ChosenIterations}
	for b.Loop() {
		p.matches("a password")
	}
}
