package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
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
