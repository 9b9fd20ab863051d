package accept

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pairOf returns both ends of a connection.
func pairOf(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err == nil {
		server, err = ln.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

var anybody = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test's own server

// TestG43_HandshakesTakeTurns: as many are computed at once as there are turns; the next one is when
// one of them waits for its peer, however long that takes to answer.
func TestG43_HandshakesTakeTurns(t *testing.T) {
	cert := certificate(t)
	var computing, most atomic.Int64
	goOn := make(chan struct{})
	config := &tls.Config{Certificates: []tls.Certificate{cert}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := Turn(hello); err != nil {
			return nil, err
		}
		most.Store(max(most.Load(), computing.Add(1)))
		<-goOn
		computing.Add(-1)
		return nil, nil
	}}
	all := cap(turns) + 20
	var done sync.WaitGroup
	for range all {
		client, server := pairOf(t)
		done.Go(func() {
			if err := tls.Client(client, anybody).Handshake(); err != nil {
				t.Error(err)
			}
		})
		done.Go(func() {
			if _, err := Handshake(server, config); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); computing.Load() < int64(cap(turns)) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // in which one too many would come
	if n := computing.Load(); n != int64(cap(turns)) {
		t.Errorf("%d are computed at once, want %d", n, cap(turns))
	}
	close(goOn)
	done.Wait()
	if n := most.Load(); n > int64(cap(turns)) || len(turns) != 0 {
		t.Errorf("%d were computed at once of %d; %d turns are still taken", n, cap(turns), len(turns))
	}
}

// TestG47_WhoSaysHelloTakesNoTurn: while many say nothing more, another's handshake succeeds.
func TestG47_WhoSaysHelloTakesNoTurn(t *testing.T) {
	config := InTurns(&tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	var silent sync.WaitGroup
	for range 2 * cap(turns) {
		client, server := pairOf(t)
		go func() { _ = tls.Client(noReads{client, t.Context().Done()}, anybody).Handshake() }()
		silent.Go(func() {
			if _, err := Handshake(server, config); err == nil {
				t.Error("a handshake with a silent client succeeded")
			}
		})
		defer client.Close()
	}
	client, server := pairOf(t)
	done := make(chan error, 1)
	go func() { done <- tls.Client(client, anybody).Handshake() }()
	if err := server.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := Handshake(server, config); err != nil || <-done != nil {
		t.Errorf("a handshake beside silent clients: %v", err)
	}
	t.Cleanup(silent.Wait) // before it their connections are closed
}

// TestATurnIsGivenBack by handshakes that fail, whoever ends them.
func TestATurnIsGivenBack(t *testing.T) {
	config := InTurns(&tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	old := InTurns(&tls.Config{Certificates: config.Certificates, MinVersion: tls.VersionTLS13})
	for name, c := range map[string]struct {
		config *tls.Config
		client func(net.Conn)
	}{
		"only hello": {config, func(c net.Conn) {
			go func() { _ = tls.Client(noReads{c, t.Context().Done()}, anybody).Handshake() }()
		}},
		"an old version": {old, func(c net.Conn) {
			go func() {
				_ = tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
			}() //nolint:gosec // as above
		}},
		"gone": {config, func(c net.Conn) {
			go func() {
				defer c.Close()
				_ = tls.Client(noReads{c, t.Context().Done()}, anybody).HandshakeContext(soon(t))
			}()
		}},
	} {
		for range 2 * cap(turns) {
			client, server := pairOf(t)
			c.client(client)
			if err := server.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := Handshake(server, c.config); err == nil {
				t.Errorf("%s: a handshake succeeded", name)
			}
		}
		if n := len(turns); n != 0 {
			t.Errorf("%s: %d turns are taken", name, n)
		}
	}
}

// A handshake that is given up while it waits takes no turn.
func TestAHandshakeIsGivenUpWhileItWaits(t *testing.T) {
	for range cap(turns) {
		turns <- struct{}{}
	}
	client, server := pairOf(t)
	go func() { _ = tls.Client(client, anybody).Handshake() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	config := InTurns(&tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	if err := tls.Server(Pace(server), config).HandshakeContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if n := len(turns); n != cap(turns) {
		t.Errorf("%d turns are taken", n)
	}
	for range cap(turns) {
		<-turns
	}
	if err := Turn(&tls.ClientHelloInfo{Conn: client}); err != nil || len(turns) != 0 {
		t.Errorf("a connection that is not paced: %v, %d turns", err, len(turns))
	}
}

// noReads is a client that never reads.
type noReads struct {
	net.Conn
	over <-chan struct{}
}

func (n noReads) Read([]byte) (int, error) {
	<-n.over
	return 0, io.EOF
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// certificate is a server's own.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
