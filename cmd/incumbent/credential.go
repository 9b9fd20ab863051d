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
		Use:     "credential",
		Short:   "make credentials of operators and agents",
		Example: "  incumbent credential create --name alice --kind operator --token-file alice.token >> credentials",
	}
	c.AddCommand(credentialCreate(env), credentialRenew(env))
	return c
}

func credentialCreate(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "create",
		Short: "make a credential and print the server's line of it",
		Long: `Create prints the line that a server's file needs to let somebody in; the secret
itself is never printed.

With --name and --kind: a bearer credential, for --credential-file. The token is
written to --token-file, which must not exist.

With --juju-agent: the password of one of Juju's agents, for
--juju-credential-file. If --password-file exists it holds the password; else a
random one is made and written there. --grant claim-any lets the agent claim for
any unit of its model, --grant controller claim the leases of controllers.

The server reads its files again on SIGHUP.`,
		Example: `  incumbent credential create --name alice --kind operator --token-file alice.token >> credentials
  incumbent credential create --juju-agent unit-app-0 --password-file app-0.password >> juju-agents
  incumbent credential create --juju-agent unit-load-0 --password-file load.password --grant claim-any >> juju-agents`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			line, err := newCredential(c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.stdout, line)
			return err
		},
	}
	f := c.Flags()
	f.String("name", "", "name of a bearer credential")
	f.String("kind", "agent", "its kind: observer, agent or operator")
	f.String("token-file", "", "new file for its token")
	f.String("juju-agent", "", "tag of one of Juju's agents, as unit-app-0")
	f.String("model", "*", "UUID of the model that the agent belongs to, * for any")
	f.String("password-file", "", "file with the agent's password, or a new one")
	f.StringSlice("grant", nil, "what the agent may do beyond acting as itself: "+strings.Join(auth.GrantNames(), ", "))
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
		return "", usageError{"give either --name or --juju-agent"}
	case name != "" && text(c, "token-file") == "":
		return "", usageError{"--name needs --token-file, a new file for the token"}
	case tag != "" && text(c, "password-file") == "":
		return "", usageError{"--juju-agent needs --password-file"}
	case name != "":
		return newBearer(name, text(c, "kind"), text(c, "token-file"))
	}
	var grants auth.Grant
	words, _ := c.Flags().GetStringSlice("grant")
	for _, word := range words {
		g, err := auth.ParseGrant(word)
		if err != nil {
			return "", err
		}
		grants |= g
	}
	return newJujuAgent(text(c, "model"), tag, text(c, "password-file"), grants)
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
	data, err := os.ReadFile(file)
	if err == nil {
		return auth.PasswordLine(model, tag, strings.TrimRight(string(data), "\r\n"), auth.ChosenIterations, grants)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", usageError{err.Error()}
	}
	password := auth.NewPassword()
	line, err := auth.PasswordLine(model, tag, password, auth.RandomIterations, grants)
	if err != nil {
		return "", err
	}
	return line, writeSecret(file, password)
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
