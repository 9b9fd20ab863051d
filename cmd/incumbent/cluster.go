package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/client"
)

// maxRedirects is how often a call follows the leader: it may change meanwhile.
const maxRedirects = 5

func clusterCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "make a cluster out of servers, and change who belongs to it",
		Long: `Cluster prepares data directories (init, join), changes the members of a running
cluster (token, promote, rm, leave, transfer-leader), shows them (ls), exchanges what
they trust one another by (trust, rotate-ca, rotate-secret, rotate-certs,
revoke-token), starts a whole cluster on this machine for trying (local), and makes a
member that is left alone a cluster again (recover).`,
		Example: `  incumbent cluster local --members 3
  incumbent cluster init --data-dir /var/lib/incumbent --name n1 --host n1.example
  incumbent cluster ls`,
	}
	c.AddCommand(
		clusterInit(env), clusterToken(env), clusterJoin(env), clusterLs(env), clusterPromote(env), clusterRm(env),
		clusterLeave(env), clusterTransfer(env), clusterRecover(env), clusterLocal(env),
		clusterTrust(env), clusterRotateCA(env), clusterRotateSecret(env), clusterRotateCerts(env), clusterRevokeToken(env),
	)
	return c
}

// withLeader runs a call that only the leader serves: where a member says who
// leads, the call goes on there.
func withLeader(c *cobra.Command, call func(*client.Client) error) error {
	servers, _ := c.Flags().GetStringSlice("server")
	for range maxRedirects {
		err := withServers(c, servers, call)
		var typed *incumbent.Error
		if !errors.As(err, &typed) || typed.Kind != incumbent.NotLeader || !strings.Contains(typed.Leader, "://") {
			return err
		}
		servers = []string{typed.Leader}
	}
	return incumbent.Errorf(incumbent.Unavailable, "the leader changed %d times", maxRedirects).WithHint("incumbent status")
}

func clusterLs(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ls",
		Short: "list the members",
		Long: `Ls lists the members as the member that is asked knows them. LAG, in entries of the
log behind what is committed, is known to the leader alone.`,
		Example: "  incumbent cluster ls\n  incumbent cluster ls -o json | jq -r '.members[].name'",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Cluster().Members(c.Context(), connect.NewRequest(&apiv1.MembersRequest{}))
				if err != nil {
					return err
				}
				if form != formTable {
					return printProto(env.stdout, form, res.Msg)
				}
				return printMembers(env.stdout, res.Msg)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}

func printMembers(out io.Writer, m *apiv1.MembersResponse) error {
	t := &table{header: []string{"member", "id", "role", "address", "peer address", "connected", "lag", "version"}}
	lead := false
	for _, one := range m.Members {
		lead = lead || one.Self && one.Role == "leader"
	}
	for _, one := range m.Members {
		lag := "-"
		if lead {
			lag = strconv.FormatUint(one.Lag, 10)
		}
		t.row(one.Name, one.Id, one.Role, orDash(one.Address), orDash(one.PeerAddress), yesNo(one.Connected), lag, orDash(one.Version))
	}
	return t.print(out)
}

func clusterToken(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "token NAME",
		Short: "make a token with which one server joins",
		Long: `Token prints a token for 'cluster join' or 'server --join-file'. It lets one server
join once, as the member NAME; a member of that name that is not connected is
replaced. It holds the addresses of the members, the hash of the cluster's authority
and a secret: bring it there in a file that nobody else reads. 'incumbent events'
says who used it; 'incumbent cluster revoke-token' makes it worthless.

With --signer that member gets the key of the cluster's authority, and can sign
certificates of members. At least one has to be there when another joins.`,
		Example: "  incumbent cluster token n2 --ttl 1h > token\n  incumbent server --data-dir /var/lib/incumbent --listen 10.0.0.2:7600 --peer-listen 10.0.0.2:7601 --join-file token",
		Args:    exactArgs("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			ttl, _ := c.Flags().GetDuration("ttl")
			if ttl < time.Millisecond { // the request's 0 is the default
				return usageError{fmt.Sprintf("--ttl %v is less than %v", ttl, ca.MinTokenLife)}
			}
			req := &apiv1.CreateTokenRequest{TtlMs: uint64(ttl.Milliseconds()), Name: args[0]}
			req.Signer, _ = c.Flags().GetBool("signer")
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Cluster().CreateToken(c.Context(), connect.NewRequest(req))
				if err != nil {
					return err
				}
				return printMessage(c, env, res.Msg, "%s", res.Msg.Token)
			})
		},
	}
	c.Flags().Duration("ttl", 24*time.Hour, "how long it can be used, 1m to 720h")
	c.Flags().Bool("signer", false, "the member gets the key of the cluster's authority")
	addServerFlags(c)
	addOutput(c)
	return c
}

func clusterPromote(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "promote MEMBER",
		Short: "make a learner a voter",
		Long: `Promote makes a learner a voter: at once if it is caught up, else as soon as it is.
Exit code 3: there is no such member.`,
		Example: "  incumbent cluster promote n4",
		Args:    exactArgs("MEMBER"),
		RunE: func(c *cobra.Command, args []string) error {
			return withLeader(c, func(cl *client.Client) error {
				res, err := cl.Cluster().PromoteMember(c.Context(), connect.NewRequest(&apiv1.PromoteMemberRequest{Member: args[0]}))
				if err != nil {
					return err
				}
				line := args[0] + " votes"
				if res.Msg.Pending {
					line = args[0] + " will vote once it has caught up"
				}
				return printMessage(c, env, res.Msg, "%s", line)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}

func clusterRm(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rm MEMBER",
		Short: "remove a member for ever",
		Long: `Rm takes a member out. It cannot return under its id: to come back, its data
directory is emptied and it joins anew. Exit code 3: there is no such member.
Exit code 6: the rest would have no live majority; with --force it is decided all the
same, and carried out once the rest has one.`,
		Example: "  incumbent cluster rm n3",
		Args:    exactArgs("MEMBER"),
		RunE: func(c *cobra.Command, args []string) error {
			force, _ := c.Flags().GetBool("force")
			return withLeader(c, func(cl *client.Client) error {
				res, err := cl.Cluster().RemoveMember(c.Context(), connect.NewRequest(&apiv1.RemoveMemberRequest{Member: args[0], Force: force}))
				if err != nil {
					return err
				}
				return printMessage(c, env, res.Msg, "%s (%s) is removed", res.Msg.GetMember().GetName(), res.Msg.GetMember().GetId())
			})
		},
	}
	c.Flags().Bool("force", false, "even if the rest then lacks a live majority")
	addServerFlags(c)
	addOutput(c)
	return c
}

func clusterLeave(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "leave",
		Short: "take the member that is asked out of the cluster and end it",
		Long: `Leave hands leadership over if the member has it, removes the member for ever and
ends its process with exit code 0. Name that one member with --server.`,
		Example: "  incumbent cluster leave --server http://10.0.0.3:7600",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			force, _ := c.Flags().GetBool("force")
			if servers, _ := c.Flags().GetStringSlice("server"); len(servers) != 1 {
				return usageError{"name exactly the member that is to leave with --server"}
			}
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Cluster().Leave(c.Context(), connect.NewRequest(&apiv1.LeaveRequest{Force: force}))
				if err != nil {
					return err
				}
				return printMessage(c, env, res.Msg, "it has left")
			})
		},
	}
	c.Flags().Bool("force", false, "even if the rest then lacks a live majority")
	addServerFlags(c)
	addOutput(c)
	return c
}

func clusterTransfer(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "transfer-leader [MEMBER]",
		Short: "hand leadership to another member",
		Long: `Transfer-leader hands leadership to MEMBER, or to the voter that is furthest. No
lease and no call is lost by it. Exit code 2: MEMBER does not vote. Exit code 3:
there is no such member.`,
		Example: "  incumbent cluster transfer-leader\n  incumbent cluster transfer-leader n2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			to := ""
			if len(args) > 0 {
				to = args[0]
			}
			return withLeader(c, func(cl *client.Client) error {
				res, err := cl.Cluster().TransferLeader(c.Context(), connect.NewRequest(&apiv1.TransferLeaderRequest{Member: to}))
				if err != nil {
					return err
				}
				return printMessage(c, env, res.Msg, "%s leads", res.Msg.Leader)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}
