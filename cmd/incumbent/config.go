package main

import (
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

func configCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "config",
		Short:   "show and check settings of a member, read and change those of the cluster",
		Example: "  incumbent config show --effective\n  incumbent config check incumbent.yaml\n  incumbent config set kv.quota-bytes 4GiB",
	}
	c.AddCommand(configShow(env), configCheck(env), configGet(env), configSet(env), configUnset(env), configHistory(env))
	return c
}

func configShow(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "print settings",
		Long: `Show prints the settings that 'incumbent server' would take here: from the
environment, from the file --config names, and the defaults. With --effective it
asks a running server for those it has, and where each came from: 'cluster' and
'cluster default' are those of the cluster, which 'incumbent config set' changes on
all members; all others are the member's own.`,
		Example: "  incumbent config show\n  incumbent config show --effective --server http://127.0.0.1:7600",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			effective, _ := c.Flags().GetBool("effective")
			if effective {
				return withClient(c, func(cl *client.Client) error {
					res, err := cl.Cluster().Settings(c.Context(), connect.NewRequest(&apiv1.SettingsRequest{}))
					if err != nil {
						return err
					}
					var all []setting
					for _, s := range res.Msg.Settings {
						all = append(all, setting{s.Name, s.Value, s.Source})
					}
					return printSettings(env, form, all)
				})
			}
			server := serverCommand(env)
			server.Flags().AddFlag(c.Flag("config"))
			// Resolved against the whole command tree, so that a key that belongs to
			// another command is not an error here.
			all, err := resolveSettingsIn(server, c.Root(), env)
			if err != nil {
				return err
			}
			return printSettings(env, form, all)
		},
	}
	c.Flags().Bool("effective", false, "of a running server")
	addServerFlags(c)
	addOutput(c)
	return c
}

func printSettings(env *environment, form string, all []setting) error {
	if form != formTable {
		return printList(env.stdout, form, all)
	}
	t := &table{header: []string{"setting", "value", "from"}}
	for _, s := range all {
		t.row(s.Name, orDash(strings.TrimSpace(s.Value)), s.Source)
	}
	return t.print(env.stdout)
}

func configCheck(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "check a settings file",
		Long: `Check reads FILE and the files that it names, looks at the data directory, and lists
all that is wrong, each with its line. It changes nothing. Exit code 2: something is.`,
		Example: "  incumbent config check /etc/incumbent.yaml",
		Args:    exactArgs("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			wrong := checkFile(c, env, args[0])
			if len(wrong) > 0 {
				return usageError{strings.Join(wrong, "\n")}
			}
			return say(env.stdout, "%s: ok", args[0])
		},
	}
}

// checkFile returns all that is wrong with a settings file of a server.
func checkFile(c *cobra.Command, env *environment, path string) (wrong []string) {
	cmd := serverCommand(env)
	cmd.Flags().String("config", path, "")
	file, errs := readSettings(path, c.Root())
	_, more := resolveFlags(cmd, env, file, path)
	for _, err := range append(errs, more...) {
		wrong = append(wrong, err.Error())
	}
	if len(wrong) > 0 && file == nil {
		return wrong // nothing of it can be read
	}
	cfg, err := serverConfig(cmd, nil)
	if err != nil {
		wrong = append(wrong, path+": "+err.Error())
	}
	cfg.JoinToken = joinToken(env)
	add := func(setting string, err error) {
		where := path
		if at, ok := file[setting]; ok {
			where = fmt.Sprintf("%s:%d", path, at.line)
		}
		wrong = append(wrong, where+": "+errorText(err))
	}
	if _, err := logFormat(cmd); err != nil {
		add("log-format", err)
	}
	for _, p := range cfg.Problems() {
		add(p.Setting, p.Err)
	}
	return wrong
}
