package consul

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
)

// takesSnapshots has a member make snapshots and take them.
func takesSnapshots(c *Config) {
	c.Snapshot = func(ctx context.Context, w io.Writer, v *core.View) error {
		return backup.WriteArchive(ctx, w, v, backup.Info{Cluster: strings.Repeat("0", 32)})
	}
	c.Restore = func(r io.Reader) (*core.View, error) {
		_, v, err := backup.Verify(r, "the snapshot")
		return v, err
	}
}

// ok makes requests that must succeed, each METHOD PATH BODY.
func (m *member) ok(requests ...string) {
	m.tb.Helper()
	for _, q := range requests {
		parts := append(strings.SplitN(q, " ", 3), "")
		if a := m.do(parts[0], parts[1], parts[2]); a.StatusCode != http.StatusOK {
			m.tb.Fatalf("%s: %d %s", q, a.StatusCode, a.body)
		}
	}
}

// What is restored shows again as it was, under indexes that only go up; nobody is left
// out, and no lock or session comes back or goes.
func TestG14_ARunningClusterTakesASnapshot(t *testing.T) {
	m := startMember(t, takesSnapshots)
	free, held := m.open(), m.open()
	m.ok(
		`PUT /v1/kv/a one`, `PUT /v1/kv/b?flags=7 two`, `PUT /v1/kv/l?acquire=`+free.String()+` was`,
		`PUT /v1/catalog/register {"Node":"agent","Address":"10.0.0.9","Checks":[{"CheckID":"serfHealth","Status":"passing"}]}`,
		`PUT /v1/catalog/register {"Node":"x","Address":"10.0.0.1","Service":{"Service":"web"},"Checks":[{"CheckID":"c","Status":"passing","ServiceID":"web"}]}`,
		`PUT /v1/catalog/register {"Node":"y","Address":"10.0.0.2","Service":{"Service":"web"}}`,
		`PUT /v1/agent/service/register {"Name":"own"}`,
	)
	query := m.created(`{"Name":"q","Service":{"Service":"web"}}`)
	shown := []string{"/v1/health/service/web", "/v1/agent/services", "/v1/catalog/services", "/v1/query/" + query}
	was := map[string]string{}
	for _, path := range shown {
		was[path] = unindexed(t, m.get(path).body)
	}
	snapshot := m.do("GET", "/v1/snapshot", "").body
	m.ok(
		`PUT /v1/session/destroy/`+free.String(), `PUT /v1/kv/a changed`, `DELETE /v1/kv/b`, `PUT /v1/kv/new?acquire=`+held.String()+` x`,
		`PUT /v1/catalog/deregister {"Node":"x"}`, `PUT /v1/catalog/register {"Node":"z","Address":"10.0.0.3","Service":{"Service":"other"}}`,
		`PUT /v1/catalog/register {"Node":"y","Address":"10.9.9.9","Checks":[{"CheckID":"more","Status":"critical"}]}`,
		`PUT /v1/catalog/register {"Node":"agent","Address":"10.0.0.10"}`, `PUT /v1/agent/service/deregister/own`, `DELETE /v1/query/`+query,
	)
	before := m.group.View().Index()
	m.recorded()
	m.ok("PUT /v1/snapshot " + snapshot)
	m.wantRecorded("a restore", "admin default done")
	for _, path := range shown {
		a := m.get(path)
		if got := unindexed(t, a.body); got != was[path] {
			t.Errorf("%s: %s\nwant %s", path, got, was[path])
		}
		if index := a.index(); path == shown[0] && parsed(t, index) <= uint64(before) {
			t.Errorf("%s: index %s, and it was %d before", path, index, before)
		}
	}
	m.exchange([]exchange{
		{"a value that was changed", "GET", "/v1/kv/a?raw", "", 200, "one"},
		{"what was deleted", "GET", "/v1/kv/b?raw", "", 200, "two"},
		{"what was not there", "GET", "/v1/kv/new", "", 404, ""},
	})
	if a := m.do("GET", "/v1/kv/l", ""); strings.Contains(a.body, "Session") {
		t.Errorf("a lock came back with nobody who holds it: %s", a.body)
	}
	if a := m.get("/v1/catalog/node/agent"); !strings.Contains(a.body, `"Address":"10.0.0.10"`) {
		t.Errorf("the agent's own node was restored: %s", a.body)
	}
	if m.group.View().Session(held) == nil || m.group.View().Session(free) != nil {
		t.Error("sessions have changed")
	}
	at := m.group.View().Index()
	if m.ok("PUT /v1/snapshot " + snapshot); m.group.View().Index() != at {
		t.Error("to restore what is so changed something")
	}
}

func parsed(t *testing.T, index string) (n uint64) {
	t.Helper()
	if _, err := fmt.Sscan(index, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	m := startMember(t, takesSnapshots)
	var other bytes.Buffer
	zip := gzip.NewWriter(&other)
	_, _ = io.WriteString(zip, "something else")
	zip.Close()
	for body, want := range map[string]string{
		"x": "failed to decompress snapshot: unexpected EOF", other.String(): "failed to restore from snapshot: the snapshot is compressed, and no archive of a backup",
	} {
		if a := m.do("PUT", "/v1/snapshot", body); a.StatusCode != http.StatusInternalServerError || !strings.HasPrefix(a.body, want) {
			t.Errorf("%q: %d %s", body, a.StatusCode, a.body)
		}
	}
	m.wantRecorded("a restore of what is no backup", "admin default failed")
	bare := startMember(t, nil)
	if a := bare.do("PUT", "/v1/snapshot", "x"); a.StatusCode != http.StatusInternalServerError {
		t.Errorf("nobody takes it: %d %s", a.StatusCode, a.body)
	}
}

// A restore is one transaction, as long as it fits.
func TestRestoresAreCutOnlyWhereTheyMustBe(t *testing.T) {
	for steps, want := range map[int]int{1: 1, maxRestoreSteps: 1, maxRestoreSteps + 1: 2} {
		state := engine.NewState()
		for i := range steps {
			put := kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "default", Name: fmt.Sprint(i)}}
			state.Apply([][]byte{put.Encode(core.Meta{})}, make([]core.Result, 1))
		}
		d := listDoor()
		d.cfg.Cluster = &loneCluster{}
		list := d.restoration(state.View(), engine.NewState().View())
		n := 0
		for _, c := range list {
			n += len(c.Then)
		}
		if len(list) != want || n != steps {
			t.Errorf("%d steps: %d in %d transactions", steps, n, len(list))
		}
		if back := d.restoration(engine.NewState().View(), state.View()); len(back) != want {
			t.Errorf("to remove %d takes %d transactions", steps, len(back))
		}
	}
}
