package server

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// Calls that are refused for what they ask are answered later, where too many such come over a
// connection: over one that has one at a time, and over one that has several.
func TestG47_RefusedCallsAreAnsweredSlowly(t *testing.T) {
	s := open(t, testConfig(t))
	const burst = 64 << 10 / (2 * admit.MessageBytes)
	for _, c := range []struct {
		name           string
		callers, calls int
	}{
		{"one after the other", 1, burst + 8},
		{"several at once", 8, burst/8 + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			transport := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
			transport.Protocols.SetHTTP1(c.callers == 1)
			transport.Protocols.SetUnencryptedHTTP2(c.callers > 1)
			defer transport.CloseIdleConnections()
			ask := func(body string, want int) {
				r, err := http.NewRequestWithContext(testContext(t), http.MethodPost, s.URL()+"/incumbent.v1.LeaseService/Claim", bytes.NewReader([]byte(body)))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				res, err := transport.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != want {
					t.Errorf("%s: %s, want %d", body, res.Status, want)
				}
			}
			before, began := s.admission.Slowed(), time.Now()
			var all sync.WaitGroup
			for range c.callers {
				all.Go(func() {
					for range c.calls {
						ask(`{"name":{"name":"l"}}`, http.StatusBadRequest)
					}
				})
			}
			all.Wait()
			least := time.Duration((c.calls-1)*c.callers*2*admit.MessageBytes-64<<10) * time.Second / (16 << 10)
			if took := time.Since(began); took < least || least <= 0 {
				t.Errorf("they were answered within %v, which are to take %v", took, least)
			}
			slowed := s.admission.Slowed()
			if slowed == before {
				t.Error("none had to wait")
			}
			ask(`{"name":{"name":"l"},"holder":"h","ttl_ms":60000}`, http.StatusOK)
			if s.admission.Slowed() != slowed {
				t.Error("what asks for something had to wait")
			}
		})
	}
}
