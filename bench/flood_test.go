package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// violationsOf is what a run has found.
func violationsOf(r *run) string { return strings.Join(r.check.Texts(), "\n") }

// Who waits for what a silent holder left has to hold it neither before that one's own
// deadline nor later than the ttl and the grace allow.
func TestWhatASilentHolderLeft(t *testing.T) {
	const ttl = 10 * time.Second
	due := dueAfter(ttl)
	for name, c := range map[string]struct {
		after      time.Duration // from the last answer; 0: never
		beaten     time.Duration // a beat is answered then, after the last extension
		unanswered bool          // an extension is under way
		text       string
	}{
		"in time":                     {after: due + 100*time.Millisecond},
		"by a beat":                   {after: due + 3*time.Second, beaten: 2500 * time.Millisecond},
		"early":                       {after: 9 * time.Second, text: "before its holder's own deadline"},
		"late":                        {after: due + lateAllowed + time.Millisecond, text: "after its due time"},
		"late by a beat":              {after: due + 4*time.Second, beaten: time.Second, text: "after its due time"},
		"never":                       {text: "nobody holds 1 of 1 leases"},
		"extended, as far as we know": {after: due + 5*time.Second, unanswered: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(&Scenario{TTL: Duration(ttl)}, Options{})
				r.begun = time.Now()
				f := r.mortals(t.Context())
				defer f.cancel()
				held, waits := &fleetLink{f: f, pending: map[uint64]pending{}}, &fleetLink{f: f, pending: map[uint64]pending{}}
				f.heldBy, f.links = make([]*agent, 1), []*fleetLink{held, waits}
				holder, next := &agent{id: 0, link: held}, &agent{id: 1, link: waits, waits: true}
				held.agents = []*agent{holder}
				f.waiting = 1
				f.every = ttl
				time.Sleep(time.Second)
				f.granted(holder, 1, f.now(), f.now())
				if c.unanswered {
					held.note(pending{what: stepExtend, agent: holder, token: 1}, f.now())
				}
				f.fallSilent(t.Context(), 1, 0)
				if f.perform(planned{what: stepExtend, agent: holder, gen: holder.gen}); holder.owed != 0 || len(held.pending) > 0 != c.unanswered {
					t.Error("a silent holder extends")
				}
				time.Sleep(c.beaten)
				if c.beaten > 0 {
					held.beaten = f.now()
				}
				if c.after > 0 {
					go func() {
						time.Sleep(c.after - c.beaten)
						f.mu.Lock()
						defer f.mu.Unlock()
						f.granted(next, 2, f.now(), f.now())
					}()
				}
				if err := f.judgeSilent(t.Context()); err != nil {
					t.Fatal(err)
				}
				if text := violationsOf(r); (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
					t.Errorf("%q, want %q", text, c.text)
				}
				judged := uint64(1)
				if c.after == 0 || c.unanswered {
					judged = 0
				}
				if got := r.rec.op("silent-freed late").summary().Count; got != judged || f.fell != 1 {
					t.Errorf("%d of %d are judged", got, f.fell)
				}
				f.ended = true
			})
		})
	}
}

// Of a request that is refused for the load nothing is done.
func TestRefusedRegistrationsAreNotDone(t *testing.T) {
	status := http.StatusTooManyRequests
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(srv.Close)
	work := floods["registrations"]
	f := &flood{run: newRun(&Scenario{}, Options{}), floodWork: work, doors: map[int]string{0: strings.TrimPrefix(srv.URL, "http://")}}
	c, err := f.open(t.Context(), f, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	for i, operations := range map[int]int{0: work.batch, 9: 1} {
		status = http.StatusTooManyRequests
		if done, err := c.ask(t.Context(), i); done != 0 || incumbent.KindOf(err) != incumbent.Overloaded {
			t.Errorf("request %d was refused: %d done, %v", i, done, err)
		}
		status = http.StatusOK
		if done, err := c.ask(t.Context(), i); done != operations || err != nil {
			t.Errorf("request %d was answered: %d done, %v", i, done, err)
		}
	}
}

// While it is found out how much is carried, who is refused neither asks again at once nor
// stays away for as long as the servers say, which would leave them with nothing to do.
func TestWhatIsCarriedIsNotWhatIsSleptThrough(t *testing.T) {
	for name, c := range map[string]struct {
		hint   time.Duration
		closed bool // it is not let in
		asked  int
	}{
		"a long hint":  {hint: time.Minute, asked: int(time.Second / closedWait)},
		"a short hint": {hint: 20 * time.Millisecond, asked: 50},
		"not let in":   {closed: true, asked: int(time.Second / closedWait)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				ask := func(context.Context, int) (int, error) {
					asked++
					return 0, &incumbent.Error{Kind: incumbent.Overloaded, RetryAfter: c.hint}
				}
				r := newRun(&Scenario{}, Options{})
				r.begun = time.Now()
				f := &flood{run: r, accepted: r.rec.op("flood"), refused: r.rec.op("flood-refused"), floodWork: &floodWork{batch: 1, open: func(ctx context.Context, _ *flood, _, _ int) (*floodClient, error) {
					if c.closed {
						_, _ = ask(ctx, 0)
						return nil, errors.New("closed")
					}
					return &floodClient{ask: ask}, nil
				}}}
				ctx, stop := context.WithTimeout(t.Context(), time.Second-time.Millisecond)
				defer stop()
				due := make(chan struct{})
				close(due)
				f.client(ctx, nil, 0, 0, due)
				if asked != c.asked {
					t.Errorf("asked %d times in a second, want %d", asked, c.asked)
				}
			})
		})
	}
}

// Each request of a flood of registrations changes all of its instances: one that was refused
// comes again, and the next of the same service has another port.
func TestEachRegistrationChangesSomething(t *testing.T) {
	refuse, ports := true, map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ops []struct {
			Service struct {
				Service struct {
					ID   string
					Port int
				}
			}
		}
		if refuse = !refuse; refuse {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if r.Method == http.MethodGet {
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&ops); err != nil {
			t.Error(err)
			return
		}
		for _, o := range ops[1:] {
			if s := o.Service.Service; s.ID == "" {
				continue // a key
			} else if ports[s.ID] == s.Port {
				t.Errorf("%s has port %d already", s.ID, s.Port)
			} else {
				ports[s.ID] = s.Port
			}
		}
	}))
	t.Cleanup(srv.Close)
	work := floods["registrations"]
	f := &flood{run: newRun(&Scenario{}, Options{}), floodWork: work, action: Action{Times: 5}, doors: map[int]string{0: strings.TrimPrefix(srv.URL, "http://")}}
	c, err := f.open(t.Context(), f, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	for i := range 61 {
		_, _ = c.ask(t.Context(), i)
	}
	if len(ports) != work.batch-1 {
		t.Errorf("%d instances are there", len(ports))
	}
}

// What is encoded once says what it said, and what is set afterwards.
func TestEncodedOnce(t *testing.T) {
	m := &apiv1.TxnRequest{Then: []*apiv1.TxnOperation{
		{Op: &apiv1.TxnOperation_Put{Put: &apiv1.PutRequest{Key: "a", Value: []byte("x")}}},
		{Op: &apiv1.TxnOperation_Get{Get: &apiv1.GetKeyRequest{Key: "b"}}},
	}}
	once := encodedOnce(m)
	for _, key := range []string{"first", "second"} {
		m.Idempotency = &apiv1.Idempotency{Key: []byte(key)}
		once.Idempotency = m.Idempotency
		b, err := proto.Marshal(once)
		if err != nil {
			t.Fatal(err)
		}
		got := &apiv1.TxnRequest{}
		if err := proto.Unmarshal(b, got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%v, %v: want %v", got, err, m)
		}
	}
}

// An operator who is not answered is a violation, and whoever waits for such a call is late.
// The call that is under way when the flood ends counts as all others do.
func TestAnOperatorIsAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		takes           time.Duration
		answers, failed int
	}{
		"at once":               {0, 21, 0},
		"slowly":                {2 * time.Second, 6, 0},
		"after the flood's end": {5 * time.Second, 3, 0},
		"never":                 {time.Hour, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flood{run: newRun(&Scenario{}, Options{})}
				f.begun = time.Now()
				ctx, stop := context.WithTimeout(t.Context(), 21*operatorEvery+operatorEvery/2)
				defer stop()
				f.operate(ctx, []int{0}, []operatorCall{func(ctx context.Context, _ int) error { return sleep(ctx, c.takes) }})
				s := f.rec.op("operator").summary()
				if s.Count != uint64(c.answers) {
					t.Errorf("%d were answered, want %d", s.Count, c.answers)
				}
				if c.takes > time.Second && c.answers > 0 && s.Max < 2*float64(c.takes.Milliseconds()) {
					t.Errorf("the slowest took %v ms, the one that waited for it among them", s.Max)
				}
				if s.Errors != uint64(c.failed) {
					t.Errorf("%d failed, want %d", s.Errors, c.failed)
				}
				if got := violationsOf(f.run); strings.Count(got, "an operator's call 0 failed in a flood") != c.failed || (got == "") != (c.failed == 0) {
					t.Errorf("%q, want %d that failed", got, c.failed)
				}
			})
		})
	}
}

// What is carried is found out in the second half of a flood, or in all of one that began so late
// that it had none.
func TestWhatIsCarriedIsThatOfTheSecondHalf(t *testing.T) {
	for name, c := range map[string]struct {
		times float64
		half  time.Duration
		want  float64
	}{
		"whole":           {half: 105 * time.Second, want: 160},
		"without a half":  {want: 100},
		"more is offered": {times: 2, want: 100},
	} {
		f := &flood{action: Action{Times: c.times}, began: 100 * time.Second, half: c.half}
		f.done.Store(1000)
		if c.half > 0 {
			f.halfDone = 200
		}
		if got := f.rate(110 * time.Second); got != c.want {
			t.Errorf("%s: %v a second, want %v", name, got, c.want)
		}
	}
}

// What a flood lacks is a share of the most that was carried at all.
func TestWhatIsMissingIsOfTheBest(t *testing.T) {
	o := &ordeal{run: newRun(&Scenario{}, Options{})}
	for _, x := range []struct {
		action Action
		rate   float64
	}{{Action{}, 1000}, {Action{Times: 2}, 1250}, {Action{Times: 5}, 1000}, {Action{Times: 5, Rude: true}, 500}, {Action{}, 900}} {
		f := &flood{run: o.run, floodWork: &floodWork{batch: 1}, action: x.action, name: x.action.floodName()}
		f.offered.Store(100)
		f.unsent.Store(20)
		o.judgeFlood(f, x.rate, 10)
	}
	for name, want := range map[string]float64{
		"carried_per_second": 1000, "2x_missing_share": 0, "5x_missing_share": 0.2, "rude_5x_missing_share": 0.6, "afterwards_missing_share": 0.1,
		"5x_offered_per_second": 10, "5x_sent_per_second": 8,
	} {
		if got := o.noted(name); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// A client whose member cannot be reached has nothing to close.
func TestAFloodOfWhoIsNotThere(t *testing.T) {
	r := newRun(&Scenario{}, Options{Targets: []string{"http://127.0.0.1:1"}})
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.disconnect()
	f := &flood{run: r, floodWork: floods["claims"]}
	c, err := f.open(t.Context(), f, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := c.ask(t.Context(), 0); done != 0 || err == nil {
		t.Errorf("%d done, %v", done, err)
	}
	c.end()
}

// A credential of nobody that opens a door is a violation.
func TestAWrongCredentialThatIsTaken(t *testing.T) {
	for name, known := range map[string]bool{"it is refused": false, "it is taken": true} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle(incumbentv1connect.NewClusterServiceHandler(guessed{known: known}))
			srv := httptest.NewServer(mux)
			t.Cleanup(srv.Close)
			r := newRun(&Scenario{}, Options{Targets: []string{srv.URL}})
			if err := r.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer r.disconnect()
			f := &flood{run: r}
			c, err := attempts(guessNative)(t.Context(), f, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer c.end()
			if done, err := c.ask(t.Context(), 0); err != nil || done != 1 {
				t.Errorf("%d, %v", done, err)
			}
			if got := violationsOf(r); (got != "") != known {
				t.Errorf("%q", got)
			}
		})
	}
}

// guessed answers who guesses.
type guessed struct {
	incumbentv1connect.UnimplementedClusterServiceHandler
	known bool
}

func (g guessed) Status(context.Context, *connect.Request[apiv1.StatusRequest]) (*connect.Response[apiv1.StatusResponse], error) {
	if !g.known {
		detail, err := connect.NewErrorDetail(&apiv1.Error{Kind: incumbent.Denied.String()})
		if err != nil {
			return nil, err
		}
		denied := connect.NewError(connect.CodePermissionDenied, errors.New("nobody"))
		denied.AddDetail(detail)
		return nil, denied
	}
	return connect.NewResponse(&apiv1.StatusResponse{}), nil
}

// One in twenty leases falls silent in a flood, in whole processes.
func TestHowManyFallSilent(t *testing.T) {
	for leases, want := range map[int]int{1: 1, 200: 1, 300: 2, 10_000: 50, 12_100: 61} {
		if got := silentProcesses(leases); got != want {
			t.Errorf("%d of %d leases, want %d", got, leases, want)
		}
	}
}

// A client that begins is served, refused in time, or a violation.
func TestWhoBeginsInAFloodIsAnswered(t *testing.T) {
	hang := func(ctx context.Context, _ *flood, _, _ int) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		open                        opener
		served, refused, unanswered int64
	}{
		"served":  {open: func(context.Context, *flood, int, int) error { return nil }, served: 5},
		"refused": {open: func(context.Context, *flood, int, int) error { return errors.New("no room") }, refused: 5},
		"hangs":   {open: hang, unanswered: 5},
		"refused late": {open: func(context.Context, *flood, int, int) error {
			time.Sleep(openPatience)
			return errors.New("no room")
		}, unanswered: 5},
		"one member hangs": {open: func(ctx context.Context, f *flood, member, n int) error {
			if member == 7 {
				return hang(ctx, f, member, n)
			}
			return nil
		}, served: 3, unanswered: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flood{run: newRun(&Scenario{}, Options{})}
				f.begun = time.Now()
				ctx, stop := context.WithTimeout(t.Context(), 5*openEvery+openEvery/2)
				defer stop()
				f.openAt(ctx, "native", []int{4, 7}, c.open)
				served, refused, unanswered := f.opens.served.Load(), f.opens.refused.Load(), f.opens.unanswered.Load()
				if served != c.served || refused != c.refused || unanswered != c.unanswered {
					t.Errorf("%d served, %d refused, %d unanswered", served, refused, unanswered)
				}
				if text := violationsOf(f.run); (text != "") != (c.unanswered > 0) || c.unanswered > 0 && !strings.Contains(text, "neither served nor refused") {
					t.Errorf("violations %q", text)
				}
			})
		})
	}
}

// Critical leases are all held, and no extension of them is refused.
func TestCriticalLeasesAreJudged(t *testing.T) {
	for text, spoil := range map[string]func(*fleet){
		"": func(*fleet) {},
		"2 extensions of critical leases were refused": func(f *fleet) { f.denied, f.unsure = 1, 1 },
		"19 of 20 critical leases are held":            func(f *fleet) { f.holding-- },
	} {
		r := newRun(&Scenario{TTL: Duration(10 * time.Second)}, Options{})
		o := &ordeal{run: r, critical: newGroup(t.Context(), r, group{prefix: criticalPrefix, critical: true})}
		o.critical.holding = criticalLeases
		spoil(o.critical)
		if err := o.judgeBeside(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := violationsOf(r); (got == "") != (text == "") || !strings.Contains(got, text) {
			t.Errorf("%q, want %q", got, text)
		}
		o.critical.cancel()
	}
	f := &fleet{group: group{critical: true}}
	if frame := f.frame(1, stepClaim, &agent{}, 0); !frame.GetOperation().GetClaim().GetCritical() {
		t.Errorf("claimed by %v", frame)
	}
}

// A multiple of what is carried needs to know what that is, and says which of the two is
// missing: a flood to find it out, or anything that was executed in it.
func TestATimesOfNothing(t *testing.T) {
	for kind, rates := range map[incumbent.Kind]map[string]float64{incumbent.Invalid: nil, incumbent.Unavailable: {}} {
		o := &ordeal{run: newRun(&Scenario{}, Options{}), rates: rates}
		if _, err := o.flood(t.Context(), Action{Work: "claims", Times: 2}, nil); incumbent.KindOf(err) != kind {
			t.Errorf("with rates %v: %v", rates, err)
		}
	}
}

// Beside floods, critical leases and those of holders that fall silent are held from before
// the first; others hold what these leave, unless the servers keep it.
func TestHeldBesideFloods(t *testing.T) {
	for name, c := range map[string]struct {
		frees bool
		text  string
	}{
		"honest":               {true, ""},
		"what is left is kept": {false, "nobody holds 10 of 10 leases"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, 3)
			cluster.all[0].frees = c.frees
			// The ttl is longer than a loaded machine stands still.
			r := newRun(&Scenario{TTL: Duration(10 * time.Second), Every: Duration(100 * time.Millisecond), Silent: Duration(time.Minute), Late: Duration(10 * time.Second)}, Options{Targets: cluster.urls})
			r.begun = time.Now()
			if err := r.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer r.disconnect()
			o := &ordeal{run: r, victims: &fleet{heldBy: make([]*agent, 24)}}
			defer o.closeBeside()
			script := []Action{{Do: "flood"}, {Do: "flood", Work: "claims", Times: 2}, {Do: "flood", Work: "claims", Times: 5}, {Do: "flood"}}
			if err := o.holdBeside(t.Context(), script); err != nil {
				t.Fatal(err)
			}
			if holding, waiting, _ := o.mortal.counts(); holding != 20 || waiting != 20 {
				t.Errorf("%d hold and %d wait beside two floods", holding, waiting)
			}
			o.mortal.fallSilent(t.Context(), silentProcesses(24), 0)
			if err := o.judgeBeside(t.Context()); err != nil {
				t.Fatal(err)
			}
			if text := violationsOf(r); (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("%q, want %q", text, c.text)
			}
			if got := r.rec.op("silent-freed late").summary().Count; r.noted("fell_silent") != 10 || (got == 10) != c.frees {
				t.Errorf("%v fell silent, others hold what %d left", r.noted("fell_silent"), got)
			}
			if n := r.rec.op("critical-extend").summary().Count; n < 20 || r.noted("critical_extensions_refused") != 0 {
				t.Errorf("%d critical extensions, %v refused", n, r.noted("critical_extensions_refused"))
			}
		})
	}
}

// A script without more than is carried needs nobody beside it.
func TestNobodyIsBesideOtherFaults(t *testing.T) {
	o := &ordeal{run: newRun(&Scenario{}, Options{})}
	if err := o.holdBeside(t.Context(), []Action{{Do: "kill", Times: 2}, {Do: "flood"}}); err != nil || o.critical != nil || o.mortal != nil {
		t.Errorf("%v, %v and %v", err, o.critical, o.mortal)
	}
}
