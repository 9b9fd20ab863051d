package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Exit codes of `incumbent run` besides the child's own; the last three are
// those of timeout(1) and the shell.
const (
	exitLeaseLost   = 122
	exitRunHeld     = 123 // with --no-wait
	exitRunTimeout  = 124 // waited too long
	exitRunFault    = 125 // incumbent itself
	exitCannotRun   = 126 // the command is there and cannot be run
	exitNoSuchThing = 127 // there is no such command
)

// runPath is the verb whose own mistakes are exit code 125, not 2.
const runPath = "incumbent run"

// killMargin is how long before the local deadline a child that does not stop
// is killed: time for the kernel to end it.
const killMargin = 250 * time.Millisecond

// turnPause is how long a run pauses at most until it takes another turn.
const turnPause = 2 * time.Second

func runCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARG …]",
		Short: "run a command while holding a lease",
		Long: `Run waits for its turn to hold NAME, runs COMMAND without a shell, and keeps the
lease for as long as the command runs. Cut off for longer than the ttl while it waits, it
takes another place, at the end of the queue. Standard input is passed on, signals are
forwarded. The child learns INCUMBENT_NAMESPACE, INCUMBENT_MODEL,
INCUMBENT_LEASE, INCUMBENT_HOLDER, INCUMBENT_TOKEN, INCUMBENT_SESSION,
INCUMBENT_TTL_MS and INCUMBENT_DEADLINE_MS from its environment; the last is the
wall-clock time, in milliseconds since 1970, up to which the lease was held for
certain when the child began: each extension moves it on. The servers and files that
this command was given are there, too: so 'incumbent txn --if-held' in the child does
what it is told while the lease is held under this token, or nothing.

If the lease cannot be extended, the child gets SIGTERM in time and SIGKILL
before the local deadline, so that two never overlap even when this machine is
cut off. If the lease is revoked, it gets SIGTERM at once and has until then to
stop; what is revoked by force is over, and so is the child. The child is killed when this process dies. What the child itself starts
and leaves behind is its own affair.

Exit code: the child's; 122 the lease was lost; 123 held by another, with
--no-wait; 124 waited longer than --wait; 125 to 127 as timeout(1).`,
		Example: `  incumbent run db/primary --ttl 15s -- ./primary --port 5432
  incumbent run nightly --no-wait -- ./report`,
		RunE: func(c *cobra.Command, args []string) error { return runUnderLease(c, env, args) },
	}
	f := c.Flags()
	f.SetInterspersed(true)
	f.String("namespace", incumbent.DefaultNamespace, "namespace of the lease")
	f.String("model", incumbent.DefaultModel, "model of the lease")
	addClaimant(c)
	f.Duration("ttl", 15*time.Second, "how long the lease outlives this process, 1s to 24h")
	f.Bool("no-wait", false, "give up if another holds it")
	f.Duration("wait", 0, "give up after waiting so long; 0 waits for ever")
	f.Duration("stop-grace", 0, "time from SIGTERM to SIGKILL when the lease cannot be extended, up to half the ttl (default a fifth of it)")
	addServerFlags(c)
	return c
}

func runUnderLease(c *cobra.Command, env *environment, args []string) error {
	if len(args) < 2 || c.ArgsLenAtDash() != 1 {
		return usageError{"give NAME, then --, then the command to run"}
	}
	name, err := leaseName(c, args[0])
	if err != nil {
		return err
	}
	times, err := runTimesOf(c)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return notRunnable(err)
	}
	full := incumbent.Name{Namespace: name.Namespace, Model: name.Model, Lease: name.Name}
	// Signals go to the child once there is one; before, they end the waiting.
	signals, unlisten := listen()
	defer unlisten()
	waiting, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	if times.wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(waiting, times.wait)
		defer cancel()
	}
	err = withClient(c, func(cl *client.Client) error {
		session, lease, err := takeTurn(waiting, c, env, cl, full)
		if err != nil {
			return notMyTurn(waiting, err, full, times.wait)
		}
		defer closeSession(session)
		holder, err := holderOfRun(waiting, c, cl, full)
		if err != nil {
			return err
		}
		child := exec.Command(path, args[2:]...)
		child.Args[0] = args[1]
		child.Stdin, child.Stdout, child.Stderr = env.stdin, env.stdout, env.stderr
		child.Env = append(childEnvironment(full, holder, lease.Token(), times.ttl, time.Now().Add(lease.Remaining())),
			"INCUMBENT_SESSION="+session.ID().String())
		child.Env = append(child.Env, givenServers(c)...)
		return runHeld(child, lease, signals, times.grace)
	})
	var status statusError
	if err == nil || errors.As(err, &status) {
		return err
	}
	return statusError{exitRunFault, errorText(err)}
}

// runTimes are the durations of a run.
type runTimes struct {
	ttl   time.Duration // 1 s to 24 h
	grace time.Duration // from SIGTERM to SIGKILL: over 0, up to half the ttl
	wait  time.Duration // 0: for ever
}

// runTimesOf reads them from the flags. More grace than half the ttl would have the
// child told to stop between two extensions that are in time.
func runTimesOf(c *cobra.Command) (runTimes, error) {
	var t runTimes
	t.ttl, _ = c.Flags().GetDuration("ttl")
	t.grace, _ = c.Flags().GetDuration("stop-grace")
	t.wait, _ = c.Flags().GetDuration("wait")
	if err := incumbent.ValidateTTL(t.ttl); err != nil {
		return t, err
	}
	switch {
	case t.grace < 0 || t.grace > t.ttl/2:
		return t, usageError{fmt.Sprintf("--stop-grace %v is outside 0s to %v, half the ttl; 0s is a fifth of it", t.grace, t.ttl/2)}
	case t.wait < 0:
		return t, usageError{fmt.Sprintf("--wait %v is negative; 0s waits for ever", t.wait)}
	case t.grace == 0:
		t.grace = t.ttl / 5
	}
	return t, nil
}

// takeTurn returns the lease once it is held, and the session that owns it. A session that
// ended at the server while the lease was waited for, as when no member could be reached
// for its ttl, has lost its place in line: another one begins at the end of it, after a pause
// that spreads those who were cut off together. Who does not want to wait gives up when one call
// may take no longer.
func takeTurn(waiting context.Context, c *cobra.Command, env *environment, cl *client.Client, name incumbent.Name) (*client.Session, *client.Lease, error) {
	noWait, _ := c.Flags().GetBool("no-wait")
	if limit, _ := c.Flags().GetDuration("timeout"); noWait && limit > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(waiting, limit)
		defer cancel()
	}
	for {
		var last atomic.Pointer[error]
		session, lease, err := takeTurnOnce(waiting, c, env, cl, name, &last)
		kind := incumbent.KindOf(err)
		switch over := kind == incumbent.Expired || kind == incumbent.NotFound; {
		case err == nil:
			return session, lease, nil
		case noWait && waiting.Err() != nil && last.Load() != nil:
			return nil, nil, *last.Load()
		case noWait || !over || waiting.Err() != nil:
			return nil, nil, err
		}
		select {
		case <-time.After(rand.N(turnPause)):
		case <-waiting.Done():
			return nil, nil, err
		}
	}
}

// takeTurnOnce opens the session that will own the lease, and claims it. Without a server it
// says so once and goes on trying; why, it notes in last.
func takeTurnOnce(waiting context.Context, c *cobra.Command, env *environment, cl *client.Client, name incumbent.Name, last *atomic.Pointer[error]) (*client.Session, *client.Lease, error) {
	ttl, _ := c.Flags().GetDuration("ttl")
	var told sync.Once
	session, err := cl.Open(waiting, client.SessionConfig{TTL: ttl, Holder: claimant(c, cl), Retrying: func(err error) {
		last.Store(&err)
		told.Do(func() { fmt.Fprintln(env.stderr, "incumbent: trying again until a server answers:", errorText(err)) })
	}})
	if err != nil {
		return nil, nil, err
	}
	var lease *client.Lease
	if noWait, _ := c.Flags().GetBool("no-wait"); noWait {
		lease, err = session.Claim(waiting, name, client.ClaimOptions{})
	} else {
		lease, err = session.Campaign(waiting, name)
	}
	if err != nil {
		closeSession(session)
	}
	return session, lease, err
}

// holderOfRun is who holds the lease that was claimed: whom the server takes for the
// principal, it says.
func holderOfRun(ctx context.Context, c *cobra.Command, cl *client.Client, name incumbent.Name) (string, error) {
	if holder := claimant(c, cl); holder != "" {
		return holder, nil
	}
	l, err := cl.Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{
		Name: &apiv1.LeaseName{Namespace: name.Namespace, Model: name.Model, Name: name.Lease},
	}))
	if err != nil {
		return "", client.AsError(err)
	}
	return l.Msg.GetLease().GetHolder(), nil
}

func closeSession(s *client.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	// Not told, the session ends at the server when its ttl passes.
	_ = s.Close(ctx)
}

// childEnvironment tells the child what it holds, in the names of our own
// flags: `incumbent lease extend $INCUMBENT_LEASE` within the child just works.
func childEnvironment(name incumbent.Name, holder string, token incumbent.Token, ttl time.Duration, deadline time.Time) []string {
	return append(os.Environ(),
		"INCUMBENT_NAMESPACE="+name.Namespace, "INCUMBENT_MODEL="+name.Model, "INCUMBENT_LEASE="+name.Lease,
		"INCUMBENT_HOLDER="+holder, "INCUMBENT_TOKEN="+token.String(),
		"INCUMBENT_TTL_MS="+strconv.FormatInt(ttl.Milliseconds(), 10),
		"INCUMBENT_DEADLINE_MS="+strconv.FormatInt(deadline.UnixMilli(), 10))
}

// givenServers hands the child, by the names of the flags, how this command was told
// to reach the servers.
func givenServers(c *cobra.Command) (env []string) {
	if c.Flags().Changed("server") {
		servers, _ := c.Flags().GetStringSlice("server")
		env = append(env, envPrefix+"SERVER="+strings.Join(servers, ","))
	}
	for _, flag := range []string{"credential-file", "ca", "cert", "key"} {
		if c.Flags().Changed(flag) {
			env = append(env, envPrefix+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))+"="+text(c, flag))
		}
	}
	return env
}

// notMyTurn says why the command was never started.
func notMyTurn(waiting context.Context, err error, name incumbent.Name, limit time.Duration) error {
	switch {
	case incumbent.KindOf(err) == incumbent.Held:
		return statusError{exitRunHeld, errorText(advise(err, name.Lease))}
	case errors.Is(waiting.Err(), context.DeadlineExceeded):
		return statusError{exitRunTimeout, fmt.Sprintf("waited %v for %s", limit, name.Lease)}
	case waiting.Err() != nil:
		return statusError{exitRunFault, "interrupted while waiting for " + name.Lease}
	}
	return err
}

func notRunnable(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOEXEC) {
		return statusError{exitCannotRun, err.Error()}
	}
	return statusError{exitNoSuchThing, err.Error()}
}

// heldLease is what the child runs under: a [client.Lease].
type heldLease interface {
	Remaining() time.Duration // until its own deadline; 0 when it is over
	Context() context.Context // ends with it, or when it is being revoked
}

// runHeld runs the child, unless the lease is over by now or about to be: between its
// grant and here it may have been asked who holds it, or this process stood still.
func runHeld(child *exec.Cmd, lease heldLease, signals <-chan os.Signal, grace time.Duration) error {
	if lease.Remaining() <= killMargin || lease.Context().Err() != nil {
		return statusError{exitLeaseLost, lostText(lease, "not started")}
	}
	return supervise(child, lease, signals, grace)
}

// supervise runs the child until it ends by itself or the lease is about to be
// lost: then it is told to stop, and killed while the lease is nobody else's. What
// is being revoked has the time until the deadline left for that.
func supervise(child *exec.Cmd, lease heldLease, signals <-chan os.Signal, grace time.Duration) error {
	// The kernel sends the death signal when the *thread* that started the child
	// ends, so that thread must live as long as the child.
	started, ended := make(chan error, 1), make(chan error, 1)
	go startAndWait(child, started, ended)
	if err := <-started; err != nil {
		return notRunnable(err)
	}
	told, over := false, lease.Context().Done()
	tell := func() {
		if !told {
			_ = child.Process.Signal(syscall.SIGTERM) // fails only if it has ended
			told = true
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			if told {
				return statusError{exitLeaseLost, lostText(lease, "stopped")}
			}
			return childStatus(err)
		case sig := <-signals:
			forward(child, sig)
		case <-timer.C:
			left := lease.Remaining()
			switch {
			case left <= killMargin:
				return killed(child, ended, lease)
			case left <= killMargin+grace:
				tell()
				timer.Reset(min(left-killMargin, killMargin))
			default: // an extension came; a child that was told to stop goes on stopping
				timer.Reset(min(left-killMargin-grace, killMargin))
			}
		case <-over:
			tell()
			over = nil
			timer.Reset(0) // the time that is left decides, and is looked at again and again: it may end early
		}
	}
}

// killed ends the child at once and says why.
func killed(child *exec.Cmd, ended <-chan error, lease heldLease) error {
	text := lostText(lease, "killed")
	_ = child.Process.Kill() // fails only if it has ended
	for range ended {        // closed once the child is gone; how it went does not matter
	}
	return statusError{exitLeaseLost, text}
}

// lostText says why and how a child was ended.
func lostText(lease heldLease, how string) string {
	if lease.Context().Err() != nil {
		return "the lease was lost: " + context.Cause(lease.Context()).Error() + "; the command was " + how
	}
	return "the lease could not be extended; the command was " + how + " before its deadline"
}

// maxSignal is the last signal of Linux; other systems have fewer.
const maxSignal = syscall.Signal(64)

// isOwn reports whether a signal concerns this process alone: its child has ended, Go's
// scheduler interrupts it, or a connection of its client has broken.
func isOwn(sig os.Signal) bool {
	return sig == syscall.SIGCHLD || sig == syscall.SIGURG || sig == syscall.SIGPIPE
}

// listen has the signals come that are forwarded, and no others: those would take the
// places of signals that nobody has read yet, as before the child has started.
func listen() (signals chan os.Signal, stop func()) {
	var forwarded []os.Signal
	for sig := syscall.Signal(1); sig <= maxSignal; sig++ {
		if !isOwn(sig) {
			forwarded = append(forwarded, sig)
		}
	}
	signals = make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	// Nobody reads these. Without them this process, and with it the child, would end by
	// writing where nobody reads its standard error any more; if they were ignored, the
	// child would ignore them, too.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return signals, func() { signal.Stop(signals); signal.Stop(broken) }
}

// forward passes a signal on, save for those that concern this process alone and
// those of the keyboard: at a terminal the child is in the foreground with us,
// and the kernel sends it each of these itself.
func forward(child *exec.Cmd, sig os.Signal) {
	if isOwn(sig) {
		return
	}
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH:
		if atTerminal() {
			return
		}
	}
	_ = child.Process.Signal(sig)
}

// atTerminal reports whether this process is in the foreground of a terminal.
func atTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // no terminal controls this process
	}
	defer tty.Close()
	return term.IsTerminal(int(tty.Fd())) && foreground(tty) == syscall.Getpgrp()
}

// foreground is the process group that a terminal sends its signals to, or -1.
func foreground(tty *os.File) int {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// childStatus turns the child's end into ours: its code, or 128 and the signal.
func childStatus(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return statusError{exitRunFault, err.Error()}
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return statusError{128 + int(ws.Signal()), ""}
	}
	return statusError{exit.ExitCode(), ""}
}
