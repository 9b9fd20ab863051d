package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// SetPolicy stores a policy in the place of the one of its name. With ifIndex it
// fails with the kind Conflict unless that was last modified then, 0: unless it is
// not there. Only operators may.
func (c *Client) SetPolicy(ctx context.Context, p *apiv1.Policy, ifIndex *incumbent.Index) (*apiv1.Policy, error) {
	r := &apiv1.SetPolicyRequest{Policy: p}
	if ifIndex != nil {
		r.Condition = &apiv1.SetPolicyRequest_IfIndex{IfIndex: uint64(*ifIndex)}
	}
	res, err := called(c.policies.SetPolicy(ctx, connect.NewRequest(r)))
	return res.GetPolicy(), err
}

// DeletePolicy deletes a policy, and reports whether it was there. ifIndex is that of
// SetPolicy.
func (c *Client) DeletePolicy(ctx context.Context, name string, ifIndex *incumbent.Index) (bool, error) {
	r := &apiv1.DeletePolicyRequest{Name: name}
	if ifIndex != nil {
		r.Condition = &apiv1.DeletePolicyRequest_IfIndex{IfIndex: uint64(*ifIndex)}
	}
	res, err := called(c.policies.DeletePolicy(ctx, connect.NewRequest(r)))
	return res.GetDeleted(), err
}

// Policy reads a policy, or fails with the kind NotFound.
func (c *Client) Policy(ctx context.Context, name string) (*apiv1.Policy, error) {
	res, err := called(c.policies.GetPolicy(ctx, connect.NewRequest(&apiv1.GetPolicyRequest{Name: name})))
	return res.GetPolicy(), err
}

// Policies reads all policies, in the order of their names, a page at a time: each is
// of a state of its own.
func (c *Client) Policies(ctx context.Context) ([]*apiv1.Policy, error) {
	var all []*apiv1.Policy
	r := &apiv1.ListPoliciesRequest{}
	for {
		res, err := called(c.policies.ListPolicies(ctx, connect.NewRequest(r)))
		if err != nil {
			return nil, err
		}
		all = append(all, res.Policies...)
		if !res.More || len(res.Policies) == 0 {
			return all, nil
		}
		r.After = all[len(all)-1].Name
	}
}

// TestPolicy asks whether a principal would be allowed something, and by which rule.
func (c *Client) TestPolicy(ctx context.Context, r *apiv1.TestPolicyRequest) (*apiv1.TestPolicyResponse, error) {
	return called(c.policies.TestPolicy(ctx, connect.NewRequest(r)))
}
