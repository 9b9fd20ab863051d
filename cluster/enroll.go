package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Timing of joining.
const (
	enrollCall       = 5 * time.Second // for one answer
	enrollPause      = 100 * time.Millisecond
	enrollPauseLimit = 2 * time.Second
	maxEnrollHops    = 4 // leaders followed before pausing
)

// JoinConfig says who joins, and by which token.
type JoinConfig struct {
	DataDir, Name, Version string
	Schema                 uint32 // newest that this member knows
	Token                  string // of the cluster to join; "": this member joins none
	Learner                bool
	TLSCert, TLSKey        string // PEM files that are shown to who asks for a certificate; may be empty
	PeerAddress, ClientURL string // where others and clients reach this member
	Logger                 *slog.Logger
}

// enrollment is one member's attempt to join.
type enrollment struct {
	cfg    JoinConfig
	token  ca.Token
	record *Record
	key    *ecdsa.PrivateKey
	tls    *tls.Config // without the check of who answers: see client
}

// enroll makes an empty data directory, or one that was left while joining, a
// member of the token's cluster. It asks until somebody answers, ctx ends or the
// answer is no. Cut short anywhere and begun again it comes to the same end: the
// id is durable before anybody hears it.
func enroll(ctx context.Context, cfg JoinConfig, r *Record) (*Record, error) {
	token, err := ca.ParseToken(cfg.Token)
	if err != nil {
		return nil, err
	}
	if token.Name != cfg.Name {
		hint := "'incumbent cluster token " + cfg.Name + "' on a member prints one; without --name the token says it"
		if r != nil {
			hint = "it began to join under that name: give another data directory, or empty this one"
		}
		return nil, invalid("name", "this member is %q, the join token is for %q", cfg.Name, token.Name).WithHint(hint)
	}
	e := &enrollment{cfg: cfg, token: token, record: r}
	if err := e.prepare(); err != nil {
		return nil, err
	}
	if err := e.dialer(); err != nil {
		return nil, err
	}
	answer, err := e.ask(ctx)
	if err != nil {
		return nil, err
	}
	return e.record, e.keep(answer)
}

// prepare makes id and key durable.
func (e *enrollment) prepare() error {
	if err := vfs.MkdirAll(vfs.OS{}, e.cfg.DataDir); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "setting data-dir: %w", err)
	}
	if e.record == nil {
		e.record = &Record{Stage: joining, ID: FormatID(newMemberID()), Name: e.cfg.Name, Clustered: true}
		if err := e.record.Write(e.cfg.DataDir); err != nil {
			return err
		}
	}
	var err error
	e.key, err = ReadOrMakeKey(filepath.Join(e.cfg.DataDir, tlsFolder, memberKey))
	return err
}

// dialer prepares the clients that ask. With a hash in the token it trusts a chain that
// holds the certificate of that hash, and nothing else, for the host that it asks:
// who has another certificate of the same authority does not get the token.
func (e *enrollment) dialer() error {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(e.cfg.TLSCert, e.cfg.TLSKey)
		if err != nil {
			return incumbent.Errorf(incumbent.Invalid, "setting tls-cert: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	conf.InsecureSkipVerify = e.token.CAHash != "" //nolint:gosec // client has the chain checked against the token's hash, and the host
	e.tls = conf
	return nil
}

// client asks one host.
func (e *enrollment) client(host string) *http.Client {
	conf := e.tls.Clone()
	if e.token.CAHash != "" {
		conf.VerifyConnection = func(cs tls.ConnectionState) error { return e.verify(cs, host) }
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (e *enrollment) verify(cs tls.ConnectionState, host string) error {
	chain := cs.PeerCertificates
	i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return ca.Hash(c) == e.token.CAHash })
	if i < 0 {
		return incumbent.Errorf(incumbent.Denied, "the server does not show the certificate that the join token names")
	}
	if e.token.Own && !ca.IsMember(chain[0], e.token.Cluster) {
		return incumbent.Errorf(incumbent.Denied, "the server shows a certificate that is not of a member of cluster %x", e.token.Cluster)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(chain[i])
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	// Of the host, and for a server: not for a client of the same authority.
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host, CurrentTime: time.Now()})
	if err != nil {
		return incumbent.Errorf(incumbent.Denied, "the server's certificate: %w", err)
	}
	return nil
}

// ask goes from member to member until one answers for good.
func (e *enrollment) ask(ctx context.Context) (*apiv1.JoinResponse, error) {
	req, err := e.request()
	if err != nil {
		return nil, err
	}
	pause := enrollPause
	for {
		answer, last := e.round(ctx, req)
		if last == nil {
			return answer, nil
		}
		if !worthAsking(last) {
			return nil, last
		}
		e.cfg.Logger.Warn("not joined yet", "cause", last, "again_after", pause, "hint", e.remedy(last))
		select {
		case <-time.After(pause + rand.N(pause)):
		case <-ctx.Done():
			return nil, incumbent.Errorf(incumbent.Unavailable, "not joined: %w", last).WithHint(e.remedy(last))
		}
		pause = min(2*pause, enrollPauseLimit)
	}
}

// remedy is what may help: what who answered says, if somebody did.
func (e *enrollment) remedy(last error) string {
	var typed *incumbent.Error
	if errors.As(last, &typed) && typed.Hint != "" {
		return typed.Hint
	}
	return "is a member of the cluster running, and can this machine reach it? the join token names " + e.token.Addresses[0]
}

// worthAsking reports whether the same question may be answered otherwise later.
func worthAsking(err error) bool {
	switch k := incumbent.KindOf(err); k {
	case incumbent.DeadlineExceeded, incumbent.Unknown:
		return true // asking again is safe: the id is the same
	default:
		return k.Transient()
	}
}

// round asks each address once, and whoever they say leads.
func (e *enrollment) round(ctx context.Context, req *apiv1.JoinRequest) (answer *apiv1.JoinResponse, err error) {
	queue := slices.Clone(e.token.Addresses)
	for hops := 0; len(queue) > 0; {
		at := queue[0]
		queue = queue[1:]
		if answer, err = e.askOne(ctx, at, req); err == nil || !worthAsking(err) {
			return answer, err
		}
		var typed *incumbent.Error
		if errors.As(err, &typed) && typed.Kind == incumbent.NotLeader && typed.Leader != "" && hops < maxEnrollHops {
			hops++
			queue = slices.Insert(queue, 0, typed.Leader)
		}
	}
	return nil, err
}

func (e *enrollment) askOne(ctx context.Context, at string, req *apiv1.JoinRequest) (*apiv1.JoinResponse, error) {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%q is no URL of a member", at)
	}
	if e.token.CAHash != "" && u.Scheme != "https" {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s is not TLS, as the join token demands", at)
	}
	ctx, cancel := context.WithTimeout(ctx, enrollCall)
	defer cancel()
	asking := e.client(u.Hostname())
	defer asking.CloseIdleConnections()
	c := incumbentv1connect.NewClusterServiceClient(asking, at)
	res, err := c.Join(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, joinError(at, err)
	}
	return res.Msg, nil
}

// joinError turns what the call returned into the module's error.
func joinError(at string, err error) error {
	var own *incumbent.Error
	if errors.As(err, &own) { // verify's
		return incumbent.Errorf(own.Kind, "%s: %w", at, own)
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		for _, d := range ce.Details() {
			m, derr := d.Value()
			detail, ok := m.(*apiv1.Error)
			if derr != nil || !ok {
				continue
			}
			kind, known := incumbent.ParseKind(detail.Kind)
			if !known {
				kind = incumbent.Unavailable
			}
			return &incumbent.Error{
				Kind: kind, Message: detail.Message, Hint: detail.Hint, Member: detail.Member, Leader: detail.Leader,
				RetryAfter: time.Duration(detail.RetryAfterMs) * time.Millisecond,
			}
		}
	}
	return incumbent.Errorf(incumbent.Unavailable, "%s: %w", at, err)
}

func (e *enrollment) request() (*apiv1.JoinRequest, error) {
	csr, err := ca.Request(e.key, e.record.Name, HostsOf(nil, e.cfg.PeerAddress, e.cfg.ClientURL))
	if err != nil {
		return nil, err
	}
	return &apiv1.JoinRequest{
		Token: e.cfg.Token, Name: e.record.Name, MemberId: e.record.ID, PeerAddress: e.cfg.PeerAddress, ClientUrl: e.cfg.ClientURL,
		Learner: e.cfg.Learner, Schema: e.cfg.Schema, Version: e.cfg.Version, Csr: csr,
	}, nil
}

// keep makes the answer durable; the record last, which makes it count. The token is
// kept until the others have given this member the cluster's secret.
func (e *enrollment) keep(answer *apiv1.JoinResponse) error {
	cluster, ok := ParseClusterID(answer.ClusterId)
	if !ok || cluster != e.token.Cluster || answer.MemberId != e.record.ID || (len(answer.Certificate) > 0) != (len(answer.Ca) > 0) {
		return incumbent.Errorf(incumbent.Internal, "the answer to joining is for member %q of cluster %q", answer.MemberId, answer.ClusterId)
	}
	if len(answer.Certificate) > 0 {
		if err := e.keepTLS(answer); err != nil {
			return err
		}
	}
	e.record.Stage, e.record.Cluster, e.record.Token = joined, answer.ClusterId, e.cfg.Token
	e.record.Members = nil
	for _, m := range answer.Members {
		e.record.Members = append(e.record.Members, KnownMember{ID: m.Id, Name: m.Name, Peer: m.PeerAddress, URL: m.Address})
	}
	return e.record.Write(e.cfg.DataDir)
}

func (e *enrollment) keepTLS(answer *apiv1.JoinResponse) error {
	if _, err := ca.ParseTrust(answer.Ca); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{memberCert, answer.Certificate}, {caCertFile, answer.Ca}} {
		if err := WriteFile(filepath.Join(e.cfg.DataDir, tlsFolder, f.name), f.text); err != nil {
			return err
		}
	}
	return nil
}
