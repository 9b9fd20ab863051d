package main

import (
	"fmt"
	"io"
	"strconv"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// shownValue is how many bytes of a value a person is shown.
const shownValue = 60

func kvWatch(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "watch KEY | --prefix PREFIX",
		Short: "follow changes of keys",
		Long: `Watch prints what is there and then every change of KEY, or of the keys that begin
with PREFIX (empty: all of the namespace), in order, until interrupted, and goes on
with another member when one fails. --after resumes after an index; exit code 6 says
that the history back to it is gone, or that the cluster has no such index. --fields
tells only the changes of these: value, flags, lock. With
-o json, too, each change is one line: what it was (put, deleted, locked, unlocked;
present for what was there), the entry and the previous one, null where there is
none, values in base64, which --keys-only leaves out.`,
		Example: `  incumbent kv watch config/url
  incumbent kv watch --prefix config/ -o json | jq -r .what
  incumbent kv watch --prefix '' --keys-only --after 1234
  incumbent kv watch leader --fields lock`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			opts, err := keysToWatch(c, form, args)
			if err != nil {
				return err
			}
			return untilInterrupted(c, withClient(c, func(cl *client.Client) error {
				namespace := text(c, "namespace")
				_, err := cl.Keys().List(c.Context(), connect.NewRequest(&apiv1.ListKeysRequest{
					Namespace: namespace, Prefix: opts.Key, KeysOnly: true, Limit: 1,
				}))
				if err := wrong(err); err != nil {
					return err
				}
				return follow(c, env, cl.KV(namespace).Watch(c.Context(), opts), printKeyEvents)
			}))
		},
	}
	c.Flags().String("prefix", "", "all keys that begin with this, instead of one")
	c.Flags().Bool("keys-only", false, "without values")
	c.Flags().Uint64("after", 0, "resume after this index")
	c.Flags().StringSlice("fields", nil, "only changes of these fields: value, flags, lock")
	addOutput(c)
	return c
}

// keysToWatch is what the arguments name. A line for people shows no old value.
func keysToWatch(c *cobra.Command, form string, args []string) (o client.WatchKeysOptions, err error) {
	o.Key, o.Prefix = text(c, "prefix"), c.Flags().Changed("prefix")
	if (len(args) == 1) == o.Prefix {
		return o, usageError{"give either KEY or --prefix"}
	}
	if len(args) == 1 {
		o.Key = args[0]
	}
	after, _ := c.Flags().GetUint64("after")
	o.After = incumbent.Index(after)
	o.Fields, _ = c.Flags().GetStringSlice("fields")
	switch only, _ := c.Flags().GetBool("keys-only"); {
	case only:
		o.Values = apiv1.WatchedValues_WATCHED_VALUES_NONE
	case form == formTable:
		o.Values = apiv1.WatchedValues_WATCHED_VALUES_NEW
	}
	return o, nil
}

func printKeyEvents(out io.Writer, form string, m *apiv1.WatchKeysResponse) error {
	for _, e := range m.Events {
		if form != formTable {
			if err := printProto(out, formJSONL, e); err != nil {
				return err
			}
			continue
		}
		key := e.GetEntry().GetKey()
		if e.Entry == nil {
			key = e.GetPrevious().GetKey()
		}
		if err := say(out, "%8d  %-8s  %s%s", e.Index, e.What, key, keyNote(e)); err != nil {
			return err
		}
	}
	return nil
}

// keyNote is what a line for people says of the entry behind its key.
func keyNote(e *apiv1.KeyEvent) (note string) {
	switch v := e.GetEntry().GetValue(); {
	case len(v) > shownValue:
		note = fmt.Sprintf("  %q… (%d bytes)", v[:shownValue], len(v))
	case len(v) > 0:
		note = "  " + strconv.Quote(string(v))
	}
	if s := e.GetEntry().GetSession(); s != "" {
		note += "  session " + s
	}
	return note
}
