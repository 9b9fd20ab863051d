package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/trust"
	"github.com/incumbent-dev/incumbent/node"
)

// CreateToken implements native.Membership.
func (c *Cluster) CreateToken(ctx context.Context, r *apiv1.CreateTokenRequest, by string) (*apiv1.CreateTokenResponse, error) {
	life := ca.DefaultTokenLife
	if r.TtlMs > 0 {
		if r.TtlMs > uint64(ca.MaxTokenLife/time.Millisecond) || r.TtlMs < uint64(ca.MinTokenLife/time.Millisecond) {
			return nil, incumbent.Errorf(incumbent.Invalid, "ttl_ms %d is outside %v to %v", r.TtlMs, ca.MinTokenLife, ca.MaxTokenLife)
		}
		life = time.Duration(r.TtlMs) * time.Millisecond
	}
	if c.peers == nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "this member does not listen for others").
			WithHint("start it with --peer-listen HOST:PORT")
	}
	if err := ValidName(r.Name); err != nil || r.Name == "" {
		return nil, incumbent.Errorf(incumbent.Invalid, "name %q of the member that the token is for is not 1 to 63 letters, digits, dots, dashes and underscores", r.Name)
	}
	if err := c.founded(ctx); err != nil {
		return nil, err
	}
	return c.makeToken(ctx, r, time.Now().Add(life), by)
}

// makeToken has a token recorded before anybody gets it.
func (c *Cluster) makeToken(ctx context.Context, r *apiv1.CreateTokenRequest, ends time.Time, by string) (*apiv1.CreateTokenResponse, error) {
	t := ca.Token{Addresses: []string{c.cfg.URL}, Cluster: c.node.Status().Cluster, Name: r.Name, Expires: ends.Truncate(time.Second)}
	for _, m := range c.engine.View().Members() {
		if m.ClientURL != "" && m.ClientURL != c.cfg.URL && len(t.Addresses) < ca.MaxTokenAddresses {
			t.Addresses = append(t.Addresses, m.ClientURL)
		}
	}
	var err error
	if t.CAHash, t.Own, err = c.cfg.CAHash(); err != nil {
		return nil, err
	}
	secret := c.tokenSecret()
	if secret == nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "this member does not have the cluster's secret yet")
	}
	text, err := ca.NewToken(secret, &t)
	if err != nil {
		return nil, err
	}
	offer := trust.Command{Verb: trust.Offer, Now: time.Now().UTC().Truncate(time.Second), Token: trust.Token{
		ID: t.ID, Name: t.Name, Expires: t.Expires.UTC(), Signer: r.Signer, Maker: by,
	}}
	if _, err := c.propose(ctx, offer); err != nil {
		return nil, err
	}
	id := hex.EncodeToString(t.ID[:])
	c.cfg.Event("join token made", r.Name, "token "+id+" until "+t.Expires.UTC().Format(time.RFC3339)+", by "+by)
	return &apiv1.CreateTokenResponse{Token: text, ExpiresUnixMs: t.Expires.UnixMilli(), Id: id}, nil
}

// Join implements native.Membership: the leader's side of joining. Whoever asks, and
// what became of it, is in the timeline; the token never is.
func (c *Cluster) Join(ctx context.Context, r *apiv1.JoinRequest, from string) (*apiv1.JoinResponse, error) {
	var out *apiv1.JoinResponse
	by := "what is no token"
	token, err := ca.ParseToken(r.Token)
	if err == nil {
		by = fmt.Sprintf("token %x", token.ID)
		out, err = c.join(ctx, r, token)
	}
	who := fmt.Sprintf("id %q from %s with %s", text(r.MemberId), from, by)
	switch kind := incumbent.KindOf(err); {
	case err == nil:
		c.cfg.Event("member joins", text(r.Name), who)
		c.cfg.Logger.Info("member joins", "name", text(r.Name), "id", text(r.MemberId), "from", from, "by", by)
	case kind != incumbent.NotLeader && !kind.Transient():
		c.trust.refusals.note(time.Since(c.begun), func(more int) {
			if more > 0 {
				who += fmt.Sprintf(", and %d more", more)
			}
			c.cfg.Event("join refused", text(r.Name), who+": "+err.Error())
			c.cfg.Logger.Warn("join refused", "name", text(r.Name), "id", text(r.MemberId), "from", from, "by", by, "cause", err)
		})
	}
	return out, err
}

// text is what a stranger says, for people.
func text(s string) string {
	return strings.Trim(strconv.QuoteToASCII(s[:min(len(s), core.MaxMemberName)]), `"`)
}

func (c *Cluster) join(ctx context.Context, r *apiv1.JoinRequest, token ca.Token) (*apiv1.JoinResponse, error) {
	if err := token.Verify(c.secrets(), c.node.Status().Cluster); err != nil {
		return nil, err
	}
	m, err := joiner(r)
	if err != nil {
		return nil, err
	}
	st, err := c.leading()
	if err != nil {
		return nil, err
	}
	if c.peers == nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "this member does not listen for others").WithHint("start it with --peer-listen HOST:PORT")
	}
	if err := c.confirm(ctx); err != nil {
		return nil, err
	}
	spend := trust.Command{Verb: trust.Spend, Now: time.Now().UTC().Truncate(time.Second), Token: trust.Token{ID: token.ID, Name: m.Name, Spender: m.ID}}
	if c.cfg.TLS != nil {
		if spend.Token.Key, err = ca.KeyHash(r.Csr); err != nil {
			return nil, err
		}
	}
	if err := c.admissible(m, &spend); err != nil {
		return nil, err
	}
	if err := c.displaceable(st, m); err != nil {
		return nil, err
	}
	if _, err := c.propose(ctx, spend); err != nil {
		return nil, err
	}
	if err := c.admitMember(ctx, st, m); err != nil {
		return nil, err
	}
	c.steward.wake()
	return c.welcomeMember(ctx, m, r.Csr)
}

// joiner checks what a member says of itself.
func joiner(r *apiv1.JoinRequest) (core.Member, error) {
	m := core.Member{
		ID: ParseID(r.MemberId), Name: r.Name, PeerAddress: r.PeerAddress, ClientURL: r.ClientUrl,
		Schema: r.Schema, Learner: r.Learner, Version: r.Version,
	}
	if m.ID == 0 {
		return m, incumbent.Errorf(incumbent.Invalid, "member_id %q is not 16 hexadecimal digits", r.MemberId)
	}
	if m.Name == "" {
		return m, invalid("name", "is not set")
	}
	if err := ValidName(m.Name); err != nil {
		return m, err
	}
	if err := ValidReachable("peer-listen", m.PeerAddress); err != nil {
		return m, err
	}
	if err := m.Validate(); err != nil { // before the token is spent, and another makes room
		return m, err
	}
	if u, err := url.Parse(m.ClientURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return m, invalid("advertise", "%q is no URL of a native API", m.ClientURL)
	}
	return m, nil
}

// admissible refuses a joiner that cannot become a member, before its token is spent. Whose
// token is worth nothing is told that, and learns no more.
func (c *Cluster) admissible(m core.Member, spend *trust.Command) error {
	view := c.engine.View()
	if err := trust.Of(view).Refusal(&spend.Token, spend.Now); err != nil {
		return err
	}
	if view.MemberGone(m.ID) {
		return incumbent.Errorf(incumbent.Conflict, "member %s was removed from this cluster and its id is gone", FormatID(m.ID)).
			WithHint("empty the data directory and join again")
	}
	if active := view.ActiveSchema(); m.Schema < active {
		return invalid("join", "this binary knows schema %d, the cluster has reached %d", m.Schema, active).WithHint("start a newer binary")
	}
	if _, ok := view.Member(m.ID); ok || m.ID == c.id || c.Connected(m.ID) {
		if have := trust.Of(view).Member(m.ID); m.ID == c.id || c.Connected(m.ID) || have == nil || have.Token != spend.Token.ID {
			return incumbent.Errorf(incumbent.Denied, "id %s belongs to a member", FormatID(m.ID)).
				WithHint("a member that has joined needs no token; one that lost its data joins with an empty data directory, under a new id")
		}
	}
	others, voting := 0, 0
	for _, other := range view.Members() {
		if other.ID == m.ID || other.Name == m.Name {
			continue
		}
		others++
		if !other.Learner {
			voting++
		}
	}
	if others >= core.MaxMembers {
		return incumbent.Errorf(incumbent.TooLarge, "there are %d members, limit is %d", others, core.MaxMembers)
	}
	if !m.Learner && voting >= MaxVoters {
		return incumbent.Errorf(incumbent.TooLarge, "%d members vote, limit is %d", voting, MaxVoters).WithHint("join with --learner")
	}
	return nil
}

// admitMember records a joiner, and makes room for it where a dead member has
// its name. Asked twice it does the same once.
func (c *Cluster) admitMember(ctx context.Context, st node.Status, m core.Member) error {
	view := c.engine.View()
	if have, ok := view.Member(m.ID); ok {
		m.Learner = have.Learner // promoted meanwhile, maybe
	}
	if err := c.displaceable(st, m); err != nil {
		return err
	}
	for _, other := range view.Members() {
		if other.Name != m.Name || other.ID == m.ID {
			continue
		}
		c.cfg.Event("member replaced", other.Name, FormatID(other.ID)+" by "+FormatID(m.ID))
		if _, err := c.propose(ctx, core.RemoveMemberCommand{ID: other.ID}); err != nil {
			return err
		}
	}
	_, err := c.propose(ctx, core.PutMemberCommand{Member: m})
	return err
}

// displaceable refuses a joiner whose name a member has that lives.
func (c *Cluster) displaceable(st node.Status, m core.Member) error {
	for _, other := range c.engine.View().Members() {
		if other.Name != m.Name || other.ID == m.ID {
			continue
		}
		if other.ID == st.Member || c.Connected(other.ID) {
			return incumbent.Errorf(incumbent.Exists, "member %s (%s) is alive at %s", other.Name, FormatID(other.ID), other.PeerAddress).
				WithHint("choose another --name, or stop that member first")
		}
	}
	return nil
}

// welcomeMember is what a joiner gets to know: nothing by which it could be anybody
// but itself.
func (c *Cluster) welcomeMember(ctx context.Context, m core.Member, csr []byte) (*apiv1.JoinResponse, error) {
	st := c.node.Status()
	out := &apiv1.JoinResponse{ClusterId: hex.EncodeToString(st.Cluster[:]), MemberId: FormatID(m.ID), Members: c.Show(c.Heard())}
	if c.cfg.TLS == nil {
		return out, nil
	}
	var err error
	out.Ca = c.cfg.TLS.state.Load().trust.PEM()
	out.Certificate, err = c.signFor(ctx, m.ID, csr)
	return out, err
}
