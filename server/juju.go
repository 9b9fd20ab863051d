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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/door/juju"
	"github.com/incumbent-dev/incumbent/gate"
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
	gate     *gate.Gate
	verifier *auth.Verifier
	door     *juju.Door
	own      *tls.Config // from the certificate made for itself; nil where one is configured
	derived  atomic.Pointer[derivedTLS]
}

// derivedTLS is what the door makes of the native listener's TLS: kept while that
// stays the same, so that tickets of sessions stay good.
type derivedTLS struct{ from, config *tls.Config }

// listenForJuju opens the door's listener and reads its passwords.
func (s *Server) listenForJuju(undo *undoing) error {
	if s.cfg.Juju.Listen == "" {
		return nil
	}
	found, err := readPasswords(s.cfg.Juju.CredentialFile)
	if err != nil {
		return err
	}
	// The door sets keep-alive as it wants it; Go's own would be four system calls for
	// each connection of a storm.
	quiet := net.ListenConfig{KeepAlive: -1}
	ln, err := quiet.Listen(context.Background(), "tcp", s.cfg.Juju.Listen)
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "setting juju-listen: %w", err).
			WithHint("is another server running? choose another address with --juju-listen")
	}
	undo.later(func() { ln.Close() })
	s.juju = &jujuDoor{gate: s.gateOf(ln, jujuListener, 0, s.jujuAgents), verifier: auth.NewVerifier(auth.VerifierConfig{Everybody: s.cfg.Juju.Password, Book: book{s}, Horizon: s.horizon, Guesses: s.guessLimits}, found)}
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
		if j.own, err = jujuCertificate(s.cfg.DataDir, j.gate.Addr(), time.Now()); err != nil {
			return err
		}
	}
	j.door, err = juju.New(juju.Config{
		Limits: juju.Limits{MaxConnections: doorConnections(s.cfg.MaxConnections)},
		Engine: s.engine, Park: s.park, Passwords: j.verifier, Cluster: s.cluster.ClusterID(),
		TLS: func() *tls.Config { return j.tls(s.certs) }, Ready: s.ready,
		Admission: s.admission.Controller, Monotonic: func() int64 { return int64(time.Since(s.begun)) }, Logger: s.log, Audit: s.trail.note, Tally: s.tally,
	})
	if err != nil {
		return err
	}
	undo.later(func() { j.door.Close(context.Background()) })
	return nil
}

// startJuju lets agents in.
func (s *Server) startJuju() {
	if s.juju == nil {
		return
	}
	s.running.Go(func() {
		if err := s.juju.door.Serve(s.juju.gate); err != nil {
			s.fail(incumbent.Errorf(incumbent.Unavailable, "juju listener: %w", err))
		}
	})
	s.log.Info("listening for agents of juju", "address", s.juju.gate.Addr().String())
}

// JujuAddr is where the door for Juju's agents listens; "" if it is closed.
func (s *Server) JujuAddr() string {
	if s.juju == nil {
		return ""
	}
	return s.juju.gate.Addr().String()
}

func (s *Server) drainJuju() {
	if s.juju != nil {
		s.juju.door.Drain()
		s.juju.gate.Close()
	}
}

func (s *Server) closeJuju(ctx context.Context) error {
	if s.juju == nil {
		return nil
	}
	return s.juju.door.Close(ctx)
}

// openedJuju returns the door; nil if there is none, or none yet.
func (s *Server) openedJuju() *juju.Door {
	if s.juju == nil {
		return nil
	}
	return s.juju.door
}

// jujuStats are the door's numbers; zeros while it is closed.
func (s *Server) jujuStats() juju.Stats {
	if d := s.openedJuju(); d != nil {
		return d.Stats()
	}
	return juju.Stats{}
}

// jujuConnections counts the connections of the door; 0 while it is closed.
func (s *Server) jujuConnections() int {
	if d := s.openedJuju(); d != nil {
		return s.juju.connections()
	}
	return 0
}

// nativeParked counts the parked connections of the native listener: those of other
// doors are parked, too. It is asked for each connection that is accepted.
func (s *Server) nativeParked() int {
	return max(0, int(s.park.Stats().Parked)-s.jujuAgents()-s.consulParked()-s.ovsdbParked())
}

// openConnections counts those of all listeners for clients.
func (s *Server) openConnections() int {
	return s.nativeConnections() + s.jujuConnections() + s.consulConnections() + s.ovsdbConnections()
}

// nativeConnections counts those of the native listener, whoever has them now.
func (s *Server) nativeConnections() int { return s.gate.Open() + s.nativeParked() }

// connections counts those of the open door, whoever has them now.
func (j *jujuDoor) connections() int { return j.gate.Open() + j.door.Agents() }

// jujuAgents counts the parked connections of the door; 0 while it is closed.
func (s *Server) jujuAgents() int {
	if d := s.openedJuju(); d != nil {
		return d.Agents()
	}
	return 0
}

// doors says which doors are open, for status.
func (s *Server) doors() []*apiv1.Door {
	out := []*apiv1.Door{{
		Name: "native", Address: s.gate.Addr().String(), Tls: s.certs != nil, Connections: uint64(s.nativeParked()),
	}}
	if s.juju != nil {
		st := s.jujuStats()
		out = append(out, &apiv1.Door{
			Name: "juju", Address: s.JujuAddr(), Tls: true, Connections: uint64(s.jujuConnections()),
			Agents: uint64(st.Agents), OutstandingClaims: uint64(st.Claims), BlockedCalls: uint64(st.Blocked),
		})
	}
	if d := s.showConsul(); d != nil {
		out = append(out, d)
	}
	if d := s.showOVSDB(); d != nil {
		out = append(out, d)
	}
	return out
}

// tls is what a handshake of the door uses: the certificate of the native
// listener where it has one, without asking for the client's, which has none.
func (j *jujuDoor) tls(certs *certificates) *tls.Config {
	if certs == nil {
		return j.own
	}
	from := certs.current.Load()
	if d := j.derived.Load(); d != nil && d.from == from {
		return d.config
	}
	d := &derivedTLS{from, jujuTLS(from.Certificates...)}
	j.derived.Store(d)
	return d.config
}

// jujuTLS has no ALPN: clients offer none and speak HTTP/1.1.
func jujuTLS(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certs, DynamicRecordSizingDisabled: true}
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

// jujuCollector shows the door's numbers to Prometheus.
type jujuCollector struct {
	j        *jujuDoor
	requests *prometheus.Desc
	errors   *prometheus.Desc
	logins   *prometheus.Desc
	refused  *prometheus.Desc
	checks   *prometheus.Desc
	gauges   [5]*prometheus.Desc
	totals   [2]*prometheus.Desc
}

func (s *Server) registerJujuMetrics() {
	if s.juju == nil {
		return
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("incumbent_juju_"+name, help, labels, nil)
	}
	s.metrics.registry.MustRegister(&jujuCollector{
		j:        s.juju,
		requests: desc("request_seconds", "Time from a request of Juju's agents to its answer; waits last as long as what they wait for.", "facade", "method"),
		errors:   desc("errors_total", "Errors that Juju's agents were told, by facade and code.", "facade", "code"),
		logins:   desc("logins_total", "Connections of Juju's agents, by how their way to the login ended.", "outcome"),
		refused:  desc("refused_total", "Connections of Juju's agents that were closed before TLS, by reason.", "reason"),
		checks:   desc("password_checks_total", "Passwords of Juju's agents, by how they were verified.", "outcome"),
		gauges: [5]*prometheus.Desc{
			desc("connections", "Open connections of Juju's agents."), desc("agents", "Of them, logged in."),
			desc("pending", "Of them, on their way to the login."), desc("outstanding_claims", "Calls that claim or pin, without an answer."),
			desc("blocked_calls", "Waits for the end of a holding."),
		},
		totals: [2]*prometheus.Desc{
			desc("retries_total", "Attempts repeated inside, where the outcome was not certain."),
			desc("silent_total", "Connections closed because nothing was heard of them."),
		},
	})
}

// Describe implements prometheus.Collector.
func (c *jujuCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.errors, c.logins, c.refused, c.checks} {
		out <- d
	}
	for _, d := range c.gauges {
		out <- d
	}
	for _, d := range c.totals {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *jujuCollector) Collect(out chan<- prometheus.Metric) {
	st := c.j.door.Stats()
	for _, m := range st.Methods {
		out <- prometheus.MustNewConstHistogram(c.requests, m.Count, m.Sum, m.Buckets, m.Facade, m.Method)
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, x := range st.Errors {
		count(c.errors, x.N, x.Facade, x.Code)
	}
	for d, list := range map[*prometheus.Desc][]juju.Count{c.logins: st.Logins, c.refused: st.Refused} {
		for _, x := range list {
			count(d, x.N, x.Label)
		}
	}
	for _, v := range auth.Verdicts() {
		count(c.checks, c.j.verifier.Counts(v), v.String())
	}
	for i, n := range [...]int{c.j.connections(), st.Agents, st.Pending, st.Claims, st.Blocked} {
		out <- prometheus.MustNewConstMetric(c.gauges[i], prometheus.GaugeValue, float64(n))
	}
	for i, n := range [...]uint64{st.Retries, st.Silent} {
		count(c.totals[i], n)
	}
}

// doorConnections is how many connections a door counts at most where the listener may
// have so many. The gate keeps that limit; whom it has just closed for somebody else's
// sake the door still counts for a moment, and must not refuse that other for it.
func doorConnections(listener int) int { return listener + gate.DefaultUnproven }
