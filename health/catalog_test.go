package health

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
)

// ledger is a log in which a test says when what is reported comes.
type ledger struct {
	t       *testing.T
	state   *core.State
	feed    Feed
	reports chan report
}

// report is one that is not in the log yet.
type report struct {
	command core.Command
	done    func(error)
}

// write writes a command that somebody asks for, and has the runner know what it did.
func (l *ledger) write(c core.Command, who string) *incumbent.Error {
	results := make([]core.Result, 1)
	changes := l.state.Apply([][]byte{c.Encode(core.Meta{Origin: core.Origin{Principal: who}})}, results)
	l.feed.Applied(&engine.Applied{Changes: changes, View: l.state.View()})
	return results[0].Err
}

// register registers a service with a check of it.
func (l *ledger) register(d Definition, tags ...string) {
	l.t.Helper()
	if err := l.write(catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "n"}, Node: &catalog.Node{Address: "10.0.0.1"},
		Service: &catalog.Service{ID: "w", Name: "web", Tags: tags, Weights: catalog.Weights{Passing: 1, Warning: 1}},
		Checks:  []*catalog.Check{{ID: "c", Name: "http", ServiceID: "w", Runner: 1, Definition: d.Encode()}},
	}, "agent:a"); err != nil {
		l.t.Fatal(err)
	}
}

// report writes the next report.
func (l *ledger) report() *incumbent.Error {
	l.t.Helper()
	select {
	case r := <-l.reports:
		err := l.write(r.command, "member")
		if err != nil {
			r.done(err)
		} else {
			r.done(nil)
		}
		return err
	case <-time.After(time.Hour):
		l.t.Fatal("nothing is reported")
		return nil
	}
}

// is fails unless the check is in a status, and what was found there.
func (l *ledger) is(what string, s catalog.Status, output string) {
	l.t.Helper()
	c := catalog.Of(l.state.View()).Check("default", "n", "c")
	if c.Status != s || !strings.Contains(c.Output, output) || output == "" && c.Output != "" || c.Owner != "agent:a" {
		l.t.Errorf("%s: it is %v with %q, and %q's; want %v with %q", what, c.Status, c.Output, c.Owner, s, output)
	}
}

// TestOutcomesOfAnotherDefinition: what was found of a check is not written behind another
// definition of it, though it was reported before. What is found of that one is, and the
// check stays whose it was.
func TestOutcomesOfAnotherDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := newFleet()
		web.is("a:80", "200 OK")
		web.is("b:80", "429 Too Many Requests")
		l := &ledger{t: t, state: engine.NewState(), reports: make(chan report, 1)}
		r, err := New(Config{Self: 1, Dial: web.dial, Report: func(k Key, o Outcome, done func(error)) { l.reports <- report{Update(k, o), done} }})
		if err != nil {
			t.Fatal(err)
		}
		l.feed = Feed{Runner: r, Namespace: "default"}
		l.feed.Begin(l.state.View())
		r.Members([]uint64{1})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		defer func() { stop(); <-ended }()

		l.register(Definition{HTTP: "http://a:80/", Interval: time.Second})
		time.Sleep(time.Minute) // what was found waits to be written
		l.register(Definition{HTTP: "http://b:80/", Interval: time.Second})
		if err := l.report(); err == nil || err.Kind != incumbent.Conflict {
			t.Errorf("an outcome of another definition: %v", err)
		}
		l.is("behind it", catalog.Critical, "")
		if err := l.report(); err != nil {
			t.Error(err)
		}
		l.is("as it is defined now", catalog.Warning, "http://b:80/")

		web.is("b:80", "200 OK")
		time.Sleep(time.Minute)
		l.register(Definition{HTTP: "http://b:80/", Interval: time.Second}, "tag")
		if err := l.report(); err == nil || err.Kind != incumbent.Conflict {
			t.Errorf("an outcome of before something else has changed: %v", err)
		}
		if err := l.report(); err != nil {
			t.Error(err)
		}
		l.is("found again", catalog.Passing, "http://b:80/")
	})
}

// TestWhoWasAwayWritesNothing: an outcome comes with the presence of who found it, and is not
// written once that is over.
func TestWhoWasAwayWritesNothing(t *testing.T) {
	l := &ledger{t: t, state: engine.NewState()}
	l.feed = Feed{Runner: &Runner{kick: make(chan struct{}, 1), news: news{changed: map[Key]*Check{}}}, Namespace: "default"}
	l.register(Definition{HTTP: "http://a:80/", Interval: time.Second})
	found := func(token incumbent.Token) {
		o := Outcome{Status: Passing, Output: "well", of: catalog.Of(l.state.View()).Check("default", "n", "c")}
		_ = l.write(Update(Key{"default", "n", "c"}, o, leases.IfHeld{Name: PresenceLease(1, "default"), Token: token}), "member") // what it did is looked at
	}
	if err := l.write(leases.ClaimCommand{Name: PresenceLease(1, "default"), Holder: "1", TTL: time.Minute}, "member"); err != nil {
		t.Fatal(err)
	}
	token := leases.Of(l.state.View()).Lease(PresenceLease(1, "default")).Token
	found(token + 1)
	l.is("by who was away", catalog.Critical, "")
	found(token)
	l.is("by who is there", catalog.Passing, "well")
}
