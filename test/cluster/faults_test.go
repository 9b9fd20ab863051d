package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Every member serves everything, and answers after it has seen its own write.
func TestEveryMemberServesEverything(t *testing.T) {
	c := start(t, "--members", "3", "--learners", "1")
	for i, m := range c.Members {
		name := fmt.Sprintf("at-%d", i)
		at := c.clientOf(m)
		l, err := claim(t.Context(), at, name, "h", time.Minute)
		if err != nil {
			t.Fatalf("claim at %s: %v", m.Name, err)
		}
		for _, other := range c.Members {
			got, err := get(t.Context(), c.clientOf(other), name)
			if err != nil || got.Token != l.Token {
				t.Errorf("%s says of what %s granted under %d: %v, %v", other.Name, m.Name, l.Token, got, err)
			}
			res, err := c.clientOf(other).Leases().Extend(t.Context(), connect.NewRequest(&apiv1.ExtendRequest{Extensions: []*apiv1.Extension{{Token: l.Token}}}))
			if err != nil || res.Msg.Results[0].Error != nil {
				t.Errorf("extending at %s: %v, %v", other.Name, res, err)
			}
			if _, err := claim(t.Context(), c.clientOf(other), name, "another", time.Minute); incumbent.KindOf(err) != incumbent.Held {
				t.Errorf("a second claim at %s: %v, want Held", other.Name, err)
			}
		}
		next := c.from(i + 1)[0]
		if _, err := c.clientOf(next).Leases().Release(t.Context(), connect.NewRequest(&apiv1.ReleaseRequest{Name: &apiv1.LeaseName{Name: name}, Token: l.Token})); err != nil {
			t.Errorf("release at %s: %v", next.Name, err)
		}
		if got, err := get(t.Context(), at, name); err != nil || got.Token != 0 {
			t.Errorf("after its release %s says %v, %v", m.Name, got, err)
		}
	}
}

// The leader is killed, again and again: nobody loses a lease, every answer is
// explained, and the members that were killed come back.
func TestG05_G06_G43_KilledLeader(t *testing.T) {
	c := start(t, "--members", "3")
	holders := c.holders(30, holdersTTL)
	load := c.startLoad(3)
	for round := range 3 {
		leader := c.leader()
		leader.kill(t)
		c.leader(c.others(leader)...)
		holders.stillHeld(fmt.Sprintf("kill %d of the leader", round+1))
		leader.again(t, nil)
		c.leader()
	}
	load.finish(t)
	holders.stillHeld("the end")
	c.sameState(t)
}

// A leader that stood still finds itself deposed: no stale answer, no expiry, no
// second grant comes of it.
func TestG07_G36_StoppedLeader(t *testing.T) {
	c := start(t, "--members", "3")
	holders := c.holders(30, holdersTTL)
	load := c.startLoad(3)
	for _, d := range []time.Duration{electionTimeout / 2, electionTimeout, 3 * electionTimeout, 10 * electionTimeout} {
		leader := c.leader()
		leader.signal(syscall.SIGSTOP)
		time.Sleep(d) // the fault itself
		leader.signal(syscall.SIGCONT)
		c.leader()
		holders.stillHeld("a stop of " + d.String())
	}
	load.finish(t)
	holders.stillHeld("the end")
	c.sameState(t)
}

// Power fails everywhere at once: what was acknowledged is there again.
func TestG05_G26_AllKilledAtOnce(t *testing.T) {
	c := start(t, "--members", "3")
	holders := c.holders(10, holdersTTL)
	load := c.startLoad(3)
	last, err := claim(t.Context(), c.clientOf(c.Members[0]), "last", "h", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Members {
		m.signal(syscall.SIGKILL)
	}
	for _, m := range c.Members {
		m.kill(t)
		m.again(t, nil)
	}
	c.leader()
	for _, m := range c.Members {
		got, err := get(t.Context(), c.clientOf(m), "last")
		if err != nil || got.Token != last.Token {
			t.Errorf("%s says %v, %v; want token %d", m.Name, got, err, last.Token)
		}
	}
	load.finish(t)
	holders.stillHeld("all were killed")
	c.sameState(t)
}

// A member whose disk was wiped does not come back under its old id; with a
// token it joins anew in its own place. One whose disk was rolled back is told.
func TestG33_G34_WipedAndRolledBack(t *testing.T) {
	c := start(t, "--members", "3")
	holders := c.holders(10, holdersTTL)
	leader := c.leader()
	wiped, rolled := c.others(leader)[0], c.others(leader)[1]
	old := wiped.ID
	wiped.kill(t)
	if err := os.RemoveAll(wiped.DataDir); err != nil {
		t.Fatal(err)
	}
	wiped.again(t, nil, "--join-file", c.tokenFor(leader, wiped.Name))
	eventually(t, patience, wiped.Name+" votes again under a new id", func() bool {
		got, err := c.membersAt(leader)
		if err != nil || len(got.Members) != 3 {
			return false
		}
		for _, m := range got.Members {
			if m.Name == wiped.Name {
				return m.Id != old && m.Role == "follower" && m.Connected
			}
		}
		return false
	})

	rolled.kill(t)
	copied := rolled.DataDir + ".old"
	if out, err := exec.Command("cp", "-r", rolled.DataDir, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rolled.again(t, nil)
	c.leader()
	rolled.kill(t)
	if err := os.RemoveAll(rolled.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied, rolled.DataDir); err != nil {
		t.Fatal(err)
	}
	rolled.again(t, nil)
	ended := make(chan error, 1)
	go func() { ended <- rolled.cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a member that was rolled back ended without an error")
		}
	case <-time.After(patience):
		t.Error("a member that was rolled back goes on")
		rolled.kill(t)
	}
	rolled.cmd = nil
	if said, _ := os.ReadFile(rolled.Log); !strings.Contains(string(said), "new id") {
		t.Errorf("%s does not say what to do", rolled.Log)
	}
	holders.stillHeld("two members had gone")
}

// A disk that takes 300 ms for every flush slows answers down, and does not keep
// leadership moving.
func TestG32_SlowDisk(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not here")
	}
	c := start(t, "--members", "3")
	holders := c.holders(10, holdersTTL)
	slow := c.others(c.leader())[0]
	slow.kill(t)
	slow.again(t, traced("delay_enter=300000"))
	c.leader()
	load := c.startLoad(2)
	// A machine that stands still moves leadership too; a disk that does so does it
	// all the time.
	eventually(t, patience, "leadership moves once at most", func() bool {
		before := c.status(c.Members[0]).Term
		time.Sleep(5 * time.Second) // the fault itself
		after := c.status(c.Members[0]).Term
		t.Logf("leadership moved %d times", after-before)
		return after <= before+1
	})
	load.finish(t)
	holders.stillHeld("a slow disk")
}

// The disk of one member is full to the last byte: the others go on, and it
// catches up once there is space.
func TestG31_FullDiskOfAMember(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "n2")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	c := startIn(t, dir, "--members", "3")
	holders := c.holders(10, holdersTTL)
	ballast := filepath.Join(small, "ballast")
	if out, err := exec.Command("dd", "if=/dev/zero", "of="+ballast, "bs=1M").CombinedOutput(); err == nil {
		t.Fatalf("the disk does not fill: %s", out)
	}
	load := c.startLoad(2)
	full := c.named("n2")
	eventually(t, patience, "another member says that the disk of n2 is full", func() bool {
		said := strings.Join(c.status(c.others(full)[0]).Warnings, "\n")
		return strings.Contains(said, "n2")
	})
	if _, err := claim(t.Context(), c.clientOf(c.others(full)[0]), "meanwhile", "h", time.Minute); err != nil {
		t.Errorf("a claim while one of three disks is full: %v", err)
	}
	holders.stillHeld("a full disk")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	c.leader()
	load.finish(t)
	c.sameState(t)
}

// A member whose flush fails stops at once and says so; the others go on, and
// with a good disk it comes back.
func TestG31_FailedFlushOfAMember(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not here")
	}
	c := start(t, "--members", "3")
	holders := c.holders(10, holdersTTL)
	m := c.others(c.leader())[0]
	m.kill(t)
	m.again(t, traced("error=EIO:when=30+"))
	load := c.startLoad(3)
	ended := make(chan error, 1)
	go func() { ended <- m.cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(patience):
		t.Fatal("a member whose flushes fail goes on")
	}
	m.cmd = nil
	if said, _ := os.ReadFile(m.Log); !strings.Contains(string(said), "input/output error") {
		t.Errorf("%s does not say what failed", m.Log)
	}
	holders.stillHeld("a failed flush")
	m.again(t, nil)
	c.leader()
	load.finish(t)
	c.sameState(t)
}

// Members leave in order: nobody notices more than a pause.
func TestG48_G49_RollingRestart(t *testing.T) {
	c := start(t, "--members", "3")
	holders := c.holders(20, holdersTTL)
	load := c.startLoad(2)
	for _, m := range c.from(1) {
		m.signal(syscall.SIGTERM)
		eventually(t, patience, m.Name+" has left", func() bool { return syscall.Kill(m.PID, 0) != nil })
		m.again(t, nil)
		c.leader()
	}
	load.finish(t)
	holders.stillHeld("a rolling restart")
	c.sameState(t)
}

// sameState fails unless all members show the same leases. That whole states are
// equal at equal index the members check themselves, and stop if they are not.
func (c *trio) sameState(t *testing.T) {
	t.Helper()
	why := ""
	eventually(t, patience, "the members agree", func() bool {
		want := ""
		for _, m := range c.Members {
			got, err := c.leasesAt(t, m)
			if err != nil || want != "" && got != want {
				why = fmt.Sprintf("%v: %s shows\n%s\nothers\n%s", err, m.Name, got, want)
				return false
			}
			want = got
		}
		return true
	})
	if t.Failed() {
		t.Log(why)
	}
}

// leasesAt writes down every lease as a member shows it.
func (c *trio) leasesAt(t *testing.T, m *member) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := c.clientOf(m).Leases().List(ctx, connect.NewRequest(&apiv1.ListRequest{}))
	if err != nil {
		return "", client.AsError(err)
	}
	var b strings.Builder
	for _, l := range res.Msg.Leases {
		fmt.Fprintf(&b, "%s %s %d %d\n", l.Name.Name, l.Holder, l.Token, l.LastToken)
	}
	return b.String(), nil
}
