package auth

import (
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

func TestListenerPolicy(t *testing.T) {
	full := func(address string) ListenerPolicy {
		return ListenerPolicy{Address: address, Cert: true, Key: true, ClientCA: true}
	}
	for name, tt := range map[string]struct {
		policy ListenerPolicy
		trust  bool
		err    string // words of the error, "" for none
	}{
		"ipv4 loopback":        {ListenerPolicy{Address: "127.0.0.1:7600"}, true, ""},
		"another loopback":     {ListenerPolicy{Address: "127.3.2.1:7600"}, true, ""},
		"ipv6 loopback":        {ListenerPolicy{Address: "[::1]:7600"}, true, ""},
		"mapped loopback":      {ListenerPolicy{Address: "[::ffff:127.0.0.1]:7600"}, true, ""},
		"localhost":            {ListenerPolicy{Address: "localhost:7600"}, true, ""},
		"unix":                 {ListenerPolicy{Address: "unix:/run/x"}, true, ""},
		"loopback with TLS":    {full("127.0.0.1:7600"), true, ""},
		"everywhere":           {ListenerPolicy{Address: ":7600"}, false, "--tls-cert and --tls-key, and --client-ca or --credential-file"},
		"everywhere v4":        {ListenerPolicy{Address: "0.0.0.0:7600"}, false, "--tls-cert"},
		"everywhere v6":        {ListenerPolicy{Address: "[::]:7600"}, false, "--tls-cert"},
		"an address":           {ListenerPolicy{Address: "192.0.2.1:7600"}, false, "--tls-cert"},
		"a host name":          {ListenerPolicy{Address: "localhost.example:7600"}, false, "--tls-cert"},
		"credentials, no TLS":  {ListenerPolicy{Address: ":7600", Credentials: true}, false, "lacks --tls-cert and --tls-key"},
		"TLS, no callers":      {ListenerPolicy{Address: ":7600", Cert: true, Key: true}, false, "lacks --client-ca or --credential-file"},
		"TLS and certificates": {full(":7600"), false, ""},
		"TLS and credentials":  {ListenerPolicy{Address: ":7600", Cert: true, Key: true, Credentials: true}, false, ""},
		"half a pair":          {ListenerPolicy{Address: "127.0.0.1:7600", Cert: true}, true, "come together"},
		"the other half":       {ListenerPolicy{Address: ":7600", Key: true, ClientCA: true}, false, "come together"},
		"CA without TLS":       {ListenerPolicy{Address: "127.0.0.1:7600", ClientCA: true}, true, "--client-ca without"},
		"no port":              {ListenerPolicy{Address: "127.0.0.1"}, false, "missing port"},
		"no path":              {ListenerPolicy{Address: "unix:"}, false, "no path"},
		"nothing":              {ListenerPolicy{}, false, "missing port"},
	} {
		err := tt.policy.Check()
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.err != "" && (incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: got %v, want %q", name, err, tt.err)
		}
		if got := tt.policy.OnlyLoopback(); got != tt.trust {
			t.Errorf("%s: trusts loopback: %v", name, got)
		}
	}
	// The hint names all that an open listener needs.
	err := ListenerPolicy{Address: ":7600"}.Check().(*incumbent.Error)
	for _, flag := range []string{"--tls-cert", "--tls-key", "--client-ca", "--credential-file"} {
		if !strings.Contains(err.Hint, flag) {
			t.Errorf("hint %q lacks %s", err.Hint, flag)
		}
	}
}
