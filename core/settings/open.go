package settings

import "github.com/incumbent-dev/incumbent/core"

// Open is a kind of thing that is open on one member, and no part of the state.
type Open uint8

// The kinds.
const (
	OpenStreams     Open = iota // of the native API
	OpenWatches                 // and calls that wait, of all doors
	OpenAgents                  // connections of one of Juju's agents that have logged in
	OpenAgentsOfOne             // the same of one address
	OpenConnections             // of one principal to one listener, save for those of Juju's agents
	NumOpen
)

var openNames = [NumOpen]string{"streams", "watches", "juju-connections", "juju-connections", "connections"}

// String returns the kind's name, as used in settings and metrics.
func (o Open) String() string { return openNames[o] }

// Words says what is counted.
func (o Open) Words() string {
	return [NumOpen]string{"streams", "watches and waits", "connections of Juju's agents", "connections of Juju's agents", "connections"}[o]
}

// Scope says for each of what a quota is.
func (o Open) Scope() string {
	if o == OpenAgentsOfOne {
		return "source"
	}
	return core.ScopePrincipal.String()
}

// Setting is the name of the setting that the quota is.
func (o Open) Setting() string {
	if o == OpenAgentsOfOne {
		return "quota.source." + openNames[o]
	}
	return "quota." + openNames[o]
}

// Open says how many of a kind each may have on one member.
func (v *Values) Open(o Open) *core.Quota { return &v.open[o] }

// openQuota declares one of what is open on a member.
func openQuota(o Open, subject Subject, each int64, schema uint32, does string) Declaration {
	return Declaration{
		Name: o.Setting(), Max: tib, Default: each, Zero: "no limit", For: subject, Schema: schema, Does: does,
		quota: func(v *Values) *core.Quota { return &v.open[o] },
	}
}
