package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Of a service that is watched while members go.
const (
	instances     = 500
	watchedFor    = 3 * time.Second // before a member goes, and after
	slowReadBytes = 4096            // of a body that is read slowly, between two pauses
)

// service is a service's instances, registered and changed at any member.
type service struct {
	c    *trio
	http *http.Client
	gone atomic.Pointer[member]
}

// instance is what is looked at of one.
type instance struct {
	Service struct {
		ID   string
		Port int
	}
}

func newService(c *trio) *service {
	return &service{c: c, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: patience}}
}

// set gives instances from one to another a port, in one transaction.
func (s *service) set(m *member, from, to, port int) error {
	var ops []string
	for i := from; i < to; i++ {
		ops = append(ops, fmt.Sprintf(`{"Service":{"Verb":"set","Node":"n","Service":{"ID":"web-%04d","Service":"web","Port":%d}}}`, i, port))
	}
	if from == 0 && to > 1 {
		ops = append([]string{`{"Node":{"Verb":"set","Node":{"Node":"n","Address":"10.0.0.1"}}}`}, ops...)
	}
	return s.put(m, "/v1/txn", "["+strings.Join(ops, ",")+"]")
}

func (s *service) put(m *member, path, body string) error {
	req, err := http.NewRequest(http.MethodPut, "http://"+m.Consul+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// register registers all instances with port 1.
func (s *service) register(t *testing.T, m *member) {
	t.Helper()
	for from := 0; from < instances; from += 50 {
		eventually(t, patience, "instances are registered", func() bool { return s.set(m, from, from+50, 1) == nil })
	}
}

// watcher reads the service again whenever it has changed.
type watcher struct {
	s     *service
	slow  bool
	index uint64
	port  int // of the instance that is changed, as seen last
	reads int
}

// once waits for the next version at a member, up to a second. What it is answered is
// whole, or an error that says so.
func (w *watcher) once(m *member) (status int, err error) {
	res, err := w.s.http.Get(fmt.Sprintf("http://%s/v1/health/service/web?index=%d&wait=1s", m.Consul, w.index))
	if err != nil {
		return 0, nil //nolint:nilerr // the member is gone
	}
	defer res.Body.Close()
	body := io.Reader(res.Body)
	if w.slow {
		body = &slowly{res.Body}
	}
	text, err := io.ReadAll(body)
	switch {
	case err != nil && m == w.s.gone.Load():
		return 0, nil // it was cut off, and the client knows
	case err != nil:
		return res.StatusCode, fmt.Errorf("a body of a member that is there: %w", err)
	case res.StatusCode != http.StatusOK:
		return res.StatusCode, nil
	}
	var list []instance
	if err := json.Unmarshal(text, &list); err != nil || len(list) != instances {
		return res.StatusCode, fmt.Errorf("%d instances of %d bytes, %w", len(list), len(text), err)
	}
	index, err := strconv.ParseUint(res.Header.Get("X-Consul-Index"), 10, 64)
	if err != nil || index < w.index {
		return res.StatusCode, fmt.Errorf("index %d after %d, %w", index, w.index, err)
	}
	if port := list[0].Service.Port; port < w.port {
		return res.StatusCode, fmt.Errorf("port %d after %d", port, w.port)
	}
	w.index, w.port = index, list[0].Service.Port
	w.reads++
	return res.StatusCode, nil
}

// slowly reads a body in pieces, with pauses.
type slowly struct{ io.Reader }

func (r *slowly) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return r.Reader.Read(b[:min(len(b), slowReadBytes)])
}

// While the leader is killed, bodies that are under way are whole or cut off, nobody is
// told less than before, and all see the last change in the end.
func TestG19_BodiesAreWholeWhenALeaderIsKilled(t *testing.T) {
	c := start(t, "--consul-listen", "127.0.0.1:0")
	s := newService(c)
	leader := c.leader()
	s.register(t, leader)
	ended := make(chan struct{})
	var last atomic.Int64 // the port that was stored last, for certain
	var watching, writing sync.WaitGroup
	all := make([]*watcher, 24)
	for i := range all {
		w := &watcher{s: s, slow: i%3 == 0}
		all[i] = w
		watching.Go(func() {
			at := c.Members[i%len(c.Members)]
			for n := i; ; n++ {
				select {
				case <-ended:
					if int64(w.port) >= last.Load() {
						return
					}
				default:
				}
				status, err := w.once(at)
				if err != nil {
					t.Errorf("watcher %d: %v", i, err)
					return
				}
				if status != http.StatusOK {
					at = c.Members[n%len(c.Members)]
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	writing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			default:
			}
			if port := int(last.Load()) + 1; s.set(c.Members[n%len(c.Members)], 0, 1, port) == nil {
				last.Store(int64(port))
			}
		}
	})
	time.Sleep(watchedFor)
	s.gone.Store(leader)
	before := last.Load()
	leader.kill(t)
	eventually(t, patience, "what is written is stored again", func() bool { return last.Load() > before+10 })
	time.Sleep(watchedFor)
	close(ended)
	writing.Wait()
	watching.Wait()
	reads := 0
	for _, w := range all {
		reads += w.reads
	}
	if before < 10 || reads < 10*len(all) {
		t.Errorf("%d changes before the leader was killed, %d reads", before, reads)
	}
}

// A member that leaves answers what waits there: nobody is told that there is no leader.
func TestALeavingMemberAnswersWhatWaits(t *testing.T) {
	c := start(t, "--consul-listen", "127.0.0.1:0")
	s := newService(c)
	leader := c.leader()
	leaving := c.others(leader)[0]
	s.register(t, leader)
	s.gone.Store(leaving)
	ended := make(chan struct{})
	var running sync.WaitGroup
	var answered atomic.Int64
	for i := range 24 {
		running.Go(func() {
			w := &watcher{s: s}
			for {
				status, err := w.once(leaving)
				switch {
				case err != nil:
					t.Errorf("watcher %d: %v", i, err)
					return
				case status == 0:
					return // it is gone
				case status != http.StatusOK:
					t.Errorf("watcher %d: status %d", i, status)
					return
				}
				answered.Add(1)
			}
		})
	}
	running.Go(func() {
		for port := 1; ; port++ {
			select {
			case <-ended:
				return
			default:
				_ = s.set(leader, 0, 1, port) // what matters is that it changes
			}
		}
	})
	eventually(t, patience, "reads are answered", func() bool { return answered.Load() > 100 })
	leaving.signal(syscall.SIGTERM)
	eventually(t, patience, "the member has left", func() bool { return syscall.Kill(leaving.PID, 0) != nil })
	close(ended)
	running.Wait()
}

// top shows what the catalog has, and which services are watched by how many.
func TestTopShowsServicesAndWatchers(t *testing.T) {
	c := start(t, "--consul-listen", "127.0.0.1:0")
	s := newService(c)
	m := c.Members[0]
	for _, name := range []string{"web", "db"} {
		body := fmt.Sprintf(`{"Node":"n","Address":"10.0.0.1","Service":{"Service":%q},"Check":{"CheckID":%q,"Name":"x","Status":"critical","ServiceID":%q}}`, name, name, name)
		eventually(t, patience, "services are registered", func() bool { return s.put(m, "/v1/catalog/register", body) == nil })
	}
	for range 3 {
		go func() {
			if res, err := http.Get("http://" + m.Consul + "/v1/health/service/web?index=1000000000&wait=10m"); err == nil {
				res.Body.Close()
			}
		}()
	}
	var out string
	eventually(t, patience, "its watchers are shown", func() bool {
		out, _, _ = cli(t, "top", "-n", "1", "--server", m.URL)
		for line := range strings.Lines(out) {
			if words := strings.Fields(line); len(words) > 0 && words[0] == "3" && strings.Contains(line, `"web"`) {
				return true
			}
		}
		return false
	})
	for _, want := range []string{"instances", "critical checks  2", "WAITING", "consul"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not shown in:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"db"`) {
			t.Errorf("nobody watches db: %s", line)
		}
	}
}
