package health

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Timing of the leases by which members know who runs checks.
const (
	DefaultPresence = 10 * time.Second // others take the checks of a member that is gone so long
	claimWait       = 5 * time.Second  // for one claim or release
	claims          = 3                // in the time of a lease
	// returns is for how many times that a member which comes back leaves its checks to
	// those who have them now, and up to half as long again: one that falls again and
	// again moves them seldom, and members do not all take theirs back together.
	returns = 3
)

const presencePrefix = "checks/"

// PresenceLease is the lease that a member holds while it runs the checks of a namespace.
// That of the default namespace does not name it, so that members of before namespaces were
// named count it, too. The id comes first: unlike a namespace it has no slash.
func PresenceLease(member uint64, namespace string) incumbent.Name {
	text := presencePrefix + strconv.FormatUint(member, 16)
	if namespace != incumbent.DefaultNamespace {
		text += "/" + namespace
	}
	return incumbent.Name{Namespace: incumbent.ServerNamespace, Model: "server", Lease: text}
}

// isPresence reports whether a lease is such a one.
func isPresence(n incumbent.Name) bool {
	return n.Namespace == incumbent.ServerNamespace && n.Model == "server" && strings.HasPrefix(n.Lease, presencePrefix)
}

// Present are the members that run the checks of a namespace, in the order of their leases.
func Present(v *core.View, namespace string) []uint64 {
	out := []uint64{}
	leases.Of(v).Below(incumbent.ServerNamespace, "server", presencePrefix, incumbent.Name{}, func(l *leases.Lease) bool {
		text, _, _ := strings.Cut(strings.TrimPrefix(l.Name.Lease, presencePrefix), "/")
		id, err := strconv.ParseUint(text, 16, 64)
		if err == nil && l.Token != 0 && l.Name == PresenceLease(id, namespace) {
			out = append(out, id)
		}
		return true
	})
	return out
}

// Presence has a member hold its lease.
type Presence struct {
	Self      uint64
	Namespace string        // whose checks it runs
	TTL       time.Duration // of the lease; 0: DefaultPresence
	// Present are the members that hold theirs for the namespace, as this member knows.
	Present func() []uint64
	// Call executes a claim or a release of the lease, which it waits for.
	Call func(ctx context.Context, c core.Command) error
}

// Run claims the lease again and again until ctx ends. Leave gives it up.
func (p *Presence) Run(ctx context.Context) {
	ttl := p.ttl()
	tick := time.NewTicker(ttl / claims)
	defer tick.Stop()
	from := time.Now().Add(p.pause()) // it claims what it does not hold
	held := false
	for {
		now, present := time.Now(), p.Present()
		holds := slices.Contains(present, p.Self)
		if held && !holds { // it was away for longer than the lease lasts
			from = now.Add(p.pause())
		}
		if held = holds; holds || len(present) == 0 || !now.Before(from) {
			p.call(ctx, leases.ClaimCommand{Name: PresenceLease(p.Self, p.Namespace), Holder: strconv.FormatUint(p.Self, 16), TTL: ttl})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Leave gives the lease up: others take the checks at once.
func (p *Presence) Leave(ctx context.Context) {
	if slices.Contains(p.Present(), p.Self) {
		p.call(ctx, leases.ReleaseCommand{Name: PresenceLease(p.Self, p.Namespace), Holder: strconv.FormatUint(p.Self, 16)})
	}
}

// call tries once. What comes to nothing is tried again at the next turn, and a lease
// that is not given up runs out.
func (p *Presence) call(ctx context.Context, c core.Command) {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	_ = p.Call(ctx, c)
}

func (p *Presence) ttl() time.Duration {
	if p.TTL == 0 {
		return DefaultPresence
	}
	return p.TTL
}

func (p *Presence) pause() time.Duration { return returns*p.ttl() + rand.N(returns*p.ttl()/2) }
