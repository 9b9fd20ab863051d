package server

import (
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/door/ovsdb"
	"github.com/incumbent-dev/incumbent/gate"
)

const (
	// sourcePrefix tells columns that say what to listen at from addresses.
	sourcePrefix = "db:"
	// defaultOVSDBPort is that of targets that name none.
	defaultOVSDBPort = "6640"
)

// JoinSources puts together what was taken apart at commas: an element that begins with
// "db:" and the two behind it are one, DATABASE,TABLE,COLUMN.
func JoinSources(list []string) (out []string) {
	for len(list) > 0 {
		n := 1
		if strings.HasPrefix(list[0], sourcePrefix) && !strings.Contains(list[0], ",") {
			n = min(3, len(list))
		}
		out, list = append(out, strings.Join(list[:n], ",")), list[n:]
	}
	return out
}

// sources are the columns that say what else to listen at.
func (o OVSDB) sources() (out []ovsdb.Source, err error) {
	for _, at := range o.Listen {
		text, is := strings.CutPrefix(at, sourcePrefix)
		if !is {
			continue
		}
		from, err := ovsdb.ParseSource(text)
		if err != nil {
			return nil, invalid("ovsdb-listen", "%w", err)
		}
		out = append(out, from)
	}
	return out, nil
}

// passiveTarget is a target like pssl:6642:192.0.2.1 as an address.
func passiveTarget(target string) (address string, secure bool, err error) {
	kind, rest, _ := strings.Cut(target, ":")
	switch kind {
	case "punix":
		return unixPrefix + rest, false, nil
	case "ptcp", "pssl":
	default:
		return "", false, incumbent.Errorf(incumbent.Invalid, "%s is not listened at: only ptcp:, pssl: and punix: are", target)
	}
	port, host, _ := strings.Cut(rest, ":")
	if port == "" {
		port = defaultOVSDBPort
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", false, incumbent.Errorf(incumbent.Invalid, "%s has no port", target)
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port), kind == "pssl", nil
}

// rowGates guard the listeners that rows of databases say, which come and go.
type rowGates struct {
	mu     sync.Mutex
	open   map[*rowListener]struct{}
	closed [gate.NumReasons]uint64 // of those that are gone
}

// rowListener is one of them.
type rowListener struct {
	*gate.Gate
	of *rowGates
}

// Close implements [net.Listener].
func (l *rowListener) Close() error {
	err := l.Gate.Close()
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if _, open := l.of.open[l]; open {
		delete(l.of.open, l)
		for r, n := range l.Stats().Closed {
			l.of.closed[r] += n
		}
	}
	return err
}

// all are the gates that are open.
func (g *rowGates) all() (out []*gate.Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.open {
		out = append(out, l.Gate)
	}
	return out
}

// stats are those of all of them together, closed ones too.
func (g *rowGates) stats() (sum gate.Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum.Closed = g.closed
	for l := range g.open {
		st := l.Stats()
		sum.Silent, sum.Waiting, sum.Unproven = sum.Silent+st.Silent, sum.Waiting+st.Waiting, sum.Unproven+st.Unproven
		for r, n := range st.Closed {
			sum.Closed[r] += n
		}
	}
	return sum
}

// listenByRow listens at what a row of a database says. Without TLS it listens where only
// this machine connects.
func (s *Server) listenByRow(target string) (ln net.Listener, secure bool, err error) {
	address, secure, err := passiveTarget(target)
	switch policy := (auth.ListenerPolicy{Address: address}); {
	case err != nil:
		return nil, false, err
	case secure && !s.ovsdb.tls:
		return nil, false, incumbent.Errorf(incumbent.Invalid, "%s needs --ovsdb-cert and --ovsdb-key", target)
	case !secure && !strings.HasPrefix(address, unixPrefix) && !policy.OnlyLoopback():
		return nil, false, incumbent.Errorf(incumbent.Denied, "%s has no TLS, and other machines could reach it", target)
	}
	open, _, err := listenOVSDB(address)
	if err != nil {
		return nil, false, incumbent.Errorf(incumbent.Unavailable, "listening at %s: %w", target, err)
	}
	rows := &s.ovsdb.rows
	l := &rowListener{s.gateOf(open, ovsdbRows, 0, s.ovsdb.parked), rows}
	rows.mu.Lock()
	rows.open[l] = struct{}{}
	rows.mu.Unlock()
	// Those that change from now on reach it like the others.
	l.SetMax(s.limits.Load().MaxConnections)
	is := settings.Of(s.engine.View()).Values()
	l.SetStrangers(int(is.Int(settings.StrangersUnproven)), is.Duration(settings.StrangersFirstByte))
	return l, secure, nil
}
