package server

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/incumbent-dev/incumbent/park"
)

func parkSet(t testing.TB) *park.Set {
	t.Helper()
	set, err := park.New(park.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close(context.Background()) })
	return set
}

// recorder is an http.ResponseWriter that keeps what was written.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, code: http.StatusOK} }

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// fromHere is a request from this machine.
func fromHere() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7600/", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7600})))
}
