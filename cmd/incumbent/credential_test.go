package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/door/juju"
)

// What create prints lets in whoever has what it wrote.
func TestCredentialCreate(t *testing.T) {
	const model = "deadbeef-0bad-400d-8000-4b1d0d06f00d"
	env, out := testEnvironment(t, nil)
	dir := t.TempDir()
	made, chosen, token := filepath.Join(dir, "made"), filepath.Join(dir, "chosen"), filepath.Join(dir, "token")
	if err := os.WriteFile(chosen, []byte("my secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--juju-agent", "unit-app-0", "--password-file", made},
		{"--juju-agent", "unit-app-1", "--password-file", chosen, "--model", model, "--grant", "claim-any,controller"},
		{"--name", "alice", "--kind", "operator", "--token-file", token},
	} {
		if code := run(append([]string{"credential", "create"}, args...), env); code != exitOK {
			t.Fatalf("%v: exit code %d", args, code)
		}
	}
	stdout, _ := out()
	lines := strings.SplitAfter(stdout, "\n")
	passwords, err := auth.ParsePasswords(strings.NewReader(lines[0]+lines[1]), juju.ValidateAccount)
	if err != nil {
		t.Fatal(err)
	}
	v := auth.NewVerifier(auth.VerifierConfig{}, passwords)
	read := func(file string) string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	if p, err := v.Verify("any", "unit-app-0", read(made), netip.Addr{}); err != nil || p.Grants != 0 || !strings.Contains(lines[0], " sha256:") {
		t.Errorf("made: %v, %v", p, err)
	}
	if p, err := v.Verify(model, "unit-app-1", "my secret", netip.Addr{}); err != nil || p.Grants != auth.ClaimAny|auth.Controller || !strings.Contains(lines[1], " pbkdf2-sha256:600000:") {
		t.Errorf("chosen: %v, %v", p, err)
	}
	credentials, err := auth.ParseCredentials(strings.NewReader(lines[2]))
	if err != nil {
		t.Fatal(err)
	}
	p, err := auth.NewAuthenticator(false, credentials).Identify(auth.Peer{Bearer: read(token)})
	if err != nil || p.Name != "alice" || p.Kind != auth.Operator {
		t.Errorf("token: %v, %v", p, err)
	}
	unused := filepath.Join(dir, "unused")
	for _, args := range [][]string{
		{},
		{"--name", "a"},
		{"--juju-agent", "unit-a-0"},
		{"--name", "a", "--juju-agent", "unit-a-0"},
		{"--name", "a", "--token-file", token}, // is there already
		{"--juju-agent", "app/0", "--password-file", unused},
		{"--juju-agent", "user-admin", "--password-file", unused},
		{"--juju-agent", "unit-app-0", "--password-file", unused, "--model", "staging"},
		{"--juju-agent", "unit-app-0", "--password-file", unused, "--model", strings.ToUpper(model)},
	} {
		if code := run(append([]string{"credential", "create"}, args...), env); code != exitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if _, err := os.Stat(unused); !os.IsNotExist(err) {
		t.Errorf("a password was written for an agent that cannot log in: %v", err)
	}
}

func TestJujuListenOfEachMember(t *testing.T) {
	for _, tt := range []struct {
		first      string
		i          int
		perAddress bool
		want       string
	}{
		{"", 1, false, ""},
		{"127.0.0.1:17070", 0, false, "127.0.0.1:17070"},
		{"127.0.0.1:17070", 2, false, "127.0.0.1:17090"},
		{"127.0.0.1:17070", 0, true, "127.0.0.1:17070"},
		{"127.0.0.1:17070", 2, true, "127.0.0.3:17070"},
	} {
		if got, err := new(localMember).doorListen("juju-listen", tt.first, tt.i, tt.perAddress); err != nil || got != tt.want {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
	for _, bad := range []string{"17070", "127.0.0.1:x", "127.0.0.1:65500", "127.0.0.1:-1"} {
		if got, err := new(localMember).doorListen("juju-listen", bad, 0, false); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%s: %q, %v", bad, got, err)
		}
	}
}
