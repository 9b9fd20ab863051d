package native

import (
	"cmp"
	"context"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// policyService serves PolicyService; its methods are documented in policy.proto.
type policyService struct{ d *Door }

// SetPolicy stores.
func (s policyService) SetPolicy(ctx context.Context, r *connect.Request[pb.SetPolicyRequest]) (*connect.Response[pb.SetPolicyResponse], error) {
	p, err := policyOf(r.Msg.Policy)
	if err != nil {
		return nil, s.d.callError(err)
	}
	c := policy.Command{Verb: policy.Set, Policy: *p}
	if is, ok := r.Msg.Condition.(*pb.SetPolicyRequest_IfIndex); ok {
		c.IfIndex, c.Index = true, incumbent.Index(is.IfIndex)
	}
	res, found, err := s.d.changePolicy(ctx, c)
	return unary(&pb.SetPolicyResponse{Policy: policyPB(found), Index: uint64(res.Index)}, err)
}

// DeletePolicy deletes.
func (s policyService) DeletePolicy(ctx context.Context, r *connect.Request[pb.DeletePolicyRequest]) (*connect.Response[pb.DeletePolicyResponse], error) {
	c := policy.Command{Verb: policy.Remove, Policy: auth.Policy{Name: r.Msg.Name}}
	if is, ok := r.Msg.Condition.(*pb.DeletePolicyRequest_IfIndex); ok {
		c.IfIndex, c.Index = true, incumbent.Index(is.IfIndex)
	}
	res, found, err := s.d.changePolicy(ctx, c)
	return unary(&pb.DeletePolicyResponse{Deleted: found != nil, Index: uint64(res.Index)}, err)
}

// changePolicy executes a command for a caller who waits, and returns the policy as
// it left it, or found it. A change may use what is kept back when there is no room:
// it is how an operator ends what has used it up.
func (d *Door) changePolicy(ctx context.Context, c policy.Command) (core.Result, *policy.Policy, error) {
	if err := c.Validate(); err != nil {
		return core.Result{}, nil, d.callError(err)
	}
	r, err := d.change(ctx, change{call: calls.Policies, name: c.Policy.Name, command: c, reserve: true, about: "policy"})
	p, _ := r.Record.(*policy.Policy)
	if err != nil {
		if r.Err != nil && r.Err.Kind == incumbent.Conflict {
			err = r.Err.WithHint(foundPolicy(p))
		}
		return r, nil, d.callError(err)
	}
	return r, p, nil
}

func foundPolicy(p *policy.Policy) string {
	if p == nil {
		return "it is not there"
	}
	return "it was last modified at index " + p.Modified.String()
}

// GetPolicy reads one.
func (s policyService) GetPolicy(ctx context.Context, r *connect.Request[pb.GetPolicyRequest]) (*connect.Response[pb.GetPolicyResponse], error) {
	return reading(ctx, s.d, calls.Policies.Lane(), false, func(f *former) (*pb.GetPolicyResponse, error) {
		if err := auth.ValidatePolicyName(r.Msg.Name); err != nil {
			return nil, err
		}
		p := policy.Of(f.view).Policy(r.Msg.Name)
		if p == nil {
			return nil, incumbent.Errorf(incumbent.NotFound, "policy %q is not there", r.Msg.Name)
		}
		return &pb.GetPolicyResponse{Policy: policyPB(p), Index: uint64(f.view.Index())}, nil
	})
}

// ListPolicies reads a page.
func (s policyService) ListPolicies(ctx context.Context, r *connect.Request[pb.ListPoliciesRequest]) (*connect.Response[pb.ListPoliciesResponse], error) {
	return reading(ctx, s.d, calls.Policies.Lane(), false, func(f *former) (*pb.ListPoliciesResponse, error) {
		page, err := newPage(r.Msg.Limit)
		if err != nil {
			return nil, err
		}
		v := policy.Of(f.view)
		out := &pb.ListPoliciesResponse{Index: uint64(f.view.Index()), ChangedIndex: uint64(v.Changed())}
		v.Ascend(r.Msg.After, func(p *policy.Policy) bool {
			if out.More = page.full(); out.More {
				return false
			}
			shown := policyPB(p)
			page.use(shown)
			out.Policies = append(out.Policies, shown)
			return true
		})
		return out, nil
	})
}

// TestPolicy says what would be allowed.
func (s policyService) TestPolicy(ctx context.Context, r *connect.Request[pb.TestPolicyRequest]) (*connect.Response[pb.TestPolicyResponse], error) {
	return reading(ctx, s.d, calls.Policies.Lane(), false, func(f *former) (*pb.TestPolicyResponse, error) {
		q, err := questionOf(r.Msg)
		if err != nil {
			return nil, err
		}
		a := policy.Of(f.view).Rules().Ask(q)
		return &pb.TestPolicyResponse{
			Allowed: a.Allowed, Policy: a.Cause.Policy, Rule: uint32(a.Cause.Rule + 1), Reason: a.Reason, Index: uint64(f.view.Index()),
		}, nil
	})
}

// questionOf checks what TestPolicy is asked.
func questionOf(in *pb.TestPolicyRequest) (q auth.Question, err error) {
	if q.Principal, err = auth.ParsePrincipal(in.Principal); err != nil {
		return q, inField("principal", err)
	}
	if q.State, err = auth.ParseState(in.Kind); err != nil {
		return q, inField("kind", err)
	}
	if q.Verb, err = auth.ParseVerb(in.Verb); err != nil {
		return q, inField("verb", err)
	}
	q.Name, q.Whole, q.Holder = incumbent.Name{Lease: in.Name}, in.Prefix, cmp.Or(in.Holder, q.Principal.Name)
	switch q.State {
	case auth.Leases:
		q.Name.Namespace, q.Name.Model = cmp.Or(in.Namespace, incumbent.DefaultNamespace), cmp.Or(in.Model, incumbent.DefaultModel)
	case auth.Keys, auth.Nodes, auth.Services, auth.Tables:
		q.Name.Namespace = cmp.Or(in.Namespace, incumbent.DefaultNamespace)
	}
	return q, nil
}

// policyOf reads a policy.
func policyOf(in *pb.Policy) (*auth.Policy, error) {
	if in == nil {
		return nil, invalid("policy", "is missing")
	}
	p := &auth.Policy{Name: in.Name, For: in.For, Rules: make([]auth.Rule, len(in.Rules))}
	for i, r := range in.Rules {
		field := stepName("policy.rules", i)
		s, err := auth.ParseState(r.GetKind())
		if err != nil {
			return nil, inField(field, err)
		}
		to := &p.Rules[i]
		*to = auth.Rule{State: s, Namespace: r.Namespace, Model: r.Model, Prefix: r.Name}
		for _, word := range r.Verbs {
			if err := to.AddVerb(word); err != nil {
				return nil, inField(field, err)
			}
		}
	}
	if err := p.Validate(); err != nil {
		return nil, inField("policy", err)
	}
	return p, p.CheckPrincipals()
}

// policyPB writes a policy; nil gives nil.
func policyPB(p *policy.Policy) *pb.Policy {
	if p == nil {
		return nil
	}
	out := &pb.Policy{
		Name: p.Name, For: p.For, CreatedIndex: uint64(p.Created), ModifiedIndex: uint64(p.Modified),
		ModifiedBy: p.By, ModifiedUnixMs: unixMS(p.At),
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		out.Rules = append(out.Rules, &pb.PolicyRule{
			Kind: r.State.String(), Namespace: r.Namespace, Model: r.Model, Name: r.Prefix, Verbs: r.VerbNames(),
		})
	}
	return out
}
