package server

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/accept"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
)

// doorServing is what every door is asked that serves parked connections from listeners
// of its own.
type doorServing interface {
	Drain()
	Close(ctx context.Context) error
	Recheck()
	SendAway(next func() bool)
	Parked() int
}

// openDoor is such a door with its listeners.
type openDoor struct {
	name    string // of the door, in status, and of its first listener
	gates   []*gate.Gate
	unix    []bool      // of the gates: sockets have no TLS
	serving doorServing // nil: it is not made yet
	tls     bool
	derived derivedTLS
	limit   func(maxConnections int) // changes it while running; nil: it stays
	show    func(*apiv1.Door)        // says what else there is to say of it; nil: nothing
}

// parked counts the parked connections of the door; 0 while it is not made.
func (o *openDoor) parked() int {
	if o.serving == nil {
		return 0
	}
	return o.serving.Parked()
}

// connections counts those of the door, whoever has them now.
func (o *openDoor) connections() int {
	n := o.parked()
	for _, g := range o.gates {
		n += g.Open()
	}
	return n
}

// addresses are where the door listens.
func (o *openDoor) addresses() (out []string) {
	for i, g := range o.gates {
		at := g.Addr().String()
		if o.unix[i] {
			at = unixPrefix + at
		}
		out = append(out, at)
	}
	return out
}

// refused is how many its listeners closed for want of a place.
func (o *openDoor) refused() (n uint64) {
	for _, g := range o.gates {
		n += g.Refused()
	}
	return n
}

// guardDoor has a door listen with ln, guarded by a gate of its own.
func (s *Server) guardDoor(o *openDoor, ln net.Listener, unix bool) {
	o.gates = append(o.gates, s.gateOf(ln, listenerName(o.name, len(o.gates)), 0, o.parked))
	o.unix = append(o.unix, unix)
}

// keepServing serves until it is ended; an error stops the member.
func (s *Server) keepServing(what string, serve func() error) {
	s.running.Go(func() {
		if err := serve(); err != nil {
			s.fail(incumbent.Errorf(incumbent.Unavailable, "%s: %w", what, err))
		}
	})
}

// drain lets nobody in any more, and ends the door's connections. It does not wait.
func (o *openDoor) drain() {
	o.serving.Drain()
	for _, g := range o.gates {
		g.Close()
	}
}

// listenFor opens the listener of a door, which is the value of a setting. Doors set
// keep-alive as they want it; Go's own would be four system calls for each connection of
// a storm.
func (u *undoing) listenFor(setting, at string) (net.Listener, error) {
	quiet := net.ListenConfig{KeepAlive: -1}
	ln, err := quiet.Listen(context.Background(), "tcp", at)
	if err != nil {
		return nil, cannotListen(setting, err)
	}
	u.later(func() { ln.Close() })
	return ln, nil
}

// cannotListen says which setting to change.
func cannotListen(setting string, err error) error {
	return incumbent.Errorf(incumbent.Unavailable, "setting %s: %w", setting, err).
		WithHint("is another server running? choose another address with --" + setting)
}

// derivedTLS is what a door makes of the native listener's TLS: kept while that stays
// the same, so that tickets of sessions stay good.
type derivedTLS struct {
	kept atomic.Pointer[struct{ from, config *tls.Config }]
}

func (d *derivedTLS) of(from *tls.Config, derive func(from *tls.Config) *tls.Config) *tls.Config {
	if k := d.kept.Load(); k != nil && k.from == from {
		return k.config
	}
	k := &struct{ from, config *tls.Config }{from, derive(from)}
	d.kept.Store(k)
	return k.config
}

// tlsOf is what a handshake of the door uses: that of the native listener, for other
// protocols, and a certificate may be missing: who asks is said by what comes later.
func (o *openDoor) tlsOf(certs *certificates, protocols ...string) *tls.Config {
	return o.derived.of(certs.lenient.Load(), func(from *tls.Config) *tls.Config {
		config := from.Clone()
		config.NextProtos, config.DynamicRecordSizingDisabled = protocols, true
		return accept.InTurns(config)
	})
}

// nativeParked counts the parked connections of the native listener: those of other
// doors are parked, too. It is asked for each connection that is accepted.
func (s *Server) nativeParked() int {
	n := int(s.park.Stats().Parked)
	for _, o := range s.opened {
		n -= o.parked()
	}
	return max(0, n)
}

// nativeConnections counts those of the native listener, whoever has them now.
func (s *Server) nativeConnections() int { return s.gate.Open() + s.nativeParked() }

// openConnections counts those of all listeners for clients.
func (s *Server) openConnections() int {
	n := s.nativeConnections()
	for _, o := range s.opened {
		n += o.connections()
	}
	return n
}

// doors says which doors are open, for status.
func (s *Server) doors() []*apiv1.Door {
	out := []*apiv1.Door{{
		Name: "native", Address: s.gate.Addr().String(), Tls: s.certs != nil, Connections: uint64(s.nativeParked()),
	}}
	for _, o := range s.opened {
		d := &apiv1.Door{Name: o.name, Address: strings.Join(o.addresses(), " "), Tls: o.tls, Connections: uint64(o.connections())} //nolint:gosec // it is not negative
		if o.show != nil {
			o.show(d)
		}
		out = append(out, d)
	}
	return out
}

// doorConnections is how many connections a door counts at most where the listener may
// have so many. The gate keeps that limit; whom it has just closed for somebody else's
// sake the door still counts for a moment, and must not refuse that other for it.
func doorConnections(listener int) int { return listener + gate.DefaultUnproven }

// inNamespace checks that there can be a namespace of this name.
func inNamespace(setting, namespace string) error {
	if namespace == "" {
		return nil
	}
	if err := (incumbent.Name{Namespace: namespace, Model: incumbent.DefaultModel, Lease: "x"}).Validate(); err != nil {
		return invalid(setting, "%w", err)
	}
	return nil
}

// anonymous is who a setting says brings nothing, KIND:NAME; "": nobody.
func anonymous(text string) (auth.Principal, error) {
	if text == "" {
		return auth.Principal{}, nil
	}
	return auth.ParsePrincipal(text)
}
