package server

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
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

var (
	metricNames = regexp.MustCompile(`(incumbent|process)_[a-z_]+`)
	labelLists  = regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)`)
	texts       = regexp.MustCompile(`"[^"]*"`)
	words       = regexp.MustCompile(`[a-z_]+`)
)

// ofTargets are labels that Prometheus gives to all that it asks a target for, and words that are
// no labels; le is of histograms.
var ofTargets = map[string]bool{"by": true, "instance": true, "job": true, "le": true}

// asksForWhatIs checks that each metric of a query is there, with the labels it names.
func asksForWhatIs(t *testing.T, metrics, what, query string) {
	t.Helper()
	query = texts.ReplaceAllString(query, `""`)
	names := metricNames.FindAllString(query, -1)
	if len(names) == 0 {
		t.Errorf("%s: %s asks for nothing of ours", what, query)
	}
	for _, name := range names {
		line := regexp.MustCompile(`(?m)^` + name + `(\{.*)? `).FindString(metrics)
		if line == "" {
			t.Errorf("%s: there is no %s", what, name)
		}
		for _, list := range labelLists.FindAllString(query, -1) {
			if list[0] == '{' && !strings.Contains(query, name+list) {
				continue // it is asked of another metric of the query
			}
			for _, label := range words.FindAllString(list, -1) {
				if !ofTargets[label] && !strings.Contains(line, label+`="`) {
					t.Errorf("%s: %s has no label %s", what, name, label)
				}
			}
		}
	}
}

// metricsOfAllDoors are those of a member with every door open.
func metricsOfAllDoors(t *testing.T) string {
	t.Helper()
	schema := filepath.Join(t.TempDir(), "schema")
	if err := os.WriteFile(schema, []byte(smallSchema), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := consulConfig(withJuju(t, testConfig(t)))
	cfg.OVSDB = OVSDB{Listen: []string{"127.0.0.1:0"}, Schemas: []string{schema}, Anonymous: "operator:dashboards"}
	s := open(t, cfg)
	var text string
	until(t, "the database is there", func() bool {
		text = metricsOf(t, s)
		return strings.Contains(text, `{database="Small"}`)
	})
	return text
}

func each(t *testing.T, pattern string, fn func(t *testing.T, text []byte)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fn(t, text)
		})
	}
}

// TestDashboards: each metric that a dashboard asks for exists, with the labels it asks by.
func TestDashboards(t *testing.T) {
	metrics := metricsOfAllDoors(t)
	each(t, "../docs/grafana/*.json", func(t *testing.T, text []byte) {
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
		if queries < 18 {
			t.Errorf("%d queries", queries)
		}
	})
}

// TestAlertRules: each metric that a rule asks for exists, with the labels it asks by, and each
// rule says what it means. No two have one name.
func TestAlertRules(t *testing.T) {
	metrics := metricsOfAllDoors(t)
	seen := map[string]bool{}
	each(t, "../docs/prometheus/*.yaml", func(t *testing.T, text []byte) {
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
				if seen[r.Alert] {
					t.Errorf("%s is there twice", r.Alert)
				}
				seen[r.Alert] = true
			}
		}
		if alerts < 7 {
			t.Errorf("%d alerts", alerts)
		}
	})
}
