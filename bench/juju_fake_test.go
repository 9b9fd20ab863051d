package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// fakeJuju is what the members of a cluster agree on behind their doors for Juju's
// agents. Its switches make it lie.
type fakeJuju struct {
	shared   bool   // a lease that is held is granted to the next
	forgets  bool   // extensions are denied
	twice    bool   // every answer is sent twice
	trouble  string // code of the error that every second claim gets
	login    string // code of the error that logins get
	model    string // that logins are told instead of their own
	shed     int    // connections that are told to come back
	hangsUp  bool   // a connection ends with its first wait
	password string // that logins must have; "": any

	mu     sync.Mutex // one request at a time
	leases map[string]*fakeHolding
	heard  []string // requests of one connection's life, with the upgrade first
	claims int
}

type fakeHolding struct {
	unit  string
	until time.Time
	left  time.Duration // of a holding from before, counted from the first claim
}

// fakeJujuDoor is one member's door.
type fakeJujuDoor struct {
	*fakeJuju
	address string

	mu    sync.Mutex
	conns map[net.Conn]bool
	shut  bool
}

func (f *fakeJuju) open(t *testing.T) *fakeJujuDoor {
	d := &fakeJujuDoor{fakeJuju: f, conns: map[net.Conn]bool{}}
	f.mu.Lock()
	if f.leases == nil {
		f.leases = map[string]*fakeHolding{}
	}
	f.mu.Unlock()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(d.upgrade))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // clients go while they connect
	srv.StartTLS()
	t.Cleanup(func() {
		d.down(true)
		srv.Close()
	})
	d.address = srv.Listener.Addr().String()
	return d
}

// down ends the connections and takes no more, or takes them again.
func (d *fakeJujuDoor) down(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = down
	for c := range d.conns {
		c.Close()
	}
	d.conns = map[net.Conn]bool{}
}

func (d *fakeJujuDoor) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.conns[c] = true
	}
	return !d.shut
}

func (d *fakeJujuDoor) upgrade(w http.ResponseWriter, r *http.Request) {
	d.fakeJuju.mu.Lock()
	shed := d.shed > 0
	d.shed--
	d.heard = append(d.heard, fmt.Sprintf("%s %s protocol=%q origin=%q auth=%q", r.Method, r.URL.Path,
		r.Header.Get("Sec-WebSocket-Protocol"), r.Header.Get("Origin"), r.Header.Get("Authorization")))
	d.fakeJuju.mu.Unlock()
	if shed {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	conn, rw, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	if d.enter(conn) {
		model := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/model/"), "/api")
		(&fakeAgent{door: d, conn: conn, model: model}).serve(rw)
	}
}

// fakeAgent is one connection.
type fakeAgent struct {
	door  *fakeJujuDoor
	conn  net.Conn
	model string
}

type fakeRequest struct {
	ID      uint64          `json:"request-id"`
	Type    string          `json:"type"`
	Version int             `json:"version"`
	Method  string          `json:"request"`
	Params  json.RawMessage `json:"params"`
}

func (a *fakeAgent) serve(r io.Reader) {
	for {
		h, err := ws.ReadHeader(r)
		if err != nil || h.OpCode != ws.OpText || !h.Masked || h.Length > maxFakeFrame {
			return
		}
		payload := make([]byte, h.Length)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		ws.Cipher(payload, h.Mask, 0)
		var req fakeRequest
		if json.Unmarshal(payload, &req) != nil {
			return
		}
		a.door.fakeJuju.mu.Lock()
		a.door.heard = append(a.door.heard, string(payload))
		a.serveOne(&req)
		a.door.fakeJuju.mu.Unlock()
	}
}

func (a *fakeAgent) answer(id uint64, rest string) {
	text := fmt.Appendf(nil, `{"request-id":%d,%s}`, id, rest)
	_ = ws.WriteFrame(a.conn, ws.NewTextFrame(text)) // a client that went reads nothing
	if a.door.twice && id > 1 {
		_ = ws.WriteFrame(a.conn, ws.NewTextFrame(text))
	}
}

func (a *fakeAgent) serveOne(req *fakeRequest) {
	f := a.door.fakeJuju
	switch fmt.Sprintf("%s/%d.%s", req.Type, req.Version, req.Method) {
	case "Admin/3.Login":
		a.answer(req.ID, f.welcome(a.model, req.Params))
	case "LeadershipService/2.ClaimLeadership":
		a.answer(req.ID, f.claim(req.Params))
	case "LeadershipService/2.BlockUntilLeadershipReleased":
		var p struct{ Name string }
		_ = json.Unmarshal(req.Params, &p)
		if f.hangsUp {
			a.conn.Close()
			return
		}
		f.block(p.Name, func() { a.answer(req.ID, `"response":{}`) })
	case "Pinger/1.Ping":
		a.answer(req.ID, `"response":{}`)
	default:
		a.answer(req.ID, `"error":"no such request","error-code":"not implemented"`)
	}
}

func (f *fakeJuju) welcome(model string, params json.RawMessage) string {
	var p struct{ Credentials string }
	if err := json.Unmarshal(params, &p); err != nil || f.password != "" && p.Credentials != f.password {
		return `"error":"invalid entity name or password","error-code":"unauthorized access"`
	}
	if f.login != "" {
		return fmt.Sprintf(`"error":"no","error-code":%q`, f.login)
	}
	if f.model != "" {
		model = f.model
	}
	return `"response":{"model-tag":"model-` + model + `","controller-tag":"controller-1","server-version":"2.9.52","facades":[]}`
}

func (f *fakeJuju) claim(params json.RawMessage) string {
	const denied = `"response":{"results":[{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}]}`
	var p struct {
		Params []struct {
			Application string  `json:"application-tag"`
			Unit        string  `json:"unit-tag"`
			Duration    float64 `json:"duration"`
		}
	}
	if json.Unmarshal(params, &p) != nil || len(p.Params) == 0 {
		return `"error":"bad request"`
	}
	if len(p.Params) > 1 { // each by itself, as one of the bulk
		var results []string
		for _, one := range p.Params {
			text, _ := json.Marshal(map[string]any{"params": []any{map[string]any{"application-tag": one.Application, "unit-tag": one.Unit, "duration": one.Duration}}})
			said := f.claim(text)
			results = append(results, strings.TrimSuffix(strings.TrimPrefix(said, `"response":{"results":[`), `]}`))
		}
		return `"response":{"results":[` + strings.Join(results, ",") + `]}`
	}
	f.claims++
	if f.trouble != "" && f.claims%2 == 0 {
		return fmt.Sprintf(`"response":{"results":[{"error":{"message":"no","code":%q}}]}`, f.trouble)
	}
	app := strings.TrimPrefix(p.Params[0].Application, "application-")
	h := f.leases[app]
	if h == nil {
		h = &fakeHolding{}
		f.leases[app] = h
	}
	now := time.Now()
	if h.left > 0 {
		h.until, h.left = now.Add(h.left), 0
	}
	held := h.unit != "" && now.Before(h.until)
	if held && !f.shared && (h.unit != p.Params[0].Unit || f.forgets) {
		return denied
	}
	h.unit, h.until = p.Params[0].Unit, now.Add(time.Duration(p.Params[0].Duration*float64(time.Second)))
	return `"response":{"results":[{}]}`
}

// block calls done once the lease is free. Held: f.mu, as when done is called.
func (f *fakeJuju) block(app string, done func()) {
	h := f.leases[app]
	left := time.Until(h.until)
	if left <= 0 {
		done()
		return
	}
	time.AfterFunc(left, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.block(app, done)
	})
}
