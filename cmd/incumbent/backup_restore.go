package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/cluster"
)

func backupRestore(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "make a new cluster of a backup",
		Long: `Restore makes the empty --data-dir the only member of a new cluster that has what
the backup has; - reads standard input. Then start a server on it, and let others
join. No member of the old cluster can join or be heard: its certificates, join
tokens and ids are of another cluster.

Leases and sessions go on with their whole ttl. Indexes and tokens go on above any
that the old cluster can have issued, also if it was recovered since. They do not
know of another restore of this backup: if there was one, give the greatest index
or token that is known of that cluster with --above.

Before the new cluster serves, make sure that no member of the old one runs, and
wait for the longest ttl of its leases: what was granted there behind the backup
is not known here.

With --only-namespace the new cluster has only the leases and keys of that one, and the
sessions that have a part in them.

Exit code 1: the backup is damaged. Exit code 2: it is no backup, or newer than
this program. Exit code 3: there is no such file, or nothing of the namespace.
Exit code 6: the data directory holds a member.`,
		Example: `  incumbent backup restore cluster.backup --data-dir /var/lib/incumbent --name n1
  incumbent backup restore cluster.backup --only-namespace billing --data-dir ./billing`,
		Args: exactArgs("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			above, _ := c.Flags().GetUint64("above")
			in, done, err := openFile(env, args[0])
			if err != nil {
				return err
			}
			defer done()
			got, err := cluster.Restore(cluster.RestoreConfig{
				DataDir: text(c, "data-dir"), Name: text(c, "name"), Namespace: text(c, "only-namespace"), Above: incumbent.Index(above),
			}, in, args[0])
			if err != nil {
				return err
			}
			if form != formTable {
				return printJSON(env.stdout, form, restoredJSON{
					ClusterID: got.ClusterID, MemberID: got.MemberID, Name: got.Name, Index: got.Index.String(),
					Source: got.Source, Contents: got.Contents, Forgotten: append([]string{}, got.Forgotten...),
				})
			}
			return printRestored(env.stdout, got, text(c, "data-dir"))
		},
	}
	f := c.Flags()
	f.String("data-dir", "", "empty folder that becomes the first member")
	f.String("name", "", "name of that member (default: the host's)")
	f.String("only-namespace", "", "restore only this namespace")
	f.Uint64("above", 0, "go on above this index, too")
	addOutput(c)
	return c
}

type restoredJSON struct {
	ClusterID string `json:"cluster_id"`
	MemberID  string `json:"member_id"`
	Name      string `json:"name"`
	Index     string `json:"index"` // from which it goes on
	Source    any    `json:"source"`
	Contents  any    `json:"contents"`
	Forgotten any    `json:"forgotten"`
}

func printRestored(out io.Writer, got cluster.Restored, dir string) error {
	t := &table{}
	t.row("new cluster", got.ClusterID)
	t.row("member", got.Name+" ("+got.MemberID+")")
	t.row("from", fmt.Sprintf("cluster %s, index %v, taken %s", got.Source.Cluster, got.Source.Index, got.Source.At.Format(time.RFC3339)))
	t.row("holds", holds(&backup.Info{Contents: got.Contents}))
	t.row("goes on from index", got.Index.String())
	t.row("left behind", orDash(strings.Join(got.Forgotten, ", ")))
	if err := t.print(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `
Done. Start the server once no member of the old cluster runs and the longest ttl of
its leases has passed: incumbent server --data-dir %s …
For members on other machines run 'incumbent cluster init' on it first. Then let the
others join with empty data directories.
`, dir)
	return err
}
