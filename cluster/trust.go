package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/trust"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// What the members trust one another by is a secret, and where the cluster has an
// authority, certificates. The replicated state says which (core/trust); each member
// keeps its own part true, step by step, whatever happens in between:
//
//	secret       get what is said to be next from another member; say so. The leader
//	             ends it when everybody has it
//	authority    trust what is said to be next; say so. Once all trust it, show a
//	             certificate of it; say so. An operator ends it
//
// Each step follows from the state and from what is in the data directory, so that
// it does not matter who leads, or who was started again. A member that is down is
// waited for: it comes back with what it had, which still holds.

const (
	trustEvery   = time.Second           // looks without being woken
	trustSoon    = 50 * time.Millisecond // the same of a member that has no secret yet
	trustTimeout = 5 * time.Second       // for one change of the state
	refusalEvery = 10 * time.Second      // between two events of joins that were refused
	askedFrames  = 64                    // from other members that wait to be answered; more are dropped, and asked for again
)

// truster is what keepTrust works with.
type truster struct {
	kick   chan struct{} // look now
	frames chan heardFrame

	// Of keepTrust.
	asked      map[string]time.Time // of what was asked for, when
	operatorBy *x509.Certificate    // the authority for which the operator's certificate was looked at

	// rotating is held while this member proposes what it has made for it: secret and
	// key are on its disk, and in no state yet. It guards what was made for an exchange of
	// which it is not known whether it begins: to be proposed again, for it may.
	rotating      sync.Mutex
	nextSecret    []byte
	nextAuthority *ca.Authority

	mu     sync.Mutex                        // guards what follows, for moments
	signed map[uint64]chan signedCertificate // Join's calls that wait for a member that can sign

	refusals refusals
}

type heardFrame struct {
	from  uint64
	frame []byte
}

type signedCertificate struct {
	text []byte
	err  error
}

func newTruster() truster {
	return truster{
		kick: make(chan struct{}, 1), frames: make(chan heardFrame, askedFrames), asked: map[string]time.Time{},
		signed: map[uint64]chan signedCertificate{},
	}
}

func (t *truster) wake() {
	select {
	case t.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// receive takes a frame from another member, from any goroutine.
func (t *truster) receive(from uint64, frame []byte) {
	select {
	case t.frames <- heardFrame{from, frame}:
	default: // asked again
	}
}

// refusals bounds how often something that strangers cause is told.
type refusals struct {
	mu   sync.Mutex
	last time.Duration // since the member began; 0: never
	more int           // not told since
}

// note calls tell, with how many were not told before, if it is time.
func (r *refusals) note(now time.Duration, tell func(more int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != 0 && now-r.last < refusalEvery {
		r.more++
		return
	}
	tell(r.more)
	r.last, r.more = max(now, 1), 0
}

// keepTrust keeps this member's part of the cluster's trust until ctx ends.
func (c *Cluster) keepTrust(ctx context.Context) {
	tick := time.NewTimer(trustSoon)
	defer tick.Stop()
	trouble := ""
	for {
		err := c.trustStep(ctx)
		switch {
		case err == nil:
			trouble = ""
		case ctx.Err() == nil && err.Error() != trouble:
			trouble = err.Error()
			c.cfg.Logger.Info("trust not up to date", "cause", err)
		}
		if len(c.secrets()) == 0 {
			tick.Reset(trustSoon)
		} else {
			tick.Reset(trustEvery)
		}
		select {
		case <-tick.C:
		case <-c.trust.kick:
		case h := <-c.trust.frames:
			c.hearTrust(h)
		case <-ctx.Done():
			return
		}
	}
}

// trustStep does what there is to do now.
func (c *Cluster) trustStep(ctx context.Context) error {
	st := c.node.Status()
	if !st.Ready || st.Leader == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, trustTimeout)
	defer cancel()
	if trust.Of(c.engine.View()).Cluster != st.Cluster {
		if st.State != node.Leader {
			return nil
		}
		return c.founded(ctx)
	}
	c.trust.rotating.Lock()
	view := c.engine.View() // not one from before an exchange began here
	t := trust.Of(view)
	err := errors.Join(c.keepSecret(t), c.keepAuthority(view, t))
	c.trust.rotating.Unlock()
	err = errors.Join(err, c.report(ctx, t))
	if st.State == node.Leader {
		err = errors.Join(err, c.founded(ctx), c.forgetGone(ctx, view, t), c.finishSecret(ctx, view, t))
	}
	return err
}

// unfounded reports whether the cluster's trust is not recorded, or was before it had an
// authority: of a member that was alone, and was prepared as the first of several then.
func (c *Cluster) unfounded(v *core.View, cluster [16]byte) bool {
	t := trust.Of(v)
	return t.Cluster != cluster || c.cfg.TLS != nil && len(t.Authority.Current) == 0 && v.ActiveSchema() >= trust.AuthoritySchema
}

// founded has the cluster's trust recorded, if it is not.
func (c *Cluster) founded(ctx context.Context) error {
	cluster := c.node.Status().Cluster
	if !c.unfounded(c.engine.View(), cluster) {
		return nil
	}
	secret := c.kept().Secret
	if len(secret) == 0 {
		return incumbent.Errorf(incumbent.Unavailable, "this member does not have the cluster's secret yet")
	}
	cmd := trust.Command{Verb: trust.Found, Cluster: cluster, Secret: sha256.Sum256(secret), Member: c.id}
	if c.cfg.TLS != nil {
		cmd.Authority = c.cfg.TLS.state.Load().trust[0].Raw
	}
	_, err := c.propose(ctx, cmd)
	return err
}

// secrets are those of the cluster that this member has, the newest first.
func (c *Cluster) secrets() [][]byte {
	var out [][]byte
	r := c.kept()
	for _, s := range [][]byte{r.Next, r.Secret} {
		if len(s) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// keys are by what this member and others know each other: the cluster's secrets,
// and for each member that has joined and has none yet, what its token gives.
func (c *Cluster) keys() []peers.Key {
	var out []peers.Key
	secrets := c.secrets()
	for _, s := range secrets {
		out = append(out, peers.Key{Secret: s})
	}
	if own, err := ca.ParseToken(c.kept().Token); err == nil {
		out = append(out, peers.Key{Secret: own.LinkKey(c.id), Member: c.id})
	}
	t := trust.Of(c.engine.View())
	for _, k := range t.Tokens() {
		m := t.Member(k.Spender)
		if k.Spender == 0 || m == nil || m.Token != k.ID || m.Secret != (trust.Hash{}) {
			continue
		}
		token := ca.Token{Cluster: t.Cluster, Name: k.Name, Expires: k.Expires, ID: k.ID}
		for _, s := range secrets {
			out = append(out, peers.Key{Secret: token.Under(s).LinkKey(k.Spender), Member: k.Spender})
		}
	}
	return out
}

// tokenSecret is the newest secret that the state names, by which join tokens are made:
// no other is, or comes to be, every member's. nil: this member has none of them.
func (c *Cluster) tokenSecret() []byte {
	t := trust.Of(c.engine.View())
	for _, s := range c.secrets() {
		if _, is := named(t, s); is {
			return s
		}
	}
	return nil
}

// named is the hash of a secret, and whether the state names it as the cluster's, now or
// next.
func named(t *trust.View, secret []byte) (hash trust.Hash, is bool) {
	hash = sha256.Sum256(secret)
	return hash, bytes.Equal(hash[:], t.Secret.Current) || bytes.Equal(hash[:], t.Secret.Next)
}

// keepSecret has this member hold the secrets that the state names, and no other but one
// that may yet come to be the next. So what was abandoned goes.
func (c *Cluster) keepSecret(t *trust.View) error {
	r := c.kept()
	held := map[trust.Hash][]byte{}
	for _, s := range [][]byte{r.Secret, r.Next} {
		if len(s) > 0 {
			held[sha256.Sum256(s)] = s
		}
	}
	for _, want := range [][]byte{t.Secret.Current, t.Secret.Next} {
		if len(want) == trust.HashBytes && held[trust.Hash(want)] == nil {
			c.askOthers(trustFrame{Want: wantSecret, Hash: want})
		}
	}
	current := held[trust.Hash(t.Secret.Current)]
	if current == nil {
		return nil
	}
	if len(t.Secret.Next) > 0 || bytes.Equal(c.trust.nextSecret, current) {
		c.trust.nextSecret = nil // it was begun, or another was
	}
	next := c.trust.nextSecret
	if len(t.Secret.Next) > 0 {
		next = held[trust.Hash(t.Secret.Next)]
	}
	return c.rewrite(func(r *Record) bool {
		if bytes.Equal(r.Secret, current) && bytes.Equal(r.Next, next) && r.Token == "" {
			return false
		}
		if !bytes.Equal(r.Secret, current) && len(r.Secret) > 0 {
			c.cfg.Event("secret rotated", c.cfg.Name, "the old one is not accepted any more")
		}
		r.Secret, r.Next, r.Token = current, next, ""
		return true
	})
}

// takeSecret keeps a secret that another member has given.
func (c *Cluster) takeSecret(secret []byte) error {
	t := trust.Of(c.engine.View())
	hash := sha256.Sum256(secret)
	switch {
	case len(secret) != ca.SecretBytes:
	case bytes.Equal(hash[:], t.Secret.Current):
		return c.rewrite(func(r *Record) bool { r.Secret, r.Token = secret, ""; return true })
	case bytes.Equal(hash[:], t.Secret.Next):
		return c.rewrite(func(r *Record) bool { r.Next = secret; return true })
	}
	return incumbent.Errorf(incumbent.Conflict, "a secret that is not the cluster's")
}

// report says what this member has, if that is not what the state has of it.
func (c *Cluster) report(ctx context.Context, t *trust.View) error {
	r := c.kept()
	say := trust.Report{Epoch: r.Epoch}
	for _, s := range [][]byte{r.Secret, r.Next} {
		if hash, is := named(t, s); is {
			say.Secret = hash
		}
	}
	if say.Secret == (trust.Hash{}) {
		return nil // it has not come up yet
	}
	if c.cfg.TLS != nil {
		s := c.cfg.TLS.state.Load()
		say.Trusts = sha256.Sum256(s.trust.Newest().Raw)
		if s.signer != nil {
			say.Shows = sha256.Sum256(s.signer.Raw)
		}
		for _, cert := range s.trust {
			if _, err := c.cfg.TLS.authority(cert); err == nil {
				say.Signs = true
			}
		}
	}
	if m := t.Member(c.id); m != nil && m.Report == say {
		return nil
	}
	_, err := c.propose(ctx, trust.Command{Verb: trust.Say, Member: c.id, Report: say})
	return err
}

// forgetGone lets go of what was said by members that are gone.
func (c *Cluster) forgetGone(ctx context.Context, view *core.View, t *trust.View) error {
	for _, m := range t.Members() {
		if !view.MemberGone(m.ID) {
			continue
		}
		if _, err := c.propose(ctx, trust.Command{Verb: trust.Forget, Member: m.ID}); err != nil {
			return err
		}
	}
	return nil
}

// finishSecret ends the exchange of the secret when every member has the next one.
func (c *Cluster) finishSecret(ctx context.Context, view *core.View, t *trust.View) error {
	if len(t.Secret.Next) == 0 || len(behind(view, t, func(m *trust.Member) bool { return bytes.Equal(m.Secret[:], t.Secret.Next) })) > 0 {
		return nil
	}
	_, err := c.propose(ctx, trust.Command{Verb: trust.Finish, What: trust.Secret, Value: t.Secret.Next})
	return err
}

// behind are the names of the cluster's members that do not do something yet.
func behind(view *core.View, t *trust.View, does func(*trust.Member) bool) (names []string) {
	for _, m := range view.Members() {
		if has := t.Member(m.ID); has == nil || !does(has) {
			names = append(names, m.Name)
		}
	}
	return names
}

// keepAuthority has this member trust the authorities that the state names, and
// show a certificate of the newest one that everybody trusts.
func (c *Cluster) keepAuthority(view *core.View, t *trust.View) error {
	if c.cfg.TLS == nil || len(t.Authority.Current) == 0 {
		return nil
	}
	if len(t.Authority.Next) > 0 {
		c.trust.nextAuthority = nil // it was begun, or another was
	}
	trusted, err := trustOf(t)
	if err != nil {
		return err
	}
	if err := c.cfg.TLS.setTrust(trusted, t.Cross); err != nil {
		return err
	}
	target := c.target(view, t, trusted)
	if m := t.Member(c.id); m != nil && m.Signer {
		if _, err := c.cfg.TLS.authority(target); incumbent.KindOf(err) == incumbent.NotFound {
			hash := sha256.Sum256(target.Raw)
			c.askOthers(trustFrame{Want: wantKey, Hash: hash[:]})
		}
	}
	if err := c.keepCertificate(t, target); err != nil {
		return err
	}
	// The operator's certificate follows; else it is looked at now and then.
	if by := c.cfg.TLS.state.Load().signer; by != nil && !by.Equal(c.trust.operatorBy) {
		c.trust.operatorBy = by
		c.cfg.TLS.keepOperator()
	}
	return nil
}

func trustOf(t *trust.View) (ca.Trust, error) {
	var out ca.Trust
	for _, der := range [][]byte{t.Authority.Current, t.Authority.Next} {
		if len(der) == 0 {
			continue
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, incumbent.Errorf(incumbent.Corrupt, "the cluster's authority: %w", err)
		}
		out = append(out, cert)
	}
	return out, nil
}

// target is the authority whose certificate this member is to show: the next one as
// soon as everybody trusts it, and from then on.
func (c *Cluster) target(view *core.View, t *trust.View, trusted ca.Trust) *x509.Certificate {
	if len(trusted) == 1 {
		return trusted[0]
	}
	hash := sha256.Sum256(trusted[1].Raw)
	signer := c.cfg.TLS.state.Load().signer
	if signer != nil && signer.Equal(trusted[1]) || len(behind(view, t, func(m *trust.Member) bool { return m.Trusts == hash })) == 0 {
		return trusted[1]
	}
	return trusted[0]
}

// keepCertificate has this member show a certificate of the authority, for a new key
// if all were asked for new ones. Where the authority's key is elsewhere it asks
// those who have it.
func (c *Cluster) keepCertificate(t *trust.View, target *x509.Certificate) error {
	own := c.cfg.TLS
	s, newKey := own.state.Load(), c.kept().Epoch < t.Epoch
	if s.signer != nil && s.signer.Equal(target) && !newKey && !own.due() {
		return nil
	}
	err := own.renewBy(target, newKey)
	if incumbent.KindOf(err) == incumbent.NotFound {
		csr, err := own.request(newKey)
		if err != nil {
			return err
		}
		hash := sha256.Sum256(target.Raw)
		c.askOthers(trustFrame{Want: wantCertificate, Hash: hash[:], For: c.id, Data: csr})
		return nil
	}
	if err != nil || !newKey {
		return err
	}
	return c.noteEpoch(t.Epoch)
}

// noteEpoch remembers that the key which is shown was made since all were asked for
// new ones.
func (c *Cluster) noteEpoch(epoch uint64) error {
	return c.rewrite(func(r *Record) bool {
		changed := r.Epoch != epoch
		r.Epoch = epoch
		return changed
	})
}
