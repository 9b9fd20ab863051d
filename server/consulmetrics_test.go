package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/incumbent-dev/incumbent/health"
)

// TestConsulMetrics: what is done is counted where it belongs.
func TestConsulMetrics(t *testing.T) {
	s := open(t, consulConfig(testConfig(t)))
	web := newSite(t)
	registerWeb(t, s, "w", s.cluster.ID(), health.Definition{HTTP: web.URL})
	get := func(path string, want int) {
		t.Helper()
		res, err := http.Get("http://" + s.ConsulAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	get("/v1/kv/a", http.StatusNotFound)
	get("/v1/catalog/nodes", http.StatusOK)
	get("/v1/health/service/web", http.StatusOK)
	get("/v1/catalog/nodes?index=100000&wait=10ms", http.StatusOK)
	get("/v1/nothing", http.StatusNotFound)
	if _, _, err := (&dns.Client{Timeout: testTimeout}).Exchange(new(dns.Msg).SetQuestion("nothing.service.consul.", dns.TypeSRV), s.DNSAddr()); err != nil {
		t.Fatal(err)
	}
	until(t, "all is counted", func() bool {
		text := metricsOf(t, s)
		for _, want := range []string{
			`incumbent_consul_requests_total{route="GET /v1/kv/",status="4xx"} 1`,
			`incumbent_consul_requests_total{route="GET /v1/catalog/nodes",status="2xx"} 2`,
			`incumbent_consul_request_seconds_count{route="GET /v1/catalog/nodes"} 1`,
			`incumbent_consul_requests_total{route="none",status="4xx"} 1`,
			`incumbent_consul_timed_out_total 1`,
			`incumbent_catalog_records{table="services"} 2`, // with that of the member itself, which is a node of its own a second after it began
			`incumbent_catalog_checks{status="passing"} 3`,
			`incumbent_checks_run 1`,
			`incumbent_dns_queries_total{rcode="NXDOMAIN",type="SRV"} 1`,
		} {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return !strings.Contains(text, `incumbent_checks_found_total{kind="http",status="passing"} 0`) &&
			!strings.Contains(text, `incumbent_consul_encodings_total{encoding="json"} 0`) && !strings.Contains(text, "incumbent_consul_body_bytes_total 0\n")
	})
}
