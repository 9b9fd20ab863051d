package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// as runs the command line as the cluster's operator against a member.
func (c *trio) as(m *member, args ...string) string {
	c.t.Helper()
	out, stderr, code := cli(c.t, append(args, "--server", m.URL, "--ca", c.CA, "--cert", c.Cert, "--key", c.Key)...)
	if code != 0 {
		c.t.Fatalf("%v: exit code %d, %s", args, code, stderr)
	}
	return out
}

// newCredential makes one in the cluster and returns its id and its secret.
func (c *trio) newCredential(m *member, flag string, args ...string) (id, secret string) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "secret")
	var made struct{ ID string }
	out := c.as(m, append([]string{"credential", "create", "-o", "json", flag, file}, args...)...)
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		c.t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	secret = strings.TrimSpace(string(text))
	if strings.Contains(out, secret) {
		c.t.Error("the secret is printed")
	}
	return made.ID, secret
}

// bearer is a client of one member with a token, or with a certificate's files.
func (c *trio) bearer(m *member, cfg client.Config) *client.Client {
	c.t.Helper()
	cfg.Servers, cfg.CAFile = []string{m.URL}, c.CA
	cl, err := client.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

func reads(cl *client.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := cl.Leases().List(ctx, connect.NewRequest(&apiv1.ListRequest{}))
	return client.AsError(err)
}

// ending is something that lasts until who began it is cut off.
type ending struct {
	what string
	over <-chan error
}

// lasting begins all that a client can begin and that lasts: a stream, a call that
// waits for a lease, a watch, a timeline.
func (c *trio) lasting(cl *client.Client, held *apiv1.Lease) (all []ending) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	c.t.Cleanup(cancel)
	begin := func(what string, f func(begun func()) error) {
		begun, over := make(chan struct{}), make(chan error, 1)
		go func() { over <- f(func() { close(begun) }) }()
		select {
		case <-begun:
		case err := <-over:
			c.t.Fatalf("%s ends at once: %v", what, err)
		}
		all = append(all, ending{what, over})
	}
	begin("a stream", func(begun func()) error {
		_, in, err := cl.DialStream(ctx, client.StreamOptions{})
		if err != nil {
			return err
		}
		begun()
		for err == nil {
			_, err = in.ReadByte()
		}
		return incumbent.Errorf(incumbent.Denied, "%w", err)
	})
	begin("a wait", func(begun func()) error {
		begun()
		_, err := cl.Leases().WaitReleased(ctx, connect.NewRequest(&apiv1.WaitReleasedRequest{
			Name: &apiv1.LeaseName{Name: held.Name.Name}, AfterToken: held.Token, WaitMs: 600_000,
		}))
		return client.AsError(err)
	})
	begin("a watch", func(begun func()) error {
		s, err := cl.Leases().Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{Name: &apiv1.LeaseName{}, Prefix: true}))
		if err != nil {
			return client.AsError(err)
		}
		for n := 0; s.Receive(); n++ {
			if n == 0 {
				begun()
			}
		}
		return client.AsError(s.Err())
	})
	begin("a timeline", func(begun func()) error {
		s, err := cl.Cluster().Events(ctx, connect.NewRequest(&apiv1.EventsRequest{Follow: true}))
		if err != nil {
			return client.AsError(err)
		}
		for n := 0; s.Receive(); n++ {
			if n == 0 {
				begun()
			}
		}
		return client.AsError(s.Err())
	})
	return all
}

// cutOff waits until all of it has ended as denied.
func (c *trio) cutOff(since time.Time, all []ending) {
	c.t.Helper()
	for _, e := range all {
		select {
		case err := <-e.over:
			if incumbent.KindOf(err) != incumbent.Denied {
				c.t.Errorf("%s ends with %v", e.what, err)
			}
			c.t.Logf("%s has ended after %v", e.what, time.Since(since))
		case <-time.After(patience):
			c.t.Fatalf("%s goes on", e.what)
		}
	}
}

func goesOn(t *testing.T, all []ending) {
	t.Helper()
	for _, e := range all {
		select {
		case err := <-e.over:
			t.Errorf("%s of somebody else has ended: %v", e.what, err)
		default:
		}
	}
}

// jujuLogin connects an agent to a member and returns what it is told, and what lasts
// if it was let in.
func jujuLogin(t *testing.T, m *member, tag, password string) (says string, open ending) {
	t.Helper()
	d := ws.Dialer{TLSConfig: &tls.Config{InsecureSkipVerify: true}, Timeout: patience} //nolint:gosec // as Juju's agents of tests do
	conn, _, _, err := d.Dial(t.Context(), "wss://"+m.Juju+"/model/deadbeef-0bad-400d-8000-4b1d0d06f00d/api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	login := fmt.Sprintf(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":%q,"credentials":%q}}`, tag, password)
	if err := wsutil.WriteClientText(conn, []byte(login)); err != nil {
		t.Fatal(err)
	}
	reply, err := wsutil.ReadServerText(conn)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() {
		_, err := wsutil.ReadServerText(conn)
		over <- incumbent.Errorf(incumbent.Denied, "%w", err)
	}()
	return string(reply), ending{"an agent of Juju's", over}
}

// What is revoked, or has ended, lets nobody in any more on any member, and cuts off
// whoever came in by it: streams, calls that wait, watches, agents of Juju's. What
// others have begun goes on.
func TestG12_WhatIsRevokedIsCutOffOnEveryMember(t *testing.T) {
	c := start(t, "--tls", "--juju-listen", "127.0.0.1:0")
	first, other := c.Members[0], c.Members[1]
	held, err := claim(t.Context(), c.clientOf(first), "held", "somebody", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	stays, stayToken := c.newCredential(first, "--token-file", "observer:stays")
	goes, token := c.newCredential(first, "--token-file", "agent:goes", "--end-sessions")
	password, secret := c.newCredential(first, "--password-file", "unit-app-0")
	folder := filepath.Join(t.TempDir(), "tls")
	c.as(first, "tls", "issue", "agent:cert", "--out", folder)
	certified := client.Config{CertFile: filepath.Join(folder, "client.crt"), KeyFile: filepath.Join(folder, "client.key")}
	for _, m := range c.Members {
		for name, cfg := range map[string]client.Config{stays: {Credential: stayToken}, goes: {Credential: token}, "certificate": certified} {
			eventually(t, patience, "credential "+name+" is known at "+m.Name, func() bool { return reads(c.bearer(m, cfg)) == nil })
		}
	}

	remain := c.lasting(c.bearer(other, client.Config{Credential: stayToken}), held)
	out := c.lasting(c.bearer(other, client.Config{Credential: token}), held)
	session, err := c.bearer(other, client.Config{Credential: token}).Open(t.Context(), client.SessionConfig{Holder: "goes", TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = session.Close(gone) // nobody lets it close any more
	})
	if _, err := session.Claim(t.Context(), leaseName("of-the-session"), client.ClaimOptions{}); err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	c.as(first, "credential", "revoke", goes)
	c.cutOff(since, out)
	for _, m := range c.Members {
		eventually(t, patience, "the token is refused at "+m.Name, func() bool {
			return incumbent.KindOf(reads(c.bearer(m, client.Config{Credential: token}))) == incumbent.Denied
		})
	}
	eventually(t, patience, "what its session held is free", func() bool {
		l, err := get(t.Context(), c.clientOf(first), "of-the-session")
		return err == nil && l.Token == 0
	})

	out = c.lasting(c.bearer(other, certified), held)
	since = time.Now()
	c.as(first, "tls", "revoke", "--file", certified.CertFile)
	c.cutOff(since, out)
	if err := reads(c.bearer(c.Members[2], certified)); incumbent.KindOf(err) != incumbent.Denied {
		eventually(t, patience, "the certificate is refused", func() bool { return incumbent.KindOf(reads(c.bearer(c.Members[2], certified))) == incumbent.Denied })
	}

	var agent ending
	eventually(t, patience, "the agent is let in", func() bool {
		says, open := jujuLogin(t, other, "unit-app-0", secret)
		agent = open
		return strings.Contains(says, "server-version")
	})
	since = time.Now()
	c.as(first, "credential", "revoke", password)
	c.cutOff(since, []ending{agent})
	if says, _ := jujuLogin(t, other, "unit-app-0", secret); !strings.Contains(says, "unauthorized access") {
		t.Errorf("the password that was revoked: %s", says)
	}

	// One that ends by itself.
	ends, short := c.newCredential(first, "--token-file", "agent:short", "--ttl", "20s")
	eventually(t, patience, "it is known", func() bool { return reads(c.bearer(other, client.Config{Credential: short})) == nil })
	c.cutOff(time.Now(), c.lasting(c.bearer(other, client.Config{Credential: short}), held))
	if err := reads(c.bearer(c.Members[2], client.Config{Credential: short})); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("behind its end: %v", err)
	}
	eventually(t, patience, "that it has ended is written down", func() bool {
		return strings.Contains(c.as(first, "credential", "ls", "--all"), "ended 20")
	})
	goesOn(t, remain)
	list := c.as(c.Members[2], "credential", "ls", "--all")
	for _, want := range []string{stays, goes, password, ends, "observer:stays", "agent:cert", "revoked"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list lacks %s:\n%s", want, list)
		}
	}
	for _, secret := range []string{token, stayToken, secret, short} {
		if strings.Contains(list, secret) {
			t.Error("the list shows a secret")
		}
	}
}

// A restored cluster keeps the credentials, and what was revoked stays revoked; a
// member that starts again, too.
func TestG12_CredentialsOutliveARestart(t *testing.T) {
	c := start(t, "--tls")
	first := c.Members[0]
	_, token := c.newCredential(first, "--token-file", "agent:a")
	gone, revoked := c.newCredential(first, "--token-file", "agent:b")
	c.as(first, "credential", "revoke", gone)
	file := filepath.Join(t.TempDir(), "b")
	c.as(first, "backup", "create", file)
	other := c.Members[1]
	other.kill(t)
	other.again(t, nil)
	eventually(t, patience, "the token is known after a restart", func() bool { return reads(c.bearer(other, client.Config{Credential: token})) == nil })
	if err := reads(c.bearer(other, client.Config{Credential: revoked})); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("what was revoked: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	out, stderr, code := cli(t, "backup", "restore", file, "--data-dir", dir, "--name", "n1")
	if code != 0 || !strings.Contains(out, "2 credential") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}
