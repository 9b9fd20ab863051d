package cluster

import (
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// tlsOf is the tls folder of a cluster that was just made, as its first member
// has it, with a clock of the test's.
func tlsOf(t *testing.T, now func() time.Time) (dir string, m *TLS) {
	t.Helper()
	dir = t.TempDir()
	if err := makeAuthority(dir, [16]byte{1}, &Initialized{}); err != nil {
		t.Fatal(err)
	}
	m, err := OpenTLS(dir, &Record{Cluster: "01" + strings.Repeat("00", 15), ID: FormatID(7)}, "n1", []string{"localhost"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.now = now
	return dir, m
}

// The operator's certificate is renewed in time, for the same key, and only if it
// is there and the cluster's own.
func TestTheOperatorsCertificateRenewsItself(t *testing.T) {
	now := time.Now()
	dir, m := tlsOf(t, func() time.Time { return now })
	key, err := ReadOrMakeKey(filepath.Join(m.dir, operatorKey))
	if err != nil {
		t.Fatal(err)
	}
	first, err := m.operatorLeaf()
	if err != nil {
		t.Fatal(err)
	}
	if _, renewed, err := m.renewOperator(); renewed || err != nil {
		t.Errorf("a new one: renewed %v, %v", renewed, err)
	}
	now = first.NotAfter.Add(-100 * 24 * time.Hour)
	ends, renewed, err := m.renewOperator()
	if !renewed || err != nil || !ends.After(first.NotAfter) {
		t.Fatalf("a hundred days before the end: renewed %v until %v, %v", renewed, ends, err)
	}
	next, err := m.operatorLeaf()
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(next.PublicKey) || next.Subject.String() != first.Subject.String() {
		t.Errorf("renewed for another key, or for %v", next.Subject)
	}
	pool, _ := m.Pool()
	if _, err := next.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	now = next.NotAfter.Add(time.Hour) // the member did not run in time
	if _, renewed, err := m.renewOperator(); !renewed || err != nil {
		t.Errorf("one that has ended: renewed %v, %v", renewed, err)
	}

	file := filepath.Join(m.dir, operatorCert)
	if err := WriteFile(file, otherOperator(t, now)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(ca.OperatorLifetime)
	if _, renewed, err := m.renewOperator(); renewed || err != nil {
		t.Errorf("that of another authority: renewed %v, %v", renewed, err)
	}
	if err := (vfs.OS{}).Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, renewed, err := m.renewOperator(); renewed || err != nil {
		t.Errorf("none: renewed %v, %v", renewed, err)
	}
	if made, err := RenewOperator(dir); err != nil || made.CertFile != file || made.Ends.Before(time.Now()) {
		t.Errorf("asked for: %+v, %v", made, err)
	}
}

// openings counts how often a file was opened.
type openings struct {
	vfs.FS
	n int
}

func (o *openings) Open(name string) (vfs.File, error) {
	o.n++
	return o.FS.Open(name)
}

// Warnings of the operator's certificate come from what is known of it: the file
// is read again only while there is something to warn of.
func TestTheOperatorsCertificateIsWarnedOf(t *testing.T) {
	now := time.Now()
	dir, m := tlsOf(t, func() time.Time { return now })
	opened := &openings{FS: m.fs}
	m.fs = opened
	warned := func() bool {
		return slices.ContainsFunc(m.Warnings(), func(w string) bool { return strings.Contains(w, "the operator's certificate ends") })
	}
	if warned() || opened.n != 0 {
		t.Errorf("of a new one: warned %v, read %d times", warned(), opened.n)
	}
	now = now.Add(ca.OperatorLifetime - OperatorWarning + time.Hour)
	if !warned() {
		t.Error("not warned of one that ends soon")
	}
	if _, err := renewOperatorOf(dir, now); err != nil { // as another process does
		t.Fatal(err)
	}
	if warned() {
		t.Error("warned of one that was renewed since")
	}
	opened.n = 0
	if warned() || opened.n != 0 {
		t.Errorf("of the one renewed: warned, or read %d times", opened.n)
	}

	now = now.Add(ca.OperatorLifetime)
	if !warned() {
		t.Error("not warned of one that has ended")
	}
	if _, renewed, err := m.renewOperator(); !renewed || err != nil {
		t.Fatalf("renewed %v, %v", renewed, err)
	}
	opened.n = 0
	if warned() || opened.n != 0 {
		t.Errorf("of the one that renewed itself: warned, or read %d times", opened.n)
	}
}

func otherOperator(t *testing.T, now time.Time) []byte {
	t.Helper()
	other, err := ca.New([16]byte{2}, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := other.Operator(operatorName, now)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestRenewOperatorWithoutAnAuthority(t *testing.T) {
	_, err := RenewOperator(t.TempDir())
	if incumbent.KindOf(err) != incumbent.NotFound || !strings.Contains(err.(*incumbent.Error).Hint, "cluster init") {
		t.Errorf("got %v", err)
	}
}

// After three quarters of its life a member's certificate is due, and a new one is
// not.
func TestTheMembersCertificateIsDueInTime(t *testing.T) {
	now := time.Now()
	_, m := tlsOf(t, func() time.Time { return now })
	if m.due() {
		t.Error("a new one is due")
	}
	now = now.Add(ca.MemberLifetime * 3 / 4)
	if !m.due() {
		t.Error("after three quarters of its life it is not due")
	}
	if err := m.Renew(); err != nil || m.due() {
		t.Errorf("renewed: %v, due %v", err, m.due())
	}
}

// A certificate has its hosts however they were written, and is not due for them.
func TestACertificateIsNotDueForHowItsHostsAreWritten(t *testing.T) {
	dir, _ := tlsOf(t, time.Now)
	for _, tt := range []struct {
		name  string
		hosts []string
		want  string
	}{
		{"capitals", HostsOf(nil, "[2001:DB8::1]:7600"), "2001:db8::1"},
		{"zeros", HostsOf(nil, "[2001:0db8::2]:7600"), "2001:db8::2"},
		{"IPv4 in IPv6, of a URL", HostsOf(nil, "https://[::ffff:10.0.0.1]:7600"), "10.0.0.1"},
		{"no port", HostsOf(nil, "FD00::0001"), "fd00::1"},
		{"of a record", HostsOf([]string{"FD00::0002"}, "10.0.0.2:7600"), "fd00::2"},
		{"a name in capitals", HostsOf(nil, "N1.Example:7600"), "N1.Example"},
	} {
		m, err := OpenTLS(dir, &Record{Cluster: "01" + strings.Repeat("00", 15), ID: FormatID(7)}, "n1", tt.hosts, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if has := ca.Hosts(m.Certificate().Leaf); m.due() || !slices.Contains(has, tt.want) {
			t.Errorf("%s: a new one has %q, due: %v", tt.name, has, m.due())
		}
	}
	if got := HostsOf([]string{"FD00::1", "10.0.0.1"}, "[fd00::0001]:7600", "https://[::ffff:10.0.0.1]:7600", "[::]:7600"); !slices.Equal(got, []string{"fd00::1", "10.0.0.1"}) {
		t.Errorf("each once: %q", got)
	}
}
