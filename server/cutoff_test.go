package server

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// What counts as being cut off: nothing confirmed for long enough while one
// leader is known, as far as the member was awake.
func TestSilence(t *testing.T) {
	const after, every = 4 * time.Second, 500 * time.Millisecond
	type look struct {
		times     int
		since     time.Duration
		leader    uint64
		confirmed bool
		alone     bool
	}
	quiet := func(times int) look { return look{times: times, since: every, leader: 7} }
	for name, tt := range map[string]struct {
		looks []look
		want  bool // at the last of them
	}{
		"confirmed":                   {[]look{{100, every, 7, true, false}}, false},
		"not yet":                     {[]look{quiet(8)}, false},
		"long enough":                 {[]look{quiet(9)}, true},
		"and on":                      {[]look{quiet(90)}, true},
		"confirmed in between":        {[]look{quiet(8), {1, every, 7, true, false}, quiet(7)}, false},
		"confirmed at last":           {[]look{quiet(20), {1, every, 7, true, false}}, false},
		"no leader":                   {[]look{{100, every, 0, false, false}}, false},
		"no leader any more":          {[]look{quiet(20), {1, every, 0, false, false}}, false},
		"another leader":              {[]look{quiet(8), {7, every, 8, false, false}}, false},
		"nobody else":                 {[]look{{100, every, 7, false, true}}, false},
		"stopped for a minute":        {[]look{quiet(1), {1, time.Minute, 7, false, false}}, false},
		"stopped, and silent besides": {[]look{quiet(1), {1, time.Minute, 7, false, false}, quiet(6)}, true},
	} {
		s, got := silence{after: after}, false
		for _, l := range tt.looks {
			for range l.times {
				got = s.look(l.since, l.leader, l.confirmed, !l.alone)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// closedWith reads from a WebSocket until the server closes it, and returns how.
func closedWith(t *testing.T, conn io.ReadWriter) ws.StatusCode {
	t.Helper()
	for {
		_, _, err := wsutil.ReadServerData(conn)
		if err == nil {
			continue
		}
		if closed := (wsutil.ClosedError{}); errors.As(err, &closed) {
			return closed.Code
		}
		t.Errorf("the connection ended with %v", err)
		return 0
	}
}

// A member that hears the leader, and of which nothing gets out, sends its clients
// away and takes none until it can confirm again. Nobody else does.
func TestG35_AMemberThatConfirmsNothingSendsItsClientsAway(t *testing.T) {
	config := func(name string) Config {
		cfg := withJuju(t, memberConfig(t, name))
		cfg.CutOffAfter = 4 * time.Second // longer than members of a loaded machine keep one another waiting
		return cfg
	}
	first := open(t, config("n1"))
	members := []*Server{first, join(t, first, config("n2")), join(t, first, config("n3"))}
	cut := members[0]
	if leaderOf(t, members...) == cut {
		cut = members[1]
	}
	d := ws.Dialer{Timeout: clusterTimeout}
	address := "ws" + strings.TrimPrefix(cut.URL(), "http") + "/v1/stream"
	stream, _, _, err := d.Dial(testContext(t), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	_ = stream.SetDeadline(time.Now().Add(clusterTimeout))
	agent, reply := jujuLogin(t, cut, "unit-app-0", "unit-app-0")
	if !strings.Contains(reply, "controller-tag") {
		t.Fatal(reply)
	}

	set := cut.transport.Use(nil) // nothing gets out; all that is sent to it arrives
	if code := closedWith(t, stream); code != ws.StatusGoingAway {
		t.Errorf("the stream was closed with %d", code)
	}
	if code := closedWith(t, agent.conn); code != ws.StatusGoingAway {
		t.Errorf("the agent's connection was closed with %d", code)
	}
	if cut.cluster.Leader() == 0 {
		t.Error("it does not know the leader")
	}
	w := newRecorder()
	if cut.readyz(w, httptest.NewRequest(http.MethodGet, "/readyz", nil)); w.code != http.StatusServiceUnavailable {
		t.Errorf("ready: %d %s", w.code, w.body.String())
	}
	var refused ws.StatusError
	if _, _, _, err := d.Dial(testContext(t), address); !errors.As(err, &refused) || refused != http.StatusServiceUnavailable {
		t.Errorf("a new stream: %v", err)
	}
	if len(eventsOf(cut, "cut off")) != 1 {
		t.Error("no event")
	}
	for _, s := range members {
		if s != cut {
			until(t, s.cfg.Name+" is ready", func() bool { return s.ready() == nil })
		}
	}

	cut.transport.Use(set)
	until(t, "it is ready again", func() bool { return cut.ready() == nil })
	again, _, _, err := d.Dial(testContext(t), address)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, reply := jujuLogin(t, cut, "unit-app-0", "unit-app-0"); !strings.Contains(reply, "controller-tag") {
		t.Errorf("an agent comes back: %s", reply)
	}
}
