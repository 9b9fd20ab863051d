package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// spread is a cluster whose members are hosts of their own: network namespaces
// on one bridge. A route into a black hole cuts one direction between two hosts;
// the test itself, at address 254, reaches everybody always.
//
//	n1 10.77.0.1 ─┐
//	n2 10.77.0.2 ─┼─ bridge (namespace hub) ─ 10.77.0.254 this process
//	n3 10.77.0.3 ─┘
type spread struct {
	*trio
	prefix string
}

func host(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// ip runs ip(8).
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// startSpread starts n members on n hosts, with TLS between them and to clients.
func startSpread(t *testing.T, n int) *spread {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip(8) is not here")
	}
	s := &spread{prefix: fmt.Sprintf("inc%d", os.Getpid())}
	if err := ip("netns", "add", s.prefix+"hub"); err != nil {
		t.Skip("network namespaces cannot be made here: ", err)
	}
	t.Cleanup(func() {
		_ = ip("netns", "del", s.prefix+"hub") // its links go with it
		for i := range n {
			_ = ip("netns", "del", s.space(i))
		}
	})
	s.network(t, n)
	s.trio = &trio{t: t, dir: t.TempDir()}
	s.boot(t, n)
	return s
}

func (s *spread) space(i int) string { return fmt.Sprintf("%sn%d", s.prefix, i+1) }

func (s *spread) network(t *testing.T, n int) {
	t.Helper()
	hub := s.prefix + "hub"
	steps := [][]string{
		{"-n", hub, "link", "add", "br0", "type", "bridge"},
		{"-n", hub, "link", "set", "br0", "up"},
		{"link", "add", s.prefix, "type", "veth", "peer", "name", "out", "netns", hub},
		{"addr", "add", "10.77.0.254/24", "dev", s.prefix},
		{"link", "set", s.prefix, "up"},
		{"-n", hub, "link", "set", "out", "master", "br0", "up"},
	}
	for i := range n {
		port := fmt.Sprintf("p%d", i+1)
		steps = append(steps,
			[]string{"netns", "add", s.space(i)},
			[]string{"-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", s.space(i)},
			[]string{"-n", hub, "link", "set", port, "master", "br0", "up"},
			[]string{"-n", s.space(i), "addr", "add", host(i) + "/24", "dev", "eth0"},
			[]string{"-n", s.space(i), "link", "set", "lo", "up"},
			[]string{"-n", s.space(i), "link", "set", "eth0", "up"},
		)
	}
	for _, args := range steps {
		if err := ip(args...); err != nil {
			t.Fatal(err)
		}
	}
}

// boot founds the cluster at the first host and lets the others join.
func (s *spread) boot(t *testing.T, n int) {
	t.Helper()
	dir := filepath.Join(s.dir, "n1")
	if _, stderr, code := cli(t, "cluster", "init", "--data-dir", dir, "--name", "n1", "--host", host(0)); code != 0 {
		t.Fatalf("cluster init: %d: %s", code, stderr)
	}
	tls := filepath.Join(dir, "tls")
	s.CA, s.Cert, s.Key = filepath.Join(tls, "ca.crt"), filepath.Join(tls, "operator.crt"), filepath.Join(tls, "operator.key")
	s.cmd = exec.Command("true") // nothing supervises: each member is started here
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	var first *member
	for i := range n {
		m := &member{Name: fmt.Sprintf("n%d", i+1), URL: "https://" + host(i) + ":7600"}
		m.DataDir, m.Log = filepath.Join(s.dir, m.Name), filepath.Join(s.dir, m.Name+".log")
		if err := os.WriteFile(m.Log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		m.Command = []string{
			"ip", "netns", "exec", s.space(i), binary(t), "server", "--data-dir", m.DataDir, "--name", m.Name,
			"--listen", host(i) + ":7600", "--peer-listen", host(i) + ":7601", "--return-time", "1s", "--log-segment-bytes", "4194304",
		}
		s.Members = append(s.Members, m)
		if first == nil {
			m.again(t, nil)
			s.leader(m)
			first = m
			continue
		}
		m.again(t, nil, "--join-file", s.tokenFor(first, m.Name))
	}
	eventually(t, patience, "all vote", func() bool {
		got, err := s.membersAt(s.Members[0])
		voters := 0
		for _, m := range got.GetMembers() {
			s.named(m.Name).ID = m.Id
			if m.Role == "leader" || m.Role == "follower" {
				voters++
			}
		}
		return err == nil && voters == n
	})
}

// tokenFor has a member make a token, and returns the file that holds it.
func (c *trio) tokenFor(m *member, name string) string {
	c.t.Helper()
	res, err := c.clientOf(m).Cluster().CreateToken(c.t.Context(), connect.NewRequest(&apiv1.CreateTokenRequest{Name: name, Signer: true}))
	if err != nil {
		c.t.Fatal(client.AsError(err))
	}
	return tokenFile(c.t, res.Msg.Token)
}

// tokenFile is a file that holds a join token.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *spread) index(m *member) int {
	for i, is := range s.Members {
		if is == m {
			return i
		}
	}
	s.t.Fatalf("%s is no member", m.Name)
	return -1
}

// cut makes nothing of from arrive at to.
func (s *spread) cut(from, to *member) {
	s.t.Helper()
	if err := ip("-n", s.space(s.index(from)), "route", "add", "blackhole", host(s.index(to))+"/32"); err != nil {
		s.t.Fatal(err)
	}
}

// heal takes all cuts back.
func (s *spread) heal() {
	for i := range s.Members {
		for k := range s.Members {
			_ = ip("-n", s.space(i), "route", "del", "blackhole", host(k)+"/32") // most were never cut
		}
	}
}

// Partitions of every shape under load: nobody loses a lease or gets a wrong
// answer, and as soon as a majority can talk it goes on.
func TestG35_Partitions(t *testing.T) {
	s := startSpread(t, 3)
	// Who extends every third of it, and learns only then that its member is cut off,
	// has the rest for going elsewhere, an election, and what the machine stands still.
	const ttl = 20 * time.Second
	const short, long = 6 * electionTimeout, ttl + 4*electionTimeout
	holders := s.holders(20, ttl)
	load := s.startLoad(3)
	for _, shape := range []struct {
		name string
		last time.Duration // of the fault; beyond the holders' ttl they must have gone elsewhere
		cut  func(leader *member, others []*member)
	}{
		{"leader alone", short, func(l *member, os []*member) {
			for _, o := range os {
				s.cut(l, o)
				s.cut(o, l)
			}
		}},
		{"leader cannot be heard", long, func(l *member, os []*member) {
			for _, o := range os {
				s.cut(l, o)
			}
		}},
		{"leader cannot hear", short, func(l *member, os []*member) {
			for _, o := range os {
				s.cut(o, l)
			}
		}},
		{"leader and one other do not see each other", short, func(l *member, os []*member) {
			s.cut(l, os[0])
			s.cut(os[0], l)
		}},
		{"a follower alone", long, func(_ *member, os []*member) {
			s.cut(os[0], os[1])
			s.cut(os[1], os[0])
			s.cut(os[0], s.leader())
			s.cut(s.leader(), os[0])
		}},
	} {
		leader := s.leader()
		others := s.others(leader)
		shape.cut(leader, others)
		s.someoneServes(t, shape.name)
		time.Sleep(shape.last) // the fault itself
		s.heal()
		s.leader()
		holders.stillHeld(shape.name)
	}
	load.finish(t)
	holders.stillHeld("the end")
	s.sameState(t)
}

// someoneServes waits until a claim comes through: there is a majority that can
// talk in every partition of these tests.
func (s *spread) someoneServes(t *testing.T, during string) {
	t.Helper()
	name := strings.ReplaceAll(during, " ", "-")
	began := time.Now()
	eventually(t, patience, "a claim during: "+during, func() bool {
		for _, m := range s.Members {
			if _, err := claimWithin(t, s.clientOf(m), name, 2*time.Second); err == nil {
				return true
			}
		}
		return false
	})
	t.Logf("%s: a claim came through after %v", during, time.Since(began).Round(10*time.Millisecond))
}
