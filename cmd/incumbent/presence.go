package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// presenceCommand is the noun of who is alive.
func presenceCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "presence",
		Short: "see who is alive",
		Long: `Presence shows those who say that they are alive by an open session: agents of a
control plane, mostly. They are the keys below presence/ that sessions have locked.
alive: its session is open; down: that ended without a good-bye, for its ttl ran out
after the last beat; left: it said good-bye; expected: it has never been there.`,
		Example: `  incumbent presence ls
  incumbent presence watch unit/`,
	}
	c.PersistentFlags().String("namespace", incumbent.DefaultNamespace, "namespace of the keys")
	addServerFlags(c)
	c.AddCommand(presenceList(env), presenceWatch(env))
	return c
}

func presenceList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "list who is there",
		Long: `Ls lists those whose names begin with PREFIX, in the order of their names, with how
they are, the index since which they are so, and by which session. --state lists only
those that are so.`,
		Example: "  incumbent presence ls unit/mysql/\n  incumbent presence ls --state down -o jsonl | jq -r .name",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			state := client.PresenceState(text(c, "state"))
			switch state {
			case "", client.Alive, client.Down, client.Left, client.Expected:
			default:
				return usageError{fmt.Sprintf("state %q is none of alive, down, left, expected", state)}
			}
			return withKeys(c, func(keys *client.KV) error {
				all := []client.Present{}
				for after := ""; ; {
					list, next, err := keys.ListPresent(c.Context(), first(args), after, 0)
					if err != nil {
						return err
					}
					for _, p := range list {
						if state == "" || p.State == state {
							all = append(all, p)
						}
					}
					if after = next; next == "" {
						return printPresent(env.stdout, form, all)
					}
				}
			})
		},
	}
	c.Flags().String("state", "", "only those that are alive, down, left or expected")
	addOutput(c)
	return c
}

func printPresent(out io.Writer, form string, all []client.Present) error {
	if form != formTable {
		return printList(out, form, all)
	}
	t := &table{header: []string{"name", "state", "since", "session"}}
	for _, p := range all {
		t.row(p.Name, string(p.State), strconv.FormatUint(p.Since, 10), orDash(p.Session))
	}
	return t.print(out)
}

func presenceWatch(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "follow who comes and goes",
		Long: `Watch prints those whose names begin with PREFIX and how they are, and then every
change of that, in order, until interrupted, and goes on with another member when one
fails. Where the history is gone it begins anew with who is there. A line says that who is
there follows, at the beginning and then: who is not listed behind it is gone. With -o json,
too, each change is one line; the first of who is there has "first", and no name if nobody is.`,
		Example: "  incumbent presence watch\n  incumbent presence watch unit/ -o jsonl | jq -r 'select(.state == \"down\").name'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return untilInterrupted(c, withKeys(c, func(keys *client.KV) error {
				_, _, err := keys.ListPresent(c.Context(), first(args), "", 1)
				if err := wrong(err); err != nil {
					return err
				}
				return follow(c, env, keys.WatchPresent(c.Context(), first(args), 0), printPresenceChange)
			}))
		},
	}
	addOutput(c)
	return c
}

func printPresenceChange(out io.Writer, form string, c client.PresenceChange) error {
	if form != formTable {
		return printJSON(out, formJSONL, c)
	}
	switch {
	case c.First && c.Name == "":
		return say(out, "%8d  nobody is there", c.Index)
	case c.First:
		if err := say(out, "those who are there:"); err != nil {
			return err
		}
	}
	is := string(c.State)
	if c.Gone {
		is = "gone"
	}
	return say(out, "%8d  %-8s  %-8s  %s", c.Index, orDash(string(c.Was)), is, c.Name)
}
