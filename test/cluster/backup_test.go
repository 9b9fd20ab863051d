package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/client"
)

// serversOf returns three members of one cluster, the first of which leads or
// another.
func serversOf(t *testing.T, more ...string) []*server {
	t.Helper()
	all := []*server{newServer(t, "n1", more...), newServer(t, "n2", more...), newServer(t, "n3", more...)}
	growFrom(t, all)
	return all
}

// growFrom starts the first member and lets the others join it.
func growFrom(t *testing.T, all []*server) {
	t.Helper()
	all[0].start()
	for _, s := range all[1:] {
		s.start("--join-file", all[0].tokenFor(s.name))
		all[0].until(s.name, "follower", "leader")
	}
}

// writers put keys and claim leases until they are told to stop, and know how far each
// of them was answered.
type writers struct {
	done [4]atomic.Int64
	stop chan struct{}
	all  sync.WaitGroup
}

func (s *server) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: []string{s.url}, CallTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func startWriters(t *testing.T, all []*server) *writers {
	t.Helper()
	w := &writers{stop: make(chan struct{})}
	for i := range w.done {
		c := all[i%len(all)].client(t)
		w.all.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-w.stop:
					return
				default:
				}
				if _, err := c.KV("").Put(t.Context(), writtenKey(i, n), []byte("value")); err != nil {
					return // killed
				}
				if _, err := claim(t.Context(), c, writtenKey(i, n), "writer", time.Hour); err != nil {
					return
				}
				w.done[i].Store(n)
			}
		})
	}
	return w
}

func writtenKey(writer int, n int64) string { return fmt.Sprintf("w%d/%d", writer, n) }

// progressed waits until each writer has written n more.
func (w *writers) progressed(t *testing.T, n int64) {
	t.Helper()
	for i := range w.done {
		want := w.done[i].Load() + n
		eventually(t, patience, "writers write", func() bool { return w.done[i].Load() >= want })
	}
}

// refusedPeers is how many connections of other members a member has refused.
func (s *server) refusedPeers(t *testing.T) (n float64) {
	t.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "incumbent_peer_refusals_total{") {
			_, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
	}
	return n
}

// Three members are written to and backed up meanwhile, all are killed, and a new
// cluster is made of the backup: it has whatever was acknowledged before the backup
// began, grows to three, issues greater tokens, and has nothing to do with the old
// members.
func TestG03_G05_RestoredFromABackup(t *testing.T) {
	old := serversOf(t)
	load := startWriters(t, old)
	load.progressed(t, 20)
	var before [len(load.done)]int64
	for i := range before {
		before[i] = load.done[i].Load()
	}
	file := filepath.Join(t.TempDir(), "cluster.backup")
	var made struct{ Member, Cluster, Index string }
	if err := json.Unmarshal([]byte(old[0].verb(0, "backup", "create", file, "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	if leader := old[0].leader(); made.Member == leader {
		t.Logf("the backup is from %s, which leads by now", made.Member)
	}
	load.progressed(t, 5)
	last, err := claim(t.Context(), old[1].client(t), "last", "holder", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	close(load.stop)
	load.all.Wait()
	for _, s := range old {
		s.kill()
	}
	if out, errs, code := cli(t, "backup", "verify", file); code != 0 {
		t.Fatalf("verify: exit code %d\n%s%s", code, out, errs)
	}

	// The new first member has the addresses of the old one.
	next := []*server{newServer(t, "n1"), newServer(t, "n2"), newServer(t, "n3")}
	next[0].url = old[0].url
	next[0].args = append([]string{"--data-dir", next[0].dir}, old[0].args[2:]...)
	out, errs, code := cli(t, "backup", "restore", file, "--data-dir", next[0].dir, "--name", "n1")
	if code != 0 {
		t.Fatalf("restore: exit code %d\n%s%s", code, out, errs)
	}
	next[0].start()
	oldMembersStayOut(t, next[0], old)
	for _, s := range next[1:] {
		s.start("--join-file", next[0].tokenFor(s.name))
		next[0].until(s.name, "follower", "leader")
	}
	for _, s := range next {
		c := s.client(t)
		for i, n := range before {
			for k := int64(1); k <= n; k++ {
				if e, err := c.KV("").Get(t.Context(), writtenKey(i, k)); err != nil || string(e.Value) != "value" {
					t.Fatalf("%s has not %s: %v", s.name, writtenKey(i, k), err)
				}
				if l, err := get(t.Context(), c, writtenKey(i, k)); err != nil || l.Holder != "writer" {
					t.Fatalf("%s: lease %s: %v, %v", s.name, writtenKey(i, k), l, err)
				}
			}
		}
	}
	l, err := claim(t.Context(), next[2].client(t), "last", "another", time.Minute)
	if err != nil || l.Token <= last.Token {
		t.Errorf("granted %v, the old cluster granted %d: %v", l, last.Token, err)
	}
	eventually(t, patience, "all is healthy", func() bool {
		out, _, code := cli(t, "status", "--server", next[0].url)
		return code == 0 && strings.HasPrefix(out, "healthy")
	})
}

// oldMembersStayOut starts a member of the old cluster beside the new one: neither
// hears the other, nor does the old one join.
func oldMembersStayOut(t *testing.T, first *server, old []*server) {
	t.Helper()
	joining := exec.Command(binary(t), append([]string{"server", "--join-file", first.tokenFor(old[1].name)}, old[1].args...)...)
	if out, err := joining.CombinedOutput(); joining.ProcessState.ExitCode() != 6 {
		t.Errorf("an old member with the new token: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	old[2].cmd = exec.Command(binary(t), append([]string{"server"}, old[2].args...)...)
	old[2].cmd.Stderr = log
	old[2].cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := old[2].cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the new member refuses the old one", func() bool { return first.refusedPeers(t) > 0 })
	if got := first.ls(); len(got) != 1 || got["n1"] != "leader" {
		t.Errorf("there are %v", got)
	}
	old[2].kill()
}
