package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/door/juju"
)

// createInCluster makes a credential that the cluster keeps. Its secret is written
// before the cluster is asked: a file that nobody accepts harms nobody, and what is
// accepted is not lost.
func createInCluster(c *cobra.Command, env *environment, who string) error {
	for _, name := range []string{"name", "kind", "juju-agent"} {
		if c.Flags().Changed(name) {
			return usageError{"--" + name + " is for a line of a server's file: give it without " + who}
		}
	}
	ttl, _ := c.Flags().GetDuration("ttl")
	if ttl < 0 {
		return usageError{"--ttl is negative; 0s is without an end"}
	}
	var written string
	var made *apiv1.Credential
	err := withClient(c, func(cl *client.Client) error {
		r, file, err := credentialRequest(c, who)
		if err != nil {
			return err
		}
		if ttl > 0 {
			r.EndsUnixMs = time.Now().Add(ttl).UnixMilli()
		}
		written = file
		made, err = cl.CreateCredential(c.Context(), r)
		return err
	})
	switch {
	case err == nil:
		return printMessage(c, env, made, "credential %d of %s, %s", made.Id, made.Principal, untilWhen(made.EndsUnixMs))
	case written == "":
		return err
	case neverMade(err):
		return errors.Join(err, os.Remove(written))
	case errors.Is(err, context.Canceled): // of which no more would be said
		err = incumbent.Errorf(incumbent.Unknown, "interrupted")
	}
	return fmt.Errorf("%w; %s stays, for there may be this credential: 'incumbent credential ls' says", err, written)
}

// neverMade reports whether a refusal is certain to have left no credential, whatever
// became of attempts before it. Conflict is none: it says that there is this secret.
func neverMade(err error) bool {
	var typed *incumbent.Error
	if !errors.As(err, &typed) {
		return false
	}
	switch typed.Kind {
	case incumbent.Invalid, incumbent.Denied, incumbent.TooLarge:
		return true
	case incumbent.Unavailable:
		return typed.Member == "" // nobody was reached: the client says Unknown once something was sent
	}
	return false
}

// credentialRequest makes the secret of a credential and the request for it. written is
// a new file that has the secret.
func credentialRequest(c *cobra.Command, who string) (r *apiv1.CreateCredentialRequest, written string, err error) {
	r = &apiv1.CreateCredentialRequest{}
	r.EndSessions, _ = c.Flags().GetBool("end-sessions")
	if strings.Contains(who, ":") { // no tag of Juju's has one
		written = text(c, "token-file")
		if written == "" || text(c, "password-file") != "" || c.Flags().Changed("model") || c.Flags().Changed("grant") {
			return nil, "", usageError{"a token needs --token-file, a new file, and none of --password-file, --model, --grant"}
		}
		if _, err := auth.ParsePrincipal(who); err != nil {
			return nil, "", usageError{err.Error()}
		}
		token := auth.NewToken()
		sum, err := auth.SumOf(token)
		if err != nil {
			return nil, "", err
		}
		r.Principal, r.Secret = who, &apiv1.CreateCredentialRequest_TokenSha256{TokenSha256: sum[:]}
		return r, written, writeSecret(written, token)
	}
	file := text(c, "password-file")
	if file == "" || text(c, "token-file") != "" || r.EndSessions {
		return nil, "", usageError{who + " is taken for the tag of one of Juju's agents, which needs --password-file, and neither --token-file nor --end-sessions; a token is for KIND:NAME"}
	}
	if err := juju.ValidateAccount(text(c, "model"), who); err != nil {
		return nil, "", err
	}
	grants, err := grantsOf(c)
	if err != nil {
		return nil, "", err
	}
	password, iterations, made, err := passwordIn(file)
	if err != nil {
		return nil, "", err
	}
	kept, err := auth.SecretOf(password, iterations)
	if err != nil {
		return nil, "", err
	}
	r.Secret = &apiv1.CreateCredentialRequest_Password{Password: &apiv1.PasswordSecret{Tag: who, Model: text(c, "model"), Secret: kept, Grants: grants.Words()}}
	if !made {
		return r, "", nil
	}
	return r, file, writeSecret(file, password)
}

func untilWhen(ms int64) string {
	if ms == 0 {
		return "without an end"
	}
	return "until " + day(ms)
}

// day is a moment for people.
func day(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

func credentialList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ls",
		Short: "list the credentials of the cluster",
		Long: `Ls lists the credentials that the cluster keeps, and the certificates that were
revoked; never a secret. With --all also those that have ended, for a week. What is in
files of members it does not know.`,
		Example: "  incumbent credential ls\n  incumbent credential ls --all -o json | jq '.[] | select(.ended_by)'",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			r := &apiv1.ListCredentialsRequest{}
			r.All, _ = c.Flags().GetBool("all")
			var all []*apiv1.Credential
			err := withClient(c, func(cl *client.Client) error {
				return cl.ListCredentials(c.Context(), r, func(page *apiv1.ListCredentialsResponse) error {
					all = append(all, page.Credentials...)
					return nil
				})
			})
			if err != nil {
				return err
			}
			t := &table{header: []string{"id", "who", "what", "state", "ends", "created", "by"}}
			for _, one := range all {
				t.row(credentialRow(one)...)
			}
			return printRecords(env.stdout, formOf(c), all, t)
		},
	}
	c.Flags().Bool("all", false, "also those that have ended")
	addOutput(c)
	return c
}

func credentialRow(one *apiv1.Credential) []string {
	what := enumWord(one.Method.String(), "CREDENTIAL_METHOD_")
	state := enumWord(one.State.String(), "CREDENTIAL_STATE_")
	at, by := one.CreatedUnixMs, one.CreatedBy
	switch {
	case one.Scope != "" && one.Scope != "*":
		what += " for " + one.Scope
	case one.Serial != "":
		what += " " + one.Serial
	}
	if len(one.Grants) > 0 {
		what += " (" + strings.Join(one.Grants, ", ") + ")"
	}
	if one.EndedUnixMs != 0 {
		state += " " + day(one.EndedUnixMs)
	}
	if one.EndedBy != "" && one.EndedBy != by {
		state += " by " + one.EndedBy
	}
	return []string{strconv.FormatUint(one.Id, 10), orDash(one.Principal), what, state, day(one.EndsUnixMs), day(at), orDash(by)}
}

func enumWord(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

func credentialRevoke(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke ID",
		Short: "take a credential of the cluster back",
		Long: `Revoke takes the credential back that 'credential ls' shows with this id. It lets
nobody in any more, and whoever came in by it is cut off, on every member that hears
of the leader within a second: streams, calls that wait, watches, agents of Juju's.
Sessions live on for their ttl; with --end-sessions, or if it was made so, all that
its principal has opened are closed at once, and what they hold is free.

'tls revoke' takes a client certificate back. Lines of a member's files are taken out
there, and SIGHUP sent.

Exit code 3: there is no such credential.`,
		Example: "  incumbent credential revoke 1234 --end-sessions",
		Args:    exactArgs("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || id == 0 {
				return usageError{args[0] + " is no id of a credential: 'credential ls' shows them; a certificate is revoked by 'tls revoke'"}
			}
			return revoke(c, env, &apiv1.RevokeCredentialRequest{Which: &apiv1.RevokeCredentialRequest_Id{Id: id}})
		},
	}
	c.Flags().Bool("end-sessions", false, "close the sessions of its principal at once")
	addOutput(c)
	return c
}

// revoke takes something back and says so.
func revoke(c *cobra.Command, env *environment, r *apiv1.RevokeCredentialRequest) error {
	r.EndSessions, _ = c.Flags().GetBool("end-sessions")
	return withClient(c, func(cl *client.Client) error {
		gone, err := cl.RevokeCredential(c.Context(), r)
		if err != nil {
			return err
		}
		return printMessage(c, env, gone, "credential %d of %s is revoked", gone.Id, orDash(gone.Principal))
	})
}
