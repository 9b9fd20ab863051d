package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/door/ovsdb"
)

func (s *Server) controlVersion([]string) (string, error) {
	return "ovsdb-server (Incumbent) " + s.cfg.Version + "\n", nil
}

func (s *Server) controlDatabases([]string) (string, error) {
	names := []string{"_Server"}
	table.Of(s.engine.View()).Databases(s.controlNamespace(), func(d *table.Database) bool {
		names = append(names, d.Name)
		return true
	})
	slices.Sort(names)
	return strings.Join(names, "\n") + "\n", nil
}

// controlRemotes shows what is listened at, as targets.
func (s *Server) controlRemotes([]string) (string, error) {
	var out []string
	for _, at := range s.OVSDBAddrs() {
		out = append(out, s.targetOf(at)+"\n")
	}
	slices.Sort(out)
	return strings.Join(out, ""), nil
}

func (s *Server) targetOf(at string) string {
	if strings.HasPrefix(at, unixPrefix) {
		return "p" + at
	}
	host, port, _ := net.SplitHostPort(at)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if s.ovsdb.tls {
		return "pssl:" + port + ":" + host
	}
	return "ptcp:" + port + ":" + host
}

// controlMemory shows what takes memory, by name.
func (s *Server) controlMemory([]string) (string, error) {
	databases, rows, bytes := 0, 0, int64(0)
	table.Of(s.engine.View()).Databases(s.controlNamespace(), func(d *table.Database) bool {
		databases, rows, bytes = databases+1, rows+d.Len(), bytes+d.Bytes()
		return true
	})
	return fmt.Sprintf("databases:%d raft-log:%d rows:%d rows-kB:%d rss-kB:%d sessions:%d\n",
		databases, s.node.Status().Entries, rows, bytes>>10, residentBytes()>>10, s.ovsdb.connections()), nil
}

// counters are the door's numbers, by name.
func (s *Server) counters() []ovsdb.Count {
	st := s.ovsdb.door.Stats()
	out := []ovsdb.Count{
		{Name: "connections_malformed", N: st.Malformed},
		{Name: "connections_refused", N: st.Refused},
		{Name: "connections_silent", N: st.Silent},
		{Name: "connections_slow", N: st.Slow},
		{Name: "connections_unknown", N: st.Unknown},
		{Name: "connections_without_tls", N: st.NoTLS},
		{Name: "probes", N: st.Probes},
		{Name: "updates", N: st.Updates},
		{Name: "updates_encoded", N: st.Encoded},
		{Name: "monitors_resumed", N: st.Resumed},
	}
	for _, c := range st.Transactions {
		out = append(out, ovsdb.Count{Name: "transactions_" + c.Name, N: c.N})
	}
	for _, c := range st.Requests {
		out = append(out, ovsdb.Count{Name: "requests_" + c.Name, N: c.N})
	}
	slices.SortFunc(out, func(a, b ovsdb.Count) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// controlCoverage shows what has happened since the start; rates are the metrics' to
// show.
func (s *Server) controlCoverage([]string) (string, error) {
	var b strings.Builder
	never := 0
	b.WriteString("Events since the start:\n")
	for _, c := range s.counters() {
		if c.N == 0 {
			never++
			continue
		}
		fmt.Fprintf(&b, "%-32s total: %d\n", c.Name, c.N)
	}
	fmt.Fprintf(&b, "%d events never hit\n", never)
	return b.String(), nil
}

func (s *Server) controlCounter(args []string) (string, error) {
	for _, c := range s.counters() {
		if c.Name == args[0] {
			return fmt.Sprintf("%d\n", c.N), nil
		}
	}
	return "", incumbent.Errorf(incumbent.NotFound, "nothing is counted as %q", args[0])
}

const (
	// maxLogSpecs is how many specifications one vlog/set takes.
	maxLogSpecs = 16
	// silent is above all levels.
	silent = slog.Level(100)
	// logModule is the one part of the log that has a level of its own.
	logModule = "incumbent"
)

// logLevel is a level and how scripts name it.
type logLevel struct {
	name string
	is   slog.Level
}

// logLevels are the levels as scripts name them, from the fewest lines to the most.
var logLevels = []logLevel{{"off", silent}, {"emer", silent - 1}, {"err", slog.LevelError}, {"warn", slog.LevelWarn}, {"info", slog.LevelInfo}, {"dbg", slog.LevelDebug}}

// controlLevels shows the level: the log goes to standard error and nowhere else.
func (s *Server) controlLevels([]string) (string, error) {
	is := slog.LevelInfo
	if s.cfg.Level != nil {
		is = s.cfg.Level.Level()
	}
	name := "OFF"
	for _, l := range logLevels {
		if l.is >= is {
			name = strings.ToUpper(l.name)
		}
	}
	return fmt.Sprintf("%17s\n%17s\n%-18s%5s\n", "console", "-------", logModule, name), nil
}

// controlLog sets the level of the log by words of a module, a destination and a level,
// in any order, separated by colons or spaces. All specifications are read before the
// first is obeyed.
func (s *Server) controlLog(_ context.Context, args []string) error {
	if s.cfg.Level == nil {
		return incumbent.Errorf(incumbent.Invalid, "the level of this log does not change")
	}
	for _, spec := range args {
		if _, err := levelOf(spec); err != nil {
			return err
		}
	}
	for _, spec := range args {
		level, _ := levelOf(spec)
		s.cfg.Level.Set(level)
	}
	return nil
}

// levelOf is the level that a specification says; without one it is the most.
func levelOf(spec string) (slog.Level, error) {
	level := slog.LevelDebug
	words := strings.FieldsFunc(spec, func(r rune) bool { return r == ':' || r == ' ' })
	if len(words) == 0 {
		return 0, incumbent.Errorf(incumbent.Invalid, "%q says nothing", spec)
	}
	for _, word := range words {
		lower := strings.ToLower(word)
		i := slices.IndexFunc(logLevels, func(l logLevel) bool { return l.name == lower })
		switch {
		case i >= 0:
			level = logLevels[i].is
		case lower == "any" || lower == "console" || lower == logModule:
		default:
			return 0, incumbent.Errorf(incumbent.Invalid, "%q is no level, and no part of this log: there are ANY, %s and console", word, logModule)
		}
	}
	return level, nil
}
