package blackbox

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// ask sends what curl would, and returns what it would print.
func ask(t *testing.T, method, url, body string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// The commands of the README work with nothing but an HTTP client.
func TestJSONOverHTTP(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	call := func(method, body string) (int, string) {
		return ask(t, http.MethodPost, m.url+"/incumbent.v1.LeaseService/"+method, body)
	}
	code, text := call("Claim", `{"name":{"name":"db/primary"},"holder":"me","ttl_ms":60000}`)
	type answer struct {
		Granted bool
		Lease   struct{ Holder, Token string }
	}
	granted := decode[answer](t, text)
	if code != http.StatusOK || !granted.Granted || granted.Lease.Holder != "me" || number(t, granted.Lease.Token) == 0 {
		t.Errorf("claim: %d %s", code, text)
	}
	if code, text := call("Get", `{"name":{"name":"db/primary"}}`); code != http.StatusOK || decode[answer](t, text).Lease.Token != granted.Lease.Token {
		t.Errorf("get: %d %s", code, text)
	}
	code, text = call("Claim", `{"name":{"name":"db/primary"},"holder":"other","ttl_ms":60000}`)
	if code < 400 || code >= 500 || !strings.Contains(text, `"kind":"held"`) || !strings.Contains(text, `"holder":"me"`) {
		t.Errorf("a claim of what another holds: %d %s", code, text)
	}
	for _, body := range []string{`{`, `{"name":{"name":"a b"},"holder":"me","ttl_ms":60000}`, `{"name":{"name":"a"},"holder":"me","ttl_ms":1}`, `{"nonsense":1}`} {
		if code, text := call("Claim", body); code != http.StatusBadRequest {
			t.Errorf("claim %s: %d %s", body, code, text)
		}
	}
}

func TestHealthAndMetrics(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	mustClaim(t, m.client(), "a", "me", time.Hour)
	for path, want := range map[string]string{
		"/livez": "alive\n", "/readyz": "ready\n", "/metrics": "incumbent_leases_held 1\n", "/": "/metrics", "/debug/pprof/": "goroutine",
	} {
		if code, text := ask(t, http.MethodGet, m.url+path, ""); code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d, no %q in %q", path, code, want, text)
		}
	}
	if code, _ := ask(t, http.MethodGet, m.url+"/nothing", ""); code != http.StatusNotFound {
		t.Errorf("an unknown path: %d", code)
	}
}

// gRPC and gRPC-Web clients speak to the same port.
func TestGRPC(t *testing.T) {
	m := start(t, t.TempDir(), nil)
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &h2c}
	t.Cleanup(transport.CloseIdleConnections)
	for name, c := range map[string]incumbentv1connect.LeaseServiceClient{
		"grpc":    incumbentv1connect.NewLeaseServiceClient(&http.Client{Transport: transport}, m.url, connect.WithGRPC()),
		"grpcweb": incumbentv1connect.NewLeaseServiceClient(http.DefaultClient, m.url, connect.WithGRPCWeb()),
	} {
		t.Run(name, func(t *testing.T) {
			req := &apiv1.ClaimRequest{Name: &apiv1.LeaseName{Name: name}, Holder: "me", TtlMs: 60_000}
			res, err := c.Claim(t.Context(), connect.NewRequest(req))
			if err != nil || !res.Msg.Granted {
				t.Fatalf("claim: %v", err)
			}
			req.Holder = "other"
			if _, err := c.Claim(t.Context(), connect.NewRequest(req)); err == nil {
				t.Error("two hold one lease")
			}
			stream, err := c.Watch(t.Context(), connect.NewRequest(&apiv1.WatchRequest{Name: &apiv1.LeaseName{Name: name}}))
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			if !stream.Receive() || len(stream.Msg().Events) != 1 || stream.Msg().Events[0].Lease.Token != res.Msg.Lease.Token {
				t.Errorf("watch shows %v, %v", stream.Msg(), stream.Err())
			}
		})
	}
}
