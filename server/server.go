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
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/vfs"
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
	log       *slog.Logger
	begun     time.Time
	events    *timeline
	metrics   *metrics
	machine   *machine
	node      *node.Node
	leases    *lease.Service
	hub       *watch.Hub
	park      *park.Set
	door      *native.Door
	guard     *guard
	admission *admission
	certs     *certificates
	gate      *gate
	http      *http.Server
	rates     rateKeeper

	draining     atomic.Bool
	lastSnapshot atomic.Pointer[node.SnapshotDone]
	stop         context.CancelFunc // ends node and loops
	running      sync.WaitGroup
	ended        chan struct{} // closed when the member has stopped by itself or was closed
	cause        error         // why; set before ended is closed
	endOnce      sync.Once
}

// Open checks the configuration, recovers what is in the data directory, and
// listens. Until the member is caught up, calls are refused as Unavailable.
func Open(cfg Config) (_ *Server, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, begun: time.Now(), events: newTimeline(time.Now), metrics: newMetrics(), ended: make(chan struct{})}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	if s.certs, err = loadCertificates(cfg); err != nil {
		return nil, err
	}
	if s.guard, err = newGuard(cfg); err != nil {
		return nil, err
	}
	if s.admission, err = newAdmission(s.begun); err != nil {
		return nil, err
	}
	if s.park, err = park.New(park.Config{}); err != nil {
		return nil, err
	}
	undo = append(undo, func() { s.park.Close(context.Background()) })
	if err := s.openEngine(); err != nil {
		return nil, err
	}
	settleMemory(cfg.MemoryBytes)
	undo = append(undo, func() { s.node.Close(context.Background()); s.hub.Close() })
	ln, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "setting listen: %w", err).WithHint("is another server running? choose another address with --listen")
	}
	undo = append(undo, func() { ln.Close() })
	s.gate = newGate(ln, cfg.MaxConnections, func() int { return int(s.park.Stats().Parked) })
	if s.door, err = s.openDoor(); err != nil {
		return nil, err
	}
	s.registerMetrics()
	s.start()
	return s, nil
}

// openEngine makes lease loop, hub, machine and node, and recovers the state.
func (s *Server) openEngine() (err error) {
	s.leases, err = lease.New(lease.Options{
		Config:  lease.Config{Drift: s.cfg.Drift, Grace: s.cfg.Grace, Return: s.cfg.ReturnTime},
		Logger:  s.log,
		Barrier: s.park.Barrier,
	})
	if err != nil {
		return err
	}
	empty := core.New().View()
	s.hub = watch.New(watch.Config{Limits: watch.Limits{HistoryBytes: s.cfg.HistoryBytes}}, empty, empty.Index())
	s.machine = newMachine(s.leases, s.hub, s.metrics, s.events)
	s.node, err = node.Open(node.Config{
		FS: vfs.OS{}, Dir: s.cfg.DataDir, Machine: s.machine, Schema: core.SchemaVersion, Logger: s.log, Events: s.nodeEvents(),
		SegmentBytes: s.cfg.SegmentBytes, SnapshotBytes: s.cfg.SnapshotBytes, DiskReserve: s.cfg.DiskReserve,
	})
	if err != nil {
		s.hub.Close()
	}
	return err
}

func (s *Server) openDoor() (*native.Door, error) {
	return native.New(native.Config{
		Leases: s.leases, View: s.machine.view, Hub: s.hub, LeaseKind: leaseKind, Park: s.park, Operator: operator{s}, Guard: s.guard, Logger: s.log,
		Admission: s.admission.Controller, Monotonic: func() int64 { return int64(time.Since(s.begun)) },
		Confirm: func(done func(error)) { s.node.Confirm(func(_ uint64, err error) { done(err) }) },
	})
}

// start sets everything going.
func (s *Server) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.leases.Run(ctx, s.node) })
	s.running.Go(func() { s.fail(s.node.Run(ctx)) })
	s.running.Go(func() { s.keepRates(ctx) })
	s.http = s.newHTTP()
	s.running.Go(func() { s.serve() })
	s.running.Go(func() { s.announce(ctx) })
	s.log.Info("listening", "url", s.URL(), "data_dir", s.cfg.DataDir)
}

// announce notes when the member is caught up.
func (s *Server) announce(ctx context.Context) {
	select {
	case <-s.node.Ready():
		took := time.Since(s.begun)
		s.events.add(Event{What: "ready", Subject: s.cfg.Name, Detail: "after " + took.Round(time.Millisecond).String(), Index: uint64(s.machine.view().Index())})
		s.log.Info("ready", "after", took, "leases", s.machine.view().HeldCount(), "index", s.machine.view().Index())
	case <-ctx.Done():
	}
}

func (s *Server) serve() {
	ln := park.Listen(s.gate, 0)
	var err error
	if s.certs != nil {
		err = s.http.ServeTLS(ln, "", "")
	} else {
		err = s.http.Serve(ln)
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
	if s.certs != nil {
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

// Reload reads certificates and credentials again. What fails is logged, and
// what was there before stays in force.
func (s *Server) Reload() {
	if s.certs != nil {
		if err := s.certs.reload(); err != nil {
			s.log.Warn("certificates not reloaded", "cause", err)
		}
	}
	if err := s.guard.reload(); err != nil {
		s.log.Warn("credentials not reloaded", "cause", err)
	}
	s.events.add(Event{What: "reloaded", Subject: s.cfg.Name})
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

// Close leaves in order: it refuses what is new, answers what waits, hands on
// what was read, and stops. When ctx ends first it stops at once, which loses
// nothing that was acknowledged.
func (s *Server) Close(ctx context.Context) error {
	s.draining.Store(true)
	s.door.Drain()
	errs := []error{s.http.Shutdown(ctx), s.park.Close(ctx), s.door.Close(ctx)}
	s.http.Close()
	s.stop()
	errs = append(errs, s.node.Close(ctx), s.wait(ctx))
	s.hub.Close()
	s.fail(nil)
	if s.cause != nil {
		return s.cause
	}
	return errors.Join(errs...)
}
