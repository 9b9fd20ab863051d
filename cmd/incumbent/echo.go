package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/park/echo"
)

// echoStop is how long the echo's connections may take to be flushed.
const echoStop = 2 * time.Second

// benchEcho serves the exchange of a single extension without anything behind
// it: what the connections themselves cost.
func benchEcho(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "echo",
		Short:   "serve a bare echo over parked connections, to compare with",
		Long:    "Echo accepts WebSockets as the server does and answers each message with 20 bytes: what parked connections cost with nothing behind them.",
		Example: "  incumbent bench echo --listen 127.0.0.1:7700",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return serveEcho(c, env) },
	}
	c.Flags().String("listen", "127.0.0.1:7700", "address")
	c.Flags().String("tls-cert", "", "PEM file with the certificate of --listen")
	c.Flags().String("tls-key", "", "PEM file with its key")
	return c
}

func serveEcho(c *cobra.Command, env *environment) error {
	inner, err := net.Listen("tcp", text(c, "listen"))
	if err != nil {
		return usageError{err.Error()}
	}
	ln, scheme := park.Listen(inner, 0), "http"
	if text(c, "tls-cert") != "" {
		pair, err := tls.LoadX509KeyPair(text(c, "tls-cert"), text(c, "tls-key"))
		if err != nil {
			return usageError{err.Error()}
		}
		ln, scheme = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), "https"
	}
	set, err := park.New(park.Config{})
	if err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "echo at %s://%s\n", scheme, inner.Addr())
	stop := context.AfterFunc(c.Context(), func() { ln.Close() })
	defer stop()
	err = echo.Serve(ln, set)
	flushed, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), echoStop)
	defer cancel()
	if cerr := set.Close(flushed); err == nil {
		err = cerr
	}
	return err
}

// benchBare serves what answers of Consul's protocol are compared with.
func benchBare(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "bare",
		Short:   "answer every request over HTTP with the same bytes, to compare with",
		Long:    "Bare answers each request with the contents of a file: what writing the bytes costs with nothing behind it.",
		Example: "  incumbent bench bare --listen 127.0.0.1:7701 --answer body.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			body, err := os.ReadFile(text(c, "answer"))
			if err != nil {
				return usageError{err.Error()}
			}
			ln, err := net.Listen("tcp", text(c, "listen"))
			if err != nil {
				return usageError{err.Error()}
			}
			fmt.Fprintf(env.stdout, "bare at http://%s\n", ln.Addr())
			defer context.AfterFunc(c.Context(), func() { ln.Close() })()
			return bench.ServeBare(ln, body)
		},
	}
	c.Flags().String("listen", "127.0.0.1:7701", "address")
	c.Flags().String("answer", "", "file with the answer's body")
	return c
}
