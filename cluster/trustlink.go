package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core/trust"
)

// Secrets, keys and certificates travel between members that know each other, as the
// user's frames: nobody else gets that far. A member asks all it is connected with;
// whoever has the thing answers.
//
//	'T'  JSON of a trustFrame
const (
	trustKind       = 'T'
	maxTrustBytes   = 32 << 10
	trustAskedEvery = 2 * time.Second // until the same is asked for again
	signWait        = 3 * time.Second // for another member's signature
)

// What is wanted, and given.
const (
	wantSecret      = "secret"      // whose SHA-256 is Hash; every member may have it
	wantKey         = "key"         // of the authority whose certificate's SHA-256 is Hash; for who is to sign
	wantCertificate = "certificate" // of that authority, for member For; Data is the request
)

// trustFrame is a question, or (Have) the answer to it.
type trustFrame struct {
	Want, Have string `json:",omitempty"`
	Hash       []byte `json:",omitempty"`
	For        uint64 `json:",omitempty"`
	Data       []byte `json:",omitempty"`
	Err        string `json:",omitempty"` // of a certificate: why it is not signed
}

func isTrustFrame(frame []byte) bool { return len(frame) > 0 && frame[0] == trustKind }

func (f *trustFrame) encode() []byte {
	text, err := json.Marshal(f)
	if err != nil {
		panic("cluster: a frame that is no JSON: " + err.Error()) // strings and bytes always are
	}
	return append([]byte{trustKind}, text...)
}

// decodeTrust reads a frame; false if it is none.
func decodeTrust(frame []byte) (f trustFrame, ok bool) {
	if !isTrustFrame(frame) || len(frame) > maxTrustBytes || json.Unmarshal(frame[1:], &f) != nil {
		return trustFrame{}, false
	}
	return f, (f.Want == "") != (f.Have == "") && (len(f.Hash) == 0 || len(f.Hash) == trust.HashBytes)
}

// askOthers asks all members that are connected, and not too often. It is
// keepTrust's.
func (c *Cluster) askOthers(f trustFrame) {
	what := f.Want + string(f.Hash)
	if last, ok := c.trust.asked[what]; ok && time.Since(last) < trustAskedEvery {
		return
	}
	if len(c.trust.asked) >= askedFrames {
		clear(c.trust.asked)
	}
	if c.sendTrust(f) > 0 {
		c.trust.asked[what] = time.Now()
	}
}

// sendTrust sends a frame to all members that are connected, and returns how many
// those were.
func (c *Cluster) sendTrust(f trustFrame) (n int) {
	frame := f.encode()
	for _, m := range c.Roster().Others {
		if c.cfg.Transport.SendApp(m.ID, frame) {
			n++
		}
	}
	return n
}

// hearTrust answers a question, or takes an answer.
func (c *Cluster) hearTrust(h heardFrame) {
	f, ok := decodeTrust(h.frame)
	if !ok {
		return
	}
	var err error
	switch {
	case f.Want == wantSecret:
		c.giveSecret(h.from, f)
	case f.Want == wantKey && c.cfg.TLS != nil:
		err = c.giveKey(h.from, f)
	case f.Want == wantCertificate && c.cfg.TLS != nil:
		err = c.giveCertificate(h.from, f)
	case f.Have == wantSecret:
		err = c.takeSecret(f.Data)
		c.trust.wake() // it has this to say
	case f.Have == wantKey && c.cfg.TLS != nil:
		err = c.takeKey(f)
	case f.Have == wantCertificate && c.cfg.TLS != nil:
		err = c.takeCertificate(f)
	}
	if err != nil {
		c.cfg.Logger.Warn("trust of another member", "member", c.NameOf(h.from), "asks", f.Want, "gives", f.Have, "cause", err)
	}
}

func (c *Cluster) giveSecret(to uint64, f trustFrame) {
	for _, s := range c.secrets() {
		if hash := sha256.Sum256(s); bytes.Equal(hash[:], f.Hash) {
			answer := trustFrame{Have: wantSecret, Data: s}
			c.cfg.Transport.SendApp(to, answer.encode())
		}
	}
}

// authorityBy is the trusted authority of a hash with its key; nil: it is not here.
func (c *Cluster) authorityBy(hash []byte) (*ca.Authority, error) {
	for _, cert := range c.cfg.TLS.state.Load().trust {
		if own := sha256.Sum256(cert.Raw); !bytes.Equal(own[:], hash) {
			continue
		}
		a, err := c.cfg.TLS.authority(cert)
		if incumbent.KindOf(err) == incumbent.NotFound {
			return nil, nil
		}
		return a, err
	}
	return nil, nil
}

// giveKey gives the authority's key to a member that is to sign.
func (c *Cluster) giveKey(to uint64, f trustFrame) error {
	if m := trust.Of(c.engine.View()).Member(to); m == nil || !m.Signer {
		return incumbent.Errorf(incumbent.Denied, "it is not to have the authority's key")
	}
	a, err := c.authorityBy(f.Hash)
	if a == nil || err != nil {
		return err
	}
	text, err := a.KeyPEM()
	if err != nil {
		return err
	}
	answer := trustFrame{Have: wantKey, Hash: f.Hash, Data: text}
	c.cfg.Transport.SendApp(to, answer.encode())
	c.cfg.Event("authority's key given", c.NameOf(to), "it is to sign")
	return nil
}

// takeKey keeps the authority's key.
func (c *Cluster) takeKey(f trustFrame) error {
	if m := trust.Of(c.engine.View()).Member(c.id); m == nil || !m.Signer {
		return incumbent.Errorf(incumbent.Denied, "this member is not to sign")
	}
	key, err := ca.ParseKey(f.Data)
	if err != nil {
		return err
	}
	for i, cert := range c.cfg.TLS.state.Load().trust {
		if key.PublicKey.Equal(cert.PublicKey) {
			c.trust.wake()
			return WriteFile(filepath.Join(c.cfg.TLS.dir, []string{caKeyFile, caNextKeyFile}[i]), f.Data)
		}
	}
	return incumbent.Errorf(incumbent.Conflict, "the key of no authority that is trusted")
}

// giveCertificate signs for the member that asks, or for one that is just joining:
// for that one only the key that its token was spent with.
func (c *Cluster) giveCertificate(to uint64, f trustFrame) error {
	a, err := c.authorityBy(f.Hash)
	if a == nil || err != nil {
		return err
	}
	answer := trustFrame{Have: wantCertificate, Hash: f.Hash, For: f.For}
	if answer.Data, err = c.signBy(a, to, f.For, f.Data); err != nil {
		answer.Err = err.Error()
	}
	c.cfg.Transport.SendApp(to, answer.encode())
	return err
}

func (c *Cluster) signBy(a *ca.Authority, asks, id uint64, csr []byte) ([]byte, error) {
	view := c.engine.View()
	t := trust.Of(view)
	name := ""
	if m, ok := view.Member(id); ok && asks == id {
		name = m.Name
	} else if has := t.Member(id); has != nil && has.Secret == (trust.Hash{}) {
		token := t.Token(has.Token)
		key, err := ca.KeyHash(csr)
		if err != nil {
			return nil, err
		}
		if token != nil && token.Spender == id && token.Key == key {
			name = token.Name
		}
	}
	if name == "" {
		return nil, incumbent.Errorf(incumbent.Denied, "no certificate of member %s for member %s", FormatID(id), FormatID(asks))
	}
	return a.Sign(csr, ca.Member{Cluster: t.Cluster, ID: id, Name: name}, c.cfg.TLS.now())
}

// takeCertificate takes a certificate of this member's own, or hands it to the call
// of Join that waits for it.
func (c *Cluster) takeCertificate(f trustFrame) error {
	if f.For == c.id {
		if f.Err != "" {
			return incumbent.Errorf(incumbent.Denied, "certificate not signed: %s", f.Err)
		}
		epoch := trust.Of(c.engine.View()).Epoch
		fresh, err := c.cfg.TLS.take(f.Data)
		if err != nil || !fresh {
			return err
		}
		return c.noteEpoch(epoch)
	}
	c.trust.mu.Lock()
	defer c.trust.mu.Unlock()
	if waits := c.trust.signed[f.For]; waits != nil {
		out := signedCertificate{text: f.Data}
		if f.Err != "" {
			out.err = incumbent.Errorf(incumbent.Unavailable, "certificate not signed: %s", f.Err)
		}
		select {
		case waits <- out:
		default: // answered already
		}
	}
	return nil
}

// signFor makes the certificate of a member that joins: by this member if it has the
// authority's key, else by another.
func (c *Cluster) signFor(ctx context.Context, id uint64, csr []byte) ([]byte, error) {
	view := c.engine.View()
	t := trust.Of(view)
	trusted, err := trustOf(t)
	if err != nil || len(trusted) == 0 {
		return nil, incumbent.Errorf(incumbent.Unavailable, "the cluster's authority is not recorded yet")
	}
	hash := sha256.Sum256(c.target(view, t, trusted).Raw)
	if a, err := c.authorityBy(hash[:]); a != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return c.signBy(a, c.id, id, csr)
	}
	return c.signedElsewhere(ctx, trustFrame{Want: wantCertificate, Hash: hash[:], For: id, Data: csr})
}

func (c *Cluster) signedElsewhere(ctx context.Context, f trustFrame) ([]byte, error) {
	waits := make(chan signedCertificate, 1)
	c.trust.mu.Lock()
	c.trust.signed[f.For] = waits
	c.trust.mu.Unlock()
	defer func() {
		c.trust.mu.Lock()
		delete(c.trust.signed, f.For)
		c.trust.mu.Unlock()
	}()
	c.sendTrust(f)
	over := time.NewTimer(signWait)
	defer over.Stop()
	select {
	case out := <-waits:
		return out.text, out.err
	case <-over.C:
	case <-ctx.Done():
	}
	return nil, incumbent.Errorf(incumbent.Unavailable, "no member that is connected has the key of the cluster's authority").
		WithHint("start one that has, or put tls/ca.key into the data directory of any member: the joiner asks again")
}
