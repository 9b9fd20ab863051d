package native

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/workqueue"
)

func newLanes(tb testing.TB) *admit.Controller {
	tb.Helper()
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return lanes
}

// Who calls over HTTP/2 and resets the stream at once has left a command behind: it takes
// its place until its outcome is there, once, and so it does when the call was answered.
func TestG40_WhoGoesLeavesNoPlaceFree(t *testing.T) {
	lanes := newLanes(t)
	m := newPets(t, func(c *Config) { c.Admission = lanes })
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(client.CloseIdleConnections)
	post := func(ctx context.Context, method, body string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+"/incumbent.v1."+method, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
			t.Errorf("%s: %s, HTTP %d", method, resp.Status, resp.ProtoMajor)
		}
		return nil
	}
	for _, c := range []struct {
		method, body string
		lane         admit.Lane
		cost         int64
	}{
		{"KeyValueService/Put", `{"key": "a", "value": "eA=="}`, admit.Small, 1},
		{"LeaseService/Claim", `{"name": {"name": "x"}, "holder": "h", "ttl_ms": 5000}`, admit.Claims, 1},
		{"LeaseService/Batch", `{"operations": [{"claim": {"name": {"name": "y"}, "holder": "h", "ttl_ms": 5000}}, {"claim": {"name": {"name": "z"}, "holder": "h", "ttl_ms": 5000}}]}`, admit.Claims, 2},
		{"TransactionService/Txn", `{"then": [{"put": {"key": "b", "value": "eA=="}}]}`, admit.Transactions, 1},
		{"CatalogService/Register", `{"node": {"name": "n", "address": "10.0.0.1"}}`, admit.Claims, 1},
		{"TableService/Transact", `{"database": "Pets", "operations": "[{\"op\": \"insert\", \"table\": \"Pet\", \"row\": {\"name\": \"a\"}}]"}`, admit.Transactions, 1},
	} {
		under := func() int64 { return lanes.Stats()[c.lane].Inflight }
		before := m.group.Proposed()
		m.group.Hold()
		ctx, reset := context.WithCancel(t.Context())
		called := make(chan error, 1)
		go func() { called <- post(ctx, c.method, c.body) }()
		eventually(t, c.method+" is handed on", func() bool { return m.group.Proposed() > before })
		reset()
		if err := <-called; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", c.method, err)
		}
		eventually(t, c.method+" has returned", func() bool { return m.door.Stats().Calls == 0 })
		if n := under(); n != c.cost {
			t.Errorf("%s: while its outcome is not known, %d are under way, want %d", c.method, n, c.cost)
		}
		m.group.Release()
		eventually(t, c.method+" is under way no longer", func() bool { return under() == 0 })
		if c.lane == admit.Small {
			if err := post(t.Context(), c.method, c.body); err != nil {
				t.Error(err)
			}
			eventually(t, c.method+" has returned", func() bool { return m.door.Stats().Calls == 0 })
			if n := under(); n != 0 {
				t.Errorf("%s: after its answer %d are under way", c.method, n)
			}
		}
	}
}

// slowLeases answers nothing before it is told to.
type slowLeases struct {
	Leases
	answer func()
}

func (s *slowLeases) Extend(b *lease.Batch)        { s.answer = func() { b.Done(b) } }
func (s *slowLeases) Inspect(q *lease.Inspection)  { s.answer = func() { q.Done(q) } }
func (s *slowLeases) confirm(done func(err error)) { s.answer = func() { done(nil) } }

// Whatever a call waits for, its place is that one's until it has come, and the call's
// until it has returned, whichever is later.
func TestG40_APlaceIsLeftByTheLastWhoIsDone(t *testing.T) {
	for name, wait := range map[string]func(context.Context, *Door, *slowLeases) error{
		"a command": func(ctx context.Context, _ *Door, s *slowLeases) error {
			_, err := outcomeOf(ctx, "key", func(done func(core.Result)) { s.answer = func() { done(core.Result{}) } })
			return err
		},
		"a confirmation": func(ctx context.Context, d *Door, _ *slowLeases) error { return d.confirmed(ctx) },
		"extensions": func(ctx context.Context, d *Door, _ *slowLeases) error {
			return d.runExtensions(ctx, &lease.Batch{Items: make([]lease.Extension, 1)})
		},
		"what the leader knows": func(ctx context.Context, d *Door, _ *slowLeases) error {
			f := &former{d: d}
			f.ask(lease.Inspected{}, &pb.Lease{}, nil)
			return f.filled(ctx)
		},
		"extensions in bulk": func(ctx context.Context, d *Door, _ *slowLeases) error {
			b := &bulk{d: d, ctx: ctx, results: make([]*pb.OperationResult, 1), got: make(chan func(), 1)}
			b.start(0, &step{})
			b.flush()
			b.settle()
			return context.Cause(ctx)
		},
	} {
		lanes, slow := newLanes(t), &slowLeases{}
		d := &Door{leases: slow, confirm: slow.confirm, now: time.Now, lanes: admit.Clocked{Controller: lanes, Now: func() int64 { return 1 }}}
		d.work = workqueue.New[func()]()
		go workqueue.Run(d.work)
		t.Cleanup(d.work.Close)
		who := &caller{principal: admin, control: &callControl{}}
		ctx, gone := context.WithCancel(context.WithValue(t.Context(), callerKey{}, who))
		done, err := d.admit(ctx, admit.Reads, 3)
		if err != nil {
			t.Fatal(err)
		}
		under := func(when string, want int64) {
			t.Helper()
			if n := lanes.Stats()[admit.Reads].Inflight; n != want {
				t.Errorf("%s, %s: %d under way, want %d", name, when, n, want)
			}
		}
		gone()
		if err := wait(ctx, d, slow); err == nil {
			t.Errorf("%s: nobody has answered", name)
		}
		first := slow.answer
		if err := wait(ctx, d, slow); err == nil {
			t.Errorf("%s: nobody has answered", name)
		}
		first()
		under("while the call lasts", 3)
		done()
		under("while one waits for its answer", 3)
		slow.answer()
		eventually(t, name+" is over", func() bool { return lanes.Stats()[admit.Reads].Inflight == 0 })
		if placeOf(ctx) != nil {
			t.Errorf("%s: a call that has left its place has one", name)
		}
	}
}
