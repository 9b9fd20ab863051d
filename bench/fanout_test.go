package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// teller is a member that keeps a key and tells of it over streams. Its switches
// make it lie.
type teller struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	incumbentv1connect.UnimplementedClusterServiceHandler
	*tellers
	behind time.Duration // it shows changes so late
	twice  bool          // and each a second time
	loses  bool          // every fourth is not told
	garble bool          // values are others than were put
	ends   bool          // watches end after the first change
}

// tellers is what the members agree on.
type tellers struct {
	mu      sync.Mutex // held for a change
	index   uint64
	leader  string // its URL
	watches []chan *apiv1.KeyValue
}

func (l *teller) start(t *testing.T) string {
	mux := http.NewServeMux()
	mux.Handle(incumbentv1connect.NewKeyValueServiceHandler(l))
	mux.Handle(incumbentv1connect.NewClusterServiceHandler(l))
	mux.HandleFunc("/v1/stream", l.stream)
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func (l *teller) Status(context.Context, *connect.Request[apiv1.StatusRequest]) (*connect.Response[apiv1.StatusResponse], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return connect.NewResponse(&apiv1.StatusResponse{Members: []*apiv1.Member{{Role: "leader", Address: l.leader}}}), nil
}

func (l *teller) Put(_ context.Context, r *connect.Request[apiv1.PutRequest]) (*connect.Response[apiv1.PutResponse], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	for _, w := range l.watches {
		w <- &apiv1.KeyValue{Key: r.Msg.Key, Value: r.Msg.Value, ModifiedIndex: l.index}
	}
	return connect.NewResponse(&apiv1.PutResponse{Index: l.index}), nil
}

// stream serves one watch.
func (l *teller) stream(w http.ResponseWriter, r *http.Request) {
	conn, rw, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	asked, err := readMessage(rw)
	if err != nil {
		return
	}
	changes := make(chan *apiv1.KeyValue, 1000)
	l.mu.Lock()
	l.watches = append(l.watches, changes)
	l.mu.Unlock()
	say := func(m *apiv1.WatchKeysResponse) error {
		b, err := proto.Marshal(&apiv1.ServerMessage{Frames: []*apiv1.ServerFrame{{Id: asked.Frames[0].Id, Answer: &apiv1.ServerFrame_WatchKeys{WatchKeys: m}}}})
		if err == nil {
			err = ws.WriteFrame(conn, ws.NewBinaryFrame(b))
		}
		return err
	}
	err = say(&apiv1.WatchKeysResponse{Snapshot: true, First: true, ProgressIndex: 1})
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case e := <-changes:
			if sleep(r.Context(), l.behind) != nil || l.loses && e.ModifiedIndex%4 == 0 {
				continue
			}
			if l.garble {
				e = &apiv1.KeyValue{Value: []byte("else"), ModifiedIndex: e.ModifiedIndex}
			}
			m := &apiv1.WatchKeysResponse{ProgressIndex: e.ModifiedIndex, Events: []*apiv1.KeyEvent{{Index: e.ModifiedIndex, What: "put", Entry: e}}}
			if err = say(m); err == nil && l.twice {
				err = say(m)
			}
			if l.ends {
				return
			}
		}
	}
}

func fanOutSettings(more ...string) map[string]string {
	set := map[string]string{
		"closed.rate": "100", "closed.workers": "20", "closed.warmup": "50ms", "closed.duration": "300ms",
		"settle": "500ms", "thresholds": "{undelivered: 0, violations: 0}",
	}
	for i := 0; i+1 < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	return set
}

func TestFanOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		server    *teller
		violation string // part of one; empty: none
		missing   bool   // deliveries
	}{
		{"all of it", &teller{}, "", false},
		{"twice", &teller{twice: true}, "after one of index", false},
		{"not all", &teller{loses: true}, "", true},
		{"something else", &teller{garble: true}, "bytes that nobody put", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.server.tellers = &tellers{}
			s, err := Run(t.Context(), Options{Scenario: "kv-watch", Set: fanOutSettings("settle", map[bool]string{true: "100ms", false: "1m"}[c.missing]), Targets: []string{c.server.start(t)}})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if s.Passed() != (c.violation == "" && !c.missing) || !strings.Contains(text, c.violation) || (s.Facts["undelivered"] > 0) != c.missing {
				t.Errorf("passed %v, want a violation %q: %s; facts %v", s.Passed(), c.violation, text, s.Facts)
			}
			const changes = 30
			if got := s.Facts["changes"]; got != changes || !c.missing && s.Ops[changeOp].Count != changes {
				t.Errorf("%v changes, %d puts", got, s.Ops[changeOp].Count)
			}
			if told := s.Ops[deliverOp]; !c.missing && !c.server.twice && told.Count != changes*20 || s.Facts["delivered_share"] < 1 != c.missing {
				t.Errorf("%d deliveries, a share of %v", told.Count, s.Facts["delivered_share"])
			}
		})
	}
	t.Run("a watch that ends", func(t *testing.T) {
		t.Parallel()
		l := &teller{tellers: &tellers{}, ends: true}
		if _, err := Run(t.Context(), Options{Scenario: "kv-watch", Set: fanOutSettings(), Targets: []string{l.start(t)}}); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%v", err)
		}
	})
}

// A follower that shows changes late is told apart from its leader.
func TestApplyLag(t *testing.T) {
	t.Parallel()
	const behind = 20 * time.Millisecond
	log := &tellers{}
	log.leader = (&teller{tellers: log}).start(t)
	s, err := Run(t.Context(), Options{
		Scenario: "apply-lag", Targets: []string{(&teller{tellers: log, behind: behind}).start(t), log.leader},
		Set: fanOutSettings("closed.workers", "2", "settle", "1m", "thresholds", "{follower after leader.p99_ms: 1}", "closed.rate", "20"),
	})
	if err != nil {
		t.Fatal(err)
	}
	lag := s.Ops[lagOp]
	if lag.Count == 0 || lag.Count != s.Ops[changeOp].Count || s.Ops[deliverOp].Count != 2*lag.Count {
		t.Errorf("operations %+v", s.Ops)
	}
	if lag.Max < float64(behind.Milliseconds())/2 || s.Passed() {
		t.Errorf("passed %v with %+v; the follower shows everything %v late", s.Passed(), lag, behind)
	}
}

func TestRefusalsOfFanOuts(t *testing.T) {
	for key, value := range map[string]string{"closed.rate": "0", "closed.workers": "0", "closed.value_bytes": "7", "closed.duration": "0s"} {
		if _, err := Load("kv-watch", map[string]string{key: value}); err == nil {
			t.Errorf("%s=%s was accepted", key, value)
		}
	}
	if _, err := Load("kv-watch", map[string]string{"closed.rate": "1000000"}); err == nil {
		t.Error("more changes than a run has were accepted")
	}
}
