package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func closedSettings(more ...string) map[string]string {
	set := map[string]string{"closed.workers": "4", "closed.warmup": "20ms", "closed.duration": "1s"}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	return set
}

func TestClosedRuns(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario string
		server   *fakeServer
		more     []string
		text     string // of a violation; empty: none
	}{
		{"extend", "extend-single", &fakeServer{}, nil, ""},
		{"extend a batch", "extend-batch", &fakeServer{}, []string{"closed.streams", "2", "closed.batch", "700"}, ""},
		{"open loop", "extend-single", &fakeServer{}, []string{"closed.rate", "500"}, ""},
		{"claim and release", "claim-closed", &fakeServer{}, []string{"closed.streams", "2", "closed.batch", "3"}, ""},
		{"create", "create-closed", &fakeServer{}, []string{"closed.streams", "2"}, ""},
		{"turns", "cluster-closed", &fakeServer{}, []string{"scale", "smoke", "closed.workers", "9"}, ""},
		{"turns with two holders", "cluster-closed", &fakeServer{shared: true}, []string{"scale", "smoke", "closed.workers", "9", "closed.hold", "50ms"}, "held it for another"},
		{"backups beside a stock", "backup-large", &fakeServer{backsUp: true}, []string{"scale", "smoke", "closed.stock", "{leases: 700}", "closed.streams", "2"}, ""},
		{"a backup without an end", "backup-large", &fakeServer{}, []string{"scale", "smoke", "closed.stock", "{leases: 1}", "closed.streams", "2"}, "no backup has come to its end"},
		{"not held", "extend-single", &fakeServer{notHeld: true}, nil, "does not hold what it holds"},
		{"answered twice", "claim-closed", &fakeServer{twice: true}, []string{"closed.streams", "2"}, "was not asked for or came twice"},
		{"extended twice", "extend-single", &fakeServer{twice: true}, []string{"closed.rate", "500"}, "was not asked for or came twice"},
		{"a token that stays", "claim-closed", &fakeServer{sameToken: true}, []string{"closed.streams", "2"}, "granted token 1 after token 1"},
		{"only errors", "claim-closed", &fakeServer{refuse: true}, []string{"closed.streams", "2"}, "are errors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := Run(t.Context(), Options{Scenario: c.scenario, Set: closedSettings(c.more...), Targets: []string{c.server.start(t)}, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if s.Passed() != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("passed %v, want a violation %q: %s", s.Passed(), c.text, text)
			}
			for name, o := range s.Ops {
				if c.text == "" && (o.Count == 0 || o.Errors != 0 || o.P50 <= 0 || o.P50 > o.Max) {
					t.Errorf("%s: %+v", name, o)
				}
			}
			if got, err := ReadSummary(dir); err != nil || len(got.Ops) != len(s.Ops) || len(s.Ops) == 0 {
				t.Errorf("the summary in the folder: %v", err)
			}
			for _, file := range []string{"report.html", "samples.jsonl"} {
				if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// onFirstWrite calls what it is, once.
type onFirstWrite func()

func (f onFirstWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// A run that is interrupted keeps what it measured up to then, and says so.
func TestAnInterruptedRunKeepsItsResults(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"juju-leases":   {"ttl": "30s", "every": "50ms", "candidates": "2", "hand_overs": "50", "stages": "[{leases: 5, ramp: 1000, hold: 10h}]"},
		"extend-single": closedSettings("closed.duration", "10h"),
		"idle-fleet":    {"stages": "[{leases: 5, ramp: 1000, hold: 10h}]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			dir := t.TempDir()
			srv := &fakeServer{}
			s, err := Run(ctx, Options{Scenario: name, Set: set, Targets: []string{srv.start(t)}, Dir: dir, Out: onFirstWrite(interrupt)})
			if err != nil {
				t.Fatal(err)
			}
			if !s.Interrupted || s.Passed() || len(s.Thresholds) != 0 || len(s.Ops) == 0 || s.Lost+s.Violations != 0 {
				t.Errorf("interrupted %v, passed %v, thresholds %v, ops %v: %v", s.Interrupted, s.Passed(), s.Thresholds, s.Ops, s.Texts)
			}
			if got, err := ReadSummary(dir); err != nil || !got.Interrupted {
				t.Errorf("the summary in the folder: %v", err)
			}
			samples, err := os.ReadFile(filepath.Join(dir, "samples.jsonl"))
			if err != nil || len(samples) == 0 {
				t.Errorf("%d bytes of samples: %v", len(samples), err)
			}
			page, err := os.ReadFile(filepath.Join(dir, "report.html"))
			if err != nil || !strings.Contains(string(page), ">interrupted</span>") {
				t.Errorf("the page says nothing of it: %v", err)
			}
		})
	}
}

func TestClosedRunEndsOnErrors(t *testing.T) {
	srv := &fakeServer{noResults: true}
	_, err := Run(t.Context(), Options{Scenario: "extend-single", Set: closedSettings(), Targets: []string{srv.start(t)}})
	if err == nil || !strings.Contains(err.Error(), "answered with 0 results") {
		t.Errorf("a bulk call without results: %v", err)
	}
	if _, err := Run(t.Context(), Options{Scenario: "extend-single"}); err == nil {
		t.Error("ran without a target")
	}
}

func ladder(t *testing.T, srv *fakeServer, more ...string) *Summary {
	set := map[string]string{
		"ttl": "30s", "every": "50ms", "candidates": "3", "sessions_per_stream": "8", "hand_overs": "100", "thresholds": "{}",
		"stages": "[{leases: 5, ramp: 1000, hold: 100ms}, {leases: 10, ramp: 1000, hold: 2s}]",
	}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	s, err := Run(t.Context(), Options{Scenario: "juju-leases", Set: set, Targets: []string{srv.start(t)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLadder(t *testing.T) {
	for name, more := range map[string][]string{"shared": nil, "own": {"connections", "own"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Each lease's first release is refused: the next attempt must name its token.
			srv := &fakeServer{offerMore: true}
			s := ladder(t, srv, more...)
			if !s.Passed() || len(s.Steps) != 2 || s.Facts["agents"] != 30 || s.Facts["hand_overs"] < 5 || srv.zero != 0 {
				t.Errorf("passed %v, steps %d, facts %v, %d releases without a token: %v", s.Passed(), len(s.Steps), s.Facts, srv.zero, s.Texts)
			}
			for _, op := range []string{"open", "attach", "claim", "extend", "beat", "release", "hand-over"} {
				if s.Ops[op].Count == 0 {
					t.Errorf("no %s", op)
				}
			}
			if s.Ops["open"].Count != 30 || s.Ops["release"].Errors == 0 {
				t.Errorf("opened %d sessions, %d releases were refused", s.Ops["open"].Count, s.Ops["release"].Errors)
			}
		})
	}
}

func TestLadderFindsLies(t *testing.T) {
	for text, srv := range map[string]*fakeServer{
		"was told it does not hold":         {notHeld: true},
		"was not asked for or came twice":   {twice: true},
		"does not exceed token 1 of agent ": {sameToken: true},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var more []string
			if !srv.sameToken { // which shows only when a lease changes hands
				more = []string{"candidates", "1", "hand_overs", "0"}
			}
			if s := ladder(t, srv, more...); s.Passed() || !strings.Contains(strings.Join(s.Texts, "\n"), text) {
				t.Errorf("passed %v: %d violations, such as %v", s.Passed(), s.Violations, s.Texts[:min(3, len(s.Texts))])
			}
		})
	}
}
