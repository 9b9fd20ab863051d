// Package server composes one member from its parts: node, lease loop, watch
// hub, parked connections and doors. It is the only place that knows them all.
//
//	s, err := server.Open(cfg) // checks, recovers, listens
//	err = s.Wait()             // until a fault stops it
//	err = s.Close(ctx)         // in order: drain, answer, leave
//
// # Invariants
//
//   - A door answers nothing before this member has applied everything that was
//     committed when it started (G26).
//   - What stops the node stops the member: Wait returns why.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/accept"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/watch"
)

// Timeouts of the listener. Parked connections have their own.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 3 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Server is one running member.
type Server struct {
	cfg       Config
	log       *slog.Logger // which monitors are shown
	monitors  monitors
	begun     time.Time
	events    *timeline
	metrics   *metrics
	observer  *observer
	engine    *engine.Engine
	node      *node.Node // the engine's
	park      *park.Set
	door      *native.Door
	juju      *jujuDoor     // nil: closed
	consul    *consulDoor   // nil: closed
	ovsdb     *ovsdbDoor    // nil: closed
	opened    []*openDoor   // of these, those that are open
	control   *ovsdbControl // nil: closed
	dns       *dnsDoor      // nil: closed
	checks    *checks       // of services; nil: this member runs none
	guard     *guard
	trail     *trail
	tally     *tally.Tally // what is open here, for its quotas
	admission *admission
	overload  overloadWatch
	certs     *certificates
	https     bool       // the native API is served by TLS
	gate      *gate.Gate // of the native listener
	pace      *gate.Pace // of those who prove nothing, at all listeners for clients
	arrivals  *arrivals
	http      *http.Server
	rates     rateKeeper
	limits    atomic.Pointer[Limits]
	settings  atomic.Pointer[[]Setting] // as they are now; what is pointed to never changes
	horizon   *auth.Horizon             // of credentials and certificates, of all doors

	rechecking, tending chan struct{} // to keepRechecking and keepTending: look

	// Of the cluster.
	cluster      *cluster.Cluster
	ownTLS       *cluster.TLS // nil: the cluster has no authority
	transport    cluster.Transport
	peerListener net.Listener // nil: this member stays alone
	peerAddress  string       // where other members reach this one; "": nowhere

	cutOff       cutOff
	overflows    atomic.Int64 // messages to other members that found a full queue
	backups      *schedule
	sending      atomic.Int64 // backups that are being sent
	descriptors  uint64       // of files, for connections of clients
	draining     atomic.Bool
	lastSnapshot atomic.Pointer[node.SnapshotDone]
	obeys        *settings.Values   // what this member acts by; the apply goroutine's
	stop         context.CancelFunc // ends node and loops

	// tamper, where a test has set it, changes what this member applies, as broken
	// memory would.
	tamper atomic.Pointer[func(cmds [][]byte)]

	running sync.WaitGroup
	ended   chan struct{} // closed when the member has stopped by itself or was closed
	cause   error         // why; set before ended is closed
	endOnce sync.Once
}

// Open checks the configuration, recovers what is in the data directory, and
// listens. Until the member is caught up, calls are refused as Unavailable.
func Open(cfg Config) (*Server, error) { return OpenContext(context.Background(), cfg) }

// OpenContext is Open for a member that may have to join first: it gives up when
// ctx ends.
func OpenContext(ctx context.Context, cfg Config) (_ *Server, err error) {
	if cfg, err = cfg.named(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := usableDir(cfg.DataDir); err != nil {
		return nil, err
	}
	s := newServer(cfg)
	var undo undoing
	defer func() {
		if err != nil {
			undo.all()
		}
	}()
	if s.trail, err = newTrail(cfg, s.metrics, s.events, time.Now); err != nil {
		return nil, err
	}
	undo.later(s.trail.close)
	if s.admission, err = newAdmission(s.begun); err != nil {
		return nil, err
	}
	if s.park, err = park.New(park.Config{}); err != nil {
		return nil, err
	}
	undo.later(func() { s.park.Close(context.Background()) })
	if err := s.openIdentity(ctx, &undo); err != nil {
		return nil, err
	}
	if err := s.openEngine(); err != nil {
		return nil, unusable(cfg.DataDir, err)
	}
	settleMemory(cfg.MemoryLimit)
	s.defendMemory(int64(residentBytes()), cfg.MemoryLimit)
	undo.later(func() { s.engine.Close(context.Background()) })
	undo.later(func() { s.cluster.Close(context.Background()) })
	if s.door, err = s.openDoor(); err != nil {
		return nil, err
	}
	if err := s.openJuju(&undo); err != nil {
		return nil, err
	}
	if err := s.openConsul(&undo); err != nil {
		return nil, err
	}
	if err := s.openOVSDB(&undo); err != nil {
		return nil, err
	}
	if err := s.openDNS(&undo); err != nil {
		return nil, err
	}
	if err := s.openChecks(); err != nil {
		return nil, err
	}
	s.registerMetrics()
	s.backups = s.newSchedule()
	s.start()
	return s, nil
}

// newServer returns a member that has opened nothing yet.
func newServer(cfg Config) *Server {
	s := &Server{
		cfg: cfg, begun: time.Now(), events: newTimeline(time.Now), metrics: newMetrics(),
		ended: make(chan struct{}), arrivals: newArrivals(), pace: gate.NewPace(), descriptors: descriptorsForClients(descriptorLimit()), horizon: auth.NewHorizon(), rechecking: make(chan struct{}, 1), tending: make(chan struct{}, 1),
	}
	s.log = s.monitors.logger(cfg.Logger)
	s.limits.Store(limitsOf(cfg))
	s.settings.Store(&cfg.Settings)
	s.tally = tally.New(func() *settings.Values { return settings.Of(s.engine.View()).Values() })
	return s
}

// undoing is what to undo, last first, if opening fails.
type undoing []func()

func (u *undoing) later(f func()) { *u = append(*u, f) }

func (u *undoing) all() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
}

// openIdentity listens, joins if the member has to, and reads certificates and
// credentials: what of them is wrong is said before the log is touched.
func (s *Server) openIdentity(ctx context.Context, undo *undoing) (err error) {
	own := s.cfg.expectsOwnTLS()
	if s.guard, err = newGuard(s.cfg, s.trail.note, auth.WithBook(book{s}, s.horizon)); err != nil {
		return err
	}
	s.guard.tally = s.tally
	if s.certs, err = loadCertificates(s.cfg, nil, s.anyTokens, s.guard.SetRoots); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return cannotListen("listen", err)
	}
	undo.later(func() { ln.Close() })
	s.gate = s.gateOf(ln, nativeListener, reservedConnections, s.nativeParked)
	if err := s.listenForJuju(undo); err != nil {
		return err
	}
	if err := s.listenForConsul(undo); err != nil {
		return err
	}
	if err := s.listenForOVSDB(undo); err != nil {
		return err
	}
	if err := s.listenForControl(undo); err != nil {
		return err
	}
	if err := s.listenForDNS(undo); err != nil {
		return err
	}
	s.https = s.cfg.TLSCert != "" || own
	if err := s.listenForPeers(); err != nil {
		return err
	}
	undo.later(func() {
		if s.peerListener != nil {
			s.peerListener.Close()
		}
	})
	record, err := cluster.Identify(ctx, s.cfg.joining(s.peerAddress, s.URL()))
	if err != nil {
		return unusable(s.cfg.DataDir, err)
	}
	if record != nil {
		if err := s.openOwnTLS(record); err != nil {
			return err
		}
	}
	s.cluster = cluster.New(s.clusterConfig(record))
	return nil
}

// openOwnTLS takes the certificate of the cluster's authority, if it has one.
func (s *Server) openOwnTLS(record *cluster.Record) (err error) {
	hosts := cluster.HostsOf(record.Hosts, s.gate.Addr().String(), s.cfg.Advertise, s.peerAddress)
	if s.ownTLS, err = cluster.OpenTLS(s.cfg.DataDir, record, s.cfg.Name, hosts, s.log); err != nil {
		return err
	}
	if s.certs, err = loadCertificates(s.cfg, s.ownTLS, s.anyTokens, s.guard.SetRoots); err != nil {
		return err
	}
	if s.ownTLS != nil {
		s.ownTLS.Renewed = s.certificateRenewed // before anything runs that renews
	}
	// Joining may have shown that the cluster has no authority after all.
	s.https = s.certs != nil
	if err := s.cfg.policy(s.ownTLS != nil).Check(); err != nil {
		return err
	}
	if s.peerListener == nil {
		return nil
	}
	return s.cfg.peerPolicy(s.ownTLS != nil)
}

// clusterConfig is what this member's part in its cluster works with.
func (s *Server) clusterConfig(record *cluster.Record) cluster.Config {
	cfg := cluster.Config{
		DataDir: s.cfg.DataDir, Name: s.cfg.Name, Version: s.cfg.Version, Schema: s.cfg.knows(),
		Record: record, TLS: s.ownTLS, Listener: s.peerListener, Transport: &s.transport,
		PeerAddress: s.peerAddress, URL: s.URL(), CAHash: func() (string, bool, error) { return "", false, nil },
		CheckpointInterval: s.cfg.CheckpointInterval, Logger: s.log, PeerEvents: s.peerEvents(), Fail: s.fail, Ended: s.ended,
		Event: func(what, subject, detail string) { s.events.add(Event{What: what, Subject: subject, Detail: detail}) },
	}
	if s.certs != nil {
		cfg.CAHash = s.certs.top
	}
	return cfg
}

// openEngine composes the engine, recovers the state and joins the other members.
func (s *Server) openEngine() (err error) {
	alone := s.peerListener == nil
	options := lease.Options{Config: s.cfg.leaseConfig(alone), Logger: s.log, Barrier: s.barrier}
	options.Config.Pressure, options.Config.Press, options.Config.Busy = s.admission.Pressure, s.admission.Press, s.admission.Busy
	if !alone {
		options.Peers = &s.transport
	}
	s.observer = &observer{metrics: s.metrics, events: s.events}
	s.engine, err = engine.New(engine.Config{
		Lease: options, Watch: watch.Config{Limits: s.watchLimits()},
		Applied: s.applied, Restored: s.restored, Tamper: s.distort,
		Leading: func(uint64) { s.cluster.Leads(); s.tend() },
	})
	if err != nil {
		return err
	}
	cfg := node.Config{
		FS: s.cfg.fs, Dir: s.cfg.DataDir, Schema: s.cfg.knows(), Logger: s.log, Events: s.nodeEvents(),
		Admissible: s.cluster.Admissible, Join: s.cluster.Joins(), TailEntries: s.cfg.tailEntries,
		SegmentBytes: s.cfg.SegmentBytes, SnapshotBytes: s.cfg.SnapshotBytes, DiskReserve: s.cfg.DiskReserve,
	}
	if !alone {
		cfg.Transport = &s.transport
	}
	if err := s.engine.Open(cfg); err != nil {
		return err
	}
	s.node = s.engine.Node()
	if err := s.cluster.Open(s.engine); err != nil {
		return errors.Join(err, s.engine.Close(context.Background()))
	}
	return nil
}

// applied takes note of a batch, on the apply goroutine.
func (s *Server) applied(a *engine.Applied) {
	s.cluster.Applied(a)
	s.observer.count(a.Results, a.Changes)
	s.obey(a.View)
	s.credentialsChanged(a.Changes)
	s.checksApplied(a)
}

// restored takes note of a state that came in the place of the old one, on the apply
// goroutine.
func (s *Server) restored(v *core.View) {
	s.cluster.Restored(v)
	s.checksRestored(v)
	s.obey(v)
	s.tend()
}

func (s *Server) distort(cmds [][]byte) {
	if f := s.tamper.Load(); f != nil {
		(*f)(cmds)
	}
}

func (s *Server) openDoor() (*native.Door, error) {
	return native.New(native.Config{
		Engine: s.engine, Park: s.park, Operator: s.operator(), Guard: s.guard, Credentials: s.nativeCredentials(), Logger: s.log,
		Admission: s.admission.Controller, Monotonic: func() int64 { return int64(time.Since(s.begun)) },
		Age: s.cluster.Age, Away: s.cutOff.err, Audit: s.trail.note, Tally: s.tally,
	})
}

// start sets everything going.
func (s *Server) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.fail(s.engine.Run(ctx)) })
	s.running.Go(func() { s.keepRates(ctx) })
	s.running.Go(func() { s.keepRechecking(ctx) })
	s.running.Go(func() { s.keepTending(ctx) })
	s.http = s.newHTTP()
	s.running.Go(func() { s.serve() })
	s.startJuju()
	s.startConsul()
	s.startOVSDB()
	s.startControl()
	s.startDNS(ctx)
	s.startChecks(ctx)
	s.running.Go(func() { s.keepConsulNodes(ctx) })
	s.running.Go(func() { s.announce(ctx) })
	s.running.Go(func() { s.cluster.Run(ctx) })
	go s.backups.run(ctx) // nobody waits for a folder that hangs: see stop
	if !s.cluster.Alone() {
		s.running.Go(func() { s.keepConfirming(ctx) })
	}
	if s.ownTLS != nil {
		s.running.Go(func() { s.ownTLS.Run(ctx) })
	}
	s.log.Info("listening", "url", s.URL(), "data_dir", s.cfg.DataDir)
	s.sayTrust()
}

// announce notes when the member is caught up.
func (s *Server) announce(ctx context.Context) {
	select {
	case <-s.node.Ready():
		took := time.Since(s.begun)
		s.events.add(Event{What: "ready", Subject: s.cfg.Name, Detail: "after " + took.Round(time.Millisecond).String(), Index: uint64(s.engine.View().Index())})
		s.log.Info("ready", "after", took, "leases", leases.Of(s.engine.View()).HeldCount(), "index", s.engine.View().Index())
	case <-ctx.Done():
	}
}

func (s *Server) serve() {
	ln := s.arrivals.listen(s.gate)
	var err error
	if s.certs != nil {
		err = s.http.ServeTLS(park.Listen(accept.PaceAll(ln), 0), "", "")
	} else {
		err = s.http.Serve(park.Listen(ln, 0))
	}
	if !errors.Is(err, http.ErrServerClosed) {
		s.fail(incumbent.Errorf(incumbent.Unavailable, "listener: %w", err))
	}
}

// fail stops the member because of a fault; nil stops it without one.
func (s *Server) fail(err error) {
	s.endOnce.Do(func() {
		if err != nil {
			s.log.Error("the member stops", "cause", err)
			s.events.add(Event{What: "stopped by a fault", Subject: s.cfg.Name, Detail: err.Error()})
		}
		s.cause = err
		close(s.ended)
	})
}

// Wait returns when the member has stopped: nil after Close, else the fault.
func (s *Server) Wait() error {
	<-s.ended
	return s.cause
}

// Failed reports whether a fault has stopped the member.
func (s *Server) Failed() bool {
	select {
	case <-s.ended:
		return s.cause != nil
	default:
		return false
	}
}

// WaitReady waits until the member serves.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.node.Ready():
		return nil
	case <-s.ended:
		return s.cause
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.Unavailable, "not caught up in time: %w", ctx.Err())
	}
}

// URL is where the native API is.
func (s *Server) URL() string {
	scheme := "http://"
	if s.https {
		scheme = "https://"
	}
	if s.cfg.Advertise != "" {
		return scheme + s.cfg.Advertise
	}
	return scheme + s.gate.Addr().String()
}

// DataDir is the data directory as an absolute path where there is one.
func (s *Server) DataDir() string {
	if abs, err := filepath.Abs(s.cfg.DataDir); err == nil {
		return abs
	}
	return s.cfg.DataDir
}

// certificateRenewed shows the new certificate to clients and to peers; of the
// latter, new connections open before the old ones close.
func (s *Server) certificateRenewed() {
	if err := s.certs.reload(); err != nil {
		s.log.Warn("certificates not reloaded", "cause", err)
	}
	s.tend() // who came in by an authority that is gone is cut off
	s.cluster.Rotate()
	s.events.add(Event{What: "certificate renewed", Subject: s.cfg.Name, Detail: "until " + s.ownTLS.Ends().UTC().Format(time.RFC3339)})
}

// wait waits for the member's goroutines: not for ever, since a disk that hangs
// may keep one.
func (s *Server) wait(ctx context.Context) error {
	gone := make(chan struct{})
	go func() { s.running.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-gone: // both: then all is well
		return nil
	default:
		return incumbent.Errorf(incumbent.DeadlineExceeded, "left before everything had ended: %w", context.Cause(ctx))
	}
}

// clientsPercent is the part of the time in which clients may end what they have under way.
const clientsPercent = 60

// untilOf is how long a context lasts.
func untilOf(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at)
	}
	return DefaultStopTimeout
}

// Close leaves in order: it refuses what is new, answers what waits, hands on
// what was read, and stops. When ctx ends first it stops at once, which loses
// nothing that was acknowledged.
func (s *Server) Close(ctx context.Context) error {
	s.draining.Store(true)
	s.door.Drain()
	for _, o := range s.opened {
		o.drain()
	}
	s.closeControl()
	s.leaveChecks(ctx)
	// Clients have a part of the time: one that sends a request for ever, or takes its answer for
	// ever, is not to cost the cluster its leader.
	clients, cancel := context.WithTimeout(ctx, untilOf(ctx)*clientsPercent/100)
	cut := []error{s.http.Shutdown(clients), s.park.Close(clients), s.door.Close(clients), s.closeDNS(clients)}
	for _, o := range s.opened {
		cut = append(cut, o.serving.Close(clients))
	}
	cancel()
	if err := errors.Join(cut...); err != nil && ctx.Err() == nil {
		s.log.Warn("clients were cut off", "cause", "they had not ended in time")
	}
	s.http.Close()
	s.backups.stop(ctx)
	// The node hands leadership over, which takes peers and the lease loop.
	errs := []error{s.engine.Close(ctx)}
	s.stop()
	errs = append(errs, s.wait(ctx), s.cluster.Close(ctx))
	s.trail.close()
	s.fail(nil)
	if s.cause != nil {
		return s.cause
	}
	return errors.Join(errs...)
}
