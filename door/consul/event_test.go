package consul

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// indexOfID is how clients find out which index an event is of.
func indexOfID(id string) uint64 {
	digits := strings.ReplaceAll(id, "-", "")
	a, _ := strconv.ParseUint(digits[:16], 16, 64)
	b, _ := strconv.ParseUint(digits[16:], 16, 64)
	return a ^ b
}

func TestEvents(t *testing.T) {
	m := startMember(t, nil)
	m.exchange([]exchange{
		{"none", "GET", "/v1/event/list", "", 200, "[]"},
		{"no name", "PUT", "/v1/event/fire/", "", 400, "Missing name"},
		{"no filter", "PUT", "/v1/event/fire/x?node=(", "", 500, "Invalid node filter: error parsing regexp: missing closing ): `(`"},
		{"a tag without a service", "PUT", "/v1/event/fire/x?tag=a", "", 500, "Cannot provide tag filter without service filter"},
		{"too much", "PUT", "/v1/event/fire/x", strings.Repeat("x", 301), 413, "Event payload too large, received 301 bytes, max size: 300 bytes"},
	})
	fire := func(path, payload string) (e eventJSON) {
		t.Helper()
		a := m.do("PUT", "/v1/event/fire/"+path, payload)
		if err := json.Unmarshal([]byte(a.body), &e); err != nil {
			t.Fatalf("%d %s", a.StatusCode, a.body)
		}
		return e
	}
	list := func(path string) (l []eventJSON, index string) {
		t.Helper()
		a := m.do("GET", "/v1/event/list"+path, "")
		if err := json.Unmarshal([]byte(a.body), &l); err != nil {
			t.Fatalf("%d %s", a.StatusCode, a.body)
		}
		return l, a.Header.Get("X-Consul-Index")
	}
	first := fire("deploy", "payload")
	fire("other?node=elsewhere", "")
	fire("other?service=web", "")
	second := fire("deploy?node=ag.*", "")
	got, index := list("")
	if len(got) != 2 || got[0].ID != first.ID || string(got[0].Payload) != "payload" || got[1].ID != second.ID || got[1].NodeFilter != "ag.*" {
		t.Fatalf("%+v", got)
	}
	if index != strconv.FormatUint(indexOfID(second.ID), 10) {
		t.Errorf("the list is of index %s, the last event's id %s says %d", index, second.ID, indexOfID(second.ID))
	}
	if l, index := list("?name=none"); len(l) != 0 || index != "1" {
		t.Errorf("%v at %s", l, index)
	}
	c := m.dial()
	c.write("GET /v1/event/list?name=deploy&index=" + index + " HTTP/1.1\r\nHost: " + m.addr + "\r\n\r\n")
	fire("another", "")
	third := fire("deploy", "")
	if a := c.read("GET"); !strings.Contains(a.body, third.ID) {
		t.Errorf("whoever waits is told: %s", a.body)
	}
	for i := range maxEvents {
		fire(fmt.Sprintf("e%d", i), "")
	}
	got, _ = list("")
	if len(got) != maxEvents || got[0].Name != "e0" || got[maxEvents-1].Name != fmt.Sprintf("e%d", maxEvents-1) {
		t.Errorf("%d events, from %s to %s", len(got), got[0].Name, got[len(got)-1].Name)
	}
}

// A snapshot is whole, and what came before it is in it; one that breaks off is no answer.
func TestG30_SnapshotsAreBackups(t *testing.T) {
	var broken atomic.Bool
	m := startMember(t, func(c *Config) {
		c.Snapshot = func(ctx context.Context, w io.Writer, v *core.View) error {
			if broken.Load() {
				_, _ = w.Write(make([]byte, 2*sendBytes))
				return incumbent.Errorf(incumbent.Internal, "broken")
			}
			return backup.WriteArchive(ctx, w, v, backup.Info{Cluster: strings.Repeat("0", 32)})
		}
	})
	for i := range 20 { // more than is sent at once
		value := make([]byte, kv.MaxValueBytes/2)
		for j := range value {
			value[j] = byte(j * j >> (i % 8) * 31)
		}
		m.do("PUT", fmt.Sprintf("/v1/kv/large/%d", i), string(value))
	}
	m.recorded()
	for range 2 { // one after the other
		a := m.do("GET", "/v1/snapshot", "")
		m.wantRecorded("a snapshot", "admin snapshot done")
		if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "application/x-gzip" || a.Header.Get("X-Consul-Index") != formatIndex(m.group.View().Index()) {
			t.Fatalf("%d %v", a.StatusCode, a.Header)
		}
		if _, err := gzip.NewReader(strings.NewReader(a.body)); err != nil {
			t.Fatal(err)
		}
		_, v, err := backup.Verify(bytes.NewReader([]byte(a.body)), "snapshot")
		if err != nil {
			t.Fatal(err)
		}
		if n := kv.Of(v).Len(); n != kv.Of(m.group.View()).Len() {
			t.Errorf("it has %d keys", n)
		}
	}
	broken.Store(true)
	c := m.dial()
	c.write("GET /v1/snapshot HTTP/1.1\r\nHost: " + m.addr + "\r\n\r\n")
	if b, _ := io.ReadAll(c.in); strings.HasSuffix(string(b), "\r\n0\r\n\r\n") {
		t.Error("what broke off is told to be whole")
	}
}
