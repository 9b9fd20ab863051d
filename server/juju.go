package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/accept"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/door/juju"
	"github.com/incumbent-dev/incumbent/vfs"
)

// Juju configures the door for Juju's agents.
type Juju struct {
	Listen         string // its own address; "": the door is closed
	CredentialFile string // passwords of agents, as auth.PasswordLine makes them
	Password       string // lets any agent's tag in, granted everything; with Dev, on loopback only
}

// Files of the certificate that the door makes for itself where none is
// configured: its clients know its name, if anything of it.
const (
	jujuCertFile = "juju.crt"
	jujuKeyFile  = "juju.key"

	jujuCertLifetime = 10 * 365 * 24 * time.Hour
	jujuCertRenew    = 30 * 24 * time.Hour // before its end it is made anew, at a start
)

func (c Juju) validate(dev bool) error {
	switch {
	case c == Juju{}:
		return nil
	case c.Listen == "":
		return invalid("juju-listen", "is not set, but --juju-credential-file or --juju-password is").WithHint("give --juju-listen 127.0.0.1:17070")
	}
	if err := cluster.ValidAddress("juju-listen", c.Listen); err != nil {
		return err
	}
	if c.Password == "" {
		return nil // agents log in by the file, or by what the cluster keeps
	}
	if !dev || !(auth.ListenerPolicy{Address: c.Listen}).OnlyLoopback() {
		return invalid("juju-password", "goes with --dev and an address on loopback only").WithHint("use --juju-credential-file")
	}
	return nil
}

// jujuDoor is the open door and what belongs to it.
type jujuDoor struct {
	openDoor
	verifier *auth.Verifier
	door     *juju.Door
	own      *tls.Config // from the certificate made for itself; nil where one is configured
}

// listenForJuju opens the door's listener and reads its passwords.
func (s *Server) listenForJuju(undo *undoing) error {
	if s.cfg.Juju.Listen == "" {
		return nil
	}
	found, err := readPasswords(s.cfg.Juju.CredentialFile)
	if err != nil {
		return err
	}
	ln, err := undo.listenFor("juju-listen", s.cfg.Juju.Listen)
	if err != nil {
		return err
	}
	s.juju = &jujuDoor{openDoor: openDoor{name: jujuListener, tls: true}, verifier: auth.NewVerifier(auth.VerifierConfig{Everybody: s.cfg.Juju.Password, Book: book{s}, Horizon: s.horizon, Guesses: s.guessLimits}, found)}
	s.guardDoor(&s.juju.openDoor, ln, false)
	s.opened = append(s.opened, &s.juju.openDoor)
	return nil
}

func readPasswords(file string) (*auth.Passwords, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, invalid("juju-credential-file", "%w", err)
	}
	defer f.Close()
	found, err := auth.ParsePasswords(f, juju.ValidateAccount)
	if err != nil {
		return nil, invalid("juju-credential-file", "%s: %w", file, err)
	}
	return found, nil
}

// openJuju makes the door; it serves from startJuju on.
func (s *Server) openJuju(undo *undoing) (err error) {
	j := s.juju
	if j == nil {
		return nil
	}
	if s.certs == nil {
		if j.own, err = jujuCertificate(s.cfg.DataDir, j.gates[0].Addr(), time.Now()); err != nil {
			return err
		}
	}
	j.door, err = juju.New(juju.Config{
		Limits: juju.Limits{MaxConnections: doorConnections(s.cfg.MaxConnections)},
		Engine: s.engine, Park: s.park, Passwords: j.verifier, Cluster: s.cluster.ClusterID(),
		TLS: func() *tls.Config { return j.tlsNow(s.certs) }, Ready: s.ready,
		Admission: s.admission.Controller, Monotonic: func() int64 { return int64(time.Since(s.begun)) }, Logger: s.log, Audit: s.trail.note, Tally: s.tally,
	})
	if err != nil {
		return err
	}
	undo.later(func() { j.door.Close(context.Background()) })
	j.serving = j.door
	j.limit = func(most int) { j.door.SetLimits(juju.Limits{MaxConnections: doorConnections(most)}) }
	j.show = func(d *apiv1.Door) {
		st := j.door.Stats()
		d.Agents, d.OutstandingClaims, d.BlockedCalls = uint64(st.Agents), uint64(st.Claims), uint64(st.Blocked)
	}
	return nil
}

// startJuju lets agents in.
func (s *Server) startJuju() {
	if s.juju == nil {
		return
	}
	s.keepServing("juju listener", func() error { return s.juju.door.Serve(s.juju.gates[0]) })
	s.log.Info("listening for agents of juju", "address", s.JujuAddr())
}

// JujuAddr is where the door for Juju's agents listens; "" if it is closed.
func (s *Server) JujuAddr() string {
	if s.juju == nil {
		return ""
	}
	return s.juju.addresses()[0]
}

// tlsNow is what a handshake of the door uses: the certificate of the native
// listener where it has one, without asking for the client's, which has none.
func (j *jujuDoor) tlsNow(certs *certificates) *tls.Config {
	if certs == nil {
		return j.own
	}
	return j.derived.of(certs.current.Load(), func(from *tls.Config) *tls.Config { return jujuTLS(from.Certificates...) })
}

// jujuTLS has no ALPN: clients offer none and speak HTTP/1.1.
func jujuTLS(certs ...tls.Certificate) *tls.Config {
	return accept.InTurns(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: certs, DynamicRecordSizingDisabled: true})
}

// jujuCertificate reads the certificate that the door has made for itself, or
// makes it.
func jujuCertificate(dir string, at net.Addr, now time.Time) (*tls.Config, error) {
	key, err := cluster.ReadOrMakeKey(filepath.Join(dir, jujuKeyFile))
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, jujuCertFile)
	text, err := vfs.ReadFile(vfs.OS{}, name)
	if err == nil {
		cert, parseErr := ca.ParseCertificate(text)
		if parseErr != nil {
			return nil, incumbent.Errorf(incumbent.Corrupt, "%s: %w", name, parseErr)
		}
		if key.PublicKey.Equal(cert.PublicKey) && now.Before(cert.NotAfter.Add(-jujuCertRenew)) {
			return jujuTLS(tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}), nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Internal, "certificate of the juju door: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "incumbent juju"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(jujuCertLifetime), DNSNames: []string{"localhost", cluster.HostName()},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		template.IPAddresses = []net.IP{tcp.IP}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Internal, "certificate of the juju door: %w", err)
	}
	if err := cluster.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return nil, err
	}
	return jujuTLS(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}), nil
}

// registerJujuMetrics exports the door's numbers.
func (s *Server) registerJujuMetrics() {
	if s.juju == nil {
		return
	}
	var c scraped
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return c.desc("incumbent_juju_"+name, help, labels...)
	}
	requests := desc("request_seconds", "Time from a request of Juju's agents to its answer; waits last as long as what they wait for.", "facade", "method")
	errors := desc("errors_total", "Errors that Juju's agents were told, by facade and code.", "facade", "code")
	logins := desc("logins_total", "Connections of Juju's agents, by how their way to the login ended.", "outcome")
	refused := desc("refused_total", "Connections of Juju's agents that were closed before TLS, by reason.", "reason")
	checks := desc("password_checks_total", "Passwords of Juju's agents, by how they were verified.", "outcome")
	gauges := [...]*prometheus.Desc{
		desc("connections", "Open connections of Juju's agents."), desc("agents", "Of them, logged in."),
		desc("pending", "Of them, on their way to the login."), desc("outstanding_claims", "Calls that claim or pin, without an answer."),
		desc("blocked_calls", "Waits for the end of a holding."),
	}
	retries := desc("retries_total", "Attempts repeated inside, where the outcome was not certain.")
	silent := desc("silent_total", "Connections closed because nothing was heard of them.")
	c.collect = func(out chan<- prometheus.Metric) {
		st := s.juju.door.Stats()
		for _, m := range st.Methods {
			out <- prometheus.MustNewConstHistogram(requests, m.Count, m.Sum, m.Buckets, m.Facade, m.Method)
		}
		count := func(d *prometheus.Desc, n uint64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
		}
		for _, x := range st.Errors {
			count(errors, x.N, x.Facade, x.Code)
		}
		for d, list := range map[*prometheus.Desc][]juju.Count{logins: st.Logins, refused: st.Refused} {
			for _, x := range list {
				count(d, x.N, x.Label)
			}
		}
		for _, v := range auth.Verdicts() {
			count(checks, s.juju.verifier.Counts(v), v.String())
		}
		for i, n := range [...]int{s.juju.connections(), st.Agents, st.Pending, st.Claims, st.Blocked} {
			out <- prometheus.MustNewConstMetric(gauges[i], prometheus.GaugeValue, float64(n))
		}
		count(retries, st.Retries)
		count(silent, st.Silent)
	}
	s.metrics.registry.MustRegister(&c)
}
