package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/door/ovsdb"
)

// OVSDB configures the door for clients of Open vSwitch's databases.
type OVSDB struct {
	// Listen are its own addresses, HOST:PORT or unix:PATH, and columns that say what else
	// to listen at, db:DATABASE,TABLE,COLUMN; none: the door is closed.
	Listen    []string
	Schemas   []string // files of the databases that there are to be
	Namespace string   // of the databases; the default one
	Anonymous string   // KIND:NAME of who connects and brings nothing; "": nobody
	// Cert, Key and CA are files with the door's own certificates; "": those of the native
	// listener. Who has a certificate of this authority is an agent by its common name.
	Cert, Key, CA string

	Plaintext bool          // no TLS, also where the native listener has it; on loopback only
	Probe     time.Duration // a client that was silent for so long is asked for an echo; ovsdb.DefaultProbe
	Control   string        // path of the socket that ovs-appctl speaks to; "": there is none
}

// unixPrefix tells the paths of sockets from addresses.
const unixPrefix = "unix:"

func (o OVSDB) validate(policy auth.ListenerPolicy) error {
	if len(o.Listen) == 0 {
		if len(o.Schemas) > 0 || o.Namespace != "" || o.Anonymous != "" || o.Plaintext || o.Probe != 0 || o.Cert != "" || o.Key != "" || o.CA != "" || o.Control != "" {
			return invalid("ovsdb-listen", "is not set, but another --ovsdb setting is").WithHint("give --ovsdb-listen 127.0.0.1:6641")
		}
		return nil
	}
	if err := inNamespace("ovsdb-namespace", o.Namespace); err != nil {
		return err
	}
	if _, err := anonymous(o.Anonymous); err != nil {
		return invalid("ovsdb-anonymous", "%w", err)
	}
	if err := o.validateTLS(); err != nil {
		return err
	}
	if _, err := o.sources(); err != nil {
		return err
	}
	policy = o.policyOf(policy)
	for _, at := range o.Listen {
		if path, unix := strings.CutPrefix(at, unixPrefix); unix {
			if path == "" {
				return invalid("ovsdb-listen", "%q names no socket", at)
			}
			continue
		}
		if strings.HasPrefix(at, sourcePrefix) {
			continue
		}
		if err := cluster.ValidAddress("ovsdb-listen", at); err != nil {
			return err
		}
		policy.Address = at
		if o.Plaintext && !policy.OnlyLoopback() {
			return invalid("ovsdb-plaintext", "goes with addresses on loopback only")
		}
		if err := policy.Check(); err != nil {
			return err
		}
	}
	return nil
}

// addresses are those that are not sockets of this machine.
func (o OVSDB) addresses() (out []string) {
	for _, at := range o.Listen {
		if !strings.HasPrefix(at, unixPrefix) && !strings.HasPrefix(at, sourcePrefix) {
			out = append(out, at)
		}
	}
	return out
}

// ovsdbDoor is the open door and what belongs to it.
type ovsdbDoor struct {
	openDoor
	rows rowGates
	door *ovsdb.Door

	own      atomic.Pointer[tls.Config] // of the door's own certificates; nil: it has none
	pool     *x509.CertPool             // of its authority
	poolText []byte
}

// listenForOVSDB opens the door's listeners.
func (s *Server) listenForOVSDB(undo *undoing) error {
	if len(s.cfg.OVSDB.Listen) == 0 {
		return nil
	}
	o := &ovsdbDoor{openDoor: openDoor{name: ovsdbListener}, rows: rowGates{open: map[*rowListener]struct{}{}}}
	for _, at := range s.cfg.OVSDB.Listen {
		if strings.HasPrefix(at, sourcePrefix) {
			continue
		}
		ln, unix, err := listenOVSDB(at)
		if err != nil {
			return cannotListen("ovsdb-listen", err)
		}
		undo.later(func() { ln.Close() })
		s.guardDoor(&o.openDoor, ln, unix)
	}
	s.ovsdb, s.opened = o, append(s.opened, &o.openDoor)
	return nil
}

// listenerName is the name of a door's listener.
func listenerName(door string, i int) string {
	if i == 0 {
		return door
	}
	return door + "-" + strconv.Itoa(i+1)
}

// listenOVSDB listens at an address. A socket that an earlier life has left behind is
// replaced.
func listenOVSDB(at string) (ln net.Listener, unix bool, err error) {
	quiet := net.ListenConfig{KeepAlive: -1} // the door sets it as it wants it
	path, unix := strings.CutPrefix(at, unixPrefix)
	if !unix {
		ln, err = quiet.Listen(context.Background(), "tcp", at)
		return ln, false, err
	}
	if c, dialErr := net.DialTimeout("unix", path, time.Second); dialErr == nil {
		c.Close()
		return nil, true, incumbent.Errorf(incumbent.Unavailable, "somebody listens at %s", path)
	} else if st, statErr := os.Lstat(path); statErr == nil && st.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path) // else listening says why it cannot
	}
	ln, err = quiet.Listen(context.Background(), "unix", path)
	return ln, true, err
}

// openOVSDB makes the door; it serves from startOVSDB on.
func (s *Server) openOVSDB(undo *undoing) (err error) {
	o := s.ovsdb
	if o == nil {
		return nil
	}
	who, err := anonymous(s.cfg.OVSDB.Anonymous)
	if err != nil {
		return err
	}
	cfg := ovsdb.Config{
		Limits: s.cfg.OVSDB.limits(s.cfg.MaxConnections),
		Engine: s.engine, Park: s.park, Guard: s.guard, Standing: s.ovsdbStanding, Namespace: s.cfg.OVSDB.Namespace, Anonymous: who,
		Admission: s.admission.Controller, Monotonic: func() int64 { return int64(time.Since(s.begun)) }, Logger: s.log, Audit: s.trail.note, Tally: s.tally,
	}
	if cfg.Schemas, err = s.cfg.OVSDB.schemas(); err != nil {
		return err
	}
	switch {
	case s.cfg.OVSDB.Cert != "":
		if err := o.load(s.cfg.OVSDB); err != nil {
			return err
		}
		o.tls, cfg.TLS, cfg.OwnCA = true, o.own.Load, s.cfg.OVSDB.CA != ""
	case s.certs != nil && !s.cfg.OVSDB.Plaintext:
		o.tls, cfg.TLS = true, func() *tls.Config { return o.tlsOf(s.certs) }
	}
	if cfg.Sources, err = s.cfg.OVSDB.sources(); err != nil {
		return err
	}
	cfg.Listen = s.listenByRow
	if o.door, err = ovsdb.New(cfg); err != nil {
		return err
	}
	undo.later(func() { o.door.Close(context.Background()) })
	o.serving = o.door
	o.limit = func(most int) { o.door.SetLimits(s.cfg.OVSDB.limits(most)) }
	return nil
}

// schemas are the texts of those that the databases are to have.
func (o OVSDB) schemas() (texts [][]byte, err error) {
	for _, path := range o.Schemas {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, invalid("ovsdb-schema", "%w", err)
		}
		if _, bad := ovs.ParseSchema(text); bad != nil {
			return nil, invalid("ovsdb-schema", "%s: %w", path, bad)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// limits are the door's where its listeners may have so many connections each.
func (o OVSDB) limits(listener int) ovsdb.Limits {
	return ovsdb.Limits{MaxConnections: doorConnections(listener), Probe: o.Probe}
}

// ovsdbStanding is what the door shows of this member.
func (s *Server) ovsdbStanding() ovsdb.Standing {
	leader := s.cluster.Leader()
	st := ovsdb.Standing{Cluster: s.cluster.ClusterID(), Connected: leader != 0}
	member := s.node.Status().Member
	st.Leads = leader == member
	st.Member = ovsdbServerID(st.Cluster, member)
	return st
}

// ovsdbServerID is the UUID by which clients and scripts know a member. Its first half
// is the member's own: scripts show the first digits only.
func ovsdbServerID(cluster [16]byte, member uint64) [16]byte {
	id := cluster
	for i := range 8 {
		id[i] ^= byte(member >> (8 * i)) //nolint:gosec // each byte by itself
	}
	return id
}

// startOVSDB lets clients in.
func (s *Server) startOVSDB() {
	if s.ovsdb == nil {
		return
	}
	for i, g := range s.ovsdb.gates {
		s.keepServing("ovsdb listener", func() error { return s.ovsdb.door.Serve(g, &ovsdb.Remote{Secure: !s.ovsdb.unix[i]}) })
	}
	s.log.Info("listening for clients of ovsdb", "address", strings.Join(s.OVSDBAddrs(), " "))
}

// OVSDBAddrs is where the door for clients of Open vSwitch's databases listens; none if
// it is closed.
func (s *Server) OVSDBAddrs() []string {
	if s.ovsdb == nil {
		return nil
	}
	return s.ovsdb.addresses()
}
