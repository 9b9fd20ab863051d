package consul

import (
	"net/http"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
)

// Tokens are ours, and policies say what they let do: neither is administered here.
// What clients probe is answered.

func aclRoutes() []route {
	list := []route{{"/v1/acl/token/self", methods{"GET": aclSelf}}}
	for path, ms := range map[string][]string{
		"/v1/acl/token": {"PUT"}, "/v1/acl/token/": {"GET", "PUT", "DELETE"}, "/v1/acl/tokens": {"GET"},
		"/v1/acl/policy": {"PUT"}, "/v1/acl/policy/": {"GET", "PUT", "DELETE"}, "/v1/acl/policies": {"GET"},
		"/v1/acl/role": {"PUT"}, "/v1/acl/role/": {"GET", "PUT", "DELETE"}, "/v1/acl/roles": {"GET"},
		"/v1/acl/auth-method": {"PUT"}, "/v1/acl/auth-method/": {"GET", "PUT", "DELETE"}, "/v1/acl/auth-methods": {"GET"},
		"/v1/acl/binding-rule": {"PUT"}, "/v1/acl/binding-rule/": {"GET", "PUT", "DELETE"}, "/v1/acl/binding-rules": {"GET"},
		"/v1/acl/templated-policies": {"GET"}, "/v1/acl/bootstrap": {"PUT"}, "/v1/acl/replication": {"GET"},
		"/v1/acl/login": {"POST"}, "/v1/acl/logout": {"POST"}, "/v1/agent/token/": {"PUT"}, "/v1/internal/acl/authorize": {"POST"},
	} {
		m := methods{}
		for _, name := range ms {
			m[name] = aclDisabled
		}
		list = append(list, route{path, m})
	}
	return list
}

// textNoACL is what clients know of a cluster whose tokens are not Consul's own.
const textNoACL = "ACL support disabled"

func aclDisabled(_ *Door, r *request) {
	r.absent = true
	r.fail(http.StatusUnauthorized, textNoACL)
}

// aclSelf says whose token the request brings. Where there are no policies there is
// nothing to say of it.
func aclSelf(d *Door, r *request) {
	p := r.who.principal
	switch {
	case d.defaultPolicy() == "allow":
		aclDisabled(d, r)
		return
	case p.Kind == auth.Anonymous:
		r.fail(http.StatusForbidden, textUnknownUser)
		return
	}
	out := map[string]any{
		"AccessorID": accessorOf(p), "SecretID": r.token(), "Description": p.String(), "Policies": []any{}, "Roles": []any{},
		"Local": false, "CreateTime": time.Unix(0, 0).UTC(), "Hash": "", "CreateIndex": 1, "ModifyIndex": 1,
	}
	if p.Proof.Ends != 0 {
		out["ExpirationTime"] = time.UnixMilli(p.Proof.Ends).UTC()
	}
	r.json(http.StatusOK, out)
}

// accessorOf names a principal in the form of Consul's ids, the same on every member.
func accessorOf(p auth.Principal) string {
	digest := digestOf([]byte(p.String()))
	return incumbent.SessionID(digest).String()
}
