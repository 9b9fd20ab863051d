package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
)

// A quota that fills is warned of before, stops what grows, and leaves deleting as
// the way out.
func TestAQuotaIsWarnedOf(t *testing.T) {
	s, err := Open(Config{DataDir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0", SegmentBytes: 4 << 20, DiskReserve: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Servers: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Settings().Set(t.Context(), "kv.quota-bytes", "1MiB"); err != nil {
		t.Fatal(err)
	}
	keys := c.KV("")
	happened := func(what string) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			all, _, more := s.events.after(0, timelineKept)
			if slices.ContainsFunc(all, func(e Event) bool { return e.What == what }) {
				return
			}
			select {
			case <-more:
			case <-deadline:
				t.Fatalf("no event %q", what)
			}
		}
	}
	warned := func() bool {
		t.Helper()
		st, err := c.Cluster().Status(t.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(st.Msg.Warnings, func(w string) bool { return strings.Contains(w, "kv.quota-bytes") })
	}
	for _, k := range []string{"a", "b"} {
		if _, err := keys.Put(t.Context(), k, make([]byte, 450<<10)); err != nil {
			t.Fatal(err)
		}
	}
	happened("keys near quota")
	if !warned() {
		t.Error("status does not warn")
	}
	if _, err := keys.Put(t.Context(), "c", make([]byte, 450<<10)); incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("beyond the quota: %v", err)
	}
	if n, err := keys.DeleteTree(t.Context(), ""); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	happened("keys below quota")
	if warned() {
		t.Error("status still warns")
	}
}

// How much may be guessed follows the settings of the cluster at once.
func TestGuessesFollowTheSettings(t *testing.T) {
	s := open(t, testConfig(t))
	if got := s.guessLimits(); got != auth.DefaultGuessLimits {
		t.Errorf("nobody has set anything, and the limits are %+v", got)
	}
	c := dialer(t, client.Config{Servers: []string{s.URL()}})
	for name, value := range map[string]string{
		"logins.guesses": "2", "logins.guess-every": "1m", "logins.address-guesses": "3", "logins.address-guess-every": "5s",
	} {
		if _, err := c.Settings().Set(t.Context(), name, value); err != nil {
			t.Fatal(err)
		}
	}
	want := auth.GuessLimits{Tag: 2, TagEvery: time.Minute, Address: 3, AddressEvery: 5 * time.Second}
	if got := s.guessLimits(); got != want {
		t.Errorf("the limits are %+v, want %+v", got, want)
	}
}
