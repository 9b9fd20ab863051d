package client

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Whoever speaks TLS where there is none, or none where there is, or knows another
// authority, is told so; that the server may be down is said only of one that may be.
func TestRemedy(t *testing.T) {
	handler := http.NotFoundHandler()
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(secure.URL, "127.0.0.1", "localhost", 1)
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"TLS to plaintext":  {Config{Servers: []string{strings.Replace(plain.URL, "http:", "https:", 1)}}, "http:// instead of https://"},
		"plaintext to TLS":  {Config{Servers: []string{strings.Replace(secure.URL, "https:", "http:", 1)}}, "https:// instead of http://"},
		"another authority": {Config{Servers: []string{secure.URL}}, "--ca"},
		"another name":      {Config{Servers: []string{other}, CAFile: authority}, "as its certificate does"},
		"nobody":            {Config{Servers: []string{deadServer}}, "is the server running?"},
	} {
		c := newClient(t, tt.cfg)
		_, err := c.Leases().Claim(testContext(t), connect.NewRequest(&apiv1.ClaimRequest{Name: apiName(named("x")), Holder: "a", TtlMs: 60_000}))
		var typed *incumbent.Error
		if !errors.As(AsError(err), &typed) {
			t.Fatalf("%s: %v", name, err)
		}
		if typed.Kind != incumbent.Unavailable || !strings.Contains(typed.Hint, tt.want) {
			t.Errorf("%s: %v, hint %q", name, typed, typed.Hint)
		}
	}
	// Who is silent is named beside those that are not there.
	gone := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gone }))
	defer silent.Close()
	defer close(gone)
	c := newClient(t, Config{Servers: []string{silent.URL, deadServer}, SilentTimeout: 1})
	_, err := c.Leases().Get(testContext(t), connect.NewRequest(&apiv1.GetRequest{Name: apiName(named("x"))}))
	var typed *incumbent.Error
	if !errors.As(AsError(err), &typed) || typed.Kind != incumbent.Unavailable || !strings.Contains(err.Error(), "is silent") || !strings.Contains(err.Error(), deadServer[len("http://"):]+": ") || !strings.Contains(typed.Hint, "why it does not answer") {
		t.Errorf("one is silent, one not there: %v, hint %q", err, typed.Hint)
	}
	for _, s := range []string{"127.0.0.1:7600", "localhost", "ftp://x"} {
		if _, err := New(Config{Servers: []string{s}}); incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), "is not an http or https URL") {
			t.Errorf("%s: %v", s, err)
		}
	}
}
