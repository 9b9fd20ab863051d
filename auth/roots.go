package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"slices"
)

// Roots are the authorities whose certificates a listener takes, by their hashes. An
// authority may be taken back while connections are open that were made under it: who
// came in by one that is trusted no more is not known any more.
type Roots map[[sha256.Size]byte]struct{}

// Add adds an authority.
func (r Roots) Add(c *x509.Certificate) { r[sha256.Sum256(c.Raw)] = struct{}{} }

// SetRoots replaces the authorities that are trusted, for requests from now on and for
// [Authenticator.Knows]. Before the first call the handshake alone decides.
func (a *Authenticator) SetRoots(r Roots) { a.roots.Store(&r) }

// rootsOf are the hashes of the authorities at which chains end, one behind the other,
// as a proof has them.
func rootsOf(chains [][]*x509.Certificate) string {
	var ends []string
	for _, chain := range chains {
		sum := sha256.Sum256(chain[len(chain)-1].Raw)
		ends = append(ends, string(sum[:]))
	}
	slices.Sort(ends)
	out := ""
	for _, sum := range slices.Compact(ends) {
		out += sum
	}
	return out
}

// trusts reports whether one of a proof's authorities is still trusted. A proof without
// any was never verified by one.
func (a *Authenticator) trusts(p Proof) bool {
	trusted := a.roots.Load()
	if trusted == nil || p.Roots == "" {
		return true
	}
	for rest := p.Roots; len(rest) >= sha256.Size; rest = rest[sha256.Size:] {
		if _, is := (*trusted)[[sha256.Size]byte([]byte(rest[:sha256.Size]))]; is {
			return true
		}
	}
	return false
}
