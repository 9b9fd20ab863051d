package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/vfs"
)

// standardStream stands for standard input or output where a file is named.
const standardStream = "-"

func backupCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "backup",
		Short: "copies of all that a cluster has stored, and new clusters from them",
		Long: `Backup writes the state of a running cluster to a file (create), shows what files
are (ls), reads one to its end (verify), and makes a new cluster of one (restore).
A server writes backups by itself with --backup-dir.

A backup holds all that is stored, values of keys among it, and hashes of the
tokens and passwords of credentials: passwords that people chose can be guessed from
those. It holds none of the cluster's keys and certificates, nor what a member reads
from files of its own. Only the owner can read the files.`,
		Example: `  incumbent backup create cluster.backup
  incumbent backup verify cluster.backup
  incumbent backup restore cluster.backup --data-dir /var/lib/incumbent --name n1`,
	}
	c.AddCommand(backupCreate(env), backupLs(env), backupVerify(env), backupRestore(env))
	return c
}

func backupCreate(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "create FILE",
		Short: "write a backup of a running cluster",
		Long: `Create writes a backup to FILE, or with - to standard output. All that was
acknowledged before it began is in it, from whichever member it comes: from a
follower if one answers, else from the leader; --from names a member. It is
verified on the way. FILE is there only once the backup is whole and on disk, and
a file that is there is not replaced; if FILE is a folder, the backup gets a name
in it. --timeout is how long a member may send nothing.

Exit code 3: there is no member of that name. Exit code 5: no member could send
it. Exit code 6: FILE is there already.`,
		Example: `  incumbent backup create cluster.backup
  incumbent backup create /backup
  incumbent backup create - --from n2 | age -r KEY > cluster.backup.age`,
		Args: exactArgs("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			began := time.Now()
			made, err := createBackup(c, env, args[0])
			if err != nil {
				return err
			}
			if args[0] == standardStream {
				fmt.Fprintf(env.stderr, "incumbent: %s\n", made.sentence(began))
				return nil
			}
			if form != formTable {
				return printJSON(env.stdout, form, made)
			}
			err = say(env.stdout, "%s", made.sentence(began))
			return err
		},
	}
	c.Flags().String("from", "", "name of the member to take it from (default: a follower)")
	addServerFlags(c)
	addOutput(c)
	return c
}

// backupJSON is one backup in the output.
type backupJSON struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	backup.Info
	Error string `json:"error,omitempty"`
}

func (b *backupJSON) sentence(began time.Time) string {
	return fmt.Sprintf("%s: %s of index %v from %s, whole, in %v", b.File, size(uint64(b.Bytes)), b.Index, b.Member, time.Since(began).Round(time.Millisecond))
}

// createBackup asks one member after the other until one has begun to send.
func createBackup(c *cobra.Command, env *environment, to string) (backupJSON, error) {
	members, err := backupSources(c)
	if err != nil {
		return backupJSON{}, err
	}
	for i, m := range members {
		var made backupJSON
		began := false
		err = withServers(c, []string{m.Address}, func(cl *client.Client) error {
			stream, err := openBackup(c, cl)
			if err != nil {
				return err
			}
			defer stream.close()
			began = true
			made, err = takeBackup(env, stream, to)
			return err
		})
		if err == nil || began {
			return made, err
		}
		if i < len(members)-1 {
			_ = say(env.stderr, "incumbent: member %s at %s sends no backup: %v", m.Name, m.Address, err) // nobody is left to tell
		}
	}
	return backupJSON{}, err
}

// backupSources are the members to ask, in order: followers, then the leader.
func backupSources(c *cobra.Command) (list []*apiv1.Member, err error) {
	var res *connect.Response[apiv1.MembersResponse]
	err = withClient(c, func(cl *client.Client) (err error) {
		res, err = cl.Cluster().Members(c.Context(), connect.NewRequest(&apiv1.MembersRequest{}))
		return err
	})
	if err != nil {
		return nil, err
	}
	var last []*apiv1.Member
	from := text(c, "from")
	for _, m := range res.Msg.Members {
		switch {
		case from != "" && m.Name != from || m.Address == "":
		case from == m.Name:
			return []*apiv1.Member{m}, nil
		case m.Name != res.Msg.Leader && m.Connected:
			list = append(list, m)
		default:
			last = append(last, m)
		}
	}
	if from != "" {
		return nil, incumbent.Errorf(incumbent.NotFound, "there is no member %q with an address", from).WithHint("incumbent cluster ls")
	}
	if list = append(list, last...); len(list) == 0 {
		return nil, incumbent.Errorf(incumbent.Unavailable, "no member has an address").WithHint("incumbent cluster ls")
	}
	return list, nil
}

// incomingBackup is a backup that a member sends, as a file is read.
type incomingBackup struct {
	stream *connect.ServerStreamForClient[apiv1.BackupResponse]
	rest   []byte
	limit  time.Duration
	late   *time.Timer // runs while something is waited for, and ends it; nil: nothing does
	cancel context.CancelCauseFunc
	ctx    context.Context
}

// openBackup returns once the member has sent something.
func openBackup(c *cobra.Command, cl *client.Client) (*incomingBackup, error) {
	in := &incomingBackup{}
	in.ctx, in.cancel = context.WithCancelCause(c.Context())
	if in.limit, _ = c.Flags().GetDuration("timeout"); in.limit > 0 {
		in.late = time.AfterFunc(in.limit, func() {
			in.cancel(incumbent.Errorf(incumbent.DeadlineExceeded, "nothing came for %v", in.limit).WithHint("--timeout is how long to wait"))
		})
	}
	var err error
	if in.stream, err = cl.Cluster().Backup(in.ctx, connect.NewRequest(&apiv1.BackupRequest{})); err == nil {
		err = in.next()
	}
	if err != nil {
		err = in.cause(err) // to close ends the context, which says nothing then
		in.close()
		return nil, err
	}
	return in, nil
}

// next waits for the next piece; io.EOF behind the last.
func (in *incomingBackup) next() error {
	if in.late != nil {
		in.late.Reset(in.limit)
	}
	more := in.stream.Receive()
	if in.late != nil {
		in.late.Stop() // who reads what came may take longer
	}
	if !more {
		if err := in.stream.Err(); err != nil {
			return in.cause(client.AsError(err))
		}
		return io.EOF
	}
	in.rest = in.stream.Msg().Data
	return nil
}

// cause is what ended the stream, where that was decided here.
func (in *incomingBackup) cause(err error) error {
	if in.ctx.Err() != nil {
		return context.Cause(in.ctx)
	}
	return err
}

// Read implements io.Reader.
func (in *incomingBackup) Read(p []byte) (int, error) {
	for len(in.rest) == 0 {
		if err := in.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

func (in *incomingBackup) close() {
	if in.late != nil {
		in.late.Stop()
	}
	if in.stream != nil {
		_ = in.stream.Close() // what came is what counts
	}
	in.cancel(nil)
}

// takeBackup verifies what comes and writes it to a file or standard output.
func takeBackup(env *environment, in io.Reader, to string) (made backupJSON, err error) {
	fsys := vfs.OS{}
	if to == standardStream {
		made.File = "standard output"
		made.Info, err = copyBackup(env.stdout, in, &made.Bytes)
		return made, err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		return takeInto(fsys, in, to)
	}
	made.File = to
	err = backup.Save(fsys, to, func(w io.Writer) (err error) {
		made.Info, err = copyBackup(w, in, &made.Bytes)
		return err
	})
	return made, err
}

// takeInto gives the backup the name that a server would give it.
func takeInto(fsys vfs.FS, in io.Reader, dir string) (made backupJSON, err error) {
	var head strings.Builder
	b, err := backup.Open(io.TeeReader(in, &head), "the backup")
	if err != nil {
		return made, err
	}
	made.File = filepath.Join(dir, b.Info.FileName())
	err = backup.Save(fsys, made.File, func(w io.Writer) (err error) {
		made.Info, err = copyBackup(w, io.MultiReader(strings.NewReader(head.String()), in), &made.Bytes)
		return err
	})
	return made, err
}

// copyBackup copies a backup and verifies it on the way.
func copyBackup(to io.Writer, in io.Reader, bytes *int64) (backup.Info, error) {
	count := &counter{w: to}
	info, err := backup.Check(io.TeeReader(in, count), "what the member sent")
	*bytes = count.n
	return info, err
}

type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
