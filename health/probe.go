package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	healthv1 "github.com/incumbent-dev/incumbent/api/grpc/health/v1"
	"github.com/incumbent-dev/incumbent/api/grpc/health/v1/healthv1connect"
)

// What a request of a check carries unless its headers say otherwise: services know
// who checks them by it.
const (
	userAgent = "Consul Health Check"
	accepts   = "text/plain, text/*, */*"
)

const (
	maxHeaderBytes = 16 << 10 // of an answer
	maxRedirects   = 10
	udpPayload     = "hello\n" // anything: what counts is whether the host refuses it
)

// prober runs checks. Its connections are its own, one for each run.
type prober struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func newProber(a addresses) *prober {
	d := net.Dialer{Control: a.control, KeepAlive: -1}
	return &prober{dial: d.DialContext}
}

// run runs a check once, within its timeout.
func (p *prober) run(ctx context.Context, d *Definition) Outcome {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	o := Outcome{Status: Critical, Output: "no way to run this check"}
	switch d.Kind() {
	case KindHTTP:
		o = p.http(ctx, d)
	case KindTCP:
		o = p.tcp(ctx, d)
	case KindUDP:
		o = p.udp(ctx, d)
	case KindGRPC:
		o = p.grpc(ctx, d)
	case KindH2Ping:
		o = p.h2ping(ctx, d)
	case KindNone, KindAlias, numKinds: // an alias connects nowhere
	}
	o.Output = Bounded(o.Output, d.outputBytes())
	return o
}

// transport carries the requests of one run. end closes its connections: those of HTTP/2
// on which a request was given up are not idle to the library, and one may be made only
// after the request that it was for.
func (p *prober) transport(d *Definition) (t *http.Transport, end func()) {
	run, over := context.WithCancel(context.Background())
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := p.dial(ctx, network, address)
		if err == nil {
			context.AfterFunc(run, func() { _ = c.Close() }) // nothing of it is wanted any more
		}
		return c, err
	}
	t = &http.Transport{
		DialContext: dial, TLSClientConfig: d.tls(), DisableKeepAlives: true,
		MaxResponseHeaderBytes: maxHeaderBytes, DisableCompression: true,
		// No proxy of the environment: it would connect to where this may not.
	}
	return t, func() { t.CloseIdleConnections(); over() }
}

// endWith has what waits on a connection end with a run, as at a deadline.
func endWith(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // fails only if it is closed
}

func (d *Definition) tls() *tls.Config {
	return &tls.Config{ServerName: d.TLSServerName, InsecureSkipVerify: d.TLSSkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // who registered the check asked for it
}

// http asks a service; it passes with a status of 200 to 299, and warns with 429.
func (p *prober) http(ctx context.Context, d *Definition) Outcome {
	method := d.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, d.HTTP, strings.NewReader(d.Body))
	if err != nil {
		return failed(err)
	}
	for name, values := range d.Header {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", userAgent)
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", accepts)
	}
	t, end := p.transport(d)
	defer end()
	client := http.Client{Transport: t, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		switch {
		case d.DisableRedirects:
			return http.ErrUseLastResponse
		case len(via) >= maxRedirects:
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		return nil
	}}
	res, err := client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, int64(d.outputBytes()))) // what came of it is shown
	out := fmt.Sprintf("HTTP %s %s: %s Output: %s", method, d.HTTP, res.Status, body)
	switch {
	case res.StatusCode >= 200 && res.StatusCode <= 299:
		return Outcome{Status: Passing, Output: out}
	case res.StatusCode == http.StatusTooManyRequests:
		return Outcome{Status: Warning, Output: out}
	}
	return Outcome{Status: Critical, Output: out}
}

// tcp connects; nothing is said, but for TLS.
func (p *prober) tcp(ctx context.Context, d *Definition) Outcome {
	c, err := p.dial(ctx, "tcp", d.TCP)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	if d.TCPUseTLS {
		cfg := d.tls()
		if cfg.ServerName == "" {
			cfg.ServerName = hostOf(d.TCP)
		}
		if err := tls.Client(c, cfg).HandshakeContext(ctx); err != nil {
			return failed(err)
		}
	}
	return Outcome{Status: Passing, Output: fmt.Sprintf("TCP connect %s: Success", d.TCP)}
}

// udp sends a datagram. Who answers or is silent is well; a host that says that nobody
// listens is not.
func (p *prober) udp(ctx context.Context, d *Definition) Outcome {
	c, err := p.dial(ctx, "udp", d.UDP)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	defer endWith(ctx, c)()
	if _, err := io.WriteString(c, udpPayload); err != nil {
		return failed(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return failed(err)
	}
	return Outcome{Status: Passing, Output: fmt.Sprintf("UDP connect %s: Success", d.UDP)}
}

// grpc asks by the health protocol of gRPC, version 1.
func (p *prober) grpc(ctx context.Context, d *Definition) Outcome {
	target, service, _ := strings.Cut(d.GRPC, "/")
	t, end := p.transport(d)
	defer end()
	t.DisableKeepAlives = false // HTTP/2 asks the server not to close before it has answered
	t.Protocols = new(http.Protocols)
	scheme := "http://"
	if d.GRPCUseTLS {
		scheme = "https://"
		t.Protocols.SetHTTP2(true)
	} else {
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	client := healthv1connect.NewHealthClient(&http.Client{Transport: t}, scheme+target, connect.WithGRPC(), connect.WithReadMaxBytes(maxHeaderBytes))
	res, err := client.Check(ctx, connect.NewRequest(&healthv1.HealthCheckRequest{Service: service}))
	if err != nil {
		return failed(err)
	}
	if s := res.Msg.GetStatus(); s != healthv1.HealthCheckResponse_SERVING {
		return Outcome{Status: Critical, Output: fmt.Sprintf("gRPC %s serving status: %s", d.GRPC, s)}
	}
	return Outcome{Status: Passing, Output: fmt.Sprintf("gRPC check %s: success", d.GRPC)}
}

func failed(err error) Outcome { return Outcome{Status: Critical, Output: err.Error()} }

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
