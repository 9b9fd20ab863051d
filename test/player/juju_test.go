package player

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// jujuPlayer is an agent of Juju that does what it likes.
type jujuPlayer struct {
	*play
	number int
	open   *agent
	reads  sync.WaitGroup
}

// agent is one connection that has logged in.
type agent struct {
	*play
	m    *member
	life int
	tag  string
	conn net.Conn

	mu      sync.Mutex // guards the rest; held for a change
	last    uint64
	waiting map[uint64]*request
	over    bool
}

// request is one without a reply.
type request struct {
	c      *call
	claims []jujuClaim // of a claim; what is invalid in itself is marked so
	blocks bool        // a wait, for as long as it takes
	spoilt bool        // must not succeed
}

type jujuClaim struct {
	at      place
	holder  string
	invalid bool
}

// jujuReply is a reply of the server.
type jujuReply struct {
	ID       uint64 `json:"request-id"`
	Response *struct {
		Results []struct {
			Error *jujuError `json:"error"`
		} `json:"results"`
		Error *jujuError `json:"error"`
	} `json:"response"`
	Error string `json:"error"`
	Code  string `json:"error-code"`
}

type jujuError struct {
	Message string `json:"message"`
	Code    string `json:"code"`
}

func (p *jujuPlayer) run(ctx context.Context) {
	defer func() {
		if p.open != nil {
			p.open.conn.Close()
		}
		p.reads.Wait()
	}()
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		p.step(ctx, d, step)
		p.rest(ctx, d)
		p.rest(ctx, d)
	}
}

func (p *jujuPlayer) step(ctx context.Context, d dice, step int) {
	m, tag, leave := pick(d, p.c.Members), pick(d, []string{"unit-app-0", "unit-app-1", "unit-app2-0", "application-app", "machine-0"}), d.oneIn(80)
	if p.open == nil {
		if p.open = p.login(ctx, m, tag); p.open == nil {
			return
		}
		a := p.open
		p.reads.Go(a.read)
	}
	a := p.open
	r := &request{c: p.book.begin(fmt.Sprintf("player %d, step %d, %s at %s", p.number, step, a.tag, a.m.Name))}
	facade, version, method, params := a.request(d, r)
	if !a.send(r, facade, version, method, params) || leave {
		a.conn.Close()
		p.open = nil
		return
	}
	a.late()
}

// dialJuju connects without logging in.
func dialJuju(ctx context.Context, m *member) net.Conn {
	d := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience} //nolint:gosec // the member's certificate is its own
	conn, buffered, _, err := d.Dial(ctx, "wss://"+m.Juju+"/model/"+model+"/api")
	if err != nil {
		return nil // killed, or accepting rests
	}
	if buffered != nil {
		ws.PutReader(buffered)
	}
	return conn
}

// login connects and logs in.
func (p *play) login(ctx context.Context, m *member, tag string) *agent {
	a := &agent{play: p, m: m, life: m.life(), tag: tag, waiting: map[uint64]*request{}}
	if a.conn = dialJuju(ctx, m); a.conn == nil {
		return nil
	}
	text := fmt.Sprintf(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":%q,"credentials":%q}}`, tag, password)
	a.last = 1
	_ = a.conn.SetDeadline(time.Now().Add(patience))
	if wsutil.WriteClientText(a.conn, []byte(text)) == nil {
		if b, err := wsutil.ReadServerText(a.conn); err == nil {
			if !strings.Contains(string(b), model) {
				p.fail("login of %s at %s: %s", tag, m.Name, b)
			}
			_ = a.conn.SetDeadline(time.Time{})
			return a
		}
	}
	a.conn.Close()
	return nil
}

func (a *agent) send(r *request, facade string, version int, method, params string) bool {
	a.mu.Lock()
	a.last++
	id := a.last
	a.waiting[id] = r
	a.mu.Unlock()
	text := fmt.Sprintf(`{"request-id":%d,"type":%q,"version":%d,"request":%q,"params":%s}`, id, facade, version, method, params)
	_ = a.conn.SetWriteDeadline(time.Now().Add(patience))
	return wsutil.WriteClientText(a.conn, []byte(text)) == nil
}

// request makes a request of any sort.
func (a *agent) request(d dice, r *request) (facade string, version int, method, params string) {
	app := pick(d, applications)
	switch n := d.IntN(100); {
	case n < 55:
		return "LeadershipService", 2, "ClaimLeadership", r.claim(d)
	case n < 63:
		r.blocks = true
		return "LeadershipService", 2, "BlockUntilLeadershipReleased", fmt.Sprintf(`{"Name":%q}`, app)
	case n < 70:
		return "Pinger", 1, "Ping", "{}"
	case n < 73:
		return "LeadershipPinner", 1, "PinApplicationLeaders", fmt.Sprintf(`{"entities":[{"tag":"application-%s"}]}`, app)
	case n < 79:
		return "LeadershipPinner", 1, "UnpinApplicationLeaders", fmt.Sprintf(`{"entities":[{"tag":"application-%s"}]}`, app)
	case n < 81:
		return "LeadershipPinner", 1, "PinnedLeadership", "{}"
	case n < 87:
		r.claims = []jujuClaim{{place{singular, model}, a.tag, false}}
		return "Singular", 2, "Claim", fmt.Sprintf(`{"claims":[{"entity-tag":"model-%s","claimant-tag":%q,"duration":%d}]}`, model, a.tag, time.Second+time.Duration(d.Int64N(int64(3*time.Second))))
	case n < 89:
		r.blocks = true
		return "Singular", 2, "Wait", fmt.Sprintf(`{"entities":[{"tag":"model-%s"}]}`, model)
	case n < 93:
		r.spoilt = true
		return "LeadershipService", 2, "ClaimLeadership", pick(d, []string{`5`, `"x"`, `[]`, `{"params":7}`, `{"params":[{"duration":"x"}]}`, `{"params":[{"application-tag":{}}]}`})
	case n < 96:
		r.spoilt = true
		return pick(d, []string{"Uniter", "Admin", "leadershipservice", "\U0001f9ff"}), d.IntN(4), "Login", "{}"
	case n < 98:
		r.spoilt = true
		return "LeadershipService", 3 + d.IntN(5), "ClaimLeadership", "{}"
	}
	r.spoilt = true
	return "LeadershipService", 2, "BlockUntilLeadershipReleased" + strings.Repeat("x", d.IntN(3000)), "{}"
}

// claim makes the params of a claim: one lease mostly, at times many or the same
// over and over.
func (r *request) claim(d dice) string {
	n := 1
	if d.oneIn(6) {
		n = 1 + d.IntN(30)
	}
	var params []string
	for range n {
		app, unit, seconds := pick(d, applications), strconv.Itoa(d.IntN(2)), "5"
		c := jujuClaim{at: place{leaders, app}, holder: app + "/" + unit}
		if d.oneIn(10) {
			c.invalid = true
			seconds = pick(d, []string{"0", "-1", "4.9", "301", "1e300", "-1e-300"})
		}
		if d.oneIn(20) {
			c.invalid = true
			unit = pick(d, []string{"", "x", "-1", "01", "99999999999999999999"})
		}
		params = append(params, fmt.Sprintf(`{"application-tag":"application-%s","unit-tag":"unit-%s-%s","duration":%s}`, app, app, unit, seconds))
		r.claims = append(r.claims, c)
	}
	return `{"params":[` + strings.Join(params, ",") + `]}`
}

// read takes replies until the connection ends.
func (a *agent) read() {
	for {
		b, _, err := wsutil.ReadServerData(a.conn)
		if err != nil {
			break
		}
		var reply jujuReply
		if err := json.Unmarshal(b, &reply); err != nil {
			a.fail("%s sends %q: %v", a.m.Name, b, err)
			break
		}
		a.mu.Lock()
		r := a.waiting[reply.ID]
		delete(a.waiting, reply.ID)
		a.mu.Unlock()
		if r == nil {
			a.fail("%s replies to %d, which was not asked or was answered: %s", a.m.Name, reply.ID, b)
			break
		}
		r.judge(&reply, b)
	}
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
}

// late fails the run if a request has been without a reply for too long: a wait may
// be.
func (a *agent) late() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, r := range a.waiting {
		if !r.blocks && time.Since(r.c.sent) > patience && !a.over && a.m.life() == a.life {
			r.c.fail("no reply to %d in %v", id, patience)
		}
	}
}

// Texts that a claim may be answered with besides success. None is transient.
var jujuDenials = []string{"leadership claim denied", "lease claim denied"}

func (r *request) judge(reply *jujuReply, raw []byte) {
	c := r.c
	text := string(raw)
	if len(text) > 500 {
		text = text[:500]
	}
	if strings.Contains(text, "internal") || strings.Contains(text, "corrupt") {
		c.fail("reply %s", text)
	}
	switch {
	case r.spoilt:
		if reply.Error == "" && (reply.Response == nil || reply.Response.Error == nil) {
			c.fail("what cannot be done was done: %s", text)
		}
	case r.claims != nil:
		r.judgeClaims(reply, text)
	case r.blocks && reply.Error == "" && reply.Response != nil && reply.Response.Error == nil:
		// Of which holding it was told the end is not said: a member waits for the one
		// that it knows of, and that may be over when the wait begins.
		c.b.count("juju wait: over")
	}
}

func (r *request) judgeClaims(reply *jujuReply, text string) {
	switch {
	case reply.Code == "try again" && strings.Contains(reply.Error, "too many"):
		return
	case reply.Error != "" || reply.Response == nil || len(reply.Response.Results) != len(r.claims):
		r.c.fail("claim of %d: %s", len(r.claims), text)
		return
	}
	for i, claim := range r.claims {
		e := reply.Response.Results[i].Error
		r.c.b.count("juju claim: " + cmp.Or(e, &jujuError{Message: "granted"}).Message)
		what := fmt.Sprintf("claim of %v for %s", claim.at, claim.holder)
		switch {
		case claim.invalid && e == nil:
			r.c.fail("%s must be refused: %s", what, text)
		case claim.invalid:
		case e == nil:
			r.c.truly(what, claim.at, func(l *pb.Lease) bool { return l.Holder == claim.holder && l.Session == "" })
		case e.Code == jujuDenials[0] || e.Code == jujuDenials[1]:
			r.c.truly(what+": denied", claim.at, func(l *pb.Lease) bool {
				return l.Token != 0 && (l.Holder != claim.holder || l.Session != "" || l.Revoking || l.Offered)
			})
		case claim.at.scope == singular && e.Message == "permission denied": // no controller
		default:
			r.c.fail("%s: %s %s", what, e.Code, e.Message)
		}
	}
}
