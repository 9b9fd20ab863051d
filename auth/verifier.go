package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Limits of a [Verifier].
const (
	DefaultMaxChecking   = 256             // verifications that wait for their turn or have it, where so many have it in time
	checkingPerTurn      = 100             // else so many for each of VerifierConfig.AtOnce: of 0.1 s each they take the 10 s of a login
	DefaultRememberFor   = 5 * time.Minute // a password that was right
	maxRemembered        = 200_000         // each some 100 B
	rememberedCheckEvery = time.Minute     // how often the oldest are looked for
)

// VerifierConfig is how passwords are checked. Zero fields mean the defaults.
type VerifierConfig struct {
	// AtOnce is how many verifications run at once; 0: half the processors, so
	// that a storm of logins leaves the rest to those who are in.
	AtOnce int
	// MaxChecking bounds those that run and those that wait for that, for their turn or for
	// another one's verification of the same password; of one address there are half as many.
	// 0: 100 for each of AtOnce, and DefaultMaxChecking at most.
	MaxChecking int
	// RememberFor is how long a password that was right is not checked again.
	RememberFor time.Duration
	// Everybody is a password that lets any tag in and grants everything; "":
	// none. It is for trying, on loopback only.
	Everybody string
	// Book is what the cluster itself knows, beside the file; nil: nothing.
	Book Book
	// Horizon is told of what ends; nil: nobody is.
	Horizon *Horizon
	// Guesses says how much may be guessed at the moment; nil: DefaultGuessLimits.
	Guesses func() GuessLimits
	Now     func() time.Time // a wall clock
}

// Verifier checks passwords. One that was made at random is checked at once. A check
// of a chosen one is expensive on purpose; so few run at once, few wait, addresses
// take turns, who guesses waits, one password that very many bring at once is checked
// once, and one that was right is remembered for a while. What is remembered is a
// keyed hash, whose key dies with the process.
type Verifier struct {
	cfg       VerifierConfig
	passwords atomic.Pointer[Passwords]
	turns     *turns
	guesses   *guesses
	checking  *crowd
	counts    [numVerdicts]atomic.Uint64

	mu         sync.Mutex // guards the rest; held to look up
	key        [sha256.Size]byte
	remembered map[verified]remembrance
	flights    map[verified]*flight
	lookedAt   time.Time
}

// verified names a scope, tag and password.
type verified [sha256.Size]byte

type remembrance struct {
	until time.Time
	pass  Pass
}

// Pass is what a password has proved.
type Pass struct {
	Grants Grant
	Proof  Proof
}

// flight is a verification under way that others wait for.
type flight struct {
	done chan struct{}
	of   *Passwords // that were looked at, beside the book
	pass Pass
	how  Verdict
	err  error
}

// Verdict is how a verification ended, in a closed set; [Verifier.Counts].
type Verdict uint8

// The verdicts.
const (
	Verified   Verdict = iota // the hash was computed and is right
	Remembered                // it was right a moment ago, or for another one at this moment
	Wrong                     // unknown tag, or another password
	Limited                   // not looked at: too many were wrong, of this tag or from this address
	Shed                      // too many are being verified: there was no room to wait, or no time
	numVerdicts
)

var verdictNames = [numVerdicts]string{"verified", "remembered", "wrong", "limited", "shed"}

// String returns the verdict's name, as used in metrics.
func (v Verdict) String() string {
	if v < numVerdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// Verdicts returns all verdicts.
func Verdicts() []Verdict { return []Verdict{Verified, Remembered, Wrong, Limited, Shed} }

// NewVerifier returns a verifier of these passwords, which may be nil.
func NewVerifier(cfg VerifierConfig, p *Passwords) *Verifier {
	if cfg.AtOnce == 0 {
		cfg.AtOnce = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if cfg.MaxChecking == 0 {
		cfg.MaxChecking = min(checkingPerTurn*cfg.AtOnce, DefaultMaxChecking)
	}
	if cfg.RememberFor == 0 {
		cfg.RememberFor = DefaultRememberFor
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Book == nil {
		cfg.Book = noBook{}
	}
	if cfg.Horizon == nil {
		cfg.Horizon = NewHorizon()
	}
	if cfg.Guesses == nil {
		cfg.Guesses = func() GuessLimits { return DefaultGuessLimits }
	}
	v := &Verifier{cfg: cfg, turns: newTurns(cfg.AtOnce), checking: newCrowd(cfg.MaxChecking), guesses: newGuesses(cfg.Now, cfg.Guesses), remembered: map[verified]remembrance{}, flights: map[verified]*flight{}}
	rand.Read(v.key[:])
	v.passwords.Store(p)
	return v
}

// SetPasswords replaces the passwords of the file, for verifications from now on.
// Wrong guesses are forgotten: they were of others.
func (v *Verifier) SetPasswords(p *Passwords) {
	v.passwords.Store(p)
	v.guesses.forget()
}

// Knows reports whether what a password has proved still holds: it is for
// connections that were let in earlier. What has an end counts for the horizon again.
func (v *Verifier) Knows(scope, tag string, pass Pass) bool {
	if v.cfg.Everybody != "" {
		return true
	}
	known := !pass.Proof.over(v.cfg.Now()) && slices.ContainsFunc(v.candidates(scope, tag), func(s secret) bool {
		return s.pass() == pass
	})
	if known {
		v.cfg.Horizon.note(pass.Proof.Ends)
	}
	return known
}

// candidates are the secrets that a password for the tag may match, of the file and
// of the book, without those whose end has passed.
func (v *Verifier) candidates(scope, tag string) []secret {
	list := slices.Clip(v.passwords.Load().candidates(scope, tag))
	for _, s := range slices.Compact([]string{scope, anyScope}) {
		for _, k := range v.cfg.Book.Passwords(s, tag) {
			x, err := parseSecret(k.Secret)
			if x.grants, x.ends = k.Grants, k.Ends; err == nil && !x.pass().Proof.over(v.cfg.Now()) {
				list = append(list, x)
			}
		}
	}
	return list
}

// Counts returns how many verifications ended so.
func (v *Verifier) Counts(how Verdict) uint64 { return v.counts[how].Load() }

// Busy reports whether half of the verifications that may wait do, some of them from an
// address: a door that can send those who come from there away in a gentler way than by an
// answer to their login does so now. Who comes from elsewhere may bring a password that is
// checked at once.
func (v *Verifier) Busy(from netip.Addr) bool { return v.checking.busy(guesserOf(from)) }

// Verify returns what the tag is granted in a scope (the UUID of a model) if the
// password, which came from an address, is one of its own. The error is Denied, the
// same for a tag that is not known; or Overloaded, where too many are being verified,
// ctx ended before its turn, or too many were wrong that came from there: then this one
// was not looked at.
//
// It takes as long as the hash, and as others that came before, but hardly longer than
// ctx: who asks is gone then, and a place in the line is another's. A tag that is not
// known takes as long as the cheapest hash of the file: time does not tell it from
// others where all hashes have as many iterations.
func (v *Verifier) Verify(ctx context.Context, scope, tag, password string, from netip.Addr) (Pass, error) {
	if len(password) > MaxPasswordBytes {
		return Pass{}, v.end(Wrong, errPassword())
	}
	if v.cfg.Everybody != "" && equal(password, v.cfg.Everybody) {
		return Pass{Grants: ClaimAny | Controller}, v.end(Verified, nil)
	}
	list := v.candidates(scope, tag)
	for i := range list {
		if list[i].iterations == 0 && list[i].matches(password) {
			v.cfg.Horizon.note(list[i].ends)
			return list[i].pass(), v.end(Verified, nil)
		}
	}
	pass, how, err := v.checked(ctx, scope, tag, password, from)
	return pass, v.end(how, err)
}

// checked verifies a password that is not cheap to check, or finds it remembered.
func (v *Verifier) checked(ctx context.Context, scope, tag, password string, from netip.Addr) (Pass, Verdict, error) {
	for {
		e, f, mine := v.enter(scope, tag, password)
		if f == nil {
			if v.Knows(scope, tag, e.pass) {
				return e.pass, Remembered, nil
			}
			v.drop(e.name)
			continue
		}
		if mine {
			f.how = v.check(ctx, f, scope, tag, password, from)
			v.leave(e.name, f)
		} else if !v.follow(ctx, f, from) {
			return Pass{}, Shed, errShed()
		}
		switch {
		case !mine && (f.how == Shed || f.how == Limited):
			continue // who came first was not looked at, for the sake of where it came from, or when
		case f.how == Wrong && f.of != v.passwords.Load(), f.err == nil && !v.Knows(scope, tag, f.pass):
			continue // by others than those of now; as often as the file is read again meanwhile
		case f.how == Verified && !mine:
			return f.pass, Remembered, nil
		}
		return f.pass, f.how, f.err
	}
}

func (v *Verifier) end(how Verdict, err error) error {
	v.counts[how].Add(1)
	return err
}

// entrance is what was found of who wants in.
type entrance struct {
	name verified
	pass Pass
}

// enter looks the password up: remembered (no flight), being verified, or mine
// to verify.
func (v *Verifier) enter(scope, tag, password string) (e entrance, f *flight, mine bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	mac := hmac.New(sha256.New, v.key[:])
	for _, text := range []string{scope, tag} { // neither has a zero byte, so that no two are alike
		mac.Write([]byte(text))
		mac.Write([]byte{0})
	}
	mac.Write([]byte(password))
	mac.Sum(e.name[:0])
	now := v.cfg.Now()
	v.forget(now)
	if r, ok := v.remembered[e.name]; ok && now.Before(r.until) {
		e.pass = r.pass
		return e, nil, false
	}
	if f := v.flights[e.name]; f != nil {
		return e, f, false
	}
	f = &flight{done: make(chan struct{})}
	v.flights[e.name] = f
	return e, f, true
}

// drop forgets what was remembered and holds no more.
func (v *Verifier) drop(name verified) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.remembered, name)
}

// forget drops what is old, and everything if there is too much.
func (v *Verifier) forget(now time.Time) {
	if len(v.remembered) >= maxRemembered {
		clear(v.remembered)
	}
	if now.Sub(v.lookedAt) < rememberedCheckEvery {
		return
	}
	v.lookedAt = now
	for name, r := range v.remembered {
		if !now.Before(r.until) {
			delete(v.remembered, name)
		}
	}
}

// follow waits for what comes of another one's verification of the same password; false:
// there is no room or no time for that.
func (v *Verifier) follow(ctx context.Context, f *flight, from netip.Addr) bool {
	from = guesserOf(from)
	if !v.checking.join(from) {
		return false
	}
	defer v.checking.part(from)
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// check verifies, when its turn comes.
func (v *Verifier) check(ctx context.Context, f *flight, scope, tag, password string, from netip.Addr) Verdict {
	f.of = v.passwords.Load()
	list := slices.Clone(v.candidates(scope, tag))
	if len(list) == 0 {
		list = append(list, *f.of.nobody())
	}
	list = slices.DeleteFunc(list, func(s secret) bool { return s.iterations == 0 }) // Verify has looked at those
	if len(list) == 0 {
		f.err = errPassword()
		return Wrong
	}
	if v.limited(f, scope, tag, from) {
		return Limited
	}
	guesser := guesserOf(from)
	if !v.checking.join(guesser) {
		return f.shed()
	}
	defer v.checking.part(guesser)
	if !v.turns.take(ctx, guesser) {
		return f.shed()
	}
	defer v.turns.give()
	if v.limited(f, scope, tag, from) { // by those that were before it
		return Limited
	}
	for i := range list {
		if list[i].matches(password) {
			f.pass = list[i].pass()
			return Verified
		}
	}
	v.guesses.failed(from, scope, tag)
	f.err = errPassword()
	return Wrong
}

func (f *flight) shed() Verdict {
	f.err = errShed()
	return Shed
}

func errShed() error {
	return &incumbent.Error{Kind: incumbent.Overloaded, Message: "too many passwords are being verified", RetryAfter: time.Second}
}

// limited refuses who has guessed too often.
func (v *Verifier) limited(f *flight, scope, tag string, from netip.Addr) bool {
	wait := v.guesses.wait(from, scope, tag)
	if wait == 0 {
		return false
	}
	f.err = &incumbent.Error{Kind: incumbent.Overloaded, Message: "too many wrong passwords came from this address", RetryAfter: wait}
	return true
}

// leave tells those who wait, and remembers what was right.
func (v *Verifier) leave(name verified, f *flight) {
	v.mu.Lock()
	delete(v.flights, name)
	if f.err == nil {
		v.remembered[name] = remembrance{v.cfg.Now().Add(v.cfg.RememberFor), f.pass}
	}
	v.mu.Unlock()
	close(f.done)
}

// equal compares in a time that depends on neither.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func errPassword() error {
	return incumbent.Errorf(incumbent.Denied, "unknown tag or wrong password").
		WithHint("'incumbent credential ls', or the server's --juju-credential-file, must have it; see incumbent credential create")
}
