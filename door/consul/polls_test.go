package consul

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
)

// Who comes back with what a poll was told watches already, and is refused later than who
// begins to: whoever asks the same, and for however long. Any other index makes nobody one
// who watches: the list would be read at once. No place is taken for it.
func TestG40_WhoComesBackIsNoNewWatch(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.ok("PUT /v1/kv/a/b x", `PUT /v1/agent/service/register {"Name":"web"}`)
	read := m.do("GET", "/v1/kv/a/?recurse", "").Header.Get("X-Consul-Index")
	keys := m.do("GET", "/v1/kv/a/?recurse&index=1", "").Header.Get("X-Consul-Index")
	services := m.do("GET", "/v1/catalog/services?index=1", "").Header.Get("X-Consul-Index")
	hash := m.do("GET", "/v1/agent/service/web?hash="+strings.Repeat("1", 32), "").Header.Get("X-Consul-Contenthash")
	if keys != read || services == "1" || hash == "" {
		t.Fatalf("%s, %s, %s, %s", read, keys, services, hash)
	}
	small := func() admit.LaneStats { return lanes.Stats()[admit.Small] }
	admitted := small().Admitted
	for _, tt := range []struct {
		memory int64 // percent that is used
		path   string
		status int
	}{
		{89, "/v1/kv/a/?recurse&index=" + keys + "&wait=1ms", http.StatusOK}, // transactions are refused
		{89, "/v1/kv/a/?index=" + keys + "&recurse&wait=2ms&token=t", http.StatusOK},
		{89, "/v1/catalog/services?index=" + services + "&wait=1ms", http.StatusOK},
		{89, "/v1/agent/service/web?wait=1ms&hash=" + hash, http.StatusOK},
		{89, "/v1/kv/a/?recurse", http.StatusTooManyRequests},
		{89, "/v1/kv/a/?recurse&index=1", http.StatusTooManyRequests},
		{89, "/v1/kv/a/?recurse&wait=1ms&index=" + services, http.StatusTooManyRequests},
		{89, "/v1/kv/?recurse&wait=1ms&index=" + keys, http.StatusTooManyRequests},
		{89, "/v1/kv/a/?keys&wait=1ms&index=" + keys, http.StatusTooManyRequests},
		{89, "/v1/agent/service/web?wait=1ms&hash=" + hash[1:] + "0", http.StatusTooManyRequests},
		{89, "/v1/kv/a/?recurse&wait=1ms&hash=" + keys, http.StatusTooManyRequests}, // as none, it waits for nothing
		{89, "/v1/kv/a/?recurse&wait=1ms&index=1&hash=" + keys, http.StatusTooManyRequests},
		{89, "/v1/kv/a/?recurse&wait=1ms&index=" + keys + "&hash=" + hash, http.StatusTooManyRequests},
		{92, "/v1/kv/a/?recurse&wait=1ms&index=" + keys, http.StatusTooManyRequests}, // and small work
	} {
		lanes.SetMemory(tt.memory, 100)
		if a := m.do("GET", tt.path, ""); a.StatusCode != tt.status {
			t.Errorf("at %d %%: %s: %s %s", tt.memory, tt.path, a.Status, a.body)
		}
	}
	if s := small(); s.Admitted != admitted+4 || s.Inflight != 0 {
		t.Errorf("%d were let in, of which %d have a place; want 4 and none", s.Admitted-admitted, s.Inflight)
	}
	lanes.SetMode(admit.Observe)
	refused := small().Refused[admit.Memory]
	a := m.do("GET", "/v1/kv/a/?recurse&wait=1ms&index="+keys, "")
	if s := small(); a.StatusCode != http.StatusOK || s.Refused[admit.Memory] != refused+1 || s.Admitted != admitted+5 || s.Inflight != 0 {
		t.Errorf("where refusals are only counted: %s, %d are, %d were let in", a.Status, s.Refused[admit.Memory]-refused, s.Admitted-admitted)
	}
}

// A change that names an index waits for nothing: it is of the lane of changes, and keeps its
// place there.
func TestG40_AChangeIsNoPoll(t *testing.T) {
	m, lanes, _ := startHeld(t)
	m.dial().write(head("PUT", "/v1/kv/k?index=1&hash=x", "Content-Length: 1\r\n") + "x")
	eventually(t, func() bool { return lanes.Stats()[admit.Small].Inflight == 1 })
}

// What was told before the last answer is no way in once those who were told it are back, nor
// is an index that somebody made up and waited for in vain.
func TestG40_AnOldAnswerIsNoWayIn(t *testing.T) {
	p := newPollsTold()
	p.add(7, 1, true, 1)
	p.add(7, 2, true, 1000)
	p.add(7, 3, true, 1001) // changes may come faster than who waits
	const late = int64(toldLate)
	for _, x := range []struct {
		question, answer uint64
		now              int64
		want             bool
	}{
		{7, 3, 1001, true},
		{7, 2, 1001, true},
		{7, 1, 1001, true},
		{7, 1, 1000 + late, false},
		{7, 2, 1000 + late, true},
		{7, 2, 1001 + late, false},
		{7, 3, 1001 + late, true},
		{8, 3, 1001, false},
		{7, 0, 1001, false},
	} {
		if got := p.has(x.question, x.answer, x.now); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
	p.add(7, 99, false, 2000)
	p.add(8, 99, false, 2000)
	if p.has(7, 99, 2000) || p.has(8, 99, 2000) || !p.has(7, 3, 2000) {
		t.Error("what nobody was told has taken the place of what was told")
	}
	p.add(8, 3, true, 2000) // a wait that was in vain says how it is
	if !p.has(8, 3, 2000) {
		t.Error("what was told again is not known")
	}
}

// Who may see less is told other answers, which are remembered beside those of others.
func TestG40_PollsOfEachPrincipalAreTheirOwn(t *testing.T) {
	m := startMember(t, nil)
	of := func(name string) uint64 {
		r := &request{door: m.door, path: "/v1/kv/a", query: url.Values{"recurse": {""}, "index": {"7"}, "token": {name}}, who: &caller{principal: auth.Principal{Name: name}}}
		return r.question()
	}
	if of("a") == of("b") {
		t.Error("questions of two principals are one")
	}
}

// What polls were told is forgotten some time later, or earlier where much is told.
func TestG39_WhatPollsWereToldIsBounded(t *testing.T) {
	const more = int64(toldFor)
	p := newPollsTold()
	p.add(1, 5, true, 1)
	for now, want := range map[int64]bool{1: true, more - 1: true} {
		if got := p.has(1, 5, now); got != want {
			t.Errorf("after %v: %v", time.Duration(now), got)
		}
	}
	p.add(2, 5, true, more+1)
	if !p.has(1, 5, more+1) || p.has(1, 5, 2*more+1) || !p.has(2, 5, 2*more+1) || p.has(2, 5, 9*more) {
		t.Error("what was told is not known for as long as it is to be")
	}
	for i := range uint64(10 * maxTold) {
		p.add(i, 5, true, 9*more)
	}
	if n := len(p.recent) + len(p.before); n > 2*maxTold || !p.has(10*maxTold-1, 5, 9*more) || p.has(1, 5, 9*more) {
		t.Errorf("%d are kept", n)
	}
}
