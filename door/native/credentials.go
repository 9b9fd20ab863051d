package native

import (
	"cmp"
	"context"
	"encoding/hex"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/credential"
)

// Limits of the calls.
const (
	maxCredentialPage = 1000                                                 // credentials in one answer
	maxLifetimeMs     = int64(100 * 365 * 24 * time.Hour / time.Millisecond) // of a certificate: longer than that of any authority
)

// Credentials is what the door needs to know of credentials besides the state.
type Credentials struct {
	// Account says what is wrong with the model and the tag of one of Juju's agents.
	// nil: nothing ever is.
	Account func(model, tag string) error
	// Sign makes a certificate (PEM), with that of its authority. nil: this member
	// cannot.
	Sign func(request []byte, p auth.Principal, hosts []string, lifetime time.Duration) (cert, authority []byte, err error)
}

// credentialService serves CredentialService; its methods are documented in
// credential.proto. The gate lets operators in alone.
type credentialService struct{ d *Door }

// Create makes a credential.
func (s credentialService) Create(ctx context.Context, r *connect.Request[pb.CreateCredentialRequest]) (*connect.Response[pb.CreateCredentialResponse], error) {
	c, err := s.d.newCredential(r.Msg)
	if err != nil {
		return nil, s.d.callError(err)
	}
	made, err := s.d.changeCredential(ctx, calls.CreateCredential, c, r.Msg.Idempotency)
	return unary(&pb.CreateCredentialResponse{Credential: made}, err)
}

func (d *Door) newCredential(in *pb.CreateCredentialRequest) (*credential.Command, error) {
	c := &credential.Command{Verb: credential.Create, Principal: in.Principal, EndSessions: in.EndSessions}
	var err error
	if c.Ends, err = momentIn("ends_unix_ms", in.EndsUnixMs); err != nil {
		return nil, err
	}
	switch is := in.Secret.(type) {
	case *pb.CreateCredentialRequest_TokenSha256:
		c.Method, c.Secret = credential.Token, is.TokenSha256
		if _, err := auth.ParsePrincipal(in.Principal); err != nil {
			return nil, inField("principal", err)
		}
	case *pb.CreateCredentialRequest_Password:
		if in.Principal != "" {
			return nil, invalid("principal", "follows from the tag of a password; leave it out")
		}
		if err := d.passwordIn(c, is.Password); err != nil {
			return nil, err
		}
	default:
		return nil, invalid("secret", "is missing: token_sha256 or password")
	}
	return c, c.Validate()
}

func (d *Door) passwordIn(c *credential.Command, in *pb.PasswordSecret) error {
	if err := auth.ValidateSecret(in.GetSecret()); err != nil {
		return inField("password.secret", err)
	}
	if d.credentials.Account != nil {
		if err := d.credentials.Account(in.Model, in.Tag); err != nil {
			return inField("password", err)
		}
	}
	for _, word := range in.Grants {
		g, err := auth.ParseGrant(word)
		if err != nil {
			return inField("password.grants", err)
		}
		c.Grants |= uint64(g)
	}
	c.Method, c.Secret = credential.Password, []byte(in.Secret)
	c.Principal, c.Scope = auth.Principal{Kind: auth.Agent, Name: in.Tag}.String(), in.Model
	return nil
}

// Revoke takes one back.
func (s credentialService) Revoke(ctx context.Context, r *connect.Request[pb.RevokeCredentialRequest]) (*connect.Response[pb.RevokeCredentialResponse], error) {
	c, err := revocationOf(r.Msg)
	if err != nil {
		return nil, s.d.callError(err)
	}
	gone, err := s.d.changeCredential(ctx, calls.RevokeCredential, c, r.Msg.Idempotency)
	return unary(&pb.RevokeCredentialResponse{Credential: gone}, err)
}

func revocationOf(in *pb.RevokeCredentialRequest) (*credential.Command, error) {
	c := &credential.Command{EndSessions: in.EndSessions}
	switch is := in.Which.(type) {
	case *pb.RevokeCredentialRequest_Id:
		c.Verb, c.ID = credential.End, incumbent.Index(is.Id)
	case *pb.RevokeCredentialRequest_Certificate:
		serial, err := auth.ParseSerial(is.Certificate.GetSerial())
		if err != nil {
			return nil, inField("certificate.serial", err)
		}
		c.Verb, c.Secret, c.Principal = credential.Revoke, serial, is.Certificate.Principal
		if c.Ends, err = momentIn("certificate.ends_unix_ms", is.Certificate.EndsUnixMs); err != nil {
			return nil, err
		}
		if c.Principal == "" && c.EndSessions {
			return nil, invalid("certificate.principal", "is needed to end sessions")
		}
	default:
		return nil, invalid("which", "is missing: id or certificate")
	}
	return c, c.Validate()
}

func momentIn(field string, ms int64) (credential.Moment, error) {
	m := credential.MomentOf(time.UnixMilli(ms))
	if ms != 0 && m == 0 {
		return 0, invalid(field, "%d is no moment", ms)
	}
	return m, nil
}

// changeCredential executes a command for a caller who waits, and returns the record
// as it left it.
func (d *Door) changeCredential(ctx context.Context, call calls.Call, c *credential.Command, key *pb.Idempotency) (*pb.Credential, error) {
	r, err := d.change(ctx, change{call: call, command: *c, key: key, reserve: c.Verb != credential.Create, about: "credentials"})
	if err != nil {
		return nil, d.callError(err)
	}
	return d.credentialPB(d.credentialAfter(c, r)), nil
}

// credentialAfter is the record that a command has left. Of a known key only the
// outcome was kept: then it is as it is now.
func (d *Door) credentialAfter(c *credential.Command, r core.Result) *credential.Credential {
	found, _ := r.Record.(*credential.Credential)
	if found == nil {
		switch v := credential.Of(d.view()); c.Verb {
		case credential.Create:
			found = v.Get(r.Index)
		case credential.Revoke:
			found = v.Certificate(c.Secret)
		default:
			found = v.Get(c.ID)
		}
	}
	return found
}

// List reads a page.
func (s credentialService) List(ctx context.Context, r *connect.Request[pb.ListCredentialsRequest]) (*connect.Response[pb.ListCredentialsResponse], error) {
	return reading(ctx, s.d, calls.ListCredentials.Lane(), false, func(f *former) (*pb.ListCredentialsResponse, error) {
		limit := cmp.Or(int(r.Msg.Limit), maxCredentialPage)
		if limit > maxCredentialPage {
			return nil, invalid("limit", "%d is over %d", limit, maxCredentialPage)
		}
		out := &pb.ListCredentialsResponse{Index: uint64(f.view.Index())}
		credential.Of(f.view).Ascend(incumbent.Index(r.Msg.After), func(c *credential.Credential) bool {
			if !c.Live() && c.Method != credential.Certificate && !r.Msg.All {
				return true
			}
			if len(out.Credentials) == limit {
				out.Next = out.Credentials[limit-1].Id
				return false
			}
			out.Credentials = append(out.Credentials, s.d.credentialPB(c))
			return true
		})
		return out, nil
	})
}

// credentialPB writes a record, without its secret; nil gives nil.
func (d *Door) credentialPB(c *credential.Credential) *pb.Credential {
	if c == nil {
		return nil
	}
	p := &pb.Credential{
		Id: uint64(c.ID), Method: pb.CredentialMethod(c.Method), Principal: c.Principal, Scope: c.Scope, Grants: auth.Grant(c.Grants).Words(),
		CreatedUnixMs: int64(c.Created), CreatedBy: c.CreatedBy, EndsUnixMs: int64(c.Ends), EndSessions: c.EndSessions,
		EndedUnixMs: int64(c.EndedAt), EndedBy: c.EndedBy,
	}
	switch {
	case c.LetsIn(d.now()):
		p.State = pb.CredentialState_CREDENTIAL_STATE_VALID
	case c.Live(), c.Expired:
		p.State = pb.CredentialState_CREDENTIAL_STATE_ENDED
	default:
		p.State = pb.CredentialState_CREDENTIAL_STATE_REVOKED
	}
	if c.Method == credential.Certificate {
		p.Serial = hex.EncodeToString(c.Secret)
	}
	return p
}

// Sign makes a client certificate.
func (s credentialService) Sign(ctx context.Context, r *connect.Request[pb.SignCertificateRequest]) (*connect.Response[pb.SignCertificateResponse], error) {
	done, err := s.d.admit(ctx, calls.CreateCredential.Lane(), 1)
	if err != nil {
		return nil, s.d.callError(err)
	}
	defer done()
	who, err := auth.ParsePrincipal(r.Msg.Principal)
	switch {
	case err != nil:
		return nil, s.d.callError(inField("principal", err))
	case s.d.credentials.Sign == nil:
		return nil, s.d.callError(incumbent.Errorf(incumbent.NotFound, "this member has no authority that signs").
			WithHint("ask another member, or run 'incumbent tls issue --data-dir' where the authority's key is"))
	case r.Msg.LifetimeMs < 0 || r.Msg.LifetimeMs > maxLifetimeMs:
		return nil, s.d.callError(invalid("lifetime_ms", "%d is outside 0 to %d", r.Msg.LifetimeMs, maxLifetimeMs))
	}
	placeOf(ctx).doing(true)
	cert, authority, err := s.d.credentials.Sign(r.Msg.Request, who, r.Msg.Hosts, time.Duration(r.Msg.LifetimeMs)*time.Millisecond)
	if err != nil {
		return nil, s.d.callError(err)
	}
	s.d.log.Info("client certificate signed", "for", who.String(), "by", callerOf(ctx).name(), "address", callerOf(ctx).address)
	return connect.NewResponse(&pb.SignCertificateResponse{Certificate: cert, Authority: authority}), nil
}
