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

	SecretBytes  = 32 // of a cluster's secret
	TokenIDBytes = 8
)

// tokenPrefix names the version and lets secret scanners and people know it.
const tokenPrefix = "INC2."

// Token lets its bearer join a cluster, once, as the member of one name. It is:
//
//	INC2.<base64url of JSON: a addresses, h hash of the CA, o whether that is the
//	      cluster's own, c cluster, m name of the member, e end in Unix seconds, i id, s code>
//
// The code is HMAC-SHA-256 over cluster, end, id and name, under a secret that
// members have. Addresses and hash tell the bearer where to go and whom to
// trust there; whoever changes them harms only themselves. Whether the token was
// used is the cluster's to know: see package trust.
type Token struct {
	Addresses []string // URLs of members' native API
	CAHash    string   // of a certificate in the chain that they show; "" without TLS
	Own       bool     // that is of the cluster's own authority: they show certificates of members
	Cluster   [16]byte
	Name      string    // of the member that it is for
	Expires   time.Time // to the second
	ID        [TokenIDBytes]byte
	code      []byte
}

type tokenJSON struct {
	Addresses []string `json:"a"`
	CAHash    string   `json:"h,omitempty"`
	Own       bool     `json:"o,omitempty"`
	Cluster   string   `json:"c"`
	Name      string   `json:"m"`
	Expires   int64    `json:"e"`
	ID        []byte   `json:"i"`
	Code      []byte   `json:"s"`
}

// NewSecret makes a cluster's secret.
func NewSecret() []byte {
	b := make([]byte, SecretBytes)
	rand.Read(b)
	return b
}

// NewToken writes a token that [Token.Verify] accepts under the same secret, and
// gives it an id. The error is TooLarge or Invalid.
func NewToken(secret []byte, t *Token) (string, error) {
	rand.Read(t.ID[:])
	text, err := json.Marshal(tokenJSON{
		Addresses: t.Addresses, CAHash: t.CAHash, Own: t.Own, Cluster: hex.EncodeToString(t.Cluster[:]), Name: t.Name,
		Expires: t.Expires.Unix(), ID: t.ID[:], Code: t.codeUnder(secret),
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
	case err != nil || len(cluster) != 16 || len(j.ID) != TokenIDBytes || len(j.Code) != sha256.Size:
		return Token{}, malformed("a part of it is missing")
	case herr != nil || len(hash) != 0 && len(hash) != sha256.Size:
		return Token{}, malformed("the authority's hash is none")
	case j.Name == "":
		return Token{}, malformed("it names no member that it is for")
	case len(j.Addresses) == 0 || len(j.Addresses) > MaxTokenAddresses:
		return Token{}, malformed("it names no member, or too many")
	}
	return Token{
		Addresses: j.Addresses, CAHash: j.CAHash, Own: j.Own, Cluster: [16]byte(cluster), Name: j.Name, Expires: time.Unix(j.Expires, 0),
		ID: [TokenIDBytes]byte(j.ID), code: j.Code,
	}, nil
}

func malformed(why string) error {
	return incumbent.Errorf(incumbent.Invalid, "join token: %s", why).WithHint("'incumbent cluster token NAME' on a member prints one")
}

// Verify returns nil if a member of this cluster made the token, under one of its
// secrets; else a Denied error that says what is wrong. Whether it has ended or
// was used the caller looks up.
func (t Token) Verify(secrets [][]byte, cluster [16]byte) error {
	const hint = "'incumbent cluster token NAME' on a member of this cluster prints a new one"
	if t.Cluster != cluster {
		return incumbent.Errorf(incumbent.Denied, "this join token is for cluster %x, which this is not", t.Cluster).WithHint(hint)
	}
	for _, s := range secrets {
		if hmac.Equal(t.code, t.codeUnder(s)) {
			return nil
		}
	}
	return incumbent.Errorf(incumbent.Denied, "no member of this cluster made this join token, or the secret that it was made with is another by now").WithHint(hint)
}

// Under fills in the code that a cluster's secret gives a token of which all else is
// known.
func (t Token) Under(secret []byte) Token {
	t.code = t.codeUnder(secret)
	return t
}

// LinkKey is by what a member that joined with the token, and the others, know each
// other until it has the cluster's secret.
func (t Token) LinkKey(member uint64) []byte {
	m := hmac.New(sha256.New, t.code)
	m.Write([]byte("incumbent member that joins 1"))
	m.Write(binary.BigEndian.AppendUint64(nil, member))
	return m.Sum(nil)
}

func (t Token) codeUnder(secret []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("incumbent join token 2"))
	m.Write(t.Cluster[:])
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(t.Expires.Unix())))
	m.Write(t.ID[:])
	m.Write([]byte(t.Name))
	return m.Sum(nil)
}
