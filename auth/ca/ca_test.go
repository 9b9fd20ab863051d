package ca

import (
	"bytes"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
)

var (
	cluster = [16]byte{1, 2, 3}
	now     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := New(cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// trustOf trusts one authority.
func trustOf(a *Authority) Trust { return Trust{a.Certificate()} }

// issued is a member's certificate as it reads it back.
func issued(t testing.TB, a *Authority, id uint64, at time.Time) *x509.Certificate {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Issue(key, Member{cluster, id, "n1"}, []string{"n1.example", "10.0.0.1", "0.0.0.0", "", "n1.example"}, at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAuthorityIsReadBack(t *testing.T) {
	a := authority(t)
	key, err := a.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(a.CertPEM(), key)
	if err != nil || b.Hash() != a.Hash() || len(a.Hash()) != 64 {
		t.Fatalf("hash %q and %q, %v", a.Hash(), b.Hash(), err)
	}
	if life := a.Certificate().NotAfter.Sub(now); life != AuthorityLifetime {
		t.Errorf("lifetime %v", life)
	}
	other, err := authority(t).KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2][]byte{
		"another's key": {a.CertPEM(), other}, "no key": {a.CertPEM(), nil}, "no certificate": {nil, key},
		"swapped": {key, a.CertPEM()}, "cut off": {a.CertPEM()[:100], key},
	} {
		if _, err := Load(pair[0], pair[1]); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMemberCertificate(t *testing.T) {
	a := authority(t)
	c := issued(t, a, 7, now)
	if got := Hosts(c); !slices.Equal(got, []string{"n1.example", "10.0.0.1"}) {
		t.Errorf("hosts %v", got)
	}
	if got := c.URIs[0].String(); got != "incumbent://01020300000000000000000000000000/member/0000000000000007" {
		t.Errorf("URI %s", got)
	}
	if c.NotAfter.Sub(now) != MemberLifetime || RenewAt(c).Sub(now).Round(24*time.Hour) != 60*24*time.Hour {
		t.Errorf("from %v to %v, renewed at %v", c.NotBefore, c.NotAfter, RenewAt(c))
	}
	if p, err := auth.FromCertificate(c); err != nil || p.Kind != auth.Anonymous {
		t.Errorf("a member's certificate makes %v, %v", p, err)
	}
}

func TestVerifyMemberRefuses(t *testing.T) {
	a := authority(t)
	own := issued(t, a, 7, now)
	if err := trustOf(a).VerifyMember([]*x509.Certificate{own}, cluster, 7, now); err != nil {
		t.Fatal(err)
	}
	operator, _, err := a.Operator("root", now)
	if err != nil {
		t.Fatal(err)
	}
	person, err := ParseCertificate(operator)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		chain   []*x509.Certificate
		cluster [16]byte
		at      time.Time
	}{
		"nothing":                  {nil, cluster, now},
		"another member":           {[]*x509.Certificate{issued(t, a, 8, now)}, cluster, now},
		"another cluster":          {[]*x509.Certificate{own}, [16]byte{9}, now},
		"another authority":        {[]*x509.Certificate{issued(t, authority(t), 7, now)}, cluster, now},
		"ended":                    {[]*x509.Certificate{own}, cluster, now.Add(MemberLifetime + time.Second)},
		"an operator":              {[]*x509.Certificate{person}, cluster, now},
		"the authority itself":     {[]*x509.Certificate{a.Certificate()}, cluster, now},
		"its own behind another's": {[]*x509.Certificate{issued(t, a, 8, now), own}, cluster, now},
	} {
		if err := trustOf(a).VerifyMember(c.chain, c.cluster, 7, c.at); incumbent.KindOf(err) != incumbent.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOperatorCertificate(t *testing.T) {
	a := authority(t)
	text, key, err := a.Operator("root", now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: trustOf(a).Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if p, err := auth.FromCertificate(c); err != nil || p.String() != "operator:root" || p.Via != auth.Certificate {
		t.Errorf("%v, %v", p, err)
	}
	if k, err := ParseKey(key); err != nil || !k.PublicKey.Equal(c.PublicKey) {
		t.Errorf("the key does not fit: %v", err)
	}
}

func TestSign(t *testing.T) {
	a := authority(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := Request(key, "n2", []string{"127.0.0.1", "n2"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Sign(csr, Member{cluster, 2, "n2"}, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := trustOf(a).VerifyMember([]*x509.Certificate{c}, cluster, 2, now); err != nil || !key.PublicKey.Equal(c.PublicKey) {
		t.Errorf("%v", err)
	}
	broken := slices.Clone(csr)
	broken[len(broken)-1] ^= 1
	hosts := make([]string, MaxHosts+1)
	for i := range hosts {
		hosts[i] = strings.Repeat("h", i+1)
	}
	many, err := Request(key, "n2", hosts)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		csr  []byte
		want incumbent.Kind
	}{"nothing": {nil, incumbent.Invalid}, "a signature that is wrong": {broken, incumbent.Invalid}, "many hosts": {many, incumbent.TooLarge}} {
		if _, err := a.Sign(tt.csr, Member{cluster, 2, "n2"}, now); incumbent.KindOf(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingOutlivesTheAuthority(t *testing.T) {
	a := authority(t)
	late := now.Add(AuthorityLifetime - 24*time.Hour)
	if c := issued(t, a, 7, late); !c.NotAfter.Equal(a.Certificate().NotAfter) {
		t.Errorf("ends at %v, its authority at %v", c.NotAfter, a.Certificate().NotAfter)
	}
}

func TestToken(t *testing.T) {
	secret := NewSecret()
	want := Token{
		Addresses: []string{"http://127.0.0.1:7600", "http://127.0.0.1:7610"}, CAHash: strings.Repeat("ab", 32), Own: true,
		Cluster: cluster, Name: "n2", Expires: time.Unix(now.Add(time.Hour).Unix(), 0),
	}
	made := want
	text, err := NewToken(secret, &made)
	if err != nil || !strings.HasPrefix(text, "INC2.") {
		t.Fatalf("%q, %v", text, err)
	}
	got, err := ParseToken(" " + text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Verify([][]byte{NewSecret(), secret}, cluster); err != nil {
		t.Error(err)
	}
	longer, other := got, got
	longer.Expires, other.Name = got.Expires.Add(time.Hour), "n3"
	for name, refused := range map[string]error{
		"another secret":  got.Verify([][]byte{NewSecret()}, cluster),
		"no secret":       got.Verify(nil, cluster),
		"another cluster": got.Verify([][]byte{secret}, [16]byte{2}),
		"made longer":     longer.Verify([][]byte{secret}, cluster),
		"another name":    other.Verify([][]byte{secret}, cluster),
	} {
		e, ok := refused.(*incumbent.Error)
		if !ok || e.Kind != incumbent.Denied || e.Hint == "" {
			t.Errorf("%s: %v", name, refused)
		}
	}
	// Members know all of it but the code, which their secret gives.
	known := Token{Cluster: got.Cluster, Name: got.Name, Expires: got.Expires, ID: got.ID}
	if key := got.LinkKey(7); !bytes.Equal(key, known.Under(secret).LinkKey(7)) || bytes.Equal(key, got.LinkKey(8)) || bytes.Equal(key, known.Under(NewSecret()).LinkKey(7)) {
		t.Error("the key of a member that joins is not the one that the others find")
	}
	if got.ID != made.ID || got.ID == (Token{}).ID {
		t.Errorf("id %x, made as %x", got.ID, made.ID)
	}
	got.ID, got.code = [TokenIDBytes]byte{}, nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Token{})); diff != "" {
		t.Error(diff)
	}
	if again, err := NewToken(secret, &want); err != nil || again == text {
		t.Errorf("the same token twice: %v", err)
	}
}

// While one authority takes the place of another, who trusts either follows it to
// the certificates of the next one; who trusts the old one alone does so only by
// the cross certificate.
func TestCross(t *testing.T) {
	old, next := authority(t), authority(t)
	der, err := old.Cross(next.Certificate(), now)
	if err != nil {
		t.Fatal(err)
	}
	cross, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	leaf := issued(t, next, 7, now)
	for name, c := range map[string]struct {
		trust   Trust
		between []*x509.Certificate
		good    bool
	}{
		"both":                   {Trust{old.Certificate(), next.Certificate()}, nil, true},
		"the next one":           {Trust{next.Certificate()}, []*x509.Certificate{cross, next.Certificate(), old.Certificate()}, true},
		"the old one":            {Trust{old.Certificate()}, []*x509.Certificate{cross, next.Certificate(), old.Certificate()}, true},
		"the old one, not cross": {Trust{old.Certificate()}, []*x509.Certificate{next.Certificate(), old.Certificate()}, false},
	} {
		pool := x509.NewCertPool()
		for _, b := range c.between {
			pool.AddCert(b)
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: c.trust.Pool(), Intermediates: pool, CurrentTime: now, DNSName: "n1.example"})
		if (err == nil) != c.good {
			t.Errorf("trusting %s: %v", name, err)
		}
	}
	both := Trust{old.Certificate(), next.Certificate()}
	if by := both.SignedBy(leaf); by != both[1] || both.Newest() != both[1] || !IsMember(leaf, cluster) || IsMember(leaf, [16]byte{9}) {
		t.Errorf("signed by %v", by)
	}
	back, err := ParseTrust(both.PEM())
	if err != nil || len(back) != 2 || !back[0].Equal(both[0]) || !back[1].Equal(both[1]) {
		t.Errorf("read back as %d, %v", len(back), err)
	}
	for name, text := range map[string][]byte{"nothing": nil, "a member": certPEM(leaf.Raw), "half": both.PEM()[:1200]} {
		if _, err := ParseTrust(text); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokensThatAreNone(t *testing.T) {
	if _, err := NewToken(NewSecret(), &Token{Cluster: cluster}); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("without addresses: %v", err)
	}
	if _, err := ParseToken(strings.Repeat("x", MaxTokenBytes+1)); incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("long: %v", err)
	}
	for _, s := range []string{"", "INC2.", "INC1.e30", "INC2.e30", "INC2.!!", "INC2.bnVsbA"} {
		if _, err := ParseToken(s); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	secret := make([]byte, SecretBytes)
	text, err := NewToken(secret, &Token{Addresses: []string{"http://a"}, Cluster: cluster, Name: "n", Expires: now})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("INC2.e30")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			if k := incumbent.KindOf(err); k != incumbent.Invalid && k != incumbent.TooLarge {
				t.Fatal(err)
			}
			return
		}
		if len(token.Addresses) == 0 || token.Verify([][]byte{[]byte("another secret")}, token.Cluster) == nil {
			t.Fatalf("accepted %+v", token)
		}
	})
}

// A client's certificate says who it is, and nothing of its request counts but the
// key.
func TestG12_ClientCertificate(t *testing.T) {
	a := authority(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := Request(key, "somebody else", []string{"elsewhere.example"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.SignClient(request, Client{Kind: "agent", Name: "db/1", Hosts: []string{"db.example", "10.0.0.9"}, Lifetime: time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: trustOf(a).Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: trustOf(a).Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("it is good for a server")
	}
	if err := trustOf(a).VerifyMember([]*x509.Certificate{c}, cluster, 7, now); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("it is good for a member: %v", err)
	}
	if p, err := auth.FromCertificate(c); err != nil || p.String() != "agent:db/1" || p.Proof.Ends != now.Add(time.Hour).UnixMilli() {
		t.Errorf("%v, %v", p, err)
	}
	if got := Hosts(c); !slices.Equal(got, []string{"db.example", "10.0.0.9"}) {
		t.Errorf("hosts %v", got)
	}
	if !key.PublicKey.Equal(c.PublicKey) {
		t.Error("it is for another key")
	}
	for name, c := range map[string]Client{
		"no kind": {Name: "a"}, "a kind that is none": {Kind: "root", Name: "a"}, "no name": {Kind: "agent"}, "a name with space": {Kind: "agent", Name: "a b"},
		"too short": {Kind: "agent", Name: "a", Lifetime: time.Second}, "a lifetime backwards": {Kind: "agent", Name: "a", Lifetime: -time.Hour},
	} {
		if _, err := a.SignClient(request, c, now); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.SignClient(request[1:], Client{Kind: "agent", Name: "a"}, now); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a malformed request: %v", err)
	}
}
