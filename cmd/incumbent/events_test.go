package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/client"
)

// halfway serves as a member does that begins to send its timeline and stands still then.
type halfway struct {
	incumbentv1connect.UnimplementedClusterServiceHandler
}

func (halfway) Members(context.Context, *connect.Request[apiv1.MembersRequest]) (*connect.Response[apiv1.MembersResponse], error) {
	return connect.NewResponse(&apiv1.MembersResponse{}), nil
}

func (halfway) Events(ctx context.Context, _ *connect.Request[apiv1.EventsRequest], out *connect.ServerStream[apiv1.EventsResponse]) error {
	if err := out.Send(&apiv1.EventsResponse{Events: []*apiv1.Event{{What: "ready"}}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// memberOf returns the URL of a handler; nil: of a member that stands still.
func memberOf(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	if h == nil {
		h = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then its end is noticed
			<-r.Context().Done()
		})
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// What reads a timeline or follows leases ends at a member that stands still, and goes on
// with the next one if there is one.
func TestNoCommandWaitsForAMemberThatStandsStill(t *testing.T) {
	_, half := incumbentv1connect.NewClusterServiceHandler(halfway{})
	silent, begins, alive := memberOf(t, nil), memberOf(t, half), openServer(t).URL()
	for _, c := range []struct {
		args, servers string
		code          int
		said          string
	}{
		{"events", silent, exitTimeout, "--timeout is how long to wait"},
		{"events -f", silent, exitTimeout, "--timeout is how long to wait"},
		{"events", begins, exitTimeout, "--timeout is how long to wait"},
		{"events", silent + "," + alive, exitOK, "ready"},
		{"lease watch", silent, exitTimeout, "--timeout is how long to wait"},
		{"lease watch --after 99999", silent + "," + alive, exitConflict, "does not exist yet"},
	} {
		timeout := "300ms"
		if strings.Contains(c.servers, ",") {
			timeout = "1m"
		}
		got := soon(t, append(strings.Fields(c.args), "--server", c.servers, "--timeout", timeout)...)
		if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.said) {
			t.Errorf("%s: exit code %d, want %d; %s%s", c.args, got.code, c.code, got.stdout, got.stderr)
		}
	}
}

// A member that is followed may have nothing to tell, but not say nothing for long.
func TestAMemberThatIsFollowedIsHeardOf(t *testing.T) {
	_, half := incumbentv1connect.NewClusterServiceHandler(halfway{})
	cl, err := client.New(client.Config{Servers: []string{memberOf(t, half)}})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var told []string
	err = eventsWithin(t.Context(), cl, &apiv1.EventsRequest{Follow: true}, patience{between: 50 * time.Millisecond}, nil, func(events []*apiv1.Event) error {
		for _, e := range events {
			told = append(told, e.What)
		}
		return nil
	})
	if incumbent.KindOf(err) != incumbent.Unavailable || !strings.Contains(fmt.Sprint(err), "said nothing for 50ms") || !slices.Equal(told, []string{"ready"}) {
		t.Errorf("%v, told %q", err, told)
	}
}

// soon is [execute] for what may never end.
func soon(t *testing.T, args ...string) outcome {
	t.Helper()
	env, read := testEnvironment(t, nil)
	ended := make(chan int, 1)
	go func() { ended <- run(args, env) }()
	select {
	case code := <-ended:
		stdout, stderr := read()
		return outcome{stdout, stderr, code}
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end", args)
		return outcome{}
	}
}

// Timelines of several members come out as one, by time; what comes later comes as
// it comes.
func TestMerger(t *testing.T) {
	var got []string
	m := merger{print: func(events []*apiv1.Event) error {
		for _, e := range events {
			got = append(got, e.Member+" "+e.What)
		}
		return nil
	}}
	say := func(member string, at int64, what ...string) {
		t.Helper()
		for _, w := range what {
			if err := m.take([]*apiv1.Event{{Member: member, AtUnixMs: at, What: w}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	say("n2", 20, "b", "a")
	say("n1", 20, "c")
	say("n1", 30, "d")
	say("n2", 10, "e")
	m.inOrder()
	say("n3", 5, "late")
	m.inOrder()
	if want := []string{"n2 e", "n1 c", "n2 b", "n2 a", "n1 d", "n3 late"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Of a member that is asked again, only what was not told is: also where several
// happened at once, and what its clock says is earlier than what it said before.
func TestTail(t *testing.T) {
	at := func(ms int64, what string) *apiv1.Event { return &apiv1.Event{AtUnixMs: ms, What: what} }
	var told tail
	if told.has(at(1, "a")) {
		t.Error("has what was never told")
	}
	told.add([]*apiv1.Event{at(1, "a"), at(2, "b"), at(2, "c")})
	for _, e := range []*apiv1.Event{at(1, "a"), at(2, "b"), at(2, "c")} {
		if !told.has(e) {
			t.Errorf("%v would be told twice", e)
		}
	}
	for _, e := range []*apiv1.Event{at(2, "d"), at(3, "a")} {
		if told.has(e) {
			t.Errorf("%v would not be told", e)
		}
	}
	told.add([]*apiv1.Event{at(1, "e")})
	if told.has(at(2, "f")) {
		t.Error("what happens after a clock was set back is not told")
	}
}
