package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// A server that does what a stranger asks is found out, and one that does not is not.
func TestAStrangerWhoIsLetClaimIsAViolation(t *testing.T) {
	for status, found := range map[int]bool{http.StatusOK: true, http.StatusUnauthorized: false} {
		ctx, stop := context.WithCancel(t.Context())
		asked := make(chan string, 100)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			select {
			case asked <- r.Header.Get("Content-Encoding"):
			default:
			}
		}))
		b, err := bomb()
		if err != nil {
			t.Fatal(err)
		}
		s := &strangers{run: newRun(&Scenario{}, Options{}), bomb: b}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.flood(ctx, srv.URL)
		}()
		kinds := map[string]bool{}
		for len(kinds) < 2 {
			kinds[<-asked] = true
		}
		stop()
		<-ended
		srv.Close()
		_, _, violations := s.check.Counts()
		if got := violations > 0; got != found || !kinds["gzip"] {
			t.Errorf("%d: a violation is noted: %v, what was sent: %v", status, got, kinds)
		}
	}
}

// Strangers that did not come, whom nobody closed, or beside whom somebody known did not get
// in, show nothing.
func TestStrangersAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		silent, closed int64
		refused        int
		took           time.Duration
		text           string
	}{
		"all as it is to be":  {silent: 5, closed: 1, took: time.Minute},
		"a short time":        {silent: 5, took: time.Second},
		"some did not come":   {silent: 4, closed: 1, took: time.Minute, text: "only 4 of 5"},
		"nobody was closed":   {silent: 5, took: time.Minute, text: "no server closed"},
		"a login was refused": {silent: 5, closed: 1, took: time.Minute, refused: 2, text: "2 who are known"},
	} {
		s := &strangers{run: newRun(&Scenario{}, Options{})}
		s.silent.Store(c.silent)
		s.closed.Store(c.closed)
		if c.refused > 0 {
			s.rec.op("login").failed(s.now(), c.refused)
		}
		s.judge(Action{Silent: 5}, c.took)
		if got := violationsOf(s.run); (got == "") != (c.text == "") || !strings.Contains(got, c.text) {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
	}
}

// The most memory that a process had is known although it has given it back.
func TestPeakOfAProcess(t *testing.T) {
	pid := os.Getpid()
	if peakRSS(pid) == 0 || !forgetPeak(pid) {
		t.Skip("the system does not say it")
	}
	before := peakRSS(pid)
	b := make([]byte, 256<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	if peak := peakRSS(pid); peak < before+32<<20 {
		t.Errorf("%d bytes, %d before", peak, before)
	}
}
