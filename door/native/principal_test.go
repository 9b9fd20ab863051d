package native

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
)

// asked is who asked for the newest command that changed something.
func (m *member) asked() string {
	if o := m.origin.Load(); o != nil {
		return o.Principal
	}
	return ""
}

// Whatever way a command comes, the log says who asked for it, by kind and whole
// name.
func TestG12_CommandsNameWhoAsked(t *testing.T) {
	m := newMember(t)
	longest := auth.Principal{Name: strings.Repeat("x", incumbent.MaxHolderBytes), Kind: auth.Agent, Via: auth.Certificate}
	for _, who := range []auth.Principal{longest, {Name: "db-1", Kind: auth.Operator, Via: auth.Certificate}} {
		m.guard.principal = who
		session := incumbent.NewSessionID().String()
		for _, call := range []struct{ method, body string }{
			{"SessionService/OpenSession", `{"id": %q, "ttl_ms": 60000}`},
			{"KeyValueService/Put", `{"key": "x", "flags": "7"}`},
			{"KeyValueService/Lock", `{"key": "x", "session": %q}`},
			{"KeyValueService/Unlock", `{"key": "x", "session": %q}`},
			{"KeyValueService/Delete", `{"key": "x"}`},
			{"SessionService/CloseSession", `{"id": %q}`},
		} {
			body := call.body
			if strings.Contains(body, "%q") {
				body = fmt.Sprintf(body, session)
			}
			m.origin.Store(nil)
			if resp, text := m.post(call.method, body); resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: HTTP %d %s", call.method, resp.StatusCode, text)
			}
			if got := m.asked(); got != who.String() {
				t.Errorf("%s: asked by %q, want %q", call.method, got, who)
			}
		}
		w := m.dial()
		m.origin.Store(nil)
		w.ok(openFrame(1, incumbent.NewSessionID().String(), 20000))
		if got := m.asked(); got != who.String() {
			t.Errorf("by stream: asked by %q, want %q", got, who)
		}
	}
}
