package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/door/juju"
)

func credentialCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "credential",
		Short: "make, list and revoke credentials of operators and agents",
		Long: `Credentials are tokens and passwords by which operators and agents prove who they
are. The cluster keeps its own: create WHO, ls and revoke speak to a server, and what
they do holds on every member at once. A member's files, --credential-file and
--juju-credential-file, are for the first operator, who has no server to ask yet:
create --name and create --juju-agent print lines for them and need no server.`,
		Example: `  incumbent credential create agent:db-1 --token-file db-1.token --ttl 720h
  incumbent credential ls
  incumbent credential revoke 1234`,
	}
	addServerFlags(c)
	c.AddCommand(credentialCreate(env), credentialList(env), credentialRevoke(env), credentialRenew(env))
	return c
}

func credentialCreate(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "create [WHO]",
		Short: "make a credential, in the cluster or as a line for a server's file",
		Long: `Create makes a credential and writes its secret to a new file; the secret itself is
never printed, and never leaves this machine: the cluster, or the file, gets what it
can be checked by.

In the cluster, of a server that runs:
WHO is KIND:NAME, as agent:db-1 or operator:alice: a bearer credential, whose token is
written to --token-file. With --end-sessions the sessions that WHO has opened end with
the credential at once, else after their ttl.
WHO is the tag of one of Juju's agents, as unit-app-0: its password. If
--password-file exists it holds the password; else a random one is made and written
there. --grant claim-any lets the agent claim for any unit of its model, --grant
controller claim the leases of controllers.
--ttl is how long the credential lets in, 0 for as long as nobody revokes it.

As a line on standard output, without a server:
--name and --kind: a bearer credential, for --credential-file of the server.
--juju-agent: a password, for --juju-credential-file. The server reads its files again
on SIGHUP. Lines have no end but being taken away.`,
		Example: `  incumbent credential create agent:db-1 --token-file db-1.token --ttl 720h
  incumbent credential create unit-app-0 --password-file app-0.password
  incumbent credential create --name alice --kind operator --token-file alice.token >> credentials
  incumbent credential create --juju-agent unit-load-0 --password-file load.password --grant claim-any >> juju-agents`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return createInCluster(c, env, args[0])
			}
			line, err := newCredential(c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.stdout, line)
			return err
		},
	}
	f := c.Flags()
	f.String("name", "", "a line: name of a bearer credential")
	f.String("kind", "agent", "a line: its kind: observer, agent or operator")
	f.String("token-file", "", "new file for the token")
	f.String("juju-agent", "", "a line: tag of one of Juju's agents, as unit-app-0")
	f.String("model", "*", "UUID of the model that the agent of Juju's belongs to, * for any")
	f.String("password-file", "", "file with the agent's password, or a new one")
	f.StringSlice("grant", nil, "what the agent may do beyond acting as itself: "+strings.Join(auth.GrantNames(), ", "))
	f.Duration("ttl", 0, "in the cluster: how long it lets in, 0 without an end")
	f.Bool("end-sessions", false, "in the cluster: sessions end with it at once")
	addOutput(c)
	return c
}

func credentialRenew(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "renew",
		Short: "make the operator's certificate of a cluster anew, or another one",
		Long: `Renew writes tls/operator.crt of a member's data directory anew, for the key in
tls/operator.key: it is good for a year from now. Where there is no key it makes
one: so every member can let an operator in. It runs beside a server and needs to
read the authority's key, so run it as the server's user.

A member renews the operator's certificate in its data directory by itself, after
two thirds of its time. Copies elsewhere are yours to replace.

Exit code 3: the cluster has no authority of its own.`,
		Example: "  incumbent credential renew --data-dir /var/lib/incumbent",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			dir := text(c, "data-dir")
			if dir == "" {
				return usageError{"give --data-dir, the directory of a member"}
			}
			made, err := cluster.RenewOperator(dir)
			if err != nil {
				return err
			}
			t := &table{}
			t.row("operator", "--ca "+made.CAFile+" --cert "+made.CertFile+" --key "+made.KeyFile)
			t.row("ends", made.Ends.UTC().Format(time.RFC3339))
			return t.print(env.stdout)
		},
	}
	c.Flags().String("data-dir", "", "data directory of a member")
	return c
}

func newCredential(c *cobra.Command) (string, error) {
	name, tag := text(c, "name"), text(c, "juju-agent")
	switch {
	case (name == "") == (tag == ""):
		return "", usageError{"give WHO, for a credential of the cluster, or either --name or --juju-agent"}
	case c.Flags().Changed("ttl") || c.Flags().Changed("end-sessions"):
		return "", usageError{"--ttl and --end-sessions are for credentials of the cluster: give WHO instead of --name and --juju-agent"}
	case name != "" && text(c, "token-file") == "":
		return "", usageError{"--name needs --token-file, a new file for the token"}
	case tag != "" && text(c, "password-file") == "":
		return "", usageError{"--juju-agent needs --password-file"}
	case name != "":
		return newBearer(name, text(c, "kind"), text(c, "token-file"))
	}
	grants, err := grantsOf(c)
	if err != nil {
		return "", err
	}
	return newJujuAgent(text(c, "model"), tag, text(c, "password-file"), grants)
}

func grantsOf(c *cobra.Command) (grants auth.Grant, err error) {
	words, _ := c.Flags().GetStringSlice("grant")
	for _, word := range words {
		g, err := auth.ParseGrant(word)
		if err != nil {
			return 0, err
		}
		grants |= g
	}
	return grants, nil
}

func newBearer(name, kind, file string) (string, error) {
	k, err := auth.ParseKind(kind)
	if err != nil {
		return "", err
	}
	token := auth.NewToken()
	line, err := auth.CredentialLine(name, k, token)
	if err != nil {
		return "", err
	}
	return line, writeSecret(file, token)
}

func newJujuAgent(model, tag, file string, grants auth.Grant) (string, error) {
	if err := juju.ValidateAccount(model, tag); err != nil {
		return "", err // before a password is written that would let nobody in
	}
	password, iterations, made, err := passwordIn(file)
	if err != nil {
		return "", err
	}
	line, err := auth.PasswordLine(model, tag, password, iterations, grants)
	if err != nil || !made {
		return line, err
	}
	return line, writeSecret(file, password)
}

// passwordIn reads the password of a file, or makes one if the file is not there: that
// one is still to be written.
func passwordIn(file string) (password string, iterations int, made bool, err error) {
	data, err := os.ReadFile(file)
	switch {
	case err == nil:
		return strings.TrimRight(string(data), "\r\n"), auth.ChosenIterations, false, nil
	case errors.Is(err, fs.ErrNotExist):
		return auth.NewPassword(), auth.RandomIterations, true, nil
	}
	return "", 0, false, usageError{err.Error()}
}

// writeSecret writes a new file that only its owner may read.
func writeSecret(file, secret string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return usageError{err.Error()}
	}
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", file, err)
	}
	return nil
}
