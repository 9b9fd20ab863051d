package server

import (
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/gate"
)

// newHTTP serves the door, health, metrics and, to operators on this machine,
// profiles.
func (s *Server) newHTTP() *http.Server {
	mux := http.NewServeMux()
	for _, path := range s.door.Paths() {
		mux.Handle(path, s.door)
	}
	for path, h := range s.routes() {
		mux.Handle(path, route(path, s.protect(calls.Must(path), h)))
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{
		Handler: unambiguous(s.arrivals.hear(mux)), Protocols: &protocols, ConnContext: s.connContext, ConnState: s.connState,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: quietLog(s.log),
	}
	if s.certs != nil {
		h.TLSConfig = s.certs.config()
	}
	return h
}

// routePatience is how long the answer of a route of the member's own may take to be read.
const routePatience = 30 * time.Second

// route is what answers at a path of the member's own: in time, but for profiles, which take
// as long as their caller asks for.
func route(path string, h http.Handler) http.Handler {
	if strings.HasPrefix(path, "/debug/") {
		h = loopbackOnly(h)
	}
	return inTime(h)
}

// inTime has a handler give up who does not read its answer: over HTTP/2 a stream that is
// given no window would keep it for ever, with what it has to say.
func inTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(routePatience)) // of what has none, as in tests
		h.ServeHTTP(w, r)
	})
}

// unambiguous ends the connection of HTTP/1 with the answer to a request of which somebody
// who passes it on may see the end elsewhere (RFC 9112, section 6.1): else what is behind
// that would be taken for another request, of whoever comes next over the same connection.
// net/http takes chunks without telling of a length beside them, and of HTTP/1.0 it takes
// them for what follows.
func unambiguous(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// routes are the paths that the member serves itself. Each has a row in the table of
// calls, or the member does not start.
func (s *Server) routes() map[string]http.Handler {
	all := map[string]http.Handler{
		"GET /livez":   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "alive") }),
		"GET /readyz":  http.HandlerFunc(s.readyz),
		"GET /metrics": s.metrics.handler(),
		"GET /{$}":     http.HandlerFunc(s.front),
	}
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		all[path] = h
	}
	return all
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(incumbent.EscapeLines(text) + "\n")) // the client has gone: nothing to do
}

// readyz is 200 when the member is caught up, knows a leader, is not cut off and
// is not leaving. Why it is not, strangers are not told.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if err := s.ready(); err != nil {
		w.Header().Set("Retry-After", "1")
		text := "not ready"
		if s.knows(r) {
			text = err.Error()
		}
		writeText(w, http.StatusServiceUnavailable, text)
		return
	}
	writeText(w, http.StatusOK, "ready")
}

func (s *Server) ready() error {
	st := s.node.Status()
	switch {
	case s.draining.Load():
		return incumbent.Errorf(incumbent.Unavailable, "this member is leaving")
	case !st.Ready:
		return incumbent.Errorf(incumbent.Unavailable, "this member is not caught up yet")
	case st.Leader == 0:
		return incumbent.Errorf(incumbent.Unavailable, "no leader is known")
	}
	return s.cutOff.err()
}

// knows reports whether who sends a request has shown who it is.
func (s *Server) knows(r *http.Request) bool {
	p, err := s.guard.of(r)
	return err == nil && p.Kind != auth.Anonymous
}

// front tells a person who opens the address what there is; to strangers, only that
// it is.
func (s *Server) front(w http.ResponseWriter, r *http.Request) {
	if !s.knows(r) {
		writeText(w, http.StatusOK, "incumbent")
		return
	}
	writeText(w, http.StatusOK, "incumbent "+s.cfg.Version+", member "+s.cfg.Name+`

/livez /readyz /metrics    health and metrics
/v1/stream                 WebSocket of agents
/incumbent.v1.LeaseService/Claim and others: see 'incumbent --help'`)
}

// loopbackOnly hides a handler from other machines, also where a proxy on this one
// speaks for them.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() || auth.Forwarded(r.Header) || gate.Proxied(r.Context()) {
			http.NotFound(w, r)
			return
		}
		// A profile takes as long as its caller asks for.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h.ServeHTTP(w, r)
	})
}
