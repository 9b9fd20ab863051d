package server

import (
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/door/ovsdb/control"
)

const smallSchema = `{"name":"Small","version":"1.0.0","tables":{"T":{"columns":{"a":{"type":"string"}},"isRoot":true}}}`

// command gives a command at a control socket; a failure's text is an error's.
func command(t *testing.T, path, name string, args ...string) (text string, failed bool) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if args == nil {
		args = []string{}
	}
	if err := json.NewEncoder(c).Encode(map[string]any{"id": 0, "method": name, "params": args}); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Result string  `json:"result"`
		Error  *string `json:"error"`
	}
	if err := json.NewDecoder(c).Decode(&answer); err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	if answer.Error != nil {
		return *answer.Error, true
	}
	return answer.Result, false
}

// commanded is a member alone with a database and a control socket.
func commanded(t *testing.T, level *slog.LevelVar) (s *Server, path string) {
	t.Helper()
	dir := t.TempDir()
	schema := filepath.Join(dir, "schema")
	if err := os.WriteFile(schema, []byte(smallSchema), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t)
	path, cfg.Level = filepath.Join(dir, "ctl"), level
	cfg.OVSDB = OVSDB{Listen: []string{"unix:" + filepath.Join(dir, "s")}, Schemas: []string{schema}, Control: path}
	s = open(t, cfg)
	until(t, "the database is there", func() bool {
		text, _ := command(t, path, "ovsdb-server/list-dbs")
		return text == "Small\n_Server\n"
	})
	return s, path
}

func TestControlSocket(t *testing.T) {
	s, path := commanded(t, nil)
	sid, _ := command(t, path, "cluster/sid", "Small")
	for _, c := range []struct {
		line string
		has  []string // lines of the answer
	}{
		{"ovsdb-server/sync-status", []string{"state: active"}},
		{"ovsdb-server/get-active-ovsdb-server", []string{""}},
		{"ovsdb-server/get-sync-exclude-tables", []string{""}},
		{"ovsdb-server/disconnect-active-ovsdb-server", []string{""}},
		{"ovsdb-server/get-db-storage-status Small", []string{"status: ok"}},
		{"ovsdb-server/list-remotes", []string{"p" + s.cfg.OVSDB.Listen[0]}},
		{"ovsdb-server/compact", []string{""}},
		{"ovsdb-server/compact Small", []string{""}},
		{"vlog/reopen", []string{""}},
		{"cluster/status Small", []string{
			"Name: Small", "Status: cluster member", "Role: leader", "Leader: self", "Vote: self", "Election timer: 500", "Entries not yet applied: 0",
			"Server ID: " + sid[:4] + " (" + strings.TrimSpace(sid) + ")",
		}},
		{"coverage/read-counter requests_transact", []string{"0"}},
	} {
		words := strings.Fields(c.line)
		text, failed := command(t, path, words[0], words[1:]...)
		for _, want := range c.has {
			if failed || !strings.Contains("\n"+text+"\n", "\n"+want+"\n") {
				t.Errorf("%s answers\n%s\nwithout the line %q", c.line, text, want)
			}
		}
	}
	for _, line := range []string{
		"cluster/status Other", "cluster/sid Other", "cluster/cid Other", "cluster/kick Other n1", "cluster/kick Small nobody", "ovsdb-server/compact Other", "ovsdb-server/get-db-storage-status Other",
		"ovsdb-server/add-remote ptcp:0:127.0.0.1", "ovsdb-server/remove-remote ptcp:0:127.0.0.1", "coverage/read-counter nothing", "vlog/set dbg",
		"ovsdb-server/set-active-ovsdb-server tcp:127.0.0.1:1", "ovsdb-server/connect-active-ovsdb-server", "ovsdb-server/set-active-ovsdb-server-probe-interval 1000",
		"ovsdb-server/set-sync-exclude-tables Small:T", "cluster/change-election-timer Small 1000", "cluster/change-election-timer Other 1000",
	} {
		words := strings.Fields(line)
		if text, failed := command(t, path, words[0], words[1:]...); !failed {
			t.Errorf("%s answers %s", line, text)
		}
	}
	// A member that is alone is not removed, by whatever name.
	for _, name := range []string{s.cfg.Name, sid[:4]} {
		if text, failed := command(t, path, "cluster/kick", "Small", name); !failed || !strings.Contains(text, "is alone") {
			t.Errorf("cluster/kick of %s answers %s", name, text)
		}
	}
}

func TestG12_EveryControlCommandHasARow(t *testing.T) {
	_, path := commanded(t, nil)
	list, _ := command(t, path, "list-commands")
	served := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(list), "\n")[1:] {
		name := strings.Fields(line)[0]
		served["ovsdb.control "+name] = true
		if c, ok := calls.Of("ovsdb.control " + name); !ok || c != calls.OvsdbControl {
			t.Errorf("%s has no row", name)
		}
	}
	for _, w := range calls.OvsdbControl.Row().Ways {
		if !served[w] {
			t.Errorf("nobody serves %s", w)
		}
	}
}

// Every command is given with the right that its row takes, and with all that policies
// can give but that: then it is denied, and nothing is done.
func TestG12_EveryControlCommandIsPlayedWithAndWithoutItsRight(t *testing.T) {
	s, path := commanded(t, &slog.LevelVar{})
	agent := auth.Principal{Kind: auth.Agent, Name: "a"}
	var all []auth.Rule
	for _, kind := range []auth.State{auth.Leases, auth.Sessions, auth.Keys, auth.Cluster, auth.Nodes, auth.Services, auth.Tables} {
		r := auth.Rule{State: kind, Verbs: auth.AllVerbs}
		if kind != auth.Cluster && kind != auth.Sessions {
			r.Namespace = "*"
		}
		all = append(all, r)
	}
	rules := auth.Compile([]*auth.Policy{{Name: "p", For: []string{"agent:*"}, Rules: all}}, 1)
	without := filepath.Join(t.TempDir(), "ctl")
	ln, err := control.Listen(without)
	if err != nil {
		t.Fatal(err)
	}
	served := s.newControl(func() *auth.Rights { return rules.Of(agent) })
	var running sync.WaitGroup
	running.Go(func() { _ = served.Serve(ln) }) // until it is closed
	defer func() { ln.Close(); served.Close(); running.Wait() }()
	args := map[string][]string{
		"cluster/status": {"Small"}, "cluster/cid": {"Small"}, "cluster/sid": {"Small"}, "ovsdb-server/get-db-storage-status": {"Small"}, "cluster/kick": {"Small", "nobody"}, "coverage/read-counter": {"none"},
		"ovsdb-server/add-remote": {"ptcp:1"}, "ovsdb-server/remove-remote": {"ptcp:1"}, "vlog/set": {"dbg"},
		"ovsdb-server/set-active-ovsdb-server": {"tcp:127.0.0.1:1"}, "ovsdb-server/set-active-ovsdb-server-probe-interval": {"1"}, "ovsdb-server/set-sync-exclude-tables": {"Small:T"},
		"cluster/change-election-timer": {"Small", "1"},
	}
	for _, way := range calls.OvsdbControl.Row().Ways {
		name := strings.TrimPrefix(way, controlWay)
		level := s.cfg.Level.Level()
		if text, failed := command(t, without, name, args[name]...); !failed || !strings.HasPrefix(text, "denied: ") {
			t.Errorf("%s without its right: %s", name, text)
		}
		if s.cfg.Level.Level() != level {
			t.Errorf("%s was done without its right", name)
		}
		if name == "exit" {
			continue // see TestControlEndsTheMember; that it goes on, the next one shows
		}
		if text, failed := command(t, path, name, args[name]...); failed && strings.HasPrefix(text, "denied: ") {
			t.Errorf("%s with its right: %s", name, text)
		}
	}
	if text, failed := command(t, path, "version"); failed {
		t.Errorf("the member has ended: %s", text)
	}
}

// Each member has a short id of its own, by which the leader removes it, and nobody else.
func TestControlKicksAMember(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	i := slices.IndexFunc(members, func(s *Server) bool { return s != leader })
	gone := members[i]
	until(t, "all are recorded", func() bool { return len(leader.controlMembers()) == 3 && len(gone.controlMembers()) == 3 })
	short := uuidText(gone.ovsdbStanding().Member)[:minServerID]
	if err := gone.kick(testContext(t), short); incumbent.KindOf(err) != incumbent.NotLeader || !strings.Contains(err.Error(), leader.cfg.Name) {
		t.Errorf("at a follower: %v", err)
	}
	if err := leader.kick(testContext(t), short); err != nil {
		t.Fatalf("at the leader: %v", err)
	}
	if names := voting(leader); len(names) != 2 || slices.Contains(names, gone.cfg.Name) {
		t.Errorf("%s was to go, and %v are left", gone.cfg.Name, names)
	}
}

func TestControlSetsTheLevelOfTheLog(t *testing.T) {
	var level slog.LevelVar
	_, path := commanded(t, &level)
	for _, c := range []struct {
		spec   string
		want   slog.Level
		listed string
	}{
		{"dbg", slog.LevelDebug, "DBG"},
		{"ANY:console:warn", slog.LevelWarn, "WARN"},
		{"console:err", slog.LevelError, "ERR"},
		{"incumbent", slog.LevelDebug, "DBG"},
		{"off", silent, "OFF"},
		{"ANY::info", slog.LevelInfo, "INFO"},
	} {
		if text, failed := command(t, path, "vlog/set", c.spec); failed || level.Level() != c.want {
			t.Errorf("vlog/set %s: %s, the level is %v", c.spec, text, level.Level())
		}
		if text, _ := command(t, path, "vlog/list"); !strings.HasSuffix(text, " "+c.listed+"\n") {
			t.Errorf("behind vlog/set %s it lists %s", c.spec, text)
		}
	}
	if _, failed := command(t, path, "vlog/set", "dbg", "raft:dbg"); !failed || level.Level() != slog.LevelInfo {
		t.Errorf("a part that there is not: the level is %v", level.Level())
	}
}

// exit ends the member as a signal does: without a fault, and behind its answer.
func TestControlEndsTheMember(t *testing.T) {
	s, path := commanded(t, nil)
	if text, failed := command(t, path, "exit"); failed || text != "" {
		t.Fatalf("exit answers %s", text)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("the member met a fault: %v", err)
	}
	if err := s.Close(testContext(t)); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
