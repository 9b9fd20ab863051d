package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/incumbent-dev/incumbent/server"
)

// outcome is what one command line did.
type outcome struct {
	stdout, stderr string
	code           int
}

// execute runs a command line in this process, with an environment of its own.
func execute(t testing.TB, vars map[string]string, args ...string) outcome {
	t.Helper()
	env, read := testEnvironment(t, vars)
	code := run(args, env)
	stdout, stderr := read()
	return outcome{stdout, stderr, code}
}

func testEnvironment(t testing.TB, vars map[string]string) (env *environment, read func() (stdout, stderr string)) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	env = &environment{stdin: open("in"), stdout: open("out"), stderr: open("err"), getenv: func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}}
	whole := func(f *os.File) string {
		data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	return env, func() (string, string) { return whole(env.stdout), whole(env.stderr) }
}

// openServer starts a real server in this process.
func openServer(t testing.TB) *server.Server {
	t.Helper()
	return openConfigured(t, server.Config{Settings: []server.Setting{{Name: "name", Value: "n1", Source: "flag"}}})
}

// openConfigured starts n1 alone, with what else a test wants.
func openConfigured(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	cfg.DataDir, cfg.Name, cfg.Listen, cfg.SegmentBytes = t.TempDir(), "n1", "127.0.0.1:0", 4<<20
	s, err := server.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// openWithCredential starts a server that lets in who has one credential, of a kind, and
// returns it with the flags of a client that has it.
func openWithCredential(t testing.TB, name, kind string) (s *server.Server, own []string) {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(dir, name+".token")
	made := execute(t, nil, "credential", "create", "--name", name, "--kind", kind, "--token-file", token)
	if made.code != exitOK {
		t.Fatal(made.stderr)
	}
	credentials := filepath.Join(dir, "credentials")
	if err := os.WriteFile(credentials, []byte(made.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openConfigured(t, server.Config{CredentialFile: credentials})
	return s, []string{"--server", s.URL(), "--credential-file", token}
}

// eachCommand calls f for all commands, those that cobra adds included.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

func TestEveryCommandIsDescribed(t *testing.T) {
	env, _ := testEnvironment(t, nil)
	n := 0
	eachCommand(newRoot(env), func(c *cobra.Command) {
		n++
		if c.Short == "" {
			t.Errorf("%q has no description", c.CommandPath())
		}
		if !strings.Contains(c.Example, "incumbent") {
			t.Errorf("%q has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Long) {
			if len([]rune(strings.TrimSuffix(line, "\n"))) > 140 {
				t.Errorf("%q: a line of its help is too long: %s", c.CommandPath(), line)
			}
		}
	})
	if n < 40 {
		t.Errorf("%d commands, there were more", n)
	}
}

// What cannot be written is no success, whoever reads it.
func TestWhatCannotBeWrittenIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no such device here:", err)
	}
	t.Cleanup(func() { full.Close() })
	vars := map[string]string{"INCUMBENT_SERVER": openServer(t).URL()}
	settings := writeSettings(t, "name: n1\ndata-dir: "+t.TempDir()+"\n")
	for _, args := range [][]string{
		{"version"},
		{"lease", "ls"},
		{"lease", "ls", "--count"},
		{"txn", "--if", "key a absent"},
		{"txn", "--if", "key a absent", "--then", "get a"},
		{"kv", "ls"},
		{"status"},
		{"events"},
		{"top", "-n", "1"},
		{"config", "check", settings},
	} {
		env, read := testEnvironment(t, vars)
		file := env.stdout
		env.stdout = full
		code := run(args, env)
		env.stdout = file
		if _, stderr := read(); code != exitOther || !strings.Contains(stderr, "no space left") {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
}

// Each example of each help names a command that is there, and flags it has.
func TestExamplesParse(t *testing.T) {
	env, _ := testEnvironment(t, nil)
	root := newRoot(env)
	eachCommand(root, func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			_, rest, ok := strings.Cut(line, "incumbent ")
			if !ok {
				continue
			}
			rest, _, _ = strings.Cut(rest, "|")
			rest, _, _ = strings.Cut(rest, ")")
			rest, _, _ = strings.Cut(rest, ">")
			target, args, err := root.Find(strings.Fields(rest))
			if err != nil || target == root {
				t.Errorf("%q: no command for example %q: %v", c.CommandPath(), rest, err)
				continue
			}
			for _, a := range args {
				name, isFlag := strings.CutPrefix(a, "--")
				name, _, _ = strings.Cut(name, "=")
				if a == "--" {
					break
				}
				if isFlag && target.Flag(name) == nil && name != "help" {
					t.Errorf("%q: example %q uses --%s, which %q does not have", c.CommandPath(), rest, name, target.CommandPath())
				}
			}
		}
	})
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"leas", 2, `unknown command "leas" for "incumbent"; did you mean lease?`},
		{"statu", 2, "did you mean status?"},
		{"lease clam", 2, `unknown command "clam" for "incumbent lease"; did you mean claim?`},
		{"completion bsh", 2, "did you mean bash or"},
		{"frobnicate", 2, `unknown command "frobnicate" for "incumbent"` + "\n"},
		{"lease claim a --holdr me", 2, `unknown flag: --holdr; did you mean "--holder"?`},
		{"lease claim", 2, "'incumbent lease claim' takes NAME: NAME is missing"},
		{"lease claim a b", 2, `what is "b"?`},
		{"lease ls a b", 2, "accepts at most 1 arg(s)"},
		{"lease claim a --ttl soon", 2, "--ttl"},
		{"lease claim a --ttl 1ms", 2, "ttl 1ms is outside 1s to 24h0m0s"},
		{"lease claim a --namespace=", 2, "namespace is empty"},
		{"lease extend a", 2, "--holder or --token"},
		{"lease pin a", 2, "--by"},
		{"lease transfer a --holder me", 2, "--to-session"},
		{"lease watch --exact", 2, "--exact needs the name"},
		{"lease get a -o yaml", 2, "none of table, json, jsonl"},
		{"status --server nowhere", 2, `"nowhere" is not an http or https URL`},
		{"status --credential-file /does/not/exist", 2, "/does/not/exist"},
		{"version extra", 2, `'incumbent version' takes no arguments: what is "extra"?`},
		{"server", 2, "--data-dir DIR"},
		{"server --data-dir d --play", 2, "--play goes with --dev"},
		{"server --dev --log-level loud", 2, "debug, info, warn, error"},
		{"server --dev --log-format xml", 2, "neither text nor json"},
		{"server --data-dir d --listen 0.0.0.0:0", 2, "--tls-cert and --tls-key"},
		{"bench run juju-leases --members 3", 2, "is not local:N"},
		{"bench run juju-leases --members local:99", 2, "16 in all at most"},
		{"bench run nothing-like-it", 3, "'incumbent bench ls' lists them"},
		{"doctor --fleet 0", 2, "--fleet is 1 to"},
		{"run a", 125, "then the command to run"},
		{"run a --nowait -- true", 125, `did you mean "--no-wait"?`},
		{"run a --ttl soon -- true", 125, "--ttl"},
		{"run a --ttl 0 -- true", 125, "ttl 0s is outside 1s to 24h0m0s"},
		{"run a --ttl 25h -- true", 125, "ttl 25h0m0s is outside 1s to 24h0m0s"},
		{"run a --stop-grace -1s -- true", 125, "--stop-grace -1s is outside 0s to 7.5s"},
		{"run a --ttl 10s --stop-grace 5001ms -- true", 125, "--stop-grace 5.001s is outside 0s to 5s"},
		{"run a --wait -1s -- true", 125, "--wait -1s is negative"},
		{"lease get a --timeout -1s", 2, "--timeout -1s is negative"},
		{"run a -- /does/not/exist", 127, "no such file"},
		{"run a -- /", 126, "/"},
	} {
		t.Run(c.args, func(t *testing.T) {
			got := execute(t, nil, strings.Fields(c.args)...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d", got.code, c.code)
			}
			if !strings.Contains(got.stderr, c.want) {
				t.Errorf("said %q, want %q in it", got.stderr, c.want)
			}
			if got.stdout != "" {
				t.Errorf("an error wrote data: %q", got.stdout)
			}
			if c.code == exitUsage && !strings.Contains(got.stderr, "--help'") {
				t.Errorf("no way to the help: %q", got.stderr)
			}
		})
	}
}

func TestNounAlonePrintsItsHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"lease"}, {"bench"}, {"config"}, {"debug"}, {"completion"}} {
		got := execute(t, nil, args...)
		if got.code != exitOK || !strings.Contains(got.stdout, "Available Commands:") || got.stderr != "" {
			t.Errorf("%q: exit code %d, %q", args, got.code, got.stderr)
		}
	}
}

// plainRoff takes the marks out of a manual page.
var plainRoff = strings.NewReplacer(`\-`, "-", `\&`, "", `\e`, `\`, `\(aq`, "'", `\fB`, "", `\fR`, "", `\fP`, "", `\fI`, "", "\n.PP\n", " ", "\n.EX\n", " ", "\n.EE\n", " ")

func TestManAndCompletion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if got := execute(t, nil, "man", dir); got.code != exitOK {
		t.Fatal(got.stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "incumbent-lease-claim.1"))
	if err != nil || !strings.Contains(string(page), "holder") {
		t.Errorf("the page of lease claim: %v, %q", err, page)
	}
	env, _ := testEnvironment(t, nil)
	eachCommand(newRoot(env), func(c *cobra.Command) {
		if !c.IsAvailableCommand() {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		got := strings.Join(strings.Fields(plainRoff.Replace(string(page))), " ")
		for _, text := range []string{c.Short, c.Long} {
			for line := range strings.Lines(text) {
				want := strings.Join(strings.Fields(line), " ")
				if !strings.HasPrefix(want, "#") && !strings.Contains(got, want) { // cobra's own texts have headings
					t.Errorf("the page of %q lacks %q", c.CommandPath(), want)
				}
			}
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if want := strings.Join(strings.Fields(f.Usage), " "); !f.Hidden && !strings.Contains(got, want) {
				t.Errorf("the page of %q lacks %q", c.CommandPath(), want)
			}
		})
	})
	if got := execute(t, nil, "man"); !strings.Contains(got.stdout, ".TH \"INCUMBENT\"") {
		t.Errorf("man prints %q", got.stdout)
	}
	if got := execute(t, nil, "completion", "bash"); !strings.Contains(got.stdout, "__start_incumbent") {
		t.Error("no completion for bash")
	}
	if got := execute(t, nil, "__complete", "lease", "get", "-o", "js"); !strings.Contains(got.stdout, "jsonl") {
		t.Errorf("-o completes to %q", got.stdout)
	}
}
