package lease

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// TestTranscripts plays the files of testdata/transcripts. A line of input is a step; what
// is answered or happens meanwhile stands below, with the virtual time where it
// has moved. Answers that come later stand where they come.
//
//	lead | follow [leader=N] | advance D | auto | manual | confirm [fail] | pass | apply [reverse]
//	open S [ttl=D] | close S | claim NAME HOLDER [ttl=D] [session=S] [wait] [key=K] [within=D]
//	release NAME [holder=H] [session=S] [token=N] | revoke NAME [at-deadline] | transfer NAME HOLDER to=S [as=H]
//	pin NAME E | unpin NAME E | leave NAME S | extend WHAT… (token, session S, or name:holder; /D: ttl)
//	attach S COUNTER | detach S COUNTER | inspect WHAT… | show
//
// @NAME is the last token of a lease.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		p := &player{world: newWorld(t, Config{})}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.t = t
			for line := range strings.Lines(d.Input) {
				p.play(strings.Fields(p.tokens(line)))
			}
			out := strings.Join(p.said, "\n")
			p.said = nil
			if out == "" {
				return "ok\n"
			}
			return out + "\n"
		})
	})
}

type player struct{ *world }

func (p *player) play(f []string) {
	p.t.Helper()
	if len(f) == 0 {
		return
	}
	arg := arguments(f[1:])
	switch f[0] {
	case "lead":
		p.lead()
	case "follow":
		leader, _ := strconv.ParseUint(arg.get("leader"), 10, 64)
		p.follow(leader)
	case "advance":
		p.advance(p.duration(f[1]))
	case "auto", "manual":
		p.auto = f[0] == "auto"
		p.turn(nil)
	case "confirm":
		var err error
		if len(f) > 1 {
			err = incumbent.Errorf(incumbent.Unavailable, "no quorum")
		}
		p.confirm(err)
	case "pass":
		p.pass()
	case "apply":
		p.apply()
	case "attach", "detach":
		p.attachment(f)
	case "extend":
		p.extension(f[1:])
	case "inspect":
		p.inspect(f[1:])
	case "show":
		p.sayf("%d proposed, %d confirmations and %d barriers asked for", len(p.log), len(p.confirms), len(p.barriers))
	default:
		p.command(f, arg)
	}
}

// tokens puts numbers where @NAME stands.
func (p *player) tokens(line string) string {
	for field := range strings.FieldsSeq(line) {
		for word := range strings.FieldsFuncSeq(field, func(r rune) bool { return r == '=' || r == '/' }) {
			if name, ok := strings.CutPrefix(word, "@"); ok {
				line = strings.Replace(line, word, p.lease(name).LastToken.String(), 1)
			}
		}
	}
	return line
}

func (p *player) command(f []string, arg args) {
	p.t.Helper()
	c := Call{}
	if k := arg.get("key"); k != "" {
		c.KeyID = []byte(k)
	}
	cmd := p.parse(f, arg)
	q, err := newCall(c, cmd, func(r core.Result) { p.sayf("%s: %s", strings.Join(f, " "), outcome(r)) })
	if err != nil {
		p.sayf("%s: %v", strings.Join(f, " "), err)
		return
	}
	if d := arg.get("within"); d != "" {
		q.deadline = p.now + int64(p.duration(d))
	}
	p.turn(func() { p.e.Submit(q) })
}

func (p *player) parse(f []string, arg args) core.Command {
	p.t.Helper()
	name := leaseName(f[1])
	ttl := p.duration(arg.get("ttl"))
	session := p.session(arg.get("session"))
	token, _ := strconv.ParseUint(arg.get("token"), 10, 64)
	switch f[0] {
	case "open":
		return core.OpenSessionCommand{ID: p.session(f[1]), TTL: ttl}
	case "close":
		return core.CloseSessionCommand{ID: p.session(f[1]), Reason: "asked"}
	case "claim":
		return leases.ClaimCommand{Name: name, Holder: f[2], TTL: ttl, Session: session, Wait: arg.has("wait")}
	case "release":
		return leases.ReleaseCommand{Name: name, Holder: arg.get("holder"), Session: session, Token: incumbent.Token(token)}
	case "revoke":
		return leases.RevokeCommand{Name: name, By: "operator", AtDeadline: arg.has("at-deadline")}
	case "transfer":
		return leases.TransferCommand{
			Name: name, Holder: f[2], Session: session, ToSession: p.session(arg.get("to")), ToHolder: arg.get("as"),
		}
	case "pin":
		return leases.PinCommand{Name: name, Entity: f[2]}
	case "unpin":
		return leases.UnpinCommand{Name: name, Entity: f[2]}
	case "leave":
		return leases.LeaveQueueCommand{Name: name, Session: p.session(f[2])}
	}
	p.t.Fatalf("no such step: %v", f)
	return nil
}

func outcome(r core.Result) string {
	var b strings.Builder
	switch {
	case r.Err != nil:
		fmt.Fprintf(&b, "%v", r.Err.Kind)
	case leases.AnswerOf(r).Granted:
		fmt.Fprintf(&b, "granted token %d", leases.AnswerOf(r).Lease.Token)
	case leases.AnswerOf(r).Queued:
		fmt.Fprintf(&b, "queued, position %d", leases.AnswerOf(r).Position)
	default:
		fmt.Fprint(&b, "ok")
	}
	if r.Replayed {
		fmt.Fprint(&b, " (replayed)")
	}
	return b.String()
}

// extension parses "12", "s1", "name:holder", each with "/ttl".
func (p *player) extension(what []string) {
	p.t.Helper()
	items := make([]Extension, 0, len(what))
	for _, f := range what {
		f, ttl, _ := strings.Cut(f, "/")
		x := Extension{TTL: p.duration(ttl)}
		if name, holder, ok := strings.Cut(f, ":"); ok {
			x.Named = &Named{leaseName(name), holder}
		} else if token, err := strconv.ParseUint(f, 10, 64); err == nil {
			x.Token = incumbent.Token(token)
		} else {
			x.Session = p.session(f)
		}
		items = append(items, x)
	}
	b := &Batch{Items: items, Done: func(b *Batch) {
		for i := range b.Items {
			it := &b.Items[i]
			switch {
			case it.Kind != incumbent.OK:
				p.sayf("extend %s: %v", what[i], it.Kind)
			case it.Revoking:
				p.sayf("extend %s: held %v, revoking %v", what[i], it.Held, it.RevokingTokens)
			default:
				p.sayf("extend %s: held %v", what[i], it.Held)
			}
		}
	}}
	p.turn(func() { p.e.Extend(b) })
}

func (p *player) attachment(f []string) {
	p.t.Helper()
	id := p.session(f[1])
	counter, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	if f[0] == "detach" {
		p.turn(func() { p.e.Detach(id, counter) })
		return
	}
	a := &attach{
		Attachment: Attachment{id, counter, func(reason string) { p.sayf("%s %d lost: %s", f[1], counter, reason) }},
		done:       func(r core.Result) { p.sayf("%s: %s", strings.Join(f, " "), outcome(r)) },
	}
	p.turn(func() { p.e.Attach(a) })
}

func (p *player) inspect(what []string) {
	p.t.Helper()
	q := &Inspection{}
	for _, f := range what {
		if token, err := strconv.ParseUint(f, 10, 64); err == nil {
			q.Items = append(q.Items, Inspected{Token: incumbent.Token(token)})
		} else {
			q.Items = append(q.Items, Inspected{Session: p.session(f)})
		}
	}
	q.Done = func(q *Inspection) {
		for i, it := range q.Items {
			switch {
			case !it.Known:
				p.sayf("%s: unknown", what[i])
			case !it.Running:
				p.sayf("%s: does not run, %d extensions, attached %v", what[i], it.Extends, it.Attached)
			case it.LastExtend < 0:
				p.sayf("%s: expires in %v, never extended, attached %v", what[i], it.ExpiresIn, it.Attached)
			default:
				p.sayf("%s: expires in %v, %d extensions, last %v ago, attached %v", what[i], it.ExpiresIn, it.Extends, it.LastExtend, it.Attached)
			}
		}
	}
	p.turn(func() { p.e.Inspect(q) })
}

func (p *player) session(s string) incumbent.SessionID {
	if s == "" {
		return incumbent.SessionID{}
	}
	n, err := strconv.Atoi(strings.TrimPrefix(s, "s"))
	if err != nil {
		p.t.Fatalf("session %q", s)
	}
	return sessionID(n)
}

func (p *player) duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// sayf puts the time in front where it has moved since the last word.
func (w *world) sayf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if w.via != nil {
		w.via.c.sayf("%d: %s", w.via.id, line)
		return
	}
	if w.now != w.saidAt {
		line = fmt.Sprintf("[%v] %s", time.Duration(w.now), line)
		w.saidAt = w.now
	}
	w.said = append(w.said, line)
}

type args []string

func arguments(f []string) args { return f }

func (a args) get(key string) string {
	for _, s := range a {
		if v, ok := strings.CutPrefix(s, key+"="); ok {
			return v
		}
	}
	return ""
}

func (a args) has(word string) bool {
	for _, s := range a {
		if s == word {
			return true
		}
	}
	return false
}
