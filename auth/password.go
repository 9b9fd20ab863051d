package auth

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Limits of a file of passwords.
const (
	MaxPasswords     = 1_000_000
	MaxPasswordBytes = 1024 // of one password
	MaxHashesPerTag  = 4    // so that one can be replaced while the other works
	maxIterations    = 10_000_000
)

// Iterations of PBKDF2-HMAC-SHA-256. A password that a person chose can be
// guessed: checking it takes as long as OWASP recommends (2023), some 0.1 s. One that
// [NewPassword] made cannot, so that a slow hash would add nothing, and a fleet may
// log in at once: none means its SHA-256, as of a token.
const (
	ChosenIterations = 600_000
	RandomIterations = 0
)

const (
	passwordScheme = "pbkdf2-sha256"
	saltBytes      = 16
	hashBytes      = sha256.Size
	proofBytes     = 16
	anyScope       = "*"
)

// Grant is a right beyond acting as oneself.
type Grant uint8

// The grants.
const (
	ClaimAny   Grant = 1 << iota // claim for any unit of the model, and wait for any lease there
	Controller                   // claim the leases of controllers
)

var grantNames = map[Grant]string{ClaimAny: "claim-any", Controller: "controller"}

// GrantNames are the words for grants.
func GrantNames() []string { return []string{grantNames[ClaimAny], grantNames[Controller]} }

// ParseGrant reads the word for a grant.
func ParseGrant(s string) (Grant, error) {
	for g, name := range grantNames {
		if name == s {
			return g, nil
		}
	}
	return 0, incumbent.Errorf(incumbent.Invalid, "grant %q is none of %s", s, strings.Join(GrantNames(), ", "))
}

// Words are the words for what g grants.
func (g Grant) Words() (words []string) {
	for _, one := range []Grant{ClaimAny, Controller} {
		if g.Has(one) {
			words = append(words, grantNames[one])
		}
	}
	return words
}

// Has reports whether g contains o.
func (g Grant) Has(o Grant) bool { return g&o != 0 }

// NewPassword returns a random password of 192 bits.
func NewPassword() string {
	var b [24]byte
	rand.Read(b[:]) // never fails: crypto/rand stops the process instead
	return hex.EncodeToString(b[:])
}

// SecretOf returns what is kept of a password, by which it can be checked and not
// be read:
//
//	pbkdf2-sha256:ITERATIONS:SALT:HASH
//	sha256:HASH                          without iterations
//
// salt and hash are hexadecimal. The error is Invalid.
func SecretOf(password string, iterations int) (string, error) {
	if password == "" || len(password) > MaxPasswordBytes {
		return "", incumbent.Errorf(incumbent.Invalid, "a password has 1 to %d bytes, this one %d", MaxPasswordBytes, len(password))
	}
	p := secret{iterations: iterations}
	if iterations > 0 {
		rand.Read(p.salt[:])
	}
	p.hash = p.derive(password)
	word := p.word()
	if _, err := parseSecret(word); err != nil {
		return "", err
	}
	return word, nil
}

// ValidateSecret returns an Invalid error unless a text is what SecretOf makes.
func ValidateSecret(kept string) error {
	_, err := parseSecret(kept)
	return err
}

// PasswordLine returns the line of a password file that lets an agent in:
//
//	SCOPE TAG SECRET [GRANT…]
//
// The scope is the UUID of a Juju model, or * for all; the secret is what
// [SecretOf] makes.
func PasswordLine(scope, tag, password string, iterations int, grants Grant) (string, error) {
	kept, err := SecretOf(password, iterations)
	if err != nil {
		return "", err
	}
	line := strings.Join(append([]string{scope, tag, kept}, grants.Words()...), " ")
	if _, err := parsePassword(line); err != nil {
		return "", err
	}
	return line, nil
}

// secret is what is kept of a password.
type secret struct {
	iterations int // 0: its SHA-256
	salt       [saltBytes]byte
	hash       [hashBytes]byte
	grants     Grant
	ends       int64 // Unix milliseconds; 0: it has no end
}

// word is the secret as files have it.
func (p *secret) word() string {
	hash := hex.EncodeToString(p.hash[:])
	if p.iterations == 0 {
		return hashPrefix + hash
	}
	return strings.Join([]string{passwordScheme, strconv.Itoa(p.iterations), hex.EncodeToString(p.salt[:]), hash}, ":")
}

// pass is what whoever knows the password has proved.
func (p *secret) pass() Pass {
	return Pass{p.grants, Proof{ID: string(p.hash[:proofBytes]), Ends: p.ends}}
}

func (p *secret) derive(password string) [hashBytes]byte {
	if p.iterations == 0 {
		return sha256.Sum256([]byte(password))
	}
	key, err := pbkdf2.Key(sha256.New, password, p.salt[:], p.iterations, hashBytes)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "pbkdf2: %w", err)) // only of lengths and FIPS mode
	}
	return [hashBytes]byte(key)
}

// matches costs what the iterations say.
func (p *secret) matches(password string) bool {
	got := p.derive(password)
	return subtle.ConstantTimeCompare(got[:], p.hash[:]) == 1
}

// account is whose password it is.
type account struct{ scope, tag string }

// Passwords are those of one file. They never change.
type Passwords struct {
	of       map[account][]secret
	len      int
	cheapest int // iterations of the hash that has the fewest
}

// Len returns how many passwords there are.
func (p *Passwords) Len() int {
	if p == nil {
		return 0
	}
	return p.len
}

// ParsePasswords reads a file of lines as [PasswordLine] makes them; empty ones
// and those that begin with # are left out. valid says what is wrong with the scope
// and the tag of a line, for whoever knows what they are; nil accepts all. The error
// is Invalid, or what valid returns, and names the line, or TooLarge.
func ParsePasswords(r io.Reader, valid func(scope, tag string) error) (*Passwords, error) {
	p := &Passwords{of: map[account][]secret{}}
	err := eachLine(r, "password file", func(line string) error {
		x, err := parsePassword(line)
		if err != nil {
			return err
		}
		if valid != nil {
			if err := valid(x.scope, x.tag); err != nil {
				return err
			}
		}
		return p.add(x)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// passwordEntry is one line.
type passwordEntry struct {
	account
	secret
}

func parsePassword(line string) (x passwordEntry, err error) {
	f := strings.Fields(line)
	if len(f) < 3 || len(f) > 3+len(grantNames) {
		return x, incumbent.Errorf(incumbent.Invalid, "%d words, want: scope tag %s… or %s:… [grant…]", len(f), hashPrefix, passwordScheme)
	}
	x.account = account{f[0], f[1]}
	if strings.HasPrefix(f[0], "#") || len(f[0]) > incumbent.MaxNamespaceBytes {
		return x, incumbent.Errorf(incumbent.Invalid, "the first word is neither the UUID of a model nor *")
	}
	if err := incumbent.ValidateHolder(f[1]); err != nil {
		return x, err
	}
	if x.secret, err = parseSecret(f[2]); err != nil {
		return x, incumbent.Errorf(incumbent.Invalid, "the third word: %w", err)
	}
	for _, word := range f[3:] {
		g, err := ParseGrant(word)
		if err != nil {
			return x, err
		}
		x.grants |= g
	}
	return x, nil
}

func parseSecret(word string) (p secret, err error) {
	bad := incumbent.Errorf(incumbent.Invalid, "it is neither %sHASH nor %s:ITERATIONS:SALT:HASH", hashPrefix, passwordScheme)
	if plain, ok := strings.CutPrefix(word, hashPrefix); ok {
		hash, err := hex.DecodeString(plain)
		if err != nil || len(hash) != hashBytes {
			return p, bad
		}
		p.hash = [hashBytes]byte(hash)
		return p, nil
	}
	parts := strings.Split(word, ":")
	if len(parts) != 4 || parts[0] != passwordScheme {
		return p, bad
	}
	if p.iterations, err = strconv.Atoi(parts[1]); err != nil || p.iterations < 1 || p.iterations > maxIterations {
		return p, incumbent.Errorf(incumbent.Invalid, "iterations are not 1 to %d", maxIterations)
	}
	salt, saltErr := hex.DecodeString(parts[2])
	hash, hashErr := hex.DecodeString(parts[3])
	if saltErr != nil || hashErr != nil || len(salt) != saltBytes || len(hash) != hashBytes {
		return p, bad
	}
	p.salt, p.hash = [saltBytes]byte(salt), [hashBytes]byte(hash)
	return p, nil
}

func (p *Passwords) add(x passwordEntry) error {
	list := p.of[x.account]
	switch {
	case p.len == MaxPasswords:
		return incumbent.Errorf(incumbent.TooLarge, "more than %d passwords", MaxPasswords)
	case len(list) == MaxHashesPerTag:
		return incumbent.Errorf(incumbent.TooLarge, "%s has more than %d passwords", x.tag, MaxHashesPerTag)
	}
	if p.len == 0 || x.iterations < p.cheapest {
		p.cheapest = x.iterations
	}
	p.of[x.account] = append(list, x.secret)
	p.len++
	return nil
}

// nobody is whose password is checked where a tag has none, so that time does not
// tell which tags there are where all hashes of the file cost the same. Where they do
// not, it costs what the cheapest does: guesses of tags are not to take more time than
// logins.
func (p *Passwords) nobody() *secret {
	if p == nil {
		return &secret{}
	}
	return &secret{iterations: p.cheapest}
}

// candidates are the secrets that a password for the tag may match.
func (p *Passwords) candidates(scope, tag string) []secret {
	if p == nil {
		return nil
	}
	own, all := p.of[account{scope, tag}], p.of[account{anyScope, tag}]
	switch {
	case len(all) == 0 || scope == anyScope:
		return own
	case len(own) == 0:
		return all
	default:
		return slices.Concat(own, all)
	}
}
