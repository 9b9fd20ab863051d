package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/trust"
)

// Trust implements native.Membership.
func (c *Cluster) Trust(_ context.Context, _ *apiv1.GetTrustRequest) (*apiv1.GetTrustResponse, error) {
	view := c.engine.View()
	t := trust.Of(view)
	out := &apiv1.GetTrustResponse{SecretRotating: len(t.Secret.Next) > 0, Authority: hashOf(t.Authority.Current), NextAuthority: hashOf(t.Authority.Next)}
	if c.cfg.TLS != nil {
		out.Ca = c.cfg.TLS.state.Load().trust.PEM()
	}
	newest := sha256.Sum256(cmpOr(t.Authority.Next, t.Authority.Current))
	secret := cmpOr(t.Secret.Next, t.Secret.Current)
	for _, m := range view.Members() {
		one := &apiv1.MemberTrust{Name: m.Name, Id: FormatID(m.ID)}
		if has := t.Member(m.ID); has != nil {
			one.HasSecret = bytes.Equal(has.Secret[:], secret)
			one.TrustsAuthority, one.ShowsAuthority = has.Trusts == newest, has.Shows == newest
			one.Signs, one.Signer, one.KeyRenewed = has.Signs, has.Signer, has.Epoch >= t.Epoch
		}
		out.Members = append(out.Members, one)
	}
	slices.SortFunc(out.Members, func(a, b *apiv1.MemberTrust) int { return cmp.Compare(a.Name, b.Name) })
	for _, k := range t.Tokens() {
		one := &apiv1.JoinToken{Id: hex.EncodeToString(k.ID[:]), Name: k.Name, ExpiresUnixMs: k.Expires.UnixMilli(), Signer: k.Signer, Maker: k.Maker}
		if k.Spender != 0 {
			one.UsedBy = FormatID(k.Spender)
		}
		out.Tokens = append(out.Tokens, one)
	}
	return out, nil
}

func cmpOr(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

// hashOf is how an authority is named; "" for none.
func hashOf(der []byte) string {
	if len(der) == 0 {
		return ""
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// RotateTrust implements native.Membership.
func (c *Cluster) RotateTrust(ctx context.Context, r *apiv1.RotateRequest, by string) (*apiv1.RotateResponse, error) {
	if c.peers == nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "this member has no others, and nothing to exchange with them").
			WithHint("start it with --peer-listen HOST:PORT")
	}
	if err := c.founded(ctx); err != nil {
		return nil, err
	}
	c.trust.rotating.Lock()
	what, err := c.rotate(ctx, r)
	c.trust.rotating.Unlock()
	if err != nil {
		return nil, err
	}
	c.cfg.Event(what, c.cfg.Name, "by "+by)
	c.cfg.Logger.Info("exchange asked for", "what", what, "by", by)
	c.trust.wake()
	out, err := c.Trust(ctx, nil)
	return &apiv1.RotateResponse{Trust: out}, err
}

// rotate does what is asked for and says what that was.
func (c *Cluster) rotate(ctx context.Context, r *apiv1.RotateRequest) (string, error) {
	view := c.engine.View()
	t := trust.Of(view)
	switch {
	case r.Finish && r.Abandon:
		return "", incumbent.Errorf(incumbent.Invalid, "an exchange is finished or abandoned")
	case r.What == apiv1.Rotation_ROTATION_SECRET && r.Abandon:
		return "rotation of the secret abandoned", c.abandon(ctx, trust.Secret, t.Secret.Next)
	case r.What == apiv1.Rotation_ROTATION_SECRET && !r.Finish:
		return "rotation of the secret begins", c.beginSecret(ctx, t)
	case r.What == apiv1.Rotation_ROTATION_CERTIFICATES && !r.Finish && !r.Abandon:
		_, err := c.propose(ctx, trust.Command{Verb: trust.Renew})
		return "rotation of the members' certificates begins", err
	case r.What != apiv1.Rotation_ROTATION_AUTHORITY:
		return "", incumbent.Errorf(incumbent.Invalid, "that cannot be done to %v", r.What)
	case c.cfg.TLS == nil || len(t.Authority.Current) == 0:
		return "", incumbent.Errorf(incumbent.NotFound, "the cluster has no authority of its own").WithHint("'incumbent cluster init' makes one, of the first member")
	case r.Finish:
		return "rotation of the authority finished", c.finishAuthority(ctx, view, t)
	case r.Abandon:
		hash := sha256.Sum256(t.Authority.Next)
		for _, m := range t.Members() {
			if m.Shows == hash {
				return "", incumbent.Errorf(incumbent.Conflict, "member %s shows a certificate of the new authority already", c.NameOf(m.ID)).
					WithHint("finish it, and begin another one then")
			}
		}
		return "rotation of the authority abandoned", c.abandon(ctx, trust.Authority, t.Authority.Next)
	default:
		return "rotation of the authority begins", c.beginAuthority(ctx, t, r.WithoutOldKey)
	}
}

func errUnderWay(what string) error {
	return incumbent.Errorf(incumbent.Conflict, "the cluster's %s is being exchanged already", what).
		WithHint("'incumbent cluster trust' says who is waited for")
}

// beginSecret makes the next secret, durably, before anybody hears of it. One that was
// made before and may yet be begun is proposed again: it would be lost.
func (c *Cluster) beginSecret(ctx context.Context, t *trust.View) error {
	if len(t.Secret.Next) > 0 {
		return errUnderWay("secret")
	}
	next := c.trust.nextSecret
	if next == nil {
		next = ca.NewSecret()
		if err := c.rewrite(func(r *Record) bool { r.Next = next; return true }); err != nil {
			return err
		}
	}
	hash := sha256.Sum256(next)
	_, err := c.propose(ctx, trust.Command{Verb: trust.Begin, What: trust.Secret, Was: t.Secret.Current, Value: hash[:]})
	keepUnknown(&c.trust.nextSecret, next, err)
	return err
}

// keepUnknown keeps what was proposed while it may yet be begun. A refusal changes nothing: it
// says nothing of an earlier attempt.
func keepUnknown[T any](kept *T, proposed T, err error) {
	switch {
	case err == nil:
		var none T
		*kept = none
	case incumbent.KindOf(err) == incumbent.Unknown:
		*kept = proposed
	}
}

// beginAuthority makes the next authority, and has the current one say that it is
// one. One that was made before and may yet be begun is proposed again.
func (c *Cluster) beginAuthority(ctx context.Context, t *trust.View, withoutOld bool) error {
	if len(t.Authority.Next) > 0 {
		return errUnderWay("authority")
	}
	now := c.cfg.TLS.now()
	next, err := c.trust.nextAuthority, error(nil)
	if next == nil {
		next, err = ca.New(t.Cluster, now)
	}
	if err != nil {
		return err
	}
	cmd := trust.Command{Verb: trust.Begin, What: trust.Authority, Was: t.Authority.Current, Value: next.Certificate().Raw}
	if !withoutOld {
		trusted, err := trustOf(t)
		if err != nil {
			return err
		}
		current, err := c.cfg.TLS.authority(trusted[0])
		if err != nil {
			return err
		}
		if cmd.Cross, err = current.Cross(next.Certificate(), now); err != nil {
			return err
		}
	}
	key, err := next.KeyPEM()
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(c.cfg.TLS.dir, caNextKeyFile), key); err != nil {
		return err
	}
	_, err = c.propose(ctx, cmd)
	keepUnknown(&c.trust.nextAuthority, next, err)
	return err
}

// finishAuthority ends the trust in the old authority, if every member can do
// without.
func (c *Cluster) finishAuthority(ctx context.Context, view *core.View, t *trust.View) error {
	if len(t.Authority.Next) == 0 {
		return incumbent.Errorf(incumbent.Conflict, "the cluster's authority is not being exchanged")
	}
	hash := sha256.Sum256(t.Authority.Next)
	if missing := behind(view, t, func(m *trust.Member) bool { return m.Shows == hash }); len(missing) > 0 {
		return incumbent.Errorf(incumbent.Conflict, "no certificate of the new authority is shown by %s yet", strings.Join(missing, ", ")).
			WithHint("wait for them; one that does not come back is removed by 'incumbent cluster rm'")
	}
	_, err := c.propose(ctx, trust.Command{Verb: trust.Finish, What: trust.Authority, Value: t.Authority.Next})
	return err
}

func (c *Cluster) abandon(ctx context.Context, what trust.What, next []byte) error {
	if len(next) == 0 {
		return incumbent.Errorf(incumbent.Conflict, "nothing is being exchanged")
	}
	_, err := c.propose(ctx, trust.Command{Verb: trust.Abandon, What: what, Value: next})
	return err
}

// Signers are the names of the members that have the key of the cluster's authority, and
// where clients reach them.
func (c *Cluster) Signers() (list []string) {
	view := c.engine.View()
	for _, m := range trust.Of(view).Members() {
		if info, there := view.Member(m.ID); m.Signs && there {
			list = append(list, info.Name+" ("+info.ClientURL+")")
		}
	}
	return list
}

// RevokeToken implements native.Membership.
func (c *Cluster) RevokeToken(ctx context.Context, r *apiv1.RevokeTokenRequest, by string) (*apiv1.RevokeTokenResponse, error) {
	id, err := hex.DecodeString(r.Id)
	if err != nil || len(id) != trust.TokenIDBytes {
		return nil, incumbent.Errorf(incumbent.Invalid, "id %q is not that of a join token", r.Id).WithHint("'incumbent cluster trust' lists them")
	}
	if err := c.founded(ctx); err != nil {
		return nil, err
	}
	if _, err := c.propose(ctx, trust.Command{Verb: trust.Withdraw, Token: trust.Token{ID: trust.TokenID(id)}}); err != nil {
		return nil, err
	}
	c.cfg.Event("join token revoked", r.Id, "by "+by)
	return &apiv1.RevokeTokenResponse{}, nil
}

// trustWarnings say what is being exchanged, and who is waited for.
func (c *Cluster) trustWarnings() (out []string) {
	if c.peers == nil {
		return nil
	}
	view := c.engine.View()
	t := trust.Of(view)
	if next := t.Secret.Next; len(next) > 0 {
		missing := behind(view, t, func(m *trust.Member) bool { return bytes.Equal(m.Secret[:], next) })
		out = append(out, "the cluster's secret is being exchanged"+waitsFor(missing))
	}
	if next := t.Authority.Next; len(next) > 0 {
		hash := sha256.Sum256(next)
		missing := behind(view, t, func(m *trust.Member) bool { return m.Shows == hash })
		out = append(out, "the cluster's authority is being exchanged"+waitsFor(missing)+"; end it with 'incumbent cluster rotate-ca --finish'")
	}
	return out
}

func waitsFor(missing []string) string {
	if len(missing) == 0 {
		return ""
	}
	slices.Sort(missing)
	return ", and waits for " + strings.Join(missing, ", ")
}
