package ca

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Limits of a token.
const (
	MaxTokenBytes     = 4096
	MaxTokenAddresses = 16
	MinTokenLife      = time.Minute
	MaxTokenLife      = 30 * 24 * time.Hour
	DefaultTokenLife  = 24 * time.Hour

	SecretBytes = 32 // of a cluster's secret
	nonceBytes  = 12
)

// tokenPrefix names the version and lets secret scanners and people know it.
const tokenPrefix = "INC1."

// Token lets its bearer join a cluster. It is:
//
//	INC1.<base64url of JSON: a addresses, h hash of the CA, c cluster,
//	      e end in Unix seconds, n nonce, s code>
//
// The code is HMAC-SHA-256 over cluster, end and nonce, under a secret that
// members have. Addresses and hash tell the bearer where to go and whom to
// trust there; whoever changes them harms only themselves.
type Token struct {
	Addresses []string // URLs of members' native API
	CAHash    string   // of a certificate in the chain that they show; "" without TLS
	Cluster   [16]byte
	Expires   time.Time // to the second
	nonce     []byte
	code      []byte
}

type tokenJSON struct {
	Addresses []string `json:"a"`
	CAHash    string   `json:"h,omitempty"`
	Cluster   string   `json:"c"`
	Expires   int64    `json:"e"`
	Nonce     []byte   `json:"n"`
	Code      []byte   `json:"s"`
}

// NewSecret makes a cluster's secret.
func NewSecret() []byte {
	b := make([]byte, SecretBytes)
	rand.Read(b)
	return b
}

// NewToken writes a token that [Token.Verify] accepts under the same secret. Of
// t only the exported fields count. The error is TooLarge or Invalid.
func NewToken(secret []byte, t Token) (string, error) {
	t.nonce = make([]byte, nonceBytes)
	rand.Read(t.nonce)
	text, err := json.Marshal(tokenJSON{
		Addresses: t.Addresses, CAHash: t.CAHash, Cluster: hex.EncodeToString(t.Cluster[:]),
		Expires: t.Expires.Unix(), Nonce: t.nonce, Code: t.codeUnder(secret),
	})
	if err != nil {
		return "", broken(err)
	}
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(text)
	_, err = ParseToken(token)
	return token, err
}

// ParseToken reads a token without judging it: its bearer can do no more. The
// error is Invalid or TooLarge and repeats nothing of the token.
func ParseToken(s string) (Token, error) {
	if len(s) > MaxTokenBytes {
		return Token{}, incumbent.Errorf(incumbent.TooLarge, "join token: %d bytes, limit is %d", len(s), MaxTokenBytes)
	}
	word, ok := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	if !ok {
		return Token{}, malformed("it does not begin with " + tokenPrefix)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil {
		return Token{}, malformed("it is cut off or mistyped")
	}
	var j tokenJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return Token{}, malformed("it is cut off or mistyped")
	}
	cluster, err := hex.DecodeString(j.Cluster)
	hash, herr := hex.DecodeString(j.CAHash)
	switch {
	case err != nil || len(cluster) != 16 || len(j.Nonce) != nonceBytes || len(j.Code) != sha256.Size:
		return Token{}, malformed("a part of it is missing")
	case herr != nil || len(hash) != 0 && len(hash) != sha256.Size:
		return Token{}, malformed("the authority's hash is none")
	case len(j.Addresses) == 0 || len(j.Addresses) > MaxTokenAddresses:
		return Token{}, malformed("it names no member, or too many")
	}
	return Token{
		Addresses: j.Addresses, CAHash: j.CAHash, Cluster: [16]byte(cluster), Expires: time.Unix(j.Expires, 0), nonce: j.Nonce, code: j.Code,
	}, nil
}

func malformed(why string) error {
	return incumbent.Errorf(incumbent.Invalid, "join token: %s", why).WithHint("'incumbent cluster token' on a member prints one")
}

// Verify returns nil if a member of this cluster made the token and it has not
// ended; else a Denied error that says which.
func (t Token) Verify(secret []byte, cluster [16]byte, now time.Time) error {
	const hint = "'incumbent cluster token' on a member of this cluster prints a new one"
	switch {
	case t.Cluster != cluster:
		return incumbent.Errorf(incumbent.Denied, "this join token is for cluster %x, this is %x", t.Cluster, cluster).WithHint(hint)
	case !hmac.Equal(t.code, t.codeUnder(secret)):
		return incumbent.Errorf(incumbent.Denied, "no member of this cluster made this join token").WithHint(hint)
	case !now.Before(t.Expires):
		return incumbent.Errorf(incumbent.Denied, "this join token ended at %s", t.Expires.UTC().Format(time.RFC3339)).WithHint(hint)
	}
	return nil
}

func (t Token) codeUnder(secret []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("incumbent join token 1"))
	m.Write(t.Cluster[:])
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(t.Expires.Unix())))
	m.Write(t.nonce)
	return m.Sum(nil)
}
