package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// Programs that speak to a Consul, unmodified. Each is run where it is at hand: `make
// conformance` says which, and docs/conformance.md what came of it.
var (
	template   = flag.String("consul-template", "", "the consul-template to run against us")
	prometheus = flag.String("prometheus", "", "the Prometheus whose discovery is run against us")
	traefik    = flag.String("traefik", "", "the Traefik, a proxy, to run against us")
	fabio      = flag.String("fabio", "", "the fabio, a proxy, to run against us")
	python     = flag.String("python", "", "a Python that has py-consul, to run against us")
)

// program is one that was started.
type program struct {
	cmd  *exec.Cmd
	said *bytes.Buffer
}

// launch starts a program that ends with the test.
func launch(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, said: new(bytes.Buffer)}
	cmd.Stdout, cmd.Stderr = p.said, p.said
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed below
		close(ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), tail(p.said.String()))
		}
	})
	return p
}

// tail is the end of a log.
func tail(text string) string { return text[max(0, len(text)-4000):] }

// TestConsulCommand runs Consul's own command line.
func TestConsulCommand(t *testing.T) {
	if *peer == "" {
		t.Skip("needs -peer")
	}
	target := startTarget(t, ours(t))
	dir := t.TempDir()
	run := func(in string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, *peer, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CONSUL_HTTP_ADDR="+target.url)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, step := range []struct {
		args string // by spaces
		in   string
		want string // in what it prints
		ends bool   // with an error
	}{
		{"kv put app/a one", "", "Success! Data written to: app/a", false},
		{"kv put -flags=42 app/b two", "", "Success!", false},
		{"kv get app/a", "", "one\n", false},
		{"kv get -detailed app/b", "", "42", false},
		{"kv get -keys -separator= app/", "", "app/a\napp/b\n", false},
		{"kv get -recurse app/", "", "app/a:one\napp/b:two\n", false},
		{"kv get app/none", "", "No key exists at: app/none", true},
		{"kv put -cas -modify-index=1 app/a three", "", "Did not write to app/a", true},
		{"kv export app/", "", `"key": "app/a"`, false},
		{"kv import -", `[{"key":"app/c","flags":7,"value":"dGhyZWU="}]`, "Imported: app/c", false},
		{"kv get app/c", "", "three\n", false},
		{"kv delete -recurse app/", "", "Deleted keys with prefix: app/", false},
		{"catalog datacenters", "", "dc1", false},
		{"catalog nodes", "", nodeName, false},
		{"catalog services", "", "consul", false},
		{"members", "", "alive", false},
		{"info", "", "agent:", false},
		{"operator raft list-peers", "", "leader", false},
		{"operator autopilot get-config", "", "CleanupDeadServers", false},
		{"services register -name=web -port=80", "", "Registered service: web", false},
		{"services deregister -id=web", "", "Deregistered service: web", false},
		{"event -name=deploy payload", "", "Event ID:", false},
		{"lock app/lock echo held", "", "held\n", false},
		{"lock -n=2 app/semaphore echo counted", "", "counted\n", false},
		{"watch -type=nodes", "", `"Node": "` + nodeName + `"`, false},
		{"watch -type=checks -state=passing", "", "serfHealth", false},
		{"snapshot save saved.snap", "", "Saved", false},
		{"kv put behind/it x", "", "Success! Data written to: behind/it", false},
		{"snapshot restore saved.snap", "", "Restored snapshot", false},
		{"kv get behind/it", "", "No key exists at: behind/it", true},
		{"maint -enable -reason=tea", "", "Node maintenance is now enabled", false},
		{"maint -disable", "", "Node maintenance is now disabled", false},
	} {
		out, err := run(step.in, strings.Fields(step.args)...)
		if !strings.Contains(out, step.want) || (err != nil) != step.ends {
			t.Errorf("consul %s: %v, %q", step.args, err, out)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "saved.snap")); err != nil || info.Size() == 0 {
		t.Errorf("the snapshot: %v, %v", info, err)
	}
}

// TestConsulTemplate has a file follow a key and a service.
func TestConsulTemplate(t *testing.T) {
	if *template == "" {
		t.Skip("needs -consul-template")
	}
	target := startTarget(t, ours(t))
	target.put("PUT", "/v1/kv/template/a", "one")
	dir := t.TempDir()
	source, result := filepath.Join(dir, "source"), filepath.Join(dir, "result")
	text := `{{key "template/a"}};{{range ls "template"}}{{.Key}},{{end}};{{range service "templated"}}{{.Address}}:{{.Port}},{{end}};{{range nodes}}{{.Node}},{{end}}`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, exec.Command(*template, "-consul-addr="+strings.TrimPrefix(target.url, "http://"), "-template", source+":"+result, "-log-level", "info"))
	becomes := func(want string) {
		t.Helper()
		outside.Eventually(t, patience, "the file is "+want, func() bool {
			got, err := os.ReadFile(result)
			return err == nil && strings.HasPrefix(string(got), want)
		})
	}
	becomes("one;a,;;")
	target.put("PUT", "/v1/kv/template/a", "two")
	becomes("two;a,;;")
	register := `{"Node":"templated","Address":"127.0.0.2","Service":{"Service":"templated","Port":80},"Check":{"CheckID":"c","Status":"%s","ServiceID":"templated"}}`
	target.put("PUT", "/v1/catalog/register", fmt.Sprintf(register, "passing"))
	becomes("two;a,;127.0.0.2:80,;")
	target.put("PUT", "/v1/catalog/register", fmt.Sprintf(register, "critical"))
	becomes("two;a,;;")
	target.put("PUT", "/v1/kv/template/b", "")
	becomes("two;a,b,;;")
}

// TestPrometheus has Prometheus find whom to ask.
func TestPrometheus(t *testing.T) {
	if *prometheus == "" {
		t.Skip("needs -prometheus")
	}
	target := startTarget(t, ours(t))
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := `scrape_configs:
  - job_name: found
    consul_sd_configs:
      - server: '` + strings.TrimPrefix(target.url, "http://") + `'
        services: [scraped]
        refresh_interval: 1s
    relabel_configs:
      - source_labels: [__meta_consul_service, __meta_consul_tags, __meta_consul_service_metadata_team, __meta_consul_health]
        target_label: seen
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
	launch(t, exec.Command(*prometheus, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address))
	becomes := func(want string) {
		t.Helper()
		outside.Eventually(t, patience, "Prometheus knows "+want, func() bool { return scraped(t, address) == want })
	}
	register := `{"Node":"scraped","Address":"127.0.0.2","Service":{"Service":"scraped","Port":80,"Tags":["a","b"],"Meta":{"team":"red"}},"Check":{"CheckID":"c","Status":"%s","ServiceID":"scraped"}}`
	target.put("PUT", "/v1/catalog/register", fmt.Sprintf(register, "passing"))
	becomes("127.0.0.2:80 scraped;,a,b,;red;passing\n")
	target.put("PUT", "/v1/catalog/register", fmt.Sprintf(register, "critical"))
	becomes("127.0.0.2:80 scraped;,a,b,;red;critical\n")
	target.put("PUT", "/v1/catalog/deregister", `{"Node":"scraped"}`)
	becomes("")
}

// TestFabio has fabio pass requests on to the instances that are healthy, by their tags, and by
// the routes that a key holds.
func TestFabio(t *testing.T) {
	if *fabio == "" {
		t.Skip("needs -fabio")
	}
	target := startTarget(t, ours(t))
	ports := freePorts(t, 2)
	proxy := fmt.Sprintf("127.0.0.1:%d", ports[0])
	launch(t, exec.Command(*fabio, "-proxy.addr", proxy, "-ui.addr", fmt.Sprintf("127.0.0.1:%d", ports[1]),
		"-registry.consul.addr", strings.TrimPrefix(target.url, "http://"), "-registry.consul.register.addr", fmt.Sprintf("127.0.0.1:%d", ports[1])))
	first := target.serve(t, "a", "urlprefix-/web")
	target.serve(t, "b", "urlprefix-/web")
	target.put("PUT", "/v1/kv/fabio/config", "route add manual /manual "+first+"/")
	becomes := func(path, want string) {
		t.Helper()
		outside.Eventually(t, patience, path+" is answered by "+want, func() bool { return answersOf(proxy, path) == want })
	}
	becomes("/web", "a,b")
	becomes("/manual", "a")
	target.put("PUT", "/v1/agent/check/fail/check-a", "")
	becomes("/web", "b")
	target.put("PUT", "/v1/agent/check/pass/check-a", "")
	becomes("/web", "a,b")
	target.put("PUT", "/v1/agent/service/deregister/b", "")
	becomes("/web", "a")
	target.put("DELETE", "/v1/kv/fabio/config", "")
	becomes("/manual", "404 Not Found")
	// Its other check asks for http://[127.0.0.1]:…, which is no URL: what of Go's net/url is
	// newer than 1.25.2 refuses it, in Consul as here.
	var own []struct {
		Checks []struct{ CheckID, Status string }
	}
	outside.Eventually(t, patience, "fabio is registered itself, and says that it lives", func() bool {
		if target.read("/v1/health/service/fabio", &own) != http.StatusOK || len(own) != 1 {
			return false
		}
		for _, check := range own[0].Checks {
			if strings.HasSuffix(check.CheckID, "-ttl") {
				return check.Status == "passing"
			}
		}
		return false
	})
}

// serve registers an instance of the service web that answers with its id, under tags, and
// returns its URL.
func (t *target) serve(tt *testing.T, id string, tags ...string) string {
	tt.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, id) }))
	tt.Cleanup(site.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(site.URL, "http://"), ":")
	list, err := json.Marshal(tags)
	if err != nil {
		tt.Fatal(err)
	}
	t.put("PUT", "/v1/agent/service/register", fmt.Sprintf(
		`{"ID":%q,"Name":"web","Address":"127.0.0.1","Port":%s,"Tags":%s,"Check":{"CheckID":"check-%s","TTL":"1h","Status":"passing"}}`, id, port, list, id))
	return site.URL
}

// answersOf are all that a proxy answers a path in a while.
func answersOf(proxy, path string) string {
	seen := map[string]bool{}
	for range 20 {
		res, err := http.Get("http://" + proxy + path)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			body = []byte(res.Status)
		}
		seen[string(body)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), ",")
}

// TestTraefik has Traefik pass requests on to the instances that are healthy, by rules in their
// tags; a service that does not say so is not shown to anybody.
func TestTraefik(t *testing.T) {
	if *traefik == "" {
		t.Skip("needs -traefik")
	}
	for _, watch := range []string{"true", "false"} {
		t.Run("watch="+watch, func(t *testing.T) {
			target := startTarget(t, ours(t))
			proxy := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
			launch(t, exec.Command(*traefik, "--entrypoints.web.address="+proxy, "--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=INFO",
				"--providers.consulcatalog=true", "--providers.consulcatalog.exposedbydefault=false", "--providers.consulcatalog.refreshinterval=1s",
				"--providers.consulcatalog.watch="+watch, "--providers.consulcatalog.endpoint.address="+strings.TrimPrefix(target.url, "http://")))
			rules := []string{"traefik.enable=true", "traefik.http.routers.web.rule=PathPrefix(`/web`)"}
			becomes := func(want string) {
				t.Helper()
				outside.Eventually(t, patience, "/web is answered by "+want, func() bool { return answersOf(proxy, "/web") == want })
			}
			target.serve(t, "a", rules...)
			target.serve(t, "b", rules...)
			becomes("a,b")
			target.put("PUT", "/v1/agent/check/fail/check-a", "")
			becomes("b")
			target.put("PUT", "/v1/agent/check/pass/check-a", "")
			becomes("a,b")
			target.put("PUT", "/v1/agent/service/deregister/b", "")
			becomes("a")
			target.serve(t, "a", "traefik.enable=false")
			becomes("404 Not Found")
		})
	}
}

// scraped is whom Prometheus asks, a line for each.
func scraped(t *testing.T, address string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/v1/targets?state=active", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "no answer"
	}
	defer res.Body.Close()
	var answer struct {
		Data struct {
			ActiveTargets []struct{ Labels map[string]string }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return "no answer"
	}
	var b strings.Builder
	for _, a := range answer.Data.ActiveTargets {
		fmt.Fprintf(&b, "%s %s\n", a.Labels["instance"], a.Labels["seen"])
	}
	return b.String()
}

// TestPython runs a program that uses py-consul.
func TestPython(t *testing.T) {
	if *python == "" {
		t.Skip("needs -python")
	}
	target := startTarget(t, ours(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, port, _ := strings.Cut(strings.TrimPrefix(target.url, "http://"), ":")
	out, err := exec.CommandContext(ctx, *python, filepath.Join(transcripts, "client.py"), port).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
