package client

import (
	"context"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// Credentials returns the plain calls on the cluster's credentials. Their errors are
// *incumbent.Error behind [AsError].
func (c *Client) Credentials() incumbentv1connect.CredentialServiceClient { return c.creds }

// CreateCredential makes a credential. Repeated by this client when an answer is
// lost, it still takes effect once.
func (c *Client) CreateCredential(ctx context.Context, r *apiv1.CreateCredentialRequest) (*apiv1.Credential, error) {
	if r.Idempotency == nil {
		r.Idempotency = c.NewKey()
	}
	res, err := called(c.creds.Create(ctx, connect.NewRequest(r)))
	return res.GetCredential(), err
}

// RevokeCredential takes a credential or certificate back: on every member that hears
// of the leader, connections and calls that it had begun end within a second.
func (c *Client) RevokeCredential(ctx context.Context, r *apiv1.RevokeCredentialRequest) (*apiv1.Credential, error) {
	if r.Idempotency == nil {
		r.Idempotency = c.NewKey()
	}
	res, err := called(c.creds.Revoke(ctx, connect.NewRequest(r)))
	return res.GetCredential(), err
}

// ListCredentials calls page with the credentials by id, as they come: each page is of
// a state of its own. It ends with an error of page's.
func (c *Client) ListCredentials(ctx context.Context, r *apiv1.ListCredentialsRequest, page func(*apiv1.ListCredentialsResponse) error) error {
	for {
		res, err := called(c.creds.List(ctx, connect.NewRequest(r)))
		if err != nil {
			return err
		}
		if err := page(res); err != nil || res.Next == 0 {
			return err
		}
		r.After = res.Next
	}
}
