package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fleet are services that answer checks without a network.
type fleet struct {
	mu      sync.Mutex
	begun   time.Time
	answers map[string]string // by host:port: status line; "": it hangs; "lingers": also for 3 s after it was given up; not there: refused
	dialed  map[string][]time.Duration
	now     int
	most    int
}

func newFleet() *fleet {
	return &fleet{begun: time.Now(), answers: map[string]string{}, dialed: map[string][]time.Duration{}}
}

func (f *fleet) is(address, answer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[address] = answer
}

func (f *fleet) times(address string) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.dialed[address])
}

func (f *fleet) dial(ctx context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dialed[address] = append(f.dialed[address], time.Since(f.begun))
	answer, there := f.answers[address]
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	switch {
	case !there:
		return nil, errors.New("connection refused")
	case answer == "lingers":
		<-ctx.Done()
		time.Sleep(3 * time.Second)
		return nil, ctx.Err()
	case answer == "":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
			return
		}
		body := "hello from " + address
		fmt.Fprintf(theirs, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", answer, len(body), body)
	}()
	return ours, nil
}

// state takes reports as the replicated state does.
type state struct {
	mu      sync.Mutex
	runner  *Runner
	checks  map[Key]*Check
	reports []string
	down    bool // nothing can be reported
}

func (s *state) report(k Key, o Outcome, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, fmt.Sprintf("%s %s", k.ID, o.Status))
	if s.down {
		done(errors.New("no leader"))
		return
	}
	c := *s.checks[k]
	c.Status, c.Output = o.Status, o.Output
	s.checks[k] = &c
	s.runner.Changed(k, &c)
	done(nil)
}

func (s *state) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reports)
}

func (s *state) put(def definition) {
	c := Check{Key: def.Key, Member: 1, Definition: def.Encode(), Status: def.Status}
	if c.Status != Critical {
		c.Output = "found before"
	}
	s.mu.Lock()
	s.checks[c.Key] = &c
	s.mu.Unlock()
	s.runner.Changed(c.Key, &c)
}

// running runs a test with a runner in virtual time.
func running(t *testing.T, cfg Config, f func(t *testing.T, s *state, web *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		web := newFleet()
		s := &state{checks: map[Key]*Check{}}
		cfg.Self, cfg.Report, cfg.Dial = 1, s.report, web.dial
		if cfg.Jitter == nil {
			cfg.Jitter = func() float64 { return .5 }
		}
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.runner = r
		r.Members([]uint64{1})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		f(t, s, web)
		stop()
		<-ended
	})
}

// definition is a check before it is stored.
type definition struct {
	Key
	Status Status
	Definition
}

func check(id string, every time.Duration) definition {
	return definition{
		Key: Key{"default", "n1", id}, Status: Critical,
		Definition: Definition{HTTP: "http://" + id + ":80/health", Interval: every},
	}
}

func wantEqual[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestIntervalsBeginWithinThemselves: a check is run first somewhere in its interval,
// and then once in each.
func TestIntervalsBeginWithinThemselves(t *testing.T) {
	running(t, Config{}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "200 OK")
		s.put(check("a", 10*time.Second))
		time.Sleep(36 * time.Second)
		synctest.Wait()
		wantEqual(t, "runs", web.times("a:80"), []time.Duration{5 * time.Second, 15 * time.Second, 25 * time.Second, 35 * time.Second})
		s.runner.Changed(Key{"default", "n1", "a"}, nil)
		time.Sleep(time.Minute)
		if n := len(web.times("a:80")); n != 4 {
			t.Errorf("%d runs, though it is gone", n)
		}
	})
}

// TestOnlyChangesAreReported: a run that finds what is known reaches nobody.
func TestOnlyChangesAreReported(t *testing.T) {
	running(t, Config{}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "200 OK")
		s.put(check("a", 10*time.Second))
		time.Sleep(60 * time.Second)
		synctest.Wait()
		wantEqual(t, "reports", s.told(), []string{"a passing"})
		s.mu.Lock()
		got := s.checks[Key{"default", "n1", "a"}].Output
		s.mu.Unlock()
		if want := "HTTP GET http://a:80/health: 200 OK Output: hello from a:80"; got != want {
			t.Errorf("output %q, want %q", got, want)
		}
		web.is("a:80", "503 Service Unavailable")
		time.Sleep(30 * time.Second)
		web.is("a:80", "429 Too Many Requests")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantEqual(t, "reports", s.told(), []string{"a passing", "a critical", "a warning"})
	})
}

// TestOutputsAloneAreHeldBack: an output that changes while the status does not is
// reported after a while, with what it says then.
func TestOutputsAloneAreHeldBack(t *testing.T) {
	running(t, Config{OutputEvery: time.Minute}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "200 OK")
		s.put(check("a", 10*time.Second))
		time.Sleep(6 * time.Second)
		for i := range 12 {
			web.is("a:80", fmt.Sprintf("2%02d Fine", i))
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if n := len(s.told()); n < 2 || n > 3 {
			t.Errorf("%d reports in two minutes, want the first and one or two outputs: %v", n, s.told())
		}
	})
	running(t, Config{OutputEvery: -1}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "200 OK")
		s.put(check("a", 10*time.Second))
		time.Sleep(6 * time.Second)
		web.is("a:80", "201 Created")
		time.Sleep(time.Hour)
		synctest.Wait()
		wantEqual(t, "reports", s.told(), []string{"a passing"})
	})
}

// TestAnOutputThatWasNotWrittenIsReportedAgain: soon, and not when outputs alone are due next.
func TestAnOutputThatWasNotWrittenIsReportedAgain(t *testing.T) {
	running(t, Config{OutputEvery: time.Hour}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "200 OK")
		s.put(check("a", time.Minute))
		time.Sleep(time.Hour + time.Minute)
		down := func(is bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.down = is
		}
		down(true)
		web.is("a:80", "201 Created")
		time.Sleep(time.Minute)
		down(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := s.checks[Key{"default", "n1", "a"}].Output; !strings.Contains(got, "201 Created") {
			t.Errorf("output %q", got)
		}
	})
}

// TestTheFirstOutputIsReported: a check that is found as it was registered says why.
func TestTheFirstOutputIsReported(t *testing.T) {
	running(t, Config{OutputEvery: -1}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "500 Broken")
		s.put(check("a", 10*time.Second))
		time.Sleep(time.Minute)
		synctest.Wait()
		wantEqual(t, "reports", s.told(), []string{"a critical"})
	})
}

// TestRunsAreBounded: hosts that hang keep no more runs under way than there may be,
// and each ends with its timeout.
func TestRunsAreBounded(t *testing.T) {
	running(t, Config{AtOnce: 4}, func(t *testing.T, s *state, web *fleet) {
		for i := range 40 {
			c := check(fmt.Sprintf("c%02d", i), 10*time.Second)
			c.HTTP, c.TCP = "", c.ID+":80"
			c.Timeout = 2 * time.Second
			c.Status = Passing
			web.is(c.ID+":80", "")
			s.put(c)
		}
		time.Sleep(5*time.Second + 21*time.Second)
		synctest.Wait()
		if web.most != 4 {
			t.Errorf("%d runs at once, want 4", web.most)
		}
		if n := len(s.told()); n != 40 {
			t.Errorf("%d reports, want one for each check: the late ones begin in turn", n)
		}
		if st := s.runner.Stats(); st.Checks != 40 || st.Running != 4 || st.Late <= 0 {
			t.Errorf("%+v: want 40 checks, 4 running, late", st)
		}
	})
}

// hanging is a check of a service that never answers, with a timeout of an hour.
func hanging(id string) definition {
	c := check(id, time.Second)
	c.HTTP, c.TCP, c.Timeout, c.Status = "", id+":80", time.Hour, Passing
	return c
}

// TestAPlaceIsFreeAtOnce: what has gone, or is another check now, holds up nobody.
func TestAPlaceIsFreeAtOnce(t *testing.T) {
	for what, end := range map[string]func(s *state, c definition){
		"it goes": func(s *state, c definition) { s.runner.Changed(c.Key, nil) },
		"it changes": func(s *state, c definition) {
			c.Interval = time.Hour
			s.put(c)
		},
		"another member has it": func(s *state, c definition) {
			s.runner.Members([]uint64{1, 2})
			s.runner.Changed(c.Key, &Check{Key: c.Key, Member: 2, Definition: c.Encode()})
		},
	} {
		t.Run(what, func(t *testing.T) {
			running(t, Config{AtOnce: 1}, func(t *testing.T, s *state, web *fleet) {
				web.is("a:80", "")
				web.is("b:80", "200 OK")
				s.put(hanging("a"))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if n := len(web.times("a:80")); n != 1 {
					t.Fatalf("a was run %d times, want one run that hangs", n)
				}
				end(s, hanging("a"))
				s.put(check("b", 10*time.Second))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				wantEqual(t, "runs of b", web.times("b:80"), []time.Duration{7 * time.Second})
				wantEqual(t, "reports", s.told(), []string{"b passing"})
			})
		})
	}
}

// TestNoRunTakesLongerThanMaxTimeout: whatever timeouts services were registered with,
// others are run meanwhile.
func TestNoRunTakesLongerThanMaxTimeout(t *testing.T) {
	running(t, Config{AtOnce: 1}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "")
		web.is("b:80", "200 OK")
		s.put(hanging("a"))
		time.Sleep(time.Second)
		s.put(check("b", 10*time.Second))
		time.Sleep(MaxTimeout)
		synctest.Wait()
		wantEqual(t, "reports", s.told(), []string{"a critical", "b passing"})
	})
}

// TestOneRunOfEachCheck: a check that is registered again waits for the run of the one
// that was there before, and takes nothing over from it.
func TestOneRunOfEachCheck(t *testing.T) {
	running(t, Config{Jitter: func() float64 { return 0 }}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "lingers")
		for range 3 {
			s.put(hanging("a"))
			synctest.Wait()
			s.runner.Changed(hanging("a").Key, nil)
			synctest.Wait()
		}
		s.put(hanging("a"))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := len(web.times("a:80")); web.most != 1 || n != 2 {
			t.Errorf("%d runs, of them %d at once; want one behind the other", n, web.most)
		}
		if told, st := s.told(), s.runner.Stats(); len(told) != 0 || st.Checks != 1 || st.Running != 1 {
			t.Errorf("reports %v, %d checks, %d running", told, st.Checks, st.Running)
		}
		s.runner.Changed(hanging("a").Key, nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if st := s.runner.Stats(); st.Checks != 0 || st.Running != 0 {
			t.Errorf("%d checks, %d running, though it is gone", st.Checks, st.Running)
		}
	})
}

// TestLostReportsAreRepeated: what could not be written is found and reported again
// soon, however long the interval.
func TestLostReportsAreRepeated(t *testing.T) {
	running(t, Config{}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "200 OK")
		s.down = true
		s.put(check("a", 10*time.Minute))
		time.Sleep(5*time.Minute + 12*time.Second)
		synctest.Wait()
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		wantEqual(t, "reports", s.told(), []string{"a passing", "a passing", "a passing", "a passing"})
	})
}

// TestChangedDefinitions: what a run found of what a check was before is dropped, and
// what counts begins anew.
func TestChangedDefinitions(t *testing.T) {
	running(t, Config{}, func(t *testing.T, s *state, web *fleet) {
		web.is("a:80", "")
		c := check("a", 10*time.Second)
		c.Status = Passing
		s.put(c)
		time.Sleep(6 * time.Second) // the run hangs
		c.HTTP = "http://b:80/"
		web.is("b:80", "200 OK")
		s.put(c)
		time.Sleep(time.Minute)
		synctest.Wait()
		if told := s.told(); len(told) != 0 {
			t.Errorf("reports %v of what is not run any more", told)
		}
		if len(web.times("b:80")) == 0 || len(web.times("a:80")) != 1 {
			t.Errorf("a was run at %v, b at %v", web.times("a:80"), web.times("b:80"))
		}
	})
}

// TestReplace: what is not among all checks is not run any more.
func TestReplace(t *testing.T) {
	running(t, Config{}, func(t *testing.T, s *state, web *fleet) {
		a, b := check("a", time.Second), check("b", time.Second)
		s.put(a)
		s.put(b)
		time.Sleep(10 * time.Second)
		s.runner.Replace([]*Check{{Key: b.Key, Member: 1, Definition: b.Encode(), Status: Critical}})
		synctest.Wait()
		before := len(web.times("a:80"))
		time.Sleep(10 * time.Second)
		if n := len(web.times("a:80")); n != before {
			t.Errorf("a was run %d times more", n-before)
		}
		if n := len(web.times("b:80")); n != 20 {
			t.Errorf("b was run %d times, want 20", n)
		}
	})
}

// TestStreaks: how many runs in a row must agree.
func TestStreaks(t *testing.T) {
	for name, c := range map[string]struct {
		Thresholds
		runs string // p, w, c
		want string // the status after each; - where it stays
	}{
		"at once":                {Thresholds{}, "pcwc", "pcwc"},
		"two before passing":     {Thresholds{SuccessBeforePassing: 2}, "ppcpp", "ppc-p"},
		"three before critical":  {Thresholds{FailuresBeforeCritical: 3}, "pcccpcc", "p--cp--"},
		"a warning on the way":   {Thresholds{FailuresBeforeCritical: 3, FailuresBeforeWarning: 2}, "pcccc", "p-wcc"},
		"a warning is an answer": {Thresholds{FailuresBeforeCritical: 2}, "cwcc", "cw-c"},
		"the first run counts":   {Thresholds{SuccessBeforePassing: 3, FailuresBeforeCritical: 3}, "cpcccppp", "c---c--p"},
		"no later warning":       {Thresholds{FailuresBeforeCritical: 1, FailuresBeforeWarning: 5}, "c", "c"},
	} {
		var s streak
		var got strings.Builder
		for _, r := range c.runs {
			is, ok := s.after(Status(strings.IndexRune("pwc", r)), c.Thresholds)
			if !ok {
				got.WriteByte('-')
				continue
			}
			got.WriteByte("pwc"[is])
		}
		if got.String() != c.want {
			t.Errorf("%s: %s gives %s, want %s", name, c.runs, got.String(), c.want)
		}
	}
}

// TestBounded: outputs are cut between characters and are UTF-8.
func TestBounded(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{{"abc", 2, "ab"}, {"aé", 2, "a"}, {"a\xffb", 10, "a\uFFFDb"}, {"é", 1, ""}} {
		if got := Bounded(c.text, c.n); got != c.want {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

// TestWhoStoodStillFoundNothing: a run that ends long after its timeout is one of a member that
// did not run meanwhile. It says nothing of what was asked, and is made again at once.
func TestWhoStoodStillFoundNothing(t *testing.T) {
	s := newSchedule(Config{Self: 1, AtOnce: 1, Jitter: func() float64 { return 0 }})
	began := time.Unix(1_800_000_000, 0)
	c := check("a", 10*time.Second)
	s.hear(began, news{members: []uint64{1}, changed: map[Key]*Check{c.Key: {Key: c.Key, Member: 1, Definition: c.Definition.Encode(), Status: Passing, Output: "found before"}}})
	run := func(at time.Time, took time.Duration) (time.Time, bool) {
		t.Helper()
		j := s.next(at)
		if j == nil {
			t.Fatal("nothing is due")
		}
		j.cancel = func() {}
		end := at.Add(took)
		_, reported := s.ran(end, result{j, j.def, Outcome{Status: Critical, Output: "timed out"}})
		return end, reported
	}
	timeout := DefaultTimeout
	at, reported := run(began.Add(10*time.Second), timeout+stoodStill+time.Millisecond)
	if reported {
		t.Error("what was not found is reported")
	}
	if _, reported := run(at, timeout); !reported {
		t.Error("what was found in time is not")
	}
}
