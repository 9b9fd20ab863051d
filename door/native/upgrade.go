package native

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/websocket"
)

// upgrade makes a stream of an HTTP/1.1 request and parks its connection. The
// goroutine that served the request ends with it.
func (d *Door) upgrade(w http.ResponseWriter, r *http.Request) {
	if !d.calls.begin() {
		gate.VisitOfRequest(r.Context()).Refused(errDraining())
		d.refuseUpgrade(w, errDraining())
		return
	}
	defer d.calls.end()
	who, err := d.identify(r)
	if err != nil {
		err = d.deniedLogin(r.RemoteAddr, err)
	} else if who.principal.Kind == auth.Anonymous {
		d.note(who, audit.Record{Action: audit.Login, Outcome: audit.Denied, Reason: audit.Permission})
		err = incumbent.Errorf(incumbent.Denied, "a stream is for those who say who they are").
			WithHint("bring a client certificate or a credential")
	}
	if err != nil {
		gate.VisitOfRequest(r.Context()).Refused(err)
		w.Header().Set("Connection", "close")
		d.writeErrorOf(w, statusOf(asError(err).Kind), err, standing{})
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.ProtoMajor != 1 {
		w.Header().Set("Upgrade", "websocket")
		d.writeError(w, http.StatusUpgradeRequired, incumbent.Errorf(incumbent.Invalid, "%s is a WebSocket over HTTP/1.1", StreamPath).
			WithHint("offer http/1.1 by ALPN and send Upgrade: websocket"))
		return
	}
	if err := d.away(); err != nil {
		d.refuseUpgrade(w, err)
		return
	}
	// The connection is there and its request was read: to refuse it costs as much as to
	// serve it, and the client comes back with another. What it asks for over its stream
	// has lanes; a stream takes nothing but memory.
	if err := d.lanes.Holds(calls.OpenStream.Lane()); err != nil {
		d.refuseUpgrade(w, err)
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(d.now().Add(d.limits.Load().WriteTimeout)); err != nil {
		d.refuseUpgrade(w, incumbent.Errorf(incumbent.Internal, "bound the upgrade: %w", err))
		return
	}
	open, err := d.tally.Take(settings.OpenStreams, who.principal, "")
	if err != nil {
		d.refuseUpgrade(w, err)
		return
	}
	give := gate.FromContext(r.Context()).TakeOver()
	conn, rw, _, err := ws.HTTPUpgrader{}.Upgrade(r, w)
	if err != nil {
		open.Give()
		give()
		if conn != nil {
			conn.Close() // it was told why
		}
		return
	}
	buffered, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		open.Give()
		give()
		conn.Close()
		return
	}
	s := &stream{door: d, who: who, counted: open, give: give}
	d.streams.Add(s)
	parked, err := d.park.Park(conn, buffered, s)
	if err != nil {
		d.streams.Remove(s)
		open.Give()
		give()
		d.log.Warn("stream not parked", "address", who.address, "error", err)
		return
	}
	s.conn.Store(parked)
	if d.life.Err() != nil {
		s.goAway(errDraining().Message) // Drain may have missed it
	}
	if known := d.known.Load(); known != nil && !(*known)(who.principal) {
		s.banish() // Recheck may have missed it
	}
}

// Recheck ends the streams of those whom known does not know any more, and the calls
// under way. It is for credentials that were taken back or have ended.
func (d *Door) Recheck(known func(auth.Principal) bool) {
	d.known.Store(&known)
	for _, s := range d.streams.All() {
		if !known(s.who.principal) {
			s.banish()
		}
	}
	for _, b := range d.blocked.All() {
		if !known(b.who) {
			b.cancel(errNotKnown())
		}
	}
}

// errNotKnown ends what somebody has begun whose credential or certificate is good no
// more.
func errNotKnown() *incumbent.Error {
	return incumbent.Errorf(incumbent.Denied, "%s", notKnown).WithHint("ask an operator for a new one")
}

const notKnown = "this credential is not known any more"

// banish closes a stream whose client may not come back with what it brought.
func (s *stream) banish() {
	c := s.conn.Load()
	if c == nil {
		return // upgrade will see
	}
	s.end(c, websocket.Close(ws.StatusPolicyViolation, notKnown), nil)
}

// goAway asks the client to go elsewhere and closes once that was sent.
func (s *stream) goAway(reason string) {
	c := s.conn.Load()
	if c == nil {
		return // upgrade will see that the door drains
	}
	s.reply(&pb.ServerFrame{Answer: &pb.ServerFrame_GoAway{
		GoAway: &pb.GoAway{Reason: reason},
	}})
	s.end(c, websocket.Close(ws.StatusGoingAway, reason), nil)
}

// refuseUpgrade answers with the error's own status.
func (d *Door) refuseUpgrade(w http.ResponseWriter, err error) {
	d.writeError(w, statusOf(asError(err).Kind), err)
}

// writeError writes an error outside a call, as JSON with the names of Error.
func (d *Door) writeError(w http.ResponseWriter, status int, err error) {
	d.writeErrorOf(w, status, err, d.standing())
}

// writeErrorOf does so with what its reader may know of this member.
func (*Door) writeErrorOf(w http.ResponseWriter, status int, err error, of standing) {
	e := errorPB(err, of, nil)
	h := w.Header()
	if e.RetryAfterMs > 0 {
		h.Set("Retry-After", retryAfterSeconds(e.RetryAfterMs))
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body, err := jsonCodec{}.Marshal(e)
	if err != nil {
		body, _ = json.Marshal(map[string]string{"kind": e.Kind})
	}
	_, _ = w.Write(body) // the caller may be gone
}
