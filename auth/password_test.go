package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
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
			p, err := v.Verify(t.Context(), tt.scope, tt.tag, tt.password, here)
			if p.Grants != tt.grants || incumbent.KindOf(err) != tt.kind {
				t.Errorf("%s %s %.10s: %v, %v", tt.scope, tt.tag, tt.password, p, err)
			}
		}
	}
	pass := func(scope, tag, password string) Pass {
		t.Helper()
		p, err := v.Verify(t.Context(), scope, tag, password, here)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, all := pass("m1", "unit-app-0", "one"), pass("m9", "machine-0", "all")
	if !v.Knows("m1", "unit-app-0", one) || v.Knows("m2", "unit-app-0", one) || v.Knows("m1", "machine-0", one) || !v.Knows("m9", "machine-0", all) {
		t.Error("who is known is not, or the other way round")
	}
	all.Grants |= ClaimAny
	if v.Knows("m9", "machine-0", all) || v.Knows("m9", "machine-0", Pass{}) {
		t.Error("who was granted less, or proved nothing, is known")
	}
}

// here is where most tests guess from.
var here = netip.MustParseAddr("192.0.2.1")

func TestVerifierRemembers(t *testing.T) {
	now := time.Unix(1, 0)
	line := passwordLine(t, "*", "a", "p", 0)
	v := NewVerifier(VerifierConfig{RememberFor: time.Minute, Now: func() time.Time { return now }}, passwordFile(t, line))
	verify := func(password string, want incumbent.Kind) {
		t.Helper()
		if _, err := v.Verify(t.Context(), "m", "a", password, here); incumbent.KindOf(err) != want {
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
		e, f, mine := v.enter("m", "a", "old")
		if f.how = v.check(t.Context(), f, "m", "a", "old", here); !mine || f.how != Verified {
			t.Fatalf("mine: %v, %v, %v: it is right by the old file", mine, f.how, f.err)
		}
		ended := verifyAtOnce(t, v, "old", 4)
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("not all wait for the verification that is under way")
		}
		v.SetPasswords(passwordFile(t, passwordLine(t, "*", "a", "new", 0)))
		v.leave(e.name, f)
		for range cap(ended) {
			if err := <-ended; incumbent.KindOf(err) != incumbent.Denied {
				t.Errorf("the old password: %v", err)
			}
		}
		if _, err := v.Verify(t.Context(), "m", "a", "new", here); err != nil {
			t.Error(err)
		}
		if n := v.Counts(Wrong); n != uint64(cap(ended)) {
			t.Errorf("%d counted as wrong", n)
		}
	})
}

// Who was wrong by the old file asks again, and what comes of that is for all: it is
// verified once.
func TestReplacedBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(VerifierConfig{AtOnce: 1}, passwordFile(t, passwordLine(t, "*", "a", "old", 0)))
		v.turns.take(t.Context(), here) // nobody has a turn
		ended := verifyAtOnce(t, v, "new", 8)
		synctest.Wait()
		v.SetPasswords(passwordFile(t, passwordLine(t, "*", "a", "new", 0)))
		v.turns.give()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if v.Counts(Verified)+v.Counts(Remembered) != 8 || v.Counts(Verified) != 1 {
			t.Errorf("%d verified, %d remembered", v.Counts(Verified), v.Counts(Remembered))
		}
	})
}

// verifyAtOnce starts so many verifications of one password; each tells its error.
func verifyAtOnce(t *testing.T, v *Verifier, password string, n int) <-chan error {
	t.Helper()
	ended := make(chan error, n)
	for range n {
		go func() {
			_, err := v.Verify(t.Context(), "m", "a", password, here)
			ended <- err
		}()
	}
	return ended
}

// However many bring one password at once, it is verified once; who comes beyond
// those that may wait is sent away.
func TestG39_VerifierBoundsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(VerifierConfig{AtOnce: 1}, passwordFile(t, passwordLine(t, "*", "a", "p", 0)))
		v.turns.take(t.Context(), here) // nobody has a turn
		ended := verifyAtOnce(t, v, "p", 50)
		synctest.Wait()
		if n := len(v.turns.lines[here]); n != 1 {
			t.Errorf("%d verifications of one password", n)
		}
		v.turns.give()
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if v.Counts(Verified) != 1 || v.Counts(Remembered) != 49 {
			t.Errorf("%d verified, %d remembered", v.Counts(Verified), v.Counts(Remembered))
		}
		v = NewVerifier(VerifierConfig{AtOnce: 1, MaxChecking: 4}, v.passwords.Load())
		v.turns.take(t.Context(), here)
		wrong := make(chan error, 4)
		for i := range 4 {
			go func() {
				_, err := v.Verify(t.Context(), "m", "a", strings.Repeat("x", i+1), netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
				wrong <- err
			}()
		}
		synctest.Wait()
		if !v.Busy(here) || v.Busy(elsewhere) {
			t.Error("it is not busy for who comes from where others wait, or it is for who does not")
		}
		if _, err := v.Verify(t.Context(), "m", "a", "other", here); incumbent.KindOf(err) != incumbent.Overloaded || v.Counts(Shed) != 1 {
			t.Errorf("beyond the bound: %v", err)
		}
		v.turns.give()
		for range 4 {
			if err := <-wrong; incumbent.KindOf(err) != incumbent.Denied {
				t.Error(err)
			}
		}
		if v.Busy(here) {
			t.Error("the places were not given back")
		}
	})
}

// Whose time is over before its turn leaves the line and is not verified; the turn is for
// those who are still there, who bring the same password or another.
func TestG41_WhoIsGoneIsNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(VerifierConfig{AtOnce: 1}, passwordFile(t, passwordLine(t, "*", "a", "p", 0)))
		v.turns.take(t.Context(), elsewhere) // nobody has a turn
		verify := func(password string, from netip.Addr, within time.Duration) <-chan error {
			ended := make(chan error, 1)
			go func() {
				ctx, done := context.WithTimeout(t.Context(), within)
				defer done()
				_, err := v.Verify(ctx, "m", "a", password, from)
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		late := []<-chan error{
			verify("x", here, time.Second), verify("p", here, time.Second), verify("p", here, 2*time.Second), verify("y", elsewhere, time.Second),
		}
		patient := verify("p", here, time.Minute)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for i, ended := range late {
			if len(ended) == 0 {
				t.Errorf("%d still waits", i)
			} else if err := <-ended; incumbent.KindOf(err) != incumbent.Overloaded {
				t.Errorf("%d: %v", i, err)
			}
		}
		if len(patient) != 0 || v.checking.n != 1 || len(v.turns.lines) != 1 || len(v.turns.lines[here]) != 1 || len(v.turns.order) != 1 {
			t.Errorf("%d wait, in the lines %v, %v; want one", v.checking.n, v.turns.lines, v.turns.order)
		}
		v.turns.give()
		if err := <-patient; err != nil {
			t.Error(err)
		}
		if v.Counts(Verified) != 1 || v.Counts(Wrong) != 0 || v.Counts(Shed) != 4 {
			t.Errorf("%d verified, %d wrong, %d shed", v.Counts(Verified), v.Counts(Wrong), v.Counts(Shed))
		}
		if len(verify("z", here, 0)) == 0 || v.Counts(Wrong) != 0 {
			t.Error("who had no time was verified, or waits")
		}
		if v.turns.free != 1 || v.checking.n != 0 || len(v.checking.of) != 0 {
			t.Errorf("%d turns are free, %d verify, from %v", v.turns.free, v.checking.n, v.checking.of)
		}
	})
}

// By default no more wait than have their turn within the time of a login.
func TestG41_AsManyWaitAsAreVerifiedInTime(t *testing.T) {
	for atOnce, want := range map[int]int{1: 100, 2: 200, 3: DefaultMaxChecking, 64: DefaultMaxChecking} {
		if got := NewVerifier(VerifierConfig{AtOnce: atOnce}, nil).checking.most; got != want {
			t.Errorf("%d at once: %d wait at most, want %d", atOnce, got, want)
		}
	}
}

// From one address no more than half of those wait that may in all.
func TestG39_OneAddressDoesNotTakeAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVerifier(VerifierConfig{AtOnce: 1, MaxChecking: 8}, passwordFile(t, passwordLine(t, "*", "a", "p", 0)))
		v.turns.take(t.Context(), here)
		ended := make(chan error, 9)
		for i := range 7 {
			go func() {
				_, err := v.Verify(t.Context(), "m", "a", strings.Repeat("x", i+1), here)
				ended <- err
			}()
		}
		synctest.Wait()
		if n := v.Counts(Shed); n != 3 {
			t.Errorf("%d were sent away, want 3 of 7", n)
		}
		go func() {
			_, err := v.Verify(t.Context(), "m", "a", "p", elsewhere)
			ended <- err
		}()
		synctest.Wait()
		v.turns.give()
		v.turns.take(t.Context(), netip.Addr{}) // behind one of each address
		v.turns.give()
		synctest.Wait()
		if v.Counts(Verified) != 1 {
			t.Error("who comes from another address was not let in")
		}
	})
}

var elsewhere = netip.MustParseAddr("198.51.100.7")

// Who guesses waits; the owner of the tag, who is elsewhere, does not, nor does who
// has been let in from there a moment ago, nor who has a password that cannot be
// guessed.
func TestG12_GuessingDoesNotLockTheOwnerOut(t *testing.T) {
	now := time.Unix(1000, 0)
	random, err := PasswordLine("*", "fleet", "a random one", RandomIterations, 0)
	if err != nil {
		t.Fatal(err)
	}
	v := NewVerifier(VerifierConfig{Now: func() time.Time { return now }}, passwordFile(t,
		passwordLine(t, "*", "a", "right", 0), passwordLine(t, "*", "b", "right", 0), random))
	verify := func(tag, password string, from netip.Addr, want Verdict) {
		t.Helper()
		before := v.Counts(want)
		_, err := v.Verify(t.Context(), "m", tag, password, from)
		if v.Counts(want) != before+1 || (err == nil) != (want == Verified || want == Remembered) {
			t.Errorf("%s %s from %v: %v, want %v", tag, password, from, err, want)
		}
	}
	guess := 0
	wrong := func(tag string, from netip.Addr, want Verdict) {
		t.Helper()
		guess++
		verify(tag, strconv.Itoa(guess), from, want)
	}
	verify("b", "right", here, Verified)
	for range guessesAtOnce {
		wrong("a", here, Wrong)
	}
	wrong("a", here, Limited)
	verify("a", "right", here, Limited)       // or guessing would be free
	verify("a", "right", elsewhere, Verified) // the owner
	wrong("b", here, Wrong)                   // another tag
	verify("b", "right", here, Remembered)
	now = now.Add(guessEvery - time.Second)
	wrong("a", here, Limited)
	now = now.Add(time.Second)
	wrong("a", here, Wrong)
	wrong("a", here, Limited)

	// Tags that are guessed, one after the other.
	spray := netip.MustParseAddr("203.0.113.9")
	for i := range guessesFromOne {
		v.guesses.failed(spray, "m", "tag-"+strconv.Itoa(i))
	}
	wrong("b", spray, Limited)
	verify("fleet", "a random one", spray, Verified)
	wrong("fleet", spray, Wrong) // costs nothing, and is no guess
	verify("b", "right", elsewhere, Remembered)
	var e *incumbent.Error
	if _, err := v.Verify(t.Context(), "m", "b", "x", spray); !errors.As(err, &e) || e.Kind != incumbent.Overloaded || e.RetryAfter != guessFromEvery {
		t.Errorf("how long to wait is not said: %v", err)
	}
	v.SetPasswords(v.passwords.Load())
	wrong("b", spray, Wrong) // other passwords, other guesses
}

// How much may be guessed is what is said at the moment.
func TestG12_GuessesAreLimitedAsSaid(t *testing.T) {
	now, limits := time.Unix(1000, 0), GuessLimits{Tag: 1, TagEvery: time.Second, Address: 3, AddressEvery: time.Minute}
	g := newGuesses(func() time.Time { return now }, func() GuessLimits { return limits })
	for i, want := range []time.Duration{0, time.Second} {
		if got := g.wait(here, "m", "a"); got != want {
			t.Errorf("after %d guesses: wait %v, want %v", i, got, want)
		}
		g.failed(here, "m", "a")
	}
	g.failed(here, "m", "b")
	if got := g.wait(here, "m", "c"); got != time.Minute {
		t.Errorf("of an address: wait %v", got)
	}
	limits.Address = 10
	if got := g.wait(here, "m", "c"); got != 0 {
		t.Errorf("once more may be guessed: wait %v", got)
	}
}

// A network of IPv6 is one guesser, and so is an address in both its forms.
func TestGuessers(t *testing.T) {
	for _, same := range [][2]string{{"2001:db8::1", "2001:db8::2"}, {"::ffff:192.0.2.1", "192.0.2.1"}, {"fe80::1%eth0", "fe80::1"}} {
		if a, b := guesserOf(netip.MustParseAddr(same[0])), guesserOf(netip.MustParseAddr(same[1])); a != b {
			t.Errorf("%v and %v are two", a, b)
		}
	}
	if guesserOf(netip.MustParseAddr("2001:db8:1::1")) == guesserOf(netip.MustParseAddr("2001:db8:2::1")) || guesserOf(here) == guesserOf(elsewhere) {
		t.Error("two are one")
	}
}

// However many guess, what is kept of them is bounded, and the newest are known.
func TestG39_GuessersAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	g := newGuesses(func() time.Time { return now }, func() GuessLimits { return DefaultGuessLimits })
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range 2 * maxGuessers {
		for range guessesAtOnce {
			g.failed(address(i), "m", "a")
		}
	}
	if n := len(g.young) + len(g.old); n > 2*maxGuessers {
		t.Errorf("%d guessers are kept", n)
	}
	if g.wait(address(2*maxGuessers-1), "m", "a") == 0 || g.wait(address(0), "m", "a") != 0 {
		t.Error("the newest are not known, or the oldest are")
	}
}

// Addresses take turns, each its own in order.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		turns.take(t.Context(), here)
		got := make(chan string, 10)
		for i, from := range []netip.Addr{here, here, here, elsewhere, elsewhere} {
			go func() {
				turns.take(t.Context(), from)
				got <- fmt.Sprint(from, i)
			}()
			synctest.Wait()
		}
		var order []string
		for range 5 {
			turns.give()
			order = append(order, <-got)
		}
		if want := "[192.0.2.1 0 198.51.100.7 3 192.0.2.1 1 198.51.100.7 4 192.0.2.1 2]"; fmt.Sprint(order) != want {
			t.Errorf("the order is %v", order)
		}
		turns.give()
		if len(turns.lines) != 0 || turns.free != 1 {
			t.Errorf("%d lines are left, %d are free", len(turns.lines), turns.free)
		}
	})
}

// What the book keeps lets in like a line of the file, until it is taken back or ends.
func TestG12_PasswordsOfTheBook(t *testing.T) {
	now := time.UnixMilli(1000)
	kept := func(password string, iterations int, ends int64) KeptPassword {
		t.Helper()
		s, err := SecretOf(password, iterations)
		if err != nil || ValidateSecret(s) != nil {
			t.Fatal(s, err)
		}
		return KeptPassword{s, ClaimAny, ends}
	}
	books, horizon := &ledger{passwords: map[string][]KeptPassword{
		"* a": {kept("random", 0, 2000), kept("chosen", 2, 0)}, "m a": {kept("own", 0, 0)},
	}}, NewHorizon()
	v := NewVerifier(VerifierConfig{Book: books, Horizon: horizon, Now: func() time.Time { return now }}, passwordFile(t, passwordLine(t, "*", "a", "filed", 0)))
	passes := map[string]Pass{}
	for _, password := range []string{"random", "chosen", "own", "filed"} {
		p, err := v.Verify(t.Context(), "m", "a", password, here)
		if err != nil || !v.Knows("m", "a", p) {
			t.Fatal(password, err)
		}
		passes[password] = p
	}
	if horizon.Next().UnixMilli() != 2000 || passes["chosen"].Grants != ClaimAny || passes["filed"].Grants != 0 {
		t.Errorf("the horizon is %v, grants %v", horizon.Next(), passes)
	}
	if _, err := v.Verify(t.Context(), "m2", "a", "own", here); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("in another model: %v", err)
	}
	now = time.UnixMilli(2000)
	books.passwords["* a"] = books.passwords["* a"][:1]
	for password, want := range map[string]bool{"random": false, "chosen": false, "own": true, "filed": true} {
		if _, err := v.Verify(t.Context(), "m", "a", password, here); (err == nil) != want || v.Knows("m", "a", passes[password]) != want {
			t.Errorf("%s: %v, want %v", password, err, want)
		}
	}
}

func TestEverybodysPassword(t *testing.T) {
	v := NewVerifier(VerifierConfig{Everybody: "pw"}, nil)
	if p, err := v.Verify(t.Context(), "m", "unit-x-0", "pw", here); err != nil || !p.Grants.Has(ClaimAny) || !p.Grants.Has(Controller) || !v.Knows("m", "unit-x-0", p) {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := v.Verify(t.Context(), "m", "unit-x-0", "pwx", here); incumbent.KindOf(err) != incumbent.Denied {
		t.Error(err)
	}
	if _, err := NewVerifier(VerifierConfig{}, nil).Verify(t.Context(), "m", "unit-x-0", "", here); incumbent.KindOf(err) != incumbent.Denied {
		t.Error(err)
	}
}

func TestParsePasswordsSaysWhatIsWrong(t *testing.T) {
	good := passwordLine(t, "*", "a", "p", ClaimAny)
	secret := strings.Fields(good)[2]
	for name, file := range map[string]string{
		"two words": "* a", "unknown grant": "* a " + secret + " root", "too many words": good + " controller x",
		"scheme": "* a sha512:1:2:3", "short sha256": "* a sha256:1234", "iterations": "* a " + strings.Replace(secret, ":1:", ":0:", 1), "short hash": "* a " + secret[:len(secret)-2],
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
		0: nil,
		7: passwordFile(t, line("a", 7), line("b", 7)),
		3: passwordFile(t, line("a", 9), line("b", 3), line("c", 5)),
	} {
		if got := p.nobody().iterations; got != want {
			t.Errorf("%d iterations, want %d", got, want)
		}
	}
	if got := passwordFile(t, line("a", 7), passwordLine(t, "*", "b", "x", 0)).nobody().iterations; got != 1 {
		t.Errorf("of a mixed file: %d iterations", got)
	}
}

func FuzzParsePasswords(f *testing.F) {
	f.Add("* unit-app-0 sha256:" + strings.Repeat("ab", 32))
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
