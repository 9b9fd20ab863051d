// Agent is what an agent of a control plane needs, and no more: it says that it is
// alive, follows what it has to know, and begins again by one message when its process
// or a member was restarted, without reading again what has not changed.
//
//	incumbent server --dev
//	go run ./examples/agent --add 3                      # three units of mysql, in one transaction
//	go run ./examples/agent --unit 0 --state /tmp/agent  # the agent of one
//	incumbent kv put app/mysql '{"charm":{"url":"ch:mysql-2"}}'
//	incumbent presence ls
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// ttl is how long an agent may be silent before it is called down.
const ttl = 30 * time.Second

func main() {
	servers := flag.String("server", "http://127.0.0.1:7600", "URLs of members, joined by commas")
	app := flag.String("app", "mysql", "application")
	add := flag.Int("add", 0, "add so many units, and the application if it is not there")
	unit := flag.Int("unit", 0, "unit to be the agent of")
	state := flag.String("state", "", "file in which the agent keeps its session's id")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	c, err := client.New(client.Config{Servers: strings.Split(*servers, ","), Spread: true})
	switch {
	case err != nil:
	case *add > 0:
		err = addUnits(ctx, c, *app, *add)
	default:
		err = newAgent(c, *app, *unit, *state, os.Stdout).run(ctx)
	}
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// Keys: what an application is, which units it has, and what each is related to.

func appKey(app string) string { return "app/" + app }

func unitsOf(app string) string { return "units/" + app + "/" }

func unitKey(app string, unit int) string { return fmt.Sprintf("%s%06d", unitsOf(app), unit) }

func relationsOf(app string, unit int) string { return fmt.Sprintf("relations/%s/%06d/", app, unit) }

// addUnits adds n units in one transaction, numbered behind those that are there. If
// somebody else adds some meanwhile, nothing happens, and it begins anew.
func addUnits(ctx context.Context, c *client.Client, app string, n int) error {
	keys := c.KV("")
	for {
		first, err := nextUnit(ctx, keys, app)
		if err != nil {
			return err
		}
		t := c.Txn("")
		if _, err := keys.Get(ctx, appKey(app)); incumbent.KindOf(err) == incumbent.NotFound {
			t.Put(appKey(app), fmt.Appendf(nil, `{"charm":{"url":"ch:%s-1"}}`, app), client.IfIndex(0))
		}
		for i := first; i < first+n; i++ {
			t.Put(unitKey(app, i), []byte(`{"status":"waiting"}`), client.IfIndex(0)).Expect(fmt.Sprintf("%s/%06d", app, i))
		}
		if _, err = t.Commit(ctx); incumbent.KindOf(err) != incumbent.Conflict {
			return err
		}
		select {
		case <-time.After(pause(err)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nextUnit is the number behind those of all units that have a key or are listed: one that
// is forgotten may have the other.
func nextUnit(ctx context.Context, keys *client.KV, app string) (next int, err error) {
	count := func(unit string) {
		number := -1 // other names count as none
		_, _ = fmt.Sscanf(unit, "%d", &number)
		next = max(next, number+1)
	}
	err = keys.List(ctx, &apiv1.ListKeysRequest{Prefix: unitsOf(app), KeysOnly: true}, func(page *apiv1.ListKeysResponse) error {
		for _, e := range page.Entries {
			count(strings.TrimPrefix(e.Key, unitsOf(app)))
		}
		return nil
	})
	for page := ""; err == nil; {
		var list []client.Present
		list, page, err = keys.ListPresent(ctx, app+"/", page, 10_000)
		for _, p := range list {
			count(strings.TrimPrefix(p.Name, app+"/"))
		}
		if page == "" {
			break
		}
	}
	return next, err
}

// agent is the agent of one unit.
type agent struct {
	c     *client.Client
	app   string
	unit  int
	state string // file; "": none
	out   io.Writer

	// What it follows. Caches outlive sessions: what they have is not read again.
	charm, units, relations *client.KeyCache
	url                     string // of the charm that it runs
	misread                 uint64 // index of what the application was told to be, but cannot
}

func newAgent(c *client.Client, app string, unit int, state string, out io.Writer) *agent {
	return &agent{
		c: c, app: app, unit: unit, state: state, out: out,
		// A field of a value, so that nothing else of the application wakes it.
		charm: client.NewKeyCache("", client.WatchKeysOptions{Key: appKey(app), Fields: []string{"value/charm/url"}}),
		// Which units there are, and not how each of them is.
		units:     client.NewKeyCache("", client.WatchKeysOptions{Key: unitsOf(app), Prefix: true, Fields: []string{"membership"}}),
		relations: client.NewKeyCache("", client.WatchKeysOptions{Key: relationsOf(app, unit), Prefix: true}),
	}
}

// run is the agent's life: a session after the other, should one be lost. It ends with ctx,
// or once another run of the agent has its session.
func (a *agent) run(ctx context.Context) error {
	id, err := a.sessionID()
	if err != nil {
		return err
	}
	for {
		// Session, presence and all that is followed are one message; so they are
		// whenever the stream broke and another member is asked.
		session, err := a.c.Open(ctx, client.SessionConfig{
			ID: id, TTL: ttl,
			Presence: client.Presence{Name: fmt.Sprintf("%s/%06d", a.app, a.unit)},
			Follow:   []client.Following{a.charm, a.units, a.relations},
		})
		if err != nil {
			return err
		}
		err = a.work(ctx, session)
		switch {
		case ctx.Err() != nil:
			session.Detach() // it is resumed by the next run, within its ttl
			return ctx.Err()
		case client.Taken(context.Cause(session.Context())):
			// Another run of this agent has it: to open it again would take it from that
			// one, which would do the same.
			return context.Cause(session.Context())
		case session.Context().Err() != nil:
			// Nobody heard of this agent for a whole ttl. What was under way over the
			// session failed with it, and is done again over the next.
		case err != nil:
			session.Detach()
			return err
		}
	}
}

// work does what is to be done until the session ends.
func (a *agent) work(ctx context.Context, session *client.Session) error {
	known, related := 0, map[string]bool{}
	var again <-chan time.Time // when to go on with what was refused; nil: nothing was
	for {
		charm, units, relations := a.charm.Changed(), a.units.Changed(), a.relations.Changed()
		if err := errors.Join(a.charm.Err(), a.units.Err(), a.relations.Err()); err != nil {
			return err
		}
		if again == nil {
			var err error
			if again, err = a.upgrade(ctx, session); err != nil {
				return err
			}
		}
		if n := len(a.units.Entries()); n != known {
			known = n
			fmt.Fprintf(a.out, "%s/%d: %d units\n", a.app, a.unit, n)
		}
		for _, e := range a.relations.Entries() {
			if !related[e.Key] {
				related[e.Key] = true
				fmt.Fprintf(a.out, "%s/%d: related to %s\n", a.app, a.unit, strings.TrimPrefix(e.Key, relationsOf(a.app, a.unit)))
			}
		}
		select {
		case <-charm:
		case <-units:
		case <-relations:
		case <-again:
			again = nil
		case <-session.Context().Done():
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// upgrade runs the charm that the application has, and says so. What is refused for now, or
// of which nobody knows whether it took effect, is done again when again says so: storing the
// same twice is the same as once.
func (a *agent) upgrade(ctx context.Context, session *client.Session) (again <-chan time.Time, err error) {
	entry := a.charm.Get(appKey(a.app))
	if entry == nil {
		return nil, nil
	}
	var app struct{ Charm struct{ URL string } }
	if err := json.Unmarshal(entry.Value, &app); err != nil {
		if a.misread != entry.ModifiedIndex { // one slip of an operator does not end all agents
			a.misread = entry.ModifiedIndex
			fmt.Fprintf(a.out, "%s/%d: %s is no JSON, still runs %s: %v\n", a.app, a.unit, entry.Key, a.url, err)
		}
		return nil, nil
	}
	url := app.Charm.URL
	if url == a.url {
		return nil, nil
	}
	fmt.Fprintf(a.out, "%s/%d: runs %s\n", a.app, a.unit, url)
	// Over the session's own stream: no call, no connection besides.
	_, err = session.KV("").Put(ctx, unitKey(a.app, a.unit), fmt.Appendf(nil, `{"status":"active","charm":%q}`, url))
	if err == nil {
		a.url = url
	}
	if k := incumbent.KindOf(err); k.Transient() || k == incumbent.Unknown || k == incumbent.DeadlineExceeded {
		return time.After(pause(err)), nil
	}
	return nil, err
}

// pause is how long to wait after a refusal or a conflict: a second, or as long as the member asked for if
// that is longer, and up to half as long again, for others were refused as well.
func pause(err error) time.Duration {
	d := time.Second
	var refused *incumbent.Error
	if errors.As(err, &refused) {
		d = max(d, refused.RetryAfter)
	}
	return d + rand.N(d/2)
}

// sessionID is that of the run before, or a new one.
func (a *agent) sessionID() (incumbent.SessionID, error) {
	if a.state == "" {
		return incumbent.NewSessionID(), nil
	}
	text, err := os.ReadFile(a.state)
	if err == nil {
		return incumbent.ParseSessionID(strings.TrimSpace(string(text)))
	}
	id := incumbent.NewSessionID()
	if !errors.Is(err, os.ErrNotExist) {
		return id, err
	}
	unfinished := a.state + ".new" // whatever happens, the file has a whole id or is not there
	if err := os.WriteFile(unfinished, []byte(id.String()+"\n"), 0o600); err != nil {
		return id, err
	}
	return id, os.Rename(unfinished, a.state)
}
