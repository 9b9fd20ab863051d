package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Limits of a [Verifier].
const (
	DefaultMaxChecking   = 1024            // verifications that wait for their turn or have it
	DefaultRememberFor   = 5 * time.Minute // a password that was right
	maxRemembered        = 200_000         // each some 100 B
	rememberedCheckEvery = time.Minute     // how often the oldest are looked for
)

// VerifierConfig is how passwords are checked. Zero fields mean the defaults.
type VerifierConfig struct {
	// AtOnce is how many verifications run at once; 0: half the processors, so
	// that a storm of logins leaves the rest to those who are in.
	AtOnce int
	// MaxChecking bounds those that run and those that wait for it.
	MaxChecking int
	// RememberFor is how long a password that was right is not checked again.
	RememberFor time.Duration
	// Everybody is a password that lets any tag in and grants everything; "":
	// none. It is for trying, on loopback only.
	Everybody string
	Now       func() time.Time
}

// Verifier checks passwords. A check is expensive on purpose; so few run at
// once, few wait, one password that very many bring at once is checked once, and
// one that was right is remembered for a while. What is remembered is a keyed
// hash, whose key dies with the process.
type Verifier struct {
	cfg       VerifierConfig
	passwords atomic.Pointer[Passwords]
	slots     chan struct{}
	checking  atomic.Int64
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
	until  time.Time
	grants Grant
}

// flight is a verification under way that others wait for.
type flight struct {
	done   chan struct{}
	grants Grant
	how    Verdict
	err    error
	stale  bool // the passwords were replaced meanwhile: nothing follows from it
}

// Verdict is how a verification ended, in a closed set; [Verifier.Counts].
type Verdict uint8

// The verdicts.
const (
	Verified   Verdict = iota // the hash was computed and is right
	Remembered                // it was right a moment ago, or for another one at this moment
	Wrong                     // unknown tag, or another password
	Shed                      // too many are being verified
	numVerdicts
)

var verdictNames = [numVerdicts]string{"verified", "remembered", "wrong", "shed"}

// String returns the verdict's name, as used in metrics.
func (v Verdict) String() string {
	if v < numVerdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// Verdicts returns all verdicts.
func Verdicts() []Verdict { return []Verdict{Verified, Remembered, Wrong, Shed} }

// NewVerifier returns a verifier of these passwords, which may be nil.
func NewVerifier(cfg VerifierConfig, p *Passwords) *Verifier {
	if cfg.AtOnce == 0 {
		cfg.AtOnce = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if cfg.MaxChecking == 0 {
		cfg.MaxChecking = DefaultMaxChecking
	}
	if cfg.RememberFor == 0 {
		cfg.RememberFor = DefaultRememberFor
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v := &Verifier{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce)}
	v.SetPasswords(p)
	return v
}

// SetPasswords replaces the passwords, for verifications from now on; what was
// remembered is forgotten.
func (v *Verifier) SetPasswords(p *Passwords) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rand.Read(v.key[:])
	v.passwords.Store(p)
	v.remembered = map[verified]remembrance{}
	v.flights = map[verified]*flight{}
}

// Knows reports whether a tag has a password by now, and one that gives it these
// grants: it is for connections that were let in earlier.
func (v *Verifier) Knows(scope, tag string, grants Grant) bool {
	return v.cfg.Everybody != "" || slices.ContainsFunc(v.passwords.Load().candidates(scope, tag), func(s secret) bool {
		return s.grants&grants == grants
	})
}

// Counts returns how many verifications ended so.
func (v *Verifier) Counts(how Verdict) uint64 { return v.counts[how].Load() }

// Busy reports whether half of the verifications that may wait do: a door that can
// send people away in a gentler way than by an answer to their login does so now.
func (v *Verifier) Busy() bool { return v.checking.Load() >= int64(v.cfg.MaxChecking+1)/2 }

// Verify returns what the tag is granted in a scope (the UUID of a model) if the
// password is one of its own. The error is Denied, the same for a tag that is
// not known, or Overloaded. It takes as long as the hash, and as others that came
// before. A tag that is not known takes as long as the cheapest hash of all: time
// does not tell it from others where all hashes have as many iterations.
func (v *Verifier) Verify(scope, tag, password string) (Grant, error) {
	if len(password) > MaxPasswordBytes {
		return 0, v.end(Wrong, errPassword())
	}
	if v.cfg.Everybody != "" && equal(password, v.cfg.Everybody) {
		return ClaimAny | Controller, v.end(Verified, nil)
	}
	for {
		id, f, mine := v.enter(scope, tag, password)
		if f == nil {
			return id.grants, v.end(Remembered, nil)
		}
		if mine {
			f.how = v.check(f, scope, tag, password)
			v.leave(id.name, f)
		} else {
			<-f.done
		}
		if f.stale {
			continue // as often as the file is read again meanwhile
		}
		how := f.how
		if how == Verified && !mine {
			how = Remembered
		}
		return f.grants, v.end(how, f.err)
	}
}

func (v *Verifier) end(how Verdict, err error) error {
	v.counts[how].Add(1)
	return err
}

// entrance is what was found of who wants in.
type entrance struct {
	name   verified
	grants Grant
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
		e.grants = r.grants
		return e, nil, false
	}
	if f := v.flights[e.name]; f != nil {
		return e, f, false
	}
	f = &flight{done: make(chan struct{})}
	v.flights[e.name] = f
	return e, f, true
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

// check verifies, when its turn comes.
func (v *Verifier) check(f *flight, scope, tag, password string) Verdict {
	if v.checking.Add(1) > int64(v.cfg.MaxChecking) {
		v.checking.Add(-1)
		f.err = &incumbent.Error{Kind: incumbent.Overloaded, Message: "too many passwords are being verified", RetryAfter: time.Second}
		return Shed
	}
	defer v.checking.Add(-1)
	v.slots <- struct{}{}
	defer func() { <-v.slots }()
	passwords := v.passwords.Load()
	list := passwords.candidates(scope, tag)
	for i := range list {
		if list[i].matches(password) {
			f.grants = list[i].grants
			return Verified
		}
	}
	if len(list) == 0 {
		passwords.nobody().matches(password)
	}
	f.err = errPassword()
	return Wrong
}

// leave tells those who wait, and remembers what was right. If the passwords were
// replaced meanwhile, all of them have to ask again: it may be one of the old.
func (v *Verifier) leave(name verified, f *flight) {
	v.mu.Lock()
	f.stale = v.flights[name] != f
	if !f.stale {
		delete(v.flights, name)
		if f.err == nil {
			v.remembered[name] = remembrance{v.cfg.Now().Add(v.cfg.RememberFor), f.grants}
		}
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
		WithHint("the server's --juju-credential-file must have it; see incumbent credential create")
}
