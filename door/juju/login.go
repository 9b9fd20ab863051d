package juju

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/websocket"
)

// serverVersion is the version of Juju that clients are told they speak to.
const serverVersion = "2.9.52"

const (
	adminFacade  = "Admin"
	adminVersion = 3
	loginMethod  = "Login"
)

// agent is who has logged in.
type agent struct {
	tag         string
	application string // of a unit or an application, else ""
	model       string // UUID
	address     string
	grants      auth.Grant
	principal   auth.Principal
	places      [2]tally.Place // the connection's, of the agent and of its address
}

// work says for whom work is done: the agent, of its model.
func (a *agent) work() admit.Who {
	return admit.Who{Client: admit.KeyOf(a.tag + a.model), Group: admit.KeyOf(a.model)}
}

// count takes the agent's places among the connections of itself and of its address. The
// error is TooLarge.
func (a *agent) count(t *tally.Tally, from netip.Addr) (err error) {
	if a.places[0], err = t.Take(settings.OpenAgents, a.principal, "model "+a.model); err != nil {
		return err
	}
	if a.places[1], err = t.TakeFrom(settings.OpenAgentsOfOne, from); err != nil {
		a.giveBack()
	}
	return err
}

// giveBack gives them back: the connection has ended.
func (a *agent) giveBack() {
	for i := range a.places {
		a.places[i].Give()
	}
}

// newAgent returns who a tag is.
func newAgent(tag, model, address string, pass auth.Pass) *agent {
	a := &agent{tag: tag, model: model, address: address, grants: pass.Grants}
	a.principal = auth.Principal{Name: tag, Kind: auth.Agent, Via: auth.Password, Proof: pass.Proof}
	if unit, application, ok := unitOf(tag); ok {
		a.application, a.principal.Name = application, unit
	} else if application, ok := applicationOf(tag); ok {
		a.application, a.principal.Name = application, application
	}
	return a
}

// mayClaim reports whether the agent may claim an application's leadership for a
// unit: itself, one of its application if it is the application's agent, or any if
// that was granted.
func (c *conn) mayClaim(application, unit string) bool {
	switch a := c.who; {
	case a.grants.Has(auth.ClaimAny):
		return c.allowed(calls.JujuClaim, nameOf(a.model, application), a.principal.Name)
	case a.application == "":
		return false
	}
	return c.allowed(calls.JujuClaim, nameOf(c.who.model, application), unit)
}

// mayFollow reports whether the agent may make a call about an application that is
// its own, or any if that was granted: wait for its leadership, pin it, see its pins.
func (c *conn) mayFollow(to calls.Call, application string) bool {
	a := c.who
	return (a.grants.Has(auth.ClaimAny) || a.application == application) && c.allowed(to, nameOf(a.model, application), a.principal.Name)
}

// allowed asks the one decision of all doors: within this door's namespaces it is
// what the door says, unless the policy of its name stands in the place of that.
func (c *conn) allowed(to calls.Call, name incumbent.Name, holder string) bool {
	rules := policy.Of(c.door.view()).Rules()
	g := c.rights.Load()
	if g == nil || !g.Under(rules) {
		g = rules.Of(c.who.principal)
		c.rights.Store(g)
	}
	return auth.Authorize(g, to.Action(), auth.Resource{Name: name, Holder: holder, Door: doorName}) == nil
}

// login lets the client log in. who is nil if it did not.
func (g *greeting) login() (who *agent, outcome login) {
	read := websocket.Reader{Op: ws.OpText, Limit: g.door.limits.Load().MaxMessageBytes}
	outcome = loginGone
	for g.logins < MaxLogins {
		m, err := g.in.next(read)
		if bad := isProtocol(err); bad != nil {
			g.say(websocket.Close(bad.Code, bad.Reason))
			return nil, loginMalformed
		}
		if err != nil {
			return nil, outcome
		}
		for i := range m.Controls {
			g.control(&m.Controls[i])
		}
		switch m.Op {
		case ws.OpText:
			if who, outcome = g.attempt(m.Payload); who != nil || outcome == loginMalformed || outcome == loginGone {
				return who, outcome
			}
		case ws.OpClose:
			g.say(websocket.CloseReply(m.Payload))
			return nil, outcome
		default:
			g.control(&m)
		}
	}
	g.say(websocket.Close(ws.StatusPolicyViolation, "too many attempts to log in"))
	return nil, outcome
}

func (g *greeting) control(m *websocket.Message) {
	if m.Op == ws.OpPing {
		g.say(websocket.Frame(ws.OpPong, m.Payload))
	}
}

// say writes; if the client is gone, the next read says so.
func (g *greeting) say(b []byte) { _, _ = g.conn.Write(b) }

// attempt serves one request of somebody who has not logged in.
func (g *greeting) attempt(payload []byte) (*agent, login) {
	g.logins++
	r, ok := decodeRequest(payload)
	if !ok {
		g.say(websocket.Close(ws.StatusPolicyViolation, "message is not a request"))
		return nil, loginMalformed
	}
	if r.Facade != adminFacade || r.Method != loginMethod {
		return nil, g.refuseLogin(r.ID, errNotLoggedIn, loginMalformedRequest)
	}
	if r.Version != 0 && r.Version != adminVersion {
		return nil, g.refuseLogin(r.ID, unknownVersion(adminFacade, r.Version), loginMalformedRequest)
	}
	var p loginParams
	if f := decodeParams(&r, &p); f != nil {
		return nil, g.refuseLogin(r.ID, f, loginMalformedRequest)
	}
	if !isAgent(p.Tag) || strings.ContainsRune(p.Credentials, 0) {
		g.denied(p.Tag)
		return nil, g.refuseLogin(r.ID, errLogin, loginDenied)
	}
	ctx, done := context.WithDeadline(g.door.logins, g.until)
	pass, err := g.door.passwords.Verify(ctx, g.model, p.Tag, p.Credentials, g.from())
	done()
	switch incumbent.KindOf(err) {
	case incumbent.OK:
	case incumbent.Denied:
		g.denied(p.Tag)
		return nil, g.refuseLogin(r.ID, errLogin, loginDenied)
	default:
		return nil, g.refuseLogin(r.ID, errTryAgain, loginShed) // too many guesses, or more than can be checked: whoever comes next does so more slowly
	}
	gate.VisitOf(g.conn).Proved()
	who := newAgent(p.Tag, g.model, addressOf(g.conn), pass)
	if err := who.count(g.door.tally, g.from()); err != nil {
		return nil, g.refuseLogin(r.ID, &failure{tryAgain, asError(err).Message}, loginQuota)
	}
	if _, err := g.conn.Write(g.welcome(r.ID, who)); err != nil { // its time was over when it had been checked
		who.giveBack()
		g.conn.NetConn().Close() // behind a record that was not written nothing can be read
		return nil, loginGone
	}
	return who, loginOK
}

func (g *greeting) refuseLogin(id uint64, f *failure, outcome login) login {
	g.door.counts.tell(loginFacade, f)
	g.say(replyError(id, f))
	return outcome
}

// welcome is the reply to a login.
func (g *greeting) welcome(id uint64, who *agent) []byte {
	b := append(replyStart(id, 512), `,"response":{`...)
	if g.named {
		b = appendString(append(b, `"model-tag":`...), modelKind+who.model)
		b = append(b, ',')
	}
	b = appendString(append(b, `"controller-tag":`...), controllerKind+g.door.controller)
	b = appendString(append(b, `,"server-version":`...), serverVersion)
	b = append(b, `,"facades":[`...)
	for i, f := range facadesFor(who) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"name":`...), f.name)
		b = append(b, `,"versions":[`...)
		b = append(b, byte('0'+f.version))
		b = append(b, "]}"...)
	}
	return replyEnd(append(b, "]}"...))
}

// park hands the connection over to those who keep it while it is idle.
func (g *greeting) park(who *agent) (login, bool) {
	d := g.door
	_ = g.conn.SetDeadline(time.Time{}) // parked connections have their own
	c := &conn{door: d, who: who}
	d.conns.Add(c)
	parked, err := d.park.Park(g.conn, g.in.rest(), c)
	if err != nil { // the connection has been closed
		d.conns.Remove(c)
		who.giveBack()
		return loginGone, false
	}
	c.parked.CompareAndSwap(nil, parked)
	parked.SetIdleTimeout(d.limits.Load().Silence)
	if d.pending.IsClosed() || !d.knows(who) {
		c.goAway() // Drain or Recheck may have missed it
	}
	return loginOK, true
}
