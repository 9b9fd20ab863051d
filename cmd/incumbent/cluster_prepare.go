package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/server"
)

// joinTimeout is how long `cluster join` looks for a member that answers.
const joinTimeout = 30 * time.Second

func clusterInit(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "init",
		Short: "make a data directory the first member of a cluster",
		Long: `Init prepares --data-dir: a cluster id, a member id, and unless --plaintext is
given an authority of the cluster's own, with certificates for this member and for
an operator. On a directory that a server has used alone it keeps the data; done
twice it changes nothing. No server may run on the directory.

Then start the member with 'incumbent server --data-dir DIR --peer-listen …', make
a token for each other with 'incumbent cluster token NAME' and let them join.`,
		Example: `  incumbent cluster init --data-dir /var/lib/incumbent --name n1 --host n1.example
  incumbent cluster init --data-dir ./n1 --name n1 --plaintext`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			plaintext, _ := c.Flags().GetBool("plaintext")
			hosts, _ := c.Flags().GetStringSlice("host")
			made, err := cluster.Init(cluster.InitConfig{
				DataDir: text(c, "data-dir"), Name: text(c, "name"), TLS: !plaintext, Hosts: hosts, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return err
			}
			if form != formTable {
				return printJSON(env.stdout, form, preparedJSON{
					ClusterID: made.ClusterID, MemberID: made.MemberID, Name: made.Name, Existed: made.Existed,
					CA: made.CAFile, CAHash: made.CAHash, OperatorCert: made.OperatorCert, OperatorKey: made.OperatorKey,
				})
			}
			return printInitialized(env.stdout, made)
		},
	}
	c.Flags().String("data-dir", "", "folder to prepare")
	c.Flags().String("name", "", "name of this member (default: the host's)")
	c.Flags().StringSlice("host", nil, "names and addresses under which the member is reached, for its certificate")
	c.Flags().Bool("plaintext", false, "no TLS between members: loopback only")
	addOutput(c)
	return c
}

// preparedJSON is what init, join and recover print for scripts.
type preparedJSON struct {
	ClusterID    string   `json:"cluster_id"`
	MemberID     string   `json:"member_id"`
	Name         string   `json:"name"`
	Existed      bool     `json:"existed,omitempty"`
	Members      []string `json:"members,omitempty"`
	CA           string   `json:"ca,omitempty"`
	CAHash       string   `json:"ca_hash,omitempty"`
	OperatorCert string   `json:"operator_cert,omitempty"`
	OperatorKey  string   `json:"operator_key,omitempty"`
}

func printInitialized(out io.Writer, made cluster.Initialized) error {
	what := "new cluster"
	if made.Existed {
		what = "cluster kept"
	}
	t := &table{}
	t.row(what, made.ClusterID)
	t.row("member", made.Name+" ("+made.MemberID+")")
	if made.CAFile != "" {
		t.row("authority", made.CAFile)
		t.row("its hash", made.CAHash)
		t.row("operator", "--ca "+made.CAFile+" --cert "+made.OperatorCert+" --key "+made.OperatorKey)
	}
	return t.print(out)
}

func clusterJoin(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "join",
		Short: "make an empty data directory a member of a running cluster",
		Long: `Join asks the cluster that made the token in --join-file for a place, and prepares
--data-dir. Then start the member with 'incumbent server' and the same addresses: it
begins as a learner and votes once it has caught up, unless --learner keeps it one. A
member of the same name that is not connected is replaced. 'incumbent server
--join-file FILE' does both at once.

Exit code 2: something disagrees, which it names. Exit code 5: no member answers.
Exit code 6: the name belongs to a member that lives. Exit code 7: the token is
another cluster's, has ended, or was used.`,
		Example: "  incumbent cluster join --join-file token --data-dir /var/lib/incumbent --listen 10.0.0.2:7600 --peer-listen 10.0.0.2:7601",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			cfg := server.Config{
				DataDir: text(c, "data-dir"), Name: text(c, "name"), Listen: text(c, "listen"), PeerListen: text(c, "peer-listen"),
				Advertise: text(c, "advertise"), PeerAdvertise: text(c, "peer-advertise"), JoinToken: joinToken(env), JoinFile: text(c, "join-file"), Version: version,
			}
			cfg.Learner, _ = c.Flags().GetBool("learner")
			ctx, cancel := context.WithTimeout(c.Context(), joinTimeout)
			defer cancel()
			joined, err := server.Join(ctx, cfg)
			if err != nil {
				return err
			}
			if form != formTable {
				return printJSON(env.stdout, form, preparedJSON{ClusterID: joined.ClusterID, MemberID: joined.MemberID, Name: joined.Name, Members: joined.Members})
			}
			_, err = fmt.Fprintf(env.stdout, "%s (%s) belongs to cluster %s with %s\nstart it with the same addresses: incumbent server --data-dir %s …\n",
				joined.Name, joined.MemberID, joined.ClusterID, strings.Join(joined.Members, ", "), cfg.DataDir)
			return err
		},
	}
	f := c.Flags()
	f.String("data-dir", "", "empty folder to prepare")
	f.String("name", "", "name of this member (default: the token's)")
	f.String("join-file", "", "file with the token")
	f.String("listen", server.DefaultListen, "address of the native API")
	f.String("peer-listen", "", "address for the other members")
	f.String("advertise", "", "address of --listen that others see, when it is another")
	f.String("peer-advertise", "", "address of --peer-listen that others see, when it is another")
	f.Bool("learner", false, "never vote: hold connections, serve reads and watches")
	addOutput(c)
	return c
}

func clusterRecover(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "recover",
		Short: "make a member that is left alone a cluster of one",
		Long: `Recover is for the day when a majority of the voters is lost for good: it makes the
member of --data-dir the only voter, with what it has. Without --yes it changes
nothing and says what would be: what the lost members had acknowledged and this
one had not heard of yet is gone. Choose the member that is furthest, and never
start the members that are left behind again: they are refused if they meet.

No server may run on the directory.`,
		Example: "  incumbent cluster recover --data-dir /var/lib/incumbent\n  incumbent cluster recover --data-dir /var/lib/incumbent --yes",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			yes, _ := c.Flags().GetBool("yes")
			got, err := cluster.Recover(cluster.RecoverConfig{DataDir: text(c, "data-dir"), DryRun: !yes, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				return err
			}
			if form != formTable {
				return printJSON(env.stdout, form, recoveredJSON{
					ClusterID: got.ClusterID, MemberID: got.MemberID, Name: got.Name, Done: yes, Index: strconv.FormatUint(got.Index, 10),
					LastTerm: got.LastTerm, Committed: got.Committed, Durable: got.Durable,
					Leases: got.Leases, Sessions: got.Sessions, Forgotten: append([]string{}, got.Forgotten...),
				})
			}
			return printRecovered(env.stdout, got, yes)
		},
	}
	c.Flags().String("data-dir", "", "data directory of the member that is left")
	c.Flags().Bool("yes", false, "do it")
	addOutput(c)
	return c
}

type recoveredJSON struct {
	ClusterID string   `json:"cluster_id"`
	MemberID  string   `json:"member_id"`
	Name      string   `json:"name"`
	Done      bool     `json:"done"`
	Index     string   `json:"index"`
	LastTerm  uint64   `json:"last_term"`
	Committed uint64   `json:"committed"`
	Durable   uint64   `json:"durable"`
	Leases    int      `json:"leases"`
	Sessions  int      `json:"sessions"`
	Forgotten []string `json:"forgotten"`
}

func printRecovered(out io.Writer, got cluster.Recovered, done bool) error {
	t := &table{}
	t.row("member", got.Name+" ("+got.MemberID+")")
	t.row("cluster", got.ClusterID)
	t.row("leases, sessions", fmt.Sprintf("%d, %d", got.Leases, got.Sessions))
	t.row("index", strconv.FormatUint(got.Index, 10))
	t.row("log", fmt.Sprintf("term %d, known committed to %d, on disk to %d", got.LastTerm, got.Committed, got.Durable))
	t.row("left behind", orDash(strings.Join(got.Forgotten, ", ")))
	if err := t.print(out); err != nil {
		return err
	}
	text := `
Nothing has been changed. With --yes this member becomes the only voter. Lost is
what was acknowledged behind its log; what stands in its log behind "known
committed" becomes true, whether or not anybody was told so. Compare the line
"log" of every member that is left, and take the furthest.
`
	if done {
		text = "\nDone. Start the server, then let new members join; never start those left behind again.\n"
	}
	_, err := io.WriteString(out, text)
	return err
}
