package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
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
	if p, err := v.Verify(t.Context(), "any", "unit-app-0", read(made), netip.Addr{}); err != nil || p.Grants != 0 || !strings.Contains(lines[0], " sha256:") {
		t.Errorf("made: %v, %v", p, err)
	}
	if p, err := v.Verify(t.Context(), model, "unit-app-1", "my secret", netip.Addr{}); err != nil || p.Grants != auth.ClaimAny|auth.Controller || !strings.Contains(lines[1], " pbkdf2-sha256:600000:") {
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

// answering is a server that answers a call for a credential with what a test says.
type answering struct {
	incumbentv1connect.UnimplementedCredentialServiceHandler
	incumbentv1connect.UnimplementedSessionServiceHandler
	create func(ctx context.Context) error
}

func (a *answering) Create(ctx context.Context, _ *connect.Request[apiv1.CreateCredentialRequest]) (*connect.Response[apiv1.CreateCredentialResponse], error) {
	return nil, a.create(ctx)
}

// GetSession says which index there is, as clients ask before they choose a key.
func (a *answering) GetSession(context.Context, *connect.Request[apiv1.GetSessionRequest]) (*connect.Response[apiv1.GetSessionResponse], error) {
	err := refusal(connect.CodeNotFound, incumbent.NotFound)
	err.Meta().Set("Incumbent-Index", "1")
	return nil, err
}

// refusal is an error as a member answers it.
func refusal(code connect.Code, kind incumbent.Kind) *connect.Error {
	out := connect.NewError(code, errors.New(kind.String()))
	detail, err := connect.NewErrorDetail(&apiv1.Error{Kind: kind.String(), Member: "n1"})
	if err != nil {
		panic(err)
	}
	out.AddDetail(detail)
	return out
}

// The new file with a secret goes only where there is certain to be no credential of it.
func TestASecretStaysUnlessItsCredentialWasNeverMade(t *testing.T) {
	answers := func(code connect.Code, kind incumbent.Kind) func(context.Context) error {
		return func(context.Context) error { return refusal(code, kind) }
	}
	silence := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, tt := range map[string]struct {
		create func(context.Context) error // nil: nobody listens
		args   []string
		stays  bool
	}{
		"denied":              {answers(connect.CodePermissionDenied, incumbent.Denied), nil, false},
		"too many":            {answers(connect.CodeResourceExhausted, incumbent.TooLarge), nil, false},
		"nobody there":        {nil, nil, false},
		"there is one":        {answers(connect.CodeAborted, incumbent.Conflict), nil, true},
		"overloaded":          {answers(connect.CodeResourceExhausted, incumbent.Overloaded), nil, true},
		"no leader":           {answers(connect.CodeUnavailable, incumbent.Unavailable), nil, true},
		"too late":            {answers(connect.CodeDeadlineExceeded, incumbent.DeadlineExceeded), nil, true},
		"unknown":             {answers(connect.CodeUnknown, incumbent.Unknown), nil, true},
		"no answer":           {silence, []string{"--timeout", "50ms"}, true},
		"a negative ttl":      {silence, []string{"--ttl", "-1s"}, false},
		"a ca that is not":    {silence, []string{"--ca", "/nowhere"}, false},
		"no credential of me": {silence, []string{"--credential-file", "/nowhere"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &answering{create: tt.create}
			mux := http.NewServeMux()
			mux.Handle(incumbentv1connect.NewCredentialServiceHandler(fake))
			mux.Handle(incumbentv1connect.NewSessionServiceHandler(fake))
			server := httptest.NewServer(mux)
			defer server.Close()
			if tt.create == nil {
				server.Close()
			}
			file := filepath.Join(t.TempDir(), "token")
			got := execute(t, nil, append([]string{"credential", "create", "agent:a", "--token-file", file, "--server", server.URL}, tt.args...)...)
			_, err := os.Stat(file)
			if got.code == exitOK || (err == nil) != tt.stays || strings.Contains(got.stderr, file+" stays") != tt.stays {
				t.Errorf("the file is there: %v; exit code %d, said %q", err == nil, got.code, got.stderr)
			}
		})
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
