package server

import (
	"slices"
	"strconv"
)

// Limits are those of [Config] that can change while the member runs. 0 means
// the default.
type Limits struct {
	MaxConnections int   // accepted at once
	MemoryLimit    int64 // resident ceiling that admission defends
}

// limitsOf returns the limits of a configuration with defaults.
func limitsOf(c Config) *Limits {
	return &Limits{MaxConnections: c.MaxConnections, MemoryLimit: c.MemoryLimit}
}

// SetLimits changes the limits. Connections over a lower one stay: it holds for
// those that come. The error is Invalid and changes nothing.
func (s *Server) SetLimits(l Limits) error {
	cfg := s.cfg
	cfg.MaxConnections, cfg.MemoryLimit = l.MaxConnections, l.MemoryLimit
	cfg = cfg.withDefaults()
	var found problems
	if cfg.sizeProblems(&found); len(found) > 0 {
		return found[0].Err
	}
	next := limitsOf(cfg)
	if old := s.limits.Swap(next); *old == *next {
		return nil
	}
	for _, g := range s.gates() {
		g.SetMax(next.MaxConnections)
	}
	for _, o := range s.opened {
		if o.limit != nil {
			o.limit(next.MaxConnections)
		}
	}
	settleMemory(next.MemoryLimit)
	s.log.Info("limits changed", "max_connections", next.MaxConnections, "memory_bytes", next.MemoryLimit)
	return nil
}

// TookSettings says what settings that were read again are now, and from where, for
// who asks which are in force. It is called by one goroutine at a time.
func (s *Server) TookSettings(taken []Setting) {
	all := slices.Clone(*s.settings.Load())
	for i := range all {
		if n := slices.IndexFunc(taken, func(t Setting) bool { return t.Name == all[i].Name }); n >= 0 {
			all[i] = taken[n]
		}
	}
	s.settings.Store(&all)
}

// inForce is a setting with the value it has: with the default that depends on others, and
// with what has changed since the start.
func (s *Server) inForce(one Setting) Setting {
	l := s.limits.Load()
	switch one.Name {
	case "data-dir":
		one.Value = s.cfg.DataDir
	case "name":
		one.Value = s.cfg.Name
	case "log-segment-bytes":
		one.Value = strconv.FormatInt(s.cfg.SegmentBytes, 10)
	case "snapshot-bytes":
		one.Value = strconv.FormatInt(s.cfg.SnapshotBytes, 10)
	case "max-connections":
		one.Value = strconv.Itoa(l.MaxConnections)
	case "memory-limit":
		one.Value = strconv.FormatInt(l.MemoryLimit, 10)
	case "join", "juju-password":
		// A join token is a secret, and so is a password.
		if one.Value != "" {
			one.Value = "(a secret)"
		}
	}
	return one
}
