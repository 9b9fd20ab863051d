package blackbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Claims run while the server is killed at moments it does not choose, snapshots
// among them. Whatever was acknowledged is there afterwards, with its token.
func TestG05_KillLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]uint64{}
	for round := range 5 {
		m := start(t, dir, nil, "--snapshot-bytes", "1048576")
		var mu sync.Mutex
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for w := range 8 {
			c := m.client()
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					name := fmt.Sprintf("r%d/w%d/%d", round, w, i)
					l, err := claim(t.Context(), c, name, "holder", time.Hour)
					if err != nil {
						return // killed
					}
					mu.Lock()
					acked[name] = l.Token
					mu.Unlock()
				}
			})
		}
		if round%2 == 1 {
			go func() {
				_, _ = m.client().Cluster().Snapshot(t.Context(), connect.NewRequest(&apiv1.SnapshotRequest{}))
			}()
		}
		want := len(acked) + 300*(round+1)
		eventually(t, patience, "some claims are acknowledged", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acked) >= want
		})
		m.kill()
		close(stop)
		wg.Wait()
	}
	m := start(t, dir, nil)
	c := m.client()
	have := listTokens(t, c)
	tokens := map[uint64]string{}
	for name, token := range acked {
		if have[name] != token {
			t.Errorf("%s was granted with token %d, and now has %d", name, token, have[name])
		}
		if other, twice := tokens[token]; twice {
			t.Errorf("token %d was given to %s and %s", token, name, other)
		}
		tokens[token] = name
	}
	t.Logf("%d acknowledged claims over 5 kills", len(acked))
}

func listTokens(t *testing.T, c *client.Client) map[string]uint64 {
	t.Helper()
	have := map[string]uint64{}
	req := &apiv1.ListRequest{Limit: 10_000}
	for {
		res, err := c.Leases().List(t.Context(), connect.NewRequest(req))
		if err != nil {
			t.Fatal(client.AsError(err))
		}
		for _, l := range res.Msg.Leases {
			have[l.Name.Name] = l.Token
			req.After = l.Name
		}
		if !res.Msg.More {
			return have
		}
	}
}

// The server stands still for three ttls while its clients go on extending.
// Nobody's lease goes to another, and every holder goes on with its token.
func TestG07_StallCostsNobodyTheirLease(t *testing.T) {
	const ttl = 6 * time.Second // longer than a loaded machine stands still besides
	m := start(t, t.TempDir(), nil)
	c := m.client()
	tokens, exts := holdAll(t, c, 50, ttl)
	if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// One request a third of a ttl, as holders do; they wait in the sockets.
	results := make(chan error, 9)
	beat := time.NewTicker(ttl / 3)
	defer beat.Stop()
	for range 9 {
		<-beat.C
		go func() {
			_, err := c.Leases().Extend(t.Context(), connect.NewRequest(&apiv1.ExtendRequest{Extensions: exts}))
			results <- err
		}()
	}
	rival := make(chan error, 1)
	go func() {
		_, err := claim(t.Context(), m.client(), "stall/0", "rival", ttl)
		rival <- err
	}()
	<-beat.C
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-rival; incumbent.KindOf(err) != incumbent.Held {
		t.Errorf("a rival was told %v, want held", err)
	}
	for range 9 {
		<-results // those that came too late for their own deadline may fail
	}
	if over := extendAll(t, c, exts); len(over) > 0 {
		t.Errorf("not extended: %v", over)
	}
	for name, token := range tokens {
		if got := get(t, c, name).Token; got != token {
			t.Errorf("%s had token %d before the stall and %d after", name, token, got)
		}
	}
}

// holdAll claims leases until it holds all of them at the same time, just extended:
// on a loaded machine the first may be over when the last is granted.
func holdAll(t *testing.T, c *client.Client, n int, ttl time.Duration) (tokens map[string]uint64, exts []*apiv1.Extension) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		tokens, exts = map[string]uint64{}, nil
		for i := range n {
			name := fmt.Sprintf("stall/%d", i)
			tokens[name] = mustClaim(t, c, name, "holder", ttl).Token
			exts = append(exts, &apiv1.Extension{Token: tokens[name]})
		}
		if len(extendAll(t, c, exts)) == 0 {
			return tokens, exts
		}
	}
	t.Fatalf("%d leases are never held at the same time", n)
	return nil, nil
}

// extendAll returns why what was not extended was not.
func extendAll(t *testing.T, c *client.Client, exts []*apiv1.Extension) (over []error) {
	t.Helper()
	res, err := c.Leases().Extend(t.Context(), connect.NewRequest(&apiv1.ExtendRequest{Extensions: exts}))
	if err != nil {
		t.Fatal(client.AsError(err))
	}
	for _, r := range res.Msg.Results {
		if r.Error != nil {
			over = append(over, client.DetailError(r.Error))
		}
	}
	return over
}

func TestG08_VanishedHolderIsFreedInTime(t *testing.T) {
	const ttl = time.Second
	m := start(t, t.TempDir(), nil)
	c := m.client()
	began := time.Now()
	mustClaim(t, c, "gone", "holder", ttl)
	res, err := c.Leases().WaitReleased(t.Context(), connect.NewRequest(&apiv1.WaitReleasedRequest{Name: &apiv1.LeaseName{Name: "gone"}, WaitMs: uint32(patience.Milliseconds() / 2)}))
	if err != nil || !res.Msg.Released {
		t.Fatalf("released %v, error %v", res.Msg.GetReleased(), err)
	}
	if took := time.Since(began); took < ttl {
		t.Errorf("freed after %v, before its ttl of %v", took, ttl)
	}
	out, _, code := m.cli("lease", "explain", "gone")
	if code != 0 || !strings.Contains(out, "did not extend it") {
		t.Errorf("explain says %q (exit %d)", out, code)
	}
}

func TestSecondServerOnOneDirectoryRefuses(t *testing.T) {
	dir := t.TempDir()
	start(t, dir, nil)
	second, err := tryStart(t, dir, nil)
	if err == nil {
		t.Fatal("two servers serve one data directory")
	}
	if code := second.wait(patience); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
	if !strings.Contains(second.stderr.String(), "lock") {
		t.Errorf("it does not name the lock: %s", second.stderr)
	}
}

// Damage in the middle of the log is refused with file and offset.
func TestG30_FlippedBitIsRefused(t *testing.T) {
	dir := t.TempDir()
	m := start(t, dir, nil)
	c := m.client()
	for i := range 50 {
		mustClaim(t, c, fmt.Sprintf("l/%d", i), "holder", time.Hour)
	}
	m.kill()
	segments, err := filepath.Glob(filepath.Join(dir, "log", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	data[2048] ^= 0x10 // well behind the head of the segment, well before its end
	if err := os.WriteFile(segments[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := tryStart(t, dir, nil)
	if err == nil {
		t.Fatal("a damaged log was accepted")
	}
	if again.wait(patience) == 0 || !strings.Contains(again.stderr.String(), filepath.Base(segments[0])) || !strings.Contains(again.stderr.String(), "at byte") {
		t.Errorf("file and offset are not named: %s", again.stderr)
	}
}

// A failed fsync stops the process with a clear message: what the kernel holds
// after it is not known.
func TestG31_FailedSyncStopsTheServer(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: .ci/run installs it", err)
	}
	dir := t.TempDir()
	m := start(t, dir, []string{"strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO:when=30+"})
	c := m.client()
	acked := map[string]uint64{}
	for i := range 200 {
		name := fmt.Sprintf("l/%d", i)
		l, err := claim(t.Context(), c, name, "holder", time.Hour)
		if err != nil {
			break
		}
		acked[name] = l.Token
	}
	if code := m.wait(patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if text := m.stderr.String(); !strings.Contains(text, "sync") || !strings.Contains(text, "input/output error") {
		t.Errorf("the message does not say what failed: %s", text)
	}
	if len(acked) == 0 || len(acked) == 200 {
		t.Fatalf("%d claims were acknowledged; the fault did not come while they ran", len(acked))
	}
	have := listTokens(t, start(t, dir, nil).client())
	for name, token := range acked {
		if have[name] != token {
			t.Errorf("%s was acknowledged with token %d, and has %d", name, token, have[name])
		}
	}
}

// A full disk refuses growth early, lets leases be given up, and recovers by
// itself when space returns.
func TestG31_FullDiskRefusesAndRecovers(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	m := start(t, filepath.Join(dir, "data"), nil, "--disk-reserve-bytes", "16777216")
	c := m.client()
	mustClaim(t, c, "before", "holder", time.Hour)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 46<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	eventually(t, patience, "growth is refused", func() bool {
		n++
		_, err := claim(t.Context(), c, fmt.Sprintf("while-full/%d", n), "holder", time.Hour)
		return incumbent.KindOf(err) == incumbent.Overloaded
	})
	if _, err := c.Leases().Release(t.Context(), connect.NewRequest(&apiv1.ReleaseRequest{Name: &apiv1.LeaseName{Name: "before"}, Holder: "holder"})); err != nil {
		t.Errorf("a release was refused: %v", client.AsError(err))
	}
	if out, _, _ := m.cli("status"); !strings.Contains(out, "disk-reserve-bytes") {
		t.Errorf("status does not name the setting that helps:\n%s", out)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "it grows again", func() bool {
		_, err := claim(t.Context(), c, "after", "holder", time.Hour)
		return err == nil
	})
}
