package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/vfs"
)

func backupLs(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ls FILE|DIR…",
		Short: "show what backups are",
		Long: `Ls shows what files, and those called .backup in folders, say of themselves. It
reads only their beginnings: 'incumbent backup verify' reads all.`,
		Example: "  incumbent backup ls /backup\n  incumbent backup ls cluster.backup -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			var all []backupJSON
			for _, name := range args {
				list, err := lookAt(name)
				if err != nil {
					return err
				}
				all = append(all, list...)
			}
			if form != formTable {
				return printList(env.stdout, form, all)
			}
			return printBackups(env.stdout, all)
		},
	}
	addOutput(c)
	return c
}

// lookAt returns what a file is, or the files of a folder.
func lookAt(name string) (all []backupJSON, err error) {
	var list []backup.File
	dir := name
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if list, err = backup.List(vfs.OS{}, name); err != nil {
			return nil, err
		}
	} else {
		one := backup.Look(vfs.OS{}, name)
		if one.Err != nil {
			return nil, notThere(name, one.Err)
		}
		list, dir = append(list, one), filepath.Dir(name)
	}
	for _, f := range list {
		b := backupJSON{File: filepath.Join(dir, f.Name), Bytes: f.Bytes, Info: f.Info}
		if f.Err != nil {
			b.Error = f.Err.Error()
		}
		all = append(all, b)
	}
	return all, nil
}

// notThere makes a file that does not exist the error that it is.
func notThere(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return incumbent.Errorf(incumbent.NotFound, "%s does not exist", name)
	}
	return err
}

func printBackups(out io.Writer, all []backupJSON) error {
	t := &table{header: []string{"file", "taken", "index", "size", "from", "cluster", "holds"}}
	for _, b := range all {
		if b.Error != "" {
			t.row(b.File, "-", "-", size(uint64(b.Bytes)), "-", "-", b.Error)
			continue
		}
		t.row(b.File, b.At.Format(time.RFC3339), b.Index.String(), size(uint64(b.Bytes)), orDash(b.Member), b.Cluster[:min(8, len(b.Cluster))], holds(&b.Info))
	}
	return t.print(out)
}

// holds lists what there is of each kind.
func holds(info *backup.Info) string {
	var list []string
	for _, of := range info.Contents {
		if of.Records > 0 {
			list = append(list, fmt.Sprintf("%d %s", of.Records, of.Name))
		}
	}
	return orDash(strings.Join(list, ", "))
}

func backupVerify(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "verify FILE",
		Short: "read a backup to its end and check everything",
		Long: `Verify reads a backup, or with - standard input, as a restore does: each checksum,
each record, and that all of it fits together. It needs no server, and memory for
all that the backup holds.

Exit code 1: the backup is damaged, and where. Exit code 2: it is no backup, or
newer than this program. Exit code 3: there is no such file.`,
		Example: "  incumbent backup verify cluster.backup\n  ssh backup cat cluster.backup | incumbent backup verify -",
		Args:    exactArgs("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			in, done, err := openFile(env, args[0])
			if err != nil {
				return err
			}
			defer done()
			made := backupJSON{File: args[0]}
			count := &counter{w: io.Discard}
			if made.Info, _, err = backup.Verify(io.TeeReader(in, count), args[0]); err != nil {
				return err
			}
			made.Bytes = count.n
			if form != formTable {
				return printJSON(env.stdout, form, made)
			}
			_, err = fmt.Fprintf(env.stdout, "%s is whole: index %v of cluster %s, taken %s; %s\n",
				args[0], made.Index, made.Cluster, made.At.Format(time.RFC3339), holds(&made.Info))
			return err
		},
	}
	addOutput(c)
	return c
}

// openFile opens a file to read, or standard input.
func openFile(env *environment, name string) (io.Reader, func(), error) {
	if name == standardStream {
		return env.input(), func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, notThere(name, err)
	}
	return f, func() { _ = f.Close() }, nil // only read from
}
