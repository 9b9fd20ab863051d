package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/incumbent-dev/incumbent/test/proxy"
)

// readyz is what a member says of being ready.
func (s *server) readyz() (code int, text string) {
	res, err := http.Get(s.url + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body) // without it the code says enough
	return res.StatusCode, string(body)
}

// untilReadyz waits until it says so.
func (s *server) untilReadyz(want int) {
	s.t.Helper()
	eventually(s.t, patience, fmt.Sprintf("%s says %d of being ready", s.name, want), func() bool { code, _ := s.readyz(); return code == want })
}

// heard is the member with the largest id: all others dial it, so what its proxy
// holds on the way back is all that it says.
func heard(t *testing.T, among []*server) *server {
	t.Helper()
	var got struct {
		Members []struct{ Name, ID string } `json:"members"`
	}
	out, errs, code := cli(t, "cluster", "ls", "-o", "json", "--server", among[0].url)
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatalf("ls: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	last := ""
	var found *server
	for _, m := range got.Members {
		if m.ID > last {
			last = m.ID
			found = among[slices.IndexFunc(among, func(s *server) bool { return s.name == m.Name })]
		}
	}
	return found
}

// A member whose words reach no other, while it hears all of theirs, sends its
// clients away, and takes clients again once it is heard.
func TestG35_AMemberThatIsNotHeardSendsItsClientsAway(t *testing.T) {
	var all []*server
	proxies := map[*server]*proxy.Proxy{}
	for _, name := range []string{"n1", "n2", "n3"} {
		s := newServer(t, name, "--cut-off-after", "2s")
		p, err := proxy.Open(proxy.Config{Target: s.args[slices.Index(s.args, "--peer-listen")+1]})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		s.args = append(s.args, "--peer-advertise", p.Addr())
		proxies[s] = p
		if len(all) == 0 {
			s.start()
		} else {
			s.start("--join-file", all[0].tokenFor(name))
		}
		all = append(all, s)
		all[0].until(name, "leader", "follower")
	}
	cut := heard(t, all)
	other := all[(slices.Index(all, cut)+1)%len(all)]
	if cut.leader() == cut.name {
		cut.verb(0, "cluster", "transfer-leader", other.name)
		other.until(other.name, "leader")
	}
	stream, _, _, err := ws.Dialer{Timeout: patience}.Dial(t.Context(), "ws"+strings.TrimPrefix(cut.url, "http")+"/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	_ = stream.SetDeadline(time.Now().Add(patience))

	proxies[cut].Set(proxy.Rule{HoldIn: true})
	for err == nil {
		_, _, err = wsutil.ReadServerData(stream)
	}
	if closed := (wsutil.ClosedError{}); !errors.As(err, &closed) || closed.Code != ws.StatusGoingAway {
		t.Errorf("the stream ended with %v", err)
	}
	// A machine that stands still may have sent the stream away before the cut did,
	// and keeps the others from being heard for as long as it does.
	cut.untilReadyz(http.StatusServiceUnavailable)
	for _, s := range all {
		if s != cut {
			s.untilReadyz(http.StatusOK)
		}
	}
	if code, text := cut.readyz(); code != http.StatusServiceUnavailable {
		t.Errorf("ready while it is not heard: %d %s", code, text)
	}
	proxies[cut].Set(proxy.Rule{})
	cut.untilReadyz(http.StatusOK)
}
