package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// defaultServer is where a server listens that was started without flags.
const defaultServer = "http://127.0.0.1:7600"

// addServerFlags gives a noun the flags that say where the server is.
func addServerFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringSlice("server", []string{defaultServer}, "URLs of members, tried in turn")
	f.String("credential-file", "", "file with the bearer credential")
	f.String("ca", "", "file with the certificates that sign the server's")
	f.String("cert", "", "file with this client's certificate")
	f.String("key", "", "file with the key of --cert")
	f.Duration("timeout", 10*time.Second, "how long one call may take, 0 for no limit")
}

// withClient runs one call with a client made from the flags.
func withClient(c *cobra.Command, call func(*client.Client) error) error {
	servers, _ := c.Flags().GetStringSlice("server")
	return withServers(c, servers, call)
}

// withServers does so with other servers than the flags name.
func withServers(c *cobra.Command, servers []string, call func(*client.Client) error) error {
	cfg := client.Config{Servers: servers}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = text(c, "ca"), text(c, "cert"), text(c, "key")
	if cfg.CallTimeout, _ = c.Flags().GetDuration("timeout"); cfg.CallTimeout < 0 {
		return usageError{fmt.Sprintf("--timeout %v is negative; 0s is no limit", cfg.CallTimeout)}
	}
	if path := text(c, "credential-file"); path != "" {
		secret, err := os.ReadFile(path)
		if err != nil {
			return usageError{err.Error()}
		}
		cfg.Credential = strings.TrimSpace(string(secret))
		if cfg.Credential == "" || strings.ContainsFunc(cfg.Credential, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return usageError{path + " has no credential: a file of --credential-file has the secret alone"}
		}
	}
	cl, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	return outOfTime(client.AsError(call(cl)), cfg.CallTimeout)
}

// outOfTime says which setting ended a call that nobody answered.
func outOfTime(err error, limit time.Duration) error {
	var typed *incumbent.Error
	local := errors.As(err, &typed) && typed.Kind == incumbent.DeadlineExceeded && typed.Member == "" && typed.Hint == "" // who gives one says more
	if !local && !(typed == nil && errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	out := incumbent.Errorf(incumbent.DeadlineExceeded, "no answer within %v", limit)
	out.Err = err
	return out.WithHint("is the server overloaded or cut off? 'incumbent status' says; --timeout is how long to wait")
}

// untilInterrupted makes an interruption the good end of a verb that follows.
func untilInterrupted(c *cobra.Command, err error) error {
	if c.Context().Err() != nil {
		return nil
	}
	return err
}

// wrong is what is wrong with a watch from the beginning, by a read of the same: the watch
// itself tries again for ever. Who may watch need not be allowed to read; whoever may not watch
// is told so by the watch.
func wrong(err error) error {
	err = client.AsError(err)
	if incumbent.KindOf(err) == incumbent.Denied {
		return nil
	}
	return err
}

// follow prints what a watch tells, until it ends.
func follow[M any](c *cobra.Command, env *environment, told iter.Seq2[M, error], print func(out io.Writer, form string, m M) error) error {
	for m, err := range told {
		if err == nil {
			err = print(env.stdout, formOf(c), m)
		}
		if err != nil {
			return err
		}
	}
	return c.Context().Err()
}

// printMessage prints an answer: the message itself, or one line for people.
func printMessage(c *cobra.Command, env *environment, m proto.Message, format string, args ...any) error {
	if form := formOf(c); form != formTable {
		return printProto(env.stdout, form, m)
	}
	return say(env.stdout, format, args...)
}
