package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// kvCommand is the noun of keys and values.
func kvCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "kv",
		Short: "keep values under keys",
		Example: `  incumbent kv put config/url http://10.0.0.1
  incumbent kv get config/url
  incumbent kv ls config/`,
	}
	c.PersistentFlags().String("namespace", incumbent.DefaultNamespace, "namespace of the keys")
	addServerFlags(c)
	c.AddCommand(kvGet(env), kvPut(env), kvRemove(env), kvList(env), kvWatch(env), kvImport(env))
	return c
}

// withKeys runs one call with the keys of the namespace that the flags name.
func withKeys(c *cobra.Command, call func(*client.KV) error) error {
	return withClient(c, func(cl *client.Client) error { return call(cl.KV(text(c, "namespace"))) })
}

func kvGet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "get KEY",
		Short: "print the value of a key",
		Long: `Get prints the value of KEY as it is, byte for byte. With -o json it prints the
whole entry, its value in base64. Exit code 3: it is not there.`,
		Example: "  incumbent kv get config/url\n  incumbent kv get config/url -o json | jq -r .modified_index",
		Args:    exactArgs("KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			return withKeys(c, func(keys *client.KV) error {
				e, err := keys.Get(c.Context(), args[0])
				if err != nil {
					return err
				}
				if form != formTable {
					return printProto(env.stdout, form, e)
				}
				_, err = env.stdout.Write(e.Value)
				return err
			})
		},
	}
	addOutput(c)
	return c
}

func kvPut(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "put KEY VALUE",
		Short: "store a value under a key",
		Long: `Put stores VALUE under KEY: the argument itself, @FILE for what is in a file, - for
standard input. --if-index stores it only if the entry was last modified at that
index, 0: only if it is not there; --if-value only if it has that value. Exit code
6: it is otherwise.`,
		Example: `  incumbent kv put config/url http://10.0.0.1
  incumbent kv put config/tls @server.pem
  incumbent kv put leader me --if-index 0`,
		Args: exactArgs("KEY", "VALUE"),
		RunE: func(c *cobra.Command, args []string) error {
			value, err := valueOf(env, args[1])
			if err != nil {
				return err
			}
			flags, _ := c.Flags().GetUint64("flags")
			opts := []client.PutOption{client.Flags(flags)}
			byIndex, byValue := c.Flags().Changed("if-index"), c.Flags().Changed("if-value")
			switch {
			case byIndex && byValue:
				return usageError{"give either --if-index or --if-value"}
			case byIndex:
				index, _ := c.Flags().GetUint64("if-index")
				opts = append(opts, client.IfIndex(incumbent.Index(index)))
			case byValue:
				was, err := valueOf(env, text(c, "if-value"))
				if err != nil {
					return err
				}
				opts = append(opts, client.IfValue(was))
			}
			return withKeys(c, func(keys *client.KV) error {
				res, err := keys.PutEntry(c.Context(), args[0], value, opts...)
				if err != nil {
					return foundAt(err)
				}
				return printMessage(c, env, res, "%s stored at index %d", args[0], res.Index)
			})
		},
	}
	c.Flags().Uint64("flags", 0, "a number that is kept with the value")
	c.Flags().Uint64("if-index", 0, "only if it was last modified at this index, 0: only if it is not there")
	c.Flags().String("if-value", "", "only if it has this value; @FILE and - as for VALUE")
	addOutput(c)
	return c
}

// foundAt says where the entry stands that a condition did not meet.
func foundAt(err error) error {
	var typed *incumbent.Error
	if !errors.As(err, &typed) || typed.Hint != "" || typed.Kind != incumbent.Conflict {
		return err
	}
	if e := client.FoundEntry(err); e != nil {
		return typed.WithHint("it was last modified at index " + strconv.FormatUint(e.ModifiedIndex, 10))
	}
	return typed.WithHint("it is not there, or not shown to you")
}

// valueOf reads a value: the argument, a file (@) or standard input (-).
func valueOf(env *environment, arg string) ([]byte, error) {
	var value []byte
	var err error
	switch name, isFile := strings.CutPrefix(arg, "@"); {
	case arg == "-":
		value, err = io.ReadAll(env.input())
	case isFile:
		value, err = os.ReadFile(name)
	default:
		value = []byte(arg)
	}
	switch {
	case interrupted(err):
		return nil, err
	case err != nil:
		return nil, usageError{"cannot read: " + err.Error()}
	}
	return value, nil
}

func kvRemove(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rm KEY",
		Short: "delete a key, or all below a prefix",
		Long: `Rm deletes KEY; exit code 3: it is not there, or is gone since a first attempt whose answer
was lost. With --tree it deletes all keys that begin with KEY, in one step. With --if-index it
deletes KEY only if it was last modified then; exit code 6: it was not.`,
		Example: "  incumbent kv rm config/url\n  incumbent kv rm config/ --tree",
		Args:    exactArgs("KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			tree, _ := c.Flags().GetBool("tree")
			index, _ := c.Flags().GetUint64("if-index")
			byIndex := c.Flags().Changed("if-index")
			if tree && byIndex {
				return usageError{"give either --tree or --if-index"}
			}
			return withKeys(c, func(keys *client.KV) error {
				n := 1
				var err error
				switch {
				case tree:
					n, err = keys.DeleteTree(c.Context(), args[0])
				case byIndex:
					err = keys.DeleteIf(c.Context(), args[0], incumbent.Index(index))
				default:
					var was bool
					if was, err = keys.Delete(c.Context(), args[0]); err == nil && !was {
						err = incumbent.Errorf(incumbent.NotFound, "key %q is not there", args[0])
					}
				}
				if err != nil {
					return foundAt(err)
				}
				return printMessage(c, env, &apiv1.DeleteResponse{Deleted: uint32(n)}, "%d deleted", n)
			})
		},
	}
	c.Flags().Bool("tree", false, "delete all keys that begin with KEY")
	c.Flags().Uint64("if-index", 0, "only if it was last modified at this index")
	addOutput(c)
	return c
}

func kvList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "list keys below a prefix",
		Long: `Ls lists the keys that begin with PREFIX, in their order, a page at a time from the
server, all of them here. With --separator those that have it behind PREFIX are
listed once, by what they have in common. With --values -o json and jsonl have
their values, too, in base64.`,
		Example: "  incumbent kv ls config/\n  incumbent kv ls --separator /\n  incumbent kv ls config/ --values -o jsonl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			values, _ := c.Flags().GetBool("values")
			req := &apiv1.ListKeysRequest{KeysOnly: !values, Separator: text(c, "separator"), Prefix: first(args)}
			req.Stale, _ = c.Flags().GetBool("stale")
			return withKeys(c, func(keys *client.KV) error { return listKeys(c, env, form, keys, req) })
		},
	}
	c.Flags().String("separator", "", "list what has it behind the prefix once")
	c.Flags().Bool("values", false, "with their values")
	addStale(c)
	addOutput(c)
	return c
}

func listKeys(c *cobra.Command, env *environment, form string, keys *client.KV, req *apiv1.ListKeysRequest) error {
	t := &table{header: []string{"key", "flags", "modified", "session"}}
	docs := []any{}
	take := func(v any) error {
		if form == formJSONL {
			return printJSON(env.stdout, form, v)
		}
		docs = append(docs, v)
		return nil
	}
	err := keys.List(c.Context(), req, func(page *apiv1.ListKeysResponse) error {
		for _, p := range page.Prefixes {
			if t.row(p, "-", "-", "-"); form == formTable {
				continue
			}
			if err := take(map[string]any{"prefix": p}); err != nil {
				return err
			}
		}
		for _, e := range page.Entries {
			if form == formTable {
				t.row(e.Key, strconv.FormatUint(e.Flags, 10), strconv.FormatUint(e.ModifiedIndex, 10), orDash(e.Session))
				continue
			}
			v, err := protoValue(e)
			if err != nil {
				return err
			}
			if err := take(v); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case form == formTable:
		return t.print(env.stdout)
	case form == formJSON:
		return printJSON(env.stdout, form, docs)
	}
	return nil
}

// consulEntry is one of the list that 'consul kv export' prints.
type consulEntry struct {
	Key   string `json:"key"`
	Flags uint64 `json:"flags"`
	Value []byte `json:"value"`
}

func kvImport(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "store what 'consul kv export' printed",
		Long: `Import stores all entries of FILE (- for standard input), as 'consul kv export'
prints them: a JSON list of key, flags and value in base64. Entries that are there
are overwritten. It ends with the first entry that is refused, and says how many
were stored; it can be run again.`,
		Example: "  incumbent kv import backup.json\n  incumbent kv import - < backup.json",
		Args:    exactArgs("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			from := "@" + args[0]
			if args[0] == "-" {
				from = "-"
			}
			raw, err := valueOf(env, from)
			if err != nil {
				return err
			}
			var list []consulEntry
			if err := json.Unmarshal(raw, &list); err != nil {
				return usageError{"the file is not what 'consul kv export' prints: " + err.Error()}
			}
			return withKeys(c, func(keys *client.KV) error {
				for i, e := range list {
					if _, err := keys.Put(c.Context(), e.Key, e.Value, client.Flags(e.Flags)); err != nil {
						fmt.Fprintf(env.stderr, "%d of %d stored, then key %q\n", i, len(list), e.Key)
						return err
					}
				}
				if form != formTable {
					return printJSON(env.stdout, form, map[string]any{"stored": len(list)})
				}
				_, err := fmt.Fprintf(env.stdout, "%d stored\n", len(list))
				return err
			})
		},
	}
	addOutput(c)
	return c
}
