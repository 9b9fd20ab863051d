package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/server"
)

// holdLease claims a lease that lasts longer than any of these tests.
func holdLease(t *testing.T, s *server.Server) *client.Lease {
	t.Helper()
	c, err := client.New(client.Config{Servers: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	session, err := c.Open(t.Context(), client.SessionConfig{TTL: time.Hour, Holder: "me"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSession(session) })
	lease, err := session.Claim(t.Context(), incumbent.Name{Namespace: "default", Model: "default", Lease: "run"}, client.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// shell is a child that says on its standard output when it is set up.
func shell(t *testing.T, script string) (child *exec.Cmd, ready <-chan struct{}) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	child = exec.Command("/bin/sh", "-c", script)
	child.Stdout = w
	said := make(chan struct{})
	go func() {
		if _, err := r.Read(make([]byte, 1)); err == nil {
			close(said)
		}
	}()
	return child, said
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	var status statusError
	if err != nil && !errors.As(err, &status) {
		t.Fatalf("error %v carries no exit code", err)
	}
	return exitCode(err)
}

func TestSupervisePassesTheEndOn(t *testing.T) {
	lease := holdLease(t, openServer(t))
	for _, c := range []struct {
		script string
		code   int
	}{{"exit 0", 0}, {"exit 7", 7}, {"exit 255", 255}, {"kill -9 $$", 137}, {"kill -15 $$", 143}} {
		child := exec.Command("/bin/sh", "-c", c.script)
		if got := codeOf(t, supervise(child, lease, nil, time.Millisecond)); got != c.code {
			t.Errorf("%s: exit code %d, want %d", c.script, got, c.code)
		}
	}
	if got := codeOf(t, supervise(exec.Command("/does/not/exist"), lease, nil, time.Millisecond)); got != exitNoSuchThing {
		t.Errorf("no such command: exit code %d", got)
	}
}

func TestSuperviseForwardsSignals(t *testing.T) {
	lease := holdLease(t, openServer(t))
	child, ready := shell(t, `trap "exit 9" USR1; echo; while :; do sleep 0.01; done`)
	signals := make(chan os.Signal, 3)
	go func() {
		<-ready
		signals <- syscall.SIGURG // this process's own affair, as is the next
		signals <- syscall.SIGPIPE
		signals <- syscall.SIGUSR1
	}()
	if got := codeOf(t, supervise(child, lease, signals, time.Millisecond)); got != 9 {
		t.Errorf("exit code %d, want 9", got)
	}
}

// However often this process is told what is its own affair, a signal for the child has
// its place.
func TestRunListensForWhatItForwards(t *testing.T) {
	signals, stop := listen()
	defer stop()
	raise := func(sig syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
	}
	for range cap(signals) {
		for _, sig := range []syscall.Signal{syscall.SIGURG, syscall.SIGPIPE} {
			raise(sig)
		}
	}
	raise(syscall.SIGTERM)
	if got := <-signals; got != syscall.SIGTERM {
		t.Errorf("%v came before the signal for the child", got)
	}
}

// fading is a lease whose time the test tells, from when the child is set up: each
// look at it finds the next of the times left, and the last one for ever.
type fading struct {
	ctx   context.Context
	ready <-chan struct{}
	left  []time.Duration
}

func (f *fading) Context() context.Context {
	<-f.ready // what the child is told must not come before it is set up
	return f.ctx
}

func (f *fading) Remaining() time.Duration {
	<-f.ready
	now := f.left[0]
	if len(f.left) > 1 {
		f.left = f.left[1:]
	}
	return now
}

// What is over, or is being taken away, before the child has started, starts none.
func TestRunStartsNothingUnderALeaseThatIsOver(t *testing.T) {
	ready := make(chan struct{})
	close(ready)
	revoked, revoke := context.WithCancelCause(t.Context())
	revoke(incumbent.Errorf(incumbent.NotHolder, "run is being revoked"))
	for _, c := range []struct {
		what, said string
		lease      *fading
	}{
		{"over", "could not be extended; the command was not started", &fading{t.Context(), ready, []time.Duration{0}}},
		{"about to be over", "could not be extended; the command was not started", &fading{t.Context(), ready, []time.Duration{killMargin}}},
		{"being revoked", "being revoked; the command was not started", &fading{revoked, ready, []time.Duration{time.Hour}}},
	} {
		child := exec.Command("/bin/true")
		err := runHeld(child, c.lease, nil, time.Second)
		if got := codeOf(t, err); got != exitLeaseLost || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s: exit code %d, %v", c.what, got, err)
		}
		if child.Process != nil {
			t.Errorf("%s: the command was started", c.what)
		}
	}
}

// When nothing can be extended, a child that stops when told, and one that does
// not, are both gone while the lease is still held: one that takes its time is
// left to it as long as there is time.
func TestSuperviseStopsBeforeTheDeadline(t *testing.T) {
	const grace = time.Second
	for _, c := range []struct {
		what, trap, said string
		left             []time.Duration
	}{
		{"stops when told", `trap "exit 0" TERM`, "stopped before its deadline", []time.Duration{killMargin + grace, time.Hour}},
		{"ignores SIGTERM", `trap "" TERM`, "killed before its deadline", []time.Duration{killMargin + 10*time.Millisecond, killMargin}},
	} {
		t.Run(c.what, func(t *testing.T) {
			child, ready := shell(t, c.trap+`; echo; while :; do sleep 0.01; done`)
			err := supervise(child, &fading{t.Context(), ready, c.left}, nil, grace)
			if got := codeOf(t, err); got != exitLeaseLost || !strings.Contains(err.Error(), c.said) {
				t.Errorf("exit code %d, %v", got, err)
			}
			if err := child.Process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("the child is still there: %v", err)
			}
		})
	}
}

// What is being revoked is the child's until the deadline: it is told to stop at once
// and killed only then, or when the lease is over before.
func TestSuperviseAnswersARevocation(t *testing.T) {
	const grace = time.Second
	for _, c := range []struct {
		what, trap, said string
		left             []time.Duration
	}{
		{"takes its time", `trap "sleep 0.1; exit 3" TERM`, "being revoked; the command was stopped", []time.Duration{20 * time.Second}},
		{"ignores SIGTERM", `trap "" TERM`, "being revoked; the command was killed", []time.Duration{killMargin + 20*time.Millisecond, killMargin + 10*time.Millisecond, killMargin}},
		{"is over at once", `trap "" TERM`, "being revoked; the command was killed", []time.Duration{0}},
	} {
		t.Run(c.what, func(t *testing.T) {
			child, ready := shell(t, c.trap+`; echo; while :; do sleep 0.01; done`)
			revoked, revoke := context.WithCancelCause(t.Context())
			revoke(incumbent.Errorf(incumbent.NotHolder, "run is being revoked"))
			err := supervise(child, &fading{revoked, ready, c.left}, nil, grace)
			if got := codeOf(t, err); got != exitLeaseLost || !strings.Contains(err.Error(), c.said) {
				t.Errorf("exit code %d, %v", got, err)
			}
			if killed := child.ProcessState.ExitCode() != 3; killed != strings.Contains(c.said, "killed") {
				t.Errorf("the child ended with %v", child.ProcessState)
			}
		})
	}
}

// A lease that is taken away ends the child at once.
func TestSuperviseEndsWithTheLease(t *testing.T) {
	lease := holdLease(t, openServer(t))
	child, ready := shell(t, `echo; exec sleep 60`)
	go func() {
		<-ready
		_ = lease.Release(t.Context()) // how the holding ends does not matter here
	}()
	err := supervise(child, lease, nil, time.Millisecond)
	if got := codeOf(t, err); got != exitLeaseLost || !strings.Contains(err.Error(), "released") {
		t.Errorf("exit code %d, %v", got, err)
	}
}

func TestNotRunnable(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{exec.ErrNotFound, exitNoSuchThing},
		{&os.PathError{Op: "exec", Path: "x", Err: syscall.ENOENT}, exitNoSuchThing},
		{&exec.Error{Name: "x", Err: os.ErrPermission}, exitCannotRun},
		{&exec.Error{Name: "x", Err: syscall.EISDIR}, exitCannotRun},
		{&os.PathError{Op: "exec", Path: "x", Err: syscall.EACCES}, exitCannotRun},
		{&os.PathError{Op: "exec", Path: "x", Err: syscall.ENOEXEC}, exitCannotRun},
	} {
		if got := codeOf(t, notRunnable(c.err)); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
	}
}

// What a child does by 'incumbent txn --if-held' it does while its lease is held, with
// nothing but what it finds in its environment.
func TestG24_ARunsChildWritesUnderItsToken(t *testing.T) {
	s := openServer(t)
	script := `env | grep -q INCUMBENT_SESSION=........-....-....-....-............ || exit 1; echo "$INCUMBENT_SERVER $INCUMBENT_LEASE $INCUMBENT_TOKEN"`
	got := execute(t, nil, "run", "--server", s.URL(), "guarded", "--", "/bin/sh", "-c", script)
	words := strings.Fields(got.stdout)
	if got.code != 0 || len(words) != 3 {
		t.Fatalf("code %d, output %q, error %q", got.code, got.stdout, got.stderr)
	}
	// The run is over, and so is its holding: what its child does too late is not done.
	late := map[string]string{"INCUMBENT_SERVER": words[0], "INCUMBENT_LEASE": words[1], "INCUMBENT_TOKEN": words[2]}
	if got := execute(t, late, "txn", "--if-held", "--then", "put x late"); got.code != exitConflict {
		t.Errorf("code %d, output %q, error %q", got.code, got.stdout, got.stderr)
	}
	held := holdLease(t, s)
	now := map[string]string{"INCUMBENT_SERVER": s.URL(), "INCUMBENT_LEASE": "run", "INCUMBENT_TOKEN": held.Token().String()}
	if got := execute(t, now, "txn", "--if-held", "--then", "put x now"); got.code != 0 {
		t.Errorf("code %d, output %q, error %q", got.code, got.stdout, got.stderr)
	}
}

// A session that ends while its run waits is followed by another, whose run waits on.
func TestARunWaitsOnWithoutItsSession(t *testing.T) {
	s := openServer(t)
	held := holdLease(t, s)
	c, err := client.New(client.Config{Servers: []string{s.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	env, read := testEnvironment(t, nil)
	ended := make(chan int, 1)
	go func() { ended <- run([]string{"run", "run", "--server", s.URL(), "--", "/bin/echo", "its turn"}, env) }()
	last := ""
	for range 2 {
		last = waiterAfter(t, c, last)
		if _, err := c.Sessions().CloseSession(t.Context(), connect.NewRequest(&apiv1.CloseSessionRequest{Id: last})); err != nil {
			t.Fatal(err)
		}
	}
	waiterAfter(t, c, last)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	code := <-ended
	if stdout, stderr := read(); code != exitOK || stdout != "its turn\n" {
		t.Errorf("code %d, output %q, error %q", code, stdout, stderr)
	}
}

// mute passes streams on to a server, save for claims, which nobody answers.
type mute struct{ c *client.Client }

func (m mute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	to, in, err := m.c.DialStream(r.Context(), client.StreamOptions{})
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_ = to.Serve(in, func(f *apiv1.ServerFrame) {
			if data, err := proto.Marshal(&apiv1.ServerMessage{Frames: []*apiv1.ServerFrame{f}}); err == nil {
				_ = wsutil.WriteServerBinary(conn, data)
			}
		})
	}()
	for {
		data, err := wsutil.ReadClientBinary(conn)
		var m apiv1.ClientMessage
		if err != nil || proto.Unmarshal(data, &m) != nil {
			return
		}
		for _, f := range m.Frames {
			if f.GetOperation().GetClaim() == nil && to.Send(f) != nil {
				return
			}
		}
	}
}

// Who does not want to wait does not wait for the answer to a claim either.
func TestARunThatDoesNotWaitEnds(t *testing.T) {
	c, err := client.New(client.Config{Servers: []string{openServer(t).URL()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	got := soon(t, "run", "job", "--no-wait", "--timeout", "2s", "--server", memberOf(t, mute{c}), "--", "/bin/true")
	if got.code != exitRunFault || !strings.Contains(got.stderr, "no answer within 2s") {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
}

// waiterAfter is the session of who waits for lease run, once that is another than the last.
func waiterAfter(t *testing.T, c *client.Client, last string) (session string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	name := incumbent.Name{Namespace: "default", Model: "default", Lease: "run"}
	for _, err := range c.Watch(ctx, client.WatchOptions{Name: name}) {
		if err != nil {
			t.Fatal(err)
		}
		// Events leave the queue out.
		res, err := c.Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Namespace: name.Namespace, Model: name.Model, Name: name.Lease}}))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range res.Msg.GetLease().GetQueue() {
			if w.Session != last {
				return w.Session
			}
		}
	}
	t.Fatal("nobody waits for the lease")
	return ""
}

// The token in a child's environment is of its own lease, and of no other.
func TestTheTokenOfARunIsOfItsLease(t *testing.T) {
	s := openServer(t)
	child := map[string]string{"INCUMBENT_SERVER": s.URL(), "INCUMBENT_LEASE": "own", "INCUMBENT_TOKEN": "1"}
	for _, name := range []string{"other", "own"} {
		if got := execute(t, nil, "lease", "claim", name, "--holder", "me", "--server", s.URL()); got.code != 0 {
			t.Fatalf("code %d, error %q", got.code, got.stderr)
		}
	}
	if got := execute(t, child, "lease", "release", "other", "--holder", "me"); got.code != 0 || !strings.Contains(got.stdout, "other released") {
		t.Errorf("code %d, output %q, error %q", got.code, got.stdout, got.stderr)
	}
	if got := execute(t, child, "lease", "release", "own", "--holder", "me"); got.code != 0 || !strings.Contains(got.stdout, "nothing to release") {
		t.Errorf("its own: code %d, output %q, error %q", got.code, got.stdout, got.stderr)
	}
}

func TestChildEnvironment(t *testing.T) {
	name := incumbent.Name{Namespace: "ns", Model: "m", Lease: "l"}
	all := childEnvironment(name, "me", 17, 15*time.Second, time.UnixMilli(1234))
	var got []string
	for _, v := range all[len(os.Environ()):] {
		got = append(got, strings.TrimPrefix(v, envPrefix))
	}
	want := []string{"NAMESPACE=ns", "MODEL=m", "LEASE=l", "HOLDER=me", "TOKEN=17", "TTL_MS=15000", "DEADLINE_MS=1234"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
