package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestChecksOfAKilledMemberAreTakenOver: a check that was registered with a member is
// run by another one when that is killed.
func TestChecksOfAKilledMemberAreTakenOver(t *testing.T) {
	c := start(t, "--consul-listen", "127.0.0.1:0")
	var status atomic.Int64
	status.Store(http.StatusOK)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	defer site.Close()
	leader := c.leader()
	runner, witness := c.others(leader)[0], c.others(leader)[1]
	body := fmt.Sprintf(`{"Name":"web","Port":80,"Check":{"CheckID":"web","HTTP":%q,"Interval":"1s"}}`, site.URL)
	req, err := http.NewRequest(http.MethodPut, "http://"+runner.Consul+"/v1/agent/service/register", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("registering: %s", res.Status)
	}
	statusAt := func(m *member) string {
		res, err := http.Get("http://" + m.Consul + "/v1/health/checks/web")
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		var list []struct{ Status string }
		if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list) != 1 {
			return fmt.Sprint(list, err)
		}
		return list[0].Status
	}
	eventually(t, patience, "it passes", func() bool { return statusAt(witness) == "passing" })
	// Until a member that has just come holds its lease, another runs what is its own.
	eventually(t, patience, "it is run where it was registered", func() bool {
		res, err := http.Get(runner.URL + "/metrics")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return err == nil && strings.Contains(string(text), "\nincumbent_checks_run 1\n")
	})
	runner.kill(t)
	status.Store(http.StatusInternalServerError)
	eventually(t, patience, "it is critical, as another member has found", func() bool { return statusAt(witness) == "critical" })
}
