package server

import (
	"cmp"
	"context"
	"net"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/door/ovsdb/control"
	"github.com/incumbent-dev/incumbent/node"
)

// ovsdbControl is the open control socket.
type ovsdbControl struct {
	listener net.Listener
	server   *control.Server
}

// controller is who gives commands there: nobody but the server's own user can open the
// socket, and that one may read and end the server anyway.
var controller = auth.Principal{Kind: auth.Operator, Name: "control-socket"}

// listenForControl opens the control socket.
func (s *Server) listenForControl(undo *undoing) error {
	path := s.cfg.OVSDB.Control
	if path == "" {
		return nil
	}
	ln, err := control.Listen(path)
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "setting ovsdb-ctl: %w", err)
	}
	undo.later(func() { ln.Close() })
	s.control = &ovsdbControl{listener: ln, server: s.newControl(controlRights)}
	return nil
}

// newControl serves the commands to somebody with these rights. Each has its row among
// the calls.
func (s *Server) newControl(rights func() *auth.Rights) *control.Server {
	commands := s.controlCommands()
	rows := map[string]calls.Call{control.List: calls.Must(controlWay + control.List)}
	for _, c := range commands {
		rows[c.Name] = calls.Must(controlWay + c.Name)
	}
	return control.New(commands, func(name string) error {
		err := rows[name].Allowed(rights())
		if err != nil {
			s.trail.note(audit.Record{Door: ovsdbListener, Principal: controller.String(), Action: name, Outcome: audit.Denied, Reason: audit.Permission})
		}
		return err
	})
}

// controlWay is in front of the names of commands in the table of calls.
const controlWay = "ovsdb.control "

func (s *Server) startControl() {
	if s.control != nil {
		s.keepServing("control socket", func() error { return s.control.server.Serve(s.control.listener) })
	}
}

func (s *Server) closeControl() {
	if s.control == nil {
		return
	}
	s.control.listener.Close()
	s.control.server.Close()
}

// controlStorage says whether the disk behind a database takes what is written.
func (s *Server) controlStorage(args []string) (string, error) {
	if err := s.controlDatabase(args[0]); err != nil {
		return "", err
	}
	switch st := s.node.Status(); {
	case st.Paused != "":
		return "status: " + st.Paused + "\n", nil
	case st.FlushStalled:
		return "status: a flush of the log has not ended\n", nil
	}
	return "status: ok\n", nil
}

// show is a command that changes nothing.
type show func(args []string) (string, error)

// act is one that does, and of which the audit log says so.
type act func(ctx context.Context, args []string) error

// controlCommands are what scripts may ask for.
func (s *Server) controlCommands() []control.Command {
	out := []control.Command{
		s.shows("version", "", 0, 0, s.controlVersion),
		s.shows("cluster/status", "DB", 1, 1, s.clusterStatus),
		s.shows("cluster/cid", "DB", 1, 1, s.controlID(func() [16]byte { return s.ovsdbStanding().Cluster })),
		s.shows("cluster/sid", "DB", 1, 1, s.controlID(func() [16]byte { return s.ovsdbStanding().Member })),
		s.acts("cluster/kick", "DB SERVER", 2, 2, s.controlKick),
		s.shows("ovsdb-server/list-dbs", "", 0, 0, s.controlDatabases),
		s.acts("ovsdb-server/compact", "[DB]", 0, 1, s.controlCompact),
		s.shows("ovsdb-server/get-db-storage-status", "DB", 1, 1, s.controlStorage),
		s.shows("ovsdb-server/sync-status", "", 0, 0, func([]string) (string, error) { return "state: active\n", nil }),
		s.shows("ovsdb-server/get-active-ovsdb-server", "", 0, 0, saysNothing),
		s.shows("ovsdb-server/get-sync-exclude-tables", "", 0, 0, saysNothing),
		s.shows("ovsdb-server/disconnect-active-ovsdb-server", "", 0, 0, saysNothing),
		s.acts("ovsdb-server/set-active-ovsdb-server", "REMOTE", 1, 1, noBackup),
		s.acts("ovsdb-server/connect-active-ovsdb-server", "", 0, 0, noBackup),
		s.acts("ovsdb-server/set-active-ovsdb-server-probe-interval", "MILLISECONDS", 1, 1, noBackup),
		s.acts("ovsdb-server/set-sync-exclude-tables", "TABLES", 1, 1, noBackup),
		s.acts("cluster/change-election-timer", "DB MILLISECONDS", 2, 2, s.timerIsFixed),
		s.shows("ovsdb-server/list-remotes", "", 0, 0, s.controlRemotes),
		s.acts("ovsdb-server/add-remote", "REMOTE", 1, 1, s.remotesAreSettings),
		s.acts("ovsdb-server/remove-remote", "REMOTE", 1, 1, s.remotesAreSettings),
		s.shows("memory/show", "", 0, 0, s.controlMemory),
		s.shows("coverage/show", "", 0, 0, s.controlCoverage),
		s.shows("coverage/read-counter", "COUNTER", 1, 1, s.controlCounter),
		s.shows("vlog/list", "", 0, 0, s.controlLevels),
		s.acts("vlog/set", "SPEC...", 1, maxLogSpecs, s.controlLog),
		s.acts("vlog/reopen", "", 0, 0, func(context.Context, []string) error { s.trail.reopen(); return nil }),
	}
	exit := s.acts("exit", "", 0, 0, s.mayExit)
	exit.After = func() { s.fail(nil) }
	return append(out, exit)
}

func (s *Server) shows(name, usage string, least, most int, do show) control.Command {
	return control.Command{Name: name, Usage: usage, Min: least, Max: most, Run: func(_ context.Context, args []string) (string, error) { return do(args) }}
}

func (s *Server) acts(name, usage string, least, most int, do act) control.Command {
	return control.Command{Name: name, Usage: usage, Min: least, Max: most, Run: func(ctx context.Context, args []string) (string, error) {
		err := do(ctx, args)
		r := audit.Record{Door: ovsdbListener, Principal: controller.String(), Action: name, Subject: strings.Join(args, " ")}
		if err != nil {
			r.Outcome, r.Detail = audit.Failed, err.Error()
		}
		s.trail.note(r)
		return "", err
	}}
}

// controlRights are those of an operator, whatever the policies say.
func controlRights() *auth.Rights {
	var none *auth.Rules
	return none.Of(controller)
}

// mayExit: a process that is not ready yet is ended by a signal, else who waits for it to
// be ready took its end for that.
func (s *Server) mayExit(context.Context, []string) error { return s.ready() }

// controlDatabase returns an error unless there is a database of that name.
func (s *Server) controlDatabase(name string) error {
	if table.Of(s.engine.View()).Database(s.controlNamespace(), name) != nil {
		return nil
	}
	return incumbent.Errorf(incumbent.NotFound, "there is no database %q", name)
}

func (s *Server) controlNamespace() string {
	return cmp.Or(s.cfg.OVSDB.Namespace, incumbent.DefaultNamespace)
}

// controlCompact writes a snapshot: all databases are in one log.
func (s *Server) controlCompact(ctx context.Context, args []string) error {
	if len(args) == 1 {
		if err := s.controlDatabase(args[0]); err != nil {
			return err
		}
	}
	_, err := s.node.Snapshot(ctx)
	return err
}

// saysNothing answers what an active server is asked about the one that it follows: there
// is none, and nothing is left out or to be disconnected.
func saysNothing([]string) (string, error) { return "", nil }

// noBackup refuses to follow another server: scripts that fail over would take this one
// for its backup.
func noBackup(context.Context, []string) error {
	return incumbent.Errorf(incumbent.Invalid, "every member is active, and none the backup of another server: members of a cluster replicate by themselves")
}

// timerIsFixed refuses another time between leaders.
func (s *Server) timerIsFixed(_ context.Context, args []string) error {
	if err := s.controlDatabase(args[0]); err != nil {
		return err
	}
	return incumbent.Errorf(incumbent.Invalid, "the election timer is %d ms and cannot be changed", node.ElectionTimeout.Milliseconds())
}

// remotesAreSettings refuses what the next start would forget.
func (s *Server) remotesAreSettings(context.Context, []string) error {
	return incumbent.Errorf(incumbent.Invalid, "what is listened at is said by --ovsdb-listen, and changes with a restart of the member")
}
