package native

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/tally"
)

func (m *member) settings() incumbentv1connect.SettingsServiceClient {
	return incumbentv1connect.NewSettingsServiceClient(http.DefaultClient, m.url)
}

// set changes a setting, which must succeed.
func (m *member) set(name, value string) {
	m.tb.Helper()
	if resp, body := m.post("SettingsService/SetSetting", fmt.Sprintf(`{"name": %q, "value": %q}`, name, value)); resp.StatusCode != http.StatusOK {
		m.tb.Fatal(body)
	}
}

// limitKeys says how many bytes keys and values may have.
func (m *member) limitKeys(bytes int) {
	m.tb.Helper()
	m.set("kv.quota-bytes", fmt.Sprint(bytes))
}

func TestSettingsAreReadSetAndRemembered(t *testing.T) {
	m := newMember(t)
	get := func(name string) []*pb.ClusterSetting {
		t.Helper()
		res, err := m.settings().GetSettings(t.Context(), connect.NewRequest(&pb.GetSettingsRequest{Name: name}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.Settings
	}
	set := func(r *pb.SetSettingRequest) (*pb.SetSettingResponse, error) {
		res, err := m.settings().SetSetting(t.Context(), connect.NewRequest(r))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	if s := get("kv.quota-bytes"); len(s) != 1 || s[0].Value != "2GiB" || s[0].ModifiedIndex != 0 {
		t.Errorf("before: %v", s)
	}
	first, err := set(&pb.SetSettingRequest{Name: "kv.quota-bytes", Value: "3MiB", IfIndex: proto.Uint64(0)})
	if err != nil || first.Value != "3MiB" || first.ModifiedIndex != first.Index {
		t.Fatalf("%v, %v", first, err)
	}
	for what, c := range map[string]struct {
		r    *pb.SetSettingRequest
		want incumbent.Kind
	}{
		"it was set meanwhile":     {&pb.SetSettingRequest{Name: "kv.quota-bytes", Value: "4MiB", IfIndex: proto.Uint64(0)}, incumbent.Conflict},
		"there is none":            {&pb.SetSettingRequest{Name: "kv.quota", Value: "4MiB"}, incumbent.NotFound},
		"it is no number":          {&pb.SetSettingRequest{Name: "kv.quota-bytes", Value: "much"}, incumbent.Invalid},
		"it is out of bounds":      {&pb.SetSettingRequest{Name: "kv.quota-bytes", Value: "0"}, incumbent.Invalid},
		"it is for the cluster":    {&pb.SetSettingRequest{Name: "kv.quota-bytes@agent:a", Value: "1"}, incumbent.Invalid},
		"a pattern with two stars": {&pb.SetSettingRequest{Name: "quota.sessions@*a*", Value: "1"}, incumbent.Invalid},
		"a pattern of nothing":     {&pb.SetSettingRequest{Name: "quota.sessions@", Value: "1"}, incumbent.Invalid},
		"of a kind there is not":   {&pb.SetSettingRequest{Name: "quota.sessions@fleet:a*", Value: "1"}, incumbent.Invalid},
		"of no kind":               {&pb.SetSettingRequest{Name: "quota.sessions@mysql/0", Value: "1"}, incumbent.Invalid},
		"a value and none":         {&pb.SetSettingRequest{Name: "quota.sessions", Value: "1", Unset: true}, incumbent.Invalid},
	} {
		if _, err := set(c.r); kindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	m.set("quota.sessions@agent:fleet-*", "7")
	if s := get("quota.sessions"); len(s) != 2 || s[1].Name != "quota.sessions@agent:fleet-*" || s[1].Value != "7" {
		t.Errorf("for some: %v", s)
	}
	if s, err := set(&pb.SetSettingRequest{Name: "kv.quota-bytes", Unset: true}); err != nil || s.Value != "2GiB" || s.ModifiedIndex != 0 {
		t.Errorf("unset: %v, %v", s, err)
	}
	res, err := m.settings().SettingsHistory(t.Context(), connect.NewRequest(&pb.SettingsHistoryRequest{Name: "kv.quota-bytes"}))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range res.Msg.Changes {
		lines = append(lines, fmt.Sprintf("%s %q to %q by %s", c.Name, c.Before, c.After, c.Principal))
	}
	want := fmt.Sprintf("kv.quota-bytes \"3MiB\" to \"\" by %[1]s\nkv.quota-bytes \"\" to \"3MiB\" by %[1]s", m.guard.principal)
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("history:\n%s\nwant\n%s", got, want)
	}
}

// Only operators look at settings, and change them.
func TestSettingsAreForOperators(t *testing.T) {
	m := newMember(t)
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Agent, Via: auth.Certificate}
	for _, call := range []string{"GetSettings", "SetSetting", "SettingsHistory"} {
		if resp, body := m.post("SettingsService/"+call, `{}`); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: HTTP %d %s", call, resp.StatusCode, body)
		}
	}
}

// What is over a quota is refused with the quota's name, and without an entry of the
// log; what lets go or extends never is.
func TestQuotasStopWhatGrowsAtTheDoor(t *testing.T) {
	m := newMember(t)
	m.set("quota.sessions", "1")
	m.set("quota.leases@agent:a", "2")
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Agent, Via: auth.Certificate}
	session, second := incumbent.NewSessionID().String(), incumbent.NewSessionID().String()
	open := func(id string) (int, string) {
		resp, body := m.post("SessionService/OpenSession", fmt.Sprintf(`{"id": %q, "ttl_ms": 60000}`, id))
		return resp.StatusCode, body
	}
	if code, body := open(session); code != http.StatusOK {
		t.Fatal(body)
	}
	before := m.group.Proposed()
	if code, body := open(second); code != http.StatusTooManyRequests || !strings.Contains(body, "quota.sessions") {
		t.Errorf("a second session: HTTP %d %s", code, body)
	}
	if n := m.group.Proposed() - before; n != 0 {
		t.Errorf("%d commands were proposed", n)
	}
	if code, body := open(session); code != http.StatusOK {
		t.Errorf("the same session again: %s", body)
	}
	claim := func(name string) (int, string) {
		resp, body := m.post("LeaseService/Claim", fmt.Sprintf(`{"name": {"name": %q}, "holder": "a", "session": %q}`, name, session))
		return resp.StatusCode, body
	}
	for _, name := range []string{"x", "y", "x"} {
		if code, body := claim(name); code != http.StatusOK {
			t.Errorf("claiming %s: %s", name, body)
		}
	}
	if code, body := claim("z"); code != http.StatusTooManyRequests || !strings.Contains(body, "quota.leases") {
		t.Errorf("a third lease: HTTP %d %s", code, body)
	}
	if resp, body := m.post("LeaseService/Release", fmt.Sprintf(`{"name": {"name": "x"}, "holder": "a", "session": %q}`, session)); resp.StatusCode != http.StatusOK {
		t.Errorf("releasing: %s", body)
	}
	if code, body := claim("z"); code != http.StatusOK {
		t.Errorf("after a release: %s", body)
	}
	m.guard.principal = auth.Principal{Name: "op", Kind: auth.Operator}
	for range 3 {
		if code, body := open(incumbent.NewSessionID().String()); code != http.StatusOK {
			t.Errorf("an operator: %s", body)
		}
	}
}

// counting has a member's door count what is open, as servers do.
func counting(c *Config) {
	group := c.Engine
	c.Tally = tally.New(func() *settings.Values { return settings.Of(group.View()).Values() })
}

// A principal has as many streams here as the settings say, and one more when one has
// ended; operators have any number.
func TestQuotasStopStreamsAtTheDoor(t *testing.T) {
	m := newMember(t, counting)
	m.set("quota.streams@agent:a", "2")
	refused := func() bool {
		t.Helper()
		conn, _, _, err := ws.Dialer{Timeout: patience}.Dial(t.Context(), strings.Replace(m.url, "http", "ws", 1)+StreamPath)
		if err == nil {
			conn.Close()
			return false
		}
		var status ws.StatusError
		if !errors.As(err, &status) || int(status) != http.StatusTooManyRequests {
			t.Fatal(err)
		}
		return true
	}
	m.as(agentA())
	first := m.dial()
	m.dial()
	if !refused() {
		t.Error("a third stream is let in")
	}
	m.as(admin)
	for range 3 {
		m.dial()
	}
	m.as(agentA())
	first.conn.Close()
	for tick := time.NewTicker(time.Millisecond); refused(); <-tick.C { // until the end is noticed
	}
}

// Watches, waits and reads that wait are counted together, over streams and in calls;
// each makes room when it ends, however that happens.
func TestQuotasStopWatchesAtTheDoor(t *testing.T) {
	m := newMember(t, counting)
	m.dial().ok(claimFrame(1, "held", "h", "", false))
	m.set("quota.watches@agent:a", "2")
	m.as(agentA())
	w := m.dial()
	open := func(id uint64, want incumbent.Kind) {
		t.Helper()
		if k := w.kind(watchFrameOf(id, "", 0)); k != want {
			t.Errorf("watch %d: %v, want %v", id, k, want)
		}
	}
	full := func() {
		t.Helper()
		for what, do := range map[string]func() error{
			"a watch": func() error {
				s, err := m.leaseClient().Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{Name: nameOf("held")}))
				if err != nil {
					return err
				}
				defer s.Close()
				s.Receive()
				return s.Err()
			},
			"a wait": func() error {
				_, err := m.leaseClient().WaitReleased(t.Context(), connect.NewRequest(&pb.WaitReleasedRequest{Name: nameOf("held")}))
				return err
			},
			"a read that waits": func() error {
				_, err := m.keys().Get(t.Context(), connect.NewRequest(&pb.GetKeyRequest{Key: "k", WaitMs: 1}))
				return err
			},
		} {
			if err := do(); kindOf(err) != incumbent.TooLarge {
				t.Errorf("%s beyond the quota: %v", what, err)
			}
		}
		if k := w.kind(waitFrame(99, "held", 0)); k != incumbent.TooLarge {
			t.Errorf("a wait over the stream: %v", k)
		}
		open(98, incumbent.TooLarge)
	}
	open(1, incumbent.OK)
	open(2, incumbent.OK)
	full()
	w.ok(&pb.ClientFrame{Id: 3, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 1}}})
	eventually(t, "the end of a watch makes room", func() bool {
		_, err := m.leaseClient().WaitReleased(t.Context(), connect.NewRequest(&pb.WaitReleasedRequest{Name: nameOf("held"), WaitMs: 1}))
		return err == nil
	})
	w.send(waitFrame(4, "held", 0))
	w.settle()
	full()
	w.ok(&pb.ClientFrame{Id: 5, Request: &pb.ClientFrame_Cancel{Cancel: &pb.Cancel{Id: 4}}})
	if _, err := m.keys().Get(t.Context(), connect.NewRequest(&pb.GetKeyRequest{Key: "k", WaitMs: 1})); err != nil {
		t.Errorf("once a wait is cancelled: %v", err)
	}
	w.conn.Close()
	eventually(t, "nothing of the stream is counted", func() bool {
		_, _, _, found := m.door.tally.Fullest(settings.OpenWatches)
		return !found
	})
}
