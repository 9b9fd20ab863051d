package server

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"go.yaml.in/yaml/v3"

	"github.com/incumbent-dev/incumbent/health"
)

func metricsOf(t testing.TB, s *Server) string {
	t.Helper()
	res, err := http.Get(s.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asksForWhatIs checks that each metric of a query is there, with the labels it names.
func asksForWhatIs(t *testing.T, metrics, what, query string) {
	t.Helper()
	names := regexp.MustCompile(`(incumbent|process)_[a-z_]+`).FindAllString(query, -1)
	if len(names) == 0 {
		t.Errorf("%s: %s asks for nothing of ours", what, query)
	}
	labels := regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)`)
	for _, name := range names {
		line := regexp.MustCompile(`(?m)^` + name + `(\{.*)? `).FindString(metrics)
		if line == "" {
			t.Errorf("%s: there is no %s", what, name)
		}
		for _, label := range regexp.MustCompile(`[a-z_]+`).FindAllString(strings.Join(labels.FindAllString(query, -1), " "), -1) {
			switch label {
			case "encoding", "kind", "rcode", "reason", "route", "status", "table", "type":
				if strings.Contains(query, label+"=") && !strings.Contains(query, name+"{"+label) {
					continue // it is asked of another metric of the query
				}
				if !strings.Contains(line, label+`="`) {
					t.Errorf("%s: %s has no label %s", what, name, label)
				}
			}
		}
	}
}

// TestConsulDashboardAndAlerts: each metric that the dashboard and the alert rules ask
// for exists, with the labels they ask by.
func TestConsulDashboardAndAlerts(t *testing.T) {
	metrics := metricsOf(t, open(t, consulConfig(testConfig(t))))
	text, err := os.ReadFile("../docs/grafana/consul.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			queries++
			asksForWhatIs(t, metrics, p.Title, q.Expr)
		}
	}
	if text, err = os.ReadFile("../docs/prometheus/consul.yaml"); err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			asksForWhatIs(t, metrics, r.Alert, r.Expr)
			if r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s does not say for how long, how grave, what or why", r.Alert)
			}
		}
	}
	if queries < 25 || alerts < 8 {
		t.Errorf("%d queries, %d alerts", queries, alerts)
	}
}

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
