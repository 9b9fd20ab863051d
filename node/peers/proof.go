package peers

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// What comes before the hellos: both sides prove that they have a key of the
// cluster's, the side that was dialed first. Nobody says who it is, nor believes
// what the other says, before that; with TLS as without it.
//
//	dialer   ── greeting ───────────▶  other
//	         ◀─ challenge | refusal ──
//	         ── hello | refusal ────▶           and so on: see hello.go
//
//	greeting   magic "INCP" 4, version u16, nonce 32, count u8, count × key 8
//	challenge  nonce 32, key 8, code 32
//
// The greeting names the keys that the dialer has, the challenge the one of them
// that the other has, too. A code is HMAC-SHA-256 under that key over who says it and what,
// and all that was said before on this connection: a nonce of either side is in
// it, so that no code is good twice, and a code of the one side is none of the other's.
// What travels behind the hellos has no codes: where somebody may change bytes
// between two members, TLS is needed.

const (
	nonceBytes = 32
	codeBytes  = sha256.Size
	maxKeys    = 128 // in a greeting: as many members may be joining
)

// Key is a secret of the cluster's, by which members know each other.
type Key struct {
	Secret []byte
	Member uint64 // with it this member alone proves who it is, and others to it; 0: everybody
}

// keyID names a key without giving it away.
type keyID [8]byte

func (k *Key) id() (id keyID) {
	m := hmac.New(sha256.New, k.Secret)
	m.Write([]byte("incumbent member key"))
	copy(id[:], m.Sum(nil))
	return id
}

// good reports whether the key serves between two members.
func (k *Key) good(a, b uint64) bool { return k.Member == 0 || k.Member == a || k.Member == b }

type greeting struct {
	version uint16
	nonce   [nonceBytes]byte
	keys    []keyID
}

func greetingFrame(g *greeting, group uint64) []byte {
	b := append(beginFrame(nil, frameGreeting, group), helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, g.version)
	b = append(append(b, g.nonce[:]...), byte(len(g.keys)))
	for _, id := range g.keys {
		b = append(b, id[:]...)
	}
	return endFrame(b, 0)
}

// decodeGreeting reads a greeting of any version up to its version, and all of it
// if the version is ours.
func decodeGreeting(p []byte) (g greeting, err error) {
	c := &cursor{b: p}
	if magic := c.take(uint64(len(helloMagic))); string(magic) != helloMagic {
		c.fail("this is not a member of a cluster")
		return g, c.err
	}
	if g.version = c.u16(); g.version != version {
		return g, c.err
	}
	copy(g.nonce[:], c.take(nonceBytes))
	n := int(c.u8())
	if n > maxKeys {
		c.fail("greeting with %d keys, limit is %d", n, maxKeys)
		return g, c.err
	}
	for range n {
		var id keyID
		copy(id[:], c.take(uint64(len(id))))
		g.keys = append(g.keys, id)
	}
	return g, c.end()
}

type challenge struct {
	nonce [nonceBytes]byte
	key   keyID
	code  [codeBytes]byte
}

// open is what the code of a challenge is made of.
func (c *challenge) open() []byte { return append(slices.Clone(c.nonce[:]), c.key[:]...) }

func appendChallenge(b []byte, ch *challenge, group uint64) []byte {
	at := len(b)
	b = append(beginFrame(b, frameChallenge, group), ch.open()...)
	return endFrame(append(b, ch.code[:]...), at)
}

func decodeChallenge(p []byte) (ch challenge, err error) {
	c := &cursor{b: p}
	copy(ch.nonce[:], c.take(nonceBytes))
	copy(ch.key[:], c.take(uint64(len(ch.key))))
	copy(ch.code[:], c.take(codeBytes))
	return ch, c.end()
}

// side is who says something.
type side byte

const (
	dialer side = 'd'
	dialed side = 'a'
)

func (s side) other() side { return dialer ^ dialed ^ s }

// proof is a connection on which a key was agreed upon. It belongs to the goroutine
// that shakes hands.
type proof struct {
	key  Key
	self side
	said []byte // by both sides, before
}

// code is what one side adds to what it says.
func (p *proof) code(by side, kind frameType, says []byte) []byte {
	m := hmac.New(sha256.New, p.key.Secret)
	m.Write([]byte{byte(by), byte(kind)})
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p.said))))
	m.Write(p.said)
	m.Write(says)
	return m.Sum(nil)
}

// seal ends a frame that begins at b[at:] with this side's code.
func (p *proof) seal(b []byte, at int) []byte {
	says := b[at+headerBytes:]
	code := p.code(p.self, frameType(b[at+4]), says)
	p.said = append(p.said, says...)
	return endFrame(append(b, code...), at)
}

// open returns what the other side says in a frame, without its code.
func (p *proof) open(f frame) ([]byte, error) {
	n := len(f.payload) - codeBytes
	if n < 0 {
		return nil, errProtocol("frame of type %d without a code", f.kind)
	}
	says := f.payload[:n:n]
	if !hmac.Equal(p.code(p.self.other(), f.kind, says), f.payload[n:]) {
		return nil, errProtocol("frame of type %d with a wrong code", f.kind)
	}
	p.said = append(p.said, says...)
	return says, nil
}

// meet is the part of the side that dials. If the other refuses, the error is its
// refusal, of which nothing is proven.
func meet(w io.Writer, in *frameReader, keys []Key) (*proof, error) {
	g := &greeting{version: version}
	rand.Read(g.nonce[:])
	keys = keys[:min(len(keys), maxKeys)]
	for i := range keys {
		g.keys = append(g.keys, keys[i].id())
	}
	says := greetingFrame(g, in.group)
	if _, err := w.Write(says); err != nil {
		return nil, err
	}
	f, err := in.wait()
	if err != nil {
		return nil, err
	}
	if f.kind == frameRefusal {
		return nil, unproven(f.payload)
	}
	if f.kind != frameChallenge {
		return nil, errProtocol("frame of type %d instead of a challenge", f.kind)
	}
	ch, err := decodeChallenge(f.payload)
	if err != nil {
		return nil, err
	}
	i := slices.Index(g.keys, ch.key)
	if i < 0 {
		return nil, errProtocol("a key was chosen that was not offered")
	}
	p := &proof{key: keys[i], self: dialer, said: slices.Clone(says[headerBytes:])}
	_, err = p.open(f)
	return p, err
}

// unproven takes a refusal of somebody who has shown nothing: it is no reason to
// stop, whatever it says.
func unproven(payload []byte) error {
	no, err := decodeRefusal(payload)
	if err != nil {
		return err
	}
	if no.reason != WrongVersion {
		no.reason = WrongSecret
	}
	return no
}

// welcome is the part of the side that was dialed. The error is a refusal if the
// dialer is to be told.
func welcome(w io.Writer, in *frameReader, keys []Key) (*proof, error) {
	f, err := in.wait()
	if err != nil {
		return nil, err
	}
	if f.kind != frameGreeting {
		return nil, errProtocol("frame of type %d instead of a greeting", f.kind)
	}
	g, err := decodeGreeting(f.payload)
	if err != nil {
		return nil, err
	}
	if g.version != version {
		return nil, &refusal{WrongVersion, fmt.Sprintf("version %d of the protocol between members, this one speaks %d", g.version, version)}
	}
	for i := range keys {
		if !slices.Contains(g.keys, keys[i].id()) {
			continue
		}
		ch := &challenge{key: keys[i].id()}
		rand.Read(ch.nonce[:])
		p := &proof{key: keys[i], self: dialed, said: slices.Clone(f.payload)}
		ch.code = [codeBytes]byte(p.code(dialed, frameChallenge, ch.open()))
		p.said = append(p.said, ch.open()...)
		_, err := w.Write(appendChallenge(nil, ch, in.group))
		return p, err
	}
	return nil, &refusal{WrongSecret, "the cluster's secret is another one"}
}
