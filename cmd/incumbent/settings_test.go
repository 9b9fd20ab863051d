package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/incumbent-dev/incumbent/server"
)

func writeSettings(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "incumbent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// parsed returns a command whose flags were given, and nothing resolved yet.
func parsed(t testing.TB, env *environment, verb string, flags ...string) *cobra.Command {
	t.Helper()
	c, _, err := newRoot(env).Find(strings.Fields(verb))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	return c
}

func find(t testing.TB, all []setting, name string) setting {
	t.Helper()
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no setting %s in %v", name, all)
	return setting{}
}

func TestSettingsPrecedence(t *testing.T) {
	path := writeSettings(t, "name: of-file\ngrace: 1s\nlog-level: warn\n")
	vars := map[string]string{"INCUMBENT_GRACE": "2s", "INCUMBENT_NAME": "of-environment", "INCUMBENT_DRIFT": ""}
	env, _ := testEnvironment(t, vars)
	c := parsed(t, env, "server", "--config", path, "--name", "of-flag")
	for round := range 2 { // a second resolution says the same
		all, err := resolveSettings(c, env)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []setting{
			{"name", "of-flag", "flag"},
			{"grace", "2s", "environment"},
			{"log-level", "warn", "file"},
			{"drift", "0.01", "default"}, // an empty variable says nothing
			{"config", path, "flag"},
		} {
			if got := find(t, all, want.Name); got != want {
				t.Errorf("round %d: got %v, want %v", round, got, want)
			}
		}
	}
}

// What of the settings is wrong keeps its old value and is named; what is not is
// taken. With settings that cannot be read nothing is.
func TestSettingsAreResolvedAnew(t *testing.T) {
	path := writeSettings(t, "log-level: warn\n")
	env, _ := testEnvironment(t, nil)
	c := parsed(t, env, "server", "--config", path)
	var level slog.LevelVar
	var limits server.Limits
	setLimits := func(l server.Limits) error {
		if l.MaxConnections < 0 {
			return errors.New("no limit")
		}
		limits = l
		return nil
	}
	const wrongLimits = "--max-connections and --memory-limit"
	for _, step := range []struct {
		text  string
		want  slog.Level
		most  int
		stale []string
	}{
		{"log-level: warn\nmax-connections: 5\n", slog.LevelWarn, 5, nil},
		{"log-level: debug\nmax-connections: 6\n", slog.LevelDebug, 6, nil},
		{"log-level: loud\nmax-connections: 7\n", slog.LevelDebug, 7, []string{"log level"}},
		{"log-level: warn\nmax-connections: -1\n", slog.LevelWarn, 7, []string{wrongLimits}},
		{"log-level: loud\nmax-connections: -1\n", slog.LevelWarn, 7, []string{"log level", wrongLimits}},
		{"log-level: info\nmax-connections: many\n", slog.LevelWarn, 7, []string{"settings"}},
		{"nonsense: 1\n", slog.LevelWarn, 7, []string{"settings"}},
		{"", slog.LevelInfo, server.DefaultMaxConnections, nil}, // gone: the defaults
	} {
		if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		taken, stale := reloadSettings(c, env, slog.New(slog.DiscardHandler), &level, setLimits)
		if level.Level() != step.want || limits.MaxConnections != step.most {
			t.Errorf("with %q the level is %v, want %v, and %d connections, want %d", step.text, level.Level(), step.want, limits.MaxConnections, step.most)
		}
		if got := len(taken) > 0 && taken[0].Name == "log-level"; got != (len(stale) == 0 || stale[0] == wrongLimits) {
			t.Errorf("with %q taken %v, and %v stays", step.text, taken, stale)
		}
		if diff := cmp.Diff(step.stale, stale); diff != "" {
			t.Errorf("with %q what is said to stay (-want +got):\n%s", step.text, diff)
		}
	}
}

// A value that could not be read leaves no trace once it is gone, also where it was
// the first that anything but the default gave.
func TestUnreadableSettingIsForgotten(t *testing.T) {
	path := writeSettings(t, "max-connections: many\n")
	env, _ := testEnvironment(t, nil)
	c := parsed(t, env, "server", "--config", path)
	if _, err := resolveSettings(c, env); err == nil {
		t.Fatal("many connections are no number")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := resolveSettings(c, env); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Flags().GetInt("max-connections"); got != server.DefaultMaxConnections {
		t.Errorf("%d connections, want the default", got)
	}
}

// A number of bytes may have a unit wherever it stands.
func TestSizesOfSettings(t *testing.T) {
	path := writeSettings(t, "history-bytes: 32MiB\n")
	env, _ := testEnvironment(t, map[string]string{"INCUMBENT_SNAPSHOT_BYTES": "3KiB"})
	c := parsed(t, env, "server", "--config", path, "--memory-limit", "2GiB", "--audit-log-bytes", "1000")
	if _, err := resolveSettings(c, env); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"history-bytes": 32 << 20, "snapshot-bytes": 3 << 10, "memory-limit": 2 << 30, "audit-log-bytes": 1000} {
		if got, err := c.Flags().GetInt64(name); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", name, got, err, want)
		}
	}
	for _, wrong := range []string{"1Gib", "", "1.5MiB", "9000000TiB"} {
		if err := c.ParseFlags([]string{"--memory-limit=" + wrong}); err == nil || !strings.Contains(err.Error(), "no number of bytes") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestListSettings(t *testing.T) {
	env, _ := testEnvironment(t, map[string]string{"INCUMBENT_SERVER": "http://a:1,http://b:2"})
	c := parsed(t, env, "status")
	for range 2 {
		if _, err := resolveSettings(c, env); err != nil {
			t.Fatal(err)
		}
		got, _ := c.Flags().GetStringSlice("server")
		if diff := cmp.Diff([]string{"http://a:1", "http://b:2"}, got); diff != "" {
			t.Error(diff)
		}
	}
	path := writeSettings(t, "server:\n  - http://c:3\n  - http://d:4\n")
	env, _ = testEnvironment(t, nil)
	c = parsed(t, env, "status", "--config", path)
	if _, err := resolveSettings(c, env); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Flags().GetStringSlice("server"); len(got) != 2 || got[1] != "http://d:4" {
		t.Errorf("the file's list became %q", got)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := resolveSettings(c, env); err != nil {
		t.Fatal(err)
	}
	if got, _ := c.Flags().GetStringSlice("server"); len(got) != 1 || got[0] != defaultServer {
		t.Errorf("without the key the list is %q", got)
	}
}

func TestSettingsFileErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name: n1\n\nlogsegment-bytes: 3\n", `:3: unknown setting "logsegment-bytes"; did you mean "log-segment-bytes"?`},
		{"name: n1\nlisten: 127.0.0.1:1\nname: n2\n", `:3: setting "name" stands here twice`},
		{"name:\n  a: b\n", ":2: name: a setting is a plain value or a list of them"},
		{"name: [[a]]\n", ":1: name: a list holds plain values only"},
		{"- name\n", ":1: a settings file is a mapping"},
		{"data-dir: d\ngrace: soon\n", ":2: grace: "},
		{"help: true\n", `:1: unknown setting "help"`},
		{"name: [\n", "yaml: line "},
		{"data-dir: d\ngrace: 1h\n", "setting grace: 1h0m0s is outside"},
		{"data-dir: d\nlisten: 0.0.0.0:7600\n", "--tls-cert"},
		{"name: n1\n", "data-dir"},
	} {
		path := writeSettings(t, c.text)
		got := execute(t, nil, "config", "check", path)
		if got.code != exitUsage || !strings.Contains(got.stderr, path) || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%q: exit code %d, said %q, want %q", c.text, got.code, got.stderr, c.want)
		}
	}
	if got := execute(t, nil, "config", "check", writeSettings(t, "data-dir: d\n")); got.code != exitOK || !strings.HasSuffix(got.stdout, ": ok\n") {
		t.Errorf("a good file: %v", got)
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if got := execute(t, map[string]string{"INCUMBENT_CONFIG": missing}, "config", "show"); got.code != exitUsage || !strings.Contains(got.stderr, "INCUMBENT_CONFIG: ") {
		t.Errorf("a missing file named by the environment: %v", got)
	}
	if got := execute(t, map[string]string{"INCUMBENT_GRACE": "soon"}, "config", "show"); got.code != exitUsage || !strings.Contains(got.stderr, "INCUMBENT_GRACE: ") {
		t.Errorf("a wrong variable: %v", got)
	}
}

func TestConfigShow(t *testing.T) {
	path := writeSettings(t, "grace: 1s\n")
	got := execute(t, map[string]string{"INCUMBENT_NAME": "n7"}, "config", "show", "--config", path, "-o", "jsonl")
	for _, want := range []string{
		`{"name":"grace","value":"1s","source":"file"}`,
		`{"name":"name","value":"n7","source":"environment"}`,
		`{"name":"drift","value":"0.01","source":"default"}`,
		`{"name":"config","value":"` + path + `","source":"flag"}`,
	} {
		if !strings.Contains(got.stdout, want+"\n") {
			t.Errorf("no line %s in\n%s%s", want, got.stdout, got.stderr)
		}
	}
}

// Whatever the bytes, the reader answers with settings that are flags, or with
// a usage error that names the file.
func FuzzParseSettings(f *testing.F) {
	for _, seed := range []string{"", "name: n1\n", "name: [a, b]\n", "a: &x 1\nb: *x\n", "? [a]\n: b\n", "name: !!binary aGk=\n", "<<: {name: x}\n", "\xff", "name: n1\nname: n2\n"} {
		f.Add([]byte(seed))
	}
	known := map[string]bool{"name": true, "listen": true, "help": false}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, wrong := parseSettings("f.yaml", data, known)
		for _, err := range wrong {
			if exitCode(err) != exitUsage || !strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Fatalf("error %v", err)
			}
		}
		for key, v := range got {
			if !known[key] || v.line < 1 {
				t.Fatalf("setting %q at line %d", key, v.line)
			}
		}
	})
}

func TestNearest(t *testing.T) {
	known := map[string]bool{"listen": true, "peer-listen": true, "name": true}
	for typed, want := range map[string]string{"listn": "listen", "lsiten": "listen", "nme": "name", "somethingelse": ""} {
		got := nearest(typed, known)
		if want == "" && got != "" || want != "" && got != "; did you mean \""+want+"\"?" {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

// Every flag can be a key of the file, so no two commands may mean different
// types by one name: a file is for all of them.
func TestFlagsOfOneNameHaveOneType(t *testing.T) {
	env, _ := testEnvironment(t, nil)
	types := map[string]string{}
	eachCommand(newRoot(env), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if other, ok := types[f.Name]; ok && other != f.Value.Type() {
				t.Errorf("--%s of %q is %s, elsewhere %s", f.Name, c.CommandPath(), f.Value.Type(), other)
			}
			types[f.Name] = f.Value.Type()
		})
	})
}

// All that is wrong with a file is said at once, each with its line, also what is
// wrong with the files that it names.
func TestConfigCheckListsAll(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"taken": "a file", "ca.pem": "no certificate", "credentials": "alice\n", "agents": "nobody\n", "schema": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := writeSettings(t, strings.ReplaceAll(`data-dir: DIR/taken/data
nam: n1
grace: soon
drift: 0.5
tls-cert: DIR/cert.pem
tls-key: DIR/key.pem
client-ca: DIR/ca.pem
credential-file: DIR/credentials
juju-listen: 127.0.0.1:17070
juju-credential-file: DIR/agents
join-file: DIR/token
ovsdb-listen: 127.0.0.1:6641
ovsdb-cert: DIR/cert.pem
ovsdb-key: DIR/key.pem
ovsdb-ca: DIR/ca.pem
ovsdb-schema: DIR/schema
audit-log: DIR/taken/audit.log
log-format: xml
`, "DIR", dir))
	got := execute(t, nil, "config", "check", path)
	if got.code != exitUsage {
		t.Errorf("exit code %d", got.code)
	}
	for _, want := range []string{
		":1: invalid: setting data-dir: ", `:2: unknown setting "nam"; did you mean "name"?`, ":3: grace: ", ":4: invalid: setting drift: ",
		":5: invalid: setting tls-cert: ", ":7: invalid: setting client-ca: ", ":8: invalid: setting credential-file: ", ":10: invalid: setting juju-credential-file: ",
		":11: invalid: setting join-file: ", ":13: invalid: setting ovsdb-cert: ", ":15: invalid: setting ovsdb-ca: ", ":16: invalid: setting ovsdb-schema: ",
		":17: invalid: setting audit-log: ", `:18: log format "xml" is neither`,
	} {
		if !strings.Contains(got.stderr, path+want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(got.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "taken", "data")); err == nil {
		t.Error("checking made a folder")
	}
}

// What the server starts with is right, and checking leaves no trace: not of the log that
// it would begin, nor in one that is there.
func TestConfigCheckTakesWhatTheServerTakes(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "audit.log")
	path := writeSettings(t, strings.ReplaceAll("data-dir: DIR/data\naudit-log: DIR/audit.log\nlog-format: json\n", "DIR", dir))
	for _, text := range []string{"", "{}\n"} {
		if text != "" {
			if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := execute(t, nil, "config", "check", path); got.code != exitOK {
			t.Errorf("the log has %q: %v", text, got)
		}
		if now, err := os.ReadFile(log); string(now) != text || (err == nil) != (text != "") {
			t.Errorf("afterwards the log has %q, %v", now, err)
		}
	}
}

// A data directory that cannot be used is a mistake in the configuration: another
// attempt does not help.
func TestUnusableDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := []string{file, filepath.Join(file, "below")}
	if os.Getuid() != 0 { // who may do anything
		closed := t.TempDir()
		if err := os.Chmod(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, closed, filepath.Join(closed, "data"))
	}
	for _, dir := range dirs {
		got := execute(t, nil, "server", "--data-dir", dir, "--listen", "127.0.0.1:0")
		if got.code != exitUsage || !strings.Contains(got.stderr, "setting data-dir: ") || !strings.Contains(got.stderr, "hint: ") {
			t.Errorf("%s: exit code %d, said %q", dir, got.code, got.stderr)
		}
	}
}

func TestUnknownVariablesWarn(t *testing.T) {
	root := newRoot(&environment{})
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	warnUnknown(root, &environment{stderr: stderr, environ: func() []string {
		return []string{"INCUMBENT_DATA_DIRR=x", "INCUMBENT_DATA_DIR=y", "INCUMBENT_CONFIG=z", "INCUMBENT_TOKEN=1", "INCUMBENT_DEADLINE_MS=2", "PATH=/"}
	}})
	said, err := os.ReadFile(stderr.Name())
	if want := "incumbent: warning: INCUMBENT_DATA_DIRR is no setting; did you mean \"INCUMBENT_DATA_DIR\"?\n"; err != nil || string(said) != want {
		t.Errorf("said %q, want %q (%v)", said, want, err)
	}
}
