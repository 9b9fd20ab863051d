package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Limits of a credential file.
const (
	MaxCredentials     = 100_000
	MaxCredentialBytes = 1024 // of a line
)

const (
	tokenPrefix = "incumbent_" // lets secret scanners and people know it
	tokenBytes  = 32
	tokenLength = len(tokenPrefix) + 43 // base64 without padding
	hashPrefix  = "sha256:"
)

// NewToken returns a random credential token.
func NewToken() string {
	var b [tokenBytes]byte
	rand.Read(b[:]) // never fails: crypto/rand stops the process instead
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// CredentialLine returns the line of a credential file that lets the bearer of
// the token in:
//
//	NAME KIND sha256:HEX
func CredentialLine(name string, k Kind, token string) (string, error) {
	if err := validToken(token); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(token))
	line := name + " " + k.String() + " " + hashPrefix + hex.EncodeToString(sum[:])
	if _, err := parseCredential(line); err != nil {
		return "", err
	}
	return line, nil
}

func validToken(token string) error {
	word, ok := strings.CutPrefix(token, tokenPrefix)
	if ok && len(token) == tokenLength {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(word); err == nil {
			return nil
		}
	}
	return incumbent.Errorf(incumbent.Invalid, "this is no credential token: one has %s and 43 characters", tokenPrefix)
}

// Credentials are those of one file.
type Credentials struct {
	// bySum finds the one candidate by the first bytes of the hash, which tell
	// nothing about the token; the whole is compared in constant time.
	bySum map[uint64]credential
}

type credential struct {
	principal Principal
	sum       [sha256.Size]byte
}

// Len returns how many credentials there are.
func (c *Credentials) Len() int {
	if c == nil {
		return 0
	}
	return len(c.bySum)
}

// ParseCredentials reads a credential file: one credential a line, empty lines
// and lines that begin with # left out. A name may have several, so that one
// can be replaced while the other works. The error is Invalid and names the
// line, or TooLarge.
func ParseCredentials(r io.Reader) (*Credentials, error) {
	c := &Credentials{bySum: map[uint64]credential{}}
	kinds := map[string]Kind{}
	err := eachLine(r, "credential file", func(line string) error {
		x, err := parseCredential(line)
		if err != nil {
			return err
		}
		return c.add(x, kinds)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func parseCredential(line string) (credential, error) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return credential{}, incumbent.Errorf(incumbent.Invalid, "%d words, want: name kind %s…", len(f), hashPrefix)
	}
	if err := incumbent.ValidateHolder(f[0]); err != nil {
		return credential{}, err
	}
	if strings.HasPrefix(f[0], "#") {
		return credential{}, incumbent.Errorf(incumbent.Invalid, "name %q begins like a comment", f[0])
	}
	kind, err := ParseKind(f[1])
	if err != nil {
		return credential{}, err
	}
	word, ok := strings.CutPrefix(f[2], hashPrefix)
	sum, err := hex.DecodeString(word)
	if !ok || err != nil || len(sum) != sha256.Size {
		return credential{}, incumbent.Errorf(incumbent.Invalid, "the third word is not %s and %d hexadecimal digits", hashPrefix, 2*sha256.Size)
	}
	return credential{Principal{Name: f[0], Kind: kind, Via: Credential, Proof: Proof{ID: string(sum)}}, [sha256.Size]byte(sum)}, nil
}

func (c *Credentials) add(x credential, kinds map[string]Kind) error {
	if len(c.bySum) == MaxCredentials {
		return incumbent.Errorf(incumbent.TooLarge, "more than %d credentials", MaxCredentials)
	}
	if k, known := kinds[x.principal.Name]; known && k != x.principal.Kind {
		return incumbent.Errorf(incumbent.Invalid, "%q is %s here and %s before", x.principal.Name, x.principal.Kind, k)
	}
	key := binary.BigEndian.Uint64(x.sum[:])
	if y, taken := c.bySum[key]; taken {
		// Two different hashes do not begin with the same 64 bits by chance.
		return incumbent.Errorf(incumbent.Invalid, "the same token as %q before", y.principal.Name)
	}
	kinds[x.principal.Name] = x.principal.Kind
	c.bySum[key] = x
	return nil
}

// SumOf returns the SHA-256 of a token, by which it is known. The error is Invalid if
// it is none.
func SumOf(token string) ([sha256.Size]byte, error) {
	if err := validToken(token); err != nil {
		return [sha256.Size]byte{}, err
	}
	return sha256.Sum256([]byte(token)), nil
}

// lookup returns whose token has this SHA-256.
func (c *Credentials) lookup(sum *[sha256.Size]byte) (Principal, bool) {
	if c == nil {
		return Principal{}, false
	}
	x, found := c.bySum[binary.BigEndian.Uint64(sum[:])]
	if found && subtle.ConstantTimeCompare(x.sum[:], sum[:]) == 1 {
		return x.principal, true
	}
	return Principal{}, false
}
