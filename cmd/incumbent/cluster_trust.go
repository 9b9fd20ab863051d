package main

import (
	"context"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// rotationPoll is how often a command looks that waits for all members.
const rotationPoll = 100 * time.Millisecond

func clusterTrust(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "trust",
		Short: "show what the members trust one another by",
		Long: `Trust shows how far every member has come while secret, authority or certificates are
exchanged, who has the authority's key (SIGNS) and who is to have it (SIGNER), and
the join tokens. With --pem it prints the authorities that are trusted, for clients.`,
		Example: "  incumbent cluster trust\n  incumbent cluster trust --pem > ca.crt",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			pem, _ := c.Flags().GetBool("pem")
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Trust().GetTrust(c.Context(), connect.NewRequest(&apiv1.GetTrustRequest{}))
				switch {
				case err != nil:
					return err
				case pem && len(res.Msg.Ca) == 0:
					return incumbent.Errorf(incumbent.NotFound, "the cluster has no authority of its own")
				case pem:
					_, err = env.stdout.Write(res.Msg.Ca)
					return err
				case form != formTable:
					return printProto(env.stdout, form, res.Msg)
				}
				return printTrust(env.stdout, res.Msg)
			})
		},
	}
	c.Flags().Bool("pem", false, "print the certificates of the authorities that are trusted")
	addServerFlags(c)
	addOutput(c)
	return c
}

func printTrust(out io.Writer, m *apiv1.GetTrustResponse) error {
	t := &table{}
	t.row("authority", orDash(m.Authority))
	if m.NextAuthority != "" {
		t.row("next authority", m.NextAuthority)
	}
	t.row("secret", map[bool]string{false: "settled", true: "being exchanged"}[m.SecretRotating])
	if err := t.print(out); err != nil {
		return err
	}
	t = &table{header: []string{"member", "has secret", "trusts authority", "shows authority", "key renewed", "signs", "signer"}}
	for _, one := range m.Members {
		t.row(one.Name, yesNo(one.HasSecret), yesNo(one.TrustsAuthority), yesNo(one.ShowsAuthority), yesNo(one.KeyRenewed), yesNo(one.Signs), yesNo(one.Signer))
	}
	if err := t.print(out); err != nil || len(m.Tokens) == 0 {
		return err
	}
	t = &table{header: []string{"token", "for", "until", "made by", "used by", "signer"}}
	for _, one := range m.Tokens {
		t.row(one.Id, one.Name, day(one.ExpiresUnixMs), one.Maker, orDash(one.UsedBy), yesNo(one.Signer))
	}
	return t.print(out)
}

// rotate asks for an exchange, waits for all members if it is to, and says how far it
// has come: done is what is true once all have.
func rotate(c *cobra.Command, env *environment, req *apiv1.RotateRequest, wait func(*apiv1.MemberTrust) bool, done string) error {
	timeout, _ := c.Flags().GetDuration("wait")
	return withClient(c, func(cl *client.Client) error {
		if _, err := cl.Trust().Rotate(c.Context(), connect.NewRequest(req)); err != nil {
			return err
		}
		text := rotationBegun
		if timeout > 0 {
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			if err := awaitMembers(ctx, cl, wait); err != nil {
				return err
			}
			text = done
		}
		_, err := io.WriteString(env.stdout, text)
		return err
	})
}

// rotationBegun is what is said of an exchange that nobody waits for.
const rotationBegun = "it has begun; 'incumbent cluster trust' shows how far every member has come\n"

// awaitMembers waits until every member has come so far, and no secret is being
// exchanged.
func awaitMembers(ctx context.Context, cl *client.Client, done func(*apiv1.MemberTrust) bool) error {
	var missing []string
	for {
		res, err := cl.Trust().GetTrust(ctx, connect.NewRequest(&apiv1.GetTrustRequest{}))
		if err == nil {
			missing = nil
			for _, m := range res.Msg.Members {
				if !done(m) {
					missing = append(missing, m.Name)
				}
			}
			if len(missing) == 0 && !res.Msg.SecretRotating {
				return nil
			}
		}
		select {
		case <-time.After(rotationPoll):
		case <-ctx.Done():
			return incumbent.Errorf(incumbent.DeadlineExceeded, "it goes on, and waits for %s", orDash(strings.Join(missing, ", "))).
				WithHint("it ends by itself when they are back; one that does not come back is removed by 'incumbent cluster rm'")
		}
	}
}

func addWait(c *cobra.Command) {
	c.Flags().Duration("wait", time.Minute, "how long to wait for all members; 0: not at all")
	addServerFlags(c)
}

func clusterRotateCA(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate-ca",
		Short: "exchange the cluster's certificate authority while it runs",
		Long: `Rotate-ca makes a new authority. All members trust it beside the old one, then show
certificates of it, which clients accept that trust either. Give every client the
new certificate of the authority ('incumbent cluster trust --pem') and, where clients
show certificates, new ones. Then 'rotate-ca --finish' ends the trust in the old
one: who trusts only that, or shows a certificate of it, is not let in any more.

It is served by a member that has the authority's key: name one by --server. If
nobody has it any more, --without-old-key makes a new one all the same; clients that
trust the old one alone are cut off until they get the new one.

A member that is down holds it up: start it, or remove it. Exit code 6: one is under
way already, or some member has not come so far.`,
		Example: `  incumbent cluster rotate-ca
  incumbent cluster trust --pem > ca.crt
  incumbent cluster rotate-ca --finish`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			req := &apiv1.RotateRequest{What: apiv1.Rotation_ROTATION_AUTHORITY}
			req.Finish, _ = c.Flags().GetBool("finish")
			req.Abandon, _ = c.Flags().GetBool("abandon")
			req.WithoutOldKey, _ = c.Flags().GetBool("without-old-key")
			text := "every member shows a certificate of the new authority\ngive clients the new one ('incumbent cluster trust --pem') and new certificates, then: incumbent cluster rotate-ca --finish\n"
			switch {
			case req.Finish:
				text = "the old authority is not trusted any more\n"
			case req.Abandon:
				text = "the new authority is not trusted any more\n"
			}
			return rotate(c, env, req, func(m *apiv1.MemberTrust) bool { return req.Abandon || m.TrustsAuthority && m.ShowsAuthority }, text)
		},
	}
	c.Flags().Bool("finish", false, "end the trust in the old authority")
	c.Flags().Bool("abandon", false, "give it up, while no member shows a certificate of the new one")
	c.Flags().Bool("without-old-key", false, "the old authority's key is lost")
	addWait(c)
	return c
}

func clusterRotateSecret(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate-secret",
		Short: "exchange the secret by which members know each other",
		Long: `Rotate-secret makes a new secret. All members accept both until every one of them
has the new one, then the old one is dropped, and with it all join tokens that were
made before and not used. Clients notice nothing.

A member that is down holds it up: start it, or remove it. Exit code 6: one is under
way already.`,
		Example: "  incumbent cluster rotate-secret",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			req := &apiv1.RotateRequest{What: apiv1.Rotation_ROTATION_SECRET}
			req.Abandon, _ = c.Flags().GetBool("abandon")
			text := "every member has the new secret, the old one is dropped\n"
			if req.Abandon {
				text = "the old secret stays\n"
			}
			return rotate(c, env, req, func(m *apiv1.MemberTrust) bool { return req.Abandon || m.HasSecret }, text)
		},
	}
	c.Flags().Bool("abandon", false, "give it up: the old one stays")
	addWait(c)
	return c
}

func clusterRotateCerts(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rotate-certs",
		Short: "have every member make a new key and certificate",
		Long: `Rotate-certs has every member make a new key, with a certificate of the cluster's
authority. The old certificates stay good until they end: where a member's key
leaked, remove that member and let it join anew, or exchange the authority
('incumbent cluster rotate-ca').`,
		Example: "  incumbent cluster rotate-certs",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			req := &apiv1.RotateRequest{What: apiv1.Rotation_ROTATION_CERTIFICATES}
			return rotate(c, env, req, func(m *apiv1.MemberTrust) bool { return m.KeyRenewed }, "every member has a new key and certificate\n")
		},
	}
	addWait(c)
	return c
}

func clusterRevokeToken(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke-token ID",
		Short: "make a join token worthless",
		Long: `Revoke-token makes a join token worthless that nobody has used; 'incumbent cluster
trust' lists them. Exit code 3: there is no such token, or it was used.`,
		Example: "  incumbent cluster revoke-token 0f1e2d3c4b5a6978",
		Args:    exactArgs("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Trust().RevokeToken(c.Context(), connect.NewRequest(&apiv1.RevokeTokenRequest{Id: args[0]}))
				if err != nil {
					return err
				}
				return printMessage(c, env, res.Msg, "%s is worthless", args[0])
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}
